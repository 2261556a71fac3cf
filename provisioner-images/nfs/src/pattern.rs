//! The path of a volume within the export, by the admin's pattern. The functions are pure.

use flex_contract::request::RunRequest;
use flex_contract::storage;
use flex_image_kit::{Failure, pattern};

use crate::record::{ARCHIVED, FOLDER};

/// The longest name that file systems allow, minus room for `archived-`, a UUID and a number.
const LONGEST_NAME: usize = 255 - ARCHIVED.len() - "-".len() - UUID - ".9".len();

/// The length of a UUID.
const UUID: usize = 36;

/// Returns the path, relative to the export.
pub fn path(pattern: &str, request: &RunRequest) -> Result<String, Failure> {
    pattern::path("subdirectory", pattern, request, |path| problem(path, &request.volume_id))
}

/// Returns what is wrong with a path. No volume gets a name that this image gives to other directories: those begin with
/// a dot, or with `archived-` and have the id of their own volume. Some servers ignore case.
fn problem(path: &str, own_id: &str) -> Option<&'static str> {
    path.split('/').find_map(|part| match part {
        FOLDER => Some("it has the part `.flex-provisioner`, where the provisioner keeps its records"),
        long if long.len() > LONGEST_NAME => Some("it has a part that is too long"),
        odd if !begins_visibly(odd) => {
            Some("it has a part that begins with a dot or an invisible character; the provisioner has such names")
        }
        archive if is_archive_of_other(&archive.to_lowercase(), own_id) => {
            Some("it has a part with the name of an archive of another volume (archived-…UUID)")
        }
        _ => None,
    })
}

/// Checks the first character. Some file systems ignore characters that nobody sees.
fn begins_visibly(name: &str) -> bool {
    name.chars().next().is_some_and(|first| match first {
        '.' => false,
        '\u{115f}' | '\u{1160}' | '\u{3164}' | '\u{ffa0}' => false,
        other => other.is_ascii() || other.is_alphanumeric(),
    })
}

/// Checks whether a name begins as that of an archive, and has the id of another volume.
fn is_archive_of_other(name: &str, own_id: &str) -> bool {
    let is_other = |window: &[u8]| std::str::from_utf8(window).is_ok_and(|id| storage::is_uuid(id) && id != own_id);
    name.starts_with(ARCHIVED) && name.as_bytes().windows(UUID).any(is_other)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record;

    const OWN: &str = "c0ffee00-0000-4000-8000-000000000001";
    const OTHER: &str = "c0ffee00-0000-4000-8000-000000000002";

    #[test]
    fn a_path_is_not_among_the_records_and_leaves_room_for_the_name_of_an_archive() {
        for path in [".flex-provisioner", "a/.flex-provisioner/x", ".FLEX-provisioner", &"x".repeat(250)] {
            assert!(problem(path, OWN).is_some(), "{path}");
        }
        for path in ["a", "a/flex-provisioner", &"x".repeat(207)] {
            assert_eq!(problem(path, OWN), None, "{path}");
        }
    }

    #[test]
    fn no_volume_has_a_name_that_the_image_gives_to_another_directory() {
        for path in ["a", "t/data", OWN] {
            for number in [1, 2] {
                let archive = record::archive(path, OTHER, number);
                assert!(problem(&archive, OWN).is_some() && problem(&archive.to_uppercase(), OWN).is_some(), "{path}");
                assert!(problem(&format!("{archive}/inner"), OWN).is_some(), "{path}");
            }
            assert!(problem(&record::rubbish(path, OTHER), OWN).is_some(), "{path}");
        }
        for odd in ["\u{ad}.flex-provisioner", "\u{feff}x", "\u{3164}x", ".deleting-x"] {
            assert!(problem(odd, OWN).is_some(), "{odd}");
        }
        // Nobody's archive: the default pattern in a namespace `archived-logs`.
        assert_eq!(problem(&format!("archived-logs-data-pvc-{OWN}"), OWN), None);
        assert_eq!(problem("archived-logs/ä-data", OWN), None);
    }
}
