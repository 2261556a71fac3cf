//! A cluster for tests of the overview.

use flex_contract::names;
use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim};
use serde_json::{Value, json};

use crate::class_health::testing::{config, identity};
use crate::clock::Clock;
use crate::state::index::{Index, WatchChange};

/// The time of the tests, in seconds since 1970.
pub const NOW: i64 = 1_800_000_000;

fn time(ago: i64) -> String {
    jiff::Timestamp::from_second(NOW - ago).unwrap().to_string()
}

/// Returns a claim of a class that was created so many seconds ago, with these annotations.
fn claim(name: &str, class: &str, ago: i64, annotations: &Value) -> PersistentVolumeClaim {
    let mut claim = json!({
        "metadata": { "name": name, "namespace": "team", "uid": name, "creationTimestamp": time(ago) },
        "spec": { "storageClassName": class, "resources": { "requests": { "storage": "1Gi" } } },
        "status": { "phase": "Pending" },
    });
    claim["metadata"]["annotations"] = annotations.clone();
    serde_json::from_value(claim).unwrap()
}

fn stamped(claim: &str, attempt: u32) -> Value {
    json!({
        names::CLAIM_UID: claim, names::ATTEMPT: attempt.to_string(), names::LABEL_INSTANCE: "default",
        names::PROVISION_TS: time(3), names::RECIPE_VERSION: "admin/gold@1",
    })
}

/// Returns a cluster with classes of all states, and claims in progress.
pub fn cluster() -> Index {
    let mut index = Index::new(identity(), Clock::default());
    let keys = json!({ "service-account-name": "gold", "max-in-flight": "4", "max-volumes": "3", "zone": "west" });
    for config in [config("gold", keys), config("broken", json!({ "timeout": "soon" }))] {
        index.change_config(WatchChange::Apply(config));
    }
    let failure = json!({
        "operation": "provision", "attempt": 3, "at": NOW - 5, "kind": "retry", "reason": "ExitCode",
        "message": "exit code 75: the array is\n\u{1b}[31mswitched off",
    });
    let mut failed = stamped("fails", 3);
    failed[names::FAILURE] = json!(failure.to_string());
    for claim in [
        claim("waits", "gold", 400, &json!({})),
        claim("runs", "gold", 7, &stamped("runs", 1)),
        claim("fails", "gold", 60, &failed),
        claim("of-another", "other", 60, &json!({})),
        claim("cannot", "broken", 60, &json!({})),
    ] {
        index.change_claim(WatchChange::Apply((&claim).into()));
    }
    let mut bound = claim("bound", "gold", 90, &json!({ names::BIND_COMPLETED: "yes" }));
    bound.spec.get_or_insert_default().volume_name = Some("pvc-bound".into());
    index.change_claim(WatchChange::Apply((&bound).into()));
    let failure = json!({
        "operation": "delete", "attempt": 1, "at": NOW - 9, "kind": "retry", "reason": "ExitCode",
        "message": "exit code 75: the array is switched off",
    });
    for (name, annotations) in [("pvc-bound", json!({})), ("pvc-stays", json!({ names::FAILURE: failure.to_string() }))]
    {
        index.change_volume(WatchChange::Apply((&volume(name, &annotations)).into()));
    }
    index
}

/// Returns a released volume of class `gold` with these annotations.
fn volume(name: &str, annotations: &Value) -> PersistentVolume {
    let object = json!({
        "metadata": {
            "name": name, "uid": name, "creationTimestamp": time(80), "annotations": annotations,
            "labels": { names::LABEL_INSTANCE: "default" },
        },
        "spec": { "storageClassName": "gold", "capacity": { "storage": "1Gi" } },
        "status": { "phase": "Released" },
    });
    serde_json::from_value(object).unwrap()
}
