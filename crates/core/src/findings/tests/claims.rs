//! Claims that are stuck.

use super::*;

#[test]
fn claims_without_progress_are_findings() {
    let with = |mut base: Value, more: Value| {
        merge(&mut base, more);
        base
    };
    let own = || stamped(&recipe().version());
    let unkept = || stamped("admin/c@0123456789abcdef");
    let class = |name: &str| json!({ "spec": { "storageClassName": name } });
    let deleting = json!({ "metadata": { "deletionTimestamp": at(NOW - 9), "deletionGracePeriodSeconds": 0 } });
    let failed = |operation: &str| json!({ "metadata": { "annotations": { names::FAILURE: failure(operation) } } });
    Cluster::new().claim(with(own(), class("foreign"))).finds(FindingKind::ClaimHeld, "another provisioner", false);
    Cluster::new().claim(with(unkept(), class("lost"))).finds(FindingKind::ClaimHeld, "does not exist", false);
    Cluster::new().claim(with(with(unkept(), class("lost")), deleting.clone())).finds(
        FindingKind::ClaimHeld,
        "does not exist",
        false,
    );
    // The stored revision suffices to undo the attempt.
    Cluster::new().claim(with(with(own(), class("lost")), deleting.clone())).clean();
    Cluster::new().claim(with(with(own(), deleting), failed("delete"))).finds(
        FindingKind::ClaimUndeleted,
        "on fire",
        false,
    );
    Cluster::new().claim(with(own(), failed("provision"))).finds(
        FindingKind::ClaimStuck,
        "attempt 3 failed: the array",
        false,
    );
    Cluster::new().claim(json!({ "spec": { "selector": {} } })).finds(FindingKind::ClaimStuck, "labels", false);
    Cluster::new().claim(json!({ "spec": { "volumeName": "x" }, "status": { "phase": "Lost" } })).finds(
        FindingKind::ClaimLost,
        "volume x",
        false,
    );
    let slow = json!({ "metadata": { "annotations": { names::PROVISION_TS: at(NOW - 4000) } } });
    Cluster::new().claim(with(own(), slow)).finds(FindingKind::ClaimStuck, "has not ended", false);
    // These claims belong to another orchestrator, and to none.
    Cluster::new().claim(with(stamped("elsewhere/c@1"), class("foreign"))).clean();
    Cluster::new().claim(class("foreign")).clean();
}

#[test]
fn a_claim_of_a_populator_is_not_stuck() {
    let source = json!({ "apiGroup": "example.com", "kind": "Hello", "name": "h" });
    let claim = json!({ "spec": { "dataSourceRef": source } });
    Cluster::new().claim(claim.clone()).clean();
    Cluster::with(&[("max-size", "1Mi")]).claim(claim).clean();
}

#[test]
fn a_failed_deletion_is_first_tried_again_with_what_is_corrected() {
    let mut deleting = stamped(&recipe().version());
    merge(
        &mut deleting,
        json!({ "metadata": {
            "deletionTimestamp": at(NOW - 9), "deletionGracePeriodSeconds": 0,
            "annotations": { names::FAILURE: failure("delete") },
        } }),
    );
    let found = only(&Cluster::new().claim(deleting), FindingKind::ClaimUndeleted);
    let first =
        "correct the image, the script or the config: a run is then tried at once; else clean up by hand, then: ";
    assert!(found.remedy.starts_with(first), "{}", found.remedy);
    assert!(found.remedy.contains("annotate pvc"), "{}", found.remedy);
}
