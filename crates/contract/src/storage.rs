//! Names of the directories and the variable of a run that sees only its own volume's storage (`storage-mounts`).

/// The variable with the paths of the config's `storage-mounts`, comma-separated. It is empty where the config has
/// none.
pub const VARIABLE: &str = crate::variable::STORAGE_MOUNTS.name;

/// An empty directory that a capacity run sees, and nothing else. It is on the file system whose free bytes the run
/// reports.
pub const CAPACITY_DIR: &str = ".flex-capacity";

/// The directory of the run below which the directories that must exist are mounted a second time.
pub const EXISTING: &str = "/run/flex-provisioner/existing";

/// The length of the longest name in a file system.
const LONGEST: usize = 255;

/// The prefix of the name of the mark of a directory.
const MARK: &str = ".deleting-";

/// The prefix of the name of a snapshot's directory. The snapshot's id follows.
const SNAPSHOT: &str = ".snapshot-";

/// Checks that an id is a UUID, as the orchestrator writes them. Only such an id may become part of a path.
pub fn is_uuid(text: &str) -> bool {
    let hyphen = |at: usize| matches!(at, 8 | 13 | 18 | 23);
    let legal = |(at, byte): (usize, u8)| match hyphen(at) {
        true => byte == b'-',
        false => matches!(byte, b'0'..=b'9' | b'a'..=b'f'),
    };
    text.len() == 36 && text.bytes().enumerate().all(legal)
}

/// Returns the name of a volume's directory; `None` for an id that is no UUID.
pub fn volume(id: &str) -> Option<String> {
    is_uuid(id).then(|| id.to_owned())
}

/// Returns the name of a snapshot's directory; `None` for an id that is no UUID.
pub fn snapshot(id: &str) -> Option<String> {
    is_uuid(id).then(|| format!("{SNAPSHOT}{id}"))
}

/// Checks whether a directory of this name is that of a volume or of a snapshot.
pub fn is_of_one(name: &str) -> bool {
    is_uuid(name.strip_prefix(SNAPSHOT).unwrap_or(name))
}

/// Returns the name of the directory that marks another one as deleted, by its mode. Returns `None` if the name is too
/// long for a file system.
pub fn mark(name: &str) -> Option<String> {
    (name.len() + MARK.len() <= LONGEST).then(|| format!("{MARK}{name}"))
}

/// Returns the name of the directory that a directory of this name marks.
pub fn marked(name: &str) -> Option<&str> {
    name.strip_prefix(MARK)
}

/// Divides the path of storage that has moved in into its folder and its name there. Returns `None` for a path that is
/// not absolute and clean, and for a name that the image or the orchestrator gives to other directories. Such a name
/// begins with a dot, or is a UUID.
pub fn moved_in(path: &str) -> Option<(&str, &str)> {
    let (folder, name) = path.rsplit_once('/')?;
    let clean = |parts: &str| parts.split('/').all(|part| !matches!(part, "" | "." | ".."));
    let is_clean = folder.is_empty() || folder.strip_prefix('/').is_some_and(clean);
    let folder = if folder.is_empty() { "/" } else { folder };
    let legal = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'_' | b'-');
    let is_name = !name.is_empty() && name.len() <= LONGEST && name.bytes().all(legal);
    (is_clean && is_name && !name.starts_with(['.', '-']) && !is_uuid(name)).then_some((folder, name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_plain_name_of_others_moves_in() {
        let id = "c0ffee00-0000-4000-8000-000000000001";
        let local_path = format!("pvc-{id}_team_data");
        assert_eq!(moved_in(&format!("/opt/a/{local_path}")), Some(("/opt/a", local_path.as_str())));
        assert_eq!(moved_in("/a/b"), Some(("/a", "b")));
        let own = [id, &format!(".snapshot-{id}"), &format!(".deleting-{id}"), ".flex-provisioner", ".", "..", ""];
        for name in own.into_iter().chain(["-rf", "a b", "a\nb", "a\"b", "ä", "a*", "$(x)", &"x".repeat(256)]) {
            assert_eq!(moved_in(&format!("/opt/a/{name}")), None, "{name}");
        }
        assert_eq!(moved_in("/b"), Some(("/", "b")));
        for path in ["", "/", "a", "a/b", "//a", "/a//b", "/a/../b", "/a/./b", "/../b"] {
            assert_eq!(moved_in(path), None, "{path}");
        }
    }

    #[test]
    fn a_mark_has_the_name_of_the_directory_that_it_marks() {
        for name in ["pvc-1_team_data", ".snapshot-x", &"x".repeat(LONGEST - MARK.len())] {
            assert_eq!(mark(name).as_deref().and_then(marked), Some(name));
        }
        assert_eq!((mark(&"x".repeat(LONGEST)), marked("x")), (None, None));
    }

    #[test]
    fn only_a_volume_id_becomes_a_name() {
        let id = "c0ffee00-0000-4000-8000-000000000001";
        assert_eq!((volume(id).as_deref(), snapshot(id).unwrap()), (Some(id), format!(".snapshot-{id}")));
        assert!(is_of_one(id) && is_of_one(&format!(".snapshot-{id}")));
        let long = format!("{id}0");
        for other in ["", ".", "..", "../etc", "x", &id.to_uppercase(), &id.replace('-', "/"), &id[1..], &long] {
            assert_eq!((volume(other), snapshot(other)), (None, None), "{other}");
        }
        for other in [&format!(".deleting-{id}"), ".flex-capacity", "lost+found", &format!(".snapshot-.snapshot-{id}")]
        {
            assert!(!is_of_one(other), "{other}");
        }
    }
}
