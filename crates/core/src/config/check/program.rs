//! The check that a run has one program.

use flex_contract::names::CONTAINER;

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
    let spec = recipe.pod_template.iter().filter_map(|template| template.spec.as_ref());
    let mut containers = spec.flat_map(|spec| spec.containers.iter().filter(|container| container.name == CONTAINER));
    if containers.any(|container| container.command.is_some() || container.args.is_some()) {
        r.fail(
            &keys::POD_TEMPLATE,
            "sets `command` or `args` of the container `provisioner`, which cannot be used with `script`; remove one of the two",
        );
    }
}
