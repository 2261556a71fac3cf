//! The ids that a run got, which a program makes parts of paths and of names.
//!
//! `SNAPSHOT_ID` may be a handle that a person wrote. Such a text may lead to the storage of another volume.

use flex_contract::operation::Operation;
use flex_contract::storage::is_uuid;
use flex_contract::variable::{CLAIM_UUID, CLONE_OF, OPERATION, SNAPSHOT_ID, Variable};

use crate::Failure;

/// Checks the ids of a run. In a delete run only `CLAIM_UUID` counts, so that a user can delete a claim that was refused
/// for its snapshot.
///
/// # Errors
/// An id that is no UUID ends the run for good. The lack of the id that names the storage of the run is an error, too.
pub fn check(env: impl Fn(&str) -> Option<String>) -> Result<(), Failure> {
    let text = |variable: &Variable| env(variable.name).unwrap_or_default();
    let operation = text(OPERATION).parse().ok();
    let all = [CLAIM_UUID, CLONE_OF, SNAPSHOT_ID];
    let checked = if operation == Some(Operation::Delete) { &all[..1] } else { &all[..] };
    let needed = match operation {
        None | Some(Operation::List | Operation::Capacity) => vec![],
        Some(Operation::Snapshot) => vec![CLAIM_UUID.name, SNAPSHOT_ID.name],
        Some(Operation::DeleteSnapshot) => vec![SNAPSHOT_ID.name],
        Some(_) => vec![CLAIM_UUID.name],
    };
    for &variable in checked {
        let (name, id) = (variable.name, text(variable));
        if id.is_empty() && needed.contains(&name) {
            return Err(Failure::usage(format!("{name} is empty: nothing is done")));
        }
        if !id.is_empty() && !is_uuid(&id) {
            return Err(Failure::never(format!("{name} `{}` is no UUID: nothing is done", id.escape_debug())));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    const ID: &str = "c0ffee00-0000-4000-8000-000000000001";
    const HANDLE: &str = "c0ffee00-0000-4000-8000-000000000002/../c0ffee00-0000-4000-8000-000000000001";

    fn checked(operation: &str, claim: &str, clone_of: &str, snapshot: &str) -> Result<(), String> {
        let texts =
            [("OPERATION", operation), ("CLAIM_UUID", claim), ("CLONE_OF", clone_of), ("SNAPSHOT_ID", snapshot)];
        check(|name| texts.iter().find(|(known, _)| *known == name).map(|(_, text)| (*text).to_owned()))
            .map_err(|failure| failure.message)
    }

    #[test]
    fn runs_with_the_ids_of_the_orchestrator_continue() {
        for (operation, claim, clone_of, snapshot) in [
            ("provision", ID, "", ""),
            ("provision", ID, ID, ""),
            ("provision", ID, "", ID),
            ("snapshot", ID, "", ID),
            ("delete-snapshot", "", "", ID),
            ("list", "", "", ""),
            ("capacity", "", "", ""),
            ("polish", "", "", ""),
        ] {
            assert_eq!(checked(operation, claim, clone_of, snapshot), Ok(()), "{operation}");
        }
    }

    #[test]
    fn an_id_that_leads_elsewhere_is_refused() {
        for operation in ["provision", "expand", "modify", "snapshot", "delete-snapshot", "move-in", "polish"] {
            for ids in [[HANDLE, "", ID], [ID, HANDLE, ID], [ID, "", HANDLE], [ID, "", "..\n"]] {
                let said = checked(operation, ids[0], ids[1], ids[2]).unwrap_err();
                assert!(said.contains("is no UUID") && !said.contains('\n'), "{operation} {ids:?}: {said}");
            }
        }
    }

    #[test]
    fn a_deletion_needs_its_own_id_and_looks_at_no_other() {
        assert_eq!(checked("delete", ID, HANDLE, HANDLE), Ok(()));
        assert!(checked("delete", HANDLE, "", "").unwrap_err().contains("is no UUID"));
    }

    #[test]
    fn an_operation_without_its_id_is_refused() {
        // Without an id, a path would be that of all volumes.
        for (operation, claim, name) in [
            ("provision", "", "CLAIM_UUID"),
            ("delete", "", "CLAIM_UUID"),
            ("snapshot", "", "CLAIM_UUID"),
            ("snapshot", ID, "SNAPSHOT_ID"),
            ("delete-snapshot", ID, "SNAPSHOT_ID"),
        ] {
            assert_eq!(checked(operation, claim, "", ""), Err(format!("{name} is empty: nothing is done")));
        }
    }
}
