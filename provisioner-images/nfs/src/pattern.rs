//! The path of a volume within the export, by the admin's pattern. The functions are pure.

use flex_contract::request::RunRequest;
use flex_image_kit::{Failure, pattern};

use crate::record::FOLDER;

/// The longest name that file systems allow, minus room for `archived-` and a UUID.
const LONGEST_NAME: usize = 255 - "archived-".len() - "-".len() - 36;

/// Returns the path, relative to the export.
pub fn path(pattern: &str, request: &RunRequest) -> Result<String, Failure> {
    pattern::path("subdirectory", pattern, request, problem)
}

fn problem(path: &str) -> Option<&'static str> {
    path.split('/').find_map(|part| match part {
        FOLDER => Some("it has the part `.flex-provisioner`, where the provisioner keeps its records"),
        long if long.len() > LONGEST_NAME => Some("it has a part that is too long"),
        _ => None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_is_not_among_the_records_and_leaves_room_for_the_name_of_an_archive() {
        for path in [".flex-provisioner", "a/.flex-provisioner/x", &"x".repeat(250)] {
            assert!(problem(path).is_some(), "{path}");
        }
        for path in ["a", "a/flex-provisioner", &"x".repeat(209)] {
            assert_eq!(problem(path), None, "{path}");
        }
    }
}
