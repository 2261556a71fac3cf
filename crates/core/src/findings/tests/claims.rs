//! Claims that are stuck.

use super::*;
use crate::model::record::{Record, record_name};

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
    Cluster::new().claim(with(own(), slow)).finds(FindingKind::ClaimStuck, "the claim has no volume", false);
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
    let first = "correct the image, the script or the config: a run is then tried at once; else clean up by hand, then run `kubectl ";
    assert!(found.remedy.starts_with(first), "{}", found.remedy);
    assert!(found.remedy.contains("annotate pvc"), "{}", found.remedy);
}

#[test]
fn a_record_of_what_somebody_may_keep_is_a_finding_until_it_is_abandoned() {
    let claims: Vec<Claim> = ["a", "b", "c", "d"].map(|uid| Claim { uid: uid.into(), ..kept_claim() }).into();
    let data = Record::data(claims.iter());
    let found = |annotations: Value| {
        let metadata = json!({
            "namespace": "own", "name": record_name("provision-a-1", &data), "uid": "r", "annotations": annotations,
        });
        let record = Record::read(&serde_json::from_value(metadata).unwrap(), &data).unwrap();
        let mut cluster = Cluster::new();
        cluster.0.kept.push(Arc::new(record));
        cluster
    };
    let live = found(json!({ names::ARMED: "r", names::KEPT: "a" }));
    live.finds(FindingKind::StorageKept, "team/data", false);
    let remedy = |cluster: &Cluster| cluster.found().remove(0).remedy;
    assert!(remedy(&live).ends_with(&format!("{}=a", names::ABANDON)), "the others need the record");
    let all = found(json!({ names::ARMED: "r", names::KEPT: "a,b,c,d" }));
    assert!(remedy(&all).contains("a, b, c and 1 more"), "{}", remedy(&all));
    assert!(remedy(&all).ends_with(&format!("{}={}", names::ABANDON, names::ABANDON_YES)));
    found(json!({ names::ARMED: "r", names::KEPT: "a", names::SETTLED: "a" })).clean();
}

fn kept_claim() -> Claim {
    let object = json!({
        "metadata": { "namespace": "team", "name": "data", "uid": "u" }, "spec": { "storageClassName": "c" },
    });
    Claim::from(&serde_json::from_value::<k8s_openapi::api::core::v1::PersistentVolumeClaim>(object).unwrap())
}
