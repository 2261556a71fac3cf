//! The actions of scheduler, kubelet and image, played by the test.

use std::collections::BTreeMap;

use flex_contract::batch;
use flex_contract::names;
use flex_contract::request::RunRequest;
use flex_contract::volume::{Made, persistent_volume};
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::{NFSVolumeSource, PersistentVolume, PersistentVolumeSpec, Pod, PodSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::api::{ListParams, Patch, PatchParams, PostParams};
use kube::{Api, ResourceExt};
use serde_json::{Value, json};

use crate::ring::{ADMIN, Ring, uid};

/// Returns the request that a Job's pod would read from its environment.
pub fn request(job: &Job) -> RunRequest {
    let container = &job.spec.as_ref().unwrap().template.spec.as_ref().unwrap().containers[0];
    let env = container.env.clone().unwrap_or_default();
    RunRequest::from_env(|name| env.iter().find(|variable| variable.name == name)?.value.clone()).unwrap()
}

/// Returns the requests that a Job's pod would read; those of a batch in the order of its list.
pub fn requests(job: &Job) -> Vec<RunRequest> {
    let template = &job.spec.as_ref().unwrap().template;
    let env = template.spec.as_ref().unwrap().containers[0].env.clone().unwrap_or_default();
    let run: BTreeMap<_, _> = env.into_iter().filter_map(|variable| Some((variable.name, variable.value?))).collect();
    let members = match run.get("OPERATION").map(String::as_str) {
        Some(batch::OPERATION) => {
            let annotations = template.metadata.as_ref().unwrap().annotations.clone().unwrap();
            let properties = annotations.iter().filter(|(key, _)| key.starts_with(names::PROPERTY_PREFIX));
            properties.filter_map(|(_, text)| batch::read(text).ok()).next_back().expect("a batch has a list")
        }
        _ => vec![BTreeMap::new()],
    };
    let of = |own: BTreeMap<String, String>| {
        RunRequest::from_env(|name| own.get(name).or_else(|| run.get(name)).cloned()).unwrap()
    };
    members.into_iter().map(of).collect()
}

/// Returns the list of members from the file of a batch's pod.
pub fn list(spec: &PodSpec, metadata: &ObjectMeta) -> Option<String> {
    let sources = spec.volumes.iter().flatten().filter_map(|volume| volume.projected.as_ref()?.sources.as_ref());
    let mut items = sources.flatten().filter_map(|source| source.downward_api.as_ref()?.items.as_ref()).flatten();
    let field = items.find(|item| item.path == batch::FILE)?.field_ref.as_ref()?;
    let key = field.field_path.strip_prefix("metadata.annotations['")?.strip_suffix("']")?;
    metadata.annotations.as_ref()?.get(key).cloned()
}

/// Returns the scheduling gates of a pod, or of a Job's template. While a pod has one, the scheduler gives it no node, and
/// no kubelet knows it.
pub fn gates(spec: Option<&PodSpec>) -> Vec<&str> {
    let all = spec.into_iter().flat_map(|spec| spec.scheduling_gates.iter().flatten());
    all.map(|gate| gate.name.as_str()).collect()
}

/// Says of a pod without a gate that it has its place, as the scheduler does. Until then the API server says that it waits
/// for its gates, and its end would show that it never ran.
pub async fn place(pods: &Api<Pod>, pod: &Pod) -> kube::Result<()> {
    let mut conditions = pod.status.iter().flat_map(|status| status.conditions.iter().flatten());
    if !conditions.any(|condition| condition.reason.as_deref() == Some("SchedulingGated")) {
        return Ok(());
    }
    let placed = json!({ "type": "PodScheduled", "status": "True", "lastTransitionTime": now() });
    let status = Patch::Merge(json!({ "status": { "conditions": [placed] } }));
    pods.patch_status(&pod.name_any(), &PatchParams::default(), &status).await.map(drop)
}

/// Builds the volume that an image with flex-pv makes: a directory of an NFS server.
pub fn nfs_volume(job: &Job) -> PersistentVolume {
    nfs_volume_of(&request(job))
}

/// Builds the same volume for a request.
pub fn nfs_volume_of(request: &RunRequest) -> PersistentVolume {
    let source = PersistentVolumeSpec {
        nfs: Some(NFSVolumeSource {
            server: "10.0.0.1".into(),
            path: format!("/{}", request.volume_id),
            read_only: None,
        }),
        ..PersistentVolumeSpec::default()
    };
    persistent_volume(request, Made { source, ..Made::default() })
}

/// Builds the status of a pod whose container has ended.
fn ended(code: i32, texts: &str) -> Value {
    let (phase, reason) = if code == 0 { ("Succeeded", "Completed") } else { ("Failed", "Error") };
    let state = json!({ "terminated": { "exitCode": code, "reason": reason, "message": texts, "finishedAt": now() } });
    json!({ "phase": phase, "containerStatuses": [container(state)] })
}

impl Ring {
    /// Creates a volume, as the image does.
    pub async fn create_volume(&self, volume: &PersistentVolume) {
        self.volumes().create(&PostParams::default(), volume).await.unwrap();
    }

    /// Ends the pod of a Job, as the kubelet reports it.
    pub async fn pod_ends(&self, job: &Job, code: i32, texts: &str) {
        self.pod_status(job, ended(code, texts)).await;
    }

    /// Ends the pod of a run that is being stopped: it may be deleted before it ends. A pod with a gate has no process
    /// that could end.
    pub async fn pod_ends_or_is_deleted(&self, job: &Job, code: i32, texts: &str) {
        let name = job.metadata.name.as_deref().unwrap();
        let pods = self.api::<Pod>(job.metadata.namespace.as_deref().unwrap());
        let of_job = ListParams::default().labels(&format!("job-name={name}"));
        let all = pods.list(&of_job).await.unwrap().items;
        for pod in all.iter().filter(|pod| gates(pod.spec.as_ref()).is_empty()) {
            self.pod_status_if_there(pod, ended(code, texts)).await;
        }
    }

    /// Writes the status of a pod without a gate, as the kubelet does, unless the pod is deleted before.
    pub async fn pod_status_if_there(&self, pod: &Pod, status: Value) {
        let (name, pods) = (pod.name_any(), self.api::<Pod>(pod.metadata.namespace.as_deref().unwrap()));
        let status = Patch::Merge(json!({ "status": status }));
        let written = match place(&pods, pod).await {
            Ok(()) => pods.patch_status(&name, &PatchParams::default(), &status).await.map(drop),
            error => error,
        };
        match written {
            Err(kube::Error::Api(status)) if status.code == 404 => {}
            written => written.unwrap(),
        }
    }

    /// Reports that the pod of a Job waits, as the kubelet does.
    pub async fn pod_waits(&self, job: &Job, reason: &str, message: &str) {
        let state = json!({ "waiting": { "reason": reason, "message": message } });
        self.pod_status(job, json!({ "phase": "Pending", "containerStatuses": [container(state)] })).await;
    }

    /// Writes the status of the pod of a Job, as the kubelet does once the pod has no gate.
    pub async fn pod_status(&self, job: &Job, status: Value) {
        let pod = self.pod_of(job).await;
        let name = pod.metadata.name.unwrap();
        let pods = self.api::<Pod>(pod.metadata.namespace.as_deref().unwrap());
        pods.patch_status(&name, &PatchParams::default(), &Patch::Merge(json!({ "status": status }))).await.unwrap();
    }

    /// Provisions a claim: the image creates its volume and succeeds. Returns Job and volume.
    pub async fn provision(&self, claim: &str) -> (Job, PersistentVolume) {
        let stamped = self.stamped(claim).await;
        let job = self.job(ADMIN, "provision", &uid(&stamped), 1).await;
        let volume = nfs_volume(&job);
        self.create_volume(&volume).await;
        self.bound(claim).await;
        self.pod_ends(&job, 0, "").await;
        (job, volume)
    }
}

fn now() -> String {
    jiff::Timestamp::now().strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}

fn container(state: Value) -> Value {
    json!({ "name": "provisioner", "image": "example/image", "imageID": "", "ready": false, "restartCount": 0, "state": state })
}
