//! Tests of block volumes: files with loop devices of the machine.

use super::*;

/// Repeats a run that asks for it, as the orchestrator does: a test beside this one may have taken the free device first.
fn patiently(run: impl Fn() -> Ended) -> Ended {
    let mut ended = run();
    for _ in 0..4 {
        if ended.code != 75 {
            break;
        }
        ended = run();
    }
    ended
}

/// The links to the devices of one test; leftovers of a failed test are removed.
struct Devices {
    links: PathBuf,
    id: String,
}

static TEST: std::sync::atomic::AtomicU32 = std::sync::atomic::AtomicU32::new(0);

impl Devices {
    fn new() -> Self {
        // Loop devices belong to the whole machine, so that no other run may have the same id.
        let (process, test) = (std::process::id(), TEST.fetch_add(1, Ordering::Relaxed));
        let links = PathBuf::from(format!("/dev/flex-tests-{process}-{test}"));
        Devices { links, id: format!("c0ffee00-0000-4000-{:04x}-{process:012x}", 0x8000 + test) }
    }

    /// Lists the loop devices whose file has this text in its path, as the kernel knows it.
    fn with(part: &str) -> Vec<String> {
        let blocks = fs::read_dir("/sys/block").unwrap().map(|entry| entry.unwrap());
        let file = |block: &fs::DirEntry| fs::read_to_string(block.path().join("loop/backing_file"));
        let its = blocks.filter(|block| file(block).is_ok_and(|file| file.contains(part)));
        its.map(|block| format!("/dev/{}", block.file_name().to_str().unwrap())).collect()
    }

    /// Lists the loop devices of a volume.
    fn of(&self, id: &str) -> Vec<String> {
        Self::with(&format!("{id}/disk"))
    }

    /// Waits a moment until the devices are detached.
    fn are_gone(&self, id: &str) -> bool {
        let begun = std::time::Instant::now();
        while !Self::with(id).is_empty() {
            if begun.elapsed().as_secs() > 120 {
                return false;
            }
            std::thread::sleep(std::time::Duration::from_millis(20));
        }
        true
    }

    fn link(&self, id: &str) -> PathBuf {
        self.links.join(id)
    }

    /// Plays a restart of the node: `/dev` is empty, and no file has a device.
    fn restart(&self) {
        for id in [self.id.clone(), self.copy()] {
            for device in self.of(&id).into_iter().chain(Self::with(&format!(".hold-{id}"))) {
                let _ = Command::new("/bin/busybox").args(["losetup", "-d", &device]).status();
            }
            let gone = self.are_gone(&id);
            assert!(gone || std::thread::panicking(), "{:?}", Self::with(&id));
        }
        let _ = fs::remove_dir_all(&self.links);
    }

    fn copy(&self) -> String {
        self.id.replacen("c0ffee00", "c0ffee01", 1)
    }
}

impl Drop for Devices {
    fn drop(&mut self) {
        self.restart();
    }
}

fn write_at(device: &Path, at: u64, bytes: &[u8]) {
    use std::os::unix::fs::FileExt;
    let file = fs::OpenOptions::new().write(true).open(device).unwrap();
    file.write_all_at(bytes, at).unwrap();
    file.sync_all().unwrap();
}

fn read_at(device: &Path, at: u64, length: usize) -> Vec<u8> {
    use std::os::unix::fs::FileExt;
    let mut bytes = vec![0; length];
    fs::File::open(device).unwrap().read_exact_at(&mut bytes, at).unwrap();
    bytes
}

fn size_of(device: &Path) -> u64 {
    use std::io::{Seek, SeekFrom};
    fs::File::open(device).unwrap().seek(SeekFrom::End(0)).unwrap()
}

#[test]
fn a_block_volume_is_an_image_file_whose_device_survives_a_restart_of_the_node() {
    let (node, devices) = (Node::new(), Devices::new());
    let api = Api::start((0..4).map(|_| Reply::Echo).collect());
    let links = path_text(devices.links.clone());
    let block = |id: &str, more: &[(&str, &str)]| -> Vec<(String, String)> {
        let of = [("DEVICES", links.as_str()), ("VOLUME_MODE", "Block"), ("CLAIM_UUID", id)];
        of.iter().chain(more).map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
    };
    let run = |operation: &str, id: &str, more: &[(&str, &str)]| {
        let env = block(id, more);
        let env: Vec<_> = env.iter().map(|(key, value)| (key.as_str(), value.as_str())).collect();
        let ended = patiently(|| node.run(operation, &api.kubeconfig(), &env));
        assert_eq!(ended.code, 0, "{operation} {id}: {ended:?}");
    };
    let (id, copy, link) = (devices.id.clone(), devices.copy(), devices.link(&devices.id));

    run("provision", &id, &[]);
    assert_eq!(api.posted()["spec"]["local"]["path"], path_text(link.clone()));
    assert_eq!((size_of(&link), devices.of(&id).len()), (1 << 20, 1));
    let file = fs::metadata(node.base().join(&id).join("disk")).unwrap();
    assert!(file.blocks() * 512 >= 1 << 20, "its room is taken, not only promised: {} blocks", file.blocks());
    write_at(&link, 7 * 512, b"kept in block 7");
    run("provision", &id, &[]);
    assert_eq!(devices.of(&id).len(), 1, "a repeated run finds the device");

    // The kernel has forgotten the device; the data in the file are still there.
    devices.restart();
    assert!(devices.of(&id).is_empty() && !link.exists());
    run("attach", "", &[]);
    assert_eq!(read_at(&link, 7 * 512, 15), b"kept in block 7");

    run("expand", &id, &[("OLD_SIZE_BYTES", "1048576"), ("SIZE_BYTES", "2000000")]);
    assert_eq!(size_of(&link), 2_002_944, "in whole pages");
    assert_eq!(read_at(&link, 7 * 512, 15), b"kept in block 7");

    // A copy, larger than its source, and without later writes.
    let source = format!(r#"{{"local":{{"path":"{}"}}}}"#, path_text(link.clone()));
    run("provision", &copy, &[("CLONE_OF", &id), ("CLONE_OF_SOURCE", &source), ("SIZE_BYTES", "4194304")]);
    write_at(&link, 7 * 512, b"later");
    let copied = devices.link(&copy);
    assert_eq!((size_of(&copied), read_at(&copied, 7 * 512, 15)), (4 << 20, b"kept in block 7".to_vec()));
    run("snapshot", &id, &[("SNAPSHOT_ID", SOURCE_ID), ("VOLUME_SOURCE", &source)]);
    run("delete", &copy, &[]);

    // The same if the node has restarted before the deletion, and twice.
    devices.restart();
    for _ in 0..2 {
        run("delete", &id, &[]);
        assert!(devices.are_gone(&id) && devices.are_gone(&copy) && !link.exists() && !copied.exists());
        assert_eq!(node.names(), [format!(".snapshot-{SOURCE_ID}")]);
    }
    run("provision", &id, &[("SNAPSHOT_ID", SOURCE_ID), ("SIZE_BYTES", "2002944")]);
    assert_eq!(read_at(&link, 7 * 512, 15), b"laterin block 7");
    run("delete", &id, &[]);
    run("delete-snapshot", "", &[("SNAPSHOT_ID", SOURCE_ID)]);
    assert!(node.names().is_empty() && devices.are_gone(&id));
    assert_eq!(fs::read_dir(&devices.links).unwrap().count(), 0, "no link to a device is left");
}

/// Does with its device what a pod can do.
fn as_a_pod(device: &str, does: &str) {
    let script = match does {
        "detaches" => {
            return assert!(Command::new("/bin/busybox").args(["losetup", "-d", device]).status().unwrap().success());
        }
        // LOOP_GET_STATUS64, another name, LOOP_SET_STATUS64.
        name => format!(
            r#"open my $f, "+<", "{device}" or die; my $s = "\0" x 232; ioctl $f, 0x4C05, $s or die $!;
            substr($s, 56, 64) = pack "a64", "{name}"; ioctl $f, 0x4C04, $s or die $!;"#
        ),
    };
    assert!(Command::new("perl").args(["-e", &script]).status().unwrap().success(), "perl is missing?");
}

#[test]
fn no_action_of_a_pod_gives_a_volume_the_device_of_another() {
    let (node, devices) = (Node::new(), Devices::new());
    let api = Api::start((0..9).map(|_| Reply::Echo).collect());
    let links = path_text(devices.links.clone());
    let run = |operation: &str, id: &str, more: &[(&str, &str)]| {
        let of = [("DEVICES", links.as_str()), ("VOLUME_MODE", "Block"), ("CLAIM_UUID", id)];
        let ended = patiently(|| node.run(operation, &api.kubeconfig(), &[&of[..], more].concat()));
        assert_eq!(ended.code, 0, "{operation} {id}: {ended:?}");
    };
    let (mine, other) = (devices.id.clone(), devices.copy());
    let (link, others) = (devices.link(&mine), devices.link(&other));
    let is_own = |what: &str| {
        for (id, link) in [(&mine, &link), (&other, &others)] {
            let device = fs::read_link(link).unwrap_or_else(|error| panic!("{what}: {id}: {error}"));
            assert_eq!(devices.of(id), [path_text(device)], "{what}: each link leads to the device of its own file");
            assert_eq!(read_at(link, 0, id.len()), id.as_bytes(), "{what}");
        }
    };
    run("provision", &mine, &[]);
    write_at(&link, 0, mine.as_bytes());
    let mut device = path_text(fs::read_link(&link).unwrap());

    // The pod takes the name of a volume that has no device yet.
    as_a_pod(&device, &format!("{other}/disk"));
    run("provision", &other, &[]);
    assert_ne!(fs::read_link(&others).unwrap(), Path::new(&device));
    write_at(&others, 0, other.as_bytes());
    is_own("a name was taken");
    run("expand", &other, &[("OLD_SIZE_BYTES", "1048576"), ("SIZE_BYTES", "2097152")]);
    assert_eq!((size_of(&link), size_of(&others)), (1 << 20, 2 << 20));
    run("provision", &mine, &[]);
    is_own("the volume with the taken name is provisioned again");

    // The pod detaches its device before another volume needs one.
    run("delete", &other, &[]);
    assert!(devices.are_gone(&other));
    as_a_pod(&device, "detaches");
    run("provision", &other, &[]);
    write_at(&others, 0, other.as_bytes());
    is_own("a device was detached");

    // A link that leads to another volume's device, wherever it is from, is corrected by the next run.
    device = path_text(fs::read_link(&others).unwrap());
    fs::remove_file(&link).unwrap();
    symlink(&device, &link).unwrap();
    run("attach", "", &[]);
    is_own("a name was wrong");
    fs::remove_file(&link).unwrap();
    symlink(&device, &link).unwrap();
    fs::remove_file(&others).unwrap();
    run("provision", &other, &[]);
    assert!(!link.exists(), "the link of the other volume would lead here");
    run("provision", &mine, &[]);
    is_own("a name was taken away");
    for id in [&mine, &other] {
        run("delete", id, &[]);
        assert!(devices.are_gone(id));
    }
    assert!(node.names().is_empty());
}

/// A pod hands its open device to another one, which outlives the volume.
#[test]
fn a_device_that_is_held_open_keeps_no_blocks_and_is_deleted_once_it_is_let_go() {
    use std::os::unix::fs::FileExt;
    let (node, devices) = (Node::new(), Devices::new());
    let api = Api::start(vec![Reply::Echo]);
    let links = path_text(devices.links.clone());
    let run = |operation: &str| {
        let of = [("DEVICES", links.as_str()), ("VOLUME_MODE", "Block"), ("CLAIM_UUID", devices.id.as_str())];
        node.run(operation, &api.kubeconfig(), &of)
    };
    assert_eq!(patiently(|| run("provision")).code, 0);
    let held = fs::OpenOptions::new().read(true).write(true).open(devices.link(&devices.id)).unwrap();
    held.write_all_at(b"mine", 0).and_then(|()| held.sync_all()).unwrap();
    for _ in 0..2 {
        let ended = run("delete");
        assert!(ended.code == 75 && ended.termination_message.contains("end the pods"), "{ended:?}");
        let _ = held.write_all_at(&[1; 1 << 16], 0).and_then(|()| held.sync_all());
        let left = fs::metadata(node.base().join(format!(".deleting-{}", devices.id)).join("disk")).unwrap();
        assert_eq!((left.len(), left.blocks()), (0, 0), "its space is free, and stays free");
    }
    drop(held);
    assert_eq!(run("delete").code, 0);
    assert!(devices.are_gone(&devices.id) && node.names().is_empty());
}

/// The loop devices of the files in a folder, which are detached at the end of the test.
struct Elsewhere(tempfile::TempDir);

impl Drop for Elsewhere {
    fn drop(&mut self) {
        for device in Devices::with(self.0.path().to_str().unwrap()) {
            let _ = Command::new("/bin/busybox").args(["losetup", "-d", &device]).status();
        }
    }
}

#[test]
fn a_volume_that_cannot_be_attached_after_a_restart_stops_no_other() {
    let (node, devices, elsewhere) = (Node::new(), Devices::new(), Elsewhere(tempfile::tempdir().unwrap()));
    let good = devices.copy();
    let bad: Vec<String> = (0..6).map(|n| format!("{}{n}", &devices.id[..35])).collect();
    assert!(bad.iter().all(|id| *id < good), "the script reads the names in their order");
    for id in bad.iter().chain([&good]) {
        fs::create_dir(node.base().join(id)).unwrap();
        let disk = node.base().join(id).join("disk");
        let file = if *id == good { disk.clone() } else { elsewhere.0.path().join(id) };
        fs::write(&file, id.as_bytes().repeat(1 << 15)).unwrap();
        if file != disk {
            // No loop device has a link as its file.
            symlink(&file, &disk).unwrap();
        }
    }
    let links = path_text(devices.links.clone());
    let attach = || node.run("attach", "", &[("CLAIM_UUID", ""), ("DEVICES", &links)]);
    let mut ended = attach();
    // A test beside this one may take the free device first.
    for _ in 0..4 {
        if !devices.link(&good).exists() {
            ended = attach();
        }
    }
    assert_eq!(ended.code, 75, "{ended:?}");
    assert_eq!(read_at(&devices.link(&good), 0, good.len()), good.as_bytes());
    for says in ["all volumes are attached but 6: ", "has no loop device", &bad[0], &bad[4], "…"] {
        assert!(ended.termination_message.contains(says), "{says}: {ended:?}");
    }
    assert!(!ended.termination_message.contains(&bad[5]), "the names are bounded: {ended:?}");
    for id in &bad {
        fs::remove_dir_all(node.base().join(id)).unwrap();
    }
    assert_eq!(patiently(attach).code, 0);
}
