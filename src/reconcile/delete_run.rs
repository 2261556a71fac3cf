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
    /// Checks, before the first delete run for a volume begins, that none is in progress which no watch shows: it may be in a
    /// batch, whose name does not follow from the volume. Compares the Jobs of the API with the cache once in a term, and again
    /// when this process does not know what has become of the volume's batch. `namespace` is that of the volume's config. If it
    /// is not certain, the volume is requeued when it is.
    pub(super) async fn has_no_unseen_deletion(
        &self,
        namespace: &str,
        id: &str,
        volume: &str,
    ) -> Result<bool, WriteError> {
        let is_known = self.cluster.index().has_all_deletions(namespace, id);
        if !is_known {
            self.compare_deletions(namespace).await?;
        }
        let mut index = self.cluster.index_mut();
        let is_sure = index.has_all_deletions(namespace, id);
        if !is_sure {
            index.await_deletions(namespace, volume);
        }
        Ok(is_sure)
    }

    /// Compares the delete runs of the API with the cache, unless another worker does, or the cache has just lacked some.
    async fn compare_deletions(&self, namespace: &str) -> Result<(), WriteError> {
        // Each list reads all Jobs. One is enough for all that wait, and they hold no worker meanwhile.
        let Ok(_guard) = self.comparing_deletions.try_lock() else { return Ok(()) };
        let (unexpected, mut cached) = {
            let index = self.cluster.index();
            if index.has_just_missed_deletions(namespace) {
                return Ok(());
            }
            (index.unexpected_deletions(namespace), index.job_uids())
        };
        let own = self.identity.namespace.as_str();
        let mut there = self.writes.delete_jobs(own).await?;
        if namespace != own && self.identity.config_namespaces.iter().any(|served| served == namespace) {
            there.extend(self.writes.delete_jobs(namespace).await?);
        }
        self.cluster.update(|index| {
            // The watch may have shown the end of a Job since.
            cached.extend(index.job_uids());
            let missing = there.into_iter().filter(|(uid, _)| !cached.contains(uid)).map(|(_, name)| name);
            let missing: Vec<String> = missing.collect();
            if missing.is_empty() {
                return index.note_all_deletions(namespace, &unexpected);
            }
            if let Some(message) = index.note_missing_deletions(namespace, &missing) {
                tracing::warn!("{message}");
            }
            Vec::new()
        });
        Ok(())
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
    use std::sync::{Arc, Mutex, OnceLock};

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
    use crate::state::index::{Index, WatchChange};
    use crate::state::missing::LOOK_AGAIN;
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

    /// Returns the answer to a list of Jobs: the Job of a batch that deletes, in the orchestrator's own namespace, and no other.
    fn one_batch(path: &str) -> (u16, Value) {
        let labels = json!({ names::LABEL_INSTANCE: default_identity().instance, names::LABEL_OPERATION: "delete" });
        let batch = json!({
            "apiVersion": "meta.k8s.io/v1", "kind": "PartialObjectMetadata",
            "metadata": { "name": "batch", "namespace": "own", "uid": "b", "labels": labels },
        });
        let items = if path.contains("/own/") { json!([batch]) } else { json!([]) };
        let metadata = json!({ "resourceVersion": "1" });
        let list = json!({
            "apiVersion": "meta.k8s.io/v1", "kind": "PartialObjectMetadataList", "metadata": metadata, "items": items,
        });
        (200, list)
    }

    fn batch() -> Job {
        Job { name: ObjectName::new("own", "batch"), uid: "b".into(), ..Job::default() }
    }

    /// A former leader may have put the volume into a batch.
    #[tokio::test]
    async fn the_first_deletion_of_a_term_waits_until_the_cache_has_all_delete_runs() {
        let hands = ManualClock::default();
        let (context, asked) = context_of(one_batch, Clock::new(hands.clone()));
        let lists = || {
            let asked = std::mem::take(&mut *asked.lock().unwrap());
            let namespaces = asked.iter().filter_map(|request| request.split('/').nth(5).map(str::to_owned));
            namespaces.collect::<Vec<_>>().join(" ")
        };
        let is_sure = async |namespace: &str, id: &str| {
            context.has_no_unseen_deletion(namespace, id, &format!("pvc-{id}")).await.unwrap()
        };
        let comparing = context.comparing_deletions.try_lock().unwrap();
        assert!(!is_sure("admin", "a").await && lists().is_empty(), "another worker asks");
        drop(comparing);
        assert!(!is_sure("admin", "a").await);
        assert_eq!(lists(), "own admin");
        context.cluster.update(|index| index.change_job(WatchChange::Apply(batch())));
        assert!(!is_sure("admin", "a").await && lists().is_empty(), "many wait");
        hands.pass(LOOK_AGAIN);
        assert!(is_sure("admin", "a").await);
        assert_eq!(lists(), "own admin");
        assert!(is_sure("admin", "z").await && lists().is_empty(), "once in a term");
        assert!(is_sure("gone", "z").await);
        assert_eq!(lists(), "own", "its runs are in no namespace that is not served");
        context.cluster.index_mut().begin_term();
        assert!(is_sure("admin", "z").await && !lists().is_empty());
    }

    /// In a burst, some run ends at any time.
    #[tokio::test]
    async fn a_delete_run_whose_end_the_watch_shows_during_the_comparison_is_not_missing() {
        let cluster: Arc<OnceLock<ClusterState>> = Arc::default();
        let answer = {
            let cluster = cluster.clone();
            move |path: &str| {
                let gone = |index: &mut Index| index.change_job(WatchChange::Delete(batch().name));
                cluster.get().into_iter().for_each(|cluster| cluster.update(gone));
                one_batch(path)
            }
        };
        let (context, _) = context_of(answer, Clock::default());
        context.cluster.update(|index| index.change_job(WatchChange::Apply(batch())));
        assert!(cluster.set(context.cluster.clone()).is_ok());
        assert!(context.has_no_unseen_deletion("admin", "a", "pvc-a").await.unwrap());
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
