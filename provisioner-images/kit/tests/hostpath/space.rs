//! Tests of the directories of a node, and of the space in them.

use super::*;

/// A small file system, mounted at a directory.
pub(super) struct Disk(PathBuf);

impl Disk {
    /// Makes a file system of 64 MiB with these options.
    pub(super) fn mounted(node: &Node, at: PathBuf, options: &str) -> Self {
        let (image, path) = (path_text(node.folder.path().join("image")), path_text(at.clone()));
        let made = format!("truncate -s 64M {image} && mkfs.ext4 -q -b 4096 -m 0 {options} {image}");
        let script = format!("{made} && mount -o loop {image} {path} && rmdir {path}/lost+found");
        assert!(Command::new("sh").args(["-c", &script]).status().unwrap().success(), "{script}");
        Disk(at)
    }

    /// Fills a directory until a copy of it has no room: by one file, or by the number of its files.
    pub(super) fn fill(&self, name: &str, files: usize) {
        let folder = self.0.join(name);
        fs::create_dir_all(folder.join("deep")).unwrap();
        let size = if files == 1 { 40 << 20 } else { 10 };
        for n in 0..files {
            fs::write(folder.join(format!("deep/{n}")), vec![1; size]).unwrap();
        }
    }

    /// Returns the free bytes and the free inodes, when all is on the disk.
    pub(super) fn free(&self) -> (u64, u64) {
        assert!(Command::new("sync").arg("-f").arg(&self.0).status().unwrap().success());
        let stat = rustix::fs::statvfs(&self.0).unwrap();
        (stat.f_bavail * stat.f_frsize, stat.f_favail)
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        let ended = Command::new("umount").arg(&self.0).status().unwrap();
        assert!(ended.success() || std::thread::panicking());
    }
}

/// A file system may lack bytes, or inodes.
pub(super) const DISKS: [(&str, usize); 2] = [("", 1), ("-N 64", 30)];

#[test]
fn a_copy_without_room_takes_none_from_others() {
    for (options, files) in DISKS {
        let (node, api) = (Node::new(), Api::start(vec![Reply::Echo]));
        let disk = Disk::mounted(&node, node.base(), options);
        disk.fill(SOURCE_ID, files);
        let source = format!(r#"{{"local":{{"path":"{}"}}}}"#, path_text(node.base().join(SOURCE_ID)));
        let clone = [("CLONE_OF", SOURCE_ID), ("CLONE_OF_SOURCE", source.as_str())];
        let snapshot = [("SNAPSHOT_ID", SNAPSHOT), ("CLAIM_UUID", SOURCE_ID), ("VOLUME_SOURCE", source.as_str())];
        let before = disk.free();
        for (operation, of) in [("provision", &clone[..]), ("snapshot", &snapshot[..])] {
            let ended = node.run(operation, "", of);
            assert!(ended.code == 69 && ended.termination_message.contains("No space left"), "{options}: {ended:?}");
            assert_eq!((disk.free(), node.names()), (before, vec![SOURCE_ID.to_owned()]), "{options} {operation}");
        }
        // A run that was killed has left half a copy. It does not count against the next one.
        let half = node.base().join(format!(".copying-{ID}"));
        fs::create_dir(&half).unwrap();
        fs::write(half.join("big"), vec![1; 12 << 20]).unwrap();
        fs::remove_dir_all(node.base().join(SOURCE_ID).join("deep")).unwrap();
        let most = (disk.free().0 + (8 << 20)).to_string();
        let ended = node.run("provision", &api.kubeconfig(), &[&clone[..], &[("SIZE_BYTES", &most)]].concat());
        assert_eq!((ended.code, half.exists()), (0, false), "{ended:?}");
    }
}

#[test]
fn a_volume_is_made_in_the_directory_with_the_most_space_and_is_found_again() {
    let (node, api) = (Node::new(), Api::start(vec![Reply::Echo, Reply::Echo]));
    let memory = tempfile::tempdir_in("/dev/shm").unwrap();
    let paths = [path_text(node.base()), path_text(memory.path().to_owned())];
    let (both, turned) = (paths.join(" "), [paths[1].as_str(), paths[0].as_str()].join(" "));
    let room = |at: &str| {
        let ended = node.run("capacity", "", &[("BASE_PATH", at)]);
        flex_contract::capacity::Answer::read(&ended.termination_message)
            .unwrap_or_else(|error| panic!("{error}: {ended:?}"))
    };
    let (first, second, all) = (room(&paths[0]), room(&paths[1]), room(&both));
    // Other processes write there, too.
    let about = |is: u64, should: u64| is.abs_diff(should) < should / 4;
    assert!(about(all.bytes, first.bytes + second.bytes), "{all:?} of {first:?} and {second:?}");
    assert!(all.largest.is_some_and(|largest| about(largest, first.bytes.max(second.bytes))), "{all:?}");
    let twice = [paths[0].as_str(), &paths[0]].join(" ");
    assert!(about(room(&twice).bytes, first.bytes), "one file system counts once");

    for order in [&both, &turned] {
        let ended = node.run("provision", &api.kubeconfig(), &[("BASE_PATH", order)]);
        assert_eq!(ended.code, 0, "{ended:?}");
    }
    let (roomy, other) = if first.bytes > second.bytes { (&paths[0], &paths[1]) } else { (&paths[1], &paths[0]) };
    let has = |at: &str, name: &str| Path::new(at).join(name).is_dir();
    assert!(has(roomy, ID) && !has(other, ID), "in {roomy}, where there is more space");
    let grows = [("SIZE_BYTES", "2097152"), ("OLD_SIZE_BYTES", "1048576"), ("BASE_PATH", &both)];
    assert_eq!(node.run("expand", "", &grows).code, 0);
    let listed = node.command("list", "", &[("BASE_PATH", &turned)]).output().unwrap();
    let listed = flex_contract::listing::read(&String::from_utf8(listed.stdout).unwrap()).unwrap();
    assert_eq!(listed.iter().map(|entry| entry.place.as_str()).collect::<Vec<_>>(), [format!("{roomy}/{ID}")]);
    // The same for leftovers of a died run in the directory without the volume.
    let half = format!(".copying-{ID}");
    fs::create_dir(Path::new(other).join(&half)).unwrap();
    assert_eq!(node.run("delete", "", &[("BASE_PATH", &both)]).code, 0);
    assert!(!has(roomy, ID) && !has(other, &half));
}

#[test]
fn a_node_can_have_directories_of_its_own() {
    let (node, api) = (Node::new(), Api::start(vec![Reply::Echo]));
    let own = format!("node-2 /elsewhere\nnode-1   {}\n", path_text(node.base()));
    let ended = node.run("provision", &api.kubeconfig(), &[("BASE_PATH", "/nonexistent"), ("NODE_PATHS", &own)]);
    assert_eq!(ended.code, 0, "{ended:?}");
    assert_eq!(node.names(), [ID]);
    let others = [("NODE_PATHS", "node-2 /elsewhere")];
    assert_eq!(node.run("delete", "", &others).code, 0, "a node that is not named has those of base-path");
    assert_eq!(node.names(), [""; 0]);
    let none = [("NODE_PATHS", "node-1")];
    let ended = node.run("provision", "", &none);
    assert!(ended.code == 69 && ended.termination_message.contains("names no directory for node node-1"), "{ended:?}");
    let ended = node.run("capacity", "", &none);
    assert_eq!(
        flex_contract::capacity::Answer::read(&ended.termination_message).map(|answer| answer.bytes),
        Ok(0),
        "{ended:?}"
    );
}

#[test]
fn its_capacity_is_the_free_space_of_the_file_system() {
    let node = Node::new();
    let ended = {
        let mut command = node.command("capacity", "", &[]);
        node.end(command.env_remove("CLAIM_UUID"))
    };
    let answer = flex_contract::capacity::Answer::read(&ended.termination_message)
        .unwrap_or_else(|error| panic!("{error}: {ended:?}"));
    let df = Command::new("df").args(["-B1", "--output=avail"]).arg(node.base()).output().unwrap();
    let free: u64 = String::from_utf8(df.stdout).unwrap().lines().nth(1).unwrap().trim().parse().unwrap();
    // Other processes write on this file system, too.
    assert!(answer.bytes > free / 2 && answer.bytes / 2 < free, "{} by the image, {free} by df", answer.bytes);
    assert_eq!((ended.code, answer.largest), (0, None));
    let ended = node.run("capacity", "", &[("BASE_PATH", "/nonexistent")]);
    assert_eq!(ended.code, 78, "{ended:?}");
}

#[test]
fn a_volume_is_expanded_where_there_is_space() {
    let node = Node::new();
    fs::create_dir(node.base().join(ID)).unwrap();
    let expand = |size: &str, old: &str| node.run("expand", "", &[("SIZE_BYTES", size), ("OLD_SIZE_BYTES", old)]);
    assert_eq!(expand("2097152", "1048576").code, 0);
    // The size that it already has needs no space.
    assert_eq!(expand("9000000000000000000", "8999999999999999999").code, 0);
    let full = expand("9000000000000000000", "1048576");
    assert_eq!(full.code, 69, "{full:?}");
    assert!(full.termination_message.contains("less than the 8999999999998951424 asked for"), "{full:?}");
    assert_eq!(node.names(), [ID]);
}
