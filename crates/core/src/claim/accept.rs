//! Whether a class can serve a claim at all.

use contract::quantity::quantity;

use super::Claim;
use super::origin::fillable;
use super::request::tellable;
use crate::config::Recipe;
use crate::limits;

/// Whether the class can serve such a claim. Of one that asks for a volume to be kept ready (`is_request`), whose selector is
/// there to be met by nothing, that is no question; of all others no label says so, since their users write those.
///
/// # Errors
/// What keeps it from that, in words for the claim.
pub fn acceptable(claim: &Claim, recipe: &Recipe, is_request: bool) -> Result<(), String> {
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
            recipe.volume_modes.join(", ")
        ));
    }
    if claim.has_selector && !is_request {
        return Err(
            "the claim selects volumes by labels (spec.selector), which no new volume can satisfy; remove the selector"
                .into(),
        );
    }
    if claim.burden > limits::METADATA {
        return Err(format!(
            "the labels, annotations and finalizers of the claim have {} bytes, with {} more for each; the provisioner accepts {}: remove those that nobody needs",
            claim.burden,
            limits::ENTRY,
            limits::METADATA
        ));
    }
    fillable(claim, recipe)?;
    tellable(claim, recipe)
}
