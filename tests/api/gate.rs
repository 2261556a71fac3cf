//! Tests of the gate: a pod waits until the orchestrator opens it, and the orchestrator opens only pods of Jobs that it has
//! created itself since it leads.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use flex_contract::names;
use flex_contract::reason;
use flex_core::object::ObjectName;
use flex_provisioner::api::writes::{Binding, WriteError, Writes};
use futures::stream::StreamExt;
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::{Pod, ResourceQuota};
use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use kube::runtime::{WatchStreamExt, watcher};
use kube::{Api, ResourceExt};
use scripted_csi::{Act, Options};
use serde_json::{Value, json};
use tokio::task::JoinHandle;

use crate::csi::Scene;
use crate::failures::refuses;
use crate::scripts::identity;
use orchestrator::backup::{created_again, own_request};
use orchestrator::kubelet::{gates, nfs_volume};
use orchestrator::nodes::local_volume;
use orchestrator::ring::{ADMIN, Ring, USER, WHILE, annotation, uid};
use orchestrator::wait::{stays, unexpected, until};

/// A gate of somebody else, such as a queue.
const FOREIGN: &str = "example.org/hold";

/// Sees each pod that is without the gate.
pub struct Watch {
    /// The UIDs of the Jobs of such pods.
    opened: Arc<Mutex<BTreeSet<String>>>,
    task: JoinHandle<()>,
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Watch {
    pub fn start(ring: &Ring) -> Self {
        let opened = Arc::new(Mutex::new(BTreeSet::new()));
        let (sees, pods) = (opened.clone(), ring.api::<Pod>(ADMIN));
        let task = tokio::spawn(async move {
            let mut all = watcher(pods, watcher::Config::default()).default_backoff().applied_objects().boxed();
            // A watch that fails begins again.
            while let Some(pod) = all.next().await {
                let Ok(pod) = pod else { continue };
                if !gates(pod.spec.as_ref()).contains(&names::START_GATE) {
                    sees.lock().unwrap().extend(pod.owner_references().iter().map(|owner| owner.uid.clone()));
                }
            }
        });
        Watch { opened, task }
    }

    pub fn saw(&self, job: &Job) -> bool {
        self.opened.lock().unwrap().contains(job.metadata.uid.as_deref().unwrap())
    }

    /// Waits until a pod of a Job was seen without the gate. What happened before was seen, too.
    pub async fn sees(&self, job: &Job) {
        until(format!("a pod of {} is opened", job.name_any()), || async {
            if self.saw(job) { Ok(()) } else { unexpected(self.opened.lock().unwrap()) }
        })
        .await;
    }
}

/// Returns the gates of the pods of a Job.
async fn gates_of(ring: &Ring, job: &Job) -> Result<Vec<String>, String> {
    let pods = ring.pods_of(job).await?;
    Ok(pods.iter().flat_map(|pod| gates(pod.spec.as_ref())).map(str::to_owned).collect())
}

/// Waits until no Job and no pod is left.
async fn no_runs(ring: &Ring) {
    let gone = until("no run is left", || async {
        let jobs: Vec<_> = ring.all_jobs().await.iter().map(ResourceExt::name_any).collect();
        let pods = ring.api::<Pod>(ADMIN).list(&Default::default()).await.map_err(|error| error.to_string())?;
        if jobs.is_empty() && pods.items.is_empty() { Ok(()) } else { unexpected((jobs, pods.items.len())) }
    });
    ring.explained(gone).await;
}

/// Creates a Job, and waits until the orchestrator has deleted it with its pod. Returns the created Job.
async fn closed(ring: &Ring, copy: &Job, by: &PostParams) -> Job {
    assert_eq!(gates(copy.spec.as_ref().unwrap().template.spec.as_ref()), [names::START_GATE], "a copy has the gate");
    let began = Instant::now();
    let copy = ring.api::<Job>(ADMIN).create(by, copy).await.unwrap();
    no_runs(ring).await;
    println!("{} is gone after {:?}", copy.name_any(), began.elapsed());
    copy
}

/// Makes a quota refuse all pods of runs, until it is deleted by the name `none`.
pub async fn no_pods(ring: &Ring) -> Api<ResourceQuota> {
    let quota = json!({ "metadata": { "name": "none" }, "spec": { "hard": { "pods": "0" } } });
    let quotas = ring.api::<ResourceQuota>(ADMIN);
    quotas.create(&PostParams::default(), &serde_json::from_value(quota).unwrap()).await.unwrap();
    let pod = json!({ "restartPolicy": "Never", "containers": [{ "name": "c", "image": "example/other" }] });
    refuses::<Pod>(&ring.api(ADMIN), json!({ "metadata": { "name": "probe" }, "spec": pod })).await;
    quotas
}

/// Sets an object to Retain while the Job of its delete run waits for its pod, and ends slowly. The orchestrator keeps its
/// finalizer on the object until the Job is gone.
async fn let_go_after_its_run<K>(ring: &Ring, api: &Api<K>, name: &str, policy: &str, job: &Job)
where
    K: Clone + std::fmt::Debug + serde::de::DeserializeOwned,
{
    let (jobs, merge) = (ring.api::<Job>(ADMIN), PatchParams::default());
    let finalizers = |all: Value| Patch::Merge(json!({ "metadata": { "finalizers": all } }));
    let job = job.name_any();
    jobs.patch(&job, &merge, &finalizers(json!([FOREIGN]))).await.unwrap();
    api.patch(name, &merge, &Patch::Merge(json!({ "spec": { policy: "Retain" } }))).await.unwrap();
    let deleted = until(format!("Job {job} is deleted"), || async {
        let now = jobs.get(&job).await.map_err(|error| error.to_string())?;
        if now.metadata.deletion_timestamp.is_some() { Ok(()) } else { unexpected(now.metadata) }
    });
    ring.explained(deleted).await;
    let held = || async {
        let found = api.get_metadata_opt(name).await.map_err(|error| error.to_string())?;
        let finalizers = found.and_then(|found| found.metadata.finalizers).unwrap_or_default();
        Ok::<_, String>(finalizers.iter().any(|finalizer| finalizer.starts_with("flex-provisioner.io/")))
    };
    stays("the object is held", WHILE, || async { if held().await? { Ok(()) } else { unexpected(name) } }).await;
    jobs.patch(&job, &merge, &finalizers(Value::Null)).await.unwrap();
    let let_go = until(format!("{name} is let go"), || async { if held().await? { unexpected(name) } else { Ok(()) } });
    ring.explained(let_go).await;
}

/// Gives a Job another name.
fn renamed(job: &Job) -> Job {
    let mut job = job.clone();
    job.metadata.name = Some(format!("{}-copy", job.name_any()));
    job
}

/// A backup tool, or an orchestrator that has died, may create the Job again, and so may a second cluster on the same
/// storage: there its volume can be in use.
#[tokio::test]
async fn a_copied_delete_job_never_runs() {
    let scene = Scene::start(Options::default()).await;
    let (ring, watch) = (&scene.ring, Watch::start(&scene.ring));
    scene.config(&[]).await;
    let mut ids = Vec::new();
    for claim in ["gone", "used"] {
        ring.claim(claim, "csi").await;
        ids.push(uid(&ring.bound(claim).await));
    }
    let [gone, used] = ids.try_into().unwrap();
    let handle = |id: &str| scene.driver.volumes()[&names::pv_name(id)].volume.volume_id.clone();
    let handles = [handle(&gone), handle(&used)];
    no_runs(ring).await;
    scene.driver.acts("DeleteVolume", [Act::Slow(Duration::from_secs(3))]);
    ring.delete_claim("gone").await;
    let job = ring.job(ADMIN, "delete", &gone, 1).await;
    ring.volume_gone(&names::pv_name(&gone)).await;
    no_runs(ring).await;
    watch.sees(&job).await;
    assert!(scene.kubelet.has_run(&job), "the orchestrator opens the pods of its own Jobs");

    let (again, begun) = (created_again(&job), scene.kubelet.runs());
    let of_used = serde_json::to_string(&again).unwrap().replace(&gone, &used).replace(&handles[0], &handles[1]);
    let of_used: Job = serde_json::from_str(&of_used).unwrap();
    scene.driver.calls();
    let mut copies = Vec::new();
    for copy in [&again, &renamed(&again), &of_used, &renamed(&of_used)] {
        for by in [PostParams::default(), own_request()] {
            copies.push(closed(ring, copy, &by).await);
        }
    }
    assert_eq!(scene.kubelet.runs(), begun, "no process has begun");
    let calls = scene.driver.calls();
    assert!(calls.iter().all(|(call, _)| *call != "DeleteVolume"), "{calls:?}");
    assert_eq!(scene.driver.volumes().into_keys().collect::<Vec<_>>(), [names::pv_name(&used)]);

    // The orchestrator's own run of that name works.
    scene.driver.acts("DeleteVolume", [Act::Slow(Duration::from_secs(3))]);
    ring.delete_claim("used").await;
    let job = ring.job(ADMIN, "delete", &used, 1).await;
    watch.sees(&job).await;
    let opened: Vec<_> = copies.iter().filter(|copy| watch.saw(copy)).map(ResourceExt::name_any).collect();
    assert!(opened.is_empty(), "the pods of {opened:?} were opened");
    ring.volume_gone(&names::pv_name(&used)).await;
    scene.no_volumes().await;
    scene.end().await;
}

/// The request of an orchestrator that has died arrives after the claim is deleted, or a backup tool restores the Job.
#[tokio::test]
async fn a_provision_job_whose_claim_is_gone_stores_nothing() {
    let scene = Scene::start(Options::default()).await;
    let (ring, watch) = (&scene.ring, Watch::start(&scene.ring));
    scene.config(&[]).await;
    scene.driver.acts("CreateVolume", [Act::Slow(Duration::from_secs(3))]);
    let id = uid(&ring.claim("a", "csi").await);
    let job = ring.job(ADMIN, "provision", &id, 1).await;
    ring.bound("a").await;
    ring.delete_claim("a").await;
    ring.volume_gone(&names::pv_name(&id)).await;
    ring.nothing_left().await;
    watch.sees(&job).await;

    scene.driver.calls();
    let again = created_again(&job);
    for copy in [&again, &renamed(&again)] {
        for by in [PostParams::default(), own_request()] {
            let copy = closed(ring, copy, &by).await;
            assert!(!scene.kubelet.has_run(&copy) && !watch.saw(&copy), "{} has run", copy.name_any());
        }
    }
    stays("nothing is stored", WHILE, || async {
        let volumes = scene.driver.volumes();
        if volumes.is_empty() { Ok(()) } else { unexpected(volumes) }
    })
    .await;
    let calls = scene.driver.calls();
    assert!(calls.iter().all(|(call, _)| *call != "CreateVolume"), "{calls:?}");
    scene.end().await;
}

#[tokio::test]
async fn a_job_that_a_former_leader_has_not_opened_is_made_again() {
    let mut ring = Ring::start().await;
    ring.config("c", "c", &[("reclaim-policy", "Delete")]).await;
    // The Job gets its pod when its orchestrator is dead.
    let quotas = no_pods(&ring).await;
    let id = uid(&ring.claim("a", "c").await);
    let former = ring.job_alone(ADMIN, "provision", &id, 1).await;
    ring.kill().await;
    quotas.delete("none", &DeleteParams::default()).await.unwrap();
    until("the Job has a pod", || async {
        let pods = ring.pods_of(&former).await?;
        if pods.is_empty() { unexpected(pods) } else { Ok(()) }
    })
    .await;
    assert_eq!(gates_of(&ring, &former).await.unwrap(), [names::START_GATE], "nobody opens it");

    let watch = Watch::start(&ring);
    ring.run().await;
    let job = ring.job(ADMIN, "provision", &id, 1).await;
    assert_eq!(job.metadata.name, former.metadata.name);
    assert_ne!(job.metadata.uid, former.metadata.uid, "the next leader cannot know who has created the first");
    ring.create_volume(&nfs_volume(&job)).await;
    let bound = ring.bound("a").await;
    assert_eq!(annotation(&bound, names::ATTEMPT).as_deref(), Some("1"), "nothing has failed");
    assert_eq!(annotation(&bound, names::FAILURE), None);
    ring.pod_ends(&job, 0, "").await;
    watch.sees(&job).await;
    assert!(!watch.saw(&former), "its pod was opened");
    ring.deleted_with_volume("a").await;
    ring.nothing_left().await;
}

#[tokio::test]
async fn what_an_admin_sets_to_retain_is_let_go_when_no_run_can_delete_it() {
    let ring = Ring::with_snapshots().await;
    let watch = Watch::start(&ring);
    ring.config("c", "c", &[("capabilities", "snapshot"), ("reclaim-policy", "Delete")]).await;
    ring.node("n1").await;
    ring.delayed_class("n", &[("volume-sources", "local:/data"), ("reclaim-policy", "Delete")]).await;
    ring.claim("any", "c").await;
    ring.provision("any").await;
    let any = uid(&ring.get_claim("any").await);
    let snapshot = ring.snapshot("monday", "any").await;
    let job = ring.job(ADMIN, "snapshot", &snapshot, 1).await;
    ring.pod_ends(&job, 0, "").await;
    ring.snapshot_ready("monday").await;
    let there = uid(&ring.claim("there", "n").await);
    ring.select("there", "n1").await;
    let job = ring.job(ADMIN, "provision", &there, 1).await;
    ring.create_volume(&local_volume(&job, "n1")).await;
    ring.bound("there").await;
    ring.pod_ends(&job, 0, "").await;
    no_runs(&ring).await;

    let quotas = no_pods(&ring).await;
    ring.delete_snapshot("monday").await;
    let mut jobs = vec![ring.job_alone(ADMIN, "delete-snapshot", &snapshot, 1).await];
    let content = names::content_name(&snapshot);
    let_go_after_its_run(&ring, &ring.contents(), &content, "deletionPolicy", &jobs[0]).await;
    ring.content_gone(&content).await;
    for (claim, id) in [("any", &any), ("there", &there)] {
        ring.delete_claim(claim).await;
        let job = ring.job_alone(ADMIN, "delete", id, 1).await;
        let volume = names::pv_name(id);
        let_go_after_its_run(&ring, &ring.volumes(), &volume, "persistentVolumeReclaimPolicy", &job).await;
        assert!(ring.volumes().get(&volume).await.unwrap().metadata.deletion_timestamp.is_none());
        jobs.push(job);
    }
    quotas.delete("none", &DeleteParams::default()).await.unwrap();
    stays("no run begins again", WHILE, || async {
        let jobs: Vec<_> = ring.all_jobs().await.iter().map(ResourceExt::name_any).collect();
        if jobs.is_empty() { Ok(()) } else { unexpected(jobs) }
    })
    .await;
    assert!(jobs.iter().all(|job| !watch.saw(job)), "a pod was opened");
}

#[tokio::test]
async fn a_run_that_a_former_leader_has_opened_goes_on() {
    let mut ring = Ring::start().await;
    ring.config("c", "c", &[]).await;
    let id = uid(&ring.claim("a", "c").await);
    let job = ring.job(ADMIN, "provision", &id, 1).await;
    ring.restart().await;
    ring.logged("leadership changed").await;
    stays("the Job stays", WHILE, || async {
        let jobs = ring.jobs(ADMIN, "provision", &id).await;
        let same = |now: &Job| now.metadata.uid == job.metadata.uid && now.metadata.deletion_timestamp.is_none();
        if jobs.len() == 1 && same(&jobs[0]) { Ok(()) } else { unexpected(jobs) }
    })
    .await;
    ring.create_volume(&nfs_volume(&job)).await;
    ring.bound("a").await;
    ring.pod_ends(&job, 0, "").await;
    no_runs(&ring).await;
}

/// Begins the run of a claim, whose pod waits for the gate of somebody else alone. Returns its Job and the name of the pod.
async fn held_by_others(ring: &Ring, claim: &str) -> (Job, String) {
    let template = format!("spec: {{schedulingGates: [{{name: {FOREIGN}}}]}}");
    ring.config("c", "c", &[("pod-template", &template)]).await;
    let id = uid(&ring.claim(claim, "c").await);
    let job = ring.job_alone(ADMIN, "provision", &id, 1).await;
    let ours_is_gone = until("the orchestrator removes its own gate", || async {
        let gates = gates_of(ring, &job).await?;
        if gates == [FOREIGN] { Ok(()) } else { unexpected(gates) }
    });
    ring.explained(ours_is_gone).await;
    let pod = ring.pods_of(&job).await.unwrap().remove(0).name_any();
    (job, pod)
}

/// Removes the gate of somebody else from a pod, and waits until its run has begun. Then it makes its volume.
async fn released(ring: &Ring, claim: &str, job: &Job, pod: &str) {
    let remove = json!([{ "op": "remove", "path": "/spec/schedulingGates/0" }]);
    let remove = Patch::Json::<()>(serde_json::from_value(remove).unwrap());
    ring.api::<Pod>(ADMIN).patch(pod, &PatchParams::default(), &remove).await.unwrap();
    let begun = ring.job(ADMIN, "provision", &uid(&ring.get_claim(claim).await), 1).await;
    assert_eq!(begun.metadata.uid, job.metadata.uid, "it is still the same run");
    ring.create_volume(&nfs_volume(job)).await;
    ring.bound(claim).await;
}

/// The request of a leader that has died may arrive at any time. A queue may hold the pod, or its run goes on.
#[tokio::test]
async fn a_foreign_gate_is_named_and_a_late_opening_changes_no_pod_that_is_open() {
    let ring = Ring::start().await;
    let (job, pod) = held_by_others(&ring, "a").await;
    let told = ring.event(USER, "a", reason::PROVISIONING_FAILED, FOREIGN).await;
    assert!(!told.contains(names::START_GATE), "{told}");
    let writes = Writes::new(ring.client.clone(), identity(), Binding::Direct);
    let opened = ring.pods_of(&job).await.unwrap().remove(0);
    let (name, id) = (ObjectName::new(ADMIN, &pod), opened.uid().unwrap());
    let is_refused = async || {
        for position in 0..2 {
            let late = writes.open_pod(&name, &id, position).await;
            assert!(matches!(late, Err(WriteError::Refused { invalid: true, .. })), "{late:?}");
        }
    };
    is_refused().await;
    assert_eq!(gates_of(&ring, &job).await.unwrap(), [FOREIGN], "it still waits for somebody else");
    released(&ring, "a", &job, &pod).await;
    is_refused().await;
    ring.pod_ends(&job, 0, "").await;
    no_runs(&ring).await;
}
