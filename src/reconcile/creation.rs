//! Creates the Jobs of runs, and the records of those that make volumes.

use std::sync::Arc;

use flex_contract::names;
use flex_contract::operation::Operation;
use flex_core::config::Recipe;
use flex_core::model::claim::Claim;
use flex_core::model::record::{Record, record_name};
use flex_core::object::ObjectName;
use flex_core::run::job;
use flex_core::run::script::{Texts, complete};
use flex_core::run::start_gate;
use k8s_openapi::api::batch::v1 as api;

use crate::api::writes::{Armed, WriteError};
use crate::reconcile::context::Context;
use crate::state::index::Index;

/// The creation of a Job. It is in progress until this value is dropped, also if the reconcile is abandoned.
struct Creation<'a> {
    context: &'a Context,
    job: &'a ObjectName,
}

impl Drop for Creation<'_> {
    fn drop(&mut self) {
        self.context.cluster.update(|index| index.end_creation(self.job));
    }
}

/// The creation of a record. It is in progress until this value is dropped, also if the reconcile is abandoned.
struct Arming<'a> {
    context: &'a Context,
    name: String,
}

impl Drop for Arming<'_> {
    fn drop(&mut self) {
        self.context.cluster.update(|index| index.set_record_in_creation(&self.name, false));
    }
}

impl Context {
    /// Creates the Job of a run, with the text of its script, the time of the request, the cluster and the gate of its pods. Until
    /// the watch shows the Job, the run counts as one that may be running. If it makes volumes for claims, a record follows, and
    /// the run begins only after both answers.
    pub(super) async fn create_job(&self, recipe: &Recipe, job: api::Job, claims: &[Claim]) -> Result<(), WriteError> {
        let name = ObjectName::of(&job.metadata);
        // The expectation begins before the Job exists, because the watch may be faster than the answer.
        self.cluster.index_mut().begin_creation(&name);
        let _creation = Creation { context: self, job: &name };
        let created = match self.completed(recipe, job) {
            Ok(job) => self.writes.create_job(&job).await,
            Err(error) => Err(error),
        };
        // After any other error the Job may exist.
        use WriteError::{Foreign, Incomplete, NotFound, Refused};
        if matches!(created, Err(Refused { .. } | NotFound { .. } | Foreign(_) | Incomplete { .. })) {
            self.cluster.update(|index| index.cancel_expectation(&name.name));
        }
        let Some(uid) = created? else { return Ok(()) };
        // The gate closes a Job that is not answered. Under a record that is armed, something may have run.
        if !may_begin(&self.cluster.index(), claims) {
            return Ok(());
        }
        let record = if claims.is_empty() { None } else { Some(self.arm_record(&name.name, claims).await?) };
        {
            let mut index = self.cluster.index_mut();
            if may_begin(&index, claims) {
                index.record_answer(uid);
                return Ok(());
            }
        }
        // Nothing has run under a new record, and it has taken no other's place. A claim of the same name need not wait until that is undone.
        match record {
            Some(Armed { record, is_new: true }) => self.writes.delete_record(&record).await,
            _ => Ok(()),
        }
    }

    /// Adds to the Job of a run what its recipe does not say.
    fn completed(&self, recipe: &Recipe, mut job: api::Job) -> Result<api::Job, WriteError> {
        let script = recipe.script.as_deref().and_then(|hash| self.cluster.index().script(hash));
        let texts = Texts { script: script.as_deref(), shell_image: self.identity.shell_image.as_deref() };
        complete(&mut job, recipe, texts).map_err(|message| {
            let what = format!("Job {}", job.metadata.name.as_deref().unwrap_or_default());
            WriteError::Incomplete { what, message }
        })?;
        let annotations = job.metadata.annotations.get_or_insert_default();
        annotations.insert(names::JOB_REQUESTED.to_owned(), self.timestamp());
        if !self.identity.cluster.is_empty() {
            annotations.insert(names::CLUSTER.to_owned(), self.identity.cluster.clone());
        }
        start_gate::add(&mut job);
        Ok(job)
    }

    /// Records for whom the run of a Job is. From then on it may begin.
    pub(super) async fn arm_record(&self, job: &str, claims: &[Claim]) -> Result<Armed, WriteError> {
        let (name, data, is_first) = {
            let mut index = self.cluster.index_mut();
            // The new record may take the place of others.
            let is_first = claims.iter().all(|claim| index.unsettled_records_of(&claim.uid).is_empty());
            let kept: Vec<_> = claims.iter().map(|claim| claim.clone().kept(index.metadata_keys(claim))).collect();
            let data = Record::data(kept.iter());
            let name = record_name(job, &data);
            index.set_record_in_creation(&name, true);
            (name, data, is_first)
        };
        let _arming = Arming { context: self, name };
        let armed = self.writes.arm_record(job, data, &self.timestamp()).await.map_err(as_own)?;
        self.cluster.update(|index| index.record_answered(armed.record.clone()));
        Ok(Armed { is_new: armed.is_new && is_first, ..armed })
    }
}

/// Checks whether the run of a Job for these claims may begin: one of them is still there, and no claim that has taken the name of
/// another is being provisioned. The quota of a claim that is gone was free for a moment. What a run makes for it is deleted, also
/// by a script that knows only its name.
fn may_begin(index: &Index, claims: &[Claim]) -> bool {
    let (live, gone): (Vec<&Claim>, Vec<&Claim>) = claims.iter().partition(|claim| index.is_live(&claim.uid));
    let has_begun = |other: Arc<Claim>| {
        other.own_stamp().is_some() || index.has_expectation(&job::prefix(Operation::Provision, &other.uid))
    };
    let is_replaced = |claim: &&Claim| index.claim(&claim.api_name()).is_some_and(has_begun);
    claims.is_empty() || !live.is_empty() && !gone.iter().any(is_replaced)
}

/// Returns the error of a record as one that does not count as a refusal of the run's Job for ever: the record is tried again.
fn as_own(error: WriteError) -> WriteError {
    match error {
        WriteError::Refused { what, message, .. } | WriteError::NotFound { what, message } => {
            WriteError::Refused { what, message, invalid: false }
        }
        WriteError::Foreign(what) => WriteError::Refused {
            what,
            message: "it exists already and belongs to somebody else; remove it".into(),
            invalid: false,
        },
        error => error,
    }
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;
    use std::sync::{Mutex, OnceLock};

    use flex_contract::request::RunRequest;
    use flex_core::model::claim::Stamp;
    use flex_core::run::job::RunTarget;
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
    use crate::state::index::WatchChange;
    use crate::state::testing::{claim, default_identity, recipe};

    /// Creates the Job of a run for claims, of which these are there. Another claim is shown while the record is armed. Returns
    /// whether its pods may be opened, and what the API server was asked.
    async fn created(there: &[&Claim], of: &[Claim], meanwhile: Option<&Claim>) -> (bool, Vec<String>) {
        let asked: Arc<Mutex<Vec<String>>> = Arc::default();
        let cache: Arc<OnceLock<ClusterState>> = Arc::default();
        let answer = {
            let (asked, cache, meanwhile) = (asked.clone(), cache.clone(), meanwhile.cloned());
            move |request: Request<Body>| {
                if request.method() == "PATCH"
                    && let (Some(cluster), Some(claim)) = (cache.get(), meanwhile.clone())
                {
                    cluster.update(|index| index.change_claim(WatchChange::Apply(claim)));
                }
                let path = request.uri().path();
                let (kind, name) = match path.split_once("/controllerrevisions/") {
                    Some((_, name)) => ("controllerrevisions", name.to_owned()),
                    None => (path.rsplit('/').next().unwrap_or_default(), String::new()),
                };
                asked.lock().unwrap().push(format!("{} {kind}", request.method()));
                let body = json!({ "metadata": {
                    "namespace": "own", "name": name, "uid": kind, "resourceVersion": "2",
                    "annotations": { names::ARMED: kind },
                } });
                let response = Response::new(Body::from(body.to_string().into_bytes()));
                async move { Ok::<_, Infallible>(response) }
            }
        };
        let (identity, clock) = (default_identity(), Clock::default());
        let client = Client::new(tower::service_fn(answer), "own");
        let cluster = ClusterState::new(identity.clone(), clock.clone());
        assert!(cache.set(cluster.clone()).is_ok());
        let reporter = Reporter::new(&identity.provisioner, "me");
        let (events, _) = EventRecorder::start(client.clone(), reporter, clock.clone());
        let writes = Writes::new(client, identity.clone(), Binding::Direct).with_cache(&cluster);
        let context = Context::new(identity, cluster, writes, events, Metrics::default(), String::new(), clock);
        for claim in there {
            context.cluster.update(|index| index.change_claim(WatchChange::Apply((*claim).clone())));
        }
        let recipe = recipe(&[]);
        let start = AttemptStart { attempt: 1, ts: String::new() };
        let request = RunRequest {
            volume_id: "batch".into(),
            ..of_class(Operation::Provision, &recipe, &default_identity(), "", start)
        };
        let target = RunTarget { namespace: "own".into(), ..RunTarget::default() };
        context.create_job(&recipe, job::job(&recipe, &request, &target), of).await.unwrap();
        let asked = asked.lock().unwrap().clone();
        (context.cluster.index_mut().begin_opening("jobs", "pod"), asked)
    }

    /// Else one user could delay the claims of all others in a batch.
    #[tokio::test]
    async fn a_run_begins_if_one_of_its_claims_is_still_there() {
        let (a, b) = (claim("team", "a", true), claim("team", "b", true));
        let armed = ["POST jobs", "POST controllerrevisions", "PATCH controllerrevisions"].map(str::to_owned).to_vec();
        let both = [a.clone(), b.clone()];
        assert_eq!(created(&[&a, &b], &both, None).await, (true, armed.clone()));
        assert_eq!(created(&[&b], &both, None).await, (true, armed));
        let job = vec!["POST jobs".to_owned()];
        assert_eq!(created(&[], &both, None).await, (false, job.clone()), "nothing is armed for nobody");
        assert_eq!(created(&[], &[], None).await, (true, job), "a run for no claim");
    }

    /// Its storage could have the same path. Nothing has run under the record of a Job that stays closed.
    #[tokio::test]
    async fn no_run_begins_for_a_claim_beside_the_attempt_for_another_of_its_name() {
        let (a, b) = (claim("team", "a", true), claim("team", "b", true));
        let stamp = a.stamp.clone().map(|stamp| Stamp { claim_uid: "another".into(), ..stamp });
        let another = Claim { uid: "another".into(), stamp, ..a.clone() };
        let new = Claim { stamp: None, ..another.clone() };
        let both = [a.clone(), b.clone()];
        assert_eq!(created(&[&another, &b], &both, None).await, (false, vec!["POST jobs".to_owned()]));
        let (all, first) = (&both[..], &both[..1]);
        for (of, meanwhile, begins) in [(all, &another, false), (all, &new, true), (first, &new, false)] {
            let (is_answered, asked) = created(&[&a, &b], of, Some(meanwhile)).await;
            assert_eq!(is_answered, begins);
            let is_deleted = asked.last().is_some_and(|last| last == "DELETE controllerrevisions");
            assert_eq!(is_deleted, !begins, "{asked:?}");
        }
    }
}
