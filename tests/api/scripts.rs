//! Tests of configs with a script: which text a run gets, and how long the orchestrator keeps it.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use flex_contract::names;
use flex_contract::reason;
use flex_core::config::classes::Identity;
use flex_core::config::script::{hash, kept_data, kept_prefix};
use flex_core::kept_script::UNNAMED_TTL;
use flex_core::model::volume::Volume;
use flex_provisioner::api::events::{EventRecorder, Reporter};
use flex_provisioner::api::watch::stored;
use flex_provisioner::api::writes::{Binding, Writes};
use flex_provisioner::clock::{Clock, Time};
use flex_provisioner::metrics::Metrics;
use flex_provisioner::reconcile::{self, Context};
use flex_provisioner::state::ClusterState;
use flex_provisioner::state::index::{WatchChange, WorkItem};
use k8s_openapi::api::apps::v1::ControllerRevision;
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::{ConfigMap, PersistentVolume};
use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use kube::{Api, ResourceExt};
use orchestrator::ring::{ADMIN, OWN, Ring, uid};
use orchestrator::wait::{unexpected, until};
use serde_json::json;

const SHELL: [&str; 2] = ["--shell-image", "example/shell"];
const FIRST: &str = "set -eu\nexec flex-pv create --nfs 10.0.0.1:/$CLAIM_UUID\n";
const SECOND: &str = "exit 0 # another program\n";

/// Returns the image and the text that a Job runs.
fn program(job: &Job) -> (String, String) {
    let template = &job.spec.as_ref().unwrap().template;
    let container = &template.spec.as_ref().unwrap().containers[0];
    assert_eq!(container.command, Some(vec!["/bin/sh".into(), "/etc/flex-script/script".into()]));
    let annotations = template.metadata.as_ref().unwrap().annotations.as_ref().unwrap();
    (container.image.clone().unwrap(), annotations[names::SCRIPT].clone())
}

async fn serve(ring: &Ring, script: &str, more: &[(&str, &str)]) {
    let keys = [("image", "-"), ("backoff", "1s"), ("script", script)];
    ring.config("c", "c", &[&keys, more].concat()).await;
}

fn kept(ring: &Ring) -> Api<ControllerRevision> {
    ring.api(OWN)
}

/// Waits until a script is kept.
async fn is_kept(ring: &Ring, text: &str) -> ControllerRevision {
    let name = kept_prefix(&hash(text));
    until(format!("{name} exists"), || async {
        kept(ring).get_opt(&name).await.map_err(|error| error.to_string())?.ok_or_else(|| "none".to_owned())
    })
    .await
}

async fn delete_config(ring: &Ring) {
    ring.api::<ConfigMap>(ADMIN).delete("c", &DeleteParams::default()).await.unwrap();
}

#[tokio::test]
async fn an_attempt_keeps_its_script_and_a_deletion_takes_that_of_the_class() {
    let ring = Ring::start_with(&SHELL).await;
    serve(&ring, FIRST, &[]).await;
    ring.claim("a", "c").await;
    let id = uid(&ring.stamped("a").await);
    let job = ring.job(ADMIN, "provision", &id, 1).await;
    assert_eq!(program(&job), ("example/shell".to_owned(), FIRST.to_owned()));
    is_kept(&ring, FIRST).await;
    // The config changes during the run.
    serve(&ring, SECOND, &[]).await;
    is_kept(&ring, SECOND).await;
    let job = ring.api::<Job>(ADMIN).get(&job.name_any()).await.unwrap();
    assert_eq!(program(&job).1, FIRST);
    let (_, volume) = ring.provision("a").await;
    let name = volume.name_any();
    let record = ring.volumes().get(&name).await.unwrap().annotations()[names::PROVENANCE].clone();
    assert!(record.contains(&hash(FIRST)) && !record.contains("flex-pv"), "{record}");

    ring.delete_claim("a").await;
    let job = ring.job(ADMIN, "delete", &id, 1).await;
    assert_eq!(program(&job), ("example/shell".to_owned(), SECOND.to_owned()));
    ring.pod_ends(&job, 0, "").await;
    ring.volume_gone(&name).await;
    ring.nothing_left().await;
}

#[tokio::test]
async fn a_deletion_whose_script_is_lost_waits_until_the_config_serves_the_class_again() {
    let mut ring = Ring::start_with(&SHELL).await;
    serve(&ring, FIRST, &[]).await;
    ring.claim("a", "c").await;
    let (_, volume) = ring.provision("a").await;
    let (id, name) = (uid(&ring.get_claim("a").await), volume.name_any());
    // While a config has the text, the orchestrator keeps it again.
    let first = is_kept(&ring, FIRST).await;
    kept(&ring).delete(&first.name_any(), &DeleteParams::default()).await.unwrap();
    until("the script is kept again", || async {
        match kept(&ring).get_opt(&first.name_any()).await.map_err(|error| error.to_string())? {
            Some(again) if again.uid() != first.uid() => Ok(()),
            other => unexpected(other.map(|object| object.metadata)),
        }
    })
    .await;
    // The watch of configs may be behind that of scripts.
    ring.kill().await;
    delete_config(&ring).await;
    kept(&ring).delete(&first.name_any(), &DeleteParams::default()).await.unwrap();
    ring.run().await;
    ring.delete_claim("a").await;
    let why = ring.event("default", &name, reason::VOLUME_FAILED_DELETE, "is lost").await;
    assert!(why.contains(&first.name_any()) && why.contains("restore that object from a backup"), "{why}");
    assert!(ring.jobs(ADMIN, "delete", &id).await.is_empty());
    serve(&ring, SECOND, &[]).await;
    let job = until("a delete run starts", || async {
        ring.jobs(ADMIN, "delete", &id).await.pop().ok_or_else(|| "none".to_owned())
    })
    .await;
    assert_eq!(program(&job).1, SECOND);
    ring.pod_ends(&job, 0, "").await;
    ring.volume_gone(&name).await;
}

#[tokio::test]
async fn an_object_of_the_same_name_with_another_text_is_reported() {
    let mut ring = Ring::without_orchestrator(&SHELL).await;
    let name = kept_prefix(&hash(FIRST));
    let foreign = json!({ "metadata": { "name": name }, "revision": 1, "data": kept_data(SECOND) });
    kept(&ring).create(&PostParams::default(), &serde_json::from_value(foreign).unwrap()).await.unwrap();
    ring.run().await;
    serve(&ring, FIRST, &[("image", "example/tools")]).await;
    ring.event(ADMIN, "c", reason::CONFIG_REFUSED, "belongs to somebody else").await;
    ring.claim("a", "c").await;
    kept(&ring).delete(&name, &DeleteParams::default()).await.unwrap();
    let job = ring.job(ADMIN, "provision", &uid(&ring.stamped("a").await), 1).await;
    assert_eq!(program(&job), ("example/tools".to_owned(), FIRST.to_owned()), "its own image, too");
}

/// Returns the names of the orchestrator in these tests.
pub fn identity() -> Identity {
    Identity {
        provisioner: names::DEFAULT_PROVISIONER.into(),
        plugin: names::DEFAULT_PLUGIN.into(),
        instance: names::DEFAULT_INSTANCE.into(),
        config_namespaces: vec![ADMIN.into()],
        namespace: OWN.into(),
        shell_image: None,
        cluster: String::new(),
    }
}

/// A clock that a test sets.
#[derive(Clone, Debug)]
struct Hands(Arc<Mutex<i64>>);

impl Time for Hands {
    fn wall(&self) -> jiff::Timestamp {
        jiff::Timestamp::from_second(*self.0.lock().unwrap()).unwrap()
    }

    fn passed(&self) -> Duration {
        Duration::from_secs(self.0.lock().unwrap().unsigned_abs())
    }

    fn sleep(&self, time: Duration) -> futures::future::BoxFuture<'static, ()> {
        Box::pin(tokio::time::sleep(time))
    }
}

#[tokio::test]
async fn a_script_is_removed_some_time_after_the_last_volume_that_names_it() {
    let ring = Ring::without_orchestrator(&[]).await;
    let identity = identity();
    let hands = Hands(Arc::new(Mutex::new(jiff::Timestamp::now().as_second())));
    let clock = Clock::new(hands.clone());
    let cluster = ClusterState::new(identity.clone(), clock.clone());
    let writes = Writes::new(ring.client.clone(), identity.clone(), Binding::Direct).with_cache(&cluster);
    let (events, _told) = EventRecorder::start(ring.client.clone(), Reporter::new("test", "replica"), clock.clone());
    let context =
        Context::new(identity, cluster.clone(), writes.clone(), events, Metrics::default(), String::new(), clock);
    writes.write_script(FIRST).await.unwrap();
    let object = is_kept(&ring, FIRST).await;
    cluster.index_mut().change_stored(WatchChange::Apply(stored(object.clone()).unwrap()));
    let provenance = json!({ "config": { "namespace": ADMIN, "name": "c" }, "class": "c", "script": hash(FIRST) });
    let volume = json!({
        "metadata": { "name": "old", "annotations": { names::PROVENANCE: provenance.to_string() } },
        "spec": { "capacity": { "storage": "1Gi" }, "accessModes": ["ReadWriteOnce"], "nfs": { "server": "a", "path": "/" } },
    });
    let volume: PersistentVolume = serde_json::from_value(volume).unwrap();
    let volume = ring.volumes().create(&PostParams::default(), &volume).await.unwrap();
    let pass = |seconds: i64| *hands.0.lock().unwrap() += seconds;
    let exists = || async { kept(&ring).get_opt(&object.name_any()).await.unwrap().is_some() };
    let sweep = || async {
        reconcile::reconcile(&context, &WorkItem::Configs).await.unwrap();
    };

    // The cache shows the volume.
    cluster.index_mut().change_volume(WatchChange::Apply(Volume::from(&volume)));
    for _ in 0..3 {
        pass(2 * UNNAMED_TTL);
        sweep().await;
    }
    assert!(exists().await);
    // The cache lacks the volume, and the API has it.
    cluster.index_mut().change_volume(WatchChange::Delete(flex_core::object::ObjectName::new("", "old")));
    for _ in 0..4 {
        pass(2 * UNNAMED_TTL);
        sweep().await;
    }
    assert!(exists().await);
    // Nobody names it.
    let none = json!({ "metadata": { "annotations": { names::PROVENANCE: null } } });
    ring.volumes().patch("old", &PatchParams::default(), &Patch::Merge(none)).await.unwrap();
    // The API has just denied a deletion, or the time has begun anew: at most two rounds more.
    for _ in 0..2 {
        pass(UNNAMED_TTL + 1);
        sweep().await;
    }
    assert!(!exists().await);
    // The object is gone, and nothing more is to be done.
    sweep().await;
    ring.volumes().delete("old", &DeleteParams::default()).await.unwrap();
}
