//! Properties that hold for each claim in each state, also in states that should never occur.

use flex_contract::policy::ReclaimPolicy;
use proptest::prelude::*;

use super::carry_out::policy;
use super::pooled::assigned;
use super::preconditions::Attempt;
use super::worlds::worlds;
use super::*;
use crate::claim::admit::admit;
use crate::claim::standing::obstacle;
use crate::config::Placement;
use crate::model::phase::VolumePhase;

impl World {
    fn volume(&self, name: &str) -> &(Volume, Vec<String>) {
        self.volumes.iter().find(|(volume, _)| volume.name == name).expect("a step names a volume that was observed")
    }

    /// Checks whether another claim has a volume that was made for this claim.
    fn is_taken(&self) -> bool {
        self.volumes.iter().any(|(volume, _)| volume.claim_ref_uid().is_some_and(|uid| uid != UID))
    }

    /// Checks whether another claim has let a volume go, whose storage nobody keeps.
    fn is_left_by_other(&self, volume: &Volume) -> bool {
        self.is_to_be_undone() && self.is_let_go && volume.reclaim_policy == ReclaimPolicy::Delete
    }

    /// Checks whether a process of a provision run may be running, by the observation.
    fn is_alive(&self) -> bool {
        let goes_on = matches!(self.run, RunState::MayBeRunning | RunState::Stuck { .. });
        self.has_running_pods || goes_on || self.jobs.iter().any(|job| !job.is_over)
    }

    /// Checks whether the volume is the claim's and is deleted as a volume, if it must be deleted.
    fn is_safe(&self, volume: &Volume) -> bool {
        volume.claim_ref_uid() == Some(UID)
            && volume.volume_id_annotation.as_deref() == Some(UID)
            && volume.provenance.as_deref().is_some_and(|text| serde_json::from_str::<Provenance>(text).is_ok())
            && (volume.has_finalizer() || volume.reclaim_policy != ReclaimPolicy::Delete)
    }

    fn is_bound_to(&self, name: &str) -> bool {
        self.claim.is_bound() && self.claim.volume_name.as_deref() == Some(name)
    }

    /// Checks whether the claim is terminating, or has another volume.
    fn is_to_be_undone(&self) -> bool {
        let name = self.claim.volume_name.as_ref();
        self.claim.terminating || name.is_some_and(|name| *name != names::pv_name(UID))
    }

    /// Returns the reason why no event is needed: somebody else acts next, and an event reports it.
    fn is_awaited(&self) -> Option<&'static str> {
        let claim = &self.claim;
        let delayed = self.class.binding == BindingMode::WaitForFirstConsumer;
        let used = !claim.finalizers.is_empty();
        let chosen = |volume: &Volume| !volume.terminating || claim.volume_name.is_some();
        let right = |(volume, mismatches): &(Volume, Vec<String>)| {
            mismatches.is_empty() && self.is_safe(volume) && volume.is_adopted() && chosen(volume)
        };
        if !self.is_to_be_undone() && self.volumes.iter().any(right) || self.observed(|o| assigned(o).is_some()) {
            return Some("the PV controller binds it");
        }
        if !claim.is_held() {
            let owes_nothing = self.foreign || claim.is_bound() || claim.terminating || claim.volume_name.is_some();
            return match () {
                () if owes_nothing => Some("nothing is owed"),
                () if self.is_alive() => Some("a process ends"),
                () if delayed && claim.selected_node.is_none() => Some("the scheduler selects a node"),
                () if !self.has_revision => Some("the revision is kept"),
                () => None,
            };
        }
        if claim.is_bound() && !claim.terminating {
            return Some("the volume's event comes, or the claim goes");
        }
        if self.is_to_be_undone() {
            return match (&self.delete_run, &self.delete_job) {
                _ if self.is_alive() || !self.jobs.is_empty() => Some("a process ends"),
                _ if used
                    && (claim.is_bound()
                        || self.volumes.iter().any(|(volume, _)| volume.phase == VolumePhase::Bound)) =>
                {
                    Some("a pod ends that uses it")
                }
                (RunState::MayBeRunning | RunState::Failed { pods_ended: false, .. }, _) => Some("the delete run ends"),
                (RunState::Succeeded | RunState::Stuck { .. }, Some(Job { terminating: true, .. })) => {
                    Some("the delete run's Job goes")
                }
                _ => None,
            };
        }
        match () {
            () if self.is_alive() => Some("a process ends"),
            () if delayed && claim.selected_node.is_none() => Some("the scheduler selects a node"),
            () if !self.has_revision => Some("the revision is kept"),
            () => None,
        }
    }
}

fn check(world: &World, decision: &Decision) {
    let claim = &world.claim;
    check_event(decision.event.as_ref());
    match &decision.step {
        Step::Nothing => check_wait(world, decision),
        Step::Stamp { attempt, nodes } => check_stamp(world, *attempt, nodes),
        Step::WaitForSlot { .. } => {
            assert!(!world.has_slot && decision.requeue_at.is_some_and(|at| at > NOW), "it waits without end");
        }
        Step::AssignPooledVolume { volume } => {
            assert_eq!(world.pooled_volume, Some(volume.as_str()));
            assert!(!world.foreign && !claim.terminating && !claim.is_bound() && claim.own_stamp().is_none());
            assert!(!world.observed(|o| assigned(o).is_some()), "it was given one");
        }
        Step::BackfillStamp { volume } => {
            assert!(world.is_bound_to(volume) && !claim.is_held() && !claim.terminating && claim.own_stamp().is_none());
        }
        Step::CompletePoolRequest => assert!(world.is_pool_request && !claim.terminating),
        Step::Refresh => assert!(!world.fresh),
        Step::Record => {
            assert!(world.fresh && claim.is_held() && claim.own_stamp().is_some() && !claim.abandoned);
            assert!(world.no_volume || !world.volumes.is_empty(), "somebody may have the volume");
        }
        Step::ProtectSource => check_protection(world),
        Step::UnprotectSource { copies } => {
            let done =
                |uid: &String| world.source_users.iter().any(|copy| copy.uid == *uid && copy.in_progress.is_none());
            assert!(!copies.is_empty() && copies.iter().all(done), "a copy is under way");
        }
        Step::StartRun => check_start(world),
        Step::Adopt { volume, provenance, nodes, mark } => {
            assert!(*mark || world.binding == Binding::Direct && !claim.is_bound() && !claim.terminating);
            check_adoption(world, volume, provenance, nodes);
        }
        Step::MarkAdopted { volume } => {
            let (volume, _) = world.volume(volume);
            assert!(world.lacks_mark && volume.is_adopted());
        }
        Step::Bind { volume } => check_binding(world, volume),
        Step::SetVolumeName { volume } => check_volume_name(world, volume),
        Step::Quarantine { volume, why } => {
            let (volume, mismatches) = world.volume(volume);
            assert!(!mismatches.is_empty() && volume.quarantine.as_ref() != Some(why));
        }
        Step::RecordFailure { failure } => check_failure(world, failure),
        Step::Reschedule { failure } => check_reschedule(world, failure.as_ref()),
        Step::ConfirmNoVolume => {
            assert!(!world.no_volume);
            let there = world.volumes.iter().any(|(volume, _)| volume.name == names::pv_name(UID));
            assert!(!there, "it would be found, and asked for again");
        }
        Step::ConfirmNoClassObject => {
            assert!(
                world.class_certainty == ClassCertainty::Unasked && !claim.terminating && claim.own_stamp().is_none()
            );
        }
        Step::ConfirmNode { node } => assert_eq!(world.node_states.state(node), NodeState::NotCached),
        Step::RemoveJob { job } => check_removed_job(world, job),
        Step::StartDelete { attempt, node, on_any_node } => check_delete(world, *attempt, node.as_ref(), *on_any_node),
        Step::MarkNodeClean { nodes_left } => check_clean(world, nodes_left),
        Step::EndHold => check_end(world),
        Step::Keep => {
            assert!(world.no_volume && claim.is_stand_in() && !claim.abandoned, "somebody must look at it");
        }
    }
}

fn check_event(event: Option<&NewEvent>) {
    let may_be_emitted = |event: &NewEvent| !event.message.is_empty() && event.reason.allows(event.warning);
    assert!(event.is_none_or(may_be_emitted), "no such event exists: {event:?}");
}

fn check_wait(world: &World, decision: &Decision) {
    let known = decision.event.is_some() || decision.requeue_at.is_some() || world.is_awaited().is_some();
    assert!(known, "a dead end: nothing happens, nothing is said, nobody comes back");
    assert!(decision.requeue_at.is_none_or(|at| at > NOW), "a wake-up in the past");
}

fn check_protection(world: &World) {
    let claim = &world.claim;
    assert!(claim.is_held() && claim.own_stamp().is_some(), "nothing says for whom it is kept");
    let source = world.data_source.as_ref().and_then(|source| source.claim.as_ref()).expect("it is there");
    assert!(!source.terminating, "the API takes no finalizer any more");
}

fn check_failure(world: &World, failure: &LastFailure) {
    let is_known = world.claim.last_failure.as_ref().is_some_and(|last| last.at == failure.at);
    assert!((NOW - 60..=NOW).contains(&failure.at) || is_known);
    assert_eq!(failure.operation == Operation::Delete, world.is_to_be_undone());
}

fn check_volume_name(world: &World, volume: &str) {
    let claim = &world.claim;
    let (volume, mismatches) = world.volume(volume);
    let assigned = world.observed(|o| assigned(o).is_some_and(|assigned| assigned.volume.name == volume.name));
    let kept = volume.has_finalizer() && world.is_safe(volume) || volume.phase == VolumePhase::Bound;
    assert!(assigned || mismatches.is_empty() && kept);
    assert!(!claim.terminating && claim.volume_name.is_none());
}

fn check_reschedule(world: &World, failure: Option<&LastFailure>) {
    let claim = &world.claim;
    let no_capacity = claim.last_failure.as_ref().is_some_and(|last| last.reaction == Reaction::NoCapacity);
    assert!(failure.is_none() || no_capacity && failure.is_some_and(|f| f.reaction == Reaction::Retry));
    assert!(claim.selected_node.is_some() && !world.is_to_be_undone());
    assert!(claim.own_stamp().is_none() || !world.is_alive(), "one attempt at a time");
}

fn check_removed_job(world: &World, job: &ObjectName) {
    let claim = &world.claim;
    let all = world.jobs.iter().chain(&world.delete_job);
    let job = { all }.find(|candidate| candidate.name == *job).expect("a Job that was observed");
    assert!(!job.terminating);
    assert!(job.is_over || claim.is_held() || !world.is_to_be_undone() && !claim.is_bound());
}

fn check_stamp(world: &World, attempt: u32, nodes: &[String]) {
    let claim = &world.claim;
    assert!(!world.foreign && !claim.terminating && !claim.is_bound() && world.has_revision && world.has_slot);
    let recipe = world.class.recipe.as_deref().expect("an attempt has a recipe");
    assert_eq!(admit(claim, recipe, world.is_pool_request), Ok(()), "an attempt begins for what cannot be served");
    let before = claim.own_stamp().map_or(0, |stamp| stamp.attempt);
    assert!(before > 0 || world.class_certainty == ClassCertainty::Certain, "the StorageClass may say something else");
    assert!(attempt > before || before == u32::MAX, "the number of an attempt never comes again");
    assert!(before == 0 || !world.is_alive() && !world.is_taken(), "one attempt at a time, and none for nothing");
    let is_kept = || claim.nodes_with_storage.iter().all(|node| nodes.contains(node));
    assert!(before == 0 || claim.abandoned || is_kept(), "a node is forgotten");
}

fn check_start(world: &World) {
    let claim = &world.claim;
    assert!(!world.foreign && !claim.terminating && !claim.is_bound() && claim.is_held() && world.fresh);
    let recipe = world.stamped_recipe.as_ref().expect("a run has a recipe");
    assert!(claim.own_stamp().is_some() && !world.is_alive() && !world.is_taken());
    let is_new = claim.own_stamp().is_some_and(|stamp| world.recorded.last < stamp.attempt);
    assert!(is_new || world.no_volume, "it may run already, and no watch has shown it");
    let tied = world.observed(|o| o.source.state.and_then(|source| source.required_node(recipe)).map(str::to_owned));
    if recipe.placement == Placement::SelectedNode {
        let noted = claim.nodes_with_storage.last().expect("where it may leave something is not noted");
        let immediate = world.class.binding == BindingMode::Immediate;
        let exists = |node: &&String| !immediate || world.node_states.state(node) != NodeState::NotFound;
        let node = tied.as_ref().or(claim.selected_node.as_ref().filter(exists));
        assert!(node.is_none_or(|node| node == noted), "another node is noted");
    }
    if let Some(source) = &world.data_source {
        let kept = source.claim.as_ref().is_some_and(|o| o.finalizers.contains(&names::clone_finalizer(UID)));
        assert!(kept && source.ours, "what it copies may vanish under it");
    }
}

fn check_adoption(world: &World, volume: &str, provenance: &Provenance, nodes: &[String]) {
    let claim = &world.claim;
    assert!(nodes.is_empty() || nodes.last() == provenance.origin_node.as_ref(), "its own node is the last");
    let noted = nodes.is_empty() || claim.nodes_with_storage.iter().all(|node| nodes.contains(node));
    assert!(noted, "a node is forgotten");
    let recipe = world.recipe_of_attempt().map(|recipe| &recipe.effective_config);
    assert_eq!(recipe, Some(&provenance.effective_config), "the provenance is not that of the attempt");
    let (volume, mismatches) = world.volume(volume);
    assert!(claim.is_held() || !world.is_to_be_undone() && !claim.is_bound());
    assert!(
        mismatches.is_empty() || volume.is_adopted() || world.is_to_be_undone() || claim.terminating,
        "a wrong volume is made the claim's"
    );
    let is_nobodys = volume.claim_ref_uid().is_none_or(|uid| uid == UID) || world.is_left_by_other(volume);
    assert!(is_nobodys, "theft");
    let holdable = !volume.terminating || volume.has_finalizer() || policy(provenance) != ReclaimPolicy::Delete;
    assert!(holdable, "the API takes no finalizer any more");
    assert!(!world.is_safe(volume) || volume.claim_uid.as_deref() == Some(UID));
}

fn check_binding(world: &World, volume: &str) {
    let claim = &world.claim;
    let (volume, mismatches) = world.volume(volume);
    let assigned = world.observed(|o| assigned(o).is_some_and(|assigned| assigned.volume.name == volume.name));
    let assigned = assigned && claim.own_stamp().is_none();
    assert!(assigned || mismatches.is_empty() && volume.name == names::pv_name(UID));
    assert!(!claim.terminating && !claim.is_bound() && (assigned || world.is_safe(volume)));
    assert!(!volume.terminating || volume.has_finalizer());
    assert!(
        volume.phase == VolumePhase::Bound || world.seen_by_probe,
        "the PV controller may not know the volume, and call the claim Lost"
    );
    assert_eq!(world.binding, Binding::Direct);
}

fn check_delete(world: &World, attempt: u32, node: Option<&String>, on_any_node: bool) {
    let claim = &world.claim;
    let policies = [world.class.recipe.as_deref().ok(), world.stamped_recipe.as_ref()];
    let may = policies.iter().flatten().any(|recipe| recipe.node_gone == NodeGone::RunElsewhere);
    let is_gone = || node.is_some_and(|node| world.node_states.state(node) == NodeState::NotFound);
    assert!(!on_any_node || may && is_gone());
    assert!(claim.is_held() && world.is_to_be_undone() && !world.is_alive() && world.jobs.is_empty());
    assert!(attempt > 0 && world.delete_run == RunState::NotCached);
    assert!(match node {
        Some(node) => claim.nodes_with_storage.contains(node),
        None => claim.nodes_with_storage.is_empty(),
    });
    for (volume, _) in &world.volumes {
        assert!(volume.name != names::pv_name(UID), "its volume would be deleted");
        assert!(volume.claim_ref_uid().is_none_or(|uid| uid == UID), "theft");
    }
}

fn check_clean(world: &World, nodes: &[String]) {
    let claim = &world.claim;
    assert!(claim.is_held() && world.is_to_be_undone() && !world.is_alive());
    assert!(
        nodes.len() < claim.nodes_with_storage.len().max(1)
            && nodes.iter().all(|node| claim.nodes_with_storage.contains(node))
    );
    let leftovers = claim.nodes_with_storage.iter().find(|node| !nodes.contains(node));
    let gone = leftovers.is_some_and(|node| world.node_states.state(node) == NodeState::NotFound);
    assert!(world.delete_run == RunState::Succeeded || gone && world.delete_run == RunState::NotCached);
}

fn check_end(world: &World) {
    let claim = &world.claim;
    assert!(claim.is_held());
    let safe = world.volumes.iter().any(|(volume, _)| {
        volume.name == names::pv_name(UID)
            && world.is_safe(volume)
            && (world.is_bound_to(&volume.name) || world.is_to_be_undone() && !world.is_alive())
    });
    let is_kept = world.recipe_of_attempt().is_some_and(|recipe| recipe.reclaim_policy != ReclaimPolicy::Delete);
    // An admin has set the volume to Retain, or the class keeps all.
    let kept = world.volumes.iter().any(|(volume, _)| {
        let by_class = is_kept && volume.phase == VolumePhase::Bound;
        let had_other = world.is_let_go && volume.claim_ref_uid().is_some_and(|uid| uid != UID);
        let is_retained = volume.reclaim_policy != ReclaimPolicy::Delete;
        volume.terminating && (by_class || is_retained) || had_other && is_retained
    });
    assert!(claim.abandoned || safe || kept, "something would be left behind");
    let own = world.volumes.iter().find(|(volume, _)| volume.name == names::pv_name(UID));
    let unmarked = world.lacks_mark && own.is_some_and(|(volume, _)| volume.is_adopted());
    assert!(!unmarked || claim.abandoned || kept, "nobody could delete it later");
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2_000, ..ProptestConfig::default() })]

    #[test]
    fn no_decision_breaks_an_invariant(world in worlds()) {
        let decision = world.decide(NOW);
        check(&world, &decision);
        let deletes = world.delete_job.iter().any(|job| !job.terminating);
        prop_assert!(decision.rule != Rule::Abandoned || !deletes, "a run deletes what must stay");
    }

    /// Runs, volumes and later attempts do not wait for it.
    #[test]
    fn what_is_left_of_claims_that_are_gone_delays_first_attempts_alone(world in worlds()) {
        // While a claim waits, its copies are served.
        let world = World { source_users: Vec::new(), ..world };
        let decision = World { left_refusal: Some("much"), ..world.clone() }.decide(NOW);
        let is_unstamped = world.claim.own_stamp().is_none();
        if decision.rule == Rule::TooMuchLeft {
            prop_assert!(is_unstamped && decision.step == Step::Nothing && decision.event.is_some());
        } else {
            prop_assert!(!is_unstamped || !matches!(decision.step, Step::Stamp { .. }), "a first attempt begins");
            prop_assert_eq!(decision, world.decide(NOW));
        }
    }

    /// It gets no stamp, no run and no pooled volume. What has begun goes on.
    #[test]
    fn a_claim_whose_namespace_is_not_served_is_refused_or_left_as_it_is(world in worlds()) {
        // While a claim waits, its copies are served.
        let world = World { source_users: Vec::new(), ..world };
        let decision = World { namespace_refusal: Some("not here"), ..world.clone() }.decide(NOW);
        let begins = matches!(decision.step, Step::Stamp { .. } | Step::StartRun | Step::AssignPooledVolume { .. });
        prop_assert!(!begins && !matches!(decision.step, Step::WaitForSlot { .. }), "{:?}", decision);
        if decision.event.as_ref().is_some_and(|event| event.message == "not here") {
            prop_assert_eq!((decision.rule, decision.step), (Rule::ClaimRefused, Step::Nothing));
        } else {
            prop_assert_eq!(decision, world.decide(NOW));
        }
    }

    /// So that the page of the rules is right.
    #[test]
    fn a_precondition_decides_by_the_rules_that_it_names(world in worlds()) {
        world.observed(|o| {
            for (begins, of) in PRECONDITIONS.iter().flat_map(|of| of.before.iter().map(move |begins| (*begins, of))) {
                let unmet = (of.unmet)(&Attempt::of(begins, o, &world.class, NOW));
                let is_named = unmet.as_ref().is_none_or(|decision| of.rules.contains(&decision.rule));
                assert!(is_named, "{}: {unmet:?}", of.condition);
            }
        });
    }

    /// So that what people read about a claim is what decides.
    #[test]
    fn an_obstacle_that_claim_and_class_show_is_the_one_that_decides(world in worlds()) {
        let world = World { namespace_refusal: None, is_pool_request: false, ..world };
        let told = obstacle(&world.claim, &world.class, None, false).map(|obstacle| obstacle.rule);
        let shown = [Rule::LeftToPopulator, Rule::ConfigUnusable, Rule::ClaimRefused, Rule::WaitForFirstConsumer];
        let decides = world.observed(|o| Attempt::of(Beginning::First, o, &world.class, NOW).unmet());
        let decides = decides.map(|decision| decision.rule).filter(|rule| shown.contains(rule));
        prop_assert!(decides.is_none() || decides == told, "{:?} decides, and {:?} is told", decides, told);
    }

    /// Each write changes what the decision used, so that a reconcile ends in all worlds.
    #[test]
    fn every_reconcile_ends(world in worlds()) {
        let mut world = world;
        let mut steps = Vec::new();
        loop {
            let decision = world.decide(NOW);
            check(&world, &decision);
            steps.push(decision.step.clone());
            if !world.carry_out(decision.step) {
                break;
            }
            prop_assert!(steps.len() <= 16, "{:#?}", steps);
        }
    }
}
