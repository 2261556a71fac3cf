//! Batches whose leader is replaced.

use super::*;
use crate::records::storage_alone_is_kept;
use orchestrator::records::needed_by;

/// One member fails for days. Meanwhile the data of another are kept without an object.
#[tokio::test]
async fn a_new_leader_undoes_only_the_members_of_a_batch_that_need_its_record() {
    let mut ring = Ring::start().await;
    let keys = [ANYWHERE, ("batch-size", "3"), ("batch-window", "5s"), ("backoff", "1h..2h")];
    ring.config("c", "c", &keys).await;
    let (_, job) = collected(&mut ring, &["a", "b", "c"]).await;
    let (kept, failed) = (uid(&ring.get_claim("a").await), uid(&ring.get_claim("c").await));
    for claim in ["a", "b"] {
        make(&ring, &job, claim).await;
        ring.bound(claim).await;
    }
    ring.pod_of(&job).await;
    let failure = MemberFailure { member: line(&job, "c"), code: 75, message: "no array".into() };
    ring.pod_ends(&job, 0, &batch::write_outcomes(&[failure])).await;
    ring.claim_when("c", "has failed", |claim| annotation(claim, names::FAILURE).is_some()).await;
    let settled = until("only the failed member needs the record", || async {
        let needed: Vec<_> = ring.records_of("c").await?.iter().map(needed_by).collect();
        if needed == [[(USER.to_owned(), "c".to_owned())]] { Ok(()) } else { unexpected(needed) }
    });
    ring.explained(settled).await;
    ring.kill().await;
    storage_alone_is_kept(&ring, "a", &names::pv_name(&kept)).await;

    ring.run().await;
    ring.delete_claim("c").await;
    let delete = ring.job(ADMIN, "delete", &failed, 1).await;
    ring.pod_ends(&delete, 0, "").await;
    ring.claim_gone("c").await;
    stays("no delete run begins for the data that are kept", WHILE, || async {
        let jobs = ring.jobs(ADMIN, "delete", &kept).await;
        if jobs.is_empty() { Ok(()) } else { unexpected(jobs) }
    })
    .await;
}
