//! The check that a run has one program.

use super::reader::Reader;
use crate::config::Recipe;
use crate::config::keys;

/// Refuses a second program beside the script.
pub(super) fn check(r: &mut Reader<'_>, recipe: &Recipe) {
    if recipe.script.is_none() {
        return;
    }
    for key in [&keys::COMMAND, &keys::ARGS] {
        if r.text(key).is_some() {
            r.fail(key, "cannot be used with `script`, which is the whole program of a run; remove one of the two");
        }
    }
}
