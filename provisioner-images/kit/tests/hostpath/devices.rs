//! Block volumes: files with the loop devices of the machine.

use super::*;

/// The links to devices, of one test; what is left of it when it fails goes.
struct Devices {
    links: PathBuf,
    id: String,
}

impl Devices {
    fn new() -> Self {
        let links = PathBuf::from(format!("/dev/flex-tests-{}", std::process::id()));
        // Loop devices are the whole machine's, so that no other run may have the same id.
        Devices { links, id: format!("c0ffee00-0000-4000-8000-{:012x}", std::process::id()) }
    }

    /// The loop devices of a volume.
    fn of(&self, id: &str) -> Vec<String> {
        let all = Command::new("/bin/busybox").args(["losetup", "-a"]).output().unwrap();
        let all = String::from_utf8(all.stdout).unwrap();
        let its = all.lines().filter(|line| line.contains(&format!("{id}/disk")));
        its.map(|line| line.split(':').next().unwrap().to_owned()).collect()
    }

    fn link(&self, id: &str) -> PathBuf {
        self.links.join(id)
    }

    /// As when the node restarts: `/dev` is empty, and no file has a device.
    fn restart(&self) {
        for device in [self.id.clone(), self.copy()].iter().flat_map(|id| self.of(id)) {
            let _ = Command::new("/bin/busybox").args(["losetup", "-d", &device]).status();
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
        let ended = node.run(operation, &api.kubeconfig(), &env);
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

    // The kernel knows nothing of it any more; what is in the file is there again.
    devices.restart();
    assert!(devices.of(&id).is_empty() && !link.exists());
    run("attach", "", &[]);
    assert_eq!(read_at(&link, 7 * 512, 15), b"kept in block 7");

    run("expand", &id, &[("OLD_SIZE_BYTES", "1048576"), ("SIZE_BYTES", "2000000")]);
    assert_eq!(size_of(&link), 2_002_944, "in whole pages");
    assert_eq!(read_at(&link, 7 * 512, 15), b"kept in block 7");

    // A copy, larger than its original, and without a word of what is written later.
    let source = format!(r#"{{"local":{{"path":"{}"}}}}"#, path_text(link.clone()));
    run("provision", &copy, &[("CLONE_OF", &id), ("CLONE_OF_SOURCE", &source), ("SIZE_BYTES", "4194304")]);
    write_at(&link, 7 * 512, b"later");
    let copied = devices.link(&copy);
    assert_eq!((size_of(&copied), read_at(&copied, 7 * 512, 15)), (4 << 20, b"kept in block 7".to_vec()));
    run("snapshot", &id, &[("SNAPSHOT_ID", ORIGINAL), ("VOLUME_SOURCE", &source)]);
    run("delete", &copy, &[]);

    // Also where the node has restarted before the deletion, and twice.
    devices.restart();
    for _ in 0..2 {
        run("delete", &id, &[]);
        assert!(devices.of(&id).is_empty() && devices.of(&copy).is_empty() && !link.exists() && !copied.exists());
        assert_eq!(node.names(), [format!(".snapshot-{ORIGINAL}")]);
    }
    run("provision", &id, &[("SNAPSHOT_ID", ORIGINAL), ("SIZE_BYTES", "2002944")]);
    assert_eq!(read_at(&link, 7 * 512, 15), b"laterin block 7");
    run("delete", &id, &[]);
    run("delete-snapshot", "", &[("SNAPSHOT_ID", ORIGINAL)]);
    assert!(node.names().is_empty() && devices.of(&id).is_empty());
}
