//! The names of Jobs.

use flex_contract::operation::Operation;

use crate::object::hash;

/// Returns the name of the Job of an attempt. Delete runs of one id can have several reasons: a claim that was deleted
/// half-way, one for each node, and a volume that appeared later. `scope` distinguishes them, so that the success of
/// one never counts for another.
pub fn name(operation: Operation, id: &str, attempt: u32, scope: &str) -> String {
    let prefix = prefix(operation, id);
    match scope {
        "" => format!("{prefix}{attempt}"),
        scope => format!("{prefix}{attempt}-{}", &hash(scope.as_bytes())[..6]),
    }
}

/// Returns the prefix of the names of all Jobs of an operation for an id.
pub fn prefix(operation: Operation, id: &str) -> String {
    format!("{operation}-{id}-")
}
