//! The check whether nodes can pull an image, by the pods that wait for it or by a pod of its own.

use std::time::{Duration, Instant};

use flex_contract::names;
use flex_core::preflight::ImageState;
use k8s_openapi::api::core::v1::Pod;
use kube::api::{DeleteParams, PostParams};
use kube::{Api, Client, ResourceExt};
use serde_json::json;

/// The time between two looks at a pod.
const POLL: Duration = Duration::from_millis(500);

/// A program that no image has. So the pod ends as soon as the image is pulled, and runs no program of the image.
const NO_PROGRAM: &str = "/flex-provisioner-check-pulls-only";

/// An image that the kubelet cannot pull for a pod.
pub(super) struct PullError {
    pub image: String,
    /// The kubelet's message.
    pub message: String,
}

/// Returns the images that the kubelet cannot pull for a pod.
pub(super) fn errors(pod: &Pod) -> Vec<PullError> {
    let statuses = pod.status.iter().flat_map(|status| status.container_statuses.iter().flatten());
    statuses
        .filter_map(|status| {
            let waiting = status.state.as_ref()?.waiting.as_ref()?;
            let reason = waiting.reason.as_deref()?;
            let is_pull =
                reason.contains("ImagePull") || reason.contains("InvalidImageName") || reason.contains("ErrImage");
            let message = waiting.message.clone().unwrap_or_else(|| reason.to_owned());
            is_pull.then(|| PullError { image: status.image.clone(), message })
        })
        .collect()
}

/// Checks whether the container's image is on the node: the kubelet has created, or tried to start, the container.
fn is_pulled(pod: &Pod) -> bool {
    let statuses = pod.status.iter().flat_map(|status| status.container_statuses.iter().flatten());
    statuses.into_iter().any(|status| {
        let state = status.state.as_ref();
        let begun = state.is_some_and(|state| state.terminated.is_some() || state.running.is_some());
        let tried = state.and_then(|state| state.waiting.as_ref()?.reason.as_deref());
        begun || tried.is_some_and(|reason| reason.contains("RunContainer") || reason.contains("CreateContainer"))
    })
}

/// Pulls an image: starts a pod, waits until the image is there or cannot be pulled, and deletes the pod.
pub(super) async fn pull(
    client: &Client,
    namespace: &str,
    image: &str,
    timeout: Duration,
) -> anyhow::Result<ImageState> {
    let pods: Api<Pod> = Api::namespaced(client.clone(), namespace);
    let pod: Pod = serde_json::from_value(json!({
        "metadata": { "generateName": "flex-provisioner-check-" },
        "spec": {
            "restartPolicy": "Never",
            "automountServiceAccountToken": false,
            "enableServiceLinks": false,
            "nodeSelector": { names::OS: names::OS_LINUX },
            "tolerations": [{ "operator": "Exists" }],
            "securityContext": { "runAsNonRoot": true, "runAsUser": 65532, "seccompProfile": { "type": "RuntimeDefault" } },
            "containers": [{
                "name": "check",
                "image": image,
                "command": [NO_PROGRAM],
                "securityContext": { "allowPrivilegeEscalation": false, "capabilities": { "drop": ["ALL"] } },
            }],
        },
    }))?;
    let began = Instant::now();
    loop {
        let name = pods.create(&PostParams::default(), &pod).await?.name_any();
        let state = wait(&pods, &name, began, timeout).await;
        let is_gone = |error: &kube::Error| matches!(error, kube::Error::Api(status) if status.code == 404);
        match pods.delete(&name, &DeleteParams::default().grace_period(0)).await {
            Err(error) if !is_gone(&error) => return Err(error.into()),
            _ => {}
        }
        // Somebody has removed the pod, as a drain does.
        if state.as_ref().is_err_and(is_gone) && began.elapsed() < timeout {
            continue;
        }
        return Ok(state?);
    }
}

async fn wait(pods: &Api<Pod>, name: &str, began: Instant, timeout: Duration) -> kube::Result<ImageState> {
    loop {
        let pod = pods.get(name).await?;
        if is_pulled(&pod) {
            return Ok(ImageState { nodes: 1, error: None });
        }
        if let Some(error) = errors(&pod).into_iter().next() {
            return Ok(ImageState { nodes: 0, error: Some(error.message) });
        }
        if began.elapsed() > timeout {
            let phase = pod.status.and_then(|status| status.phase).unwrap_or_default();
            let error = format!("the pod that pulls it is still {phase} after {} s", timeout.as_secs());
            return Ok(ImageState { nodes: 0, error: Some(error) });
        }
        tokio::time::sleep(POLL).await;
    }
}
