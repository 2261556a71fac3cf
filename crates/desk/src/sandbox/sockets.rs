//! The sockets of this machine's processes, which a container must not use. A mount that is read-only does not keep a
//! program from using a socket.
//!
//! The kernel lists the name that a process gave to its socket. The socket may have another name in the same directory
//! since, as those of `ssh` do, so all sockets beside it are hidden, too.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::{OsStr, OsString};
use std::fs;
use std::io::ErrorKind;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};

use super::devices::hide;
use super::place::below;
use super::spec::{Bind, Placed};

/// The list of the sockets that processes of this machine have.
const SOCKETS: &str = "/proc/net/unix";

/// Names in directories whose paths have no links.
type Names = BTreeMap<PathBuf, BTreeSet<OsString>>;

/// Hides the sockets below the new root, where all mounts are by now, in the order of their depth. `given` has the
/// directories that a person gave to the run: their sockets stay.
pub(super) fn hide_sockets(root: &Path, binds: &[Placed<'_>], given: &[PathBuf]) -> Result<(), String> {
    let list = match fs::read(SOCKETS) {
        Ok(list) => list,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(format!("{SOCKETS}, the list of sockets to hide, cannot be read: {error}")),
    };
    for (folder, names) in names(&list) {
        for at in seen(&folder, binds, given).iter().map(|place| below(root, place)) {
            let beside = fs::read_dir(&at).into_iter().flatten().flatten().map(|entry| entry.file_name());
            let all: BTreeSet<OsString> = names.iter().cloned().chain(beside).collect();
            all.iter().map(|name| at.join(name)).filter(|path| is_socket(path)).try_for_each(|path| hide(&path))?;
        }
    }
    Ok(())
}

fn is_socket(path: &Path) -> bool {
    fs::symlink_metadata(path).is_ok_and(|found| found.file_type().is_socket())
}

/// Returns the names of all sockets in the list whose directories are on this machine.
fn names(list: &[u8]) -> Names {
    let mut all = Names::new();
    for path in list.split(|byte| *byte == b'\n').filter_map(socket) {
        let folder = path.parent().and_then(|folder| folder.canonicalize().ok());
        if let (Some(folder), Some(name)) = (folder, path.file_name()) {
            all.entry(folder).or_default().insert(name.to_owned());
        }
    }
    all
}

/// Returns the path of a socket, from a line of the list.
fn socket(line: &[u8]) -> Option<&Path> {
    let at = line.windows(2).position(|pair| pair == b" /")? + 1;
    Some(Path::new(OsStr::from_bytes(&line[at..])))
}

/// Returns the places at which the container sees a directory of this machine, except for those that a person gave.
fn seen(folder: &Path, binds: &[Placed<'_>], given: &[PathBuf]) -> Vec<PathBuf> {
    let mount_of = |at: &Path| binds.iter().rfind(|(place, _)| at.starts_with(place)).map(|(_, bind)| *bind);
    let own = Some(folder.to_path_buf()).filter(|at| mount_of(at).is_none());
    let elsewhere = binds.iter().filter_map(|(place, bind)| {
        let at = place.join(folder.strip_prefix(source(bind, given)?).ok()?);
        mount_of(&at).is_some_and(|top| std::ptr::eq(top, *bind)).then_some(at)
    });
    own.into_iter().chain(elsewhere).collect()
}

/// Returns the directory of this machine that a mount shows; `None` if a person gave it.
fn source(bind: &Bind, given: &[PathBuf]) -> Option<PathBuf> {
    let source = bind.source.as_ref().filter(|source| !given.contains(source))?;
    Some(source.canonicalize().unwrap_or_else(|_| source.clone()).join(&bind.within))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    /// Returns a line of the list.
    fn line(name: &str) -> Vec<u8> {
        format!("ffff8881: 00000002 00000000 00010000 0001 01 12345 {name}\n").into_bytes()
    }

    #[test]
    fn sockets_with_a_path_are_read_from_the_list() {
        let read = |text: &str| socket(text.as_bytes()).map(Path::to_path_buf);
        let in_line = |name: &str| read(String::from_utf8(line(name)).unwrap().trim_end());
        assert_eq!(in_line("/run/user/1000/bus"), Some("/run/user/1000/bus".into()));
        assert_eq!(in_line("/home/a b/s"), Some("/home/a b/s".into()));
        assert_eq!((in_line("@abstract"), in_line("relative"), read("Num RefCount Path")), (None, None, None));
        let of_bytes = [&line("/a")[..12], &b" /\xff"[..]].concat();
        assert_eq!(socket(&of_bytes), Some(Path::new(OsStr::from_bytes(b"/\xff"))));
    }

    #[test]
    fn names_are_in_directories_without_links_and_no_line_hides_another() {
        let folder = tempfile::tempdir().unwrap();
        let real = folder.path().canonicalize().unwrap();
        fs::create_dir(real.join("data")).unwrap();
        symlink(real.join("data"), real.join("link")).unwrap();
        let at = |name: &str| line(&real.join(name).display().to_string());
        let list = [at("link/a"), b"1: 2 3 /\xff/b\n".to_vec(), at("none/c"), at("data/d"), line("@e")].concat();
        let expected: BTreeSet<OsString> = ["a", "d"].map(OsString::from).into();
        assert_eq!(names(&list), Names::from([(real.join("data"), expected)]));
    }

    #[test]
    fn a_directory_is_seen_where_it_is_mounted_unless_a_person_gave_it() {
        let bind = |target: &str, source: Option<&str>, within: &str| Bind {
            target: target.into(),
            source: source.map(PathBuf::from),
            within: within.into(),
            read_only: true,
        };
        let all = [
            bind("/no-m/own", Some("/no-m/own"), ""),
            bind("/no-m/memory", None, ""),
            bind("/no-x", Some("/no-m"), "within"),
            bind("/no-x/y", Some("/no-other"), ""),
            bind("/no-given", Some("/no-m/given"), ""),
        ];
        let mut binds: Vec<Placed<'_>> = all.iter().map(|bind| (bind.target.clone(), bind)).collect();
        binds.sort_by_key(|(place, _)| place.components().count());
        let given = [PathBuf::from("/no-m/given")];
        for (folder, expected) in [
            ("/no-m", vec!["/no-m"]),
            ("/no-m/own/a", vec!["/no-m/own/a"]),
            ("/no-m/memory/a", vec![]),
            ("/no-m/within/a", vec!["/no-m/within/a", "/no-x/a"]),
            ("/no-m/within/y", vec!["/no-m/within/y"]),
            ("/no-m/given/a", vec!["/no-m/given/a"]),
            ("/no-x/a", vec![]),
            ("/no-given/a", vec![]),
        ] {
            let expected: Vec<PathBuf> = expected.into_iter().map(PathBuf::from).collect();
            assert_eq!(seen(Path::new(folder), &binds, &given), expected, "{folder}");
        }
    }
}
