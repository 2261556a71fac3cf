//! The owner of a volume: the steps that make a volume the claim's.

use flex_contract::policy::ReclaimPolicy;
use flex_contract::reason;

use super::observed::Observed;
use super::placement::{known_nodes, last_node};
use super::rule::{Decision, Rule};
use super::step::Step;
use crate::config::{Placement, Recipe};
use crate::model::affinity;
use crate::model::claim::{Binding, Claim};
use crate::model::volume::{OtherAttempt, Provenance, Volume};
use crate::rules::Rule as _;
use crate::run::node::without;

/// Checks whether another claim has the volume: the claimRef names it with a UID.
pub(super) fn is_claimed_by_other(o: &Observed<'_>, volume: &Volume) -> bool {
    volume.claim_ref_uid().is_some_and(|uid| uid != o.claim.uid)
}

/// Checks whether this claim has the volume: the claimRef has its UID, and not only its name.
pub(super) fn is_claimed_by_this(o: &Observed<'_>, volume: &Volume) -> bool {
    volume.claim_ref_uid() == Some(&o.claim.uid)
}

/// Checks whether the volume is terminating without the orchestrator's finalizer. A finalizer cannot be added any more.
pub(super) fn is_terminating_without_finalizer(volume: &Volume) -> bool {
    volume.terminating && !volume.has_finalizer()
}

/// Checks whether the volume needs the finalizer for its deletion, but cannot get it any more.
pub(super) fn cannot_add_finalizer(o: &Observed<'_>, volume: &Volume) -> bool {
    is_terminating_without_finalizer(volume)
        && o.recipe_of_attempt().is_some_and(|recipe| recipe.reclaim_policy == ReclaimPolicy::Delete)
}

/// Decides by a rule to adopt the volume, unless it is adopted. Other rules hold if it cannot be adopted.
pub(super) fn adopt_unless_done(o: &Observed<'_>, volume: &Volume, rule: Rule) -> Option<Decision> {
    let Some(recipe) = o.recipe_of_attempt() else {
        return Some(Rule::AdoptionNeedsRecipe.warn(
            reason::WAITING_FOR_PROVISIONER,
            format!(
                "volume {} cannot be adopted: the provisioner config of the attempt is not known any more",
                volume.name
            ),
        ));
    };
    let Origin { provenance, nodes } = origin(o, recipe, volume);
    let kept = volume.provenance.as_deref().and_then(|text| serde_json::from_str::<Provenance>(text).ok());
    // If no node is known any more, the node that was written when one was known stays.
    let known = || known_nodes(o.claim).next().is_some();
    let same = |kept: &Provenance| {
        let same_node = kept.origin_node == provenance.origin_node || provenance.origin_node.is_none();
        kept.effective_config == provenance.effective_config
            && kept.others == provenance.others
            && (same_node || !(kept.origin_node.is_none() || known()))
    };
    let is_its = || match o.pool.is_request {
        true => {
            let as_asked = volume.pool_size == o.claim.size.as_ref().ok().copied();
            let has_hash = |hash: &str| hash == recipe.effective_config.pool_hash();
            as_asked && volume.claim_uid.is_none() && volume.has_finalizer() && volume.pool_hash().is_some_and(has_hash)
        }
        false => {
            is_claimed_by_this(o, volume)
                && volume.claim_uid.as_ref() == Some(&o.claim.uid)
                && (volume.has_finalizer() || volume.reclaim_policy != ReclaimPolicy::Delete)
        }
    };
    let complete = kept.as_ref().is_some_and(same)
        && volume.is_adopted()
        && is_its()
        && volume.provisioned_by.is_some()
        && volume.instance.is_some()
        && volume.volume_id_annotation.as_ref() == Some(&o.claim.uid);
    let name = volume.name.clone();
    if !complete {
        let was_used = o.claim.is_bound() || kept.is_some();
        if was_used && !is_claimed_by_this(o, volume) && !o.confirmed.fresh {
            return Some(Rule::ReadClaimBeforeAdoption.step(Step::Refresh));
        }
        let mark = !(o.volumes.many_wait && may_mark_later(o, rule));
        return Some(rule.step(Step::Adopt { volume: name, provenance: Box::new(provenance), nodes, mark }));
    }
    (o.volumes.lacks_mark(&name) && !may_mark_later(o, rule))
        .then(|| Rule::MarkAdoptedVolume.step(Step::MarkAdopted { volume: name }))
}

/// Checks whether the adoption mark may be written with the volume's phase, when the orchestrator binds the claim. That
/// saves a write, and nothing needs the mark before: an orchestrator that begins meanwhile adopts the volume again.
/// By any other rule the claim is not bound to the volume, or already is.
fn may_mark_later(o: &Observed<'_>, rule: Rule) -> bool {
    let claim = o.claim;
    rule == Rule::AdoptVolume && o.volumes.binding == Binding::Direct && !claim.is_bound() && !claim.terminating
}

/// The origin of a volume.
struct Origin {
    provenance: Provenance,
    /// The nodes where its storage is or may have been left.
    nodes: Vec<String>,
}

/// Returns the origin of a volume.
fn origin(o: &Observed<'_>, recipe: &Recipe, volume: &Volume) -> Origin {
    let candidate = o.volumes.all.iter().find(|candidate| candidate.volume.name == volume.name);
    let reaching = candidate.map(|candidate| candidate.reaching.as_slice()).unwrap_or_default();
    let node = made_on(o.claim, recipe, volume, reaching);
    let provenance = Provenance {
        effective_config: recipe.effective_config.clone(),
        origin_node: node,
        moved_in: volume.moved_in(),
        cluster: None,
        others: Vec::new(),
    };
    let provenance = provenance.with_others(others(o, recipe, volume));
    let nodes = leftover_nodes(o, volume, &provenance);
    Origin { provenance, nodes }
}

/// Returns the attempts with other recipes that a volume names: those that it has named, of which the records may be settled, in
/// their order, and then those of other records. A settled record changes nothing, so that the volume keeps its mark.
fn others(o: &Observed<'_>, recipe: &Recipe, volume: &Volume) -> impl Iterator<Item = OtherAttempt> {
    let mut others = volume.others();
    others.retain(|named| named.effective_config != recipe.effective_config);
    for recorded in &o.runs.recorded.others {
        match others.iter_mut().find(|named| named.effective_config == recorded.effective_config) {
            Some(named) => named.clone_from(recorded),
            None => others.push(recorded.clone()),
        }
    }
    others.into_iter()
}

/// Returns the node of a volume, where the class makes volumes on nodes. Any of several attempts may have made the
/// volume. The volume's node affinity says which, unless it includes none or several of the claim's nodes (`reaching`).
/// A node that is gone for now has no labels, but usually its name as host name. A host that no node has stays in the
/// record: nothing is deleted on another node.
fn made_on(claim: &Claim, recipe: &Recipe, volume: &Volume, reaching: &[String]) -> Option<String> {
    if recipe.placement == Placement::Any {
        return None;
    }
    let host = || volume.affinity.as_deref().and_then(affinity::only_host).filter(|host| !host.is_empty());
    let of_attempt = host().filter(|host| reaching.is_empty() && known_nodes(claim).any(|node| node == host));
    match (reaching, of_attempt) {
        ([node], _) => Some(node.clone()),
        (_, Some(node)) => Some(node.to_owned()),
        _ => last_node(claim).cloned().or_else(|| host().map(str::to_owned)),
    }
}

/// Returns the nodes where earlier attempts may have left storage under the same id, and last the volume's own node. Records name
/// those that somebody has taken off the claim.
/// Returns nothing for a volume that is not bound to one host: it may itself be the storage that they left, so that
/// nothing may be deleted by its id.
fn leftover_nodes(o: &Observed<'_>, volume: &Volume, provenance: &Provenance) -> Vec<String> {
    let bound_to_host = volume.affinity.as_deref().and_then(affinity::only_host).is_some();
    let Some(origin_node) = provenance.origin_node.as_ref().filter(|_| bound_to_host) else { return Vec::new() };
    let noted = &o.claim.nodes_with_storage;
    let mut nodes: Vec<_> = o.runs.recorded.nodes.iter().filter(|node| !noted.contains(node)).cloned().collect();
    nodes.extend_from_slice(noted);
    nodes = without(&nodes, origin_node);
    nodes.push(origin_node.clone());
    nodes
}
