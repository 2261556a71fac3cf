//! Tests of quotas, for a whole class and for each namespace.

use flex_contract::exit;
use flex_contract::names;
use flex_contract::reason;
use k8s_openapi::api::core::v1::PersistentVolumeClaim;
use kube::api::{ListParams, Patch, PatchParams, PostParams};
use serde_json::json;

use orchestrator::ring::{ADMIN, Ring, USER, WHILE, annotation, claim_of, uid};
use orchestrator::wait::{stays, unexpected, until};

/// Runs need no node.
const ANYWHERE: (&str, &str) = ("placement", "any");

/// Deletes a bound claim, and waits until its storage is deleted.
async fn delete_with_storage(ring: &Ring, claim: &str) {
    let id = uid(&ring.get_claim(claim).await);
    ring.delete_claim(claim).await;
    let job = ring.job(ADMIN, "delete", &id, 1).await;
    ring.pod_of(&job).await;
    ring.pod_ends(&job, 0, "").await;
    ring.volume_gone(&names::pv_name(&id)).await;
}

async fn unstamped(ring: &Ring, claim: &str) {
    stays("no attempt begins", WHILE, || async {
        let found = ring.get_claim(claim).await;
        if annotation(&found, names::ATTEMPT).is_none() { Ok(()) } else { unexpected(found.metadata.annotations) }
    })
    .await;
}

/// Waits until a claim, with its namespace, has joined the queue for a slot. Its event comes half a minute later.
async fn queued(ring: &Ring, claim: &str) {
    ring.logged(&format!("PersistentVolumeClaim {claim} rule=\"NoFreeSlot\"")).await;
}

async fn stamped_of(ring: &Ring, claims: &[String]) -> Vec<String> {
    let mut stamped = Vec::new();
    for claim in claims {
        if annotation(&ring.get_claim(claim).await, names::ATTEMPT).is_some() {
            stamped.push(claim.clone());
        }
    }
    stamped
}

#[tokio::test]
async fn a_class_makes_no_more_volumes_than_its_quota_and_the_next_after_a_deletion() {
    let mut ring = Ring::start().await;
    ring.config("c", "c", &[ANYWHERE, ("max-volumes", "3")]).await;
    // All claims at one time: exactly as many begin as the quota allows.
    let claims: Vec<String> = (0..8).map(|n| format!("claim-{n}")).collect();
    for claim in &claims {
        ring.claim(claim, "c").await;
    }
    let begun = until("three begin", || async {
        let stamped = stamped_of(&ring, &claims).await;
        if stamped.len() == 3 { Ok(stamped) } else { unexpected(stamped) }
    })
    .await;
    let waiting: Vec<&String> = claims.iter().filter(|claim| !begun.contains(claim)).collect();
    for claim in &waiting {
        let message = ring.event(USER, claim, reason::LIMIT_REACHED, "may have at most 3 volumes of class c").await;
        assert!(message.contains("`max-volumes` of the provisioner config admin/c"), "{message}");
    }
    for claim in &begun {
        ring.provision(claim).await;
    }
    // The orchestrator counts on after a restart.
    ring.restart().await;
    stays("no other begins", WHILE, || async {
        let stamped = stamped_of(&ring, &claims).await;
        if stamped.len() == 3 { Ok(()) } else { unexpected(stamped) }
    })
    .await;
    delete_with_storage(&ring, &begun[0]).await;
    let rest: Vec<String> = claims.iter().filter(|claim| **claim != begun[0]).cloned().collect();
    let next = until("the next begins at once", || async {
        let stamped = stamped_of(&ring, &rest).await;
        if stamped.len() == 3 { Ok(stamped) } else { unexpected(stamped) }
    })
    .await;
    // A claim that is deleted half-way frees its quota when its leftovers are deleted.
    let half = next.iter().find(|claim| !begun.contains(claim)).unwrap();
    let id = uid(&ring.get_claim(half).await);
    let job = ring.job(ADMIN, "provision", &id, 1).await;
    ring.pod_of(&job).await;
    ring.delete_claim(half).await;
    let job = ring.job(ADMIN, "delete", &id, 1).await;
    ring.pod_of(&job).await;
    ring.pod_ends(&job, 0, "").await;
    ring.claim_gone(half).await;
    let rest: Vec<String> = rest.into_iter().filter(|claim| claim != half).collect();
    until("another begins", || async {
        let stamped = stamped_of(&ring, &rest).await;
        if stamped.len() == 3 { Ok(()) } else { unexpected(stamped) }
    })
    .await;
    // With a higher limit all claims begin.
    ring.config("c", "c", &[ANYWHERE, ("max-volumes", "100")]).await;
    for claim in &rest {
        ring.stamped(claim).await;
    }
}

#[tokio::test]
async fn a_namespace_uses_no_more_bytes_than_its_quota_also_by_expansion() {
    let ring = Ring::start().await;
    ring.class("c", names::DEFAULT_PROVISIONER, json!({ "allowVolumeExpansion": true })).await;
    ring.config("c", "c", &[ANYWHERE, ("capabilities", "expand"), ("max-bytes-per-namespace", "3Gi")]).await;
    ring.claim("one", "c").await;
    ring.provision("one").await;
    let more = |size: &str| json!({ "spec": { "resources": { "requests": { "storage": size } } } });
    ring.claim_with("large", "c", more("3Gi")).await;
    ring.event(
        USER,
        "large",
        reason::LIMIT_REACHED,
        "namespace team may have at most 3Gi of class c: 1Gi are used, and this asks for 3Gi",
    )
    .await;
    // A claim within the quota does not wait for a larger one.
    ring.claim("two", "c").await;
    ring.provision("two").await;
    let ask = Patch::Merge(more("3Gi"));
    ring.claims().patch("one", &PatchParams::default(), &ask).await.unwrap();
    ring.event(USER, "one", reason::LIMIT_REACHED, "1Gi are used, and this asks for 3Gi").await;
    let id = uid(&ring.get_claim("one").await);
    assert!(ring.jobs(ADMIN, "expand", &id).await.is_empty());
    // Another namespace has a quota of its own.
    ring.namespace("others", &[]).await;
    let others = ring.api::<PersistentVolumeClaim>("others");
    let made = others.create(&PostParams::default(), &claim_of("c", "three", more("3Gi"))).await.unwrap();
    ring.job(ADMIN, "provision", &uid(&made), 1).await;
    // The quota is enough for one of the two waiting requests; the expansion takes all of it.
    delete_with_storage(&ring, "two").await;
    let job = ring.job(ADMIN, "expand", &id, 1).await;
    ring.pod_of(&job).await;
    ring.pod_ends(&job, 0, "").await;
    let grown = |claim: &PersistentVolumeClaim| {
        claim.status.as_ref().and_then(|status| status.capacity.as_ref()).is_some_and(|has| has["storage"].0 == "3Gi")
    };
    ring.claim_when("one", "has grown", grown).await;
    unstamped(&ring, "large").await;
    delete_with_storage(&ring, "one").await;
    ring.stamped("large").await;
}

#[tokio::test]
async fn snapshot_runs_take_slots_of_their_class_as_provision_runs_do() {
    let ring = Ring::with_snapshots().await;
    ring.config("c", "c", &[ANYWHERE, ("capabilities", "snapshot"), ("max-in-flight", "1")]).await;
    ring.claim("source", "c").await;
    ring.provision("source").await;
    let first = ring.snapshot("first", "source").await;
    let job = ring.job(ADMIN, "snapshot", &first, 1).await;
    ring.claim("other", "c").await;
    queued(&ring, "team/other").await;
    let second = ring.snapshot("second", "source").await;
    ring.pod_ends(&job, 0, "").await;
    ring.snapshot_ready("first").await;
    // The claim was first.
    ring.stamped("other").await;
    stays("no run of the second snapshot begins", WHILE, || async {
        let jobs = ring.jobs(ADMIN, "snapshot", &second).await;
        if jobs.is_empty() { Ok(()) } else { unexpected(jobs) }
    })
    .await;
    ring.provision("other").await;
    let job = ring.job(ADMIN, "snapshot", &second, 1).await;
    ring.pod_ends(&job, 0, "").await;
    ring.snapshot_ready("second").await;
}

#[tokio::test]
async fn delete_and_expand_runs_are_limited_like_provision_runs() {
    let ring = Ring::start().await;
    ring.class("c", names::DEFAULT_PROVISIONER, json!({ "allowVolumeExpansion": true })).await;
    ring.config("c", "c", &[ANYWHERE, ("capabilities", "expand"), ("max-in-flight", "2")]).await;
    let mut ids = Vec::new();
    for name in ["a", "b", "c", "d", "larger"] {
        ring.claim(name, "c").await;
        ring.provision(name).await;
        ids.push(uid(&ring.get_claim(name).await));
    }
    let larger = ids.pop().unwrap();
    for name in ["a", "b", "c", "d"] {
        ring.delete_claim(name).await;
    }
    let deletions = || async {
        let mut jobs = Vec::new();
        for id in &ids {
            jobs.extend(ring.jobs(ADMIN, "delete", id).await);
        }
        jobs
    };
    let two = || async {
        let jobs = deletions().await;
        if jobs.len() == 2 { Ok(jobs) } else { unexpected(jobs) }
    };
    let begun = until("two delete runs begin", two).await;
    ring.ask("larger", "2Gi").await.unwrap();
    ring.event(USER, "larger", reason::LIMIT_REACHED, "the expand run waits").await;
    // The claim waits in the same queue.
    ring.claim("new", "c").await;
    stays("no more than two runs are under way", WHILE, || async {
        let (jobs, new) = (deletions().await, ring.get_claim("new").await);
        let grows = ring.jobs(ADMIN, "expand", &larger).await;
        let more = jobs.len() > 2 || !grows.is_empty() || annotation(&new, names::ATTEMPT).is_some();
        if more { unexpected((jobs, grows)) } else { Ok(()) }
    })
    .await;
    // The third deletion has waited longer; then other operations get slots, before the fourth deletion.
    for job in &begun {
        ring.pod_ends(job, 0, "").await;
    }
    let job = ring.job(ADMIN, "expand", &larger, 1).await;
    ring.pod_ends(&job, 0, "").await;
    until("all volumes are deleted", || async {
        for job in deletions().await {
            ring.pod_ends_or_is_deleted(&job, 0, "").await;
        }
        let leftovers = ring.volumes().list(&ListParams::default()).await.unwrap().items;
        if leftovers.len() == 1 { Ok(()) } else { unexpected(leftovers.len()) }
    })
    .await;
    ring.provision("new").await;
}

#[tokio::test]
async fn a_claim_that_can_never_be_made_takes_no_quota_from_others() {
    let ring = Ring::start().await;
    ring.config("c", "c", &[ANYWHERE, ("max-bytes", "3Gi")]).await;
    let claims = ring.api::<PersistentVolumeClaim>(USER);
    let more = json!({ "spec": { "resources": { "requests": { "storage": "3Gi" } } } });
    let large = claims.create(&PostParams::default(), &claim_of("c", "large", more)).await.unwrap();
    let job = ring.job(ADMIN, "provision", &uid(&large), 1).await;
    ring.claim("small", "c").await;
    ring.event(USER, "small", reason::LIMIT_REACHED, "max-bytes").await;
    ring.pod_ends(&job, exit::DATAERR, "the backend has no such volumes").await;
    ring.provision("small").await;
    // With the fixed config it is tried again, which is more than the quota has left.
    ring.config("c", "c", &[ANYWHERE, ("max-bytes", "3Gi"), ("timeout", "100s")]).await;
    ring.event(USER, "large", reason::LIMIT_REACHED, "max-bytes").await;
    delete_with_storage(&ring, "small").await;
    let id = uid(&ring.get_claim("large").await);
    ring.job(ADMIN, "provision", &id, 2).await;
}

#[tokio::test]
async fn a_namespace_that_asks_for_little_does_not_wait_behind_one_that_asks_for_much() {
    let ring = Ring::start().await;
    ring.config("c", "c", &[ANYWHERE, ("max-in-flight", "1")]).await;
    ring.claim("one", "c").await;
    ring.stamped("one").await;
    let many = ["two", "three", "four"].map(str::to_owned);
    for name in &many {
        ring.claim(name, "c").await;
        // The queue has the order in which claims ask for a slot, and not the order in which they were made.
        queued(&ring, &format!("{USER}/{name}")).await;
    }
    ring.namespace("others", &[]).await;
    let others = ring.api::<PersistentVolumeClaim>("others");
    let small = others.create(&PostParams::default(), &claim_of("c", "small", json!({}))).await.unwrap();
    queued(&ring, "others/small").await;
    ring.provision("one").await;
    // The claims of the first namespace have waited longer; between them each of the others gets a slot.
    ring.provision("two").await;
    let job = ring.job(ADMIN, "provision", &uid(&small), 1).await;
    assert_eq!(stamped_of(&ring, &many[1..]).await, [""; 0], "the other namespace got the slot first");
    // Its run fails, and in the pause until its next attempt the first namespace gets the slot.
    ring.pod_ends(&job, 1, "no").await;
    ring.provision("three").await;
}
