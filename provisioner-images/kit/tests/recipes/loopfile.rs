//! The recipe `loopfile` with loop devices of this machine, on a file system of its own.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::fs::{Mode, OFlags};

use super::api::path_text;
use super::cases::{self, Backend, id};
use super::conformance;
use super::desk::{Desk, SIZE, fill, system, unmount};

struct Loops {
    desk: Desk,
    folder: tempfile::TempDir,
    /// The directory with the links to the devices.
    links: PathBuf,
    file_system: &'static str,
}

impl Loops {
    fn new(file_system: &'static str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let links = folder.path().join("links");
        fs::create_dir(&links).unwrap();
        Self::with(folder, links, file_system)
    }

    /// Returns a node with the links in the `/dev` of this machine, as on a real node, and names that nobody else has.
    fn with_links_in_dev(file_system: &'static str) -> Self {
        let links = tempfile::Builder::new().prefix("flex-loopfile-").tempdir_in("/dev").unwrap().keep();
        Self::with(tempfile::tempdir().unwrap(), links, file_system)
    }

    fn with(folder: tempfile::TempDir, links: PathBuf, file_system: &'static str) -> Self {
        let path = path_text(folder.path().to_owned());
        system(&format!(
            "cd {path}; truncate -s 2G image; mkfs.ext4 -q image; mkdir base mounted; mount -o loop image base
            touch base/.flex"
        ));
        let (base, in_place) = (format!("{path}/base"), path_text(links.clone()));
        // Busybox has a `losetup` of its own.
        std::os::unix::fs::symlink("/sbin/losetup", folder.path().join("losetup-of-mount")).unwrap();
        let losetup = folder.path().join("losetup-of-mount");
        let replace = [
            ("/sbin/losetup", "losetup-of-mount"),
            ("/var/lib/flex-loopfile", base.as_str()),
            ("/dev/flex-loopfile", &in_place),
        ];
        let others = ["/sbin/mkfs.ext4", "/sbin/mkfs.xfs", "/usr/bin/flock"].map(Path::new);
        let programs = [&[losetup.as_path()], &others[..]].concat();
        let mut desk = Desk::new("loopfile", &replace, &programs);
        desk.set("FS_TYPE", file_system);
        Loops { desk, folder, links, file_system }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn device(&self, id: &str) -> PathBuf {
        fs::canonicalize(self.links.join(id)).unwrap()
    }

    /// Mounts a volume, as the kubelet does for a pod.
    fn mounted<T>(&self, id: &str, pod: impl FnOnce(&Path) -> T) -> T {
        let (device, at) = (path_text(self.device(id)), path_text(self.path("mounted")));
        system(&format!("mount -t {} {device} {at}", self.file_system));
        let outcome = pod(&self.path("mounted"));
        unmount(&self.path("mounted"));
        wait_until_unused(Path::new(&device));
        outcome
    }

    /// Returns the loop devices of the volumes.
    fn devices(&self) -> Vec<String> {
        let all = system("losetup -n -O NAME,BACK-FILE");
        let base = path_text(self.path("base"));
        all.lines().filter(|line| line.contains(&base)).map(|line| line.split(' ').next().unwrap().to_owned()).collect()
    }

    fn detach(&self) {
        for device in self.devices() {
            system(&format!("losetup -d {device}"));
        }
        for link in fs::read_dir(&self.links).unwrap() {
            fs::remove_file(link.unwrap().path()).unwrap();
        }
    }
}

/// Waits until a device is mounted nowhere. A container that has just started has a copy of all mounts for a moment.
fn wait_until_unused(device: &Path) {
    let started = Instant::now();
    // Linux opens a device that is mounted for nobody who wants it alone.
    while let Err(error) = rustix::fs::open(device, OFlags::RDONLY | OFlags::EXCL, Mode::empty()) {
        assert!(started.elapsed() < Duration::from_secs(60), "{device:?}: {error}");
        std::thread::sleep(Duration::from_millis(50));
    }
}

impl Drop for Loops {
    fn drop(&mut self) {
        self.detach();
        fs::remove_dir(&self.links).unwrap();
        unmount(&self.path("base"));
    }
}

impl Backend for Loops {
    fn desk(&self) -> &Desk {
        &self.desk
    }

    fn objects(&self) -> Vec<String> {
        let (base, links) = (path_text(self.path("base")), path_text(self.links.clone()));
        let names = system(&format!("ls -A {base} {links}"));
        names.lines().map(str::to_owned).chain(self.devices()).collect()
    }

    fn size(&self, id: &str) -> u64 {
        system(&format!("blockdev --getsize64 {}", path_text(self.device(id)))).trim().parse().unwrap()
    }

    fn write(&self, id: &str, text: &str) {
        self.mounted(id, |root| fs::write(root.join("file"), text).unwrap());
    }

    fn read(&self, id: &str) -> String {
        self.mounted(id, |root| fs::read_to_string(root.join("file")).unwrap())
    }

    fn granularity(&self) -> u64 {
        4096
    }
}

#[test]
fn loopfile_passes_the_cases_of_all_recipes() {
    let loops = Loops::new("ext4");
    cases::all(&loops);
}

#[test]
fn loopfile_passes_conformance() {
    let loops = Loops::with_links_in_dev("ext4");
    conformance::passes(&loops, &["/var/lib/flex-loopfile"], &["--on-node", "/dev=/dev"]);
}

/// Fills a volume, expands it and fills it again. `grow` does what the kubelet does.
#[track_caller]
fn a_volume_is_full_grows_and_keeps_its_blocks(file_system: &'static str, size: u64, grow: impl Fn(&Loops, &str)) {
    let loops = Loops::new(file_system);
    let (bytes, larger, id) = (size.to_string(), (size + SIZE).to_string(), id(1));
    assert_eq!(loops.desk.run("provision", &id, &[("SIZE_BYTES", &bytes)]).code, Some(0));
    let source = &loops.desk.volume(&id)["spec"]["local"];
    assert_eq!(source["fsType"], file_system);
    assert_eq!(source["path"], path_text(loops.links.join(&id)));
    let file = loops.path("base").join(&id);
    let blocks = || std::os::unix::fs::MetadataExt::blocks(&fs::metadata(&file).unwrap()) * 512;
    assert!(blocks() >= size, "{} of {size} bytes are taken", blocks());
    let is_full = |file: &Path| {
        let error = fill(file, 2000).expect_err("2 GB fit");
        assert_eq!(error.raw_os_error(), Some(28), "{error}");
        fs::metadata(file).unwrap().len()
    };
    let first = loops.mounted(&id, |root| {
        let first = is_full(&root.join("big"));
        let ended = loops.desk.run("expand", &id, &[("SIZE_BYTES", &larger), ("OLD_SIZE_BYTES", &bytes)]);
        assert_eq!(ended.code, Some(0), "{ended:?}");
        first
    });
    assert!((size / 2..size).contains(&first), "{first} of {size}");
    assert_eq!(loops.size(&id), size + SIZE);
    grow(&loops, &id);
    loops.mounted(&id, |root| {
        assert!(is_full(&root.join("more")) > SIZE / 2);
        // A file that is removed gives its blocks to the volume, and not to other volumes.
        fs::remove_file(root.join("big")).unwrap();
        let trimmed = std::process::Command::new("fstrim").arg(root).output().unwrap();
        assert!(!trimmed.status.success(), "{trimmed:?}");
    });
    assert!(blocks() >= size + SIZE, "{} bytes are taken", blocks());
    assert_eq!(loops.desk.run("delete", &id, &[]).code, Some(0));
    assert!(loops.devices().is_empty());
}

#[test]
fn an_ext4_file_takes_its_size_and_no_more() {
    // The kubelet does this while the file system is mounted, which takes a right that a small machine may lack.
    a_volume_is_full_grows_and_keeps_its_blocks("ext4", SIZE, |loops, id| {
        let device = path_text(loops.device(id));
        system(&format!("e2fsck -f -p {device}; resize2fs {device}"));
    });
}

#[test]
fn an_xfs_file_takes_its_size_and_no_more() {
    a_volume_is_full_grows_and_keeps_its_blocks("xfs", 320 << 20, |loops, id| {
        loops.mounted(id, |root| system(&format!("xfs_growfs {}", path_text(root.into()))));
    });
}

#[test]
fn after_a_restart_of_the_node_each_file_has_its_device_again() {
    let loops = Loops::new("ext4");
    for n in [1, 2] {
        assert_eq!(loops.desk.run("provision", &id(n), &[]).code, Some(0));
        loops.write(&id(n), &id(n));
    }
    loops.detach();
    for _ in 0..2 {
        let ended = loops.desk.run("attach", "", &[]);
        assert_eq!(ended.code, Some(0), "{ended:?}");
        assert_eq!(loops.devices().len(), 2);
    }
    for n in [1, 2] {
        assert_eq!(loops.read(&id(n)), id(n));
    }
    // A file that gets no device does not stop those after it.
    loops.detach();
    std::os::unix::fs::symlink("/proc/version", loops.path("base").join("0-bad")).unwrap();
    let ended = loops.desk.run("attach", "", &[]);
    assert!(!matches!(ended.code, Some(0) | None) && ended.output.contains("no loop device"), "{ended:?}");
    assert_eq!(loops.devices().len(), 2);
}

#[test]
fn a_file_that_has_no_room_or_a_strange_file_system_is_refused() {
    let loops = Loops::new("ext4");
    let before = loops.objects();
    let ended = loops.desk.run("provision", &id(1), &[("SIZE_BYTES", "9000000000")]);
    assert!(ended.code == Some(69) && ended.last_words.contains("free bytes"), "{ended:?}");
    let ended = loops.desk.run("provision", &id(1), &[("FS_TYPE", "ntfs")]);
    assert_eq!(ended.code, Some(78), "{ended:?}");
    assert_eq!(loops.objects(), before);
}

#[test]
fn an_unmounted_directory_of_loopfile_is_no_storage() {
    let loops = Loops::new("ext4");
    let before = loops.objects();
    assert_eq!(loops.desk.run("provision", &id(1), &[]).code, Some(0));
    loops.write(&id(1), "content");
    loops.detach();
    let base = path_text(loops.path("base"));
    system(&format!("umount {base}"));
    cases::without_its_storage_nothing_succeeds(&loops, "touch");
    let ended = loops.desk.run("attach", "", &[]);
    assert!(ended.code == Some(75) && ended.output.contains("touch"), "{ended:?}");
    assert_eq!(system(&format!("ls -A {base}")), "");
    system(&format!("mount -o loop {} {base}", path_text(loops.path("image"))));
    assert_eq!(loops.desk.run("attach", "", &[]).code, Some(0));
    assert_eq!(loops.read(&id(1)), "content");
    assert_eq!(loops.desk.run("delete", &id(1), &[]).code, Some(0));
    assert_eq!(loops.objects(), before);
}

#[test]
fn a_file_stays_while_nobody_knows_its_devices() {
    let loops = Loops::new("ext4");
    let before = loops.objects();
    assert_eq!(loops.desk.run("provision", &id(1), &[]).code, Some(0));
    let made = loops.objects();
    let losetup = loops.desk.path("plain/losetup-of-mount");
    let real = fs::read_link(&losetup).unwrap();
    fs::remove_file(&losetup).unwrap();
    fs::copy("/bin/false", &losetup).unwrap();
    for operation in ["delete", "expand", "provision"] {
        let ended = loops.desk.run(operation, &id(1), &[]);
        assert!(ended.code == Some(75) && ended.last_words.contains("cannot be listed"), "{operation}: {ended:?}");
        assert_eq!(loops.devices().len(), 1, "{operation}");
    }
    fs::remove_file(&losetup).unwrap();
    std::os::unix::fs::symlink(real, &losetup).unwrap();
    assert_eq!(loops.desk.run("provision", &id(1), &[]).code, Some(0));
    assert_eq!(loops.objects(), made);
    assert_eq!(loops.desk.run("delete", &id(1), &[]).code, Some(0));
    assert_eq!(loops.objects(), before);
}

/// A pod hands its open device, or an open file in its volume, to another one that outlives the volume.
#[test]
fn a_volume_that_is_held_open_keeps_no_blocks_and_is_deleted_once_it_is_let_go() {
    let loops = Loops::new("ext4");
    let before = loops.objects();
    for is_file in [false, true] {
        assert_eq!(loops.desk.run("provision", &id(1), &[]).code, Some(0));
        let (device, at) = (loops.device(&id(1)), loops.path("mounted"));
        let held = match is_file {
            false => fs::OpenOptions::new().write(true).open(&device).unwrap(),
            true => {
                system(&format!("mount {} {}", path_text(device.clone()), path_text(at.clone())));
                let file = fs::File::create(at.join("file")).unwrap();
                system(&format!("umount -l {}", path_text(at)));
                file
            }
        };
        for _ in 0..2 {
            let ended = loops.desk.run("delete", &id(1), &[]);
            assert!(ended.code == Some(75) && ended.last_words.contains("end the pods"), "{is_file}: {ended:?}");
            let _ = std::io::Write::write_all(&mut &held, &[1; 1 << 16]).and_then(|()| held.sync_all());
            let left = fs::metadata(loops.path("base").join(id(1))).unwrap();
            assert_eq!((left.len(), std::os::unix::fs::MetadataExt::blocks(&left)), (0, 0), "its space stays free");
        }
        drop(held);
        wait_until_unused(&device);
        assert_eq!(loops.desk.run("delete", &id(1), &[]).code, Some(0));
        assert_eq!(loops.objects(), before);
    }
}
