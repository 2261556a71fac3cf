//! Findings about volumes.

use super::*;

#[test]
fn volumes_that_nothing_will_delete_are_findings() {
    let retained = |v: &mut Volume| {
        gone(v);
        v.reclaim_policy = "Retain".into();
    };
    Cluster::new().volume(retained).finds(FindingKind::VolumeRetained, "policy is Retain", false);
    let elsewhere =
        json!({ "metadata": { "annotations": { names::BIND_COMPLETED: "yes" } }, "spec": { "volumeName": "b" } });
    Cluster::new().claim(elsewhere.clone()).volume(retained).finds(
        FindingKind::VolumeElsewhere,
        "is bound to b",
        false,
    );
    Cluster::new().claim(elsewhere).volume(gone).clean();
    Cluster::new().volume(|v| v.claim_ref = None).finds(FindingKind::VolumeRetained, "its claimRef was removed", false);
    let deleted = |v: &mut Volume| (v.claim_ref, v.terminating) = (None, true);
    Cluster::new().volume(deleted).finds(FindingKind::VolumeHeld, "deleted while it had no claimRef", false);
    let unadopted = |v: &mut Volume| (v.phase, v.adoption_mark, v.provenance) = ("Released".into(), None, None);
    Cluster::new().volume(unadopted).finds(FindingKind::VolumeNotAdopted, "never adopted", false);
    let unrecorded = |v: &mut Volume| (v.adoption_mark, v.provenance) = (None, None);
    Cluster::new().bound().volume(unrecorded).finds(FindingKind::VolumeNotAdopted, "has no record", false);
    let restored = |v: &mut Volume| (v.adoption_mark, v.source_kind) = (None, Some("nfs"));
    Cluster::new().bound().volume(restored).finds(FindingKind::VolumeRestored, "its record agrees", true);
    let mut other = Cluster::with(&[("secret-env", "s")]);
    other.0.recipes.clear();
    other.volume(restored).finds(FindingKind::VolumeRestored, "secret-env", false);
    let of_another = |v: &mut Volume| (v.adoption_mark, v.class) = (None, "gold".into());
    Cluster::new().volume(of_another).finds(FindingKind::VolumeRestored, "nobody can vouch for it", false);
    let pool_hash = effective_config(&[("capabilities", "pool"), ("pool", "1Gi=1")]).pool_hash();
    let ready = |v: &mut Volume| {
        (v.claim_ref, v.claim_uid, v.pool, v.pool_size) = (None, None, Some(pool_hash.clone()), Some(1 << 30));
    };
    let keeps = |pool: &str| Cluster::with(&[("capabilities", "pool"), ("pool", pool)]).volume(ready);
    keeps("1Gi=1").clean();
    keeps("2Gi=1").finds(FindingKind::VolumeUnasked, "keeps other volumes ready now", false);
    Cluster::new().volume(ready).finds(FindingKind::VolumeUnasked, "has no pool any more", false);
    let anonymous = |v: &mut Volume| {
        (v.adoption_mark, v.provenance, v.claim_ref, v.claim_uid) = (None, None, None, None);
    };
    Cluster::new().volume(anonymous).finds(FindingKind::VolumeNotAdopted, "names no claim", false);
    let unreadable = |v: &mut Volume| {
        (v.provenance, v.adoption_mark) = (Some("x".into()), Some(adoption_mark("x", &v.uid)));
    };
    Cluster::new().bound().volume(unreadable).finds(FindingKind::VolumeUnreadable, "cannot be read", false);
    Cluster::new()
        .volume(|v| {
            unreadable(v);
            gone(v)
        })
        .finds(FindingKind::VolumeUnreadable, "cannot be read", false);
    let shallow = |mut cluster: Cluster| {
        cluster.0.deep = false;
        cluster
    };
    shallow(Cluster::new().bound().volume(unreadable)).clean();
    Cluster::new()
        .volume(|v| {
            gone(v);
            v.name = "pvc-x".into()
        })
        .finds(FindingKind::VolumeMisnamed, "the name of the volume with the id", false);
    Cluster::new()
        .volume(|v| {
            gone(v);
            v.abandoned = true
        })
        .clean();
    let refused =
        |v: &mut Volume| (v.adoption_mark, v.provenance, v.quarantine) = (None, None, Some("too small".into()));
    Cluster::new().bound().volume(refused).finds(FindingKind::VolumeQuarantined, "too small", false);
}

/// The phase of a volume that was just created does not say yet that its claim is gone.
#[test]
fn a_restored_volume_is_vouched_for_only_if_its_claim_may_come() {
    let restored = |v: &mut Volume| (v.adoption_mark, v.source_kind) = (None, Some("nfs"));
    let by_name = |v: &mut Volume| {
        restored(v);
        v.claim_ref.as_mut().unwrap().uid = None;
    };
    Cluster::new().volume(by_name).finds(FindingKind::VolumeRestored, "its record agrees with its class", true);
    Cluster::new().volume(restored).finds(FindingKind::VolumeRestored, "delete its storage at once", false);
}

#[test]
fn deletions_without_progress_are_findings() {
    let failed = |v: &mut Volume| {
        gone(v);
        v.last_failure = crate::run::failure::LastFailure::read(&failure("delete"));
    };
    Cluster::new().volume(failed).finds(FindingKind::VolumeHeld, "run 3 failed: the array is on fire", false);
    let job = |job: &mut Job| job.volume = Some(names::pv_name(UID));
    Cluster::new().volume(gone).job("delete", job).finds(FindingKind::VolumeHeld, "does not end", false);
}

#[test]
fn a_volume_that_another_orchestrator_neglects_is_a_finding() {
    let leftovers =
        |since: i64| move |v: &mut Volume| (v.instance, v.unneeded_since) = (Some("other".into()), Some(NOW - since));
    let found = |volume: &dyn Fn(&mut Volume)| {
        Cluster::new().volume(volume).finds(FindingKind::VolumeForeign, "the instance other", false);
    };
    Cluster::new().volume(|v| v.instance = Some("other".into())).clean();
    // The volume is terminating or released, and the other orchestrator has had a moment for it.
    Cluster::new().volume(leftovers(1)).clean();
    Cluster::new().volume(leftovers(STUCK_AFTER)).clean();
    found(&leftovers(STUCK_AFTER + 1));
    let unheld = |v: &mut Volume| {
        leftovers(5000)(v);
        v.finalizers.clear();
    };
    Cluster::new().volume(unheld).clean();
    // The delete run fails. The volume has an event about it, and the next try may be half an hour later.
    let fails = |since: i64| {
        move |v: &mut Volume| {
            leftovers(50_000)(v);
            let failure = crate::run::failure::LastFailure::read(&failure("delete"));
            v.last_failure = failure.map(|failure| crate::run::failure::LastFailure { at: NOW - since, ..failure });
            assert!(v.last_failure.is_some());
        }
    };
    Cluster::new().volume(fails(30 * 60)).clean();
    found(&fails(30 * 60 + STUCK_AFTER + 1));
}

#[test]
fn the_age_of_a_deletion_follows_from_the_volume() {
    let unneeded_since = |metadata: Value, status: Value| {
        let mut metadata = metadata;
        metadata["creationTimestamp"] = json!(at(NOW - 5000));
        let volume = json!({ "metadata": metadata, "spec": {}, "status": status });
        Volume::from(&serde_json::from_value::<k8s_openapi::api::core::v1::PersistentVolume>(volume).unwrap())
            .unneeded_since
    };
    let phase = |phase: &str| json!({ "phase": phase, "lastPhaseTransitionTime": at(NOW - 70) });
    let deleted = json!({ "deletionTimestamp": at(NOW - 50) });
    assert_eq!(unneeded_since(json!({}), phase("Bound")), None);
    assert_eq!(unneeded_since(json!({}), phase("Released")), Some(NOW - 70));
    assert_eq!(
        unneeded_since(json!({}), json!({ "phase": "Failed" })),
        Some(NOW - 5000),
        "the volume failed before the time was recorded"
    );
    assert_eq!(unneeded_since(deleted.clone(), phase("Bound")), Some(NOW - 50));
    assert_eq!(unneeded_since(deleted, phase("Released")), Some(NOW - 70));
}
