//! Objects for the tests of the page.

use std::sync::Arc;

use flex_contract::names;
use flex_core::config::classes::{BindingMode, Class};
use flex_core::config::effective_config::EffectiveConfig;
use flex_core::config::topology::Topologies;
use flex_core::model::claim::Claim;
use flex_core::object::ObjectName;
use k8s_openapi::api::core::v1::PersistentVolumeClaim;
use serde_json::{Value, json};

/// The time at which the claims were created, in seconds since 1970.
pub const CREATED: i64 = 1_790_000_000;

/// Returns a class whose ConfigMap in the namespace `admin` has the same name.
pub fn class(name: &str, keys: &[(&str, &str)]) -> Class {
    let data = [("image", "x")].iter().chain(keys).map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect();
    let config = ObjectName::new("admin", name);
    let recipe = EffectiveConfig { config, class: name.into(), data, ..EffectiveConfig::default() }.recipe().unwrap();
    Class {
        name: name.into(),
        has_object: true,
        uid: "class".into(),
        binding: BindingMode::Immediate,
        recipe: Ok(Arc::new(recipe)),
        last_good: false,
        allowed: Topologies::default(),
        provisioner: "p".into(),
    }
}

/// Returns a claim of class `gold` with these annotations. An attempt began half a second after its creation if
/// `attempt` is not 0.
pub fn claim(attempt: u32, annotations: Value) -> Claim {
    let mut annotations = annotations;
    if attempt > 0 {
        annotations[names::CLAIM_UID] = json!("u");
        annotations[names::ATTEMPT] = json!(attempt.to_string());
        let began = jiff::Timestamp::from_millisecond(CREATED * 1000 + 500).unwrap();
        annotations[names::PROVISION_TS] = json!(began.to_string());
    }
    let created = jiff::Timestamp::from_second(CREATED).unwrap().to_string();
    let object = json!({
        "metadata": {
            "name": "data", "namespace": "team", "uid": "u", "creationTimestamp": created, "annotations": annotations,
        },
        "spec": { "storageClassName": "gold", "resources": { "requests": { "storage": "1Gi" } } },
    });
    Claim::from(&serde_json::from_value::<PersistentVolumeClaim>(object).unwrap())
}

/// Returns the annotation of a failed run.
pub fn failure(operation: &str, attempt: u32, reaction: &str, message: &str) -> String {
    json!({
        "operation": operation, "attempt": attempt, "at": CREATED + 10, "kind": reaction, "reason": "ExitCode",
        "message": message,
    })
    .to_string()
}
