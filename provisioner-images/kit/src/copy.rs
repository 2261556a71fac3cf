//! Copying a directory that somebody may be writing to while it is read.
//!
//! Whoever has the original mounted could exchange a directory for a link that leads out of it. So nothing here goes by
//! a path: each thing is opened by its name in the directory that is open already, and never through a link.

use std::ffi::CStr;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;

use rustix::fs::{self, AtFlags, CWD, Dir, FileType, Mode, OFlags, SeekFrom, Stat, Timespec, Timestamps};
use rustix::io::Errno;

use crate::Failure;

/// Directories within each other. Each level holds two open files.
const DEPTH: usize = 256;
const READ: OFlags = OFlags::RDONLY.union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC).union(OFlags::NONBLOCK);
const FOLDER: OFlags = READ.union(OFlags::DIRECTORY);

/// Copies a directory with all that is in it to a place where nothing is yet: data, links, owners, modes and times. Where
/// the file system can, both share their blocks; holes stay holes. Sockets and devices are left out, hard links become
/// files of their own, extended attributes are not copied. When it returns, all is on the disk.
///
/// # Errors
/// What could not be copied, and why. What was begun is left behind.
pub fn copy(from: &Path, to: &Path) -> Result<(), Failure> {
    let whole = || -> Result<(), Trouble> {
        let source = fs::openat(CWD, from, FOLDER, Mode::empty()).map_err(Trouble::at("."))?;
        fs::mkdirat(CWD, to, Mode::RWXU).map_err(Trouble::at("."))?;
        let target = fs::openat(CWD, to, FOLDER, Mode::empty()).map_err(Trouble::at("."))?;
        folder(&source, &target, DEPTH)?;
        fs::syncfs(&target).map_err(Trouble::at("."))
    };
    whole().map_err(|Trouble { error, within }| {
        let within: Vec<&str> = within.iter().rev().map(String::as_str).filter(|name| *name != ".").collect();
        let what = format!("copying {}: {}: {error}", from.display(), within.join("/"));
        match error.raw_os_error().map(Errno::from_raw_os_error) {
            Some(Errno::NOSPC | Errno::DQUOT) => Failure::no_room(what),
            _ => Failure::retry(what),
        }
    })
}

/// What went wrong, and where: the innermost name first.
struct Trouble {
    error: io::Error,
    within: Vec<String>,
}

impl Trouble {
    fn at<E: Into<io::Error>>(name: &str) -> impl FnOnce(E) -> Trouble + '_ {
        |error| Trouble { error: error.into(), within: vec![name.to_owned()] }
    }

    fn within(mut self, name: &str) -> Self {
        self.within.push(name.to_owned());
        self
    }
}

fn folder(from: &OwnedFd, to: &OwnedFd, depth: usize) -> Result<(), Trouble> {
    for entry in Dir::read_from(from).map_err(Trouble::at("."))? {
        let entry = entry.map_err(Trouble::at("."))?;
        let name = entry.file_name();
        if matches!(name.to_bytes(), b"." | b"..") {
            continue;
        }
        let shown = name.to_string_lossy();
        let copied = match fs::statat(from, name, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(stat) => thing(from, to, name, &stat, depth),
            Err(error) => Err(Trouble::at(".")(error)),
        };
        match copied {
            // Somebody has removed it meanwhile.
            Err(Trouble { error, within }) if error.kind() == io::ErrorKind::NotFound && within == ["."] => {}
            Err(trouble) => return Err(trouble.within(&shown)),
            Ok(()) => {}
        }
    }
    let stat = fs::fstat(from).map_err(Trouble::at("."))?;
    dress(to.as_fd(), &stat).map_err(Trouble::at("."))
}

/// Whatever stands under a name. What it is, is asked again of what was opened.
fn thing(from: &OwnedFd, to: &OwnedFd, name: &CStr, stat: &Stat, depth: usize) -> Result<(), Trouble> {
    let kept = |error| Trouble::at(".")(error);
    match FileType::from_raw_mode(stat.st_mode) {
        FileType::Directory => {
            if depth == 0 {
                return Err(kept(io::Error::other(format!("more than {DEPTH} directories within each other"))));
            }
            let source = fs::openat(from, name, FOLDER, Mode::empty()).map_err(Trouble::at("."))?;
            fs::mkdirat(to, name, Mode::RWXU).map_err(Trouble::at("."))?;
            let target = fs::openat(to, name, FOLDER, Mode::empty()).map_err(Trouble::at("."))?;
            folder(&source, &target, depth - 1)
        }
        FileType::RegularFile => {
            let source = fs::openat(from, name, READ, Mode::empty()).map_err(Trouble::at("."))?;
            let stat = fs::fstat(&source).map_err(Trouble::at("."))?;
            if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile {
                return Err(kept(io::Error::other("it was exchanged while it was copied")));
            }
            let new = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
            let target = fs::openat(to, name, new, Mode::RUSR | Mode::WUSR).map_err(Trouble::at("."))?;
            let (source, target) = (File::from(source), File::from(target));
            data(&source, &target).map_err(kept)?;
            dress(target.as_fd(), &stat).map_err(Trouble::at("."))
        }
        FileType::Symlink => {
            let target = fs::readlinkat(from, name, Vec::new()).map_err(Trouble::at("."))?;
            fs::symlinkat(&target, to, name).map_err(Trouble::at("."))?;
            dress_unopened(to, name, stat).map_err(Trouble::at("."))
        }
        FileType::Fifo => {
            let mode = Mode::from_raw_mode(stat.st_mode);
            fs::mknodat(to, name, FileType::Fifo, mode, 0).map_err(Trouble::at("."))?;
            // The process has a mask for what it makes.
            fs::chmodat(to, name, mode, AtFlags::empty()).map_err(Trouble::at("."))?;
            dress_unopened(to, name, stat).map_err(Trouble::at("."))
        }
        _ => Ok(()),
    }
}

/// The content of a file: shared, or else all of its parts that are no holes.
fn data(from: &File, to: &File) -> io::Result<()> {
    if fs::ioctl_ficlone(to, from).is_ok() {
        return Ok(());
    }
    let size = from.metadata()?.len();
    let mut at = 0;
    while at < size {
        let begin = match fs::seek(from, SeekFrom::Data(at)) {
            Ok(begin) => begin,
            // No data after here.
            Err(Errno::NXIO) => break,
            // A file system that does not know of holes.
            Err(Errno::INVAL) => at,
            Err(error) => return Err(error.into()),
        };
        let end = fs::seek(from, SeekFrom::Hole(begin)).unwrap_or(size).min(size);
        for file in [from, to] {
            fs::seek(file, SeekFrom::Start(begin))?;
        }
        let copied = io::copy(&mut io::Read::take(from, end - begin), &mut &*to)?;
        if copied == 0 {
            // It was made shorter meanwhile.
            break;
        }
        at = begin + copied;
    }
    // A hole at its end.
    to.set_len(size)
}

/// Owner before mode: a change of the owner takes bits off the mode.
fn dress(file: BorrowedFd<'_>, like: &Stat) -> Result<(), Errno> {
    let (owner, group) = owners(like);
    fs::fchown(file, Some(owner), Some(group))?;
    fs::fchmod(file, Mode::from_raw_mode(like.st_mode))?;
    fs::futimens(file, &times(like))
}

/// What must not be opened: a link leads elsewhere, and a pipe waits for its other end.
fn dress_unopened(folder: &OwnedFd, name: &CStr, like: &Stat) -> Result<(), Errno> {
    let (owner, group) = owners(like);
    fs::chownat(folder, name, Some(owner), Some(group), AtFlags::SYMLINK_NOFOLLOW)?;
    fs::utimensat(folder, name, &times(like), AtFlags::SYMLINK_NOFOLLOW)
}

fn owners(like: &Stat) -> (fs::Uid, fs::Gid) {
    (fs::Uid::from_raw(like.st_uid), fs::Gid::from_raw(like.st_gid))
}

fn times(like: &Stat) -> Timestamps {
    let time = |seconds, nanos| Timespec { tv_sec: seconds, tv_nsec: nanos };
    Timestamps {
        last_access: time(like.st_atime as _, like.st_atime_nsec as _),
        last_modification: time(like.st_mtime as _, like.st_mtime_nsec as _),
    }
}

#[cfg(test)]
mod tests {
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
    fn everything_is_as_it_was() {
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
    fn what_is_in_the_way_or_too_deep_is_told() {
        let (_folder, from, to) = folders();
        fs::create_dir(&to).unwrap();
        assert!(copy(&from, &to).unwrap_err().message.contains("exists"));
        fs::remove_dir(&to).unwrap();
        symlink("/etc", &to).unwrap();
        assert_eq!(copy(&to, &from.join("x")).unwrap_err().code, contract::exit::TEMPFAIL, "no link is a directory");
        fs::remove_file(&to).unwrap();
        let mut deep = from.clone();
        for _ in 0..=DEPTH {
            deep.push("d");
            fs::create_dir(&deep).unwrap();
        }
        let failure = copy(&from, &to).unwrap_err();
        assert!(failure.message.contains("directories within each other"), "{failure}");
    }

    /// Whoever has the original exchanges a directory and a file for links that lead out of it, all the time.
    #[test]
    fn no_link_leads_out_of_it() {
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
            for _ in 0..300 {
                // It may well fail, and must never be fooled.
                let _ = copy(&from, &to);
                for place in ["real", "way"] {
                    let real = fs::symlink_metadata(to.join(place)).is_ok_and(|found| found.is_dir());
                    let text = fs::read_to_string(to.join(place).join("file")).unwrap_or_default();
                    assert!(!real || text != "secret");
                }
                for place in ["in", "out"] {
                    let real = fs::symlink_metadata(to.join(place)).is_ok_and(|found| found.is_file());
                    let text = fs::read_to_string(to.join(place)).unwrap_or_default();
                    assert!(!real || text != "secret");
                }
                fs::remove_dir_all(&to).unwrap();
            }
            over.store(true, Ordering::Relaxed);
        });
    }
}
