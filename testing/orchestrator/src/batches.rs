//! Claims that share a run.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use flex_contract::names;
use flex_core::batch::Member;
use k8s_openapi::api::batch::v1::Job;
use kube::ResourceExt;
use kube::api::ListParams;

use crate::ring::{Ring, phase};
use crate::wait::GUARD;

/// The observed provision Jobs, with the claims of each.
pub type Jobs = BTreeMap<String, BTreeSet<String>>;

/// Returns the claims of a Job.
pub fn claims_of(job: &Job) -> BTreeSet<String> {
    let template = job.spec.as_ref().and_then(|spec| spec.template.metadata.as_ref());
    let listed = template.and_then(|template| template.annotations.as_ref()?.get(names::BATCH));
    match listed {
        Some(listed) => {
            let members: Vec<Member> = serde_json::from_str(listed).unwrap();
            members.iter().filter_map(Member::claim).map(|claim| claim.name.clone()).collect()
        }
        None => {
            let claim = job.annotations().get(names::JOB_CLAIM).and_then(|claim| claim.rsplit_once('/'));
            claim.map(|(_, name)| name.to_owned()).into_iter().collect()
        }
    }
}

/// Waits until this many claims are bound.
pub async fn all_bound(ring: &Ring, class: &str, count: usize) -> Jobs {
    let (began, mut jobs) = (Instant::now(), Jobs::new());
    let runs = format!("{}={class},{}=provision", names::LABEL_CLASS, names::LABEL_OPERATION);
    let runs = ListParams::default().labels(&runs);
    loop {
        let there = ring.api::<Job>(&ring.admin).list(&runs).await.unwrap().items;
        jobs.extend(there.into_iter().map(|job| (job.name_any(), claims_of(&job))));
        let claims = ring.claims().list(&ListParams::default()).await.unwrap().items;
        let bound = claims.iter().filter(|claim| phase(claim) == "Bound").count();
        if bound == count {
            println!("{count} claims, {} Jobs: all bound after {:?}", jobs.len(), began.elapsed());
            return jobs;
        }
        assert!(began.elapsed() < GUARD * 2, "{bound} of {count} are bound");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}
