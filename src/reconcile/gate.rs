//! Opens the pods of runs, and closes Jobs that nobody may open. Decides with [`flex_core::run::gate::decide`].

use std::sync::Arc;

use flex_core::object::ObjectName;
use flex_core::run::gate::{Decision, Step};
use flex_core::run::view::{Job, Pod};

use crate::api::writes::WriteError;
use crate::reconcile::context::{Context, Requeue};
use crate::state::index::GateView;

/// Reconciles the gate of a Job's pods, by the name of the Job.
pub(super) async fn reconcile(context: &Context, name: &ObjectName) -> Result<Requeue, WriteError> {
    let mut view = context.cluster.index().observe_gate(name);
    let mut decision = view.decide(false, context.clock.now());
    if decision.step == Step::Confirm {
        view = confirmed(context, name, view).await?;
        decision = view.decide(true, context.clock.now());
    }
    let Decision { rule, step, requeue_at, .. } = decision;
    context.decided(name, rule, &step);
    match step {
        Step::Nothing | Step::Confirm => {}
        Step::Open(uid) => {
            if let Some(pod) = view.pod(&uid) {
                open(context, pod).await?;
            }
        }
        Step::RemovePod(uid) => {
            if let Some(pod) = view.pod(&uid) {
                tracing::warn!(pod = %pod.name, "the provisioner deletes a pod that nobody may start");
                context.writes.remove_pod(&pod.name, &pod.uid).await?;
            }
        }
        Step::Close => {
            if let Some(job) = &view.job {
                let why = "this leader has not created it, or could not start its pod in time";
                tracing::info!(job = %job.name, why, "the provisioner deletes a Job; its owner starts the run again");
                context.cluster.index_mut().close_job(job);
                context.writes.remove_job(&job.name, &job.uid).await?;
            }
        }
    }
    Ok(context.wait(requeue_at, &[]))
}

/// Asks the API for a Job and its pods. Strays are those of the cache that are not of this Job.
async fn confirmed(context: &Context, name: &ObjectName, cached: GateView) -> Result<GateView, WriteError> {
    let job = context.writes.read_job(name).await?.map(|job| Arc::new(Job::from(&job)));
    let mut named = match &job {
        Some(job) => context.writes.pods_of_job(&name.namespace, &job.uid).await?.into_iter().map(Arc::new).collect(),
        None => Vec::new(),
    };
    let is_of_it = |pod: &Arc<Pod>| job.as_ref().is_some_and(|job| job.uid == pod.job_uid);
    named.extend(cached.pods.into_iter().chain(cached.strays).filter(|pod| !is_of_it(pod)));
    let view = context.cluster.index().view_gate(name, job.clone(), named);
    // The watches had not shown yet that a pod was opened, so its Job has ended after all.
    let is_unopened = |job: &Option<Arc<Job>>| job.as_ref().is_some_and(|job| job.is_unopened);
    if let Some(job) = job.filter(|_| is_unopened(&cached.job) && !is_unopened(&view.job)) {
        context.cluster.update(|index| index.correct_unopened(Arc::unwrap_or_clone(job)));
    }
    Ok(view)
}

/// Opens a pod: the scheduler may choose a node now.
async fn open(context: &Context, pod: &Pod) -> Result<(), WriteError> {
    let Some(position) = pod.gate else { return Ok(()) };
    // The request may reach the API server even if no answer comes.
    if !context.cluster.index_mut().begin_opening(&pod.job_uid, &pod.uid) {
        return Ok(());
    }
    let error = match context.writes.open_pod(&pod.name, &pod.uid, position).await {
        Ok(()) => {
            context.cluster.index_mut().record_opening(&pod.job_uid, &pod.uid);
            return Ok(());
        }
        Err(WriteError::NotFound { .. }) => return Ok(()),
        Err(error) => error,
    };
    // A test of the patch has failed: somebody else has removed a gate, or an earlier request has arrived after all. A watch
    // shows it.
    if matches!(error, WriteError::Refused { invalid: true, .. }) {
        let pods = context.writes.pods_of_job(&pod.name.namespace, &pod.job_uid).await?;
        if pods.iter().all(|now| now.uid != pod.uid || now.gate != pod.gate || now.terminating) {
            return Ok(());
        }
    }
    Err(error)
}
