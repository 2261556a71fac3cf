//! Observes a volume and all objects that concern it.

use std::sync::Arc;
use std::time::Duration;

use flex_contract::names;
use flex_contract::operation::Operation;
use flex_contract::policy::ReclaimPolicy;
use flex_core::config::{NodeGone, Recipe};
use flex_core::model::claim::Claim;
use flex_core::model::reach::leads_elsewhere;
use flex_core::model::volume::Volume;
use flex_core::run::job;
use flex_core::run::node::NodeStates;
use flex_core::run::state::RunState;
use flex_core::run::view::{Job, Pod, has_running_pods, nodes_with_pods};
use flex_core::volume::decide::{next_node, nodes_to_clean};
use flex_core::volume::in_place_run::InPlaceRun;
use flex_core::volume::observed::{ClaimState, Observed};
use flex_core::volume::restored::may_adopt;
use flex_core::volume::undeletable::{provenance, recipe_of};

use super::confirmed::Confirmed;
use super::delete::unwanted_job;
use super::others::{Deletions, LeftByOther, NextDeletion};
use super::runs::RunBasis;
use super::{expand, modify};
use crate::reconcile::context::{Context, RunObjects};
use crate::state::index::Index;

/// The data that were read about a volume. This type owns the data; [`Observed`] has the same as references, for the
/// pure decision.
pub(super) struct Observation {
    /// The claim of the volume.
    pub claim_state: ClaimState,
    /// The claim for which the volume is reserved by name, if it was bound to the volume before.
    pub claim_bound_before: Option<Arc<Claim>>,
    /// The Jobs of the volume's id.
    pub jobs: Vec<Arc<Job>>,
    /// The recipe in the volume's provenance, with the program of its class; or the reason why it cannot be read.
    pub recipe: Result<Arc<Recipe>, String>,
    /// The node where the volume was made; `None` if runs of the class may be on any node.
    pub origin_node: Option<String>,
    /// The data about the size of the volume.
    pub expand: expand::Observation,
    /// The data about the attributes of the volume.
    pub modify: modify::Observation,
    has_running_provision_pods: bool,
    /// The nodes of all pods that may still be running, whatever their run.
    nodes_with_pods: Vec<String>,
    /// The states of the nodes that the volume and its pods depend on.
    node_states: NodeStates,
    /// The node to which the node affinity leads, if it excludes the node of the record.
    other_node: Option<String>,
    /// The class's present treatment of nodes that are gone.
    node_gone_policy: NodeGone,
    /// What is deleted next of attempts with other configs, after the volume's own storage.
    pub left_by_other: Option<LeftByOther>,
    /// The state of the delete run for that, or else on the next node.
    delete_run_state: RunState,
    /// The name of the Job of that delete run.
    delete_job_name: String,
    /// The Job of a delete run that has not ended, where an admin or a claim keeps what the run deletes.
    unwanted_job: Option<Arc<Job>>,
}

/// Observes a volume.
pub(super) fn observe(context: &Context, volume: &Volume, confirmed: &Confirmed) -> Observation {
    let id = volume.volume_id().unwrap_or_default();
    let (jobs, pods) = {
        let index = context.cluster.index();
        (index.jobs_of(id), index.pods_of(id))
    };
    let claim_state = {
        let index = context.cluster.index();
        // The API has no claim, but its record says that what it left is not undone.
        let known = confirmed.pinned_claim_state.or(confirmed.claim_state).filter(|_| !has_stand_in(&index, volume));
        match known.unwrap_or_else(|| claim_state(&index, volume)) {
            ClaimState::NotFound | ClaimState::BoundToOtherVolume if has_maker(&index, volume) => ClaimState::Alive,
            state => state,
        }
    };
    let provenance = provenance(volume);
    let class_recipe = context.class_recipe(&volume.class);
    let recipe = recipe_of(&provenance, class_recipe.as_deref());
    let origin_node = provenance.ok().and_then(|provenance| provenance.origin_node);
    let nodes_with_pods = nodes_with_pods(&pods);
    let is_unneeded = matches!(claim_state, ClaimState::NotFound | ClaimState::BoundToOtherVolume);
    // Somebody may keep what the volume, or its claim, stands for.
    let ends = is_unneeded && volume.reclaim_policy == ReclaimPolicy::Delete && !volume.abandoned;
    let others = if ends { volume.others() } else { Vec::new() };
    let nodes = volume.nodes_with_storage.iter().chain(&nodes_with_pods).chain(&origin_node);
    let nodes = nodes.chain(others.iter().flat_map(|other| &other.nodes));
    let mut node_states = context.cluster.index().node_states(nodes);
    node_states.0.extend(confirmed.nodes.0.clone());
    let deletes = is_unneeded || volume.nodes_with_storage.len() > 1;
    let other_node = origin_node.as_deref().filter(|_| deletes && volume.is_adopted()).and_then(|origin| {
        let index = context.cluster.index();
        leads_elsewhere(volume, index.node(origin).as_deref(), index.nodes().map(Arc::as_ref)).map(str::to_owned)
    });
    // The present class decides; if it is gone, the recipe does.
    let node_gone_policy =
        class_recipe.as_ref().or(recipe.as_ref().ok()).map(|recipe| recipe.node_gone).unwrap_or_default();
    let objects = RunObjects { jobs: &jobs, pods: &pods };
    let node = next_node(volume, claim_state, origin_node.as_deref(), &node_states);
    let is_last = nodes_to_clean(volume, claim_state, origin_node.as_deref()).len() < 2;
    let (own, gone) = (recipe.as_deref().ok(), node_gone_policy);
    let deletions = Deletions { context, volume, own, others: &others, objects, states: &node_states, gone };
    let NextDeletion { left, job_name: delete_job_name, state: delete_run_state } =
        deletions.observe(node.as_deref(), is_last);
    let (left_by_other, recipe) = match left {
        Ok(left) => (left, recipe),
        Err(why) => (None, Err(why)),
    };
    let basis = RunBasis { recipe: &recipe, origin_node: origin_node.as_deref() };
    let expand = expand::observe(context, volume, basis, objects, &confirmed.expand);
    let claim_of_expand = expand.claim.clone();
    Observation {
        claim_state,
        claim_bound_before: claim_bound_before(context, volume),
        has_running_provision_pods: has_running_pods(&pods, Operation::Provision)
            || is_pod_unseen(&jobs, &pods)
            || context.cluster.index().has_expectation(&job::prefix(Operation::Provision, id)),
        node_gone_policy,
        left_by_other,
        delete_run_state,
        modify: modify::observe(context, volume, claim_of_expand, basis, objects, &confirmed.modify),
        expand,
        unwanted_job: unwanted_job(volume, claim_state, origin_node.as_deref(), &jobs),
        jobs,
        recipe,
        origin_node,
        nodes_with_pods,
        node_states,
        other_node,
        delete_job_name,
    }
}

impl Observation {
    /// Returns the time since the last delete run began. Without its Job, returns the time since the volume was released.
    pub(super) fn time_since_delete_run(&self, context: &Context, volume: &Volume) -> Duration {
        let job = self.jobs.iter().find(|job| job.name.name == self.delete_job_name);
        let began = job.map(|job| job.created).or(volume.unneeded_since);
        let now = context.clock.wall().as_millisecond();
        let passed = began.map_or(0, |began| now.saturating_sub(began.saturating_mul(1000)));
        Duration::from_millis(u64::try_from(passed).unwrap_or(0))
    }

    /// Returns the observation for the decision.
    pub(super) fn observed<'a>(
        &'a self,
        volume: &'a Volume,
        expand_runs: &'a [InPlaceRun<'a>],
        modify_runs: &'a [InPlaceRun<'a>],
    ) -> Observed<'a> {
        Observed {
            volume,
            claim_state: self.claim_state,
            claim_was_bound: self.claim_bound_before.is_some(),
            recipe: self.recipe.as_deref().map_err(String::clone),
            has_running_provision_pods: self.has_running_provision_pods,
            nodes_with_pods: &self.nodes_with_pods,
            node_states: &self.node_states,
            other_node: self.other_node.as_deref(),
            origin_node: self.origin_node.as_deref(),
            node_gone_policy: self.node_gone_policy,
            left_by_other: self.left_by_other.as_ref().map(LeftByOther::observed),
            delete_run_state: self.delete_run_state.clone(),
            delete_job: self.jobs.iter().map(Arc::as_ref).find(|job| job.name.name == self.delete_job_name),
            unwanted_job: self.unwanted_job.as_deref(),
            expand: self.expand.observed(self.expand.runs.observed(expand_runs, &self.node_states)),
            modify: self.modify.observed(self.modify.runs.observed(modify_runs, &self.node_states)),
        }
    }
}

fn is_provision(job: &&Arc<Job>) -> bool {
    job.run_labels.operation == Operation::Provision
}

/// Checks whether a volume that does not name the orchestrator was made for a claim that the orchestrator holds. A script may
/// write only the claim's UID, or nothing but the name.
pub(super) fn is_ours_by_its_claim(context: &Context, volume: &Volume) -> bool {
    let anonymous = volume.instance.is_none() && volume.provisioned_by.is_none();
    let index = context.cluster.index();
    let uid = volume.claim_uid.as_deref().or_else(|| volume.name.strip_prefix(names::PV_PREFIX));
    let claim = uid.filter(|_| anonymous).and_then(|uid| index.claim_by_id(uid));
    claim.is_some_and(|claim| claim.is_held() && !claim.belongs_to_other_instance(&context.identity.instance))
}

/// Returns the claim for which a volume is reserved by name, if both were bound before. Then the claim names the volume
/// and has the annotation `bind-completed`. Its phase is Lost until the volume has its UID. A restored volume without a
/// claimRef counts as reserved for its former claim.
fn claim_bound_before(context: &Context, volume: &Volume) -> Option<Arc<Claim>> {
    let reserved = match &volume.claim_ref {
        Some(reference) => reference.uid.is_none().then(|| reference.name.clone())?,
        None => volume.former_claim.clone().filter(|_| volume.is_restored())?,
    };
    let claim = context.cluster.index().claim(&reserved)?;
    let names_it = claim.volume_name.as_deref() == Some(&volume.name) && claim.bind_completed;
    (names_it && !claim.terminating && claim.class.as_deref() == Some(&volume.class)).then_some(claim)
}

/// Checks whether a provision run has not ended and its pod is not visible. The watch of pods may lag behind that of
/// Jobs.
fn is_pod_unseen(jobs: &[Arc<Job>], pods: &[Arc<Pod>]) -> bool {
    let begun = jobs.iter().filter(|job| is_provision(job) && !job.is_over);
    begun.into_iter().any(|job| !pods.iter().any(|pod| pod.job_uid == job.uid))
}

/// Checks whether a stand-in for a claim that is gone may adopt the volume.
fn has_stand_in(index: &Index, volume: &Volume) -> bool {
    let claim = volume.claim_ref_uid().or(volume.claim_uid.as_deref()).or(volume.volume_id());
    claim.and_then(|id| index.claim_by_id(id)).is_some_and(|claim| claim.is_stand_in())
}

/// Checks whether the stand-in for the claim for which a volume was made decides what becomes of the volume: another claim had it, and
/// nobody has adopted it.
fn has_maker(index: &Index, volume: &Volume) -> bool {
    let uid = volume.name.strip_prefix(names::PV_PREFIX).filter(|_| !volume.is_adopted());
    uid.and_then(|uid| index.claim_by_id(uid)).is_some_and(|maker| maker.is_stand_in())
}

/// Returns the state of a volume's claim, by the cache.
fn claim_state(index: &Index, volume: &Volume) -> ClaimState {
    if volume.pool_hash().is_some() {
        return ClaimState::Awaited;
    }
    // Somebody has removed the claimRef.
    if volume.claim_ref_was_removed() {
        return ClaimState::NoReference;
    }
    let Some(uid) = volume.claim_ref_uid().or(volume.claim_uid.as_deref()) else {
        // The request for a pooled volume is held until the volume has its mark.
        let request = volume.volume_id().filter(|_| volume.was_pooled()).and_then(|id| index.claim_by_id(id));
        return request.filter(|request| may_adopt(request)).map_or(ClaimState::NoReference, |_| ClaimState::Alive);
    };
    match index.claim_by_id(uid) {
        Some(claim) if claim.has_other_volume(&volume.name) => ClaimState::BoundToOtherVolume,
        Some(_) => ClaimState::Alive,
        // The phase `Released` proves nothing: it stays for a moment when the volume is bound to another claim. The record of a
        // former leader may name the claim of a volume that was never adopted.
        None if index.is_claim_gone(volume) && (volume.is_adopted() || index.are_records_confirmed()) => {
            ClaimState::NotFound
        }
        None => ClaimState::NotCached,
    }
}

#[cfg(test)]
mod tests {
    use flex_contract::names;
    use flex_core::model::volume::Reference;
    use flex_core::object::ObjectName;
    use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim};
    use serde_json::json;

    use super::*;
    use crate::clock::Clock;
    use crate::reconcile::delete_run::tests::context;
    use crate::state::index::WatchChange;
    use crate::state::testing::{self, default_identity};

    fn volume(phase: &str, uid: &str) -> Volume {
        versioned(phase, uid, "1")
    }

    fn versioned(phase: &str, uid: &str, version: &str) -> Volume {
        let reference = json!({ "namespace": "team", "name": "data", "uid": uid });
        let object = json!({
            "metadata": {
                "name": "pvc-a", "uid": "v", "resourceVersion": version,
                "annotations": { "flex-provisioner.io/claim-uuid": "a" },
            },
            "spec": { "claimRef": reference }, "status": { "phase": phase },
        });
        Volume::from(&serde_json::from_value::<PersistentVolume>(object).unwrap())
    }

    /// Else nobody asks whether another claim that has taken it is gone, and the stand-in for its own claim waits for that for ever.
    #[tokio::test]
    async fn a_plain_volume_is_known_by_the_name_that_its_claim_gives() {
        let (context, _) = context(String::new());
        let claim = Claim { held: true, ..testing::claim("team", "a", true) };
        let plain = Volume { name: names::pv_name(&claim.uid), claim_uid: None, ..volume("Bound", "b") };
        assert!(!is_ours_by_its_claim(&context, &plain));
        context.cluster.update(|index| index.change_claim(WatchChange::Apply(claim)));
        assert!(is_ours_by_its_claim(&context, &plain));
        assert!(!is_ours_by_its_claim(&context, &Volume { provisioned_by: Some("another".into()), ..plain }));
    }

    /// The record is written first, and the mark later. Without the request, the volume comes from a backup.
    #[test]
    fn a_pooled_volume_without_its_mark_is_in_use_while_its_request_is_held() {
        let mut index = Index::new(default_identity(), Clock::default());
        let object = json!({
            "metadata": {
                "name": "pvc-a", "uid": "v", "resourceVersion": "1",
                "annotations": { names::VOLUME_ID: "a", names::POOL_SIZE: "1", names::PROVENANCE: "{}" },
            },
            "spec": { "claimRef": { "namespace": "own", "name": "a" } },
        });
        let pooled = Volume::from(&serde_json::from_value::<PersistentVolume>(object).unwrap());
        assert_eq!(claim_state(&index, &pooled), ClaimState::NoReference, "no request has its id");
        let request = |uid: &str, phase: &str, held: &str| {
            let object = json!({
                "metadata": {
                    "name": "pool-1", "namespace": "own", "uid": uid,
                    "annotations": { names::BIND_COMPLETED: "yes", names::HELD: held },
                },
                "spec": { "volumeName": "pvc-other" }, "status": { "phase": phase },
            });
            Claim::from(&serde_json::from_value::<PersistentVolumeClaim>(object).unwrap())
        };
        index.change_claim(WatchChange::Apply(request("b", "Pending", "b")));
        assert_eq!(claim_state(&index, &pooled), ClaimState::NoReference);
        index.change_claim(WatchChange::Apply(request("a", "Pending", "a")));
        assert_eq!(claim_state(&index, &pooled), ClaimState::Alive);
        index.change_claim(WatchChange::Apply(request("a", "Bound", "")));
        assert_eq!(claim_state(&index, &pooled), ClaimState::NoReference, "nobody adopts it any more");
    }

    /// An admin may give a released volume to another claim. The PV controller writes that claim into the volume first,
    /// and the phase later. The watch of claims may be slower than both.
    #[test]
    fn a_released_volume_may_belong_to_a_claim_that_no_watch_has_shown() {
        let mut index = Index::new(default_identity(), Clock::default());
        let of = |uid: &str| Reference { name: ObjectName::new("team", "data"), uid: Some(uid.to_owned()) };
        index.note_records_confirmed();
        index.change_volume(WatchChange::Apply(volume("Released", "old")));
        assert_eq!(claim_state(&index, &volume("Released", "old")), ClaimState::NotCached, "nobody has asked the API");
        index.note_claim_gone("pvc-a", &of("old"));
        assert_eq!(claim_state(&index, &volume("Released", "old")), ClaimState::NotFound);
        index.change_volume(WatchChange::Apply(volume("Released", "new")));
        assert_eq!(
            claim_state(&index, &volume("Released", "new")),
            ClaimState::NotCached,
            "the phase is of the old claim"
        );
    }

    /// Its stand-in adopts the volume.
    #[test]
    fn the_record_of_a_former_leader_may_name_the_claim_of_a_volume_that_was_never_adopted() {
        let mut index = Index::new(default_identity(), Clock::default());
        let released = volume("Released", "a");
        index.change_volume(WatchChange::Apply(released.clone()));
        index.note_claim_gone("pvc-a", released.claim_ref.as_ref().unwrap());
        assert_eq!(claim_state(&index, &released), ClaimState::NotCached, "nobody has listed the records");
        index.note_records_confirmed();
        assert_eq!(claim_state(&index, &released), ClaimState::NotFound);
    }

    /// Another claim has had the volume, and is gone.
    #[test]
    fn the_stand_in_for_the_claim_for_which_a_volume_was_made_decides_what_becomes_of_it() {
        let maker = testing::claim("team", "a", true);
        let stand_in = maker.clone().stand_in(testing::record(&maker).reference(), "1");
        let taken = Volume { name: names::pv_name(&maker.uid), ..volume("Released", "b") };
        for (maker, expected) in [(maker, false), (stand_in, true)] {
            let mut index = Index::new(default_identity(), Clock::default());
            index.change_claim(WatchChange::Apply(maker));
            assert_eq!(has_maker(&index, &taken), expected);
            assert!(!has_maker(&index, &volume("Released", "b")), "it was made for another claim");
        }
    }

    /// An admin restores etcd while this process goes on. The claim is back with its UID, and the watch of volumes may be
    /// faster than that of claims.
    #[test]
    fn a_claim_that_was_gone_may_be_back_when_its_volume_is_in_use_again() {
        let of = |uid: &str| Reference { name: ObjectName::new("team", "data"), uid: Some(uid.to_owned()) };
        let known = || {
            let mut index = Index::new(default_identity(), Clock::default());
            index.change_volume(WatchChange::Apply(versioned("Bound", "a", "7")));
            index.note_claim_gone("pvc-a", &of("a"));
            index.note_records_confirmed();
            index
        };
        let mut index = known();
        let (bound, released) = (versioned("Bound", "a", "7"), versioned("Released", "a", "9"));
        assert_eq!(claim_state(&index, &bound), ClaimState::NotFound, "its claim was just deleted");
        assert_eq!(claim_state(&index, &released), ClaimState::NotFound);
        let deleted = Volume { terminating: true, ..versioned("Bound", "a", "8") };
        assert_eq!(claim_state(&index, &deleted), ClaimState::NotCached, "its claim may use it");
        assert_eq!(claim_state(&index, &versioned("Bound", "a", "3")), ClaimState::NotCached, "an older state is back");
        assert_eq!(claim_state(&index, &versioned("Pending", "a", "9")), ClaimState::NotCached);
        index.change_volume(WatchChange::Apply(released.clone()));
        index.change_volume(WatchChange::Apply(bound.clone()));
        assert_eq!(claim_state(&index, &bound), ClaimState::NotCached, "the same state is back");
        assert_eq!(claim_state(&index, &released), ClaimState::NotCached);
        let mut index = known();
        index.begin_term();
        assert_eq!(claim_state(&index, &bound), ClaimState::NotCached, "an earlier term may be long ago");
        let mut index = known();
        index.change_volume(WatchChange::Apply(Volume { uid: "another".into(), ..bound }));
        assert_eq!(claim_state(&index, &versioned("Released", "a", "8")), ClaimState::NotCached, "another volume");
    }
}
