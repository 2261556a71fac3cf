//! Tests of the rules.

use super::*;
use crate::config::effective_config::EffectiveConfig;
use crate::model::claim::Claim;
use crate::model::volume::Reference;
use crate::object::ObjectName;
use crate::run::rule::Rule as RunRule;
use crate::run::state::Cause;
use crate::run::view::Job;
use crate::volume::in_place_run::{InPlaceRun, InPlaceRuns};
use flex_contract::exit::Reaction;
use flex_contract::names;

const NOW: i64 = 1_000_000;
const DELETED: Step = Step::DeleteVolume { storage: StorageOutcome::Deleted };
const ABANDONED: Step = Step::DeleteVolume { storage: StorageOutcome::LeftBehind };
const ID: &str = "0d9c2f0e-0000-4000-8000-000000000001";

fn recipe() -> Recipe {
    EffectiveConfig { data: [("image".to_owned(), "x".to_owned())].into(), ..EffectiveConfig::default() }
        .recipe()
        .unwrap()
}

/// Returns an adopted volume with this policy.
fn volume(policy: &str) -> Volume {
    let mut text = format!("metadata: {{name: pvc-{ID}, uid: pv, annotations: {{");
    for (key, value) in [(names::CLAIM_UID, ID), (names::VOLUME_ID, ID), (names::PROVENANCE, "x")] {
        text.push_str(&format!("'{key}': {value}, "));
    }
    text.push_str(&format!("}}, finalizers: ['{}']}}\n", names::VOLUME_FINALIZER));
    text.push_str(&format!("spec: {{persistentVolumeReclaimPolicy: {policy}}}\n"));
    text.push_str(&format!("status: {{reason: {}}}\n", crate::model::volume::adoption_mark("x", "pv")));
    Volume::from(&crate::config::values::yaml::<k8s_openapi::api::core::v1::PersistentVolume>(&text).unwrap())
}

fn unheld(policy: &str) -> Volume {
    Volume { finalizers: vec!["kubernetes.io/pv-protection".into()], ..volume(policy) }
}

#[derive(Clone, Debug)]
struct World {
    volume: Volume,
    claim: ClaimState,
    claim_was_bound: bool,
    recipe: Result<Recipe, String>,
    has_running_provision_pods: bool,
    nodes_with_pods: Vec<String>,
    /// The states of all nodes that are not ready.
    node_states: NodeStates,
    origin_node: Option<&'static str>,
    other_node: Option<&'static str>,
    node_gone: NodeGone,
    /// The recipe of another attempt, and the node where it may have left something.
    left_by_other: Option<(Recipe, Option<&'static str>)>,
    delete_run_state: RunState,
    delete_job: Option<Job>,
    unwanted_job: Option<Job>,
    /// The claim, for the decision about the size.
    size_claim: Option<Claim>,
    /// The Job of an expand run in progress.
    expanding: Option<Job>,
    /// The Job of a modify run in progress.
    modifying: Option<Job>,
}

/// Returns runs, each with a pod.
fn runs_of<'a>(all: &'a [InPlaceRun<'a>], has_other_running_pods: bool) -> InPlaceRuns<'a> {
    InPlaceRuns {
        all,
        is_starting: false,
        has_running_pods: !all.is_empty(),
        node_not_reachable: None,
        has_other_running_pods,
    }
}

impl World {
    fn decide(&self, now: i64) -> Decision {
        let recipe = self.recipe.as_ref().map_err(String::clone);
        let nodes = self.volume.nodes_with_storage.iter().cloned().chain(self.origin_node.map(str::to_owned));
        let nodes = nodes.chain(self.left_by_other.iter().filter_map(|(_, node)| node.map(str::to_owned)));
        let mut node_states = NodeStates(nodes.map(|node| (node, NodeState::Reachable)).collect());
        node_states.0.extend(self.node_states.0.clone());
        let working = |all| runs_of(all, self.has_running_provision_pods);
        let runs: Vec<_> = self.expanding.iter().map(|job| InPlaceRun { job, state: RunState::MayBeRunning }).collect();
        let expand = expand::Observed {
            quota_refusal: None,
            claim: self.size_claim.as_ref(),
            recipe: recipe.clone(),
            runs: working(&runs),
        };
        let runs: Vec<_> = self.modifying.iter().map(|job| InPlaceRun { job, state: RunState::MayBeRunning }).collect();
        let modify = modify::Observed {
            claim: None,
            recipe: recipe.clone(),
            requested_attributes: Err(String::new()),
            runs: working(&runs),
        };
        let o = Observed {
            volume: &self.volume,
            claim_state: self.claim,
            claim_was_bound: self.claim_was_bound,
            recipe,
            has_running_provision_pods: self.has_running_provision_pods,
            nodes_with_pods: &self.nodes_with_pods,
            node_states: &node_states,
            other_node: self.other_node,
            origin_node: self.origin_node,
            node_gone_policy: self.node_gone,
            left_by_other: self.left_by_other.as_ref().map(|(recipe, node)| LeftByOther { recipe, node: *node }),
            delete_run_state: self.delete_run_state.clone(),
            delete_job: self.delete_job.as_ref(),
            unwanted_job: self.unwanted_job.as_ref(),
            expand,
            modify,
        };
        decide(&o, now)
    }

    /// Returns the step, which is that of a rule.
    #[track_caller]
    fn step(&self, rule: Rule) -> Step {
        let decision = self.decide(NOW);
        assert_eq!(decision.rule, rule, "{decision:?}");
        decision.step
    }

    #[track_caller]
    fn rests(&self, rule: Rule) {
        assert_eq!(self.decide(NOW), rule.nothing());
    }

    #[track_caller]
    fn waits(&self, rule: Rule, says: &str) {
        let decision = self.decide(NOW);
        let said = decision.event.as_ref().map(|event| event.message.as_str()).unwrap_or_default();
        let waits = decision.rule == rule && decision.step == Step::Nothing;
        assert!(waits && said.contains(says), "{decision:?}");
    }
}

fn world(volume: Volume, claim: ClaimState) -> World {
    World {
        volume,
        claim,
        claim_was_bound: false,
        recipe: Ok(recipe()),
        has_running_provision_pods: false,
        nodes_with_pods: vec![],
        node_states: NodeStates::default(),
        origin_node: None,
        other_node: None,
        node_gone: NodeGone::Hold,
        left_by_other: None,
        delete_run_state: RunState::NotCached,
        delete_job: None,
        unwanted_job: None,
        size_claim: None,
        expanding: None,
        modifying: None,
    }
}

/// Returns a volume whose claim is gone.
fn released() -> World {
    world(volume("Delete"), ClaimState::NotFound)
}

fn failure(operation: Operation, attempt: u32, at: i64) -> LastFailure {
    let cause = Cause::new("R", "m");
    LastFailure::of_deleting_run(operation, attempt, at, &cause, None)
}

fn failed(at: i64, pods_ended: bool) -> RunState {
    RunState::Failed { cause: Cause::new("ExitCode", "disk on fire"), reaction: Reaction::Never, at, pods_ended }
}

#[test]
fn a_volume_without_a_claim_is_left_alone() {
    world(volume("Delete"), ClaimState::NoReference).rests(Rule::NoClaim);
}

#[test]
fn a_terminating_volume_without_a_claim_is_reported_and_can_be_abandoned() {
    let deleted = |policy| Volume { terminating: true, ..volume(policy) };
    world(deleted("Delete"), ClaimState::NoReference).waits(Rule::ClaimRefRemovedHold, "no claim has released it");
    let abandoned = Volume { abandoned: true, ..deleted("Delete") };
    let half_adopted = Volume { adoption_mark: None, ..abandoned.clone() };
    for volume in [deleted("Retain"), abandoned, half_adopted] {
        assert_eq!(world(volume, ClaimState::NoReference).step(Rule::ClaimRefRemovedRetained), Step::RemoveFinalizer);
    }
}

#[test]
fn a_retained_volume_loses_its_finalizer() {
    for policy in ["Retain", "Recycle"] {
        assert_eq!(world(volume(policy), ClaimState::Alive).step(Rule::UnneededFinalizer), Step::RemoveFinalizer);
        world(unheld(policy), ClaimState::Alive).rests(Rule::InUse);
    }
}

#[test]
fn a_terminating_volume_stays_as_long_as_its_claim() {
    let terminating = Volume { terminating: true, ..volume("Retain") };
    world(terminating.clone(), ClaimState::Alive).rests(Rule::InUse);
    assert_eq!(world(terminating, ClaimState::NotFound).step(Rule::RetainedWithFinalizer), Step::RemoveFinalizer);
}

#[test]
fn a_bound_volume_with_policy_delete_gets_the_finalizer() {
    let unheld = unheld("Delete");
    assert_eq!(world(unheld.clone(), ClaimState::Alive).step(Rule::ProtectVolume), Step::AddFinalizer);
    world(Volume { provenance: None, ..unheld.clone() }, ClaimState::Alive).rests(Rule::InUse);
    world(Volume { adoption_mark: None, ..unheld.clone() }, ClaimState::Alive).rests(Rule::InUse);
    let late = Volume { terminating: true, ..unheld };
    world(late, ClaimState::Alive).waits(Rule::DeletePolicyTooLate, "before its reclaim policy was set to Delete");
}

fn reference(uid: &str, name: &str) -> crate::model::volume::Reference {
    let uid = Some(uid.to_owned()).filter(|uid| !uid.is_empty());
    crate::model::volume::Reference { name: ObjectName::new("team", name), uid }
}

/// Returns a volume as a backup tool restores it: without status and UIDs.
fn restored(policy: &str, reserved: Option<&str>) -> Volume {
    let claim_ref = reserved.map(|name| reference("", name));
    Volume { adoption_mark: None, phase: "Available".into(), claim_ref, ..volume(policy) }
}

#[test]
fn a_restored_volume_is_not_deleted_before_an_admin_vouches_for_it() {
    for claim in [ClaimState::NoReference, ClaimState::NotCached, ClaimState::NotFound, ClaimState::BoundToOtherVolume]
    {
        for policy in ["Delete", "Retain"] {
            let world = world(restored(policy, Some("data")), claim);
            world.waits(Rule::RestoredUnvouched, &format!("flex-provisioner vouch pvc-{ID}"));
        }
    }
    let bound =
        Volume { claim_ref: Some(reference("new-uid", "data")), phase: "Released".into(), ..restored("Delete", None) };
    world(bound, ClaimState::NotFound).waits(Rule::RestoredUnvouched, "neither deletes nor changes");
}

#[test]
fn a_restored_volume_is_reserved_for_its_former_claim() {
    let free = restored("Delete", None);
    assert_eq!(world(free.clone(), ClaimState::NotCached).step(Rule::ReserveRestored), Step::Reserve);
    assert_eq!(free.reservation("own"), ObjectName::new("own", ID), "nobody else gets it");
    let known = Volume { former_claim: Some(ObjectName::new("team", "data")), ..free.clone() };
    assert_eq!(known.reservation("own"), ObjectName::new("team", "data"));
    world(Volume { terminating: true, ..free }, ClaimState::NoReference).waits(Rule::RestoredUnvouched, "vouch");
}

#[test]
fn a_restored_volume_gets_the_uid_of_its_claim() {
    for claim in [ClaimState::NoReference, ClaimState::Alive, ClaimState::NotCached] {
        let bound = World { claim_was_bound: true, ..world(restored("Delete", Some("data")), claim) };
        assert_eq!(bound.decide(NOW), Rule::ReserveForBoundClaim.step(Step::Reserve));
    }
    let deleted = Volume { terminating: true, ..restored("Delete", Some("data")) };
    let deleted = World { claim_was_bound: true, ..world(deleted, ClaimState::NotCached) };
    deleted.waits(Rule::RestoredUnvouched, "vouch");
}

#[test]
fn a_restored_volume_is_not_expanded() {
    let claim = serde_json::json!({
        "metadata": { "namespace": "team", "name": "data", "annotations": { names::BIND_COMPLETED: "yes" } },
        "spec": { "volumeName": names::pv_name(ID), "resources": { "requests": { "storage": "2Gi" } } },
        "status": { "phase": "Bound" },
    });
    let claim: k8s_openapi::api::core::v1::PersistentVolumeClaim = serde_json::from_value(claim).unwrap();
    let volume = Volume { size: Ok(1 << 30), ..restored("Delete", Some("data")) };
    let world = World { size_claim: Some(Claim::from(&claim)), ..world(volume, ClaimState::Alive) };
    let decision = world.decide(NOW);
    assert_eq!((decision.rule, decision.step), (Rule::RestoredNotExpanded, Step::Expand(expand::Step::Nothing)));
    assert!(decision.event.is_some_and(|event| event.message.contains("an admin must first confirm its record")));
}

#[test]
fn a_restored_volume_can_be_retained_or_abandoned() {
    let deleted = Volume { terminating: true, ..restored("Retain", Some("data")) };
    assert_eq!(world(deleted, ClaimState::NotCached).step(Rule::RestoredTerminating), Step::RemoveFinalizer);
    let abandoned = Volume { abandoned: true, ..restored("Delete", Some("data")) };
    assert_eq!(world(abandoned, ClaimState::NotFound).step(Rule::Abandoned), ABANDONED);
}

#[test]
fn a_half_adopted_volume_belongs_to_its_claim() {
    let half = Volume { adoption_mark: None, claim_ref: Some(reference(ID, "data")), ..volume("Delete") };
    world(half.clone(), ClaimState::Alive).rests(Rule::InUse);
    assert_eq!(world(half, ClaimState::NotCached).step(Rule::ConfirmClaimGone), Step::ConfirmClaimGone);
}

/// The pod of a run that a backup tool restores may find storage that somebody keeps. Neither the placeholder of a run nor the
/// word of the PV controller tells it from a run of this cluster.
#[test]
fn the_storage_of_a_volume_that_was_never_adopted_stays() {
    for claim in [ClaimState::NotFound, ClaimState::BoundToOtherVolume] {
        let unadopted = |policy: &str| Volume { provenance: None, adoption_mark: None, ..volume(policy) };
        let placeholder = Volume { claim_ref: Some(reference("", ID)), ..unadopted("Delete") };
        let released =
            Volume { claim_ref: Some(reference("u", "data")), phase: "Released".into(), ..unadopted("Delete") };
        for volume in [unadopted("Delete"), placeholder, released] {
            for delete_run_state in [RunState::NotCached, RunState::MayBeRunning, RunState::Succeeded] {
                let world = World { delete_run_state, ..world(volume.clone(), claim) };
                world.waits(
                    Rule::OriginUnknown,
                    "make sure that nobody uses the storage, by another volume or in another cluster",
                );
            }
            let abandoned = Volume { abandoned: true, ..volume };
            assert_eq!(world(abandoned, claim).step(Rule::Abandoned), ABANDONED, "an admin has decided");
        }
        assert_eq!(world(unadopted("Retain"), claim).step(Rule::RetainedWithFinalizer), Step::RemoveFinalizer);
    }
}

#[test]
fn a_volume_in_use_is_left_to_its_claim() {
    for volume in [volume("Delete"), Volume { terminating: true, abandoned: true, ..volume("Delete") }] {
        World { delete_run_state: RunState::Succeeded, ..world(volume, ClaimState::Alive) }.rests(Rule::InUse);
    }
}

#[test]
fn only_leftovers_of_a_pooled_volume_are_deleted() {
    for volume in [volume("Delete"), Volume { terminating: true, ..volume("Delete") }, volume("Retain")] {
        World { delete_run_state: RunState::Succeeded, ..world(volume, ClaimState::Awaited) }.rests(Rule::Pooled);
    }
    let ready = wandered(ClaimState::Awaited);
    let step = ready.step(run(RunRule::RunDue));
    assert_eq!(step, wandered(ClaimState::Alive).step(run(RunRule::RunDue)));
    assert!(matches!(step, Step::StartDelete { node, .. } if node.as_deref() != ready.origin_node));
}

#[test]
fn a_quorum_read_confirms_that_the_claim_is_gone() {
    for volume in [volume("Delete"), volume("Retain"), unheld("Delete")] {
        assert_eq!(world(volume, ClaimState::NotCached).step(Rule::ConfirmClaimGone), Step::ConfirmClaimGone);
    }
}

#[test]
fn an_expand_run_is_stopped_before_a_deletion() {
    let of_size = |rule| Rule::Expand(expand::Rule::Run(Target::Size, rule));
    let of_attributes = |rule| Rule::Modify(modify::Rule::Run(Target::Attributes, rule));
    for (policy, claim) in
        [("Delete", ClaimState::NotFound), ("Retain", ClaimState::NotFound), ("Delete", ClaimState::BoundToOtherVolume)]
    {
        let name = crate::object::ObjectName::new("n", "expand-1");
        let terminating = Job { name: name.clone(), terminating: true, ..Job::default() };
        let goes_on = Job { name: name.clone(), ..Job::default() };
        let world =
            World { expanding: Some(goes_on), delete_run_state: RunState::Succeeded, ..world(volume(policy), claim) };
        assert_eq!(world.step(of_size(RunRule::RunNotWanted)), Step::Expand(expand::Step::RemoveJob { job: name }));
        let world = World { expanding: Some(terminating.clone()), ..world };
        assert_eq!(world.decide(NOW), of_size(RunRule::RunEnding).nothing().requeue_at(NOW + 5));
        let goes_on = Job { terminating: false, ..terminating.clone() };
        let world = World { expanding: None, modifying: Some(goes_on.clone()), ..world };
        assert_eq!(
            world.step(of_attributes(RunRule::RunNotWanted)),
            Step::Modify(modify::Step::RemoveJob { job: goes_on.name })
        );
        let world = World { modifying: Some(terminating), ..world };
        assert_eq!(world.decide(NOW), of_attributes(RunRule::RunEnding).nothing().requeue_at(NOW + 5));
    }
}

#[test]
fn a_retained_volume_stays_after_its_release() {
    for claim in [ClaimState::NotFound, ClaimState::BoundToOtherVolume] {
        assert_eq!(world(volume("Retain"), claim).step(Rule::RetainedWithFinalizer), Step::RemoveFinalizer);
        World { delete_run_state: RunState::Succeeded, ..world(unheld("Retain"), claim) }.rests(Rule::Retained);
        world(Volume { abandoned: true, ..unheld("Retain") }, claim).rests(Rule::Retained);
    }
}

#[test]
fn an_abandoned_volume_is_deleted_without_a_run() {
    let volume = Volume { abandoned: true, ..volume("Delete") };
    let world =
        World { recipe: Err("lost".into()), has_running_provision_pods: true, ..world(volume, ClaimState::NotFound) };
    let decision = world.decide(NOW);
    assert_eq!((decision.rule, decision.step), (Rule::Abandoned, ABANDONED));
    assert!(decision.event.unwrap().message.contains("does not delete its storage"));
}

#[test]
fn a_quarantined_volume_may_be_deleted_by_hand() {
    let refused = Volume { quarantine: Some("why".into()), adoption_mark: None, terminating: true, ..volume("Delete") };
    assert_eq!(world(refused.clone(), ClaimState::Alive).step(Rule::QuarantinedTerminating), Step::RemoveFinalizer);
    world(Volume { terminating: false, ..refused }, ClaimState::Alive).rests(Rule::InUse);
    // The claim may lose its finalizer at this moment, because an adopted volume is responsible for the storage.
    let adopted = Volume { quarantine: Some("why".into()), terminating: true, ..volume("Delete") };
    world(adopted, ClaimState::Alive).rests(Rule::InUse);
}

#[test]
fn a_quarantined_volume_is_let_go_between_the_halves_of_its_binding() {
    let reference = Reference { name: ObjectName::new("team", "data"), uid: Some(ID.into()) };
    let refused = Volume {
        quarantine: Some("why".into()),
        adoption_mark: None,
        terminating: true,
        unneeded_since: Some(NOW - BINDING_PATIENCE),
        claim_ref: Some(reference.clone()),
        ..unheld("Delete")
    };
    let claim = serde_json::json!({ "metadata": { "namespace": "team", "name": "data", "uid": ID } });
    let claim: k8s_openapi::api::core::v1::PersistentVolumeClaim = serde_json::from_value(claim).unwrap();
    let pending = Claim::from(&claim);
    let half = World { size_claim: Some(pending.clone()), ..world(refused.clone(), ClaimState::Alive) };
    assert_eq!(half.step(Rule::QuarantinedHalfBound), Step::RemoveClaimUid);
    // A bound claim would be lost without its volume.
    let bound = Claim { volume_name: Some(refused.name.clone()), ..pending };
    World { size_claim: Some(bound), ..half.clone() }.rests(Rule::InUse);
    let with = |volume: Volume| World { volume, ..half.clone() };
    // The PV controller may bind the claim at this moment.
    let young = with(Volume { unneeded_since: Some(NOW - 1), ..refused.clone() });
    assert_eq!(young.decide(NOW).requeue_at, Some(NOW - 1 + BINDING_PATIENCE));
    assert_eq!(young.step(Rule::QuarantinedHalfBound), Step::Nothing);
    let ending = Claim { terminating: true, ..half.size_claim.clone().unwrap() };
    World { size_claim: Some(ending), ..half.clone() }.rests(Rule::InUse);
    with(Volume { terminating: false, ..refused.clone() }).rests(Rule::InUse);
    with(Volume { quarantine: None, ..refused.clone() }).rests(Rule::InUse);
    with(Volume { claim_ref: Some(Reference { uid: None, ..reference }), ..refused }).rests(Rule::InUse);
}

/// Returns the rule about delete runs.
fn run(rule: RunRule) -> Rule {
    Rule::Run(Target::Storage, rule)
}

fn begin<'a>(attempt: u32, node: impl Into<Option<&'a str>>) -> Step {
    Step::StartDelete { attempt, node: node.into().map(str::to_owned), on_any_node: false }
}

fn names_of(nodes: &[&str]) -> Vec<String> {
    nodes.iter().map(|node| (*node).to_owned()).collect()
}

/// Returns a volume that was made on node `c`, after attempts on `a` and `b`.
fn wandered(claim: ClaimState) -> World {
    let volume = Volume { nodes_with_storage: names_of(&["a", "b", "c"]), ..volume("Delete") };
    World { origin_node: Some("c"), ..world(volume, claim) }
}

fn with_state(node: &str, state: NodeState, world: World) -> World {
    World { node_states: NodeStates([(node.to_owned(), state)].into()), ..world }
}

#[path = "decide_delete_tests.rs"]
mod delete;

#[path = "decide_properties.rs"]
mod properties;
