//! Reconciles pools: observes, decides, and takes the steps.

use std::sync::Arc;
use std::time::Duration;

use flex_contract::quantity::quantity;
use flex_contract::reason;
use flex_core::config::Recipe;
use flex_core::model::object_ref::ObjectRef;
use flex_core::pool::{Decision, Step, decide};
use flex_core::rules::NewEvent;

use crate::api::writes::WriteError;
use crate::reconcile::context::{Context, Requeue};
use crate::state::index::{EXPECTATION_TIMEOUT, UnknownPool};

/// The largest number of steps in a reconcile. The others follow after [`MORE_STEPS_DELAY`].
const MAX_STEPS: usize = 64;
/// The delay before the next steps, if a pool needs more than [`MAX_STEPS`].
const MORE_STEPS_DELAY: Duration = Duration::from_millis(10);
/// The delay after which a pool checks again whether claims still wait.
const CLAIMS_WAIT_RETRY: Duration = Duration::from_secs(2);
/// The delay before a request that the API server refused is created again.
const REFUSED_RETRY: Duration = Duration::from_secs(30);

/// Reconciles the pool of a class.
pub(super) async fn reconcile(context: &Context, class: &str) -> Result<Requeue, WriteError> {
    let observation = context.cluster.index().observe_pool(class);
    context.metrics.ready(context.cluster.index().pooled_counts());
    let observation = match observation {
        Ok(observation) => observation,
        Err(UnknownPool { known_after }) => return Ok(known_after.map_or(Requeue::Done, Requeue::After)),
    };
    // Each step is guarded by its own write, and no other worker has this pool. So the lock is not held until then.
    let decisions = decide(&observation.observed());
    let (claims_wait, recipe) = (observation.waits_for_claims(), observation.recipe);
    // The failure of one step does not stop the others.
    let (mut failed, mut refused) = (None, None);
    let more = decisions.len() > MAX_STEPS;
    let asks = decisions.iter().any(|decision| matches!(decision.step, Step::CreateRequests { .. }));
    for Decision { rule, step, .. } in decisions.into_iter().take(MAX_STEPS) {
        context.decided(&class, rule, &step);
        let done = match step {
            Step::Drain(name) => drain(context, &name).await,
            Step::DeleteRequest(name) => {
                let claim = context.cluster.index().claim(&name);
                match claim {
                    Some(claim) => context.writes.delete_pool_request(&name, &claim.uid).await,
                    None => Ok(()),
                }
            }
            Step::CreateRequests { size, count } => match &recipe {
                Some(recipe) => ask(context, recipe, size, count).await,
                None => Ok(()),
            },
        };
        match done {
            Ok(()) | Err(WriteError::NotFound { .. }) => {}
            Err(error @ WriteError::Refused { .. }) => refused = Some(error),
            Err(error) => failed = Some(error),
        }
    }
    if let (Some(error), Some(recipe)) = (&refused, &recipe) {
        emit_refused(context, recipe, error);
    }
    match (failed, refused) {
        (Some(error), _) => Err(error),
        (None, Some(_)) => Ok(Requeue::After(REFUSED_RETRY)),
        (None, None) if more => Ok(Requeue::After(MORE_STEPS_DELAY)),
        (None, None) if claims_wait => Ok(Requeue::After(CLAIMS_WAIT_RETRY)),
        // If somebody deletes a request before any watch has shown it, there is no event.
        (None, None) if asks || context.cluster.index().expects_pool_request(class) => {
            Ok(Requeue::After(EXPECTATION_TIMEOUT))
        }
        (None, None) => Ok(Requeue::Done),
    }
}

/// Drains a volume. From this write on no claim can get it.
async fn drain(context: &Context, name: &str) -> Result<(), WriteError> {
    let volume = context.cluster.index().volume(name);
    let Some(volume) = volume.filter(|volume| volume.pool_hash().is_some()) else { return Ok(()) };
    context.writes.drain(&volume).await?;
    context.cluster.index_mut().expect_drained(name);
    Ok(())
}

async fn ask(context: &Context, recipe: &Arc<Recipe>, size: u64, count: usize) -> Result<(), WriteError> {
    let names = context.cluster.index_mut().expect_pool_requests(&recipe.class, size, count);
    for (n, name) in names.iter().enumerate() {
        let Err(error) = context.writes.create_pool_request(name, recipe, size).await else { continue };
        // After any other error the request may exist.
        let unsure = usize::from(!matches!(error, WriteError::Refused { .. } | WriteError::NotFound { .. }));
        let mut index = context.cluster.index_mut();
        names[n + unsure..].iter().for_each(|name| index.forget_pool_request(name));
        return Err(error);
    }
    Ok(())
}

/// Emits an event on the config with the pool, where its author looks.
fn emit_refused(context: &Context, recipe: &Recipe, error: &WriteError) {
    let Some(uid) = context.cluster.index().config(&recipe.config).map(|config| config.uid.clone()) else { return };
    let sizes = recipe.pool.iter().flat_map(|pool| pool.sizes.keys()).map(|size| quantity(*size).0);
    let message = format!(
        "the pool of class {} ({}) cannot be filled: Kubernetes refuses what the provisioner writes for it: {error}; the provisioner tries again every {} s",
        recipe.class,
        sizes.collect::<Vec<_>>().join(", "),
        REFUSED_RETRY.as_secs()
    );
    let object = ObjectRef { kind: "ConfigMap", name: recipe.config.clone(), uid };
    context.emit(object, NewEvent { warning: true, reason: reason::POOL_FAILED, message });
}
