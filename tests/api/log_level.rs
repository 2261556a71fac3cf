//! Tests of the log filter that changes while the orchestrator runs.

use flex_contract::names;
use k8s_openapi::api::coordination::v1::Lease;
use kube::ResourceExt;
use kube::api::ListParams;
use orchestrator::ring::{OWN, Ring};
use orchestrator::wait::until;

/// Checks whether the log tells the decision by which a new claim is stamped.
async fn tells_decisions(ring: &Ring) -> bool {
    let name = format!("claim-{}", ring.claims().list(&ListParams::default()).await.unwrap().items.len());
    ring.claim(&name, "c").await;
    ring.stamped(&name).await;
    ring.log_text().lines().any(|line| line.contains("decided") && line.contains(&name))
}

/// The orchestrator of the tests tells its decisions from the beginning.
#[tokio::test]
async fn an_admin_changes_the_filter_for_a_time_and_returns_to_the_first() {
    let ring = Ring::start().await;
    ring.config("c", "c", &[]).await;
    ring.logged("leadership changed").await;
    until("decisions are told", || async {
        if tells_decisions(&ring).await { Ok(()) } else { Err("they are not".to_owned()) }
    })
    .await;
    let (code, printed) = ring.command(&["log-level", "warn", "--for", "1h"]).await;
    assert!(code == 0 && printed.contains("the log has the filter warn until"), "{printed}");
    ring.logged("the log gets another filter for a time").await;
    until("decisions are no longer told", || async {
        if tells_decisions(&ring).await { Err("they are".to_owned()) } else { Ok(()) }
    })
    .await;
    let (code, printed) = ring.command(&["log-level", "--reset"]).await;
    assert!(code == 0 && printed.contains("the log has the filter of the command line again"), "{printed}");
    until("decisions are told again", || async {
        if tells_decisions(&ring).await { Ok(()) } else { Err("they are not".to_owned()) }
    })
    .await;
    let lease = ring.api::<Lease>(OWN).get("flex-provisioner-default").await.unwrap();
    assert!(!lease.annotations().contains_key(names::LOG_FILTER), "{lease:?}");

    let (code, printed) = ring.command(&["log-level", "a=b=c"]).await;
    assert!(code == 1 && printed.contains("the filter `a=b=c`"), "{printed}");
    let (code, printed) = ring.command(&["log-level", "debug", "--for", "25h"]).await;
    assert!(code == 2 && printed.contains("at most 24h"), "{printed}");
}
