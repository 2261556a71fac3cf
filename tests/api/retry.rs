//! Tests of the command that begins the next attempt now.

use flex_contract::names;
use kube::ResourceExt;
use orchestrator::kubelet::nfs_volume;
use orchestrator::ring::{ADMIN, Ring, USER, WHILE, annotation, uid};
use orchestrator::wait::stays;

/// Longer than the test.
const BACKOFF: (&str, &str) = ("backoff", "1h..2h");

#[tokio::test]
async fn a_failed_run_is_repeated_at_once_when_somebody_asks_and_only_once() {
    let ring = Ring::start().await;
    ring.config("c", "c", &[BACKOFF]).await;
    ring.claim("a", "c").await;
    let claim = uid(&ring.stamped("a").await);
    let (code, printed) = ring.command(&["retry", "-n", USER, "a"]).await;
    assert!(code == 2 && printed.contains("nothing to retry"), "{printed}");
    let job = ring.job(ADMIN, "provision", &claim, 1).await;
    ring.pod_ends(&job, 75, "busy").await;
    let has_failed = |claim: &_| annotation(claim, names::FAILURE).is_some_and(|text| text.contains("\"attempt\":1"));
    ring.claim_when("a", "has failed", has_failed).await;

    let (code, printed) = ring.command(&["retry", &format!("{USER}/a"), "--dry-run"]).await;
    assert!(code == 0 && printed.contains("would be tried again: provision run 1 failed"), "{printed}");
    let (code, printed) = ring.command(&["retry", &format!("{USER}/a")]).await;
    assert!(code == 0 && printed.contains("claim team/a: the next attempt begins now"), "{printed}");
    let job = ring.job(ADMIN, "provision", &claim, 2).await;
    ring.pod_ends(&job, 75, "busy").await;
    let has_failed = |claim: &_| annotation(claim, names::FAILURE).is_some_and(|text| text.contains("\"attempt\":2"));
    let failed = ring.claim_when("a", "has failed again", has_failed).await;
    assert_eq!(annotation(&failed, names::RETRY), None, "the request is for one attempt");
    stays("no third attempt begins", WHILE, || async {
        let jobs = ring.jobs(ADMIN, "provision", &claim).await;
        let third = jobs.iter().any(|job| job.labels().get(names::LABEL_ATTEMPT).is_some_and(|number| number == "3"));
        if third { Err("a third attempt has begun".to_owned()) } else { Ok(()) }
    })
    .await;

    // An admin asks for all that has failed in the class.
    let (code, printed) = ring.command(&["retry", "--class", "c", "-A"]).await;
    assert!(code == 0 && printed.contains("claim team/a: the next attempt begins now"), "{printed}");
    let job = ring.job(ADMIN, "provision", &claim, 3).await;
    ring.create_volume(&nfs_volume(&job)).await;
    ring.bound("a").await;
    ring.claim_when("a", "has no request any more", |claim: &_| annotation(claim, names::RETRY).is_none()).await;
    ring.pod_ends(&job, 0, "").await;

    // The delete run fails, and an admin asks for it.
    ring.delete_claim("a").await;
    let job = ring.job(ADMIN, "delete", &claim, 1).await;
    ring.pod_ends(&job, 75, "busy").await;
    let volume = names::pv_name(&claim);
    ring.explained(orchestrator::wait::until("the failure is recorded", || async {
        let volume = ring.volumes().get(&volume).await.unwrap();
        if volume.annotations().contains_key(names::FAILURE) { Ok(()) } else { Err("it is not".to_owned()) }
    }))
    .await;
    // The claim is gone, and its name leads to the volume.
    let (code, printed) = ring.command(&["trace", "-n", USER, "a"]).await;
    let left = format!("Volume {volume} of class c: its claim {USER}/a is gone");
    assert!(code == 2 && printed.contains(&left) && printed.contains("Its delete run 1 failed"), "{printed}");
    for name in [format!("pv/{volume}"), format!("{USER}/a")] {
        let (code, printed) = ring.command(&["retry", &name, "--dry-run"]).await;
        assert!(code == 0 && printed.contains(&format!("volume {volume}: would be tried again")), "{printed}");
    }
    let (code, printed) = ring.command(&["retry", "--class", "c", "-n", "elsewhere"]).await;
    assert!(code == 2 && printed.contains("nothing to retry"), "{printed}");
    let (code, printed) = ring.command(&["retry", "--class", "c"]).await;
    assert!(code == 2 && printed.contains("nothing to retry in namespace default (-A: in all)"), "{printed}");
    let (code, printed) = ring.command(&["retry", "--class", "c", "-A"]).await;
    assert!(code == 0 && printed.contains(&format!("volume {volume}: the next attempt begins now")), "{printed}");
    let job = ring.job(ADMIN, "delete", &claim, 2).await;
    ring.pod_ends(&job, 0, "").await;
    ring.volume_gone(&volume).await;
}
