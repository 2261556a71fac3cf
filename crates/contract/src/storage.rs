//! How a run sees the storage of its own volume alone: the names of directories, and the variable that tells of it.

/// The variable with the paths below which a run sees only what it works on, with commas between them; empty where the config
/// has no `storage-mounts`.
pub const VARIABLE: &str = crate::variable::STORAGE_MOUNTS.name;

/// An empty directory that is all a capacity run sees: it is on the file system whose room is asked for.
pub const ROOM: &str = ".flex-capacity";

/// The beginning of the name of a snapshot's directory; its id follows.
const SNAPSHOT: &str = ".snapshot-";

/// Whether an id is the UUID that the orchestrator gives: only then it becomes a part of a path.
pub fn is_uuid(text: &str) -> bool {
    let hyphen = |at: usize| matches!(at, 8 | 13 | 18 | 23);
    let legal = |(at, byte): (usize, u8)| match hyphen(at) {
        true => byte == b'-',
        false => matches!(byte, b'0'..=b'9' | b'a'..=b'f'),
    };
    text.len() == 36 && text.bytes().enumerate().all(legal)
}

/// The name of the directory of a volume.
pub fn volume(id: &str) -> Option<String> {
    is_uuid(id).then(|| id.to_owned())
}

/// The name of the directory of a snapshot.
pub fn snapshot(id: &str) -> Option<String> {
    is_uuid(id).then(|| format!("{SNAPSHOT}{id}"))
}

/// Whether a directory of this name is that of a volume or of a snapshot.
pub fn is_of_one(name: &str) -> bool {
    is_uuid(name.strip_prefix(SNAPSHOT).unwrap_or(name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_an_id_of_ours_becomes_a_name() {
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
