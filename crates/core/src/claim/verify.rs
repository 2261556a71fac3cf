//! The check whether a volume that an image made is the one that the claim requested.

use std::collections::BTreeMap;

use flex_contract::{names, quantity, storage};
use k8s_openapi::api::core::v1::NodeSelector;

use crate::claim::verify_secrets::verify_secrets;
use crate::claim::verify_source::verify_source;
use crate::config::Recipe;
use crate::config::former_deployment::is_no_driver;
use crate::config::values::is_clean_absolute;
use crate::limits;
use crate::model::affinity;
use crate::model::claim::Claim;
use crate::model::foreign_metadata::FINALIZERS;
use crate::model::volume::Volume;
use crate::run::node::NodeLabels;
use crate::text::line;

/// Returns all reasons why a volume cannot be bound to a claim; none if it fits. `node` is the selected node.
///
/// A volume that was adopted for the claim has been checked, and the PV controller may bind it at any time. A node that
/// is selected later, or a later change of the volume, does not count any more.
pub fn mismatches(volume: &Volume, claim: &Claim, recipe: &Recipe, node: Option<NodeLabels<'_>>) -> Vec<String> {
    let names_it = volume.claim_ref_uid() == Some(&claim.uid);
    if volume.is_adopted() && names_it && volume.name == names::pv_name(&claim.volume_id()) && claim.may_own(volume) {
        return Vec::new();
    }
    let mut mismatches = Vec::new();
    let mut refuse = |mismatch: String| mismatches.push(mismatch);
    let wanted_name = names::pv_name(&claim.volume_id());
    if volume.name != wanted_name {
        refuse(format!("its name is `{}`, not PV_NAME `{wanted_name}`", volume.name));
    }
    verify_request(volume, claim).into_iter().for_each(&mut refuse);
    if let Some(reference) = &volume.claim_ref
        && let Some(uid) = reference.uid.as_ref().filter(|uid| **uid != claim.uid)
    {
        refuse(format!("its claimRef names another claim, {} with UID {uid}", reference.name));
    }
    if !claim.may_own(volume) {
        refuse("its annotation names another claim".into());
    }
    if let Err(mismatch) = verify_volume_source(volume, recipe) {
        refuse(mismatch);
    }
    if let Err(mismatch) = verify_maker(volume, claim, recipe) {
        refuse(mismatch);
    }
    verify_surplus(volume, claim, recipe).into_iter().for_each(&mut refuse);
    verify_foreign_metadata(volume, claim, recipe).into_iter().for_each(&mut refuse);
    // A half-adopted volume is adopted, whatever node is selected meanwhile: the scheduler follows the volume. An image
    // may write the finalizer, and never the record.
    let is_half_adopted = names_it && volume.provenance.is_some();
    if let (Some(selector), Some(node)) = (volume.affinity.as_ref().filter(|_| !is_half_adopted), node)
        && !affinity::matches(selector, node.labels)
    {
        refuse(format!("its node affinity excludes the selected node {}", node.node));
    }
    if volume.attributes_class.as_deref().is_some_and(|class| !asks_for_class(claim, class)) {
        refuse("it names a VolumeAttributesClass that the claim does not ask for".into());
    }
    if volume.foreign_metadata_bytes > limits::VOLUME {
        refuse(format!(
            "its labels, annotations, finalizers and source have {} bytes; at most {} leave room for what the provisioner writes on it",
            volume.foreign_metadata_bytes,
            limits::VOLUME
        ));
    }
    mismatches.iter().map(|mismatch| line(mismatch, limits::MISMATCH)).collect()
}

/// Checks that the provisioner that the config replaces has not made the result of a run. Both give the volume of a
/// claim one name. With a CSI driver, the driver makes the volume in each case.
fn verify_maker(volume: &Volume, claim: &Claim, recipe: &Recipe) -> Result<(), String> {
    let replaces = recipe.effective_config.replaces.as_str();
    if !is_no_driver(replaces) {
        return Ok(());
    }
    let is_unsigned = volume.claim_uid.is_none() && volume.instance.is_none();
    if is_unsigned && volume.provisioned_by.as_deref() == Some(replaces) {
        return Err(format!("the provisioner {replaces} made it: stop that one, or let the volume move in"));
    }
    let path = volume.path.as_deref().filter(|_| matches!(volume.source_kind, Some("hostPath" | "local")));
    let id = claim.volume_id();
    match path.filter(|path| path.rsplit('/').next() != Some(&id)) {
        Some(path) => Err(format!(
            "its path `{path}` does not end with CLAIM_UUID `{id}`, so the provisioner {replaces} may have made it"
        )),
        None => Ok(()),
    }
}

/// Returns what the claim requests, and the volume does not have.
fn verify_request(volume: &Volume, claim: &Claim) -> Vec<String> {
    let mut mismatches = Vec::new();
    let mut refuse = |mismatch: String| mismatches.push(mismatch);
    let class = claim.class.as_deref().unwrap_or_default();
    if volume.class != class {
        refuse(format!("its class is `{}`, the claim's is `{class}`", volume.class));
    }
    match (&volume.size, &asked_when_bound(claim)) {
        (Ok(volume), Ok(claim)) if volume < claim => refuse(format!(
            "its size is {}, the claim asks for {}",
            quantity::quantity(*volume).0,
            quantity::quantity(*claim).0
        )),
        (Err(error), _) => refuse(error.clone()),
        _ => {}
    }
    let lacking: Vec<_> = claim.access_modes.iter().filter(|mode| !volume.access_modes.contains(mode)).collect();
    match lacking.as_slice() {
        [] => {}
        [mode] => refuse(format!("it lacks the access mode {mode}")),
        modes => refuse(format!(
            "it lacks the access modes {}",
            modes.iter().map(|m| m.as_str()).collect::<Vec<_>>().join(", ")
        )),
    }
    if volume.volume_mode != claim.volume_mode {
        refuse(format!("its volume mode is {}, the claim's is {}", volume.volume_mode, claim.volume_mode));
    }
    mismatches
}

/// The surplus that a volume may have over the requested size by default, in bytes. Backends round up, by an amount
/// that follows from the size.
const SURPLUS: u64 = 10 << 30;

/// Returns how much larger the volume is than the config allows.
fn verify_surplus(volume: &Volume, claim: &Claim, recipe: &Recipe) -> Option<String> {
    let (Ok(has), Ok(asked)) = (&volume.size, &claim.size) else { return None };
    let surplus = recipe.max_surplus.unwrap_or(SURPLUS.max(*asked));
    (*has > asked.saturating_add(surplus)).then(|| {
        format!(
            "its size is {}, but the claim asks for {}, and a volume may be at most {} larger; to allow more, set `max-surplus` in the provisioner config",
            quantity::quantity(*has).0,
            quantity::quantity(*asked).0,
            quantity::quantity(surplus).0
        )
    })
}

/// Returns the fields of a volume that other programs would act upon and that the config does not allow.
fn verify_foreign_metadata(volume: &Volume, claim: &Claim, recipe: &Recipe) -> Vec<String> {
    let mut mismatches = Vec::new();
    let mut refuse = |mismatch: String| mismatches.push(mismatch);
    let driver = volume.foreign_metadata.as_ref().and_then(|written| written.driver.as_deref());
    let allowed = |finalizer: &&String| {
        FINALIZERS.contains(&finalizer.as_str())
            || driver.is_some_and(|driver| is_of_attacher(finalizer, driver))
            || recipe.volume_finalizers.contains(finalizer)
    };
    if let Some(finalizer) = volume.finalizers.iter().find(|finalizer| !allowed(finalizer)) {
        refuse(format!(
            "it has the finalizer {finalizer}, which would keep it from being deleted; to allow it, list it in `volume-finalizers` of the provisioner config"
        ));
    }
    let Some(written) = volume.foreign_metadata.as_deref() else { return mismatches };
    if let Some(owner) = written.owners.first() {
        refuse(format!(
            "it is owned by {owner} (ownerReferences): Kubernetes would delete it together with that; the image must not write owners"
        ));
    }
    verify_secrets(volume, claim, recipe).into_iter().for_each(&mut refuse);
    let known = |option: &&String| {
        let among = |options: &[String]| options.contains(option);
        among(&recipe.mount_options) || among(&recipe.volume_mount_options)
    };
    if let Some(option) = written.mount_options.iter().find(|option| !known(option)) {
        refuse(format!(
            "it has the mount option {option}, which the class does not have; to allow it, list it in `volume-mount-options` of the provisioner config"
        ));
    }
    if let Some(key) = written.metadata.iter().find(|key| !recipe.volume_metadata.contains(key)) {
        refuse(format!(
            "it has {key}, which changes how Kubernetes treats it; to allow it, list it in `volume-metadata` of the provisioner config"
        ));
    }
    mismatches
}

/// Checks whether a finalizer is that of the attacher of a CSI driver. The attacher writes the name of its driver with
/// dashes in place of other signs.
fn is_of_attacher(finalizer: &str, driver: &str) -> bool {
    let dashed = |c: char| if c.is_ascii_alphanumeric() { c } else { '-' };
    let of = finalizer.strip_prefix("external-attacher/");
    of.is_some_and(|of| !of.is_empty() && (of == driver || of == driver.chars().map(dashed).collect::<String>()))
}

/// Checks whether the PV controller binds the claim to a volume that is reserved for it by name.
pub fn satisfies_reservation(volume: &Volume, claim: &Claim) -> bool {
    let size = matches!((&volume.size, &claim.size), (Ok(has), Ok(asked)) if has >= asked);
    let modes = claim.access_modes.iter().all(|mode| volume.access_modes.contains(mode));
    let class = Some(volume.class.as_str()) == claim.class.as_deref();
    let named = claim.volume_name.as_ref().is_none_or(|name| *name == volume.name);
    !volume.terminating && size && modes && class && named && volume.volume_mode == claim.volume_mode
}

/// Returns the size that the volume must have. A user may request more as soon as a claim is bound. An expand run
/// serves the larger request, which does not count against the volume.
fn asked_when_bound(claim: &Claim) -> Result<u64, String> {
    let asked = claim.size.clone()?;
    Ok(claim.capacity.filter(|_| claim.is_bound()).map_or(asked, |had| asked.min(had)))
}

/// Checks whether the claim requests attributes of this class, or did so when it was bound. A modify run serves a later
/// request, which does not count against the volume either.
fn asks_for_class(claim: &Claim, class: &str) -> bool {
    let had = claim.modify_status.as_ref().filter(|_| claim.is_bound()).and_then(|status| status.current());
    [claim.attributes_class.as_deref(), had].contains(&Some(class))
}

/// The node where a volume was made.
#[derive(Clone, Copy, Debug)]
pub struct MadeOn<'a> {
    /// The name of the node.
    pub node: &'a str,
    /// The labels of the node; `None` if the node does not exist.
    pub labels: Option<&'a BTreeMap<String, String>>,
}

/// Derives the node affinity of a volume, if the config has `volume-affinity` and the image has not written one. `node`
/// is where the volume was made.
///
/// # Errors
/// If the labels are not known. The text is for the claim's event.
pub fn derived_affinity(
    volume: &Volume,
    recipe: &Recipe,
    node: Option<MadeOn<'_>>,
) -> Result<Option<NodeSelector>, String> {
    if recipe.volume_affinity.is_empty() || volume.affinity.is_some() || volume.is_adopted() {
        return Ok(None);
    }
    let lacks = "it has no node affinity, and `volume-affinity` of the provisioner config cannot be followed";
    let Some(MadeOn { node: name, labels }) = node else {
        return Err(format!("{lacks}: the node of its run is not known"));
    };
    let Some(labels) = labels else { return Err(format!("{lacks}: the node {name} does not exist")) };
    let made = affinity::of_node(&recipe.volume_affinity, labels);
    made.map(Some).map_err(|label| format!("{lacks}: the node {name} lacks the label {label}"))
}

/// Checks whether the class allows the volume source of a volume.
///
/// # Errors
/// If the class does not allow the source. The text is for the claim's event.
pub fn verify_volume_source(volume: &Volume, recipe: &Recipe) -> Result<(), String> {
    verify_source(volume, &recipe.volume_sources, &recipe.effective_config.replaces)?;
    is_where_its_run_was(volume, recipe)
}

/// Checks that the class allows the source of a volume that has moved in, and that images can work on it. `path` is the
/// place that the volume's provenance names.
///
/// # Errors
/// If the class does not allow the source. The text is for the admin.
pub fn verify_moved_in_source(volume: &Volume, recipe: &Recipe, path: &str) -> Result<(), String> {
    verify_source(volume, &recipe.volume_sources, &recipe.effective_config.replaces)?;
    if !is_clean_absolute(path) || path.ends_with('/') {
        return Err(format!("its path `{path}` is not absolute and clean, or ends with a slash"));
    }
    let Some((folder, _)) = storage::moved_in(path) else {
        return Err(format!(
            "its path `{path}` cannot move in: the last name may have letters, digits, `.`, `_` and `-`, must not begin with `.` or `-`, and must not be a UUID"
        ));
    };
    if !matches!(volume.source_kind, Some("hostPath" | "local")) {
        return Ok(());
    }
    if let Some(other) = volume.path.as_deref().filter(|other| *other != path) {
        return Err(format!("it leads to `{other}`, but its record to `{path}`"));
    }
    let mut roots = recipe.storage_on_nodes().peekable();
    match roots.peek().is_none() || roots.any(|root| root == folder) {
        true => Ok(()),
        false => Err(format!(
            "its directory `{path}` is not directly in one of the directories of `storage-mounts` in the provisioner config"
        )),
    }
}

/// Checks that a volume is the directory of its run, where the run saw only that directory. A path in that directory
/// may be a link that the run has made, and a path beside it belongs to another volume.
fn is_where_its_run_was(volume: &Volume, recipe: &Recipe) -> Result<(), String> {
    let (Some("hostPath" | "local"), Some(path)) = (volume.source_kind, volume.path.as_deref()) else { return Ok(()) };
    let id = volume.name.strip_prefix(names::PV_PREFIX).and_then(storage::volume);
    let mut roots = recipe.storage_on_nodes().peekable();
    let is_its = |root: &str| id.as_ref().is_some_and(|id| path == format!("{root}/{id}"));
    if roots.peek().is_none() || roots.any(is_its) {
        return Ok(());
    }
    Err(format!(
        "its path `{path}` is not the directory that its run was given; with `storage-mounts` in the provisioner config it must be the directory of CLAIM_UUID there"
    ))
}

#[cfg(test)]
#[path = "verify_tests.rs"]
mod tests;
