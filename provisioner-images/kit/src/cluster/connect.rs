//! The client of the Kubernetes API.

use std::time::Duration;

use flex_contract::api::without_field_validation;
use kube::client::{Body, ClientBuilder};
use kube::{Client, Config};
use tower::util::MapRequestLayer;

use super::answer;
use super::says::{chain, says};
use crate::Failure;

/// Connects with the pod's ServiceAccount; outside a cluster, with the user's kubeconfig.
pub async fn connect() -> Result<Client, Failure> {
    let in_cluster = std::env::var_os("KUBERNETES_SERVICE_HOST").is_some();
    let mut config = if in_cluster {
        Config::incluster().map_err(|error| {
            answer::without_token(
                &std::env::var(flex_contract::variable::SERVICE_ACCOUNT.name).unwrap_or_default(),
                &chain(&error),
            )
        })?
    } else {
        Config::infer().await.map_err(|error| {
            Failure::usage(format!(
                "neither in a pod nor with a kubeconfig: {}; use --dry-run to only see the volume",
                chain(&error)
            ))
        })?
    };
    // The audit log shows this name.
    let agent = format!("flex-image-kit/{} ({})", env!("CARGO_PKG_VERSION"), std::env::consts::OS);
    if let (Ok(name), Ok(agent)) = ("user-agent".parse(), agent.parse()) {
        config.headers.push((name, agent));
    }
    config.connect_timeout = Some(Duration::from_secs(5));
    config.read_timeout = Some(Duration::from_secs(10));
    // `create` retries instead, so that all retries share one time limit.
    config.default_retry = false;
    let builder = ClientBuilder::try_from(config)
        .map_err(|error| Failure::config(format!("cannot speak to the Kubernetes API: {}", says(&error))))?;
    Ok(builder.with_layer(&MapRequestLayer::new(without_field_validation::<Body>)).build())
}
