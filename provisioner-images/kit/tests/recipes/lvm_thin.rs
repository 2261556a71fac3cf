//! The recipe `lvm-thin` with a scripted `lvm`, whose volumes are files: the kernel of the test's machine has no device
//! mapper.

use std::fs;
use std::path::{Path, PathBuf};

use super::api::path_text;
use super::cases::{self, Backend, id};
use super::conformance;
use super::desk::{Desk, SIZE, system};
use super::host;

const POOL: u64 = 40 * SIZE;

struct Node {
    desk: Desk,
    folder: tempfile::TempDir,
}

impl Node {
    fn new() -> Self {
        Self::with("flock 9")
    }

    /// Returns a node whose runs take the lock by another command.
    fn with(flock: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let of = |name: &str| path_text(folder.path().join(name));
        fs::create_dir(of("lock")).unwrap();
        let replace = [
            ("dev=/dev/$VOLUME_GROUP", format!("dev={}", of("dev/flex"))),
            ("/run/lock/flex", of("lock")),
            ("flock 9", flock.to_owned()),
        ];
        let state = of("dev");
        Self::in_folder(folder, &replace, &state)
    }

    /// Returns a node whose runs have a `/dev` and a lock of their own by the mounts of their pods.
    fn with_mounts() -> Self {
        let node = Self::in_folder(tempfile::tempdir().unwrap(), &[], "/dev");
        let dev = path_text(node.folder.path().join("dev"));
        system(&format!("cd {dev}; mknod -m 666 null c 1 3; mknod -m 666 urandom c 1 9"));
        node
    }

    /// Returns a node with its devices in a folder. `state` is their place as the runs see it.
    fn in_folder(folder: tempfile::TempDir, replace: &[(&str, String)], state: &str) -> Self {
        let of = |name: &str| folder.path().join(name);
        fs::create_dir_all(of("dev/flex")).unwrap();
        fs::write(of("dev/pool"), POOL.to_string()).unwrap();
        let played = fs::read_to_string(host::scripted().join("played-lvm")).unwrap();
        let replace = replace.iter().map(|(from, to)| (*from, to.as_str()));
        let replace = replace.chain([("nsenter -t 1 -m -u -i -n -- lvm", "played-lvm")]).collect::<Vec<_>>();
        let desk =
            Desk::new("lvm-thin", &replace, &["/usr/bin/flock", "/sbin/e2fsck", "/sbin/resize2fs"].map(Path::new));
        desk.add_program("played-lvm", &played.replace("LVM_STATE", state));
        Node { desk, folder }
    }

    fn device(&self, id: &str) -> PathBuf {
        self.folder.path().join(format!("dev/flex/flex-{id}"))
    }
}

impl Backend for Node {
    fn desk(&self) -> &Desk {
        &self.desk
    }

    fn objects(&self) -> Vec<String> {
        system(&format!("ls {}", path_text(self.folder.path().join("dev/flex")))).lines().map(str::to_owned).collect()
    }

    fn size(&self, id: &str) -> u64 {
        fs::metadata(self.device(id)).unwrap().len()
    }

    /// Writes at the end of the first megabyte, as the file system has other blocks before.
    fn write(&self, id: &str, text: &str) {
        use std::os::unix::fs::FileExt;
        let file = fs::OpenOptions::new().write(true).open(self.device(id)).unwrap();
        let mut block = text.as_bytes().to_vec();
        block.resize(512, 0);
        file.write_all_at(&block, 1 << 20).unwrap();
    }

    fn read(&self, id: &str) -> String {
        let bytes = fs::read(self.device(id)).unwrap();
        String::from_utf8(bytes[1 << 20..(1 << 20) + 512].to_vec()).unwrap().trim_end_matches('\0').to_owned()
    }

    fn granularity(&self) -> u64 {
        4 << 20
    }
}

#[test]
fn lvm_thin_passes_the_cases_of_all_recipes() {
    let node = Node::new();
    cases::all(&node);
}

#[test]
fn lvm_thin_passes_conformance() {
    let node = Node::with_mounts();
    let dev = format!("/dev={}", path_text(node.folder.path().join("dev")));
    conformance::passes(&node, &[], &["--on-node", &dev]);
}

#[test]
fn a_larger_copy_of_a_thin_volume_has_a_larger_file_system() {
    let node = Node::new();
    assert_eq!(node.desk.run("provision", &id(1), &[]).code, Some(0));
    let source = node.desk.source(&id(1));
    assert!(source.contains("\"fsType\":\"ext4\""), "{source}");
    system(&format!("mkfs.ext4 -q {}", path_text(node.device(&id(1)))));
    let size = (2 * SIZE).to_string();
    let of = [("CLONE_OF", id(1)), ("CLONE_OF_SOURCE", source), ("SIZE_BYTES", size)];
    let of: Vec<_> = of.iter().map(|(name, value)| (*name, value.as_str())).collect();
    // A run was killed before it made the file system larger.
    let (from, to) = (path_text(node.device(&id(1))), path_text(node.device(&id(2))));
    system(&format!("cp {from} {to}; truncate -s {} {to}", 2 * SIZE));
    let ended = node.desk.run("provision", &id(2), &of);
    assert_eq!(ended.code, Some(0), "{ended:?}");
    let shown = system(&format!("dumpe2fs -h {} 2>/dev/null", path_text(node.device(&id(2)))));
    let number = |name: &str| -> u64 {
        let line = shown.lines().find_map(|line| line.strip_prefix(name)).unwrap();
        line.trim().parse().unwrap()
    };
    assert_eq!(number("Block count:") * number("Block size:"), 2 * SIZE);
    let block = [("VOLUME_MODE", "Block")];
    assert_eq!(node.desk.run("provision", &id(3), &block).code, Some(0));
    assert!(node.desk.volume(&id(3))["spec"]["local"]["fsType"].is_null());
}

#[test]
fn a_thin_pool_is_not_promised_twice_and_must_be_there() {
    let node = Node::new();
    let ended = node.desk.run("provision", &id(1), &[("SIZE_BYTES", &(POOL + 1).to_string())]);
    assert!(ended.code == Some(69) && ended.last_words.contains("no volume was promised"), "{ended:?}");
    for (name, words) in [("VOLUME_GROUP", "volume group"), ("THIN_POOL", "thin pool")] {
        for operation in ["provision", "delete", "list", "capacity"] {
            let ended = node.desk.run(operation, &id(1), &[(name, "another")]);
            assert!(ended.code == Some(78) && ended.last_words.contains(words), "{operation} {name}: {ended:?}");
        }
    }
    assert!(node.objects().is_empty());
}

#[test]
fn without_the_lock_of_the_node_no_run_does_anything() {
    let node = Node::with("false");
    for operation in ["provision", "expand", "delete", "snapshot", "delete-snapshot", "list", "capacity"] {
        let ended = node.desk.run(operation, &id(1), &[("SNAPSHOT_ID", &id(90))]);
        assert!(ended.code == Some(75) && ended.output.contains("the lock of node"), "{operation}: {ended:?}");
    }
    assert!(node.objects().is_empty());
}
