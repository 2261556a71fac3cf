//! Reads the UID that identifies a cluster: that of the namespace `kube-system`, which no cluster is without and
//! which nobody can choose. A restored copy of etcd has the UID of its original.

use std::time::Duration;

use k8s_openapi::api::core::v1::Namespace;
use kube::{Api, Client};

use crate::clock::Clock;

/// The namespace.
const KUBE_SYSTEM: &str = "kube-system";
/// The delay before the next question, while the API server does not say the UID.
const RETRY_AFTER: Duration = Duration::from_secs(1);
/// The number of answers without a UID after which nobody asks again. A new API server makes the namespace soon, and may
/// refuse reads until it knows all rights.
const MAX_EMPTY: u32 = 20;

/// Returns the UID of the cluster; empty if the user may not read it, or if the cluster has no such namespace.
///
/// # Errors
/// If the API server does not answer.
pub async fn read(client: &Client) -> kube::Result<String> {
    let namespaces: Api<Namespace> = Api::all(client.clone());
    match namespaces.get_metadata_opt(KUBE_SYSTEM).await {
        Ok(namespace) => Ok(namespace.and_then(|namespace| namespace.metadata.uid).unwrap_or_default()),
        Err(kube::Error::Api(status)) if status.code == 403 => Ok(String::new()),
        Err(error) => Err(error),
    }
}

/// Returns the UID of the cluster, as soon as the API server says it.
pub async fn until_known(client: &Client, clock: &Clock) -> String {
    let mut empty = 0;
    loop {
        match read(client).await {
            Ok(uid) if !uid.is_empty() => return uid,
            Ok(uid) => {
                empty += 1;
                if empty == MAX_EMPTY {
                    tracing::warn!(
                        "the namespace {KUBE_SYSTEM} cannot be read, so volumes and runs of other clusters are not recognized"
                    );
                    return uid;
                }
            }
            Err(error) => tracing::warn!(%error, "the namespace {KUBE_SYSTEM} cannot be read yet"),
        }
        clock.sleep(RETRY_AFTER).await;
    }
}
