//! Fixtures for tests of the state: a clock that a test sets, facts without an index, and objects.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use flex_contract::exit::Reaction;
use flex_contract::names;
use flex_contract::operation::Operation;
use flex_core::batch::{Member, MemberObject};
use flex_core::config::Recipe;
use flex_core::config::classes::{Config, Identity};
use flex_core::config::effective_config::EffectiveConfig;
use flex_core::model::claim::Claim;
use flex_core::model::record::{Record, record_name};
use flex_core::model::volume::Volume;
use flex_core::object::ObjectName;
use flex_core::run::failure::LastFailure;
use flex_core::run::state::Cause;
use flex_core::run::view::{ContainerEnd, Job, Pod, RunLabels};
use futures::FutureExt;
use futures::future::BoxFuture;
use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim};
use serde_json::json;

use crate::clock::{Clock, Time};
use crate::state::facts::Facts;
use crate::state::watch_change::WatchChange;

/// The class of all objects here.
pub const CLASS: &str = "c";

/// One GiB in bytes.
pub const GI: u64 = 1 << 30;

/// A clock that a test sets.
#[derive(Clone, Debug, Default)]
pub struct ManualClock(Arc<Mutex<Duration>>);

impl ManualClock {
    /// Lets this time pass.
    pub fn pass(&self, time: Duration) {
        *self.0.lock().unwrap() += time;
    }
}

impl Time for ManualClock {
    fn wall(&self) -> jiff::Timestamp {
        jiff::Timestamp::from_second(self.passed().as_secs().cast_signed()).unwrap()
    }

    fn passed(&self) -> Duration {
        *self.0.lock().unwrap()
    }

    fn sleep(&self, _: Duration) -> BoxFuture<'static, ()> {
        futures::future::pending().boxed()
    }
}

/// Returns the names of the orchestrator.
pub fn identity() -> Identity {
    Identity {
        provisioner: "p".into(),
        plugin: "p".into(),
        instance: "i".into(),
        namespace: "own".into(),
        config_namespaces: vec!["own".into()],
        shell_image: None,
        cluster: String::new(),
    }
}

/// Returns the default names of the orchestrator, with configs in the namespace `admin`.
pub fn default_identity() -> Identity {
    Identity {
        provisioner: names::DEFAULT_PROVISIONER.into(),
        plugin: names::DEFAULT_PLUGIN.into(),
        instance: names::DEFAULT_INSTANCE.into(),
        namespace: "own".into(),
        config_namespaces: vec!["admin".into()],
        shell_image: None,
        cluster: String::new(),
    }
}

/// Returns facts without any object, and their clock.
pub fn facts() -> (ManualClock, Facts) {
    let clock = ManualClock::default();
    (clock.clone(), Facts::new(identity(), Clock::new(clock)))
}

/// Returns a config of [`CLASS`] with additional keys.
pub fn config(keys: &[(&str, &str)]) -> Config {
    let mut data: BTreeMap<String, String> =
        [("image", "x"), ("plugin-name", "p")].map(|(k, v)| (k.to_owned(), v.to_owned())).into();
    data.extend(keys.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())));
    Config { name: ObjectName::new("own", CLASS), class: Some(CLASS.into()), data, ..Config::default() }
}

/// Adds a config of [`CLASS`] to the facts. Returns the recipe of the class.
pub fn serve(facts: &mut Facts, keys: &[(&str, &str)]) -> Arc<Recipe> {
    facts.configs.change_config(WatchChange::Apply(config(keys)), Duration::ZERO);
    facts.configs.derive_classes(&facts.identity, &BTreeMap::new(), Duration::ZERO);
    facts.configs.recipe_of(CLASS).expect("the config is valid").clone()
}

/// Returns a recipe of [`CLASS`] that no config serves.
pub fn recipe(keys: &[(&str, &str)]) -> Arc<Recipe> {
    let data = [("image", "x")].iter().chain(keys).map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect();
    let config = ObjectName::new("own", CLASS);
    Arc::new(EffectiveConfig { config, class: CLASS.into(), data, ..EffectiveConfig::default() }.recipe().unwrap())
}

/// Returns a claim of 1 GiB, stamped or not.
pub fn claim(namespace: &str, name: &str, stamped: bool) -> Claim {
    let uid = format!("uid-{namespace}-{name}");
    let stamp = json!({ names::CLAIM_UID: uid, names::ATTEMPT: "1" });
    let claim = json!({
        "metadata": {
            "name": name, "namespace": namespace, "uid": uid, "annotations": if stamped { stamp } else { json!({}) },
        },
        "spec": { "storageClassName": CLASS, "resources": { "requests": { "storage": "1Gi" } } },
    });
    Claim::from(&serde_json::from_value::<PersistentVolumeClaim>(claim).unwrap())
}

/// Returns a claim in the namespace `team` whose first attempt failed at this time, in seconds since 1970.
pub fn failed_claim(name: &str, reaction: Reaction, at: i64) -> Claim {
    let cause = Cause::new("ExitCode", "exit code 75: try again later");
    let last_failure = Some(LastFailure::new(Operation::Provision, 1, at, &cause, reaction));
    Claim { last_failure, ..claim("team", name, true) }
}

/// Returns the armed record of the stamped attempt for a claim. Its name is its UID.
pub fn record(claim: &Claim) -> Record {
    let attempt = claim.own_stamp().map_or(0, |stamp| stamp.attempt);
    let data = Record::data(std::iter::once(claim));
    let name = record_name(&format!("provision-{attempt}"), &data);
    let metadata = json!({
        "namespace": "own", "name": name, "uid": name, "resourceVersion": "1", "annotations": { names::ARMED: name },
    });
    Record::read(&serde_json::from_value(metadata).unwrap(), &data).unwrap()
}

/// Returns the volume of a claim.
pub fn volume(claim: &Claim, size: &str) -> Volume {
    let volume = json!({
        "metadata": {
            "name": names::pv_name(&claim.uid), "labels": { names::LABEL_INSTANCE: "i" },
            "annotations": { names::CLAIM_UID: claim.uid, names::PROVISIONED_BY: "p" },
        },
        "spec": {
            "storageClassName": CLASS, "capacity": { "storage": size },
            "claimRef": { "namespace": claim.name.namespace, "name": claim.name.name, "uid": claim.uid },
        },
    });
    Volume::from(&serde_json::from_value::<PersistentVolume>(volume).unwrap())
}

/// Returns the Job of the first run of an operation for a claim in the namespace `team`, whose UID is its name.
pub fn job(operation: &str, claim: &str) -> Job {
    Job {
        name: ObjectName::new("own", format!("{operation}-{claim}-1")),
        uid: format!("job-{claim}"),
        claim: Some(ObjectName::new("team", claim)),
        run_labels: RunLabels { operation: operation.into(), id: claim.into(), attempt: 1, class: CLASS.into() },
        ..Job::default()
    }
}

/// Returns the pod of a Job, whose image has ended with this code or goes on.
pub fn pod_of(job: &Job, code: Option<i32>) -> Pod {
    let end = |code| {
        let (container, reason, message) = (names::CONTAINER.into(), String::new(), String::new());
        ContainerEnd { container, code, reason, message, at: 0 }
    };
    Pod {
        name: ObjectName::new("own", format!("{}-pod", job.name.name)),
        job: job.name.name.clone(),
        job_uid: job.uid.clone(),
        run_labels: job.run_labels.clone(),
        members: job.members.clone(),
        terminated: code.map(end),
        ..Pod::default()
    }
}

/// Returns the Job of a batch for claims in the namespace `team`, whose UIDs are their names.
pub fn batch_job(name: &str, claims: &[&str]) -> Job {
    Job {
        name: ObjectName::new("own", name),
        claim: None,
        members: claims.iter().map(|c| member(c)).collect(),
        ..job("provision", name)
    }
}

/// Returns a member for a claim in the namespace `team`, whose UID is its name.
pub fn member(claim: &str) -> Member {
    let object = MemberObject::Claim(ObjectName::new("team", claim));
    Member { id: claim.into(), attempt: 1, object, scope: String::new(), attributes: None, is_first: false }
}
