//! One POST, with retries.

use std::cell::RefCell;
use std::time::Duration;

use backon::{ExponentialBuilder, Retryable};
use flex_contract::names::FIELD_MANAGER;
use k8s_openapi::api::core::v1::PersistentVolume;
use kube::Client;
use kube::api::{Api, PostParams};

use super::answer::{Answer, Verb, answer};
use super::same;
use super::says::says;
use super::turns::Turns;
use crate::Failure;

/// The time for which transient errors of the API are retried by default. The orchestrator waits for the end of longer
/// outages, because a waiting pod uses resources of its node.
pub const API_RETRY_TIMEOUT: Duration = Duration::from_secs(30);

/// Creates the volume, or checks that an earlier run has created the same one.
pub async fn create(client: Client, volume: &PersistentVolume, patience: Duration) -> Result<(), Failure> {
    create_in_turn(client, &Turns::none(), volume, patience).await
}

/// Creates the volume like [`create`], with each request in its turn.
pub(super) async fn create_in_turn(
    client: Client,
    turns: &Turns,
    volume: &PersistentVolume,
    patience: Duration,
) -> Result<(), Failure> {
    let volumes: Api<PersistentVolume> = Api::all(client);
    let last = RefCell::new(String::new());
    let attempt = || attempt(&volumes, turns, volume);
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

async fn attempt(volumes: &Api<PersistentVolume>, turns: &Turns, volume: &PersistentVolume) -> Result<(), Problem> {
    let parameters = PostParams { field_manager: Some(FIELD_MANAGER.into()), ..PostParams::default() };
    let Err(error) = turns.take(volumes.create(&parameters, volume)).await else { return Ok(()) };
    let name = volume.metadata.name.as_deref().unwrap_or_default();
    match answer(&error, Verb::Create, name) {
        Answer::Failed(failure) => return Err(Problem::Final(failure)),
        Answer::Transient(message) => return Err(Problem::Transient(message)),
        Answer::Exists => {}
    }
    let found = turns.take(volumes.get(name)).await.map_err(|error| match answer(&error, Verb::Get, name) {
        Answer::Failed(failure) => Problem::Final(failure),
        Answer::Transient(message) => Problem::Transient(message),
        Answer::Exists => Problem::Transient(says(&error)),
    })?;
    same::check(volume, &found).map_err(Problem::Final)
}
