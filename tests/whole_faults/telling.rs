//! The time from when Kubernetes knows why a claim is not served until the claim has an event about it.
//!
//! Both times come from watches of this process, by one clock. If only the API's answer to the orchestrator shows the
//! failure, its time is that of the audit log, which is also by this machine's clock.

use std::pin::pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use flex_contract::names;
use flex_contract::reason;
use futures::StreamExt;
use jiff::Timestamp;
use k8s_openapi::api::admissionregistration::v1::{ValidatingAdmissionPolicy, ValidatingAdmissionPolicyBinding};
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::{ConfigMap, Event, PersistentVolume, PersistentVolumeClaim, Pod, ResourceQuota};
use k8s_openapi::api::scheduling::v1::PriorityClass;
use kube::api::{DeleteParams, PostParams};
use kube::runtime::{WatchStreamExt, watcher};
use kube::{Api, Resource, ResourceExt};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use crate::alone;
use orchestrator::deployed::{drop_claim, script_class};
use orchestrator::ring::{OWN, Ring, uid};
use orchestrator::wait::{unexpected, until};

/// The time that the README promises.
const PROMISED: Duration = Duration::from_secs(5);
/// The limit on a machine with other work.
const GUARD: Duration = Duration::from_secs(60);

/// The object in which Kubernetes reports a failure first.
enum Known {
    /// The status of the pod, with a text in it.
    Pod(&'static str),
    /// The status of the Job, with a text in it.
    Job(&'static str),
    /// An event on the Job or pod, with its reason.
    Event(&'static str),
    /// The answer to the creation of the Job is a refusal.
    Refusal,
    /// The image's volume exists.
    Volume,
    /// The claim exists.
    Claim,
}

struct Kind {
    name: &'static str,
    script: &'static str,
    more: Vec<(&'static str, &'static str)>,
    known: Known,
    /// A text in the event on the claim.
    says: &'static str,
}

fn kind(
    name: &'static str,
    script: &'static str,
    more: &[(&'static str, &'static str)],
    known: Known,
    says: &'static str,
) -> Kind {
    Kind { name, script, more: more.to_vec(), known, says }
}

const ADMIT_NO_PODS: &str = "no-pods";
const ADMIT_NO_JOBS: &str = "no-jobs";
const NO_QUOTA: &str = "no-quota";

fn kinds() -> Vec<Kind> {
    use Known::{Claim, Event, Job, Pod, Refusal, Volume};
    let pull = ("image", "localhost/nobody/nothing:1");
    let root = "spec:\n  containers:\n  - name: provisioner\n    securityContext: {runAsUser: 0, runAsNonRoot: true}\n";
    vec![
        kind("image-pull", "", &[pull], Pod("ErrImagePull"), "cannot be pulled"),
        kind(
            "image-never-pulled",
            "",
            &[pull, ("image-pull-policy", "Never")],
            Pod("ErrImageNeverPull"),
            "cannot be pulled",
        ),
        kind("image-name", "", &[("image", "localhost/Nobody/nothing:1")], Pod("InvalidImageName"), "cannot be pulled"),
        kind("exit-retry", "exit 75", &[], Pod(r#""exitCode":75"#), "try again"),
        kind("exit-never", "flex-pv fail never no such zone", &[], Pod(r#""exitCode":65"#), "no such zone"),
        kind("exit-no-room", "flex-pv fail no-room the pool is full", &[], Pod(r#""exitCode":69"#), "the pool is full"),
        kind("last-words-missing", "exit 3", &[], Pod(r#""exitCode":3"#), "said nothing"),
        kind(
            "out-of-memory",
            "head -c 300000000 /dev/zero | tail",
            &[("resources", "{limits: {memory: 24Mi}}")],
            Pod("OOMKilled"),
            "ran out of memory",
        ),
        kind("root-refused", "", &[("pod-template", root)], Pod("CreateContainerConfigError"), "run-as-user"),
        kind(
            "secret-missing",
            "",
            &[("secret-env", "absent")],
            Pod("CreateContainerConfigError"),
            "secret \"absent\" not found",
        ),
        kind(
            "secret-volume-missing",
            "",
            &[("secret-volume", "absent")],
            Event("FailedMount"),
            "secret \"absent\" not found",
        ),
        kind(
            "account-missing",
            "",
            &[("service-account-name", "absent")],
            Event("FailedCreate"),
            "serviceaccount \"absent\" not found",
        ),
        kind("quota", "", &[("priority-class", NO_QUOTA)], Event("FailedCreate"), "exceeded quota"),
        kind(ADMIT_NO_PODS, "", &[], Event("FailedCreate"), "no pods of this class"),
        kind(ADMIT_NO_JOBS, "", &[], Refusal, "no Jobs of this class"),
        kind("node-selector", "", &[("node-selector", "nowhere=true")], Pod("Unschedulable"), "fits on no node"),
        kind(
            "no-node",
            "",
            &[("node-selector", "nowhere=true"), ("placement", "selected-node")],
            Claim,
            "no node can take a run for this claim",
        ),
        kind("no-volume", "exit 0", &[], Pod(r#""exitCode":0"#), "exited 0 without creating"),
        kind(
            "foreign-source",
            "[ $OPERATION = delete ] || flex-pv create --host-path /etc",
            &[("volume-sources", "nfs"), ("service-account-name", "hostpath-provisioner")],
            Volume,
            "does not fit the claim",
        ),
        kind("timeout", "echo waiting; sleep 100", &[("timeout", "10s")], Job("DeadlineExceeded"), "(`timeout`)"),
        kind("bad-config", "", &[("retries", "many")], Claim, "has errors"),
        kind("command-missing", "", &[("command", "[/absent]")], Pod("/absent"), "/absent"),
    ]
}

/// All observed objects, each with the time of its observation, and the number of watches that have begun.
#[derive(Clone, Default)]
struct Record(Arc<Mutex<Vec<(Timestamp, Value)>>>, Arc<AtomicUsize>);

impl Record {
    fn follow<K>(&self, api: Api<K>)
    where
        K: Resource<DynamicType = ()> + Clone + std::fmt::Debug + DeserializeOwned + Serialize + Send + 'static,
    {
        let record = self.clone();
        tokio::spawn(async move {
            let mut stream = pin!(watcher(api, watcher::Config::default()).default_backoff());
            // A watch that fails begins again.
            while let Some(event) = stream.next().await {
                let object = match event {
                    Ok(watcher::Event::Apply(object) | watcher::Event::InitApply(object)) => object,
                    Ok(watcher::Event::InitDone) => {
                        record.1.fetch_add(1, Ordering::SeqCst);
                        continue;
                    }
                    _ => continue,
                };
                let mut value = serde_json::to_value(&object).expect("objects are JSON");
                value["kind"] = json!(K::kind(&()));
                value["metadata"]["managedFields"] = Value::Null;
                record.0.lock().unwrap().push((Timestamp::now(), value));
            }
        });
    }

    fn first(&self, is: impl Fn(&Value) -> bool) -> Option<Timestamp> {
        self.0.lock().unwrap().iter().find(|(_, value)| is(value)).map(|(at, _)| *at)
    }

    /// Returns when Kubernetes first reported the failure of the runs for a claim.
    fn known(&self, ring: &Ring, known: &Known, claim: &PersistentVolumeClaim) -> Option<Timestamp> {
        let id = uid(claim);
        let label = |value: &Value| value["metadata"]["labels"][names::LABEL_VOLUME_ID] == json!(id);
        let status = |kind: &str, text: &str| {
            self.first(|value| value["kind"] == kind && label(value) && value["status"].to_string().contains(text))
        };
        match known {
            Known::Pod(text) => status("Pod", text),
            Known::Job(text) => status("Job", text),
            Known::Event(reason) => self.first(|value| {
                // Jobs and their pods have the claim's id in their names.
                let about = value["involvedObject"]["name"].as_str().unwrap_or_default();
                value["kind"] == "Event" && value["reason"] == *reason && about.contains(&id)
            }),
            Known::Refusal => refused(ring, &id),
            Known::Volume => self.first(|value| {
                value["kind"] == "PersistentVolume" && value["metadata"]["name"] == json!(names::pv_name(&id))
            }),
            Known::Claim => {
                self.first(|value| value["kind"] == "PersistentVolumeClaim" && value["metadata"]["uid"] == json!(id))
            }
        }
    }

    fn reported(&self, claim: &str, says: &str) -> Option<Timestamp> {
        let reasons = [reason::PROVISIONING_FAILED, reason::VOLUME_REFUSED, reason::WAITING_FOR_PROVISIONER]
            .map(|reason| json!(reason.name));
        self.first(|value| {
            value["kind"] == "Event"
                && value["involvedObject"]["kind"] == "PersistentVolumeClaim"
                && value["involvedObject"]["name"] == claim
                && reasons.contains(&value["reason"])
                && value["message"].as_str().is_some_and(|message| message.contains(says))
        })
    }
}

/// Returns when the API server refused a Job for a claim, by its audit log.
fn refused(ring: &Ring, id: &str) -> Option<Timestamp> {
    let log = std::fs::read_to_string(ring.cluster().audit_log()).expect("the API server has an audit log");
    let creations = log.lines().filter(|line| line.contains(id) && line.contains(r#""verb":"create""#));
    let entries = creations.filter_map(|line| serde_json::from_str::<Value>(line).ok());
    let refusals =
        entries.filter(|entry| entry["objectRef"]["resource"] == "jobs" && entry["responseStatus"]["code"] != 201);
    refusals.filter_map(|entry| entry["stageTimestamp"].as_str()?.parse().ok()).next()
}

/// Installs a policy that refuses objects of one kind for a class.
async fn refuse(ring: &Ring, class: &str, group: &str, resource: &str, says: &str) {
    let policy = json!({
        "metadata": { "name": class },
        "spec": {
            "failurePolicy": "Fail",
            "matchConstraints": { "resourceRules": [{ "apiGroups": [group], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": [resource] }] },
            "validations": [{
                "expression": format!("!('{0}' in object.metadata.?labels.orValue({{}})) || object.metadata.labels['{0}'] != '{class}'", names::LABEL_CLASS),
                "message": says,
            }],
        },
    });
    let binding =
        json!({ "metadata": { "name": class }, "spec": { "policyName": class, "validationActions": ["Deny"] } });
    let policies: Api<ValidatingAdmissionPolicy> = Api::all(ring.client.clone());
    let bindings: Api<ValidatingAdmissionPolicyBinding> = Api::all(ring.client.clone());
    policies.create(&PostParams::default(), &serde_json::from_value(policy).unwrap()).await.unwrap();
    bindings.create(&PostParams::default(), &serde_json::from_value(binding).unwrap()).await.unwrap();
}

/// Waits until an object is refused with this message.
async fn is_refused<K>(api: Api<K>, object: Value, says: &str)
where
    K: Resource<DynamicType = ()> + Clone + std::fmt::Debug + DeserializeOwned + Serialize,
{
    let object: K = serde_json::from_value(object).unwrap();
    let dry = PostParams { dry_run: true, ..PostParams::default() };
    until(format!("{says} is in force"), || async {
        match api.create(&dry, &object).await {
            Err(kube::Error::Api(status)) if status.message.contains(says) => Ok(()),
            other => unexpected(other.map(drop)),
        }
    })
    .await;
}

async fn obstacles(ring: &Ring) {
    let pod = |class: &str| json!({ "metadata": { "name": "tried", "labels": { names::LABEL_CLASS: class } }, "spec": { "containers": [{ "name": "c", "image": "i" }] } });
    refuse(ring, ADMIT_NO_PODS, "", "pods", "no pods of this class").await;
    refuse(ring, ADMIT_NO_JOBS, "batch", "jobs", "no Jobs of this class").await;
    is_refused::<Pod>(ring.api(OWN), pod(ADMIT_NO_PODS), "no pods of this class").await;
    let mut job = pod(ADMIT_NO_JOBS);
    job["spec"] =
        json!({ "template": { "spec": { "restartPolicy": "Never", "containers": [{ "name": "c", "image": "i" }] } } });
    is_refused::<Job>(ring.api(OWN), job, "no Jobs of this class").await;

    let class: PriorityClass = serde_json::from_value(json!({ "metadata": { "name": NO_QUOTA }, "value": 1 })).unwrap();
    Api::<PriorityClass>::all(ring.client.clone()).create(&PostParams::default(), &class).await.unwrap();
    let quota = json!({
        "metadata": { "name": NO_QUOTA },
        "spec": {
            "hard": { "pods": "0" },
            "scopeSelector": { "matchExpressions": [{ "scopeName": "PriorityClass", "operator": "In", "values": [NO_QUOTA] }] },
        },
    });
    let quotas = ring.api::<ResourceQuota>(OWN);
    quotas.create(&PostParams::default(), &serde_json::from_value(quota).unwrap()).await.unwrap();
    let mut limited = pod("none");
    limited["spec"]["priorityClassName"] = json!(NO_QUOTA);
    is_refused::<Pod>(ring.api(OWN), limited, "exceeded quota").await;
}

async fn no_obstacles(ring: &Ring) {
    let once = DeleteParams::default();
    for name in [ADMIT_NO_PODS, ADMIT_NO_JOBS] {
        Api::<ValidatingAdmissionPolicyBinding>::all(ring.client.clone()).delete(name, &once).await.unwrap();
        Api::<ValidatingAdmissionPolicy>::all(ring.client.clone()).delete(name, &once).await.unwrap();
    }
    ring.api::<ResourceQuota>(OWN).delete(NO_QUOTA, &once).await.unwrap();
    Api::<PriorityClass>::all(ring.client.clone()).delete(NO_QUOTA, &once).await.unwrap();
}

#[tokio::test]
async fn every_kind_of_failure_reaches_the_claim_soon_after_kubernetes_reports_it() {
    let (_turn, ring) = alone("failures").await;
    obstacles(&ring).await;
    let record = Record::default();
    record.follow(ring.api::<Pod>(OWN));
    record.follow(ring.api::<Job>(OWN));
    record.follow(ring.api::<Event>(OWN));
    record.follow(ring.api::<Event>(&ring.user));
    record.follow(ring.claims());
    record.follow::<PersistentVolume>(ring.volumes());
    until("all watches have begun before the objects that they observe exist", || async {
        let begun = record.1.load(Ordering::SeqCst);
        if begun >= 6 { Ok(()) } else { unexpected(begun) }
    })
    .await;

    let kinds = kinds();
    for Kind { name, script, more, .. } in &kinds {
        script_class(&ring, name, script, more).await;
        ring.claim(name, name).await;
        // One after another: the measured time must not contain the time that pods take from each other.
        tokio::time::sleep(Duration::from_millis(500)).await;
    }
    let (mut table, mut missing) = (Vec::new(), Vec::new());
    let deadline = Instant::now() + orchestrator::wait::GUARD;
    for Kind { name, known, says, .. } in &kinds {
        let claim = ring.get_claim(name).await;
        loop {
            match (record.known(&ring, known, &claim), record.reported(name, says)) {
                (Some(known), Some(reported)) => {
                    break table.push((*name, reported.duration_since(known).as_secs_f64().max(0.0)));
                }
                found if Instant::now() > deadline => break missing.push((*name, found)),
                _ => tokio::time::sleep(Duration::from_millis(200)).await,
            }
        }
    }
    table.sort_by(|a, b| a.1.total_cmp(&b.1));
    println!("{:<24} event after", "kind of failure");
    table.iter().for_each(|(name, after)| println!("{name:<24} {after:>7.3} s"));
    let soon = table.iter().filter(|(_, after)| *after <= PROMISED.as_secs_f64()).count();
    println!(
        "{soon} of {} kinds of failure reach the claim at most {PROMISED:?} after Kubernetes reported them",
        table.len()
    );
    let late: Vec<_> = table.iter().filter(|(_, after)| *after > GUARD.as_secs_f64()).collect();
    assert!(missing.is_empty(), "a time of Kubernetes or of the event is missing: {missing:?}");
    assert!(late.is_empty(), "too late: {late:?}");

    no_obstacles(&ring).await;
    for Kind { name, known, .. } in &kinds {
        // The storage was made: its image can delete it, and nothing is abandoned.
        if matches!(known, Known::Volume) {
            let claim = ring.get_claim(name).await;
            ring.delete_claim(name).await;
            ring.claim_gone(name).await;
            ring.volume_gone(&names::pv_name(&uid(&claim))).await;
            ring.api::<ConfigMap>(OWN).delete(name, &DeleteParams::default()).await.unwrap();
        } else {
            drop_claim(&ring, name).await;
        }
    }
    let mine = kinds.iter().map(|kind| kind.name).collect::<Vec<_>>();
    until("no volume is left", || async {
        let volumes = ring.volumes().list(&Default::default()).await.map_err(|error| error.to_string())?;
        let class = |volume: &PersistentVolume| volume.spec.as_ref()?.storage_class_name.clone();
        let leftovers = |volume: &&PersistentVolume| class(volume).is_some_and(|class| mine.contains(&class.as_str()));
        match volumes.iter().find(leftovers) {
            Some(volume) => unexpected((volume.name_any(), &volume.status, &volume.metadata.finalizers)),
            None => Ok(()),
        }
    })
    .await;
}
