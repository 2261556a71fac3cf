//! A real Cinder, and what its volumes look like in Kubernetes.

use std::sync::OnceLock;

use openstack::{Cinder, Options};
use serde_json::{Value, json};

/// Returns the Cinder that all tests of a program share.
pub fn cinder() -> &'static Cinder {
    static CINDER: OnceLock<Cinder> = OnceLock::new();
    CINDER.get_or_init(|| Cinder::start(Options::default()))
}

/// Returns the source that the PersistentVolume of a Cinder volume must have, for a volume without a file system.
pub fn iscsi_source(volume: &Value, id: &str, namespace: &str) -> Value {
    json!({
        "targetPortal": "10.0.0.1:3260", "portals": ["10.0.0.2:3260"], "lun": 0,
        "iqn": format!("iqn.2010-10.org.openstack:volume-{}", volume["id"].as_str().unwrap()),
        "initiatorName": "iqn.2026-11.io.flex-provisioner:default", "iscsiInterface": "default", "chapAuthSession": true,
        "secretRef": { "name": format!("flex-cinder-{id}"), "namespace": namespace },
    })
}
