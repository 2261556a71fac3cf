//! The check whether a class can serve a claim at all.

use flex_contract::quantity::quantity;
use flex_contract::volume_mode::VolumeMode;

use crate::claim::data_source::{check_data_source, left_to_populator};
use crate::claim::request::check_request_size;
use crate::config::Recipe;
use crate::config::keys::NAMESPACE_SELECTOR;
use crate::limits;
use crate::model::claim::Claim;
use crate::model::namespace::Namespaces;

/// Returns why the class refuses a claim. Returns `None` also for a claim that a populator fills: the class is asked for
/// nothing.
pub fn refusal(claim: &Claim, recipe: &Recipe, namespaces: &Namespaces, is_request: bool) -> Option<String> {
    if left_to_populator(claim).is_some() {
        return None;
    }
    namespace_refusal(claim, recipe, namespaces, is_request).or_else(|| admit(claim, recipe, is_request).err())
}

/// Returns why the class serves no claim of the claim's namespace. Pool requests (`is_request`) are the orchestrator's own.
pub fn namespace_refusal(claim: &Claim, recipe: &Recipe, namespaces: &Namespaces, is_request: bool) -> Option<String> {
    let namespace = &claim.name.namespace;
    let Recipe { class, config, namespaces: served, .. } = recipe;
    let is_served = served.serve(namespace, namespaces.labels(namespace));
    if is_request || is_served == Some(true) {
        return None;
    }
    let keys = served.keys().iter().map(|key| format!("`{}`", key.name)).collect::<Vec<_>>().join(" and ");
    Some(match is_served {
        None => format!(
            "class {class} serves a namespace by its labels (`{}` of the provisioner config {config}), and those of the namespace {namespace} are not known yet",
            NAMESPACE_SELECTOR.name
        ),
        _ => format!(
            "class {class} does not serve the namespace {namespace}, by {keys} of the provisioner config {config}; use another class, or ask an admin to allow the namespace"
        ),
    })
}

/// Checks whether the class can serve the claim.
///
/// A pool request (`is_request`) has a selector that no volume can meet, so its selector is not checked. For all other
/// claims no label decides this, because users write their labels.
///
/// # Errors
/// If the class cannot serve the claim. The text is for the claim's event.
pub fn admit(claim: &Claim, recipe: &Recipe, is_request: bool) -> Result<(), String> {
    let size = claim.size.clone()?;
    if let Some(min) = recipe.min_size.filter(|min| size < *min) {
        return Err(format!(
            "the claim asks for {}, and class {} provides at least {}; ask for more",
            quantity(size).0,
            recipe.class,
            quantity(min).0
        ));
    }
    if let Some(max) = recipe.max_size.filter(|max| size > *max) {
        return Err(format!(
            "the claim asks for {}, and class {} provides at most {}; ask for less",
            quantity(size).0,
            recipe.class,
            quantity(max).0
        ));
    }
    if let Some(mode) = claim.access_modes.iter().find(|mode| !recipe.access_modes.contains(mode)) {
        return Err(format!(
            "class {} does not allow the access mode {mode}; it allows {}",
            recipe.class,
            recipe.access_modes.join(", ")
        ));
    }
    if !recipe.volume_modes.contains(&claim.volume_mode) {
        return Err(format!(
            "class {} does not allow the volume mode {}; it allows {}",
            recipe.class,
            claim.volume_mode,
            recipe.volume_modes.iter().map(VolumeMode::as_str).collect::<Vec<_>>().join(", ")
        ));
    }
    if claim.has_selector && !is_request {
        return Err(
            "the claim selects volumes by labels (spec.selector), which no new volume can satisfy; remove the selector"
                .into(),
        );
    }
    if claim.foreign_metadata_bytes > limits::METADATA {
        return Err(format!(
            "the labels, annotations and finalizers of the claim have {} bytes ({} bytes are added for each of them); the provisioner accepts at most {}: remove those that nobody needs",
            claim.foreign_metadata_bytes,
            limits::ENTRY,
            limits::METADATA
        ));
    }
    check_data_source(claim, recipe)?;
    check_request_size(claim, recipe)
}
