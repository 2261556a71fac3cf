//! The reconcilers.
//!
//! [`start`] starts the workers. A worker takes an item from the queue, and [`pass`] calls the reconciler of the item.
//! The reconciler observes the cache, calls the pure decision, and takes its step.

mod batch;
mod capacity;
pub mod claim;
pub mod config;
mod context;
mod data_source;
mod delete_run;
pub mod findings;
mod memory;
mod orphaned_runs;
mod pool;
mod snapshot;
mod sync_probe;
pub mod volume;

use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt;
use futures::future::BoxFuture;

pub use self::context::{Context, Pass};
use crate::api::events::About;
use crate::api::writes::WriteError;
use crate::state::index::{BEHIND, EXPECTED, Key};

/// The number of items that are reconciled at one time.
const WORKERS: usize = 64;
/// The longest time of a reconcile with all its steps. Then it is requeued.
const PATIENCE: Duration = Duration::from_secs(60);
/// The delay of an item in the fair queue. Normally it is requeued when its turn comes; this is for the case that items
/// before it have left.
const IN_LINE: Duration = Duration::from_secs(30);

/// Reconciles a work item. The future is boxed, so that it is compiled here only, and not also where it is awaited.
pub fn pass<'a>(context: &'a Context, key: &'a Key) -> BoxFuture<'a, Result<Pass, WriteError>> {
    if context.shared.index().is_behind(key) {
        return std::future::ready(Ok(Pass::Behind)).boxed();
    }
    match key {
        Key::Configs => config::pass(context).boxed(),
        Key::Claim(name) => claim::pass(context, name).boxed(),
        Key::Volume(name) => volume::pass(context, name).boxed(),
        Key::Batch(name) => batch::pass(context, name).boxed(),
        Key::Snapshot(name) => snapshot::pass(context, name).boxed(),
        Key::Content(name) => snapshot::content::pass(context, name).boxed(),
        Key::Markers => sync_probe::pass(context).boxed(),
        Key::Pool(class) => pool::pass(context, class).boxed(),
        Key::Orphans => findings::pass(context).boxed(),
        Key::Capacity => capacity::pass(context).boxed(),
    }
}

/// Emits an event about a refused write, where its reader looks. The write is repeated, but somebody must act.
fn tell_refused(context: &Context, key: &Key, error: &WriteError) {
    let index = context.shared.index();
    let (about, reason) = match key {
        Key::Claim(name) => match index.claim(name) {
            Some(claim) => (About::claim(&claim), contract::names::reason::PROVISIONING_FAILED),
            None => return,
        },
        Key::Volume(name) => match index.volume(name) {
            Some(volume) => (About::volume(&volume), contract::names::reason::VOLUME_FAILED_DELETE),
            None => return,
        },
        Key::Snapshot(name) => match index.snapshot(name) {
            Some(snapshot) => (About::snapshot(&snapshot), contract::names::reason::SNAPSHOT_FAILED),
            None => return,
        },
        Key::Content(name) => match index.content(name) {
            Some(content) => (About::content(&content), contract::names::reason::SNAPSHOT_FAILED),
            None => return,
        },
        Key::Configs | Key::Batch(_) | Key::Markers | Key::Pool(_) | Key::Orphans | Key::Capacity => return,
    };
    context.events.tell(about, true, reason, format!("Kubernetes refuses a write of the provisioner: {error}"));
}

/// Returns the latest time of the next reconcile after one of an item. `None` as its outcome means that it timed
/// out because the API server did not answer.
pub fn again(context: &Context, key: &Key, outcome: Option<Result<Pass, WriteError>>) -> Option<Duration> {
    match outcome {
        Some(Ok(pass)) => {
            if !matches!(pass, Pass::Behind) {
                context.succeeded(key);
            }
            match pass {
                Pass::Done => None,
                Pass::Behind => Some(BEHIND),
                Pass::After(delay) => Some(delay),
                Pass::Started => Some(EXPECTED),
                Pass::InLine => Some(IN_LINE),
            }
        }
        // This happens all the time: somebody else wrote first. The event of that write requeues the item; the
        // delay is for the case that the event came before the refusal.
        Some(Err(WriteError::Conflict(what))) => {
            tracing::debug!(what, "changed meanwhile");
            context.metrics.errors("conflict");
            Some(Duration::from_millis(200))
        }
        Some(Err(error)) => {
            let delay = context.retry_after(key).max(error.retry_after().unwrap_or_default());
            context.metrics.errors(error.category());
            if matches!(error, WriteError::Refused { .. } | WriteError::Foreign(_)) {
                tell_refused(context, key, &error);
            }
            tracing::warn!(?key, %error, ?delay, "a step failed and is repeated");
            Some(delay)
        }
        None => {
            let delay = context.retry_after(key);
            context.metrics.errors("timeout");
            tracing::warn!(?key, ?delay, "the API server did not answer in time; the step is repeated");
            Some(delay)
        }
    }
}

/// Starts the workers. They work while the queue is not paused.
pub fn start(context: &Arc<Context>) {
    for _ in 0..WORKERS {
        let context = context.clone();
        tokio::spawn(async move {
            loop {
                let key = context.shared.queue.next().await;
                work(&context, &key).await;
                context.shared.queue.done(&key);
            }
        });
    }
}

async fn work(context: &Context, key: &Key) {
    let outcome = tokio::time::timeout(PATIENCE, pass(context, key)).await.ok();
    if let Some(delay) = again(context, key, outcome) {
        context.shared.queue.add_after(key.clone(), delay);
    }
}
