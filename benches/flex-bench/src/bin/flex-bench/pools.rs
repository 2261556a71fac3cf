//! Claims that get a pooled volume.

use std::time::{Duration, Instant};

use anyhow::Result;
use flex_bench::many::{self, within};
use flex_bench::statistics::Spread;
use flex_contract::names;
use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim};
use kube::Api;
use kube::api::ListParams;
use serde::Serialize;

use crate::bursts::{Bench, Burst, IN_BATCHES};

/// The class.
const CLASS: &str = "bench-pool";
/// The size of the claims.
const SIZE: &str = "1Mi";
/// The time limit to fill a pool, or to empty it.
const FILL_TIMEOUT: Duration = Duration::from_secs(600);
/// The delay between two checks.
const POLL: Duration = Duration::from_millis(200);
/// The delay between two claims.
const REST: Duration = Duration::from_millis(300);

/// Claims that are created one at a time.
#[derive(Debug, Serialize)]
pub struct Hits {
    /// The times from the creation of a claim until it was Bound, in milliseconds.
    pub latency: Spread,
    /// The values.
    pub total: Vec<f64>,
    /// The number of volumes that were made in a second, before.
    pub filled_per_second: f64,
}

/// Measures claims one at a time, and then a burst; returns nothing if this orchestrator has no pools.
///
/// # Errors
/// They are not done in time.
pub async fn measure(bench: &Bench<'_>, single: usize, burst: usize) -> Result<Option<(Hits, Burst)>> {
    // The pool is filled once for each measurement. The low watermark equals the remaining volumes, so that the
    // orchestrator makes no volume during the measurement.
    let Some(filled_per_second) = fill(bench, 2, single + 2).await? else { return Ok(None) };
    let claims: Api<PersistentVolumeClaim> = Api::default_namespaced(bench.client.clone());
    let mut total = Vec::new();
    for claim in many::claims("default", CLASS, single) {
        tokio::time::sleep(REST).await;
        let mut watch = many::watch(claims.clone()).await?;
        total.extend(many::made(&bench.client, &[claim], &mut watch, many::is_bound, FILL_TIMEOUT).await?.millis());
    }
    let latency = Spread::of(&total);
    eprintln!("  {:.0} ms in the median, until a claim has a pooled volume", latency.p50);
    let volumes: Api<PersistentVolume> = Api::all(bench.client.clone());
    let mut watch = many::watch(volumes.clone()).await?;
    many::removed(&bench.client, &many::claims("default", CLASS, single), &mut watch, |_| true, FILL_TIMEOUT).await?;
    fill(bench, 3, burst + 3).await?;
    let burst = bench.claims(&format!("pool-{burst}"), "claims of a pool", CLASS, burst).await?;
    // Without the key all pooled volumes are drained.
    bench.class(CLASS, &[IN_BATCHES, &[("capabilities", "pool")]].concat()).await?;
    let empty = async {
        while ready(&volumes).await? > 0 {
            tokio::time::sleep(POLL).await;
        }
        Ok(())
    };
    within(FILL_TIMEOUT, "the pool is empty", empty).await?;
    Ok(Some((Hits { latency, total, filled_per_second }, burst)))
}

/// Fills a pool unless it has `low` volumes already, and returns the volumes made in a second.
async fn fill(bench: &Bench<'_>, low: usize, high: usize) -> Result<Option<f64>> {
    bench.quiet().await?;
    eprintln!("a pool of {high}");
    let volumes: Api<PersistentVolume> = Api::all(bench.client.clone());
    let before = ready(&volumes).await?;
    let pool = format!("{SIZE}={low}..{high}");
    let settings = [("capabilities", "pool"), ("pool", pool.as_str()), ("pool-in-flight", "1000")];
    let began = Instant::now();
    if let Some(refusal) = bench.class(CLASS, &[IN_BATCHES, settings.as_slice()].concat()).await? {
        eprintln!("pools are not measured: {refusal}");
        return Ok(None);
    }
    let full = async {
        while ready(&volumes).await? < high {
            tokio::time::sleep(POLL).await;
        }
        Ok(())
    };
    within(FILL_TIMEOUT, "the pool is full", full).await?;
    let seconds = began.elapsed().as_secs_f64();
    bench.quiet().await?;
    Ok(Some(high.saturating_sub(before) as f64 / seconds))
}

async fn ready(volumes: &Api<PersistentVolume>) -> Result<usize> {
    Ok(volumes.list_metadata(&ListParams::default().labels(names::LABEL_POOL)).await?.items.len())
}
