//! Upgrade and downgrade: an older orchestrator and this one work on the same objects, beside each other and one after the
//! other. `FLEX_ORCHESTRATOR_OLD` names the older program; `make test-upgrade FROM=…` builds it.

use std::collections::BTreeSet;
use std::time::Instant;

use flex_contract::names;
use flex_contract::operation::Operation;
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::coordination::v1::Lease;
use kube::ResourceExt;
use serde_json::json;

use orchestrator::kubelet::{nfs_volume_of, requests};
use orchestrator::programs::orchestrator;
use orchestrator::ring::{ADMIN, OWN, Ring, WHILE, uid};
use orchestrator::wait::{GUARD, pause, stays, unexpected, until};

/// The classes: a run for each claim, batches, and a pool.
const SINGLE: (&str, &[(&str, &str)]) = ("single", &[("capabilities", "expand")]);
const BATCHED: (&str, &[(&str, &str)]) =
    ("batched", &[("capabilities", "batch"), ("batch-size", "9"), ("batch-window", "5s")]);
const POOLED: (&str, &[(&str, &str)]) = ("pooled", &[("capabilities", "pool"), ("pool", "1Gi=1")]);

/// The image: it does the work of each Job once.
#[derive(Default)]
struct Image {
    /// The UIDs of the Jobs that have run.
    over: BTreeSet<String>,
    /// Operation, volume id and attempt of each request that it got.
    served: BTreeSet<(Operation, String, u32)>,
    /// The ids of the volumes in its storage.
    stored: BTreeSet<String>,
}

impl Image {
    /// Does the work of a Job.
    async fn run(&mut self, ring: &Ring, job: &Job) {
        self.over.insert(job.uid().unwrap());
        ring.pod_of(job).await;
        for request in requests(job) {
            let id = request.volume_id.clone();
            let key = (request.operation, id.clone(), request.attempt);
            assert!(self.served.insert(key.clone()), "{key:?} has two runs");
            match request.operation {
                Operation::Provision => {
                    self.stored.insert(id);
                    ring.create_volume(&nfs_volume_of(&request)).await;
                }
                Operation::Delete => assert!(self.stored.remove(&id), "{id} was deleted before"),
                _ => {}
            }
        }
        ring.pod_ends_or_is_deleted(job, 0, "").await;
    }

    /// Does the work of all Jobs until the check succeeds.
    async fn until(&mut self, ring: &Ring, what: &str, check: impl AsyncFn() -> Result<(), String>) {
        let began = Instant::now();
        let work = async {
            loop {
                for job in ring.all_jobs().await {
                    if job.metadata.deletion_timestamp.is_none() && !self.over.contains(&job.uid().unwrap()) {
                        self.run(ring, &job).await;
                    }
                }
                match check().await {
                    Ok(()) => return,
                    Err(last) if began.elapsed() > GUARD => panic!("{what}: last observed: {last}"),
                    Err(_) => tokio::time::sleep(pause(began.elapsed())).await,
                }
            }
        };
        ring.explained(work).await;
    }
}

/// The Jobs that are in progress, by their UIDs, with their names.
async fn in_progress(ring: &Ring, image: &Image) -> BTreeSet<(String, String)> {
    let jobs = ring.all_jobs().await;
    let open = jobs.iter().filter(|job| !image.over.contains(&job.uid().unwrap()));
    open.map(|job| (job.uid().unwrap(), job.name_any())).collect()
}

/// Waits for a Job with a part of a name that is in progress.
async fn job(ring: &Ring, image: &Image, part: &str) {
    let begun = until(format!("a Job {part} is in progress"), || async {
        let jobs = in_progress(ring, image).await;
        if jobs.iter().any(|(_, name)| name.contains(part)) { Ok(()) } else { unexpected(jobs) }
    });
    ring.explained(begun).await;
}

/// Leaves work of each kind in progress: an attempt, a batch, an expansion, a deletion, and the filling of a pool. `prefix`
/// begins the names of the claims.
async fn begin(ring: &Ring, image: &mut Image, prefix: &str) {
    let name = |name: &str| format!("{prefix}-{name}");
    for claim in ["growing", "leaving"] {
        ring.claim(&name(claim), SINGLE.0).await;
    }
    let pooled = ring.ready(POOLED.0).await.len();
    image
        .until(ring, "two claims are bound", async || {
            for claim in ["growing", "leaving"] {
                let claim = ring.get_claim(&name(claim)).await;
                if orchestrator::ring::phase(&claim) != "Bound" {
                    return unexpected(claim.status);
                }
            }
            Ok(())
        })
        .await;
    if pooled > 0 {
        ring.claim(&name("pooled"), POOLED.0).await;
        ring.bound(&name("pooled")).await;
    } else {
        ring.config(POOLED.0, POOLED.0, POOLED.1).await;
    }
    ring.claim(&name("making"), SINGLE.0).await;
    ring.ask(&name("growing"), "3Gi").await.unwrap();
    ring.delete_claim(&name("leaving")).await;
    // The first run does not end, so that the next claims are collected.
    ring.claim(&name("first"), BATCHED.0).await;
    let first = uid(&ring.stamped(&name("first")).await);
    ring.job(ADMIN, "provision", &first, 1).await;
    for claim in ["second", "third"] {
        ring.claim(&name(claim), BATCHED.0).await;
    }
    for part in ["provision-batch-", "expand-", "delete-"] {
        job(ring, image, part).await;
    }
    for claim in ["making", "second", "third"] {
        ring.stamped(&name(claim)).await;
    }
    let request = until("the pool is being filled", || async {
        let mut requests = ring.requests().await;
        if requests.len() == 1 { Ok(uid(&requests.remove(0))) } else { unexpected(requests.len()) }
    })
    .await;
    let making = uid(&ring.get_claim(&name("making")).await);
    for id in [request, making] {
        ring.job(ADMIN, "provision", &id, 1).await;
    }
    // An older version opens no pods.
    for job in ring.all_jobs().await {
        if !image.over.contains(&job.uid().unwrap()) {
            ring.begins(&job).await;
        }
    }
}

/// Lets the image do all work, and checks that each claim has what it asks for.
async fn finish(ring: &Ring, image: &mut Image, prefix: &str) {
    let name = |name: &str| format!("{prefix}-{name}");
    image
        .until(ring, "all work is done", async || {
            for claim in ["growing", "making", "first", "second", "third"] {
                let claim = ring.get_claim(&name(claim)).await;
                if orchestrator::ring::phase(&claim) != "Bound" {
                    return unexpected((claim.metadata.name, claim.status));
                }
            }
            let grown = ring.get_claim(&name("growing")).await.status.and_then(|status| status.capacity);
            if grown.as_ref().is_none_or(|capacity| capacity["storage"].0 != "3Gi") {
                return unexpected(grown);
            }
            let leaving = ring.claims().get_opt(&name("leaving")).await.unwrap();
            let (ready, jobs) = (ring.ready(POOLED.0).await, in_progress(ring, &Image::default()).await);
            let done = leaving.is_none() && ready.len() == 1 && jobs.is_empty();
            if done { Ok(()) } else { unexpected((leaving.map(|claim| claim.metadata.finalizers), ready, jobs)) }
        })
        .await;
    let volumes: BTreeSet<_> = ring.all_volumes().await.iter().map(ResourceExt::name_any).collect();
    let stored: BTreeSet<_> = image.stored.iter().map(|id| names::pv_name(id)).collect();
    assert_eq!(volumes, stored, "each volume has its storage, and no storage is left over");
}

async fn leader(ring: &Ring) -> String {
    let lease = ring.api::<Lease>(OWN).get_opt("flex-provisioner-default").await.unwrap();
    lease.and_then(|lease| lease.spec?.holder_identity).unwrap_or_default()
}

async fn leads(ring: &Ring, replica: &str) {
    let led = until(format!("replica {replica} leads"), || async {
        let leader = leader(ring).await;
        if leader == replica { Ok(()) } else { unexpected(leader) }
    });
    ring.explained(led).await;
}

/// Checks that a new leader lets the runs in progress go on, and begins none again.
async fn goes_on(ring: &Ring, image: &Image, before: &BTreeSet<(String, String)>) {
    stays("the same Jobs are in progress", WHILE, || async {
        let jobs = in_progress(ring, image).await;
        if jobs == *before { Ok(()) } else { unexpected((jobs, before)) }
    })
    .await;
}

#[tokio::test]
async fn work_in_progress_goes_on_after_an_upgrade_and_a_downgrade() {
    let old =
        std::env::var("FLEX_ORCHESTRATOR_OLD").expect("run `make test-upgrade FROM=…`: it sets the older program");
    let mut ring = Ring::without_orchestrator(&[]).await;
    let mut image = Image::default();
    ring.use_program(&old);
    ring.run().await;
    ring.class(SINGLE.0, names::DEFAULT_PROVISIONER, json!({ "allowVolumeExpansion": true })).await;
    for (name, data) in [SINGLE, BATCHED] {
        ring.config(name, name, data).await;
    }
    leads(&ring, "one").await;
    begin(&ring, &mut image, "old").await;
    let jobs = in_progress(&ring, &image).await;

    // Both versions are there at once, and the older one leads until it is stopped.
    ring.use_program(orchestrator());
    let mut newer = ring.spawn("two").await;
    goes_on(&ring, &image, &jobs).await;
    assert_eq!(leader(&ring).await, "one");
    ring.stop().await;
    leads(&ring, "two").await;
    goes_on(&ring, &image, &jobs).await;
    finish(&ring, &mut image, "old").await;

    // Back to the older version, after a crash of the newer one.
    begin(&ring, &mut image, "new").await;
    let jobs = in_progress(&ring, &image).await;
    ring.use_program(&old);
    ring.run().await;
    newer.kill().await.unwrap();
    leads(&ring, "one").await;
    goes_on(&ring, &image, &jobs).await;
    finish(&ring, &mut image, "new").await;

    // The older version deletes what both have made.
    ring.config(POOLED.0, POOLED.0, &[("capabilities", "pool")]).await;
    for claim in ring.claims().list(&Default::default()).await.unwrap().items {
        ring.delete_claim(&claim.name_any()).await;
    }
    image
        .until(&ring, "nothing is left", async || {
            let (volumes, claims) = (ring.all_volumes().await.len(), ring.requests().await.len());
            if volumes + claims == 0 { Ok(()) } else { unexpected((volumes, claims)) }
        })
        .await;
    assert!(image.stored.is_empty(), "{:?}", image.stored);
    ring.nothing_left().await;
}
