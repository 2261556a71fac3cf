//! Delete runs of volumes, of storage that attempts of claims left, and of snapshots.

use flex_contract::cause;
use flex_contract::operation::Operation;

use crate::api::writes::WriteError;
use crate::config::Recipe;
use crate::object::ObjectName;
use crate::reconcile::context::{Context, RunObjects};
use crate::run::failure::LastFailure;
use crate::run::job::{self, RunTarget};
use crate::run::state::{Cause, RunState};

impl Context {
    /// Returns the state of a delete run for an id, by the name of its Job. The run does not count as absent while
    /// another of the same id is in progress: two never run at one time. If a run failed and its Job was deleted, a
    /// reconcile that did not see the record of the failure may have begun it again.
    pub(super) fn delete_state(
        &self,
        operation: Operation,
        id: &str,
        RunObjects { jobs, pods }: RunObjects<'_>,
        name: &str,
    ) -> RunState {
        let is_other_alive = || {
            jobs.iter().any(|job| job.run_labels.operation == operation && !job.is_over)
                || crate::run::view::has_running_pods(pods, operation)
                || self.cluster.index().has_expectation(&job::prefix(operation, id))
        };
        match self.run_state(jobs, pods, name) {
            RunState::NotCached if is_other_alive() => RunState::MayBeRunning,
            state => state,
        }
    }
}

/// Creates the Job of a delete run in the config's namespace, or in the orchestrator's own if that is gone. It leaves
/// out what may be gone with the config, if that prevented the last run. Returns the reason if the Job cannot be
/// created. An error means that the Job may exist, so that no other may take its place.
pub(super) async fn start_delete_job(
    context: &Context,
    recipe: &Recipe,
    request: &flex_contract::request::RunRequest,
    mut target: RunTarget,
    last: Option<&LastFailure>,
) -> Result<Option<Cause>, WriteError> {
    target.without_account |= last.is_some_and(|failure| failure.without_account);
    let own = &context.identity.namespace;
    if target.namespace != *own && !context.identity.config_namespaces.contains(&target.namespace) {
        target = RunTarget { namespace: own.clone(), without_account: true, ..target };
    }
    if target.namespace != *own && has_unseen_job(context, request, &target).await? {
        return Ok(None);
    }
    loop {
        let error = match context.create_job(recipe, job::job(recipe, request, &target)).await {
            Ok(()) => return Ok(None),
            Err(error) => error,
        };
        let gone = match &error {
            WriteError::NotFound { .. } => true,
            // The orchestrator's Role vanished with the namespace, and authorization is checked before the namespace.
            WriteError::Refused { message, .. } => {
                message.contains("being terminated") || message.contains("cannot create resource")
            }
            WriteError::Conflict(_) | WriteError::Failed { .. } => return Err(error),
            WriteError::Foreign(_) | WriteError::Incomplete { .. } => false,
        };
        if gone && target.namespace != *own {
            target = RunTarget { namespace: own.clone(), without_account: true, ..target };
            continue;
        }
        return Ok(Some(Cause::new(cause::JOB_REFUSED, format!("the delete run's Job cannot be created: {error}"))));
    }
}

/// Checks whether a Job of this run is in the orchestrator's own namespace, and no watch has shown it yet. The config's
/// namespace was gone when the orchestrator created that Job, and somebody has created the namespace again. The name of
/// a Job is unique in one namespace only, so that the API server would accept a second Job in the other.
async fn has_unseen_job(
    context: &Context,
    request: &flex_contract::request::RunRequest,
    target: &RunTarget,
) -> Result<bool, WriteError> {
    let name = job::name(request.operation, &request.volume_id, request.attempt, &target.scope);
    let exists = context.writes.read_job(&ObjectName::new(&context.identity.namespace, &name)).await?.is_some();
    if exists {
        context.cluster.index_mut().expect_job(&name);
    }
    Ok(exists)
}
