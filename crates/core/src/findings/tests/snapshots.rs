//! Tests of findings about snapshots, finalizers and policies.

use super::*;
use crate::model::snapshot::api::{VolumeSnapshot, VolumeSnapshotContent};
use crate::policies::{POLICIES, PolicyState};

const SNAPSHOT: &str = "c0ffee00-0000-4000-8000-000000000005";

impl Cluster {
    fn snapshot(mut self, more: Value) -> Self {
        let mut snapshot = json!({
            "metadata": { "name": "monday", "namespace": "team", "uid": SNAPSHOT },
            "spec": { "source": { "persistentVolumeClaimName": "data" } },
        });
        merge(&mut snapshot, more);
        let snapshot: VolumeSnapshot = serde_json::from_value(snapshot).unwrap();
        self.0.snapshots.push(Arc::new((&snapshot).into()));
        self
    }

    fn content(mut self, more: Value) -> Self {
        let mut content = json!({
            "metadata": { "name": names::content_name(SNAPSHOT), "uid": "k", "creationTimestamp": at(NOW - 5000) },
            "spec": {
                "driver": names::DEFAULT_PROVISIONER, "deletionPolicy": "Delete", "source": { "volumeHandle": UID },
                "volumeSnapshotRef": { "namespace": "team", "name": "monday", "uid": SNAPSHOT },
            },
            "status": { "readyToUse": true },
        });
        merge(&mut content, more);
        let content: VolumeSnapshotContent = serde_json::from_value(content).unwrap();
        self.0.contents.push(Arc::new((&content).into()));
        self
    }

    fn protected_claim(self, uid: &str, finalizer: &str) -> Self {
        self.claim(json!({ "metadata": { "name": uid, "uid": uid, "finalizers": [finalizer] } }))
    }
}

fn not_ready() -> Value {
    json!({ "status": { "readyToUse": false } })
}

#[test]
fn healthy_snapshots_are_no_findings() {
    let with_finalizer = json!({ "metadata": { "finalizers": [names::SNAPSHOT_FINALIZER] } });
    Cluster::new().snapshot(with_finalizer.clone()).content(with_finalizer.clone()).clean();
    Cluster::new().snapshot(with_finalizer.clone()).clean();
    let terminating =
        json!({ "metadata": { "deletionTimestamp": at(NOW), "finalizers": [names::SNAPSHOT_FINALIZER] } });
    Cluster::new().snapshot(terminating.clone()).content(terminating).clean();
    let making = Cluster::new().snapshot(with_finalizer).content(not_ready());
    making
        .protected_claim("source", &names::source_finalizer(SNAPSHOT))
        .job("snapshot", |job| job.content = Some(names::content_name(SNAPSHOT)))
        .clean();
    // The contents belong to another orchestrator, are too young, or are not bound yet.
    Cluster::new().content(json!({ "spec": { "driver": "other.example" } })).clean();
    Cluster::new().content(json!({ "metadata": { "labels": { names::LABEL_INSTANCE: "other" } } })).clean();
    Cluster::new().content(json!({ "metadata": { "creationTimestamp": at(NOW - 3) } })).clean();
    Cluster::new().content(json!({ "spec": { "volumeSnapshotRef": { "uid": "" } } })).clean();
}

#[test]
fn contents_without_a_snapshot_are_findings() {
    let says = "its VolumeSnapshot team/monday does not exist";
    Cluster::new().content(json!({})).finds(FindingKind::ContentWithoutSnapshot, says, false);
    let another = json!({ "metadata": { "uid": "another" } });
    Cluster::new().snapshot(another).content(json!({})).finds(FindingKind::ContentWithoutSnapshot, says, false);
    let retained = json!({ "spec": { "deletionPolicy": "Retain" } });
    Cluster::new().content(retained.clone()).finds(FindingKind::ContentRetained, says, false);
    let mut unready = retained;
    merge(&mut unready, not_ready());
    Cluster::new().content(unready.clone()).finds(FindingKind::ContentWithoutSnapshot, says, false);
    for policy in ["Delete", "Retain"] {
        let mut restored = unready.clone();
        let record = json!({ "metadata": { "annotations": { names::PROVENANCE: "{}" } } });
        merge(&mut restored, record);
        merge(&mut restored, json!({ "spec": { "deletionPolicy": policy } }));
        let mut unbound = restored.clone();
        merge(&mut unbound, json!({ "spec": { "volumeSnapshotRef": { "uid": "" } } }));
        let mut failed = restored.clone();
        merge(&mut failed, json!({ "metadata": { "annotations": { names::FAILURE: failure("snapshot") } } }));
        for restored in [restored, unbound, failed] {
            let found = only(&Cluster::new().content(restored), FindingKind::ContentRestored);
            assert!(found.detail.contains(says), "{found:?}");
            assert!(found.remedy.contains(&format!("snapshotHandle: {SNAPSHOT}")), "{found:?}");
        }
    }
}

#[test]
fn snapshots_that_cannot_be_made_or_deleted_are_findings() {
    let failed = |operation: &str| json!({ "metadata": { "annotations": { names::FAILURE: failure(operation) } } });
    let mut stuck = failed("snapshot");
    merge(&mut stuck, json!({ "status": { "readyToUse": false, "error": { "message": "the array is on fire" } } }));
    Cluster::new().snapshot(json!({})).content(stuck.clone()).finds(FindingKind::SnapshotStuck, "on fire", false);
    merge(&mut stuck, json!({ "metadata": { "creationTimestamp": at(NOW - 300) } }));
    Cluster::new().snapshot(json!({})).content(stuck).clean();
    let mut with_finalizer = failed("delete-snapshot");
    merge(
        &mut with_finalizer,
        json!({ "metadata": { "deletionTimestamp": at(NOW), "finalizers": [names::SNAPSHOT_FINALIZER] } }),
    );
    let of = |content: &Value| Cluster::new().content(content.clone());
    of(&with_finalizer).finds(FindingKind::ContentHeld, "delete-snapshot run 3 failed: the array is on fire", false);
    let remedy = only(&of(&with_finalizer), FindingKind::ContentHeld).remedy;
    let first = "correct the image, the script or the config: a run is then tried at once; else clean up by hand, then run `kubectl ";
    assert!(remedy.starts_with(first) && remedy.contains("annotate volumesnapshotcontent"), "{remedy}");
    merge(&mut with_finalizer, json!({ "metadata": { "annotations": { names::ABANDON: names::ABANDON_YES } } }));
    of(&with_finalizer).clean();
}

#[test]
fn runs_without_a_content_are_orphans() {
    let of = |job: &mut Job| (job.content, job.is_over) = (Some("snapcontent-gone".into()), true);
    let says = "its VolumeSnapshotContent snapcontent-gone does not exist";
    Cluster::new().job("delete-snapshot", of).finds(FindingKind::JobWithoutOwner, says, false);
    Cluster::new()
        .job("snapshot", |job| {
            of(job);
            job.created = NOW - STUCK_AFTER + 1;
        })
        .clean();
}

#[test]
fn unneeded_finalizers_are_findings() {
    let source = names::source_finalizer(SNAPSHOT);
    let gone = Cluster::new().protected_claim("source", &source);
    gone.finds(FindingKind::FinalizerLeft, &format!("{source}: the snapshot that is made of it does not exist"), false);
    let ready = Cluster::new().snapshot(json!({})).content(json!({})).protected_claim("source", &source);
    ready.finds(FindingKind::FinalizerLeft, "is ready", false);
    let copy = names::clone_finalizer(UID);
    Cluster::new().protected_claim("original", &copy).finds(FindingKind::FinalizerLeft, "does not exist", false);
    let volume = |volume: &mut Volume| volume.finalizers.clear();
    let copied = Cluster::new().bound().volume(volume).protected_claim("original", &copy);
    copied.finds(FindingKind::FinalizerLeft, "claim team/data, which was made from it, is bound", false);
    let read = json!({ "metadata": { "finalizers": [copy] } });
    let read = Cluster::new().snapshot(json!({})).content(read);
    read.finds(FindingKind::FinalizerLeft, "does not exist", false);
    let terminating =
        json!({ "metadata": { "deletionTimestamp": at(NOW), "finalizers": [names::SNAPSHOT_FINALIZER] } });
    Cluster::new().snapshot(terminating).finds(
        FindingKind::FinalizerLeft,
        "its content does not exist any more",
        false,
    );
    let in_progress = stamped(&recipe().version());
    Cluster::new()
        .claim(in_progress)
        .job("provision", |_| ())
        .protected_claim("original", &names::clone_finalizer(UID))
        .clean();
    // The sweep does not check finalizers. Finalizers of others are no findings.
    let mut shallow = gone;
    shallow.0.deep = false;
    shallow.clean();
    Cluster::new().protected_claim("theirs", "other.example/in-use").clean();
}

#[test]
fn findings_about_policies_name_the_missing_protection() {
    let found = |state: PolicyState| Finding::of_policy(&POLICIES[0], &state);
    assert!(found(PolicyState::Installed).is_none() && found(PolicyState::Limited).is_none());
    let missing = found(PolicyState::Missing).unwrap();
    assert_eq!(
        (missing.kind, missing.severity),
        (FindingKind::PolicyMissing, Severity::Info),
        "everything works without the policy"
    );
    assert!(missing.detail.contains("not installed: who created a claim is not known"), "{}", missing.detail);
    let outdated = found(PolicyState::Differs("spec.mutations".into())).unwrap();
    assert_eq!((outdated.kind, outdated.severity), (FindingKind::PolicyOutdated, Severity::Warning));
    assert!(outdated.detail.contains("at spec.mutations") && outdated.remedy.contains("deploy/kustomize"));
    assert_eq!(found(PolicyState::Unbound).unwrap().kind, FindingKind::PolicyOutdated);
}
