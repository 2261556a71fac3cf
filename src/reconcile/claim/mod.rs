//! Reconciles claims: observes, decides, and takes the steps.

mod alike;
mod attempt;
mod execute;
pub(super) mod gone;
mod names;
mod observe;
mod others;
mod outcome;
mod pooled;
mod quota;
mod served;
mod timeline;
mod unstarted;

use std::time::Duration;

use flex_contract::operation::Operation;
use flex_contract::reason;
use flex_core::claim::decide::{Decision, NewEvent, Rule, ServedClass, Step, decide};
use flex_core::limits;
use flex_core::model::claim::Claim;
use flex_core::model::object_ref::ObjectRef;
use flex_core::object::ObjectName;
use flex_core::run::job;

use self::execute::Execution;
use self::names::provision_job_name;
use self::observe::{Confirmed, Observation, observe};
use self::outcome::{RETRY_SOON, StepOutcome};
use self::served::served_class;
use crate::api::writes::WriteError;
use crate::reconcile::context::{Context, Requeue};
use crate::reconcile::data_source;
use crate::reconcile::drive::{Reconcile, ReplayedDecision, decided, drive};
use crate::reconcile::record::RECORDS_SOON;
use crate::state::index::WorkItem;

/// Reconciles a claim: takes steps until it only has to wait.
pub async fn reconcile(context: &Context, name: &ObjectName) -> Result<Requeue, WriteError> {
    let cached = context.cluster.index().claim(name);
    let Some(mut claim) = cached.map(|claim| (*claim).clone()) else {
        return gone::clean_up(context, name).await;
    };
    // A record tells what may be left of this claim, or of an earlier one of its name.
    if needs_records(context, &claim) && !context.writes.confirm_records().await? {
        tell_missing_records(context, &claim);
        return Ok(Requeue::After(RECORDS_SOON));
    }
    if claim.is_stand_in() && !is_gone(context, &claim).await? {
        return Ok(Requeue::After(RETRY_SOON));
    }
    if claim.is_stand_in() {
        data_source::requeue_source(context, &claim);
    }
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
    drive::<ClaimReconciler>(context, claim, confirmed).await
}

/// Decides about each claim of this orchestrator, and takes no step.
pub(super) fn replay(context: &Context) -> Vec<ReplayedDecision> {
    let claims: Vec<_> = context.cluster.index().claims().collect();
    let ours = claims.iter().filter(|claim| !claim.belongs_to_other_instance(&context.identity.instance));
    ours.map(|claim| decided::<ClaimReconciler>(context, claim)).collect()
}

/// Returns what the decision about a claim says to its user, as the cache shows the claim.
pub fn message(context: &Context, claim: &Claim) -> Option<String> {
    decided::<ClaimReconciler>(context, claim).event.map(|event| event.message)
}

/// The reconciler of claims.
struct ClaimReconciler;

impl Reconcile for ClaimReconciler {
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

    fn worded(claim: &Claim, event: NewEvent) -> NewEvent {
        NewEvent { message: claim.worded(event.message), ..event }
    }

    fn observe(context: &Context, claim: &Claim, confirmed: &Confirmed) -> Observation {
        observe(context, claim, confirmed)
    }

    fn decide(context: &Context, claim: &Claim, observation: &Observation, confirmed: &Confirmed) -> Decision {
        decide(&observation.observed(claim, confirmed), context.clock.now())
    }

    fn update_ledgers(context: &Context, claim: &Claim, observation: &Observation) -> bool {
        quota::update_ledgers(context, claim, observation)
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
        vec![provision_job_name(claim), job::prefix(Operation::Delete, &claim.volume_id())]
    }

    /// Checks whether a claim keeps its position: it does if it waits for a new revision of its config.
    fn keeps_position(observation: &Observation) -> bool {
        !observation.preconditions.has_revision
    }

    fn is_emitted_after_step(step: &Step, _: &NewEvent) -> bool {
        let writes = matches!(step, Step::Stamp { .. } | Step::Bind { .. } | Step::BackfillStamp { .. });
        writes || matches!(step, Step::EndHold | Step::Keep)
    }

    /// Checks whether an event is superfluous. The events of a fast batch are: in a burst, they would be a sixth of all
    /// writes. The event of a claim that got a pooled volume was emitted with the assignment, unless by a process
    /// that is gone.
    fn is_superfluous(
        context: &Context,
        observation: &Observation,
        rule: Rule,
        event: &NewEvent,
        newer: &Claim,
    ) -> bool {
        let has_emitted = context.events.has_emitted(&newer.uid);
        let was_assigned = matches!(rule, Rule::BindPooledVolume | Rule::BoundToPooledVolume);
        let is_batched = observation.runs.jobs.iter().any(|job| job.batch.is_some());
        !event.warning && if is_batched { !has_emitted } else { was_assigned && has_emitted }
    }
}

/// Checks whether records say something about a claim, and are not confirmed in this term. Nobody tells foreign claims of records.
fn needs_records(context: &Context, claim: &Claim) -> bool {
    let index = context.cluster.index();
    let is_ours = || claim.is_held() || matches!(served_class(claim, &index.classes()), ServedClass::Ours(_));
    // What its volume tells counts only once its records are settled, also if Kubernetes has bound it.
    let may_need = claim.is_held() || !claim.is_bound();
    may_need && !index.are_records_confirmed() && is_ours()
}

/// Emits an event on a claim that has waited long for the records.
fn tell_missing_records(context: &Context, claim: &Claim) {
    let why = context.cluster.index().why_records_are_awaited();
    if let Some(message) = why.map(|message| claim.worded(message)) {
        let event = NewEvent { warning: true, reason: reason::PROVISIONING_FAILED, message };
        context.emit(ObjectRef::claim(claim), event);
    }
}

/// Checks whether the claim of a stand-in is certainly gone. A watch may be late, so that the API is asked once.
async fn is_gone(context: &Context, stand_in: &Claim) -> Result<bool, WriteError> {
    if context.cluster.index().is_gone(&stand_in.uid) {
        return Ok(true);
    }
    let there = context.writes.read_claim(&stand_in.api_name()).await?;
    let is_gone = there.is_none_or(|there| there.uid != stand_in.uid);
    if is_gone {
        context.cluster.update(|index| index.note_gone(&stand_in.uid));
    }
    Ok(is_gone)
}

/// The time that an external provisioner has for a claim before the claim gets an event about it, in seconds.
const EVENT_AFTER: i64 = 60;

/// Emits an event on a claim that waits for the external provisioner of a driver. A config here would replace that
/// provisioner.
fn left_to_external_provisioner(context: &Context, claim: &Claim) -> Option<Requeue> {
    if claim.is_bound() || claim.terminating || claim.is_held() || claim.own_stamp().is_some() {
        return None;
    }
    let classes = context.cluster.index().classes();
    let why = classes.left_to_external_provisioner(claim.class.as_deref()?)?;
    // Before that, the claim waits for its first consumer, and for no provisioner.
    claim.storage_provisioner.as_ref()?;
    let rest = claim.created.saturating_add(EVENT_AFTER).saturating_sub(context.clock.now());
    if let Ok(rest) = u64::try_from(rest)
        && rest > 0
    {
        return Some(Requeue::After(Duration::from_secs(rest)));
    }
    context.emit(
        ObjectRef::claim(claim),
        NewEvent { warning: false, reason: reason::WAITING_FOR_PROVISIONER, message: why.to_owned() },
    );
    Some(Requeue::Done)
}

/// Checks whether an image may get more of a claim than the cache keeps. A claim with too much text is refused, and no
/// image gets it.
fn lacks_metadata(context: &Context, claim: &Claim) -> bool {
    if claim.is_bound() || claim.foreign_metadata_bytes > limits::METADATA {
        return false;
    }
    let index = context.cluster.index();
    matches!(served_class(claim, &index.classes()), ServedClass::Ours(_))
        && !claim.has_metadata_of(&index.metadata_keys(claim))
}

#[cfg(test)]
mod tests {
    use flex_core::model::namespace::Namespace;
    use serde_json::{Value, json};

    use super::*;
    use crate::class_health::testing::config;
    use crate::reconcile::delete_run::tests::context;
    use crate::state::index::WatchChange;
    use crate::state::testing;

    /// Otherwise a pool would give way to it.
    #[tokio::test]
    async fn a_claim_that_its_class_refuses_waits_for_no_quota() {
        let (context, _) = context(String::new());
        let claim = testing::claim("team", "a", false);
        let serve = |keys: Value| {
            let config = config(testing::CLASS, keys);
            context.cluster.update(|index| index.change_config(WatchChange::Apply(config)));
        };
        let refusals = || {
            let preconditions = observe(&context, &claim, &Confirmed::default()).preconditions;
            (preconditions.namespace_refusal.is_some(), preconditions.quota_refusal.is_some())
        };
        serve(json!({ "max-volumes": "0" }));
        assert_eq!(refusals(), (false, true));
        serve(json!({ "max-volumes": "0", "max-size": "1Mi" }));
        assert_eq!(refusals(), (false, false), "it is too large");
        serve(json!({ "max-volumes": "0", "namespaces": "other" }));
        assert_eq!(refusals(), (true, false));
        serve(json!({ "max-volumes": "0", "namespace-selector": "tier=gold" }));
        assert_eq!(refusals(), (true, false), "no watch has shown its namespace");
        let labels = [("tier".to_owned(), "gold".to_owned())].into();
        let team = Namespace { name: "team".into(), labels };
        context.cluster.update(|index| index.change_namespace(WatchChange::Apply(team)));
        assert_eq!(refusals(), (false, true));
    }

    #[tokio::test]
    async fn a_bound_claim_waits_for_the_records_while_it_is_held() {
        let (context, _) = context(String::new());
        let waits = |held: bool, is_bound: bool| {
            let volume_name = is_bound.then(|| "pvc-a".to_owned());
            let claim = testing::claim("team", "a", true);
            needs_records(&context, &Claim { held, bind_completed: is_bound, volume_name, ..claim })
        };
        assert!(waits(true, true) && waits(true, false) && !waits(false, true));
    }
}
