//! Images as processes of this machine, in place of pods, for tests on a control plane without nodes.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::PathBuf;
use std::process::Stdio;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use flex_contract::batch;
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::Pod;
use kube::api::{ListParams, Patch, PatchParams};
use kube::{Api, Client, ResourceExt};
use serde_json::json;
use tokio::task::JoinHandle;

use crate::deployed::root;
use crate::kubelet::{gates, list, place};
use crate::ring::{ADMIN, OWN, Ring};

/// Returns the path of an image's program.
pub fn program(name: &str) -> PathBuf {
    let built = root().join("target/x86_64-unknown-linux-gnu/release");
    let program = std::env::var("FLEX_PROGRAMS").map_or(built, PathBuf::from).join(name);
    assert!(program.exists(), "{} is missing: run `make images`", program.display());
    program
}

/// Runs an image's program for each Job once its pod has no gate, with the environment of the pod, and reports how it ended.
/// The pods have no node, so that the API server does not keep a deleted pod until its program has ended. Instead, a program
/// is killed when its Job is over or terminating, before any other begins.
pub struct Kubelet {
    task: JoinHandle<()>,
    /// The UIDs of the Jobs whose runs have begun.
    begun: Arc<Mutex<BTreeSet<String>>>,
}

impl Drop for Kubelet {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Kubelet {
    /// Serves all Jobs of a control plane, until it is dropped.
    pub fn start(ring: &Ring, name: &str) -> Self {
        let program = program(name);
        let (client, kubeconfig) = (ring.client.clone(), ring.cluster().kubeconfig());
        let begun = Arc::new(Mutex::new(BTreeSet::new()));
        let begins = begun.clone();
        let task = tokio::spawn(async move {
            let mut runs: BTreeMap<String, JoinHandle<()>> = BTreeMap::new();
            loop {
                if let (Ok(jobs), Ok(pods)) = (jobs_in_progress(&client).await, open_pods(&client).await) {
                    for (uid, run) in &mut runs {
                        if !run.is_finished() && !jobs.iter().any(|job| job.metadata.uid.as_ref() == Some(uid)) {
                            run.abort();
                            let _ = run.await;
                        }
                    }
                    for job in jobs {
                        let uid = job.uid().unwrap();
                        let Some(pod) = pods.get(&uid).filter(|_| !runs.contains_key(&uid)) else { continue };
                        let namespaced = Api::namespaced(client.clone(), &job.namespace().unwrap());
                        if place(&namespaced, pod).await.is_ok() {
                            begins.lock().unwrap().insert(uid.clone());
                            let process = run(program.clone(), client.clone(), kubeconfig.clone(), job);
                            runs.insert(uid, tokio::spawn(process));
                        }
                    }
                }
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
        });
        Self { task, begun }
    }

    /// Returns how many runs have begun.
    pub fn runs(&self) -> usize {
        self.begun.lock().unwrap().len()
    }

    /// Returns whether the run of a Job has begun.
    pub fn has_run(&self, job: &Job) -> bool {
        self.begun.lock().unwrap().contains(job.metadata.uid.as_deref().unwrap())
    }
}

/// Returns the pods without a gate, by the UIDs of their Jobs.
async fn open_pods(client: &Client) -> kube::Result<BTreeMap<String, Pod>> {
    let mut open = BTreeMap::new();
    for namespace in [ADMIN, OWN] {
        let pods: Api<Pod> = Api::namespaced(client.clone(), namespace);
        let is_open = |pod: &Pod| pod.metadata.deletion_timestamp.is_none() && gates(pod.spec.as_ref()).is_empty();
        for pod in pods.list(&ListParams::default()).await?.items.into_iter().filter(is_open) {
            let owner = pod.owner_references().first().map(|owner| owner.uid.clone());
            open.extend(owner.map(|owner| (owner, pod)));
        }
    }
    Ok(open)
}

async fn jobs_in_progress(client: &Client) -> kube::Result<Vec<Job>> {
    let mut all = Vec::new();
    for namespace in [ADMIN, OWN] {
        let jobs: Api<Job> = Api::namespaced(client.clone(), namespace);
        all.extend(jobs.list(&ListParams::default()).await?);
    }
    let is_over = |job: &Job| {
        let mut conditions = job.status.iter().flat_map(|status| status.conditions.iter().flatten());
        conditions.any(|condition| condition.type_ != "Suspended" && condition.status == "True")
    };
    all.retain(|job| job.metadata.deletion_timestamp.is_none() && !is_over(job));
    Ok(all)
}

pub async fn run(program: PathBuf, client: Client, kubeconfig: PathBuf, job: Job) {
    let container = &job.spec.as_ref().unwrap().template.spec.as_ref().unwrap().containers[0];
    let namespace = job.namespace().unwrap();
    let texts = tempfile::NamedTempFile::new().unwrap();
    let mut command = tokio::process::Command::new(program);
    command.env_clear().env("KUBECONFIG", kubeconfig).env("FLEX_TERMINATION_LOG", texts.path());
    command.env("POD_NAMESPACE", &namespace).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    for variable in container.env.iter().flatten() {
        // The kubelet turns two dollar signs into one.
        command.envs(variable.value.as_ref().map(|value| (&variable.name, value.replace("$$", "$"))));
    }
    // The image needs only this file.
    let template = &job.spec.as_ref().unwrap().template;
    let list = template.spec.as_ref().and_then(|spec| list(spec, template.metadata.as_ref()?)).map(|list| {
        let file = tempfile::NamedTempFile::new().unwrap();
        fs::write(file.path(), list).unwrap();
        file
    });
    command.envs(list.iter().map(|list| (batch::VARIABLE, list.path())));
    let code = command.kill_on_drop(true).status().await.unwrap().code().unwrap_or(137);
    let texts = fs::read_to_string(texts.path()).unwrap();
    let now = jiff::Timestamp::now().strftime("%Y-%m-%dT%H:%M:%SZ").to_string();
    let state = json!({ "terminated": { "exitCode": code, "reason": "Ended", "message": texts, "finishedAt": now } });
    let phase = if code == 0 { "Succeeded" } else { "Failed" };
    let container = json!({
        "name": "provisioner", "image": "example/image", "imageID": "", "ready": false, "restartCount": 0, "state": state,
    });
    let status = json!({ "status": { "phase": phase, "containerStatuses": [container] } });
    let pods: Api<Pod> = Api::namespaced(client.clone(), &namespace);
    let of_job = ListParams::default().labels(&format!("job-name={}", job.name_any()));
    let jobs: Api<Job> = Api::namespaced(client, &namespace);
    // A deleted Job of the same name may have left a pod.
    let is_own = |pod: &Pod| pod.owner_references().iter().any(|owner| Some(&owner.uid) == job.metadata.uid.as_ref());
    // The Job's pod may be created after the Job, or be deleted with it.
    loop {
        let now = jobs.get_opt(&job.name_any()).await.unwrap();
        let is_there = now.is_some_and(|now| now.uid() == job.uid() && now.metadata.deletion_timestamp.is_none());
        let pod = pods.list(&of_job).await.unwrap().items.into_iter().find(is_own);
        let is_told = match &pod {
            Some(pod) => {
                let told = pods.patch_status(&pod.name_any(), &PatchParams::default(), &Patch::Merge(&status)).await;
                told.is_ok()
            }
            None => !is_there,
        };
        if is_told {
            return;
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}
