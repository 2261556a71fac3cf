//! The creation of the PersistentVolume: one POST, and the handling of each possible answer.

mod answer;
mod same;

use std::cell::RefCell;
use std::time::Duration;

use backon::{ExponentialBuilder, Retryable};
use flex_contract::api::without_field_validation;
use flex_contract::names::FIELD_MANAGER;
use k8s_openapi::api::core::v1::PersistentVolume;
use kube::api::{Api, PostParams};
use kube::client::{Body, ClientBuilder};
use kube::{Client, Config};
use tower::util::MapRequestLayer;

use crate::Failure;
use answer::{Answer, Verb, answer};

/// The time for which transient errors of the API are retried by default. The orchestrator waits for the end of longer
/// outages, because a waiting pod uses resources of its node.
pub const API_RETRY_TIMEOUT: Duration = Duration::from_secs(30);

/// Connects with the pod's ServiceAccount; outside a cluster, with the user's kubeconfig.
pub async fn connect() -> Result<Client, Failure> {
    let in_cluster = std::env::var_os("KUBERNETES_SERVICE_HOST").is_some();
    let mut config = if in_cluster {
        Config::incluster().map_err(|error| {
            answer::without_token(&std::env::var("SERVICE_ACCOUNT").unwrap_or_default(), &error.to_string())
        })?
    } else {
        Config::infer().await.map_err(|error| {
            Failure::usage(format!(
                "neither in a pod nor with a kubeconfig: {error}; use --dry-run to only see the volume"
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
        .map_err(|error| Failure::config(format!("cannot speak to the Kubernetes API: {error}")))?;
    Ok(builder.with_layer(&MapRequestLayer::new(without_field_validation::<Body>)).build())
}

/// Creates the volume, or checks that an earlier run has created the same one.
pub async fn create(client: Client, volume: &PersistentVolume, patience: Duration) -> Result<(), Failure> {
    let volumes: Api<PersistentVolume> = Api::all(client);
    let last = RefCell::new(String::new());
    let attempt = || attempt(&volumes, volume);
    let patient = attempt
        .retry(
            ExponentialBuilder::default()
                .with_min_delay(Duration::from_millis(50))
                .with_max_delay(Duration::from_secs(3))
                .without_max_times()
                .with_jitter(),
        )
        .when(|problem: &Problem| matches!(problem, Problem::Transient(_)))
        .notify(|problem, _| *last.borrow_mut() = problem.to_string());
    match tokio::time::timeout(patience, patient).await {
        Ok(Ok(())) => Ok(()),
        Ok(Err(Problem::Final(failure))) => Err(failure),
        Ok(Err(Problem::Transient(message))) => Err(gave_up(patience, &message)),
        Err(_) => Err(gave_up(patience, &last.borrow())),
    }
}

/// Prints the volume as YAML instead of creating it, to try an image without a cluster.
pub fn print(volume: &PersistentVolume) -> Result<(), Failure> {
    let yaml = flex_manifest::to_yaml(volume).map_err(Failure::never)?;
    print!("{yaml}");
    Ok(())
}

fn gave_up(patience: Duration, message: &str) -> Failure {
    let message = if message.is_empty() { "no answer" } else { message };
    Failure::retry(format!(
        "the Kubernetes API did not take the PersistentVolume within {} s: {message}",
        patience.as_secs()
    ))
}

enum Problem {
    Transient(String),
    Final(Failure),
}

impl std::fmt::Display for Problem {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Problem::Transient(message) => f.write_str(message),
            Problem::Final(failure) => failure.fmt(f),
        }
    }
}

async fn attempt(volumes: &Api<PersistentVolume>, volume: &PersistentVolume) -> Result<(), Problem> {
    let parameters = PostParams { field_manager: Some(FIELD_MANAGER.into()), ..PostParams::default() };
    let Err(error) = volumes.create(&parameters, volume).await else { return Ok(()) };
    let name = volume.metadata.name.as_deref().unwrap_or_default();
    match answer(&error, Verb::Create, name) {
        Answer::Failed(failure) => return Err(Problem::Final(failure)),
        Answer::Transient(message) => return Err(Problem::Transient(message)),
        Answer::Exists => {}
    }
    let found = volumes.get(name).await.map_err(|error| match answer(&error, Verb::Get, name) {
        Answer::Failed(failure) => Problem::Final(failure),
        Answer::Transient(message) => Problem::Transient(message),
        Answer::Exists => Problem::Transient(error.to_string()),
    })?;
    same::check(volume, &found).map_err(Problem::Final)
}
