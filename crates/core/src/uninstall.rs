//! The objects that still need the orchestrator: a pure judgement before it is removed.

use flex_contract::policy::ReclaimPolicy;
use serde::Serialize;

use crate::model::claim::Claim;
use crate::model::object_ref::ObjectRef;
use crate::model::record::Record;
use crate::model::snapshot::Content;
use crate::model::volume::Volume;
use crate::run::view::Job;

/// An object that still needs the orchestrator.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct Dependent {
    /// The kind of the object.
    pub kind: &'static str,
    /// The name of the object, with its namespace if it has one.
    pub name: String,
    /// The consequence of a removal now.
    pub why: String,
    /// The way to make the removal safe.
    pub remedy: String,
    /// It must end before `--retain` changes anything: policies would be changed, and the removal refused all the same.
    #[serde(skip)]
    pub is_in_progress: bool,
}

/// Checks whether the storage of a volume is the orchestrator's to delete, so that a policy of Retain would keep it.
pub fn can_be_retained(volume: &Volume) -> bool {
    let is_claim_gone = volume.phase.is_claim_gone();
    volume.reclaim_policy == ReclaimPolicy::Delete
        && !volume.terminating
        && !is_claim_gone
        && volume.pool_hash().is_none()
}

/// Returns the objects of an orchestrator that still need it, sorted.
pub fn dependents(volumes: &[Volume], claims: &[Claim], contents: &[Content], jobs: &[Job]) -> Vec<Dependent> {
    let mut found: Vec<_> = volumes.iter().filter_map(of_volume).collect();
    found.extend(claims.iter().filter_map(of_claim));
    found.extend(contents.iter().filter_map(of_content));
    found.extend(jobs.iter().filter(|job| !job.is_over).map(of_job));
    found.sort();
    found
}

/// Returns the record as an object that still needs the orchestrator, if it is all that says what somebody may keep.
pub fn kept_of(record: &Record) -> Option<Dependent> {
    let claims: Vec<String> = record.kept().map(|claim| claim.name.to_string()).collect();
    let how = "see `storage-kept` of `flex-provisioner doctor`, and let go of the record";
    (!claims.is_empty()).then(|| Dependent {
        kind: ObjectRef::RECORD,
        name: record.name.to_string(),
        why: format!(
            "only it says that storage of deleted claims may be left, which their class keeps: {}",
            claims.join(", ")
        ),
        remedy: how.to_owned(),
        is_in_progress: false,
    })
}

fn of_volume(volume: &Volume) -> Option<Dependent> {
    let held = volume.has_finalizer();
    let deletes = volume.reclaim_policy == ReclaimPolicy::Delete;
    let (why, remedy, is_in_progress) = if volume.terminating {
        ("it is terminating, and its storage would stay", "wait until the orchestrator has deleted it", true)
    } else if deletes && volume.phase.is_claim_gone() {
        let remedy = "wait until the orchestrator has deleted it; if it does not, see `flex-provisioner doctor`";
        ("its storage is to be deleted", remedy, true)
    } else if volume.pool_hash().is_some() {
        (
            "it is pooled, and nobody would use or delete it",
            "remove `pool` from its config, and wait until the pool is empty",
            true,
        )
    } else if deletes {
        ("nobody would delete its storage", "delete its claim, or keep the storage with --retain", false)
    } else if held {
        let remedy = "wait until the orchestrator has removed its finalizer";
        ("it would stay terminating when somebody deletes it", remedy, false)
    } else {
        return None;
    };
    Some(Dependent {
        kind: "PersistentVolume",
        name: volume.name.clone(),
        why: why.into(),
        remedy: remedy.into(),
        is_in_progress,
    })
}

fn of_claim(claim: &Claim) -> Option<Dependent> {
    let object = ObjectRef::claim(claim);
    let undone = "wait until it is gone; if a deletion fails, see `flex-provisioner doctor`";
    let (why, remedy) = match (claim.is_held(), claim.terminating) {
        (true, true) => (format!("what runs have made for the deleted claim {} would stay", claim.api_name()), undone),
        (true, false) => (
            "its volume is being made, and would be lost".to_owned(),
            "wait until the claim is bound or gone, or delete it",
        ),
        (false, _) => return None,
    };
    Some(Dependent {
        kind: object.kind,
        name: object.name.to_string(),
        why,
        remedy: remedy.into(),
        is_in_progress: true,
    })
}

fn of_content(content: &Content) -> Option<Dependent> {
    let deletes = content.policy == ReclaimPolicy::Delete;
    let (why, remedy) = match (content.has_finalizer(), deletes) {
        (true, true) => (
            "nobody would delete the snapshot on the backend",
            format!("delete VolumeSnapshot {}, or keep the snapshot with --retain", content.snapshot),
        ),
        (true, false) if content.terminating => {
            ("it is terminating, and would stay so", "wait until it is gone".into())
        }
        (true, false) => (
            "it and its VolumeSnapshot would stay terminating when somebody deletes them",
            format!(
                "delete VolumeSnapshot {}, then this object: its policy Retain keeps the snapshot on the backend",
                content.snapshot
            ),
        ),
        _ => return None,
    };
    Some(Dependent {
        kind: "VolumeSnapshotContent",
        name: content.name.clone(),
        why: why.into(),
        remedy,
        is_in_progress: content.terminating && !deletes,
    })
}

fn of_job(job: &Job) -> Dependent {
    Dependent {
        kind: "Job",
        name: job.name.to_string(),
        why: "its run is in progress".into(),
        remedy: "wait until the Job has ended".into(),
        is_in_progress: true,
    }
}

#[cfg(test)]
mod tests {
    use flex_contract::names;
    use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim};
    use serde_json::json;

    use super::*;
    use crate::model::claim::{Had, RecordRef};
    use crate::model::phase::VolumePhase;
    use crate::model::snapshot::api::VolumeSnapshotContent;
    use crate::object::ObjectName;

    fn volume(policy: &str, finalizer: bool) -> Volume {
        let finalizers: &[&str] = if finalizer { &[names::VOLUME_FINALIZER] } else { &[] };
        let volume: PersistentVolume = serde_json::from_value(json!({
            "metadata": { "name": "pvc-1", "finalizers": finalizers },
            "spec": { "persistentVolumeReclaimPolicy": policy },
        }))
        .unwrap();
        Volume::from(&volume)
    }

    fn claim(is_held: bool) -> Claim {
        let annotations = json!({ names::HELD: if is_held { "u" } else { "" } });
        let metadata = json!({ "name": "data", "namespace": "team", "uid": "u", "annotations": annotations });
        let claim: PersistentVolumeClaim = serde_json::from_value(json!({ "metadata": metadata })).unwrap();
        Claim::from(&claim)
    }

    fn remedies(found: &[Dependent]) -> Vec<&str> {
        found.iter().map(|dependent| dependent.remedy.as_str()).collect()
    }

    #[test]
    fn a_volume_needs_the_orchestrator_while_it_deletes_the_storage() {
        let of = |volume: Volume| dependents(&[volume], &[], &[], &[]);
        assert_eq!(of(volume("Retain", false)), []);
        assert_eq!(remedies(&of(volume("Delete", true))), ["delete its claim, or keep the storage with --retain"]);
        assert_eq!(remedies(&of(volume("Delete", false))), ["delete its claim, or keep the storage with --retain"]);
        let waits = "wait until the orchestrator has removed its finalizer";
        assert_eq!(remedies(&of(volume("Retain", true))), [waits]);
        let terminating = Volume { terminating: true, ..volume("Delete", true) };
        assert!(!can_be_retained(&terminating));
        assert_eq!(remedies(&of(terminating)), ["wait until the orchestrator has deleted it"]);
        let released = Volume { phase: VolumePhase::Released, ..volume("Delete", true) };
        assert!(!can_be_retained(&released), "its deletion may be in progress");
        assert_eq!(
            remedies(&of(released)),
            ["wait until the orchestrator has deleted it; if it does not, see `flex-provisioner doctor`"]
        );
    }

    #[test]
    fn retain_resolves_volumes_and_no_work_in_progress() {
        let job = Job { name: ObjectName::new("flex", "provision-1"), ..Job::default() };
        let volumes = [volume("Delete", true), volume("Retain", true)];
        let found = dependents(&volumes, &[claim(true)], &[], &[job]);
        let open: Vec<_> = found.iter().filter(|one| one.is_in_progress).map(|one| one.kind).collect();
        assert_eq!((found.len(), open), (4, vec!["Job", "PersistentVolumeClaim"]));
    }

    #[test]
    fn a_claim_needs_the_orchestrator_while_its_volume_is_made() {
        assert_eq!(dependents(&[], &[claim(false)], &[], &[]), []);
        let found = dependents(&[], &[claim(true)], &[], &[]);
        assert_eq!((found.len(), found[0].name.as_str()), (1, "team/data"));
        assert_eq!(remedies(&found), ["wait until the claim is bound or gone, or delete it"]);
        let terminating = Claim { terminating: true, ..claim(true) };
        let found = dependents(&[], &[terminating], &[], &[]);
        assert_eq!(remedies(&found), ["wait until it is gone; if a deletion fails, see `flex-provisioner doctor`"]);
        let record = RecordRef {
            name: ObjectName::new("flex", "flex-record-provision-u-1"),
            uid: "r".into(),
            had: Had::Unknown,
        };
        let found = dependents(&[], &[claim(true).stand_in(record, "7")], &[], &[]);
        assert_eq!((found[0].kind, found[0].name.as_str()), ("ControllerRevision", "flex/flex-record-provision-u-1"));
        assert!(found[0].is_in_progress && found[0].why.contains("deleted claim team/data"), "{found:?}");
    }

    #[test]
    fn a_record_of_what_somebody_may_keep_needs_the_orchestrator() {
        let data = Record::data([claim(true)].iter());
        let of = |kept: &str| {
            let annotations = json!({ names::ARMED: "r", names::KEPT: kept });
            let metadata =
                json!({ "namespace": "flex", "name": "flex-record-j", "uid": "r", "annotations": annotations });
            kept_of(&Record::read(&serde_json::from_value(metadata).unwrap(), &data).unwrap())
        };
        let found = of("u").unwrap();
        assert_eq!((found.kind, found.name.as_str()), ("ControllerRevision", "flex/flex-record-j"));
        assert!(!found.is_in_progress && found.why.ends_with("class keeps: team/data"), "{found:?}");
        assert_eq!(of(""), None);
    }

    #[test]
    fn a_snapshot_needs_the_orchestrator_while_it_has_a_finalizer() {
        let of = |policy: &str, finalizers: &[&str]| {
            let object = json!({
                "metadata": { "name": "snapcontent-1", "finalizers": finalizers },
                "spec": {
                    "deletionPolicy": policy, "driver": names::DEFAULT_PROVISIONER,
                    "source": { "snapshotHandle": "1" },
                    "volumeSnapshotRef": { "namespace": "team", "name": "daily" },
                },
            });
            dependents(
                &[],
                &[],
                &[Content::from(&serde_json::from_value::<VolumeSnapshotContent>(object).unwrap())],
                &[],
            )
        };
        let deletes = of("Delete", &[names::SNAPSHOT_FINALIZER]);
        assert_eq!(remedies(&deletes), ["delete VolumeSnapshot team/daily, or keep the snapshot with --retain"]);
        let kept = of("Retain", &[names::SNAPSHOT_FINALIZER]);
        assert!(kept[0].remedy.starts_with("delete VolumeSnapshot team/daily, then this object"), "{kept:?}");
        assert!(!kept[0].is_in_progress);
        assert_eq!(of("Retain", &[]), []);
    }

    #[test]
    fn a_run_in_progress_needs_the_orchestrator() {
        let job = |is_over| Job { name: ObjectName::new("flex", "provision-1"), is_over, ..Job::default() };
        assert_eq!(dependents(&[], &[], &[], &[job(true)]), []);
        assert_eq!(dependents(&[], &[], &[], &[job(false)]).len(), 1);
    }
}
