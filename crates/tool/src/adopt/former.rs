//! The check that the former provisioner does not run: it would delete released volumes, too.

use anyhow::{Context as _, bail};
use flex_core::config::external_provisioner::{drivers_of, is_missing};
use flex_core::object::ObjectName;
use flex_provisioner::api::{external_provisioner, pages};
use flex_provisioner::clock::Clock;
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::Pod;
use kube::api::ListParams;
use kube::{Api, Client, core};

use super::work::Work;
use crate::out::remark;

/// Checks that a provisioner is stopped. `is_gone` is the admin's word on one whose Deployment does not exist.
pub(super) async fn verify_stopped(work: &Work, name: &str, is_gone: bool) -> anyhow::Result<()> {
    let drivers = drivers_of(name, work.index.config(&work.config));
    let deployments: Vec<ObjectName> =
        drivers.values().flat_map(|whereabouts| whereabouts.deployments.iter().cloned()).collect();
    let found = external_provisioner::once(&work.client, drivers, &Clock::default()).await;
    if let Some(why) = found.of(name).blocking_reason(name, &[]) {
        bail!("{why}");
    }
    if let Some(names) = found.missing(name).filter(|_| !is_gone) {
        bail!("{}; if it is gone for good, add --former-is-gone", is_missing(name, names));
    }
    for deployment in &deployments {
        verify_no_pod(&work.client, deployment).await?;
    }
    Ok(())
}

/// Checks that no pod of a Deployment is left. A terminating pod may still delete a directory.
async fn verify_no_pod(client: &Client, of: &ObjectName) -> anyhow::Result<()> {
    let deployments: Api<Deployment> = Api::namespaced(client.clone(), &of.namespace);
    let found = deployments.get_opt(&of.name).await.with_context(|| format!("Deployment {of}"))?;
    let Some(spec) = found.and_then(|deployment| deployment.spec) else { return Ok(()) };
    let selector: core::Selector = spec.selector.try_into().with_context(|| format!("the selector of {of}"))?;
    let pods: Api<Pod> = Api::namespaced(client.clone(), &of.namespace);
    let pods = match pages::all(&pods, ListParams::default().labels_from(&selector), |pod| pod).await {
        Err(kube::Error::Api(status)) if status.code == 403 => {
            remark!("the pods of the Deployment {of} cannot be listed: make sure that none is left");
            return Ok(());
        }
        pods => pods.with_context(|| format!("the pods of the Deployment {of}"))?,
    };
    let phase = |pod: &Pod| pod.status.as_ref().and_then(|status| status.phase.clone()).unwrap_or_default();
    let left = pods.iter().find(|pod| !matches!(phase(pod).as_str(), "Succeeded" | "Failed"));
    match left {
        Some(pod) => {
            let pod = pod.metadata.name.clone().unwrap_or_default();
            bail!("the pod {}/{pod} of the Deployment {of} is still there: wait until it is gone", of.namespace)
        }
        None => Ok(()),
    }
}
