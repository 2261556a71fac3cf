//! Claims that are stuck.

use flex_contract::operation::Operation;

use super::finding::{Finding, MIN_AGE, STUCK_AFTER, correct_or};
use super::kind::FindingKind;
use super::observation::Lookups;
use crate::claim::decide::Rule;
use crate::claim::standing::{Obstacle, obstacle};
use crate::config::classes::{Class, ClassLookup};
use crate::config::effective_config::hash_of;
use crate::model::claim::Claim;
use crate::model::object_ref::ObjectRef;
use crate::model::phase::ClaimPhase;
use crate::volume::vouch::reserve_command;

/// Returns the finding about a claim, if any.
pub(super) fn claim(w: &Lookups<'_>, claim: &Claim) -> Option<Finding> {
    let object = ObjectRef::claim(claim);
    let finding = |kind, detail: String, remedy: String| Some(Finding::new(kind, object.clone(), detail, remedy));
    let class = claim.class.as_deref().unwrap_or_default();
    let lookup = w.s.classes.lookup(class);
    let ours = matches!(lookup, ClassLookup::Ours(_)) || (claim.own_stamp().is_some() && is_of_our_config(w, claim));
    let foreign = match lookup {
        ClassLookup::Ours(class) => class.is_for_other_provisioner(claim.storage_provisioner.as_deref()),
        _ => claim.storage_provisioner.as_ref().is_some_and(|name| *name != w.s.identity.provisioner),
    };
    if !ours || foreign || claim.belongs_to_other_instance(&w.s.identity.instance) {
        return None;
    }
    if let Some((detail, remedy)) = lost(w, claim) {
        return finding(FindingKind::ClaimLost, detail, remedy);
    }
    let look = || format!("kubectl -n {} describe pvc {}", claim.name.namespace, claim.name.name);
    if claim.is_held() && !claim.abandoned {
        if let Some(why) = without_config(w, claim, lookup) {
            let remedy = match claim.terminating {
                true => by_hand(claim),
                false => format!("bring class and config back, or delete the claim; {}", look()),
            };
            return finding(FindingKind::ClaimHeld, left_by(claim) + &why, remedy);
        }
        let failure = claim.last_failure.as_ref().filter(|failure| failure.operation == Operation::Delete);
        if let Some(failure) = failure.filter(|_| claim.terminating) {
            let detail = format!("{}delete run {} failed: {}", left_by(claim), failure.attempt, failure.message);
            let found = finding(FindingKind::ClaimUndeleted, detail, correct_or(&by_hand(claim)))?;
            return Some(found.since(failure.at));
        }
    }
    let ClassLookup::Ours(class) = lookup else { return None };
    if claim.is_bound() || claim.terminating || claim.volume_name.is_some() {
        return None;
    }
    let (why, since) = stuck(w, claim, class)?;
    finding(FindingKind::ClaimStuck, why, look()).map(|found| found.since(since))
}

/// Names the claim whose runs have left something, if it is gone: the finding is about the record then.
fn left_by(claim: &Claim) -> String {
    if claim.is_stand_in() { format!("left by the deleted claim {}: ", claim.api_name()) } else { String::new() }
}

fn by_hand(claim: &Claim) -> String {
    format!("clean up by hand, then {}", claim.how_to_abandon())
}

/// Returns the reason why Kubernetes cannot bind a claim to its volume, and the remedy. The claim is `Lost`, or it is
/// pending because a backup tool has removed the annotation of the binding.
fn lost(w: &Lookups<'_>, claim: &Claim) -> Option<(String, String)> {
    let is_old = w.now - claim.created >= MIN_AGE;
    let is_pending = claim.phase == ClaimPhase::Pending && !claim.is_bound() && !claim.terminating && is_old;
    if claim.phase != ClaimPhase::Lost && !(is_pending && claim.volume_name.is_some()) {
        return None;
    }
    let name = claim.volume_name.as_deref().unwrap_or_default();
    let Some(volume) = w.objects.volume(name) else {
        let remedy = "restore the PersistentVolume from a backup of the API, or delete the claim";
        return Some((format!("its volume {name} does not exist"), remedy.to_owned()));
    };
    let other_uid = volume.claim_ref_uid().filter(|uid| *uid != claim.uid);
    Some(match volume.claim_ref.as_ref().zip(other_uid) {
        Some((reference, uid)) if reference.name == claim.name => {
            let detail = format!(
                "its volume {name} exists, but is reserved for another UID of the claim, {uid}, as in a backup"
            );
            let remedy = format!("reserve the volume for the claim of this name: {}", reserve_command(name));
            (detail, remedy)
        }
        Some((reference, _)) => {
            let detail = format!("its volume {name} is reserved for another claim, {}", reference.name);
            let remedy = format!("delete the claim, or find out whose volume it is: kubectl describe pv {name}");
            (detail, remedy)
        }
        // Kubernetes is about to bind it, or says why not.
        None if is_pending => return None,
        None => {
            let detail = format!("its volume {name} exists, but Kubernetes has not bound the claim again yet");
            let remedy = format!("kubectl -n {} describe pvc {}", claim.name.namespace, claim.name.name);
            (detail, remedy)
        }
    })
}

/// Checks whether the stamp names a config in a namespace that this orchestrator reads. If the stamp lacks its
/// instance, this distinguishes the claim from those of another orchestrator, which have the same annotations.
fn is_of_our_config(w: &Lookups<'_>, claim: &Claim) -> bool {
    let config = claim.stamp.as_ref().and_then(|stamp| stamp.recipe_version.split_once('/'));
    config.is_some_and(|(namespace, _)| w.s.identity.config_namespaces.iter().any(|ours| ours == namespace))
}

/// Returns the reason why no orchestrator can continue the claim's attempt.
fn without_config(w: &Lookups<'_>, claim: &Claim, lookup: ClassLookup<'_>) -> Option<String> {
    let class = claim.class.as_deref().unwrap_or_default();
    let stamp = claim.own_stamp()?;
    let known = hash_of(&stamp.recipe_version).is_some_and(|hash| w.s.recipes.contains(hash));
    match lookup {
        ClassLookup::Ours(_) if known => None,
        ClassLookup::Ours(found) => found.recipe.as_ref().err().map(|why| {
            format!(
                "the config of its attempt, {}, does not exist any more, and class {class} has no config: {why}",
                stamp.recipe_version
            )
        }),
        // The orchestrator undoes the attempt when the claim is deleted.
        _ if known && claim.terminating => None,
        ClassLookup::Foreign => Some(format!("class {class} belongs to another provisioner now")),
        ClassLookup::Unknown => Some(format!("class {class} does not exist any more")),
    }
}

/// Returns the reason why a claim gets no volume, and the time since when, in seconds since 1970.
fn stuck(w: &Lookups<'_>, claim: &Claim, class: &Class) -> Option<(String, i64)> {
    if w.now - claim.created < STUCK_AFTER {
        return None;
    }
    let is_request = claim.is_pool_request(&w.s.identity.namespace);
    let obstacle = obstacle(claim, class, Some(&w.s.namespaces), is_request);
    if let Some(Obstacle { rule: Rule::ConfigUnusable | Rule::ClaimRefused, why }) = obstacle {
        return Some((why, claim.created));
    }
    let stamp = claim.own_stamp()?;
    if let Some(failure) = &claim.last_failure {
        return Some((format!("attempt {} failed: {}", failure.attempt, failure.message), failure.at));
    }
    // A populator fills the claim, or a pod must use it first.
    if obstacle.is_some() {
        return None;
    }
    let began = stamp.began()?.as_second();
    let limit =
        i64::try_from(class.recipe.as_ref().ok()?.timeout.as_secs()).unwrap_or(i64::MAX).saturating_add(STUCK_AFTER);
    if w.now.saturating_sub(began) <= limit {
        return None;
    }
    Some((format!("attempt {} began long ago, and the claim has no volume", stamp.attempt), began))
}
