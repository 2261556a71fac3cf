//! The connection to the API server.

use std::time::Duration;

use anyhow::Context;
use kube::{Client, Config};

use super::pages;

/// No API request takes longer; a hung connection must not hold a worker for ever. Watches end
/// before it by themselves, and the server sends bookmarks meanwhile.
const READ: Duration = Duration::from_secs(240);
const CONNECT: Duration = Duration::from_secs(5);

/// Connects by the kubeconfig of the environment, or as a pod.
///
/// # Errors
/// If neither exists or is readable; the message says which were tried.
pub async fn connect() -> anyhow::Result<(Client, String)> {
    // Two crypto providers in one binary would make rustls panic at its first use.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let mut config = Config::infer()
        .await
        .context("no access to a cluster: set KUBECONFIG, or run as a pod with a ServiceAccount token")?;
    config.connect_timeout = Some(CONNECT);
    config.read_timeout = Some(READ);
    let address = config.cluster_url.to_string().trim_end_matches('/').to_owned();
    let client = Client::try_from(config).context("the kubeconfig cannot be used")?;
    Ok((pages::bounded(&client), address))
}
