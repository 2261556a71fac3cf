//! The measurements.

use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use flex_bench::machine::{Machine, commit};
use flex_bench::objects;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::PersistentVolume;
use kube::api::ListParams;
use kube::{Api, ResourceExt};
use serde::Serialize;
use serde_json::{Value, json};

use crate::node::Node;
use crate::plane::{ADMIN, ORCHESTRATOR, Plane, USER, each};

/// Claims of the run in which requests are counted.
const COUNTED: usize = 200;

/// All that was measured.
#[derive(Debug, Serialize)]
pub struct Results {
    /// When.
    pub date: String,
    /// The state of the project.
    pub commit: String,
    /// On what.
    pub machine: Machine,
    /// Bursts, from the smallest.
    pub bursts: Vec<Burst>,
    /// Who asks the API server how often for one claim, from its creation until it is bound.
    pub requests: Requests,
    /// The start where the cluster is full.
    pub standing: Option<Standing>,
}

/// Claims that were created at once.
#[derive(Debug, Serialize)]
pub struct Burst {
    /// So many.
    pub claims: usize,
    /// Until the last was bound, in seconds.
    pub seconds: f64,
    /// Processor time of the orchestrator for each until then, in milliseconds.
    pub cpu_ms_per_claim: f64,
    /// The same for the deletion of each with its volume.
    pub cpu_ms_per_deletion: f64,
    /// The most memory that the orchestrator had until all were bound, in MiB.
    pub peak_mib: f64,
}

/// Requests for one claim, in the mean of [`COUNTED`].
#[derive(Debug, Serialize)]
pub struct Requests {
    /// Of so many claims.
    pub claims: usize,
    /// By the orchestrator.
    pub orchestrator: f64,
    /// By the controller manager.
    pub controller_manager: f64,
}

/// A start in a cluster with many volumes.
#[derive(Debug, Serialize)]
pub struct Standing {
    /// Bound claims, and as many volumes.
    pub claims: usize,
    /// From the start of the process until it was ready, in seconds.
    pub ready_s: f64,
    /// The most memory that it had by half a minute later, in MiB.
    pub peak_mib: f64,
    /// Processor time that it took by then, in seconds.
    pub cpu_s: f64,
}

/// Measures everything.
pub async fn measure(program: &Path, sizes: &[usize], standing: usize) -> Result<Results> {
    let machine = Machine::this();
    let requests = requests(program).await.context("the requests for one claim")?;
    let plane = Plane::start(false, true).await?;
    let node = Node::join(plane.client.clone(), ADMIN).await?;
    let mut bursts = Vec::new();
    for size in sizes {
        eprintln!("a burst of {size}");
        bursts.push(burst(&plane, program, *size).await.with_context(|| format!("a burst of {size}"))?);
    }
    let standing = match standing {
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
    Ok(Results { date, commit: commit(), machine, bursts, requests, standing })
}

async fn burst(plane: &Plane, program: &Path, size: usize) -> Result<Burst> {
    let orchestrator = plane.orchestrator(program).await?;
    let before = orchestrator.processor_time()?;
    let began = Instant::now();
    plane.burst(size).await?;
    plane.all_bound(size).await?;
    let seconds = began.elapsed().as_secs_f64();
    // What comes after the binding is part of the price: Jobs that end, the volume's last events.
    tokio::time::sleep(Duration::from_secs(2)).await;
    let bound = orchestrator.processor_time()?;
    let peak = orchestrator.peak_memory()?;
    plane.clear(size).await?;
    let cleared = orchestrator.processor_time()?;
    orchestrator.stop().await?;
    let each = |time: Duration| time.as_secs_f64() * 1000.0 / size as f64;
    Ok(Burst {
        claims: size,
        seconds,
        cpu_ms_per_claim: each(bound - before),
        cpu_ms_per_deletion: each(cleared - bound),
        peak_mib: mib(peak),
    })
}

async fn requests(program: &Path) -> Result<Requests> {
    let plane = Plane::start(true, true).await?;
    let node = Node::join(plane.client.clone(), ADMIN).await?;
    let orchestrator = plane.orchestrator(program).await?;
    let before = plane.requests()?;
    plane.burst(COUNTED).await?;
    plane.all_bound(COUNTED).await?;
    tokio::time::sleep(Duration::from_secs(2)).await;
    let after = plane.requests()?;
    orchestrator.stop().await?;
    drop(node);
    plane.cluster.stop().await?;
    let of = |is: &dyn Fn(&str) -> bool| {
        let sum = |counts: &std::collections::BTreeMap<String, usize>| -> usize {
            counts.iter().filter(|(who, _)| is(who)).map(|(_, count)| count).sum()
        };
        (sum(&after) - sum(&before)) as f64 / COUNTED as f64
    };
    Ok(Requests {
        claims: COUNTED,
        orchestrator: of(&|who| who == ORCHESTRATOR),
        controller_manager: of(&|who| {
            who == "system:kube-controller-manager" || who.starts_with("system:serviceaccount:kube-system:")
        }),
    })
}

/// A claim and its volume, as they are when all is done.
async fn specimen(plane: &Plane, program: &Path) -> Result<(Value, Value)> {
    let orchestrator = plane.orchestrator(program).await?;
    plane.burst(1).await?;
    plane.all_bound(1).await?;
    tokio::time::sleep(Duration::from_secs(2)).await;
    let claim = plane.claims().get("c0").await?;
    let volumes: Api<PersistentVolume> = Api::all(plane.client.clone());
    let volume = volumes.list(&ListParams::default()).await?.items.into_iter().next().context("no volume")?;
    orchestrator.stop().await?;
    Ok((serde_json::to_value(claim)?, serde_json::to_value(volume)?))
}

/// The start among many that are like the specimen, with nobody else at work.
async fn start_among(program: &Path, many: usize, specimen: &(Value, Value)) -> Result<Standing> {
    let plane = Plane::start(false, false).await?;
    plane.burst(many).await?;
    let (claim, volume) = (specimen.0.to_string(), specimen.1.to_string());
    let uid_of_specimen = specimen.0["metadata"]["uid"].as_str().context("a claim has a UID")?;
    let claims = plane.claims().list_metadata(&ListParams::default()).await?.items;
    each(claims.len(), async |number| {
        let (name, uid) = (claims[number].name_any(), claims[number].uid().unwrap_or_default());
        let like = |text: &str| -> Result<Value> { Ok(serde_json::from_str(&text.replace(uid_of_specimen, &uid))?) };
        let (claim, mut volume) = (like(&claim)?, like(&volume)?);
        let place = json!({
            "apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": { "name": name, "namespace": USER },
        });
        let meta = &claim["metadata"];
        let bound = json!({
            "metadata": { "annotations": meta["annotations"], "finalizers": meta["finalizers"] },
            "spec": { "volumeName": claim["spec"]["volumeName"] },
        });
        objects::merge(&plane.client, &place, "", &bound).await?;
        objects::merge(&plane.client, &place, "status", &json!({ "status": claim["status"] })).await?;
        let metadata = volume["metadata"].as_object_mut().context("a volume has metadata")?;
        for key in ["uid", "resourceVersion", "creationTimestamp", "managedFields"] {
            metadata.remove(key);
        }
        volume["apiVersion"] = json!("v1");
        volume["kind"] = json!("PersistentVolume");
        volume["spec"]["claimRef"]["name"] = json!(name);
        let status = json!({ "status": volume["status"] });
        objects::create(&plane.client, &volume).await?;
        objects::merge(&plane.client, &volume, "status", &status).await.map(drop)
    })
    .await?;
    let orchestrator = plane.orchestrator(program).await?;
    tokio::time::sleep(Duration::from_secs(30)).await;
    let standing = Standing {
        claims: many,
        ready_s: orchestrator.ready_after.as_secs_f64(),
        peak_mib: mib(orchestrator.peak_memory()?),
        cpu_s: orchestrator.processor_time()?.as_secs_f64(),
    };
    orchestrator.stop().await?;
    plane.cluster.stop().await?;
    Ok(standing)
}

fn mib(bytes: u64) -> f64 {
    bytes as f64 / f64::from(1 << 20)
}
