//! Delete runs of volumes, of storage that attempts of claims left, and of snapshots.

use std::time::Duration;

use flex_contract::cause;
use flex_contract::operation::Operation;
use flex_core::config::Recipe;
use flex_core::object::ObjectName;
use flex_core::run::failure::LastFailure;
use flex_core::run::job::{self, RunTarget};
use flex_core::run::state::{Cause, RunState};

use crate::api::writes::WriteError;
use crate::reconcile::context::{Context, RunObjects};

/// The time until the Jobs of the API are compared with the cache again, when the cache lacked some.
pub(super) const COMPARE_AGAIN: Duration = Duration::from_secs(1);

impl Context {
    /// Checks, before the first delete run for a volume begins, that none is in progress which no watch shows: it may be in a
    /// batch, whose name does not follow from the volume. Compares the Jobs of the API with the cache once in a term, and
    /// again for a volume whose first run this process has begun in the term.
    pub(super) async fn has_no_unseen_deletion(&self, id: &str) -> Result<bool, WriteError> {
        let is_known = || self.cluster.index().has_all_deletions(id);
        if is_known() {
            return Ok(true);
        }
        // Only one at a time.
        let mut missed = self.comparing_deletions.lock().await;
        if is_known() {
            return Ok(true);
        }
        // Many wait, and each list reads all Jobs.
        if missed.is_some_and(|at| self.clock.since(at) < COMPARE_AGAIN) {
            return Ok(false);
        }
        for namespace in self.identity.namespaces() {
            let there = self.writes.delete_jobs(namespace).await?;
            let cached = self.cluster.index().job_uids();
            if !there.iter().all(|uid| cached.contains(uid)) {
                *missed = Some(self.clock.passed());
                return Ok(false);
            }
        }
        self.cluster.index_mut().note_all_deletions(id);
        Ok(true)
    }

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

    use flex_contract::names;
    use flex_core::run::job::ContentRef;
    use flex_core::run::request::{AttemptStart, of_class};
    use flex_core::run::view::Job;
    use http::{Request, Response};
    use kube::Client;
    use kube::client::Body;
    use serde_json::{Value, json};

    use super::*;
    use crate::api::events::{EventRecorder, Reporter};
    use crate::api::writes::{Binding, Writes};
    use crate::clock::Clock;
    use crate::metrics::Metrics;
    use crate::state::ClusterState;
    use crate::state::index::WatchChange;
    use crate::state::testing::{ManualClock, default_identity, recipe};

    /// The requests that an API server has got.
    type Asked = Arc<Mutex<Vec<String>>>;

    /// Returns a context whose API server has one object, at this path.
    pub(in crate::reconcile) fn context(there: String) -> (Arc<Context>, Asked) {
        let answer = move |path: &str| match path == there {
            true => (200_u16, json!({ "metadata": { "name": "there" } })),
            false => (404, json!({ "kind": "Status", "status": "Failure", "code": 404, "reason": "NotFound" })),
        };
        context_of(answer, Clock::default())
    }

    /// Returns a context whose API server answers a request at a path with this code and body.
    pub(in crate::reconcile) fn context_of(
        answer: impl Fn(&str) -> (u16, Value) + Send + 'static,
        clock: Clock,
    ) -> (Arc<Context>, Asked) {
        let asked = Asked::default();
        let answer = {
            let asked = asked.clone();
            move |request: Request<Body>| {
                let path = request.uri().path();
                asked.lock().unwrap().push(format!("{} {path}", request.method()));
                let (code, body) = answer(path);
                let response = Response::builder().status(code).body(Body::from(body.to_string().into_bytes()));
                async move { Ok::<_, Infallible>(response.unwrap()) }
            }
        };
        let identity = default_identity();
        let client = Client::new(tower::service_fn(answer), "own");
        let cluster = ClusterState::new(identity.clone(), clock.clone());
        let (events, _) =
            EventRecorder::start(client.clone(), Reporter::new(&identity.provisioner, "me"), clock.clone());
        let writes = Writes::new(client, identity.clone(), Binding::Direct);
        let metrics = Metrics::default();
        (Context::new(identity, cluster, writes, events, metrics, String::new(), clock), asked)
    }

    /// A former leader may have put the volume into a batch.
    #[tokio::test]
    async fn the_first_deletion_of_a_term_waits_until_the_cache_has_all_delete_runs() {
        let list = |items: Value| {
            let metadata = json!({ "resourceVersion": "1" });
            json!({
                "apiVersion": "meta.k8s.io/v1", "kind": "PartialObjectMetadataList", "metadata": metadata, "items": items,
            })
        };
        let labels = json!({ names::LABEL_INSTANCE: default_identity().instance, names::LABEL_OPERATION: "delete" });
        let batch = json!({
            "apiVersion": "meta.k8s.io/v1", "kind": "PartialObjectMetadata",
            "metadata": { "name": "batch", "namespace": "own", "uid": "b", "labels": labels },
        });
        let (of_own, of_admin) = (list(json!([batch])), list(json!([])));
        let answer =
            move |path: &str| (200_u16, if path.contains("/own/") { of_own.clone() } else { of_admin.clone() });
        let hands = ManualClock::default();
        let (context, asked) = context_of(answer, Clock::new(hands.clone()));
        let is_asked = || !std::mem::take(&mut *asked.lock().unwrap()).is_empty();
        let is_sure = async |id: &str| context.has_no_unseen_deletion(id).await.unwrap();
        assert!(!is_sure("a").await && is_asked());
        let name = ObjectName::new("own", "batch");
        context
            .cluster
            .update(|index| index.change_job(WatchChange::Apply(Job { name, uid: "b".into(), ..Job::default() })));
        assert!(!is_sure("a").await && !is_asked(), "many wait");
        hands.pass(COMPARE_AGAIN);
        assert!(is_sure("a").await && is_asked());
        assert!(is_sure("z").await && !is_asked(), "once in a term");
        context.cluster.index_mut().begin_deletion("a");
        assert!(is_sure("z").await && !is_asked());
        assert!(is_sure("a").await && is_asked(), "its run may be in the cache of no watch");
        context.cluster.index_mut().begin_term();
        assert!(is_sure("z").await && is_asked());
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
