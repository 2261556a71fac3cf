//! The reconcilers.
//!
//! [`start`] starts the workers. A worker takes an item from the queue, and [`reconcile`] calls the reconciler of the
//! item. The reconciler observes the cache, calls the pure decision, and takes its step.

mod batch;
mod capacity;
pub mod claim;
pub mod config;
mod content;
mod context;
mod creation;
mod data_source;
mod delete_run;
mod drive;
mod failing;
pub mod findings;
pub mod gate;
mod kept_script;
mod late_runs;
mod memory;
mod pool;
mod record;
pub mod replay;
mod snapshot;
mod sync_probe;
pub mod volume;

use std::future::poll_fn;
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use futures::FutureExt;
use futures::future::BoxFuture;
use tokio::sync::{Semaphore, SemaphorePermit};

pub use self::context::{Context, Requeue};
pub use self::memory::SweepReport;
use crate::api::writes::WriteError;
use crate::metrics::ErrorCategory;
use crate::state::index::{CACHE_LAG_MAX, EXPECTATION_TIMEOUT, WorkItem};

/// The number of items that are reconciled at one time, beside those that take long.
const WORKERS: usize = 64;
/// The time after which a reconcile takes long, as with a webhook that does not answer. Another worker begins then.
const SLOW: Duration = Duration::from_secs(1);
/// The number of all workers.
const MAX_WORKERS: usize = 4 * WORKERS;
/// The longest time of a reconcile with all its steps. Then it is requeued.
const RECONCILE_TIMEOUT: Duration = Duration::from_secs(60);
/// The delay of an item in the fair queue. Normally it is requeued when its turn comes; this is for the case that items
/// before it have left.
const SLOT_TIMEOUT: Duration = Duration::from_secs(30);

/// Reconciles a work item, until another term begins: all that it knows and has asked for is of its own term, and each term
/// begins with all items. The future is boxed, so that it is compiled here only, and not also where it is awaited.
pub fn reconcile<'a>(context: &'a Context, item: &'a WorkItem) -> BoxFuture<'a, Result<Requeue, WriteError>> {
    let term = context.cluster.index().term();
    let mut reconciled = reconcile_kind(context, item);
    poll_fn(move |task| {
        // Whatever has arrived for it, its future goes no further.
        let has_ended = context.cluster.index().term() != term;
        if has_ended { Poll::Ready(Ok(Requeue::Done)) } else { reconciled.poll_unpin(task) }
    })
    .boxed()
}

/// Calls the reconciler of a work item.
fn reconcile_kind<'a>(context: &'a Context, item: &'a WorkItem) -> BoxFuture<'a, Result<Requeue, WriteError>> {
    if context.cluster.index().is_stale(item) {
        return std::future::ready(Ok(Requeue::CacheStale)).boxed();
    }
    match item {
        WorkItem::Configs => config::reconcile(context).boxed(),
        WorkItem::Claim(name) => claim::reconcile(context, name).boxed(),
        WorkItem::Volume(name) => volume::reconcile(context, name).boxed(),
        WorkItem::Batch(name) => batch::reconcile(context, name).boxed(),
        WorkItem::Gate(job) => gate::reconcile(context, job).boxed(),
        WorkItem::Record(name) => record::reconcile(context, name).boxed(),
        WorkItem::Snapshot(name) => snapshot::reconcile(context, name).boxed(),
        WorkItem::Content(name) => content::reconcile(context, name).boxed(),
        WorkItem::SyncProbe => sync_probe::reconcile(context).boxed(),
        WorkItem::Pool(class) => pool::reconcile(context, class).boxed(),
        WorkItem::Findings => findings::reconcile(context).boxed(),
        WorkItem::Capacity => capacity::reconcile(context).boxed(),
    }
}

/// Returns the latest time of the next reconcile after one of an item. `None` as its outcome means that it timed
/// out because the API server did not answer.
pub fn requeue_after(
    context: &Context,
    item: &WorkItem,
    outcome: Option<Result<Requeue, WriteError>>,
) -> Option<Duration> {
    match outcome {
        Some(Ok(requeue)) => {
            if !matches!(requeue, Requeue::CacheStale) {
                context.succeeded(item);
            }
            match requeue {
                Requeue::Done => None,
                Requeue::CacheStale => Some(CACHE_LAG_MAX),
                Requeue::After(delay) => Some(delay),
                Requeue::JobCreated => Some(EXPECTATION_TIMEOUT),
                Requeue::WaitingForSlot => Some(SLOT_TIMEOUT),
            }
        }
        // This happens all the time: somebody else wrote first. The event of that write requeues the item; the
        // delay is for the case that the event came before the refusal.
        Some(Err(WriteError::Conflict(what))) => {
            tracing::debug!(what, "conflict: somebody else wrote first");
            context.metrics.step_failed(ErrorCategory::Conflict);
            Some(Duration::from_millis(200))
        }
        Some(Err(error)) => {
            let delay = context.retry_after(item).max(error.retry_after().unwrap_or_default());
            context.metrics.step_failed(error.category());
            failing::emit(context, item, Some(&error));
            tracing::warn!(?item, %error, ?delay, "step failed, requeued");
            Some(delay)
        }
        None => {
            let delay = context.retry_after(item);
            context.metrics.step_failed(ErrorCategory::Timeout);
            failing::emit(context, item, None);
            tracing::warn!(?item, ?delay, "the API server did not answer in time; the orchestrator repeats the step");
            Some(delay)
        }
    }
}

/// Starts the workers. They work while the queue is not paused.
pub fn start(context: &Arc<Context>) {
    let places = Arc::new(Semaphore::new(WORKERS));
    for _ in 0..MAX_WORKERS {
        let (context, places) = (context.clone(), places.clone());
        tokio::spawn(async move {
            while let Ok(place) = places.acquire().await {
                let item = context.cluster.queue.next().await;
                work(&context, &item, place).await;
                context.cluster.queue.done(&item);
            }
        });
    }
}

/// Reconciles an item. If that takes long, another worker gets the place of this one meanwhile: the API server waits for
/// webhooks, and the items of one namespace must not keep all others waiting.
async fn work(context: &Context, item: &WorkItem, place: SemaphorePermit<'_>) {
    let began = context.clock.passed();
    let mut reconciled = pin!(tokio::time::timeout(RECONCILE_TIMEOUT, reconcile(context, item)));
    let outcome = match tokio::time::timeout(SLOW, &mut reconciled).await {
        Ok(outcome) => outcome,
        Err(_) => {
            drop(place);
            reconciled.await
        }
    };
    context.metrics.reconciled(item.into(), context.clock.since(began));
    if let Some(delay) = requeue_after(context, item, outcome.ok()) {
        context.cluster.queue.add_after(item.clone(), delay);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::OnceLock;

    use flex_core::object::ObjectName;
    use flex_core::run::view::Job;
    use serde_json::json;

    use super::delete_run::tests::context_of;
    use super::*;
    use crate::clock::Clock;
    use crate::state::ClusterState;
    use crate::state::index::WatchChange;
    use crate::state::testing;

    /// Another replica has led in between: what is right for the cache of one term may be wrong in the next.
    #[tokio::test]
    async fn a_reconcile_does_nothing_more_once_another_term_has_begun() {
        for begins in [false, true] {
            let cluster: Arc<OnceLock<ClusterState>> = Arc::default();
            let answer = {
                let cluster = cluster.clone();
                move |_: &str| {
                    if let Some(cluster) = cluster.get().filter(|_| begins) {
                        cluster.begin_term();
                    }
                    (404_u16, json!({ "kind": "Status", "status": "Failure", "code": 404, "reason": "NotFound" }))
                }
            };
            let (context, asked) = context_of(answer, Clock::default());
            assert!(cluster.set(context.cluster.clone()).is_ok());
            let job = Job { has_gate: true, ..testing::job("provision", "a") };
            context.cluster.update(|index| index.change_job(WatchChange::Apply(job)));
            let item = WorkItem::Claim(ObjectName::new("team", "a"));
            assert!(matches!(reconcile(&context, &item).await, Ok(Requeue::Done)));
            let read = "GET /api/v1/namespaces/team/persistentvolumeclaims/a";
            let deleted = "DELETE /apis/batch/v1/namespaces/own/jobs/provision-a-1";
            let expected = if begins { vec![read] } else { vec![read, deleted] };
            assert_eq!(*asked.lock().unwrap(), expected);
        }
    }
}
