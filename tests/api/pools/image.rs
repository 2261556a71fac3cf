//! The image of these tests, and their checks.

use std::collections::BTreeSet;
use std::time::Instant;

use flex_contract::names;
use flex_contract::operation::Operation;
use flex_contract::request::RunRequest;
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::PersistentVolumeClaim;
use kube::ResourceExt;
use kube::api::{DeleteParams, ListParams};
use serde_json::{Value, json};

use super::CAN;
use orchestrator::kubelet::{nfs_volume_of, request};
use orchestrator::nodes::local_volume;
use orchestrator::ring::{ADMIN, OWN, Ring, WHILE, phase, uid};
use orchestrator::wait::{GUARD, pause, stays, unexpected};

/// Checks that exactly these volumes stay ready for a while, and that nothing runs.
pub async fn rests_with(ring: &Ring, ready: &BTreeSet<String>) {
    stays("nothing changes", WHILE, || async {
        let (now, requests) = (ring.ready("c").await, ring.requests().await.len());
        let jobs: Vec<_> = ring.all_jobs().await.iter().map(ResourceExt::name_any).collect();
        if now == *ready && requests == 0 && jobs.is_empty() { Ok(()) } else { unexpected((now, requests, jobs)) }
    })
    .await;
}

/// Checks that no run ever began for a claim.
pub async fn is_without_run(ring: &Ring, claim: &str) {
    let id = uid(&ring.get_claim(claim).await);
    let jobs = ring.jobs(ADMIN, "provision", &id).await;
    assert!(jobs.is_empty(), "{:?}", jobs.iter().map(ResourceExt::name_any).collect::<Vec<_>>());
    assert!(ring.volumes().get_opt(&names::pv_name(&id)).await.unwrap().is_none());
}

/// Returns the id of a volume, from its name.
pub fn id_of(volume: &str) -> String {
    volume.strip_prefix(names::PV_PREFIX).expect("the volume has a name of this provisioner").to_owned()
}

pub fn size(size: &str) -> Value {
    json!({ "spec": { "resources": { "requests": { "storage": size } } } })
}

/// The image and its storage, which is counted.
#[derive(Default)]
pub struct Image {
    /// The ids of the volumes in its storage.
    pub stored: BTreeSet<String>,
    /// The most volumes that may exist at one time, if that matters.
    pub most: Option<usize>,
    /// The UIDs of the Jobs that have run.
    pub over: BTreeSet<String>,
    /// The requests that it got, in their order.
    pub asked: Vec<RunRequest>,
    /// Whether it fails when it makes a pooled volume, after storing something.
    pub fails: bool,
}

impl Image {
    /// Does the work of a Job, unless it is stopped before.
    pub async fn run(&mut self, ring: &Ring, job: &Job) {
        let asked = request(job);
        self.over.insert(job.uid().unwrap());
        if !ring.begins(job).await {
            return;
        }
        let mut end = (0, "");
        match asked.operation {
            Operation::Provision => {
                self.stored.insert(asked.volume_id.clone());
                let stored = &self.stored;
                assert!(self.most.is_none_or(|most| stored.len() <= most), "over the limit: {stored:?}");
                match (self.fails && asked.claim.namespace == OWN, asked.node_name.as_str()) {
                    (true, _) => end = (75, "the array is busy"),
                    (false, "") => ring.create_volume(&nfs_volume_of(&asked)).await,
                    (false, node) => ring.create_volume(&local_volume(job, node)).await,
                }
            }
            Operation::Delete => drop(self.stored.remove(&asked.volume_id)),
            other => panic!("{other} was not expected"),
        }
        self.asked.push(asked);
        ring.pod_ends_or_is_deleted(job, end.0, end.1).await;
    }

    /// Does the work of all new Jobs, until the check finds something.
    pub async fn until<T>(&mut self, ring: &Ring, what: &str, check: impl AsyncFn() -> Result<T, String>) -> T {
        let began = Instant::now();
        let work = async {
            loop {
                for job in ring.all_jobs().await {
                    if job.metadata.deletion_timestamp.is_none() && !self.over.contains(&job.uid().unwrap()) {
                        self.run(ring, &job).await;
                    }
                }
                match check().await {
                    Ok(found) => return found,
                    Err(last) if began.elapsed() > GUARD => {
                        panic!("{what}: not within {GUARD:?}; last observed: {last}")
                    }
                    Err(_) => tokio::time::sleep(pause(began.elapsed())).await,
                }
            }
        };
        ring.explained(work).await
    }

    /// Waits until this many volumes are ready, and no trace of their runs is left.
    pub async fn filled(&mut self, ring: &Ring, count: usize) -> BTreeSet<String> {
        self.until(ring, &format!("{count} volumes are ready"), async || {
            let (ready, requests) = (ring.ready("c").await, ring.requests().await.len());
            let jobs: Vec<_> =
                ring.all_jobs().await.iter().filter(|job| !is_failed(job)).map(|j| j.name_any()).collect();
            let settled = ready.len() == count && requests == 0 && jobs.is_empty();
            if settled { Ok(ready) } else { unexpected((ready, requests, jobs)) }
        })
        .await
    }

    pub async fn bound(&mut self, ring: &Ring, claim: &str) -> PersistentVolumeClaim {
        self.until(ring, &format!("claim {claim} is Bound"), async || {
            let claim = ring.get_claim(claim).await;
            if phase(&claim) == "Bound" { Ok(claim) } else { unexpected((claim.metadata, claim.status)) }
        })
        .await
    }

    /// Returns the operations that were requested for a volume id.
    pub fn asked_for(&self, id: &str) -> Vec<Operation> {
        self.asked.iter().filter(|asked| asked.volume_id == id).map(|asked| asked.operation).collect()
    }

    /// Checks that the storage has one volume for each PersistentVolume.
    pub async fn matches_volumes(&self, ring: &Ring) {
        let volumes: BTreeSet<_> = ring.all_volumes().await.iter().map(|volume| id_of(&volume.name_any())).collect();
        assert_eq!(volumes, self.stored, "each volume has its storage, and all storage a volume");
    }

    /// Ends a test: the pool is switched off, all claims are deleted, and nothing is left.
    pub async fn ends_empty(mut self, ring: &Ring) {
        self.matches_volumes(ring).await;
        ring.config("c", "c", &[CAN]).await;
        ring.claims().delete_collection(&DeleteParams::default(), &ListParams::default()).await.unwrap();
        self.until(ring, "no claim, request and volume is left", async || {
            let claims = ring.claims().list(&ListParams::default()).await.unwrap().items;
            let claims: Vec<_> = claims.iter().chain(&ring.requests().await).map(ResourceExt::name_any).collect();
            let volumes: Vec<_> = ring.all_volumes().await.iter().map(ResourceExt::name_any).collect();
            if claims.is_empty() && volumes.is_empty() { Ok(()) } else { unexpected((claims, volumes)) }
        })
        .await;
        assert_eq!(self.stored, BTreeSet::new(), "the storage is as empty as before the test");
        ring.forget_failed_jobs().await;
        ring.nothing_left().await;
    }
}

pub fn is_failed(job: &Job) -> bool {
    job.status.as_ref().is_some_and(|status| status.failed.unwrap_or(0) > 0)
}
