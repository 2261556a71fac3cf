//! Reconciles capacities: observes, decides with [`decide`], and takes the steps.

use std::sync::Arc;

use flex_contract::operation::Operation;
use flex_core::capacity::decide::{ConfigEvent, Decision, Observed, ObservedRun, Plan, Step, decide, outcome, refused};
use flex_core::capacity::fingerprint::fingerprint;
use flex_core::capacity::run::capacity;
use flex_core::capacity::segment::wanted;
use flex_core::config::classes::Class;
use flex_core::model::object_ref::ObjectRef;
use flex_core::object::ObjectName;
use flex_core::rules::NewEvent;
use flex_core::run::job::prefix;

use crate::api::writes::WriteError;
use crate::reconcile::context::{Context, Requeue, refused_job};
use crate::state::index::CachedRun;

/// Reconciles all segments.
pub(super) async fn reconcile(context: &Context) -> Result<Requeue, WriteError> {
    if !context.cluster.index().has_capacities() && context.cluster.index().capacity_runs().is_empty() {
        context.metrics.capacities(std::iter::empty());
        return Ok(Requeue::Done);
    }
    if let Some(remaining) = context.capacity.begin(context.clock.passed()) {
        return Ok(Requeue::After(remaining));
    }
    let now = context.clock.now();
    let Plan { steps, waits, events, requeue_at } = planned(context, now);
    waits.into_iter().for_each(|rule| context.metrics.decided(rule));
    for ConfigEvent { config, event } in events {
        emit_on_config(context, &config, event);
    }
    for Decision { rule, step, .. } in steps {
        context.decided(&"all segments", rule, &step);
        execute(context, step, now).await?;
    }
    Ok(context.wait(requeue_at, &[format!("{}-", Operation::Capacity)]))
}

fn planned(context: &Context, now: i64) -> Plan {
    let (identity, index) = (&context.identity, context.cluster.index());
    let nodes: Vec<_> = index.nodes().cloned().collect();
    let table = index.classes();
    let classes: Vec<&Class> = table.iter().collect();
    let driver = index.driver();
    let foreign =
        driver.as_ref().is_some_and(|driver| driver.on && driver.instance.as_ref() != Some(&identity.instance));
    let wanted = wanted(&identity.instance, &classes, &nodes, foreign);
    let volumes = index.volumes().filter(|volume| volume.belongs_to(identity));
    let fingerprint = fingerprint(&wanted, &nodes, volumes, index.unsettled_claims(), &index.configs_of_classes());
    let published = index.capacities();
    let is_starting = |id: &String| index.has_expectation(&prefix(Operation::Capacity, id));
    let starting = wanted.iter().map(|wanted| wanted.segment.id.clone()).filter(is_starting).collect();
    context.metrics.capacities(published.values().map(Arc::as_ref));
    let runs = index.capacity_runs();
    // The state of a run needs the cache itself.
    drop(index);
    let run = |CachedRun { job, pods }: CachedRun| {
        let state = context.run_state(std::slice::from_ref(&job), &pods, &job.name.name);
        ObservedRun { outcome: outcome(state, &job, &pods), job }
    };
    let runs: Vec<ObservedRun> = runs.into_iter().map(run).collect();
    let observed = Observed {
        wanted: &wanted,
        published: &published,
        driver: driver.as_deref(),
        instance: &identity.instance,
        runs: &runs,
        starting: &starting,
        fingerprint: &fingerprint,
    };
    decide(&observed, now)
}

async fn execute(context: &Context, step: Step, now: i64) -> Result<(), WriteError> {
    let writes = &context.writes;
    let published = |name: &str| context.cluster.index().capacity(name);
    match step {
        Step::Publish { segment, answer, record } => {
            let before = published(&segment.object_name());
            let done = record.as_ref().map(|record| record.failures == 0);
            let written = writes.publish(&segment, answer, record.as_deref(), before.as_deref()).await?;
            // The cache learns of the write at once: no run may begin for a question that was just answered.
            context.cluster.index_mut().record_published(written);
            done.into_iter().for_each(|done| context.metrics.capacity_run(done));
        }
        Step::Start { segment, source, run } => {
            let observed = published(&segment.object_name());
            // The watches of Jobs and of published objects may differ. A run whose answer is published must not be
            // repeated.
            let version = |p: &flex_core::capacity::Published| (p.uid.clone(), p.resource_version.clone());
            let there = writes.read_capacity(&segment.object_name()).await?;
            if there.as_ref().map(version) != observed.as_deref().map(version) {
                return Err(WriteError::Conflict(format!("what is known of the capacity of {segment}")));
            }
            let ts = context.timestamp();
            let job =
                capacity(&source.recipe, &source.allowed, &segment, &run, &context.identity, &context.kube_api, &ts);
            match context.create_job(&source.recipe, job, &[]).await {
                // Until the watch shows the Job, its expectation keeps another run from starting.
                Ok(()) => {}
                Err(error) => {
                    let cause = refused_job(error)?.cause;
                    let refused = refused(&segment, &source, &run, &cause.message, observed.as_deref(), now);
                    emit_on_config(context, &source.recipe.config, refused.event);
                    let Decision { rule, step, .. } = refused.decision;
                    context.decided(&segment, rule, &step);
                    Box::pin(execute(context, step, now)).await?;
                }
            }
        }
        Step::Switch { on } => {
            let before = context.cluster.index().driver();
            let driver = writes.switch(on, before.as_deref()).await?;
            context.cluster.index_mut().record_driver(driver);
        }
        Step::RemoveDriver => {
            let driver = context.cluster.index().driver();
            if let Some(driver) = driver {
                writes.remove_driver(&driver).await?;
            }
        }
        Step::DeleteObject { name } => {
            if let Some(published) = published(&name) {
                writes.delete_capacity(&published).await?;
            }
        }
        Step::RemoveJob { job, uid } => writes.remove_job(&job, &uid).await?,
    }
    Ok(())
}

/// Emits an event on the config, where the admin who can act looks.
fn emit_on_config(context: &Context, config: &ObjectName, event: NewEvent) {
    let uid = context.cluster.index().config(config).map(|config| config.uid.clone());
    match uid {
        Some(uid) => context.emit(ObjectRef { kind: "ConfigMap", name: config.clone(), uid }, event),
        None => {
            tracing::warn!(%config, reason = event.reason.name, message = event.message, "about a config that is gone")
        }
    }
}
