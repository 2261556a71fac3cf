//! Claims, classes and volumes for tests of the health of classes.

use std::collections::BTreeMap;
use std::sync::Arc;

use flex_contract::exit::Reaction;
use flex_contract::names;
use flex_core::claim::progress::Progress;
use flex_core::config::classes::{Classes, Config, Identity, classes};
use flex_core::model::volume::Volume;
use flex_core::run::failure::LastFailure;
use k8s_openapi::api::core::v1::{ConfigMap, PersistentVolume};
use serde_json::{Value, json};

use super::row::Row;
use crate::state::testing::default_identity;

/// Returns the names of an orchestrator.
pub fn identity() -> Identity {
    Identity { namespace: "flex-provisioner".into(), ..default_identity() }
}

/// Returns a config with the name of its class.
pub fn config(name: &str, mut data: Value) -> Config {
    (data["plugin-name"], data["image"]) = (json!(names::DEFAULT_PLUGIN), json!("example/image"));
    let labels = json!({ "type": "provisioner-config", "storage-class": name });
    let object = json!({ "metadata": { "name": name, "namespace": "admin", "labels": labels }, "data": data });
    Config::from(&serde_json::from_value::<ConfigMap>(object).unwrap())
}

/// Returns the row of a claim of class `c` whose attempt failed.
pub fn failed(name: &str, created: i64, reaction: Reaction, at: i64, texts: &str) -> Row {
    let text = json!({ "operation": "provision", "attempt": 1, "at": at, "kind": reaction, "reason": "ExitCode", "message": texts });
    let failure = LastFailure::read(&text.to_string());
    assert!(failure.is_some());
    Row {
        claim: format!("team/{name}"),
        class: "c".into(),
        state: Progress::Failed,
        attempt: 1,
        age: 1,
        created,
        running: None,
        failure,
        next_try: None,
        waits_for: None,
    }
}

/// Returns the table of one class, whose config has this data.
pub fn one_class(data: Value) -> Classes {
    classes(&identity(), &[config("c", data)], &[], &BTreeMap::new(), &Default::default())
}

/// Returns an adopted volume of a class that was made at that time.
pub fn made(class: &str, created: i64) -> Arc<Volume> {
    let provenance = "{}";
    let adoption_mark = Some(flex_core::model::volume::adoption_mark(provenance, ""));
    let object = json!({ "metadata": { "name": "pvc-a" }, "spec": { "storageClassName": class } });
    let volume = Volume::from(&serde_json::from_value::<PersistentVolume>(object).unwrap());
    Arc::new(Volume { created, provenance: Some(provenance.into()), adoption_mark, ..volume })
}
