//! Why the storage of a volume is not deleted, and what an admin does about it. Events and findings say the same.

use std::sync::Arc;

use flex_contract::names;
use flex_contract::reason;
use k8s_openapi::api::core::v1::NodeSelector;

use crate::config::current_program::with_current_program;
use crate::config::effective_config::EffectiveConfig;
use crate::config::{Recipe, joined};
use crate::model::affinity::{only_host, wanted_labels};
use crate::model::volume::{Provenance, Volume, is_run_id};
use crate::object::ObjectName;
use crate::rules::Rule as _;
use crate::run::rule::{Rule as RunRule, Target};
use crate::volume::rule::{Decision, Rule};
use crate::volume::vouch::reserve_command;

/// A reason why the storage of a volume is not deleted until somebody acts.
#[derive(Clone, Debug, PartialEq)]
pub struct Undeletable {
    /// The rule that decides about the volume.
    pub rule: Rule,
    /// The reason.
    pub why: String,
    /// What an admin does about it.
    pub remedy: String,
}

/// Checks whether a delete run for a volume could begin, whatever the nodes are. Returns its recipe, which is that of
/// [`recipe_of`].
///
/// # Errors
/// If none could.
pub fn deletable<R>(volume: &Volume, recipe: Result<R, &String>, is_in_use: bool) -> Result<R, Undeletable> {
    // The id may belong to another volume, which is named after it. A delete run would delete that volume's storage,
    // which may be in use or retained.
    let wrong_id = match volume.volume_id() {
        None => Some("the volume has no id".to_owned()),
        Some(id) if !is_run_id(id) => Some("the volume's id is not one that a run can have".to_owned()),
        Some(id) if volume.name != names::pv_name(id) => {
            let right = names::pv_name(id);
            Some(format!("the volume's name is not {right}, which is the name of the volume with the id {id}"))
        }
        Some(_) => None,
    };
    let (rule, why) = match (wrong_id, recipe) {
        (Some(why), _) => (Rule::UnusableVolumeId, format!("{why}; another volume may have the same storage")),
        // The record of a run stays until its volume is adopted, and gives a claim that is gone a stand-in, which adopts
        // it.
        (None, _) if !volume.is_adopted() => {
            (Rule::OriginUnknown, "the volume was never adopted, and no run is known to have made it".to_owned())
        }
        (None, Err(why)) => (Rule::ProvenanceUnreadable, why.clone()),
        (None, Ok(recipe)) => return Ok(recipe),
    };
    let first = match rule {
        Rule::ProvenanceUnreadable => "",
        _ => "make sure that nobody uses the storage, by another volume or in another cluster; ",
    };
    let then = if is_in_use { by_hand(volume) } else { keep_or_let_go(volume) };
    Err(Undeletable { rule, why, remedy: format!("{first}{then}") })
}

impl Undeletable {
    /// Returns the reason why nothing is deleted for a terminating volume whose claimRef somebody has removed.
    pub fn without_claim_ref(volume: &Volume) -> Self {
        let why = "the volume was deleted while it had no claimRef, so no claim has released it";
        Undeletable { rule: Rule::ClaimRefRemovedHold, why: why.to_owned(), remedy: by_hand(volume) }
    }

    /// Returns the reason why nothing is deleted while the record of a volume names one node, which may be gone, and its
    /// node affinity leads to another.
    pub fn on_other_node(volume: &Volume, node: &str, other: &str, is_gone: bool, is_in_use: bool) -> Self {
        let also = if is_in_use { "" } else { " --also-released" };
        let labels = volume.affinity.as_deref().filter(|_| !is_gone).map(|selector| set_labels(selector, node));
        let labels = labels.map(|set| format!("; else {set}, and take them off node {other}")).unwrap_or_default();
        Undeletable {
            rule: Rule::StorageOnOtherNode,
            why: format!(
                "the record of this volume says that its storage is on node {node}, but its node affinity leads to node {other}"
            ),
            remedy: format!(
                "if the storage is on node {other}: flex-provisioner vouch {}{also} --node {other}{labels}",
                volume.name
            ),
        }
    }

    /// Returns the reason why nothing is deleted while a node is gone, if its class says to wait.
    pub fn on_gone_node(volume: &Volume, node: &str) -> Self {
        Undeletable {
            rule: Rule::Run(Target::Storage, RunRule::NodeGoneHold),
            why: format!("node {node} is gone, and storage on it must be deleted"),
            remedy: format!(
                "the provisioner deletes the storage when the node is back. If the node does not come back, set `node-gone` in the provisioner config, or {}",
                by_hand(volume)
            ),
        }
    }

    /// Decides to wait for an admin.
    pub(super) fn decision(self) -> Decision {
        let Undeletable { rule, why, remedy } = self;
        rule.warn(reason::VOLUME_FAILED_DELETE, format!("nothing is deleted: {why}; {remedy}"))
    }
}

/// Returns the provenance of a volume that was adopted.
///
/// # Errors
/// If it cannot be read, or the volume leads elsewhere. The text is for the admin.
pub fn provenance(volume: &Volume) -> Result<Provenance, String> {
    let adopted = volume.provenance.as_ref().filter(|_| volume.is_adopted());
    let text = adopted.ok_or("how the volume was made is not known: it was never adopted")?;
    let read = serde_json::from_str(text)
        .map_err(|error| format!("the volume's record (annotation provenance) cannot be read: {error}"))?;
    volume.verify_place().map(|()| read)
}

/// Returns the recipe in a volume's provenance, with the program of its class, whose recipe is `served`.
///
/// # Errors
/// If there is none. The text is for the admin.
pub fn recipe_of(provenance: &Result<Provenance, String>, served: Option<&Recipe>) -> Result<Arc<Recipe>, String> {
    recipe_with_program(&provenance.as_ref().map_err(String::clone)?.effective_config, served)
}

/// Returns the recipe of a config in a volume's provenance, with the program of another one.
///
/// # Errors
/// If the config cannot be used. The text is for the admin.
pub fn recipe_with_program(made_by: &EffectiveConfig, program: Option<&Recipe>) -> Result<Arc<Recipe>, String> {
    let checked = with_current_program(made_by, program.map(|recipe| &recipe.effective_config)).checked();
    checked.map_err(|problems| {
        format!("the volume's record (annotation provenance) cannot be used: {}", joined(&problems))
    })
}

/// Writes what an admin does about a volume whose storage only the admin can delete. The place is known for volumes of
/// one node, and for those with a path there.
pub fn by_hand(volume: &Volume) -> String {
    let host = || volume.affinity.as_deref().and_then(only_host).map(str::to_owned);
    let node = volume.origin_node().or_else(host).map(|node| format!(" on node {node}"));
    let path = volume.path.as_ref().map(|path| format!(" in {path}"));
    let location = [node, path].into_iter().flatten().collect::<String>();
    let let_go = ObjectName::new("", &volume.name).abandon_command("pv", names::ABANDON_YES);
    format!("clean up by hand{location}, then run `{let_go}`")
}

/// Writes what an admin does about a released volume that nothing deletes, and whose data somebody may need.
pub fn keep_or_let_go(volume: &Volume) -> String {
    let keep = match &volume.claim_ref {
        Some(_) => format!("to keep it for a claim of the same name: {}; ", reserve_command(&volume.name)),
        None => String::new(),
    };
    format!("{keep}to delete it: {}", by_hand(volume))
}

/// Writes the command that gives a node the labels of a volume.
pub fn set_labels(selector: &NodeSelector, node: &str) -> String {
    match wanted_labels(selector).as_slice() {
        [] => format!("give node {node} labels that fit the node affinity"),
        labels => format!("set the labels again: kubectl label node {node} {} --overwrite", labels.join(" ")),
    }
}
