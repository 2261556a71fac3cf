//! Copies of the Jobs that have filled a pool.

use k8s_openapi::api::batch::v1::Job;

use super::*;
use crate::gate::Watch;
use orchestrator::backup::{created_again, own_request};

/// A tenant has the volume, and the pool wants another one.
#[tokio::test]
async fn a_copied_run_of_a_pool_never_begins_while_a_claim_has_its_volume() {
    let ring = Ring::start().await;
    let (mut image, watch) = (Image::default(), Watch::start(&ring));
    ring.config("c", "c", &ONE).await;
    let asked = || async { ring.requests().await.pop().ok_or_else(|| "none".to_owned()) };
    let id = uid(&ring.explained(until("a request", asked)).await);
    let job = ring.job(ADMIN, "provision", &id, 1).await;
    let ready = image.filled(&ring, 1).await;
    ring.claim("a", "c").await;
    assert_eq!(ready, [ring.volume_of("a").await.name_any()].into());
    // The run for the next volume goes on.
    let next = uid(&ring.explained(until("a request", asked)).await);
    ring.job(ADMIN, "provision", &next, 1).await;

    let jobs = ring.api::<Job>(ADMIN);
    let mut copies = Vec::new();
    for by in [PostParams::default(), own_request()] {
        let copy = jobs.create(&by, &created_again(&job)).await.unwrap();
        let closed = until("the copy is gone", || async {
            let there = jobs.get_opt(&copy.name_any()).await.map_err(|error| error.to_string())?;
            let pods = ring.pods_of(&copy).await?.len();
            match there.filter(|there| there.uid() == copy.uid()) {
                None if pods == 0 => Ok(()),
                there => unexpected((there.map(|there| there.metadata), pods)),
            }
        });
        ring.explained(closed).await;
        copies.push(copy);
    }
    assert_eq!(phase(&ring.get_claim("a").await), "Bound");
    ring.delete_claim("a").await;
    watch.sees(&ring.job(ADMIN, "delete", &id, 1).await).await;
    assert!(copies.iter().all(|copy| !watch.saw(copy)), "a copy was opened");
    image.filled(&ring, 1).await;
    image.ends_empty(&ring).await;
}
