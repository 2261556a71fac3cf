//! The measurements.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use flex_bench::audit::Each;
use flex_bench::machine::{Machine, commit};
use flex_bench::many;
use flex_bench::objects;
use flex_bench::profile::Profile;
use flex_bench::statistics::Spread;
use flex_contract::names;
use flex_core::model::volume::adoption_mark;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::PersistentVolume;
use kube::api::ListParams;
use kube::{Api, ResourceExt};
use serde::Serialize;
use serde_json::{Value, json};

use crate::drain::{self, Drain};
use crate::node::Node;
use crate::plane::{ADMIN, How, Plane, USER, each};

/// The number of claims in progress when memory is measured.
pub const IN_FLIGHT: usize = 1_000;
/// A small burst is repeated until this many claims are measured, and its cost is the mean.
pub const TOGETHER: usize = 200;
/// The rest after the last run has ended, for events and the volumes' last writes.
const REST: Duration = Duration::from_secs(1);

/// The plan of the measurements.
#[derive(Clone, Debug)]
pub struct Plan {
    /// Sizes of bursts in batches.
    pub bursts: Vec<usize>,
    /// Sizes of bursts with a pod each.
    pub each: Vec<usize>,
    /// The number of claims in progress when memory is measured; 0 leaves it out.
    pub in_flight: usize,
    /// The number of claims among which the orchestrator is started; 0 leaves it out.
    pub standing: usize,
    /// The number of volumes that are deleted while new claims arrive; 0 leaves it out.
    pub drain: usize,
}

/// All measurements.
#[derive(Debug, Serialize)]
pub struct Results {
    /// The date.
    pub date: String,
    /// The state of the project.
    pub commit: String,
    /// The machine.
    pub machine: Machine,
    /// The bursts, from the smallest of each kind.
    pub bursts: Vec<Burst>,
    /// The memory with many claims in progress.
    pub in_flight: Vec<InFlight>,
    /// The start in a full cluster.
    pub standing: Option<Standing>,
    /// The deletion of many volumes while new claims arrive.
    pub drain: Option<Drain>,
}

/// Claims that were created at once.
#[derive(Debug, Serialize)]
pub struct Burst {
    /// The way in which they are served.
    pub how: How,
    /// The number of claims.
    pub claims: usize,
    /// The number of repetitions: the values are the mean, unless they are those of the last burst.
    pub times: usize,
    /// The time until the last was bound, in seconds.
    pub seconds: f64,
    /// The times from the creation of each until it was bound, in the last burst, in milliseconds.
    pub latency: Spread,
    /// The orchestrator's processor time for each until no run was left, in milliseconds.
    pub cpu_ms_per_claim: f64,
    /// The same for the deletion of each with its volume.
    pub cpu_ms_per_deletion: f64,
    /// The orchestrator's peak memory until no run was left, in MiB.
    pub peak_mib: f64,
    /// The requests for each, until no run was left.
    pub requests: Vec<Each>,
    /// The requests for the deletion of each.
    pub deletion_requests: Vec<Each>,
    /// The use of the processors until the last was bound, in the last burst.
    pub profile: Profile,
    /// The times at which each was bound, in the last burst, in seconds since the beginning.
    pub done: Vec<f64>,
}

/// The orchestrator's memory with many claims in progress.
#[derive(Debug, Serialize)]
pub struct InFlight {
    /// The way in which they are served.
    pub how: How,
    /// The number of claims whose pods wait.
    pub claims: usize,
    /// The peak memory until all had pods, in MiB.
    pub peak_mib: f64,
    /// The peak memory until all were bound.
    pub peak_when_bound_mib: f64,
}

/// A start in a cluster with many volumes.
#[derive(Debug, Serialize)]
pub struct Standing {
    /// The number of bound claims, and of volumes.
    pub claims: usize,
    /// The time from the start of the process until it was ready, in seconds.
    pub ready_s: f64,
    /// The peak memory in the next half minute, in MiB.
    pub peak_mib: f64,
    /// The processor time in that time, in seconds.
    pub cpu_s: f64,
}

/// Measures everything.
pub async fn measure(program: &Path, plan: &Plan) -> Result<Results> {
    let machine = Machine::this();
    let plane = Plane::start(true, true).await?;
    let node = Node::join(&plane.cluster, ADMIN).await?;
    let mut bursts = Vec::new();
    let sizes = |how, sizes: &[usize]| sizes.iter().map(move |size| (how, *size)).collect::<Vec<_>>();
    for (how, size) in [sizes(How::Batches, &plan.bursts), sizes(How::Each, &plan.each)].concat() {
        eprintln!("a burst of {size}, {}", how.describe());
        bursts.push(burst(&plane, program, how, size).await.with_context(|| format!("a burst of {size}"))?);
    }
    let mut in_flight = Vec::new();
    for how in [How::Batches, How::Wide] {
        if plan.in_flight > 0 {
            eprintln!("{} under way, {}", plan.in_flight, how.describe());
            in_flight.push(under_way(&plane, &node, program, how, plan.in_flight).await.context("claims under way")?);
        }
    }
    let drain = match plan.drain {
        0 => None,
        many => {
            eprintln!("{many} volumes are deleted while claims arrive");
            Some(drain::measure(&plane, program, many).await.with_context(|| format!("the deletion of {many}"))?)
        }
    };
    let standing = match plan.standing {
        0 => None,
        many => {
            let specimen = specimen(&plane, program).await?;
            drop(node);
            plane.cluster.stop().await?;
            eprintln!("{many} claims and volumes");
            Some(start_among(program, many, &specimen).await.with_context(|| format!("{many} claims and volumes"))?)
        }
    };
    let date = Timestamp::now().strftime("%Y-%m-%d").to_string();
    Ok(Results { date, commit: commit(), machine, bursts, in_flight, standing, drain })
}

async fn burst(plane: &Plane, program: &Path, how: How, size: usize) -> Result<Burst> {
    let orchestrator = plane.orchestrator(program).await?;
    let (process, watched, audit) = (orchestrator.process, plane.watched(&orchestrator)?, plane.audit());
    let times = (TOGETHER / size).clamp(1, 10);
    let (mut seconds, mut making, mut deleting) = (0.0, Duration::ZERO, Duration::ZERO);
    let (mut requests, mut deletion_requests) = (Default::default(), Default::default());
    let mut last = None;
    for _ in 0..times {
        let (used, before, mark) = (process.processor_time()?, watched.sample()?, audit.mark()?);
        let made = plane.burst(how, size).await?;
        let profile = watched.since(&before)?;
        // Work after the binding is part of the cost.
        plane.no_runs(size).await?;
        tokio::time::sleep(REST).await;
        let (done, peak) = (process.processor_time()?, process.peak_memory()?);
        audit.since(mark, &mut requests)?;
        let mark = audit.mark()?;
        plane.clear(size).await?;
        plane.no_runs(size).await?;
        tokio::time::sleep(REST).await;
        audit.since(mark, &mut deletion_requests)?;
        seconds += made.seconds();
        making += done - used;
        deleting += process.processor_time()? - done;
        last = Some((made, profile, peak));
    }
    orchestrator.stop().await?;
    let (made, profile, peak) = last.context("a burst has at least one repetition")?;
    let each = |time: Duration| time.as_secs_f64() * 1000.0 / (size * times) as f64;
    Ok(Burst {
        how,
        claims: size,
        times,
        seconds: seconds / times as f64,
        latency: Spread::of(&made.millis()),
        cpu_ms_per_claim: each(making),
        cpu_ms_per_deletion: each(deleting),
        peak_mib: mib(peak),
        requests: requests.each(size * times),
        deletion_requests: deletion_requests.each(size * times),
        profile,
        done: made.done(),
    })
}

/// Measures memory: the node is paused until there are pods for all claims.
async fn under_way(plane: &Plane, node: &Node, program: &Path, how: How, size: usize) -> Result<InFlight> {
    let orchestrator = plane.orchestrator(program).await?;
    node.pause(true);
    let release = async {
        let began = Instant::now();
        while node.waiting() < size {
            let waiting = node.waiting();
            ensure!(began.elapsed() < Duration::from_secs(300), "only {waiting} of {size} have pods");
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        tokio::time::sleep(REST).await;
        let peak = orchestrator.process.peak_memory();
        node.pause(false);
        peak
    };
    let (peak, _) = tokio::try_join!(release, plane.burst(how, size))?;
    plane.no_runs(size).await?;
    let bound = orchestrator.process.peak_memory()?;
    plane.clear(size).await?;
    plane.no_runs(size).await?;
    orchestrator.stop().await?;
    Ok(InFlight { how, claims: size, peak_mib: mib(peak), peak_when_bound_mib: mib(bound) })
}

/// Returns a claim and its volume in their final state.
async fn specimen(plane: &Plane, program: &Path) -> Result<(Value, Value)> {
    let orchestrator = plane.orchestrator(program).await?;
    plane.burst(How::Each, 1).await?;
    plane.no_runs(1).await?;
    tokio::time::sleep(REST).await;
    let claim = plane.claims().list(&ListParams::default()).await?.items.into_iter().next().context("no claim")?;
    let volumes: Api<PersistentVolume> = Api::all(plane.client.clone());
    let volume = volumes.list(&ListParams::default()).await?.items.into_iter().next().context("no volume")?;
    orchestrator.stop().await?;
    Ok((serde_json::to_value(claim)?, serde_json::to_value(volume)?))
}

/// Measures a start among many copies of the specimen, with no other work.
async fn start_among(program: &Path, many: usize, specimen: &(Value, Value)) -> Result<Standing> {
    let plane = Plane::start(false, false).await?;
    let claims = many::claims(USER, How::Each.class(), many);
    each(many, async |number| plane.create(&claims[number]).await.map(drop)).await?;
    let (claim, volume) = (specimen.0.to_string(), specimen.1.to_string());
    let uid_of_specimen = specimen.0["metadata"]["uid"].as_str().context("a claim has a UID")?;
    let claims = plane.claims().list_metadata(&ListParams::default()).await?.items;
    each(claims.len(), async |number| {
        let (name, uid) = (claims[number].name_any(), claims[number].uid().unwrap_or_default());
        let like = |text: &str| -> Result<Value> { Ok(serde_json::from_str(&text.replace(uid_of_specimen, &uid))?) };
        let (claim, mut volume) = (like(&claim)?, like(&volume)?);
        let location = json!({
            "apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": { "name": name, "namespace": USER },
        });
        let meta = &claim["metadata"];
        let bound = json!({
            "metadata": { "annotations": meta["annotations"], "finalizers": meta["finalizers"] },
            "spec": { "volumeName": claim["spec"]["volumeName"] },
        });
        objects::merge(&plane.client, &location, "", &bound).await?;
        objects::merge(&plane.client, &location, "status", &json!({ "status": claim["status"] })).await?;
        let metadata = volume["metadata"].as_object_mut().context("a volume has metadata")?;
        for key in ["uid", "resourceVersion", "creationTimestamp", "managedFields"] {
            metadata.remove(key);
        }
        volume["apiVersion"] = json!("v1");
        volume["kind"] = json!("PersistentVolume");
        volume["spec"]["claimRef"]["name"] = json!(name);
        let mut status = volume["status"].clone();
        let (_, created) = objects::create(&plane.client, &volume).await?;
        // The mark belongs to one object. Without its own, each copy would be adopted again.
        let provenance = volume["metadata"]["annotations"][names::PROVENANCE].as_str().unwrap_or_default();
        status["reason"] = json!(adoption_mark(provenance, created["metadata"]["uid"].as_str().unwrap_or_default()));
        objects::merge(&plane.client, &volume, "status", &json!({ "status": status })).await.map(drop)
    })
    .await?;
    let before = versions(&plane).await?;
    let orchestrator = plane.orchestrator(program).await?;
    tokio::time::sleep(Duration::from_secs(30)).await;
    ensure!(before == versions(&plane).await?, "the orchestrator has changed volumes that were settled");
    let standing = Standing {
        claims: many,
        ready_s: orchestrator.ready_after.as_secs_f64(),
        peak_mib: mib(orchestrator.process.peak_memory()?),
        cpu_s: orchestrator.process.processor_time()?.as_secs_f64(),
    };
    orchestrator.stop().await?;
    plane.cluster.stop().await?;
    Ok(standing)
}

/// Returns the version of each volume.
async fn versions(plane: &Plane) -> Result<BTreeMap<String, Option<String>>> {
    let volumes: Api<PersistentVolume> = Api::all(plane.client.clone());
    let all = volumes.list_metadata(&ListParams::default()).await?.items;
    Ok(all.into_iter().map(|volume| (volume.name_any(), volume.resource_version())).collect())
}

fn mib(bytes: u64) -> f64 {
    bytes as f64 / f64::from(1 << 20)
}
