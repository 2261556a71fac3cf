//! Delete runs of volumes, of storage that attempts of claims left, and of snapshots.

use flex_contract::cause;
use flex_contract::operation::Operation;
use flex_core::config::Recipe;
use flex_core::object::ObjectName;
use flex_core::run::failure::LastFailure;
use flex_core::run::job::{self, RunTarget};
use flex_core::run::state::{Cause, RunState};

use crate::api::writes::WriteError;
use crate::reconcile::context::{Context, RunObjects};

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
                || flex_core::run::view::has_running_pods(pods, operation)
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
        let error = match context.create_job(recipe, job::job(recipe, request, &target), &[]).await {
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
    let name = job::name_of(request, target);
    let exists = context.writes.read_job(&ObjectName::new(&context.identity.namespace, &name)).await?.is_some();
    if exists {
        context.cluster.index_mut().expect_job(&name);
    }
    Ok(exists)
}

#[cfg(test)]
pub(super) mod tests {
    use std::convert::Infallible;
    use std::sync::{Arc, Mutex};

    use flex_core::run::job::ContentRef;
    use flex_core::run::request::{AttemptStart, of_class};
    use http::{Request, Response};
    use kube::Client;
    use kube::client::Body;
    use serde_json::json;

    use super::*;
    use crate::api::events::{EventRecorder, Reporter};
    use crate::api::writes::{Binding, Writes};
    use crate::clock::Clock;
    use crate::metrics::Metrics;
    use crate::state::ClusterState;
    use crate::state::testing::{default_identity, recipe};

    /// The requests that an API server has got.
    type Asked = Arc<Mutex<Vec<String>>>;

    /// Returns a context whose API server has one object, at this path.
    pub(in crate::reconcile) fn context(there: String) -> (Arc<Context>, Asked) {
        let asked = Asked::default();
        let answer = {
            let asked = asked.clone();
            move |request: Request<Body>| {
                let path = request.uri().path();
                asked.lock().unwrap().push(format!("{} {path}", request.method()));
                let (code, body) = match path == there {
                    true => (200_u16, json!({ "metadata": { "name": "there" } })),
                    false => (404, json!({ "kind": "Status", "status": "Failure", "code": 404, "reason": "NotFound" })),
                };
                let response = Response::builder().status(code).body(Body::from(body.to_string().into_bytes()));
                async move { Ok::<_, Infallible>(response.unwrap()) }
            }
        };
        let (identity, clock) = (default_identity(), Clock::default());
        let client = Client::new(tower::service_fn(answer), "own");
        let cluster = ClusterState::new(identity.clone(), clock.clone());
        let (events, _) =
            EventRecorder::start(client.clone(), Reporter::new(&identity.provisioner, "me"), clock.clone());
        let writes = Writes::new(client, identity.clone(), Binding::Direct);
        let metrics = Metrics::default();
        (Context::new(identity, cluster, writes, events, metrics, String::new(), clock), asked)
    }

    /// Somebody has created the config's namespace again. The id of a snapshot's Jobs is not that of its source volume.
    #[tokio::test]
    async fn a_run_in_the_orchestrators_namespace_that_no_watch_has_shown_gets_no_second_job() {
        let recipe = recipe(&[]);
        let content = ContentRef { name: "content".into(), id: "snapshot-id".into(), policy: None };
        let runs = [
            (Operation::Delete, None, "delete-volume-id-3-"),
            (Operation::DeleteSnapshot, Some(content), "delete-snapshot-snapshot-id-3-"),
        ];
        for (operation, content, prefix) in runs {
            let start = AttemptStart { attempt: 3, ts: String::new() };
            let request = flex_contract::request::RunRequest {
                volume_id: "volume-id".into(),
                ..of_class(operation, &recipe, &default_identity(), "", start)
            };
            let target =
                RunTarget { namespace: "admin".into(), scope: "scope".into(), content, ..RunTarget::default() };
            let name = job::job(&recipe, &request, &target).metadata.name.unwrap();
            assert!(name.starts_with(prefix), "{name}");
            let path = format!("/apis/batch/v1/namespaces/own/jobs/{name}");
            let (context, asked) = context(path.clone());
            assert_eq!(start_delete_job(&context, &recipe, &request, target, None).await.unwrap(), None);
            assert_eq!(*asked.lock().unwrap(), [format!("GET {path}")], "no Job is created");
            assert!(context.cluster.index().is_expected(&name), "the run counts as one that may be running");
        }
    }
}
