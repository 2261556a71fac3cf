//! The deletion of many volumes at once, while new claims arrive.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::Result;
use flex_bench::many;
use flex_bench::statistics::Spread;
use flex_contract::names;
use futures::StreamExt;
use futures::stream::FuturesUnordered;
use k8s_openapi::api::core::v1::PersistentVolumeClaim;
use kube::api::ListParams;
use kube::runtime::wait::await_condition;
use serde::Serialize;

use crate::plane::{How, Plane, USER};

/// The time between two new claims.
const BETWEEN: Duration = Duration::from_secs(1);
/// The time for which claims arrive while nothing is deleted.
const QUIET: Duration = Duration::from_secs(30);
/// The time limit for a new claim.
const CLAIM_TIMEOUT: Duration = Duration::from_secs(600);

/// The measurement.
#[derive(Debug, Serialize)]
pub struct Drain {
    /// The number of volumes.
    pub volumes: usize,
    /// The time until all were made and bound, in seconds.
    pub made_s: f64,
    /// The time until all were deleted, in seconds.
    pub deleted_s: f64,
    /// The times from the creation of a new claim until it was bound, while nothing was deleted, in milliseconds.
    pub quiet: Spread,
    /// The same while the volumes were deleted.
    pub during: Spread,
    /// The number of claims that arrived during the deletion.
    pub arrived: usize,
    /// The time that each stage of these claims took, in milliseconds, by the timelines on the claims. Kubernetes tells
    /// most times in whole seconds.
    pub stages: Vec<(String, Spread)>,
}

/// Makes volumes in batches, deletes them at once, and measures claims with a pod each that arrive meanwhile.
///
/// # Errors
/// The API server refuses an object, or a claim or a volume takes too long.
pub async fn measure(plane: &Plane, program: &Path, volumes: usize) -> Result<Drain> {
    let orchestrator = plane.orchestrator(program).await?;
    let made = plane.burst(How::Batches, volumes).await?;
    plane.no_runs(volumes).await?;
    let rest = async {
        tokio::time::sleep(QUIET).await;
        Ok(())
    };
    let (quiet, ()) = arriving(plane, "quiet", rest).await?;
    let delete = async {
        let began = Instant::now();
        plane.delete(volumes, |claim| claim.starts_with("burst-")).await?;
        Ok(began.elapsed())
    };
    let (during, deleted) = arriving(plane, "during", delete).await?;
    let stages = stages(plane, "during-").await?;
    plane.clear(volumes).await?;
    plane.no_runs(volumes).await?;
    orchestrator.stop().await?;
    Ok(Drain {
        volumes,
        made_s: made.seconds(),
        deleted_s: deleted.as_secs_f64(),
        quiet: Spread::of(&quiet),
        arrived: during.len(),
        during: Spread::of(&during),
        stages,
    })
}

/// The order of the stages of a claim.
const STAGES: [&str; 7] = ["stamped", "job-created", "scheduled", "started", "volume-created", "adopted", "bound"];

/// Reads how long each stage of the claims with a prefix took.
async fn stages(plane: &Plane, prefix: &str) -> Result<Vec<(String, Spread)>> {
    let mut took: BTreeMap<usize, Vec<f64>> = BTreeMap::new();
    for claim in plane.claims().list(&ListParams::default()).await? {
        let is_one = claim.metadata.name.as_deref().is_some_and(|name| name.starts_with(prefix));
        let text = claim.metadata.annotations.as_ref().and_then(|annotations| annotations.get(names::TIMELINE));
        let Some(text) = text.filter(|_| is_one) else { continue };
        let timeline: serde_json::Value = serde_json::from_str(text)?;
        let mut before = 0;
        for (number, stage) in STAGES.iter().enumerate() {
            let Some(after) = timeline["ms"][stage].as_i64() else { continue };
            took.entry(number).or_default().push((after.max(before) - before) as f64);
            before = before.max(after);
        }
    }
    Ok(took.into_iter().map(|(number, times)| (STAGES[number].to_owned(), Spread::of(&times))).collect())
}

/// Creates a claim at intervals until the work is done, and waits until all are bound. Returns the time that each took, in
/// milliseconds, and the result of the work.
async fn arriving<T>(plane: &Plane, prefix: &str, work: impl Future<Output = Result<T>>) -> Result<(Vec<f64>, T)> {
    tokio::pin!(work);
    let mut ticks = tokio::time::interval(BETWEEN);
    let (mut pending, mut times, mut number) = (FuturesUnordered::new(), Vec::new(), 0);
    let done = loop {
        tokio::select! {
            done = &mut work => break done?,
            _ = ticks.tick() => {
                number += 1;
                pending.push(bound_after(plane, format!("{prefix}-{number}")));
            }
            Some(time) = pending.next() => times.push(time?),
        }
    };
    while let Some(time) = pending.next().await {
        times.push(time?);
    }
    Ok((times, done))
}

/// Creates a claim with a pod of its own, and returns the time until it was bound, in milliseconds.
async fn bound_after(plane: &Plane, name: String) -> Result<f64> {
    let mut claim = many::claims(USER, How::Each.class(), 1).remove(0);
    claim["metadata"]["name"] = name.as_str().into();
    let began = Instant::now();
    plane.create(&claim).await?;
    let is_bound = |claim: Option<&PersistentVolumeClaim>| claim.is_some_and(many::is_bound);
    let bound = async { Ok(await_condition(plane.claims(), &name, is_bound).await.map(drop)?) };
    many::within(CLAIM_TIMEOUT, "a new claim is bound", bound).await?;
    Ok(began.elapsed().as_secs_f64() * 1000.0)
}
