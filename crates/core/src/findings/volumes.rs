//! Volumes that nothing will delete, or whose deletion is stuck.

use std::sync::Arc;

use flex_contract::names;
use flex_contract::operation::Operation;
use flex_contract::policy::ReclaimPolicy;

use super::finding::{Finding, MIN_AGE, Removal, STUCK_AFTER, correct_or};
use super::kind::FindingKind;
use super::nodes;
use super::observation::Lookups;
use crate::config::Recipe;
use crate::config::classes::ClassLookup;
use crate::model::claim::Claim;
use crate::model::object_ref::ObjectRef;
use crate::model::volume::Volume;
use crate::run::backoff;
use crate::run::view::Job;
use crate::volume::restored::may_adopt;
use crate::volume::rule::Rule;
use crate::volume::undeletable::{Undeletable, by_hand, deletable, keep_or_let_go, provenance, recipe_of};
use crate::volume::vouch::{
    Answers, ClassConfigs, ReferredClaim, Vouchable, explain_other_cluster, is_deleted_at_once, reserve_command,
    vouchable,
};

/// The relation of a volume to its claim.
enum Owner {
    /// The volume has no claim: somebody removed it, or it never had one.
    None,
    /// The claim exists.
    Alive(Arc<Claim>),
    /// The claim exists, and is bound to another volume.
    BoundToOtherVolume(Arc<Claim>),
    /// The claim is gone.
    Gone,
}

fn owner(w: &Lookups<'_>, volume: &Volume) -> Owner {
    let reference = volume.claim_ref_uid();
    if volume.is_adopted() && reference.is_none() {
        return Owner::None;
    }
    let Some(uid) = reference.or(volume.claim_uid.as_deref()) else { return Owner::None };
    match w.objects.claim_by_id(uid) {
        Some(claim) if claim.has_other_volume(&volume.name) => Owner::BoundToOtherVolume(claim),
        Some(claim) => Owner::Alive(claim),
        None => Owner::Gone,
    }
}

/// Makes a finding about a volume.
fn finding(
    volume: &Volume,
    kind: FindingKind,
    detail: impl Into<String>,
    remedy: impl Into<String>,
) -> Option<Finding> {
    Some(Finding::new(kind, ObjectRef::volume(volume), detail, remedy))
}

/// Returns the finding about a volume, if any.
pub(super) fn volume(w: &Lookups<'_>, volume: &Volume) -> Option<Finding> {
    if !volume.belongs_to(&w.s.identity) {
        let since =
            volume.unneeded_since.filter(|since| volume.has_finalizer() && !is_at_work(volume, *since, w.now))?;
        let whose = match (&volume.instance, &volume.provisioned_by) {
            (Some(instance), _) => format!("the instance {instance}"),
            (None, Some(provisioner)) => format!("the provisioner {provisioner}"),
            (None, None) => "an unknown orchestrator".to_owned(),
        };
        let remedy = format!(
            "make sure that the orchestrator of {whose} runs; if it is gone for good, clean up by hand and remove the finalizer {}",
            names::VOLUME_FINALIZER
        );
        let detail = format!("it belongs to {whose}, which does nothing about its deletion");
        return Some(finding(volume, FindingKind::VolumeForeign, detail, remedy)?.since(since));
    }
    if w.now - volume.created < MIN_AGE || volume.abandoned {
        return None;
    }
    if let Some(hash) = volume.pool_hash() {
        return unwanted_pooled_volume(w, volume, hash);
    }
    if volume.is_restored() && !is_being_adopted(w, volume) {
        return restored(w, volume);
    }
    let deletes = volume.reclaim_policy == ReclaimPolicy::Delete;
    let kept = || remedy_of_kept(w, volume);
    match owner(w, volume) {
        Owner::Alive(claim) => in_use(w, volume, &claim),
        // Kubernetes is about to bind it, or says why not.
        Owner::None if volume.is_adopted() && of_former_name(w, volume).is_some_and(|it| waits_for(&it, volume)) => {
            None
        }
        Owner::None if deletes && volume.terminating && volume.has_finalizer() => {
            undeleted(volume, Undeletable::without_claim_ref(volume))
        }
        Owner::None if volume.is_adopted() => {
            finding(volume, FindingKind::VolumeRetained, "its claimRef was removed, so it can be bound again", kept())
        }
        Owner::None => finding(
            volume,
            FindingKind::VolumeNotAdopted,
            format!("it names no claim, neither in claimRef nor in the annotation {}", names::CLAIM_UID),
            kept(),
        ),
        Owner::Gone if !deletes => {
            finding(volume, FindingKind::VolumeRetained, format!("its policy is {}", volume.reclaim_policy), kept())
        }
        Owner::BoundToOtherVolume(claim) if !deletes => finding(
            volume,
            FindingKind::VolumeElsewhere,
            format!(
                "claim {} is bound to {}, and the policy is {}",
                claim.name,
                claim.volume_name.as_deref().unwrap_or_default(),
                volume.reclaim_policy
            ),
            kept(),
        ),
        Owner::Gone | Owner::BoundToOtherVolume(_) => deletion(w, volume),
    }
}

/// Returns the finding about a volume whose storage is not deleted until somebody acts.
fn undeleted(volume: &Volume, Undeletable { rule, why, remedy }: Undeletable) -> Option<Finding> {
    let kind = match rule {
        Rule::UnusableVolumeId => FindingKind::VolumeMisnamed,
        Rule::OriginUnknown => FindingKind::VolumeNotAdopted,
        Rule::ProvenanceUnreadable => FindingKind::VolumeUnreadable,
        Rule::Run(..) => FindingKind::NodeGone,
        _ => FindingKind::VolumeHeld,
    };
    finding(volume, kind, why, remedy)
}

/// Returns the finding about a released volume that is to be deleted.
fn deletion(w: &Lookups<'_>, volume: &Volume) -> Option<Finding> {
    let served = class_recipe(w, volume);
    let recipe = match deletable(volume, recipe_of(&provenance(volume), served).as_ref(), false) {
        Ok(recipe) => recipe.clone(),
        Err(undeletable) => return undeleted(volume, undeletable),
    };
    let node_gone = served.unwrap_or(&recipe).node_gone;
    if let Some(undeletable) = nodes::undeletable(w, volume, node_gone) {
        return undeleted(volume, undeletable);
    }
    if let Some(failure) = volume.last_failure.as_ref().filter(|failure| failure.operation == Operation::Delete) {
        let detail = format!("delete run {} failed: {}", failure.attempt, failure.message);
        let found = finding(volume, FindingKind::VolumeHeld, detail, correct_or(&by_hand(volume)))?;
        return Some(found.since(failure.at));
    }
    let is_slow =
        |job: &&&Job| job.volume.as_deref() == Some(&volume.name) && !job.is_over && w.now - job.created > STUCK_AFTER;
    let slow = w.jobs_by_id.get(volume.volume_id()?)?.iter().find(is_slow)?;
    let detail = format!("its delete run, Job {}, does not end", slow.name);
    Some(finding(volume, FindingKind::VolumeHeld, detail, by_hand(volume))?.since(slow.created))
}

/// Returns the present recipe of a volume's class.
fn class_recipe<'a>(w: &Lookups<'a>, volume: &Volume) -> Option<&'a Recipe> {
    match w.s.classes.lookup(&volume.class) {
        ClassLookup::Ours(class) => class.recipe.as_deref().ok(),
        ClassLookup::Foreign | ClassLookup::Unknown => None,
    }
}

/// Returns the claim that has the name of a volume's former claim.
fn of_former_name(w: &Lookups<'_>, volume: &Volume) -> Option<Arc<Claim>> {
    let former = volume.claim_ref.as_ref().map(|reference| &reference.name).or(volume.former_claim.as_ref())?;
    w.objects.claim(former)
}

fn waits_for(claim: &Claim, volume: &Volume) -> bool {
    claim.volume_name.as_ref() == Some(&volume.name)
}

/// Says what to do with a volume that nothing deletes. A claim of the former name may be restored: it may wait for this
/// volume, or have got another one in its place.
fn remedy_of_kept(w: &Lookups<'_>, volume: &Volume) -> String {
    let name = &volume.name;
    match of_former_name(w, volume) {
        Some(claim) if waits_for(&claim, volume) => {
            format!("claim {} waits for the volume: reserve it for that claim: {}", claim.name, reserve_command(name))
        }
        Some(claim) => format!(
            "a claim {} exists, and if it was restored it may have got an empty volume in place of this one: compare both before you delete anything (docs/how-to/backup.md)",
            claim.name
        ),
        None => format!("delete storage and volume by hand if nobody needs them: kubectl delete pv {name}"),
    }
}

/// Checks whether another orchestrator may be deleting a volume. It has had little time, or it has recorded a failed
/// delete run and the next is not overdue.
fn is_at_work(volume: &Volume, since: i64, now: i64) -> bool {
    let failed =
        volume.last_failure.as_ref().map(|failure| failure.at.saturating_add(backoff::seconds(backoff::LONG_DELAY)));
    now.saturating_sub(failed.map_or(since, |due| due.max(since))) <= STUCK_AFTER
}

/// Checks whether the volume's claim is adopting it now.
fn is_being_adopted(w: &Lookups<'_>, volume: &Volume) -> bool {
    matches!(owner(w, volume), Owner::Alive(claim) if may_adopt(&claim))
}

/// Returns the finding about a volume with provenance but without adoption mark.
fn restored(w: &Lookups<'_>, volume: &Volume) -> Option<Finding> {
    let s = w.s;
    let known = ClassConfigs { identity: &s.identity, classes: &s.classes, recipes: &s.recipes, nodes: &s.nodes };
    let command = format!("flex-provisioner vouch {}", volume.name);
    let claim = ReferredClaim::of(volume, |uid| w.objects.claim_by_id(uid).is_some());
    let answers = Answers { also_released: true, node: None };
    match vouchable(volume, &known, claim, answers) {
        Ok(Vouchable { untrusted_difference, other_cluster, .. }) if is_deleted_at_once(volume, claim) => {
            let elsewhere = other_cluster.map(|cluster| format!("; {}", explain_other_cluster(&cluster)));
            let why = untrusted_difference.map(|why| format!("; {why}")).unwrap_or_default();
            let why = elsewhere.unwrap_or_default() + &why;
            let detail = format!(
                "its claim is gone and its policy is Delete, so the orchestrator would delete its storage at once if somebody vouched for it{why}"
            );
            let remedy = format!(
                "to keep it for a claim of the same name: {}; once it is bound: {command}; to delete its storage: {command} --also-released",
                reserve_command(&volume.name)
            );
            finding(volume, FindingKind::VolumeRestored, detail, remedy)
        }
        // Only an admin knows where the storage is.
        Ok(Vouchable { unknown_node: Some(why), .. }) => finding(
            volume,
            FindingKind::VolumeRestored,
            why,
            format!("look at its record: {command} --dry-run; then: {command} --node NODE"),
        ),
        // No option of doctor takes over the storage of another cluster.
        Ok(Vouchable { other_cluster: Some(cluster), untrusted_difference, .. }) => {
            let trust = if untrusted_difference.is_some() { " --trust-record" } else { "" };
            let also = untrusted_difference.map(|why| format!("; {why}")).unwrap_or_default();
            let remedy = format!(
                "look at its record: {command} --dry-run; if that cluster does not use the storage any more: {command} --from-cluster {cluster}{trust}"
            );
            finding(volume, FindingKind::VolumeRestored, format!("{}{also}", explain_other_cluster(&cluster)), remedy)
        }
        Ok(Vouchable { untrusted_difference: None, .. }) => {
            let found = finding(volume, FindingKind::VolumeRestored, "its record agrees with its class", command)?;
            Some(found.removed_by(Removal::Vouch))
        }
        Ok(Vouchable { untrusted_difference: Some(why), .. }) => {
            let remedy = format!("look at its record: {command} --dry-run; if it is right: {command} --trust-record");
            finding(volume, FindingKind::VolumeRestored, why, remedy)
        }
        Err(why) => finding(
            volume,
            FindingKind::VolumeRestored,
            format!("nobody can vouch for it: {why}"),
            match claim == ReferredClaim::Gone {
                true => keep_or_let_go(volume),
                false => format!(
                    "pods can use the volume as it is, so there is nothing to do; only when its claim is gone and nobody needs its data: {}",
                    by_hand(volume)
                ),
            },
        ),
    }
}

/// Returns the finding about a pooled volume.
fn unwanted_pooled_volume(w: &Lookups<'_>, volume: &Volume, hash: &str) -> Option<Finding> {
    let size = volume.pool_size.unwrap_or_default();
    let why = match w.s.classes.lookup(&volume.class) {
        ClassLookup::Ours(class) => match &class.recipe {
            Ok(recipe) => match &recipe.pool {
                Some(pool) if pool.hash == hash && pool.sizes.contains_key(&size) => return None,
                Some(_) => "its class keeps other volumes ready now".to_owned(),
                None => "its class has no pool any more".to_owned(),
            },
            Err(why) => format!("its class cannot be served: {why}"),
        },
        ClassLookup::Foreign | ClassLookup::Unknown => "this provisioner does not serve its class any more".to_owned(),
    };
    let remedy = format!(
        "find out from the log of the orchestrator why the volume is not deleted, or: kubectl delete pv {}",
        volume.name
    );
    finding(volume, FindingKind::VolumeUnasked, format!("it waits in a pool, but {why}"), remedy)
}

/// Returns the finding about a volume whose claim exists.
fn in_use(w: &Lookups<'_>, volume: &Volume, claim: &Claim) -> Option<Finding> {
    if let Some(why) = volume.quarantine.as_ref().filter(|_| !volume.is_adopted()) {
        let remedy = format!("correct the image or its config, then: kubectl delete pv {}", volume.name);
        return finding(
            volume,
            FindingKind::VolumeQuarantined,
            format!("it does not fit claim {}: {why}", claim.name),
            remedy,
        );
    }
    let bound = claim.is_bound() && claim.volume_name.as_deref() == Some(&volume.name) && !claim.is_held();
    if !bound {
        return None;
    }
    let later = || format!("nothing to do while its claim lives; once it is gone, {}", by_hand(volume));
    if !volume.is_adopted() {
        let detail = format!(
            "it is bound to claim {}, but has no record that the orchestrator wrote (restored from a backup without its status?)",
            claim.name
        );
        return finding(volume, FindingKind::VolumeNotAdopted, detail, later());
    }
    if let Some(found) = nodes::problem(w, volume, claim) {
        return Some(found);
    }
    let why = if w.s.deep { recipe_of(&provenance(volume), class_recipe(w, volume)).err() } else { None };
    finding(volume, FindingKind::VolumeUnreadable, why?, later())
}
