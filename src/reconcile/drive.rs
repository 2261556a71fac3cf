//! The loop of all reconcilers that drive one object: observe, decide, execute, and again until nothing is left to do.

use std::future::Future;
use std::time::Duration;

use flex_core::model::object_ref::ObjectRef;
use flex_core::rules::{Decision, NewEvent, Rule};

use crate::api::writes::WriteError;
use crate::reconcile::context::{Context, Requeue};
use crate::state::index::WorkItem;

/// The largest number of steps in a reconcile. A healthy claim needs five.
const MAX_STEPS: usize = 16;
/// The delay of an object that needs more than [`MAX_STEPS`] steps.
const MORE_STEPS_DELAY: Duration = Duration::from_secs(1);

/// A reconciler of one kind of objects.
pub(super) trait Reconcile {
    /// The object that the steps write.
    type Object: Send + Sync;
    /// The data from which a decision borrows.
    type Observation: Send + Sync;
    /// Facts beyond the cache that this reconcile has confirmed.
    type Confirmed: Send + Sync;
    /// The rules that decide.
    type Rule: Rule<Step: Send> + Send;

    /// The end of a reconcile that waits for a slot, if the decision names no time.
    const SLOT_RETRY: Requeue = Requeue::WaitingForSlot;

    /// Returns the work item of an object.
    fn item(object: &Self::Object) -> WorkItem;

    /// Returns the reference to an object for logs and events.
    fn reference(object: &Self::Object) -> ObjectRef;

    /// Observes an object and all objects that concern it.
    fn observe(context: &Context, object: &Self::Object, confirmed: &Self::Confirmed) -> Self::Observation;

    /// Decides the next step.
    fn decide(
        context: &Context,
        object: &Self::Object,
        observation: &Self::Observation,
        confirmed: &Self::Confirmed,
    ) -> Decision<Self::Rule>;

    /// Records in the ledgers what the observation showed, before the step. Returns whether the observation still
    /// holds. If it does not, the loop observes again instead of executing the step.
    fn update_ledgers(_context: &Context, _object: &Self::Object, _observation: &Self::Observation) -> bool {
        true
    }

    /// Executes a step.
    fn execute(
        context: &Context,
        object: &Self::Object,
        observation: &Self::Observation,
        step: <Self::Rule as Rule>::Step,
        confirmed: &mut Self::Confirmed,
    ) -> impl Future<Output = Result<StepOutcome<Self::Object>, WriteError>> + Send;

    /// Returns the names, or prefixes of names, of Jobs that a step may have created and no watch has shown yet.
    fn expected_jobs(_object: &Self::Object, _observation: &Self::Observation) -> Vec<String> {
        Vec::new()
    }

    /// Checks whether an object that waits keeps its position in the fair queue.
    fn keeps_position(_observation: &Self::Observation) -> bool {
        false
    }

    /// Returns the object of a decision's event. It is the reconciled object, unless another object is named here.
    fn subject(
        object: &Self::Object,
        _observation: &Self::Observation,
        _step: &<Self::Rule as Rule>::Step,
    ) -> Option<ObjectRef> {
        Some(Self::reference(object))
    }

    /// Returns the event as its readers need it.
    fn worded(_object: &Self::Object, event: NewEvent) -> NewEvent {
        event
    }

    /// Checks whether the event is emitted after the step. A failure is emitted before it is written, so that no crash
    /// can hide it.
    fn is_emitted_after_step(_step: &<Self::Rule as Rule>::Step, _event: &NewEvent) -> bool {
        false
    }

    /// Checks whether earlier events already say enough, so that a late event is left out. `newer` is the object after
    /// the step.
    fn is_superfluous(
        _context: &Context,
        _observation: &Self::Observation,
        _rule: Self::Rule,
        _event: &NewEvent,
        _newer: &Self::Object,
    ) -> bool {
        false
    }
}

/// The outcome of a step.
#[derive(Debug)]
pub(super) enum StepOutcome<Object> {
    /// Decides again, with what the step has confirmed.
    Again,
    /// Decides again with a newer state of the object.
    Updated(Box<Object>),
    /// Ends the reconcile until an event, the time of the decision, or the time at which an expected Job must be
    /// visible.
    Wait,
    /// Ends the reconcile until it is the object's turn. The object keeps its position in the fair queue.
    WaitForSlot,
    /// Ends the reconcile like [`StepOutcome::Wait`]: the step is not done yet, and its event is not emitted.
    Postponed,
    /// Ends the reconcile.
    End(Requeue),
}

impl<Object> From<Object> for StepOutcome<Object> {
    fn from(newer: Object) -> Self {
        StepOutcome::Updated(Box::new(newer))
    }
}

/// Drives an object: takes steps until nothing is left to do but wait.
pub(super) async fn drive<R: Reconcile>(
    context: &Context,
    mut object: R::Object,
    mut confirmed: R::Confirmed,
) -> Result<Requeue, WriteError> {
    for _ in 0..MAX_STEPS {
        let observation = R::observe(context, &object, &confirmed);
        let Decision { rule, step, event, requeue_at } = R::decide(context, &object, &observation, &confirmed);
        context.decided(&R::reference(&object), rule, &step);
        if !R::update_ledgers(context, &object, &observation) {
            continue;
        }
        let event = event.map(|event| R::worded(&object, event));
        let subject = event.as_ref().and_then(|_| R::subject(&object, &observation, &step));
        let (late, early): (Vec<_>, Vec<_>) =
            subject.zip(event).into_iter().partition(|(_, e)| R::is_emitted_after_step(&step, e));
        early.into_iter().for_each(|(subject, event)| context.emit(subject, event));
        let outcome = R::execute(context, &object, &observation, step, &mut confirmed).await?;
        let late = if matches!(outcome, StepOutcome::Postponed) { Vec::new() } else { late };
        for (subject, event) in late {
            let newer = if let StepOutcome::Updated(newer) = &outcome { Some(newer) } else { None };
            if !newer.is_some_and(|newer| R::is_superfluous(context, &observation, rule, &event, newer)) {
                context.emit(subject, event);
            }
        }
        let requeue = match outcome {
            StepOutcome::Again => continue,
            StepOutcome::Updated(newer) => {
                object = *newer;
                continue;
            }
            StepOutcome::WaitForSlot if requeue_at.is_some() => return Ok(context.wait(requeue_at, &[])),
            StepOutcome::WaitForSlot => return Ok(R::SLOT_RETRY),
            StepOutcome::Wait | StepOutcome::Postponed => {
                context.wait(requeue_at, &R::expected_jobs(&object, &observation))
            }
            StepOutcome::End(requeue) => requeue,
        };
        if !R::keeps_position(&observation) {
            context.cluster.update(|index| index.stop_waiting_for_slot(&R::item(&object)));
        }
        return Ok(requeue);
    }
    Ok(Requeue::After(MORE_STEPS_DELAY))
}

/// A decision about an object.
#[derive(Clone, Debug)]
pub struct ReplayedDecision {
    /// The kind of object, as the metric of decisions names it.
    pub object: &'static str,
    /// The object.
    pub about: String,
    /// The rule that applies.
    pub rule: &'static str,
    /// For what the run is about which the rule decides, if it is about one.
    pub run: Option<&'static str>,
    /// The documentation of the rule: when it holds, and what it does.
    pub documentation: &'static str,
    /// The step, as the log writes it; `None` for none.
    pub step: Option<String>,
    /// The event that would be emitted.
    pub event: Option<NewEvent>,
    /// The time of the next decision if nothing happens, in seconds since 1970.
    pub requeue_at: Option<i64>,
}

/// Decides once about an object, as the cache shows it. Nothing is confirmed beyond the cache.
pub(super) fn decided<R: Reconcile>(context: &Context, object: &R::Object) -> ReplayedDecision
where
    R::Confirmed: Default,
    <R::Rule as Rule>::Step: Default,
{
    let confirmed = R::Confirmed::default();
    let observation = R::observe(context, object, &confirmed);
    let Decision { rule, step, event, requeue_at } = R::decide(context, object, &observation, &confirmed);
    ReplayedDecision {
        object: R::Rule::OBJECT,
        about: R::reference(object).to_string(),
        rule: rule.name(),
        run: rule.target(),
        documentation: rule.documentation(),
        step: (step != Default::default()).then(|| format!("{step:?}")),
        event,
        requeue_at,
    }
}
