//! Reconciles claims: observes, decides, and takes the steps.

mod attempt;
mod execute;
mod observe;
mod pooled;
mod quota;
mod unstarted;

use std::sync::Arc;
use std::time::Duration;

use flex_contract::names::reason;
use flex_contract::request::Operation;

use self::execute::Execution;
use self::observe::{Confirmed, Observation, observe};
use self::unstarted::has_never_started;
use crate::api::writes::WriteError;
use crate::claim::decide::{
    Admission, Candidate, ConfirmedFacts, Decision, Deletion, NewEvent, Nodes, Observed, Pool, Rule, Runs, ServedClass,
    Source, Step, Volumes, cleanup_node, decide,
};
use crate::config::classes::{ClassLookup, Classes};
use crate::limits;
use crate::model::claim::Claim;
use crate::model::object_ref::ObjectRef;
use crate::node::NodeStates;
use crate::object::ObjectName;
use crate::reconcile::context::{Context, Requeue};
use crate::reconcile::data_source;
use crate::reconcile::drive::{self, Reconcile, drive};
use crate::run::job;
use crate::run::view::{Job, Pod};
use crate::state::index::WorkItem;

/// The delay for an event that does not arrive. Normally an event requeues a claim that waits for a slot or for its own
/// write.
const RETRY_SOON: Duration = Duration::from_secs(5);

/// The outcome of a step.
type StepOutcome = drive::StepOutcome<Claim>;

/// Reconciles a claim: takes steps until it only has to wait.
pub async fn reconcile(context: &Context, name: &ObjectName) -> Result<Requeue, WriteError> {
    let cached = context.shared.index().claim(name);
    let Some(mut claim) = cached.map(|claim| (*claim).clone()) else {
        return crate::reconcile::orphaned_runs::clean_up(context, name).await;
    };
    if claim.belongs_to_other_instance(&context.identity.instance) {
        return Ok(Requeue::Done);
    }
    if let Some(next) = left_to_external_provisioner(context, &claim) {
        return Ok(next);
    }
    let mut confirmed = Confirmed::default();
    if lacks_metadata(context, &claim) {
        match context.writes.read_claim(name).await? {
            Some(whole) if whole.uid == claim.uid => claim = whole,
            _ => return Ok(Requeue::Done),
        }
        confirmed.fresh = true;
    }
    drive::<Claims>(context, claim, confirmed).await
}

/// The reconciler of claims.
struct Claims;

impl Reconcile for Claims {
    type Object = Claim;
    type Observation = Observation;
    type Confirmed = Confirmed;
    type Rule = Rule;

    const SLOT_RETRY: Requeue = Requeue::After(RETRY_SOON);

    fn item(claim: &Claim) -> WorkItem {
        WorkItem::Claim(claim.name.clone())
    }

    fn reference(claim: &Claim) -> ObjectRef {
        ObjectRef::claim(claim)
    }

    fn observe(context: &Context, claim: &Claim, confirmed: &Confirmed) -> Observation {
        observe(context, claim, confirmed)
    }

    fn decide(context: &Context, claim: &Claim, observation: &Observation, confirmed: &Confirmed) -> Decision {
        observed(context, claim, observation, confirmed, |observed| decide(observed, context.clock.now()))
    }

    fn settle(context: &Context, claim: &Claim, observation: &Observation) -> bool {
        quota::settle(context, claim, observation)
    }

    async fn execute(
        context: &Context,
        claim: &Claim,
        observation: &Observation,
        step: Step,
        confirmed: &mut Confirmed,
    ) -> Result<StepOutcome, WriteError> {
        Execution { context, claim, observation, confirmed }.take(step).await
    }

    fn expected_jobs(claim: &Claim, _: &Observation) -> Vec<String> {
        vec![provision_name(claim), job::prefix(Operation::Delete, &claim.id())]
    }

    /// A claim that waits for a new revision of its config keeps its position.
    fn keeps_position(observation: &Observation) -> bool {
        !observation.admission.has_revision
    }

    fn is_late(step: &Step, _: &NewEvent) -> bool {
        matches!(step, Step::Stamp { .. } | Step::Bind { .. } | Step::BackfillStamp { .. } | Step::RemoveFinalizer)
    }

    /// For claims in a batch only the first event is emitted. Two more per claim would be too many in a burst. The event
    /// of a claim that got a pooled volume was emitted with the assignment, unless by a process that is gone.
    fn is_superfluous(context: &Context, rule: Rule, event: &NewEvent, newer: &Claim) -> bool {
        let was_assigned = matches!(rule, Rule::BindPooledVolume | Rule::BoundToPooledVolume);
        !event.warning && (was_assigned || newer.batch().is_some()) && context.events.has_emitted(&newer.uid)
    }
}

/// The time that an external provisioner has for a claim before the claim gets an event about it, in seconds.
const EVENT_AFTER: i64 = 60;

/// Emits an event on a claim that waits for the external provisioner of a driver. A config here would replace that
/// provisioner.
fn left_to_external_provisioner(context: &Context, claim: &Claim) -> Option<Requeue> {
    if claim.is_bound() || claim.deleting || claim.has_finalizer() || claim.own_stamp().is_some() {
        return None;
    }
    let classes = context.shared.index().classes();
    let why = classes.left_to_external_provisioner(claim.class.as_deref()?)?;
    // Before that, the claim waits for its first consumer, and for no provisioner.
    claim.storage_provisioner.as_ref()?;
    let rest = claim.created.saturating_add(EVENT_AFTER).saturating_sub(context.clock.now());
    if let Ok(rest) = u64::try_from(rest)
        && rest > 0
    {
        return Some(Requeue::After(Duration::from_secs(rest)));
    }
    context
        .emit(ObjectRef::claim(claim), NewEvent { warning: false, reason: reason::WAITING, message: why.to_owned() });
    Some(Requeue::Done)
}

/// Checks whether an image may get more of a claim than the cache keeps. A claim with too much text is refused, and no
/// image gets it.
fn lacks_metadata(context: &Context, claim: &Claim) -> bool {
    if claim.is_bound() || claim.foreign_metadata_bytes > limits::METADATA {
        return false;
    }
    let index = context.shared.index();
    matches!(serving(claim, &index.classes()), ServedClass::Ours(_))
        && !claim.has_metadata_of(&index.metadata_keys(claim))
}

fn serving<'a>(claim: &Claim, classes: &'a Classes) -> ServedClass<'a> {
    match claim.class.as_deref().map(|class| classes.lookup(class)) {
        Some(ClassLookup::Ours(class)) if !class.is_for_other_provisioner(claim.storage_provisioner.as_deref()) => {
            ServedClass::Ours(class)
        }
        _ => ServedClass::NotOurs,
    }
}

/// Checks whether the class does not allow the selected node.
fn is_selected_node_forbidden(context: &Context, claim: &Claim, classes: &Classes) -> bool {
    let ServedClass::Ours(class) = serving(claim, classes) else { return false };
    let node = claim.selected_node.as_deref().filter(|_| !class.allowed.is_empty());
    node.and_then(|node| context.shared.index().node(node)).is_some_and(|node| !class.allowed.allows(&node.labels))
}

/// Makes the observation of the decision, and uses it.
fn observed<T>(
    context: &Context,
    claim: &Claim,
    s: &Observation,
    confirmed: &Confirmed,
    then: impl FnOnce(&Observed<'_>) -> T,
) -> T {
    let jobs: Vec<&Job> = s.runs.jobs.iter().map(Arc::as_ref).collect();
    let volumes: Vec<_> = {
        let index = context.shared.index();
        let known = |volume: &str| index.is_synced(volume);
        let volumes = s.volumes.all.iter();
        volumes.map(|(volume, mismatches)| Candidate { volume, mismatches, synced: known(&volume.name) }).collect()
    };
    then(&Observed {
        claim,
        class: match (serving(claim, &s.classes), &s.pool.request) {
            (ServedClass::Ours(_), Some(Some(class))) => ServedClass::Ours(class),
            (serving, _) => serving,
        },
        confirmed: ConfirmedFacts { fresh: confirmed.fresh, no_volume: confirmed.no_volume },
        runs: runs(context, claim, s, &jobs),
        deletion: deletion(context, claim, s),
        volumes: Volumes {
            all: &volumes,
            reserved: s.volumes.reserved.as_ref().map(|volume| volume.name.as_str()),
            binding: context.writes.binding(),
        },
        admission: Admission {
            has_revision: s.admission.has_revision,
            has_slot: s.admission.has_slot,
            quota_error: s.admission.quota_error.as_deref(),
            has_pending_charge: s.admission.has_pending_charge,
            attributes_error: s.admission.attributes.as_ref().err().map(String::as_str),
        },
        nodes: Nodes {
            choice: &s.nodes.choice,
            states: &s.nodes.states,
            with_pods: &s.nodes.with_pods,
            selected_forbidden: is_selected_node_forbidden(context, claim, &s.classes),
        },
        source: Source {
            state: s.source.original.as_ref().map(data_source::SourceObservation::data_source),
            users: &s.source.users,
        },
        pool: Pool {
            is_request: s.pool.request.is_some(),
            volume: s.pool.volume.as_ref().map(|volume| volume.name.as_str()),
        },
    })
}

/// Returns the observation of the provision runs.
fn runs<'a>(context: &Context, claim: &Claim, s: &'a Observation, jobs: &'a [&'a Job]) -> Runs<'a> {
    let provision = |pod: &&Arc<Pod>| pod.run_labels.operation == "provision";
    let name = provision_name(claim);
    Runs {
        jobs,
        state: context.run_state(&s.runs.jobs, &s.runs.pods, &name),
        recipe: s.recipes.stamped.as_deref(),
        has_running_pods: s.runs.pods.iter().filter(provision).any(|pod| !pod.is_over()),
        never_started: has_never_started(context, claim, s),
        removed: context.shared.index().removed(&claim.id(), &name),
        missed_batch: s.runs.missed_batch,
    }
}

/// Returns the observation of the delete run that is due.
fn deletion<'a>(context: &Context, claim: &Claim, s: &'a Observation) -> Deletion<'a> {
    let name = delete_name(claim, &s.nodes.states);
    let is_known = s.recipes.stamped.is_some() || matches!(serving(claim, &s.classes), ServedClass::Ours(_));
    Deletion {
        state: context.delete_state(Operation::Delete, &claim.id(), (&s.runs.deletes, &s.runs.pods), &name),
        job: s.runs.deletes.iter().map(Arc::as_ref).find(|job| job.name.name == name),
        recipe: s.recipes.deletion.as_deref().filter(|_| is_known),
    }
}

/// Returns the name of the stamped attempt's Job.
fn provision_name(claim: &Claim) -> String {
    let attempt = claim.own_stamp().map_or(0, |stamp| stamp.attempt);
    job::name(Operation::Provision, &claim.id(), attempt, "")
}

/// Returns the name of the Job of the delete run that is due for a claim without a volume.
fn delete_name(claim: &Claim, node_states: &NodeStates) -> String {
    let failure = claim.last_failure.as_ref().filter(|failure| failure.operation == Operation::Delete);
    let attempt = failure.map_or(1, |failure| failure.attempt.saturating_add(1));
    job::name(Operation::Delete, &claim.id(), attempt, scope(cleanup_node(claim, node_states)))
}

fn scope(node: &str) -> &str {
    if node.is_empty() { "anywhere" } else { node }
}
