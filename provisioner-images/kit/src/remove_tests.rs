use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::fs::{CWD, Mode};

use super::*;

/// Ends another thread when this one ends, however it ends.
struct Over<'a>(&'a AtomicBool);

impl Drop for Over<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Makes a directory to remove, and one beside it that must stay complete.
fn folders() -> (tempfile::TempDir, PathBuf, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let (volume, outside) = (folder.path().join("volume"), folder.path().join("outside"));
    fs::create_dir(&volume).unwrap();
    fs::create_dir_all(outside.join("kept")).unwrap();
    fs::write(outside.join("kept/precious"), "x").unwrap();
    (folder, volume, outside)
}

fn is_gone(path: &Path) -> bool {
    fs::symlink_metadata(path).is_err()
}

#[test]
fn everything_is_removed_and_no_link_is_followed() {
    let (folder, volume, outside) = folders();
    fs::create_dir_all(volume.join("a/b c/d")).unwrap();
    fs::create_dir(volume.join("empty")).unwrap();
    fs::write(volume.join("a/b c/d/file"), "x").unwrap();
    fs::set_permissions(volume.join("a"), fs::Permissions::from_mode(0o000)).unwrap();
    rustix::fs::mknodat(CWD, volume.join("fifo"), rustix::fs::FileType::Fifo, Mode::RUSR, 0).unwrap();
    for (to, name) in [(&outside, "link"), (&outside.join("kept"), "a/link"), (&volume, "itself")] {
        symlink(to, volume.join(name)).unwrap();
    }
    for name in [&b"\xff\xfe"[..], b"a\nb", b"\xc3\x28 x"] {
        let odd = volume.join(OsStr::from_bytes(name));
        fs::create_dir(&odd).unwrap();
        fs::write(odd.join(OsStr::from_bytes(name)), "x").unwrap();
    }
    let (file, link) = (folder.path().join("file"), folder.path().join("link"));
    fs::write(&file, "x").unwrap();
    symlink(&outside, &link).unwrap();
    let missing = folder.path().join("missing");
    for _ in 0..2 {
        remove(&[&volume, &file, &link, &missing]).unwrap();
        assert!(is_gone(&volume) && is_gone(&file) && is_gone(&link));
    }
    assert!(outside.join("kept/precious").exists());
}

/// Makes this many nested directories, the innermost with a file. No path is as long as theirs.
fn nest(at: &Path, levels: usize, name: &CStr) {
    let mut here = fs::File::open(at).map(OwnedFd::from).unwrap();
    for _ in 0..levels {
        rustix::fs::mkdirat(&here, name, Mode::RWXU).unwrap();
        here = below::open(&here, name).unwrap();
    }
    rustix::fs::openat(&here, c"file", rustix::fs::OFlags::CREATE | rustix::fs::OFlags::WRONLY, Mode::RWXU).unwrap();
}

#[test]
fn five_thousand_nested_directories_are_removed() {
    let (_folder, volume, _outside) = folders();
    let long = CString::new("n".repeat(255)).unwrap();
    nest(&volume, 5000, c"d");
    nest(&volume, 200, &long);
    // The same if directories on the way have more than one directory in them.
    nest(&volume.join("d/d/d/d"), 300, c"other");
    remove(&[&volume]).unwrap();
    assert!(is_gone(&volume));
}

#[test]
fn wide_directories_are_removed() {
    let (_folder, volume, _outside) = folders();
    for n in 0..3000 {
        fs::create_dir_all(volume.join(format!("{n}/x"))).unwrap();
    }
    remove(&[&volume]).unwrap();
    assert!(is_gone(&volume));
}

/// A process with the volume open replaces a directory by a link that leads out of it, and moves deep directories
/// elsewhere, all the time.
#[test]
fn no_exchange_during_the_removal_leads_elsewhere() {
    let (_folder, volume, outside) = folders();
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let exchange = |a: &str, b: &str| {
                let flags = rustix::fs::RenameFlags::EXCHANGE;
                // One of them may be removed at this moment.
                let _ = rustix::fs::renameat_with(CWD, volume.join(a), CWD, volume.join(b), flags);
            };
            while !over.load(Ordering::Relaxed) {
                exchange("real", "way");
                exchange("real/inner/most", "way2");
                let _ = fs::rename(volume.join("real/deep"), volume.join("deep"));
                let _ = fs::rename(volume.join("deep"), volume.join("real/deep"));
            }
        });
        let _over = Over(&over);
        for _ in 0..100 {
            // The removal of the last round may have stopped early.
            let _ = fs::create_dir(&volume);
            let _ = fs::create_dir_all(volume.join("real/inner/most/x"));
            let _ = fs::create_dir_all(volume.join("real/deep/er/x"));
            let _ = symlink(&outside, volume.join("way"));
            let _ = symlink(&outside, volume.join("way2"));
            if let Err(failure) = remove(&[&volume]) {
                assert!(failure.message.contains("changes it all the time"), "{failure}");
            }
            assert!(outside.join("kept/precious").exists(), "a link was followed");
        }
    });
    remove(&[&volume]).unwrap();
    assert!(is_gone(&volume) && outside.join("kept/precious").exists());
}

/// At depths where directories cannot all stay open, the way up is by the parent; it is not taken if it leads
/// elsewhere.
#[test]
fn a_deep_directory_that_is_moved_away_is_found_again() {
    let (_folder, volume, outside) = folders();
    let over = AtomicBool::new(false);
    let deep = ["d"; 2 * HELD].join("/");
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let (there, here) = (volume.join(&deep).join("x"), volume.join("x"));
            while !over.load(Ordering::Relaxed) {
                let _ = fs::rename(&there, &here);
                let _ = fs::rename(&here, &there);
            }
        });
        let _over = Over(&over);
        for _ in 0..30 {
            let _ = fs::create_dir_all(volume.join(&deep).join("x/y/z/w"));
            if let Err(failure) = remove(&[&volume]) {
                assert!(failure.message.contains("changes it all the time"), "{failure}");
            }
            assert!(outside.join("kept/precious").exists());
        }
    });
    remove(&[&volume]).unwrap();
    assert!(is_gone(&volume));
}

#[test]
fn a_rename_neither_replaces_nor_enters_an_existing_name() {
    let (folder, volume, outside) = folders();
    let (to, link) = (folder.path().join("to"), folder.path().join("link"));
    symlink(&outside, &link).unwrap();
    for there in [&outside, &link] {
        let failure = rename(&volume, there).unwrap_err();
        assert!(failure.message.contains("exists"), "{failure}");
    }
    rename(&volume, &to).unwrap();
    assert!(is_gone(&volume) && to.is_dir());
    // A link is renamed itself, and then removed itself.
    rename(&link, &volume).unwrap();
    assert_eq!(fs::read_link(&volume).unwrap(), outside);
    remove(&[&volume]).unwrap();
    assert!(is_gone(&volume) && outside.join("kept/precious").exists());
    assert!(rename(&volume, &to).unwrap_err().message.contains("No such file"));
}
