//! Provision Jobs that somebody deleted while they were in progress.

use std::collections::HashMap;

use flex_contract::operation::Operation;
use flex_core::claim::decide::RemovedJob;
use flex_core::run::view::Job;

use crate::state::cache::claims::ClaimCache;

/// The deleted Jobs, by the volume ids of claims that have no volume yet.
#[derive(Debug, Default)]
pub struct RemovedJobs(HashMap<String, (String, RemovedJob)>);

impl RemovedJobs {
    /// Returns how often somebody deleted the provision Job with this name while it was in progress.
    pub fn get(&self, id: &str, job: &str) -> Option<RemovedJob> {
        self.0.get(id).filter(|(name, _)| name == job).map(|(_, removed)| *removed)
    }

    /// Records that a Job is gone. If it was in progress, somebody deleted it. `now` is in seconds since 1970.
    pub fn on_deleted_job(&mut self, job: &Job, claims: &ClaimCache, now: i64) {
        if job.run_labels.operation != Operation::Provision || job.is_over {
            return;
        }
        let alone = job.members.is_empty().then(|| (job.run_labels.id.clone(), job.name.name.clone()));
        let members = job.members.iter().map(|member| (member.id.clone(), member.job_name()));
        for (id, name) in members.chain(alone).filter(|(id, _)| claims.name_of(id).is_some()) {
            let before = self.get(&id, &name).map_or(0, |removed| removed.times);
            self.0.insert(id, (name, RemovedJob { times: before.saturating_add(1), at: now }));
        }
    }

    /// Forgets all Jobs: those of another term may have been deleted by another leader.
    pub fn begin_term(&mut self) {
        self.0.clear();
    }

    /// Forgets the Jobs of an id whose claim has its volume, or is gone.
    pub fn forget(&mut self, id: &str) {
        self.0.remove(id);
    }
}

#[cfg(test)]
mod tests {
    use flex_core::model::claim::Claim;
    use flex_core::object::ObjectName;
    use flex_core::run::view::RunLabels;

    use super::*;

    #[test]
    fn a_deleted_job_counts_while_its_claim_exists_and_it_is_in_progress() {
        let text = "{metadata: {name: a, namespace: team, uid: u}, spec: {}}";
        let claim: k8s_openapi::api::core::v1::PersistentVolumeClaim = flex_core::config::values::yaml(text).unwrap();
        let mut claims = ClaimCache::default();
        let run_labels = RunLabels { operation: "provision".into(), id: "u".into(), attempt: 1, class: "c".into() };
        let job = Job { name: ObjectName::new("own", "provision-u-1"), run_labels, ..Job::default() };
        let mut removed = RemovedJobs::default();
        removed.on_deleted_job(&job, &claims, 1);
        assert!(removed.get("u", "provision-u-1").is_none(), "there is no such claim");
        claims.apply(Claim::from(&claim));
        removed.on_deleted_job(&Job { is_over: true, ..job.clone() }, &claims, 1);
        assert!(removed.get("u", "provision-u-1").is_none(), "it had ended");
        removed.on_deleted_job(&job, &claims, 1);
        removed.on_deleted_job(&job, &claims, 2);
        assert_eq!(removed.get("u", "provision-u-1").map(|removed| (removed.times, removed.at)), Some((2, 2)));
        assert!(removed.get("u", "provision-u-2").is_none(), "another attempt");
        removed.forget("u");
        assert!(removed.get("u", "provision-u-1").is_none());
    }
}
