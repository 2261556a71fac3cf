//! The image of these tests, and their checks.

use std::collections::BTreeSet;
use std::time::Instant;

use flex_contract::names;
use flex_contract::request::{Operation, RunRequest};
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim, Pod};
use kube::ResourceExt;
use kube::api::{DeleteParams, ListParams};
use serde_json::{Value, json};

use super::CAN;
use crate::kubelet::{nfs_volume_of, request};
use crate::nodes::local_volume;
use crate::orchestrator::{ADMIN, OWN, Ring, WHILE, phase, uid};
use crate::wait::{GUARD, pause, seen, stays, until};

impl Ring {
    /// What is asked for to be kept ready.
    pub async fn requests(&self) -> Vec<PersistentVolumeClaim> {
        let asked = ListParams::default().labels(&format!("{}={}", names::LABEL_POOL, names::POOL_REQUEST));
        self.api::<PersistentVolumeClaim>(OWN).list(&asked).await.unwrap().items
    }

    /// The volumes of claims and of pools.
    pub async fn all_volumes(&self) -> Vec<PersistentVolume> {
        let all = self.volumes().list(&ListParams::default()).await.unwrap().items;
        all.into_iter().filter(|volume| !volume.name_any().starts_with(names::PROBE_PREFIX)).collect()
    }

    /// The names of the volumes that a class has ready: nobody will do anything about them any more, but for a claim.
    pub async fn ready(&self, class: &str) -> BTreeSet<String> {
        let ids: BTreeSet<_> = self.requests().await.iter().map(uid).collect();
        let ready = self.volumes().list(&ListParams::default().labels(names::LABEL_POOL)).await.unwrap().items;
        let is_one = |volume: &PersistentVolume| {
            let spec = volume.spec.as_ref().unwrap();
            let reserved = spec.claim_ref.as_ref().is_none_or(|reference| reference.uid.is_none());
            let has_request = ids.iter().any(|id| names::pv_name(id) == volume.name_any());
            let of_class = spec.storage_class_name.as_deref() == Some(class);
            of_class && reserved && !has_request && volume.metadata.deletion_timestamp.is_none()
        };
        ready.iter().filter(|volume| is_one(volume)).map(ResourceExt::name_any).collect()
    }

    /// For a while exactly these are ready, and nothing is done about them.
    pub async fn rests_with(&self, ready: &BTreeSet<String>) {
        stays("nothing is done", WHILE, || async {
            let (now, requests) = (self.ready("c").await, self.requests().await.len());
            let jobs: Vec<_> = self.all_jobs().await.iter().map(ResourceExt::name_any).collect();
            if now == *ready && requests == 0 && jobs.is_empty() { Ok(()) } else { seen((now, requests, jobs)) }
        })
        .await;
    }

    /// The volume that a bound claim has.
    pub async fn volume_of(&self, claim: &str) -> PersistentVolume {
        let name = self.bound(claim).await.spec.unwrap().volume_name.unwrap();
        self.volumes().get(&name).await.unwrap()
    }

    /// No run was ever begun for a claim.
    pub async fn is_without_run(&self, claim: &str) {
        let id = uid(&self.get_claim(claim).await);
        let jobs = self.jobs(ADMIN, "provision", &id).await;
        assert!(jobs.is_empty(), "{:?}", jobs.iter().map(ResourceExt::name_any).collect::<Vec<_>>());
        assert!(self.volumes().get_opt(&names::pv_name(&id)).await.unwrap().is_none());
    }
}

/// The id of a volume, which its name bears.
pub fn id_of(volume: &str) -> String {
    volume.strip_prefix(names::PV_PREFIX).expect("the volume is ours").to_owned()
}

pub fn size(size: &str) -> Value {
    json!({ "spec": { "resources": { "requests": { "storage": size } } } })
}

/// The image and its storage, which is counted.
#[derive(Default)]
pub struct Image {
    /// The ids of the volumes that it has stored.
    pub stored: BTreeSet<String>,
    /// No more may there be at one time, if that matters.
    pub most: Option<usize>,
    /// The UIDs of the Jobs that have run.
    pub over: BTreeSet<String>,
    /// What it was asked for, one after another.
    pub asked: Vec<RunRequest>,
    /// It fails when it is to make a volume that nobody has claimed, having stored something.
    pub fails: bool,
}

impl Image {
    /// Does what a Job is for.
    pub async fn run(&mut self, ring: &Ring, job: &Job) {
        let asked = request(job);
        self.over.insert(job.uid().unwrap());
        let mut end = (0, "");
        match asked.operation {
            Operation::Provision => {
                self.stored.insert(asked.claim_uuid.clone());
                let stored = &self.stored;
                assert!(self.most.is_none_or(|most| stored.len() <= most), "over the limit: {stored:?}");
                match (self.fails && asked.claim.namespace == OWN, asked.node_name.as_str()) {
                    (true, _) => end = (75, "the array is busy"),
                    (false, "") => ring.create_volume(&nfs_volume_of(&asked)).await,
                    (false, node) => ring.create_volume(&local_volume(job, node)).await,
                }
            }
            Operation::Delete => drop(self.stored.remove(&asked.claim_uuid)),
            other => panic!("{other} was not to be asked"),
        }
        self.asked.push(asked);
        has_pod(ring, job).await;
        ring.pod_ends_or_goes(job, end.0, end.1).await;
    }

    /// Does what all new Jobs are for, until a look finds something.
    pub async fn until<T>(&mut self, ring: &Ring, what: &str, look: impl AsyncFn() -> Result<T, String>) -> T {
        let began = Instant::now();
        let work = async {
            loop {
                for job in ring.all_jobs().await {
                    if job.metadata.deletion_timestamp.is_none() && !self.over.contains(&job.uid().unwrap()) {
                        self.run(ring, &job).await;
                    }
                }
                match look().await {
                    Ok(found) => return found,
                    Err(last) if began.elapsed() > GUARD => panic!("{what}: not within {GUARD:?}; last seen: {last}"),
                    Err(_) => tokio::time::sleep(pause(began.elapsed())).await,
                }
            }
        };
        ring.explained(work).await
    }

    /// Waits until so many volumes are ready, and nothing is left of how they were made.
    pub async fn filled(&mut self, ring: &Ring, count: usize) -> BTreeSet<String> {
        self.until(ring, &format!("{count} volumes are ready"), async || {
            let (ready, requests) = (ring.ready("c").await, ring.requests().await.len());
            let jobs: Vec<_> =
                ring.all_jobs().await.iter().filter(|job| !is_failed(job)).map(|j| j.name_any()).collect();
            let settled = ready.len() == count && requests == 0 && jobs.is_empty();
            if settled { Ok(ready) } else { seen((ready, requests, jobs)) }
        })
        .await
    }

    pub async fn bound(&mut self, ring: &Ring, claim: &str) -> PersistentVolumeClaim {
        self.until(ring, &format!("claim {claim} is Bound"), async || {
            let claim = ring.get_claim(claim).await;
            if phase(&claim) == "Bound" { Ok(claim) } else { seen((claim.metadata, claim.status)) }
        })
        .await
    }

    /// The operations that were asked for a volume id.
    pub fn asked_for(&self, id: &str) -> Vec<Operation> {
        self.asked.iter().filter(|asked| asked.claim_uuid == id).map(|asked| asked.operation).collect()
    }

    /// What is stored is what there are volumes for.
    pub async fn is_counted(&self, ring: &Ring) {
        let volumes: BTreeSet<_> = ring.all_volumes().await.iter().map(|volume| id_of(&volume.name_any())).collect();
        assert_eq!(volumes, self.stored, "each volume has its storage, and all storage a volume");
    }

    /// The end of a test: nothing is to be kept ready, and all claims go. Nothing is left.
    pub async fn goes_empty(mut self, ring: &Ring) {
        self.is_counted(ring).await;
        ring.config("c", "c", &[CAN]).await;
        ring.claims().delete_collection(&DeleteParams::default(), &ListParams::default()).await.unwrap();
        self.until(ring, "no claim, request and volume is left", async || {
            let claims = ring.claims().list(&ListParams::default()).await.unwrap().items;
            let claims: Vec<_> = claims.iter().chain(&ring.requests().await).map(ResourceExt::name_any).collect();
            let volumes: Vec<_> = ring.all_volumes().await.iter().map(ResourceExt::name_any).collect();
            if claims.is_empty() && volumes.is_empty() { Ok(()) } else { seen((claims, volumes)) }
        })
        .await;
        assert_eq!(self.stored, BTreeSet::new(), "there was nothing before, and there is nothing now");
        ring.forget_failed_jobs().await;
        ring.nothing_left().await;
    }
}

pub fn is_failed(job: &Job) -> bool {
    job.status.as_ref().is_some_and(|status| status.failed.unwrap_or(0) > 0)
}

/// Waits until a Job has its pod, unless it is stopped before.
pub async fn has_pod(ring: &Ring, job: &Job) {
    let name = job.name_any();
    until(format!("the pod of {name}, or its end"), || async {
        let of_job = ListParams::default().labels(&format!("job-name={name}"));
        let pods = ring.api::<Pod>(ADMIN).list(&of_job).await.unwrap().items;
        let now = ring.api::<Job>(ADMIN).get_opt(&name).await.unwrap();
        let goes = now.is_none_or(|job| job.metadata.deletion_timestamp.is_some());
        if goes || !pods.is_empty() { Ok(()) } else { seen(pods.len()) }
    })
    .await;
}
