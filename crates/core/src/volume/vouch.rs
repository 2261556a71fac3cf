//! The check of a restored volume before an admin vouches for it.
//!
//! The provenance of such a volume decides which image a later run starts, with which account and which parameters.
//! Everybody who can create the volume can write it. So an admin can vouch only for provenance that is consistent with
//! the volume. Without an explicit option the provenance must also agree with what the volume's class says now or said
//! before.

use flex_contract::policy::ReclaimPolicy;
use std::collections::{BTreeSet, HashSet};
use std::sync::Arc;

use crate::claim::verify::{verify_moved_in_source, verify_volume_source};
use crate::config::classes::{ClassLookup, Classes, Identity};
use crate::config::effective_config::EffectiveConfig;
use crate::config::{Recipe, joined, keys};
use crate::limits;
use crate::model::affinity;
use crate::model::moved_in::MovedIn;
use crate::model::reach::reaching;
use crate::model::snapshot::Content;
use crate::model::volume::Provenance;
use crate::model::volume::Volume;
use crate::model::volume::is_run_id;
use crate::run::node::Node;
use crate::text::line;
use flex_contract::names;

/// The data with which provenance is compared.
#[derive(Clone, Copy, Debug)]
pub struct ClassConfigs<'a> {
    /// The names of this orchestrator.
    pub identity: &'a Identity,
    /// The present classes.
    pub classes: &'a Classes,
    /// The hashes of the stored recipes.
    pub recipes: &'a HashSet<String>,
    /// All nodes.
    pub nodes: &'a [Arc<Node>],
}

/// What an admin says about a volume beside its name.
#[derive(Clone, Copy, Debug, Default)]
pub struct Answers<'a> {
    /// The storage of the volume may be deleted at once.
    pub also_released: bool,
    /// The node that has the storage.
    pub node: Option<&'a str>,
}

/// A restored volume for which an admin can vouch.
#[derive(Clone, Debug, PartialEq)]
pub struct Vouchable {
    /// The provenance of the volume, with the node that the admin names.
    pub provenance: Provenance,
    /// The reason why the admin must name the node of the storage first.
    pub unknown_node: Option<String>,
    /// The reason why an admin must check the provenance first; `None` if it contains nothing new about its class.
    pub untrusted_difference: Option<String>,
    /// The UID of the cluster that has adopted the volume, if that is another one. It may still use the storage.
    pub other_cluster: Option<String>,
}

/// A snapshot whose record names another node than the one that has the storage of its volume now.
#[derive(Clone, Debug, PartialEq)]
pub struct SnapshotElsewhere {
    /// The content of the snapshot.
    pub content: Arc<Content>,
    /// The node in its record.
    pub former_node: String,
}

/// Returns the snapshots of a volume whose records name another node than the one that has the storage now. A
/// delete-snapshot run on the former node would succeed, and leave the snapshot behind.
pub fn snapshots_elsewhere<'a>(
    volume_id: &str,
    node: &str,
    contents: impl Iterator<Item = &'a Arc<Content>>,
    identity: &Identity,
) -> Vec<SnapshotElsewhere> {
    let elsewhere = |content: &Arc<Content>| {
        let record = content.made_by().filter(|record| !volume_id.is_empty() && record.volume_id == volume_id)?;
        let former_node = record.origin_node.filter(|former| former != node)?;
        Some(SnapshotElsewhere { content: content.clone(), former_node })
    };
    contents.filter(|content| content.is_ours(identity)).filter_map(elsewhere).collect()
}

/// The claim to which a volume refers, as the cluster shows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReferredClaim {
    /// The claim is gone: no claim has the UID in the claimRef, or the PV controller says so.
    Gone,
    /// The claim exists, or the volume is reserved by name, or it refers to no claim.
    NotGone,
}

impl ReferredClaim {
    /// Finds out whether the claim of a volume is gone; `exists` says whether any claim has a UID. The phase alone does
    /// not say so: the volume has just been created, and the PV controller writes the phase later.
    pub fn of(volume: &Volume, exists: impl FnOnce(&str) -> bool) -> Self {
        match volume.phase.is_claim_gone() || volume.claim_ref_uid().is_some_and(|uid| !exists(uid)) {
            true => ReferredClaim::Gone,
            false => ReferredClaim::NotGone,
        }
    }
}

/// Checks whether an admin can vouch for a volume with this claim. A volume with the mark can only get another node.
///
/// # Errors
/// If an admin cannot vouch for it. The text is for the admin.
pub fn vouchable(
    volume: &Volume,
    configs: &ClassConfigs<'_>,
    claim: ReferredClaim,
    answers: Answers<'_>,
) -> Result<Vouchable, String> {
    if !volume.belongs_to(configs.identity) {
        return Err("it belongs to another orchestrator".to_owned());
    }
    let Some(text) = volume.provenance.as_ref() else {
        return Err(format!("it has no record of an adoption (annotation {})", names::PROVENANCE));
    };
    let mut provenance: Provenance =
        serde_json::from_str(text).map_err(|error| format!("its record cannot be read: {error}"))?;
    if volume.is_adopted() && answers.node.is_none_or(|node| provenance.origin_node.as_deref() == Some(node)) {
        return Err("it has the orchestrator's mark already; only its node can change (--node)".to_owned());
    }
    let effective_config = &provenance.effective_config;
    let recipe =
        effective_config.recipe().map_err(|problems| format!("its record cannot be used: {}", joined(&problems)))?;
    configs_of(&provenance).try_for_each(|config| verify_names(volume, config, configs.identity))?;
    if !volume.is_adopted() {
        verify_source(volume, &recipe, provenance.moved_in.as_ref()).or_else(|why| {
            // The config may say by now what its images may make.
            let now = class_recipe(effective_config, configs).ok_or(why)?;
            verify_source(volume, now, provenance.moved_in.as_ref())
        })?;
    }
    if !answers.also_released && is_deleted_at_once(volume, claim) {
        return Err(format!(
            "its claim is gone and its policy is Delete, so the orchestrator would delete its storage at once; to keep it for a claim of the same name: {}; to delete it: vouch --also-released",
            reserve_command(&volume.name)
        ));
    }
    // The class says nothing about a place that the image did not choose. Another volume may have it.
    let place = provenance.moved_in.as_ref();
    let place =
        place.map(|moved_in| format!(
        "it has moved in, and its record says that its storage is {}; after an interrupted adopt or import, run that command again", moved_in.path));
    let pool = || {
        volume.was_pooled().then(|| {
            "its label says that it was in a pool, but a claim may have got it after the backup; once confirmed, it is in no pool: reserve it for its claim by its claimRef, or delete it if nobody has used it".to_owned()
        })
    };
    let new = || configs_of(&provenance).find_map(|config| untrusted_difference(config, configs));
    let untrusted_difference = place.or_else(pool).or_else(new);
    // The record of a volume with the mark is trusted; only its node changes.
    let untrusted_difference = untrusted_difference.filter(|_| !volume.is_adopted());
    let unknown_node = match node_of_record(volume, provenance.origin_node.as_deref(), configs.nodes, answers.node) {
        Ok(node) => {
            provenance.origin_node = node;
            None
        }
        Err(why) if answers.node.is_some() => return Err(why),
        Err(why) => Some(why),
    };
    Ok(Vouchable {
        unknown_node,
        other_cluster: provenance.cluster.clone().filter(|cluster| configs.identity.is_other_cluster(cluster)),
        untrusted_difference,
        provenance,
    })
}

/// Returns the configs of a record: that of the volume, and those of other attempts.
fn configs_of(provenance: &Provenance) -> impl Iterator<Item = &EffectiveConfig> {
    let others = provenance.others.iter().map(|other| &other.effective_config);
    std::iter::once(&provenance.effective_config).chain(others)
}

/// Checks that a record and its volume name each other, and that the record names a config of this orchestrator.
fn verify_names(volume: &Volume, effective_config: &EffectiveConfig, identity: &Identity) -> Result<(), String> {
    match volume.volume_id() {
        Some(id) if !is_run_id(id) => return Err("its volume id is not one that a run can have".to_owned()),
        Some(id) if volume.name == names::pv_name(id) => {}
        id => {
            let id = id.unwrap_or("none");
            return Err(format!("its id is {id}, but the volume with that id is named {}", names::pv_name(id)));
        }
    }
    if effective_config.class != volume.class {
        return Err(format!(
            "its record names class {}, but the volume has class {}",
            effective_config.class, volume.class
        ));
    }
    if !identity.config_namespaces.contains(&effective_config.config.namespace) {
        return Err(format!(
            "its record names the config {}, but {} is not a config namespace of this orchestrator",
            effective_config.config, effective_config.config.namespace
        ));
    }
    Ok(())
}

/// Returns the node for the record of a volume: that of the record, or the one that the admin names. The node affinity of
/// the volume must include it: a delete run on another node would succeed, and leave the storage behind.
fn node_of_record(
    volume: &Volume,
    recorded: Option<&str>,
    nodes: &[Arc<Node>],
    named: Option<&str>,
) -> Result<Option<String>, String> {
    let Some(recorded) = recorded else {
        return match named {
            Some(_) => {
                Err("its record names no node, because runs of its class may be on any: leave out --node".into())
            }
            None => Ok(None),
        };
    };
    let Some(selector) = volume.affinity.as_deref() else { return Ok(Some(named.unwrap_or(recorded).to_owned())) };
    let find = |name: &str| nodes.iter().find(|node| node.name == name);
    let includes = |node: &Arc<Node>| affinity::matches(selector, &node.labels);
    let needs = || line(&affinity::describe(selector), limits::NAME);
    if let Some(named) = named {
        return match find(named) {
            None => Err(format!("node {named} does not exist")),
            Some(node) if !includes(node) => Err(format!(
                "node {named} has not the labels of its node affinity ({}): set them, or write the node affinity anew; then vouch again",
                needs()
            )),
            Some(_) => Ok(Some(named.to_owned())),
        };
    }
    let reaching: Vec<&str> = reaching(selector, nodes.iter().map(Arc::as_ref)).collect();
    let is_one_host = affinity::only_host(selector).is_some();
    match (find(recorded), reaching.as_slice()) {
        (_, [one]) if *one == recorded => Ok(Some(recorded.to_owned())),
        (_, several) if several.contains(&recorded) && !is_one_host => Ok(Some(recorded.to_owned())),
        // The node may come back, and has the host name of the record.
        (None, []) if affinity::only_host(selector).is_none_or(|host| host == recorded) => {
            Ok(Some(recorded.to_owned()))
        }
        (None, []) => Err(format!(
            "its record names node {recorded}, which does not exist, and no node has the labels of its node affinity ({}): wait for its node, and vouch then",
            needs()
        )),
        (Some(_), []) => Err(format!(
            "its record names node {recorded}, which has not the labels of its node affinity ({}): set them, or name the node that has the storage with --node",
            needs()
        )),
        (_, [one]) => Err(format!(
            "its record names node {recorded}, but its node affinity leads to node {one}: if the storage is on node {one}, add --node {one}"
        )),
        (_, several) => Err(format!(
            "its record names node {recorded}, and its node affinity leads to the nodes {}: name the one that has the storage with --node",
            several.join(", ")
        )),
    }
}

/// Checks whether the storage of a volume with this claim is deleted as soon as an admin vouches for it.
pub fn is_deleted_at_once(volume: &Volume, claim: ReferredClaim) -> bool {
    claim == ReferredClaim::Gone && volume.reclaim_policy == ReclaimPolicy::Delete
}

/// Writes why an admin must say that another cluster does not use the storage of a volume any more.
pub fn explain_other_cluster(cluster: &str) -> String {
    format!(
        "the cluster {cluster} has adopted the volume (the UID of its namespace kube-system), and a deletion here would destroy the data there if that cluster still uses the storage"
    )
}

/// Writes the command that reserves a volume for the claim in its claimRef, whatever the UID of that claim is.
pub fn reserve_command(volume: &str) -> String {
    format!("kubectl patch pv {volume} --type json -p '[{{\"op\":\"remove\",\"path\":\"/spec/claimRef/uid\"}}]'")
}

fn verify_source(volume: &Volume, recipe: &Recipe, moved_in: Option<&MovedIn>) -> Result<(), String> {
    match moved_in {
        Some(moved_in) => verify_moved_in_source(volume, recipe, &moved_in.path),
        None => verify_volume_source(volume, recipe),
    }
}

/// Returns the present recipe of the class of an effective config, if the same config serves it.
fn class_recipe<'a>(effective_config: &EffectiveConfig, configs: &ClassConfigs<'a>) -> Option<&'a Recipe> {
    let recipe = match configs.classes.lookup(&effective_config.class) {
        ClassLookup::Ours(class) => class.recipe.as_deref().ok(),
        _ => None,
    };
    recipe.filter(|recipe| recipe.effective_config.config == effective_config.config)
}

/// Returns the parameters in which two effective configs differ, of StorageClasses that were written for another
/// provisioner. They may name Secrets.
fn other_parameters(one: &EffectiveConfig, other: &EffectiveConfig) -> Vec<String> {
    let all: BTreeSet<_> = one.parameters.keys().chain(other.parameters.keys()).collect();
    let differ = all.into_iter().filter(|name| one.parameters.get(*name) != other.parameters.get(*name));
    differ.map(|name| format!("parameter {}", line(name, limits::NAME))).collect()
}

/// Returns the difference between an effective config and those that are known of its class. Settings of the ConfigMap
/// that only the image interprets do not count.
fn untrusted_difference(effective_config: &EffectiveConfig, configs: &ClassConfigs<'_>) -> Option<String> {
    if configs.recipes.contains(&effective_config.hash()) {
        return None;
    }
    let Some(class_recipe) = class_recipe(effective_config, configs) else {
        return Some(format!(
            "the config {} does not serve class {} now",
            effective_config.config, effective_config.class
        ));
    };
    let keys = |effective_config: &EffectiveConfig| {
        let keys = effective_config.data.keys().filter(|key| keys::is_key(key)).cloned();
        keys.collect::<BTreeSet<_>>()
    };
    let all: Vec<String> = keys(effective_config).union(&keys(&class_recipe.effective_config)).cloned().collect();
    let script =
        (effective_config.script != class_recipe.effective_config.script).then(|| keys::SCRIPT.name.to_owned());
    let differ =
        all.into_iter().filter(|key| effective_config.data.get(key) != class_recipe.effective_config.data.get(key));
    let differ = differ.chain(script).chain(other_parameters(effective_config, &class_recipe.effective_config));
    let differ: Vec<String> = differ.collect();
    let same_kind = (effective_config.service_token, &effective_config.replaces)
        == (class_recipe.effective_config.service_token, &class_recipe.effective_config.replaces);
    match (differ.is_empty(), same_kind) {
        (true, true) => None,
        (false, _) => Some(format!("it differs from the config {} in {}", effective_config.config, differ.join(", "))),
        (true, false) => {
            Some(format!("it differs from the config {} in its token or its provisioner", effective_config.config))
        }
    }
}

#[cfg(test)]
#[path = "vouch_tests.rs"]
mod tests;
