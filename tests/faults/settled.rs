//! The check at the end of each scenario: all expected objects exist, and no others.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Instant;

use flex_contract::names;
use flex_core::model::record::is_record;
use flex_core::model::snapshot::api::{VolumeSnapshot, VolumeSnapshotContent};
use k8s_openapi::api::apps::v1::ControllerRevision;
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim, Pod};
use kube::api::ListParams;
use kube::{Api, ResourceExt};
use orchestrator::ring::{phase, uid};

use crate::site::{GUARD, Site, pause, provisioner};
use crate::world::{Finding, Trouble};

impl Site<'_> {
    /// The same as [`Site::comes_to_rest`], during a scenario.
    pub async fn at_rest(&self, bound: &[&str]) -> Result<(), Finding> {
        self.comes_to_rest(bound)
            .await
            .map_err(|findings| findings.into_iter().next().expect("a failure has a finding"))
    }

    /// Waits for the end: these claims are bound, each to a volume of its own, and nothing else exists.
    pub async fn comes_to_rest(&self, bound: &[&str]) -> Result<(), Vec<Finding>> {
        let began = Instant::now();
        loop {
            let findings = self.all_findings(bound).await;
            if findings.is_empty() {
                return Ok(());
            }
            if began.elapsed() > GUARD {
                return Err(findings);
            }
            tokio::time::sleep(pause(began.elapsed())).await;
        }
    }

    /// Returns the first finding at the end, if any. It stops at the first, so that waiting does not load the API
    /// server on which the orchestrator works.
    async fn all_findings(&self, bound: &[&str]) -> Vec<Finding> {
        let violations = self.world.node.backend().violations(&self.name);
        let mut findings: Vec<_> =
            violations.into_iter().map(|what| Finding { trouble: Trouble::Duplicate, what }).collect();
        let claims = self.claims().list(&ListParams::default()).await.expect("claims are listed").items;
        findings.extend(self.claim_findings(&claims, bound));
        if findings.is_empty() {
            findings.extend(self.volume_findings(&claims).await);
        }
        if findings.is_empty() {
            findings.extend(self.run_findings().await);
        }
        if findings.is_empty() {
            findings.extend(self.snapshot_findings().await);
        }
        findings
    }

    fn claim_findings(&self, claims: &[PersistentVolumeClaim], bound: &[&str]) -> Vec<Finding> {
        let mut findings = Vec::new();
        let mut find = |trouble, what: String| findings.push(Finding { trouble, what });
        for missing in bound.iter().filter(|name| !claims.iter().any(|claim| claim.name_any() == **name)) {
            find(Trouble::Leaked, format!("claim {missing} is gone"));
        }
        let own = |finalizer: &String| {
            let prefixes = [names::CLONE_FINALIZER, names::SOURCE_FINALIZER];
            prefixes.iter().any(|prefix| finalizer.starts_with(prefix))
        };
        for claim in claims {
            let name = claim.name_any();
            let volume = claim.spec.as_ref().and_then(|spec| spec.volume_name.clone()).unwrap_or_default();
            let is_held = claim.annotations().contains_key(names::HELD) || claim.finalizers().iter().any(own);
            let message = || format!("{} {:?} {:?}", phase(claim), claim.finalizers(), claim.annotations());
            if !bound.contains(&name.as_str()) {
                find(Trouble::Stuck, format!("claim {name} is not deleted: {}", message()));
            } else if phase(claim) != "Bound" || volume != names::pv_name(&uid(claim)) || is_held {
                find(Trouble::Stuck, format!("claim {name} is not Bound and free: {}", message()));
            }
        }
        findings
    }

    /// Returns the findings about volumes and storage, each of which must belong to one of the claims.
    async fn volume_findings(&self, claims: &[PersistentVolumeClaim]) -> Vec<Finding> {
        let mut findings = Vec::new();
        let mut find = |trouble, what: String| findings.push(Finding { trouble, what });
        let expected: BTreeMap<_, _> = claims.iter().map(|claim| (names::pv_name(&uid(claim)), uid(claim))).collect();
        let volumes: Api<PersistentVolume> = Api::all(self.world.client.clone());
        let of_site = ListParams::default().labels(&format!("{}={}", names::LABEL_INSTANCE, self.name));
        let volumes = volumes.list(&of_site).await.expect("volumes are listed").items;
        for volume in &volumes {
            let name = volume.name_any();
            let Some(claim) = expected.get(&name) else {
                find(Trouble::Leaked, format!("volume {name} is left: {:?} {:?}", volume.annotations(), volume.status));
                continue;
            };
            let of = volume.spec.as_ref().and_then(|spec| spec.claim_ref.as_ref()?.uid.clone());
            let is = volume.status.as_ref().and_then(|status| status.phase.clone()).unwrap_or_default();
            let has_finalizer = volume.finalizers().iter().any(|finalizer| finalizer == names::VOLUME_FINALIZER);
            if of.as_ref() != Some(claim)
                || is != "Bound"
                || !has_finalizer
                || !volume.annotations().contains_key(names::PROVENANCE)
            {
                find(Trouble::Stuck, format!("volume {name} is {is}, of {of:?}, {:?}", volume.finalizers()));
            }
        }
        let objects: BTreeSet<String> = volumes.iter().map(|volume| volume.name_any()).collect();
        let storage: BTreeMap<_, _> = self.storage().into_iter().map(|id| (names::pv_name(&id), id)).collect();
        for (_, leftovers) in storage.iter().filter(|(name, _)| !objects.contains(*name)) {
            find(Trouble::Leaked, format!("storage {leftovers} has no PersistentVolume"));
        }
        for leftovers in self.world.node.backend().leftovers(&self.name) {
            find(Trouble::Leaked, format!("an attempt has left {leftovers}"));
        }
        for lost in objects.iter().filter(|name| !storage.contains_key(*name)) {
            find(Trouble::Leaked, format!("volume {lost} has no storage"));
        }
        findings
    }

    /// Returns the findings about Jobs, pods and records of runs. Jobs and pods of failed runs are kept for their logs, for
    /// a time that Kubernetes controls.
    async fn run_findings(&self) -> Vec<Finding> {
        let all = ListParams::default();
        let jobs = self.in_admin::<Job>().list(&all).await.expect("Jobs are listed").items;
        let (kept, leftovers): (Vec<_>, Vec<_>) = jobs.iter().partition(|job| is_kept(job));
        let kept: BTreeSet<String> = kept.iter().map(|job| job.name_any()).collect();
        let pods = self.in_admin::<Pod>().list(&all).await.expect("pods are listed").items;
        let without = pods.iter().filter(|pod| pod.labels().get("job-name").is_none_or(|job| !kept.contains(job)));
        let jobs = leftovers.iter().map(|job| format!("Job {} is left", job.name_any()));
        let leftovers = jobs.chain(without.map(|pod| format!("pod {} is left", pod.name_any())));
        let stored = self.api::<ControllerRevision>().list(&all).await.expect("records are listed").items;
        let records = stored.iter().filter(|stored| is_record(&stored.name_any()));
        let records = records.map(|record| format!("record {} is left: {:?}", record.name_any(), record.annotations()));
        leftovers.chain(records).map(|what| Finding { trouble: Trouble::Leaked, what }).collect()
    }

    /// Returns the findings about snapshots, none of which may exist at the end.
    async fn snapshot_findings(&self) -> Vec<Finding> {
        let mut leftovers = Vec::new();
        let all = ListParams::default();
        for snapshot in self.api::<VolumeSnapshot>().list(&all).await.expect("snapshots are listed").items {
            leftovers.push((Trouble::Stuck, format!("snapshot {} is not deleted: {snapshot:?}", snapshot.name_any())));
        }
        let contents: Api<VolumeSnapshotContent> = Api::all(self.world.client.clone());
        let contents = contents.list(&all).await.expect("contents are listed").items;
        for content in contents.iter().filter(|content| content.spec.driver == provisioner(&self.name)) {
            leftovers.push((Trouble::Leaked, format!("content {} is left: {content:?}", content.name_any())));
        }
        let snapshots = self.world.node.backend().snapshots();
        for (id, of) in snapshots.iter().filter(|(_, of)| of.split('/').next() == Some(self.name.as_str())) {
            leftovers.push((Trouble::Leaked, format!("snapshot {id} of {of} is left on the backend")));
        }
        leftovers.into_iter().map(|(trouble, what)| Finding { trouble, what }).collect()
    }
}

/// Returns whether Kubernetes deletes this failed Job after its time.
fn is_kept(job: &Job) -> bool {
    let failed = job.status.as_ref().is_some_and(|status| status.failed.unwrap_or(0) > 0);
    let expires = job.spec.as_ref().is_some_and(|spec| spec.ttl_seconds_after_finished.is_some());
    failed && expires && job.metadata.deletion_timestamp.is_none()
}
