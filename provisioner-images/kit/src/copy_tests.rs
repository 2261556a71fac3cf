use std::fs;
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt, symlink};
use std::sync::atomic::{AtomicBool, Ordering};

use super::*;

fn folders() -> (tempfile::TempDir, std::path::PathBuf, std::path::PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let (from, to) = (folder.path().join("from"), folder.path().join("to"));
    fs::create_dir(&from).unwrap();
    (folder, from, to)
}

#[test]
fn a_copy_equals_its_source() {
    let (_folder, from, to) = folders();
    fs::create_dir_all(from.join("a/b c/d")).unwrap();
    fs::write(from.join("a/b c/d/e"), "content").unwrap();
    fs::write(from.join("empty"), "").unwrap();
    fs::set_permissions(from.join("a"), fs::Permissions::from_mode(0o2751)).unwrap();
    fs::set_permissions(from.join("a/b c/d/e"), fs::Permissions::from_mode(0o4710)).unwrap();
    symlink("/nowhere", from.join("a/link")).unwrap();
    rustix::fs::mknodat(CWD, from.join("fifo"), FileType::Fifo, Mode::RUSR, 0).unwrap();
    rustix::fs::chmodat(CWD, from.join("fifo"), Mode::from_raw_mode(0o622), AtFlags::empty()).unwrap();
    let old = Timespec { tv_sec: 1_000_000_000, tv_nsec: 7 };
    let old = Timestamps { last_access: old, last_modification: old };
    for name in ["fifo", "a/link", "empty"] {
        rustix::fs::utimensat(CWD, from.join(name), &old, AtFlags::SYMLINK_NOFOLLOW).unwrap();
    }
    let holes = fs::File::create(from.join("holes")).unwrap();
    holes.write_all_at(b"x", 8 << 20).unwrap();
    holes.set_len(64 << 20).unwrap();
    copy(&from, &to).unwrap();
    for name in [".", "a", "a/b c", "a/b c/d/e", "empty", "a/link", "fifo", "holes"] {
        let facts = |root: &Path| {
            let found = fs::symlink_metadata(root.join(name)).unwrap();
            let size = if found.is_dir() { 0 } else { found.len() };
            (found.mode(), found.uid(), found.gid(), size, found.mtime(), found.mtime_nsec())
        };
        assert_eq!(facts(&to), facts(&from), "{name}");
    }
    assert_eq!(fs::read_to_string(to.join("a/b c/d/e")).unwrap(), "content");
    assert_eq!(fs::read_link(to.join("a/link")).unwrap(), Path::new("/nowhere"));
    assert!(fs::read(to.join("holes")).unwrap() == fs::read(from.join("holes")).unwrap());
    let blocks = fs::metadata(to.join("holes")).unwrap().blocks();
    assert!(blocks < 2048, "holes stay holes: {blocks} blocks");
}

#[test]
fn an_obstacle_is_reported() {
    let (_folder, from, to) = folders();
    fs::create_dir(&to).unwrap();
    assert!(copy(&from, &to).unwrap_err().message.contains("exists"));
    fs::remove_dir(&to).unwrap();
    symlink("/etc", &to).unwrap();
    assert_eq!(copy(&to, &from.join("x")).unwrap_err().code, flex_contract::exit::TEMPFAIL, "no link is a directory");
}

/// No path is as long as that of the innermost directory, and no text contains names as strange as these.
#[test]
fn any_depth_and_any_names_are_copied() {
    let (_folder, from, to) = folders();
    let name = c"\xff\xc3\x28 \n";
    let mut here = fs::File::open(&from).map(OwnedFd::from).unwrap();
    for _ in 0..3000 {
        rustix::fs::mkdirat(&here, name, Mode::RWXU).unwrap();
        here = below::open(&here, name).unwrap();
    }
    rustix::fs::symlinkat(c"/nowhere", &here, name).unwrap();
    copy(&from, &to).unwrap();
    let mut here = fs::File::open(&to).map(OwnedFd::from).unwrap();
    for _ in 0..3000 {
        here = below::open(&here, name).unwrap();
    }
    assert_eq!(rustix::fs::readlinkat(&here, name, Vec::new()).unwrap().as_c_str(), c"/nowhere");
    crate::remove::remove(&[&from, &to]).unwrap();
}

/// A process with access to the source replaces a directory and a file by links that lead out, all the time.
#[test]
fn no_link_leads_out_of_the_source() {
    let (folder, from, to) = folders();
    let outside = folder.path().join("outside");
    fs::create_dir(&outside).unwrap();
    fs::write(outside.join("file"), "secret").unwrap();
    fs::create_dir_all(from.join("real")).unwrap();
    fs::write(from.join("real/file"), "mine").unwrap();
    symlink(&outside, from.join("way")).unwrap();
    symlink(outside.join("file"), from.join("out")).unwrap();
    fs::write(from.join("in"), "mine").unwrap();
    let over = AtomicBool::new(false);
    let exchange = |a: &str, b: &str| {
        let flags = rustix::fs::RenameFlags::EXCHANGE;
        rustix::fs::renameat_with(CWD, from.join(a), CWD, from.join(b), flags).unwrap();
    };
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !over.load(Ordering::Relaxed) {
                exchange("real", "way");
                exchange("in", "out");
            }
        });
        // The copy may fail, and is removed then, but must never follow a link.
        let is_secret = |file: &std::path::PathBuf| fs::read_to_string(file).is_ok_and(|text| text == "secret");
        let (mut copies, mut followed) = (0, 0);
        for _ in 0..300 {
            copies += usize::from(copy(&from, &to).is_ok());
            let in_folder = ["real", "way"].map(|name| to.join(name)).into_iter().filter(|at| !at.is_symlink());
            let files = ["in", "out"].map(|name| to.join(name)).into_iter().filter(|at| !at.is_symlink());
            followed += in_folder.map(|at| at.join("file")).chain(files).filter(is_secret).count();
            let _ = fs::remove_dir_all(&to);
        }
        over.store(true, Ordering::Relaxed);
        assert!(copies > 0 && followed == 0, "{copies} copies, {followed} of them followed a link");
    });
}

/// The names of one file, in directories that are not open at the same time.
#[test]
fn names_of_one_file_are_names_of_one_file_in_the_copy() {
    let (_folder, from, to) = folders();
    fs::create_dir_all(from.join("a/b")).unwrap();
    fs::create_dir_all(from.join("c")).unwrap();
    for (file, names) in [("one", ["a/b/one", "c/two", "three"]), ("other", ["a/x", "a/b/y", "z"])] {
        fs::write(from.join(names[0]), file).unwrap();
        for name in &names[1..] {
            fs::hard_link(from.join(names[0]), from.join(name)).unwrap();
        }
    }
    fs::write(from.join("single"), "single").unwrap();
    fs::set_permissions(from.join("three"), fs::Permissions::from_mode(0o4751)).unwrap();
    let time = |root: &Path| fs::metadata(root).unwrap().mtime();
    rustix::fs::utimensat(
        CWD,
        &from,
        &Timestamps {
            last_access: Timespec { tv_sec: 1_000_000_000, tv_nsec: 7 },
            last_modification: Timespec { tv_sec: 1_000_000_000, tv_nsec: 7 },
        },
        AtFlags::empty(),
    )
    .unwrap();
    copy(&from, &to).unwrap();
    let inode = |name: &str| fs::metadata(to.join(name)).unwrap().ino();
    for names in [["a/b/one", "c/two", "three"], ["a/x", "a/b/y", "z"]] {
        assert_eq!(names.map(inode), [inode(names[0]); 3]);
        assert_eq!(fs::metadata(to.join(names[0])).unwrap().nlink(), 3, "no other name is left");
    }
    assert_eq!(fs::metadata(to.join("single")).unwrap().nlink(), 1);
    assert_eq!(fs::metadata(to.join("c/two")).unwrap().mode() & 0o7777, 0o4751);
    assert_eq!((fs::read_to_string(to.join("z")).unwrap().as_str(), time(&to)), ("other", time(&from)));
    let names: Vec<_> = fs::read_dir(&to).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(names.len(), fs::read_dir(&from).unwrap().count(), "{names:?}");
}

#[test]
fn more_names_than_a_file_can_have_are_copied() {
    let (_folder, from, to) = folders();
    fs::write(from.join("0"), "content").unwrap();
    let mut made = 1;
    while made < 70_000 && fs::hard_link(from.join("0"), from.join(made.to_string())).is_ok() {
        made += 1;
    }
    copy(&from, &to).unwrap();
    assert_eq!(fs::read_dir(&to).unwrap().count(), made);
    for n in [0, 1, made / 2, made - 1] {
        assert_eq!(fs::read_to_string(to.join(n.to_string())).unwrap(), "content");
    }
}

#[test]
fn attributes_and_access_control_lists_are_copied() {
    use rustix::fs::{XattrFlags, getxattr, setxattr};
    let (_folder, from, to) = folders();
    fs::create_dir(from.join("sub")).unwrap();
    for name in ["file", "sub/read-only"] {
        fs::write(from.join(name), "content").unwrap();
    }
    // Version 2; the owner, user 4711, group, mask and others, each with its rights.
    let entry =
        |tag: u16, rights: u16, id: u32| [&tag.to_le_bytes()[..], &rights.to_le_bytes(), &id.to_le_bytes()].concat();
    let none = u32::MAX;
    let entries = [entry(1, 6, none), entry(2, 4, 4711), entry(4, 0, none), entry(16, 4, none), entry(32, 0, none)];
    let list = [&2_u32.to_le_bytes()[..], &entries.concat()].concat();
    let capability = [0x01, 0, 0, 0x02, 0, 4, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
    let large = vec![7; 3000];
    let given: [(&str, &CStr, &[u8]); 7] = [
        ("file", c"user.comment", b"of a user"),
        ("file", c"user.large", &large),
        ("file", c"system.posix_acl_access", &list),
        ("file", c"security.capability", &capability),
        ("sub", c"system.posix_acl_default", &list),
        ("sub", c"user.empty", b""),
        ("sub/read-only", c"user.comment", b"of another"),
    ];
    for (file, name, value) in given {
        setxattr(from.join(file), name, value, XattrFlags::empty()).unwrap_or_else(|error| panic!("{name:?}: {error}"));
    }
    fs::set_permissions(from.join("sub/read-only"), fs::Permissions::from_mode(0o400)).unwrap();
    std::os::unix::fs::chown(from.join("file"), Some(1234), Some(5678)).unwrap();
    // The change of the owner has cleared them.
    setxattr(from.join("file"), c"security.capability", &capability, XattrFlags::empty()).unwrap();
    copy(&from, &to).unwrap();
    for (file, name, value) in given {
        let mut found = vec![0; 65536];
        let length = getxattr(to.join(file), name, &mut found[..]).unwrap_or_else(|error| panic!("{name:?}: {error}"));
        assert_eq!(&found[..length], value, "{file} {name:?}");
    }
    for name in [".", "file", "sub", "sub/read-only"] {
        let facts = |root: &Path| {
            let found = fs::symlink_metadata(root.join(name)).unwrap();
            (found.mode(), found.uid(), found.gid(), found.mtime_nsec())
        };
        assert_eq!(facts(&to), facts(&from), "{name}");
    }
    // The default list of a directory counts for new files only.
    let mut found = [0; 64];
    assert_eq!(getxattr(to.join("sub/read-only"), c"system.posix_acl_access", &mut found[..]), Err(Errno::NODATA));
}
