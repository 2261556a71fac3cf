//! The directories of volumes on the node of this machine.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::PermissionsExt;

use flex_contract::storage::CAPACITY_DIR;

/// Returns the names in a directory of the node, without the empty directories of no volume: Kubernetes made them for a
/// run, or a delete run left them, and the DaemonSet removes them. The directory of capacity runs is no volume, either. Returns
/// nothing if the directory does not exist.
pub fn volumes_in(directory: &str) -> BTreeSet<String> {
    let is_no_volume = |entry: &fs::DirEntry| {
        if entry.file_name() == CAPACITY_DIR {
            return true;
        }
        let mode = entry.metadata().map(|found| found.permissions().mode() & 0o7777);
        mode.is_ok_and(|mode| matches!(mode, 0o1000 | 0o1700 | 0o755))
            && fs::read_dir(entry.path()).is_ok_and(|mut inner| inner.next().is_none())
    };
    let entries = fs::read_dir(directory).into_iter().flatten().flatten().filter(|entry| !is_no_volume(entry));
    entries.filter_map(|entry| entry.file_name().into_string().ok()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_directory_of_capacity_runs_and_empty_ones_of_nobody_are_no_volumes() {
        let base = tempfile::tempdir().unwrap();
        let modes = [
            (CAPACITY_DIR, 0o777),
            ("nobodys", 0o1700),
            ("kubelets", 0o1000),
            ("of-a-run", 0o755),
            ("empty", 0o777),
            (".deleting-a", 0o1700),
        ];
        for (name, mode) in modes {
            let path = base.path().join(name);
            fs::create_dir(&path).unwrap();
            fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
        }
        fs::write(base.path().join(".deleting-a/data"), "x").unwrap();
        let volumes = volumes_in(base.path().to_str().unwrap());
        assert_eq!(volumes, [".deleting-a".to_owned(), "empty".to_owned()].into());
        assert_eq!(volumes_in("/nowhere/at/all"), BTreeSet::new());
    }
}
