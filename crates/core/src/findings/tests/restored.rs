//! Remedies for volumes that came from a backup, and for those that only an admin can delete.

use super::*;

const PATCH: &str = r#"--type json -p '[{"op":"remove","path":"/spec/claimRef/uid"}]'"#;

#[test]
fn a_restored_volume_reserved_for_a_former_uid_is_a_finding() {
    let former = |v: &mut Volume| {
        gone(v);
        (v.adoption_mark, v.source_kind) = (None, Some("nfs"));
        v.claim_ref.as_mut().unwrap().uid = Some(OTHER.into());
    };
    let lost = || {
        let spec = json!({ "volumeName": names::pv_name(UID) });
        Cluster::new().claim(json!({ "spec": spec, "status": { "phase": "Lost" } }))
    };
    let patch = format!("kubectl patch pv {} {PATCH}", names::pv_name(UID));
    let claim = only(&lost().volume(former), FindingKind::ClaimLost);
    assert!(claim.detail.contains("exists, but is reserved for another UID of the claim"), "{claim:#?}");
    assert!(claim.detail.contains(OTHER) && claim.remedy.contains(&patch), "{claim:#?}");
    let volume = only(&lost().volume(former), FindingKind::VolumeRestored);
    let keep = format!("to keep it for a claim of the same name: {patch}; once it is bound: flex-provisioner vouch");
    assert!(volume.remedy.starts_with(&keep) && !volume.remedy.contains("by hand"), "{volume:#?}");
    assert_eq!(volume.removal, None, "no option of doctor deletes storage");
    let others = |v: &mut Volume| {
        former(v);
        v.claim_ref.as_mut().unwrap().name = ObjectName::new("team", "other");
    };
    let claim = only(&lost().volume(others), FindingKind::ClaimLost);
    assert!(claim.detail.contains("another claim, team/other") && !claim.remedy.contains("patch"), "{claim:#?}");
    // Velero restores the claim without the annotation of its binding, and leaves the volume as it is.
    let pending = || {
        let spec = json!({ "volumeName": names::pv_name(UID) });
        Cluster::new().claim(json!({ "spec": spec, "status": { "phase": "Pending" } }))
    };
    let released = |v: &mut Volume| {
        gone(v);
        v.reclaim_policy = "Retain".into();
        v.claim_ref.as_mut().unwrap().uid = Some(OTHER.into());
        v.claim_uid = Some(OTHER.into());
    };
    let found = pending().volume(released).found();
    let kinds: Vec<_> = found.iter().map(|finding| finding.kind).collect();
    assert_eq!(kinds, [FindingKind::ClaimLost, FindingKind::VolumeRetained], "{found:#?}");
    assert!(found.iter().all(|finding| finding.remedy.contains(&patch)), "{found:#?}");
    assert!(found.iter().all(|finding| !finding.remedy.contains("delete")), "a claim waits for the volume: {found:#?}");
    let missing = only(&pending(), FindingKind::ClaimLost);
    assert!(missing.detail.contains("does not exist"), "{missing:#?}");
    pending().volume(|v| v.claim_ref.as_mut().unwrap().uid = None).clean();
    // Or the claim has got a new volume.
    let replaced = json!({
        "metadata": { "annotations": { names::BIND_COMPLETED: "yes" } },
        "spec": { "volumeName": "pvc-new" }, "status": { "phase": "Bound" },
    });
    let kept = only(&Cluster::new().claim(replaced).volume(released), FindingKind::VolumeRetained);
    assert!(kept.remedy.contains("empty volume in place") && !kept.remedy.contains("kubectl delete"), "{kept:#?}");
    let mended = |v: &mut Volume| v.claim_ref.as_mut().unwrap().uid = None;
    let claim = only(&lost().volume(mended), FindingKind::ClaimLost);
    assert!(claim.detail.contains("has not bound the claim again yet"), "{claim:#?}");
}

/// A copy of a cluster's objects has its records. Both clusters would delete the same storage.
#[test]
fn a_volume_of_another_cluster_is_not_vouched_for_by_the_doctor() {
    let of = |cluster: &'static str| {
        let mut searched = Cluster::new().bound().volume(move |v: &mut Volume| {
            let mut record: Provenance = serde_json::from_str(v.provenance.as_ref().unwrap()).unwrap();
            record.cluster = Some(cluster.to_owned());
            (v.provenance, v.adoption_mark, v.source_kind) = (Some(json!(record).to_string()), None, Some("nfs"));
        });
        searched.0.identity.cluster = "here".to_owned();
        only(&searched, FindingKind::VolumeRestored)
    };
    assert_eq!(of("here").removal, Some(Removal::Vouch));
    let elsewhere = of("there");
    assert_eq!(elsewhere.removal, None, "{elsewhere:#?}");
    assert!(elsewhere.detail.contains("the cluster there has adopted the volume"), "{elsewhere:#?}");
    assert!(elsewhere.remedy.ends_with("--from-cluster there"), "{elsewhere:#?}");
}

#[test]
fn a_volume_that_only_an_admin_can_delete_is_cleaned_up_only_when_unused() {
    let text =
        format!("nodeSelectorTerms: [{{matchExpressions: [{{key: {}, operator: In, values: [a]}}]}}]", names::HOSTNAME);
    let strange = |phase: &'static str| {
        let selector: k8s_openapi::api::core::v1::NodeSelector = crate::config::values::yaml(&text).unwrap();
        move |v: &mut Volume| {
            (v.adoption_mark, v.class, v.phase) = (None, "gold".into(), phase.into());
            (v.affinity, v.path) = (Some(Box::new(selector)), Some("/srv/a".into()));
        }
    };
    let location = "clean up by hand on node a in /srv/a, then run `kubectl annotate pv";
    let bound = only(&Cluster::new().bound().volume(strange("Bound")), FindingKind::VolumeRestored);
    assert!(bound.remedy.starts_with("pods can use the volume as it is, so there is nothing to do"), "{bound:#?}");
    assert!(bound.remedy.contains("only when its claim is gone") && bound.remedy.contains(location), "{bound:#?}");
    let released = only(&Cluster::new().volume(strange("Released")), FindingKind::VolumeRestored);
    assert!(released.remedy.starts_with("to keep it for a claim of the same name: kubectl patch"), "{released:#?}");
    assert!(released.remedy.contains(&format!("; to delete it: {location}")), "{released:#?}");
    let unrecorded = |v: &mut Volume| {
        gone(v);
        (v.adoption_mark, v.provenance) = (None, None);
    };
    let found = only(&Cluster::new().volume(unrecorded), FindingKind::VolumeNotAdopted);
    assert!(found.remedy.starts_with("make sure that nobody uses the storage"), "{found:#?}");
    assert!(found.remedy.contains("to keep it for") && found.remedy.contains(PATCH), "{found:#?}");
}
