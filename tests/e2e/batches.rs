//! Tests of one run for many claims, on the whole cluster with pods.

use std::collections::BTreeSet;

use flex_contract::reason;
use futures::future::join_all;
use kube::api::ListParams;
use serde_json::{Value, json};

use orchestrator::batches::all_bound;
use orchestrator::deployed::{
    clean, directory, ends_well, grant_provision, local_class, log_of, pod, users, volumes_in,
};
use orchestrator::ring::{Ring, phase, uid};

/// The number of claims at one time.
const CLAIMS: usize = 15;
/// The claim that fails.
const REFUSED: &str = "c12";

/// Creates many claims, one of which is to fail. Waits until all others are bound by few runs and an event gives
/// the reason of the failure. Returns another claim of the failed one's run, or of any shared run.
pub async fn burst(ring: &Ring, class: &str, refused: Value, says: &str) -> String {
    let create = |n: usize| {
        let name = format!("c{n}");
        let more = if name == REFUSED { refused.clone() } else { json!({}) };
        async move { ring.claim_with(&name, class, more).await }
    };
    join_all((0..CLAIMS).map(create)).await;
    let jobs = all_bound(ring, class, CLAIMS - 1).await;
    println!("claims of each Job: {:?}", jobs.values().map(BTreeSet::len).collect::<Vec<_>>());
    assert!(jobs.len() < CLAIMS * 3 / 4, "{jobs:?}");
    // On a busy machine the failing claim may have been stamped too late for its batch, and has a run of its own. What
    // happens then is shown by `batches::failed_members_delay_no_other_and_share_their_next_run`.
    let shared = jobs.iter().filter(|(name, claims)| name.starts_with("provision-batch-") && claims.len() > 1);
    let (batch, claims) = shared.max_by_key(|(_, claims)| claims.contains(REFUSED)).expect("some claims share a run");
    println!("{batch}: {claims:?}");
    ring.event(&ring.user, REFUSED, reason::PROVISIONING_FAILED, says).await;
    assert_ne!(phase(&ring.get_claim(REFUSED).await), "Bound");
    claims.iter().find(|claim| *claim != REFUSED).unwrap().clone()
}

#[tokio::test]
async fn the_script_of_hostpath_makes_many_directories_in_one_run() {
    let ring = users("batches").await;
    let (class, on_node) = ("batches", directory("batches"));
    let before = volumes_in(&on_node);
    grant_provision(&ring, "hostpath-provisioner", class);
    // Only the script knows which claim is to fail.
    let script = r#"case $OPERATION/$PVC_NAME in provision/c12) exec flex-pv fail never "the array has no room for $PVC_NAME" ;; esac; exec /provision.sh"#;
    let each = json!(["flex-pv", "each", "--jobs", "8", "--", "sh", "-c", script]).to_string();
    local_class(&ring, class, &[("command", &each), ("batch-size", "50"), ("batch-window", "5s")]).await;
    let other = burst(&ring, class, json!({}), "the array has no room for c12").await;
    pod(&ring, "writer", &other, "echo from a batch > /data/text").await;
    ends_well(&ring, "writer").await;
    pod(&ring, "reader", &other, "cat /data/text").await;
    assert_eq!(log_of(&ring, "reader").await.trim(), "from a batch");
    let made: BTreeSet<String> = volumes_in(&on_node).difference(&before).cloned().collect();
    let claims = ring.claims().list(&ListParams::default()).await.unwrap().items;
    let bound: BTreeSet<String> = claims.iter().filter(|claim| phase(claim) == "Bound").map(uid).collect();
    assert_eq!(made, bound, "one directory for each claim that is bound");
    clean(&ring).await;
    assert_eq!(volumes_in(&on_node), before, "the directories are deleted");
}
