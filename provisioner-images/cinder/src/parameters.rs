//! The parameters of the config, checked. All problems are reported at once.

use std::collections::BTreeMap;

use flex_image_kit::Failure;
use serde_json::Value;

/// The default namespace of the volumes' Secrets. Nothing else is there, because the permission to patch Secrets reads
/// them, and the permission to create them can make the token of any account.
pub const SECRETS: &str = "flex-cinder-secrets";

/// The way in which Ceph volumes are attached.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum RbdForm {
    /// By the Ceph CSI driver.
    #[default]
    Csi,
    /// By the kubelet itself, up to Kubernetes 1.30.
    InTree,
}

/// The checked parameters.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Parameters {
    /// The volume type; Cinder's default without it.
    pub volume_type: Option<String>,
    /// The availability zone; Cinder's choice without it.
    pub zone: Option<String>,
    /// Whether the zone is that of the selected node.
    pub zone_from_topology: bool,
    /// The hints for Cinder's scheduler, as JSON.
    pub hints: Option<Value>,
    /// Metadata of volumes beside those that this image writes.
    pub metadata: BTreeMap<String, String>,
    /// The name with which nodes log in to iSCSI targets.
    pub initiator: String,
    /// The name of the nodes for the storage system.
    pub connector_host: String,
    /// The address of the nodes for the storage system.
    pub connector_ip: String,
    /// The ports of the nodes' Fibre Channel adapters.
    pub wwpns: Vec<String>,
    /// The nodes' Fibre Channel adapters.
    pub wwnns: Vec<String>,
    /// Whether to request all portals.
    pub multipath: bool,
    /// The namespace of the volumes' Secrets.
    pub secret_namespace: String,
    /// The way in which Ceph volumes are attached.
    pub rbd_form: RbdForm,
    /// The name of the Ceph CSI driver.
    pub ceph_driver: String,
    /// The Ceph CSI driver's id of the cluster.
    pub ceph_cluster: Option<String>,
    /// The features that the Ceph CSI driver expects images to have.
    pub ceph_features: String,
    /// The name of a Secret with Ceph's key, for a Cinder that does not return the key.
    pub ceph_secret: Option<String>,
    /// Whether the storage system copies volumes.
    pub smartclone: bool,
    /// The namespaces whose claims may be copied into others by `k8s.io/CloneRequest`; `*` for all.
    pub clone_namespaces: Vec<String>,
}

impl Parameters {
    /// Reads and checks the parameters.
    ///
    /// # Errors
    /// All problems at once.
    pub fn from_env(env: impl Fn(&str) -> Option<String>) -> Result<Self, Failure> {
        let mut problems = Vec::new();
        let text = |name: &str| env(name).map(|value| value.trim().to_owned()).filter(|value| !value.is_empty());
        let list = |name: &str| -> Vec<String> {
            let value = text(name).unwrap_or_default();
            value.split([',', ' ', '\n']).filter(|item| !item.is_empty()).map(str::to_owned).collect()
        };
        let mut flag = |parameter: &str, variable: &str, default: bool| match text(variable).as_deref() {
            None => default,
            Some("true" | "yes") => true,
            Some("false" | "no") => false,
            Some(other) => {
                problems.push(format!("{parameter} is `{other}`: it must be \"true\" or \"false\""));
                default
            }
        };
        let zone_from_topology = flag("zone-from-topology", "ZONE_FROM_TOPOLOGY", false);
        let multipath = flag("multipath", "MULTIPATH", true);
        // The old provisioner accepted any value.
        let smartclone = text("SMARTCLONE").is_some_and(|value| !["false", "no"].contains(&value.as_str()));
        let hints = text("HINTS").and_then(|text| match serde_json::from_str(&text) {
            Ok(hints @ Value::Object(_)) => Some(hints),
            _ => {
                problems
                    .push(format!("hints is `{text}`: it must be a JSON object, such as {{\"same_host\": [\"ID\"]}}"));
                None
            }
        });
        let metadata = match text("METADATA").as_deref().map(serde_json::from_str::<BTreeMap<String, String>>) {
            None => BTreeMap::new(),
            Some(Ok(pairs)) => pairs,
            Some(Err(_)) => {
                problems.push("metadata must be a JSON object of texts, such as {\"team\": \"storage\"}".to_owned());
                BTreeMap::new()
            }
        };
        let rbd_form = match text("RBD_FORM").as_deref() {
            None | Some("csi") => RbdForm::Csi,
            Some("in-tree") => RbdForm::InTree,
            Some(other) => {
                problems.push(format!("rbd-form is `{other}`: it must be csi or in-tree"));
                RbdForm::Csi
            }
        };
        let instance = text("INSTANCE").unwrap_or_else(|| flex_contract::names::DEFAULT_INSTANCE.to_owned());
        let initiator = text("INITIATOR_NAME").unwrap_or_else(|| format!("iqn.2026-11.io.flex-provisioner:{instance}"));
        if !["iqn.", "eui.", "naa."].iter().any(|begin| initiator.starts_with(begin)) {
            problems.push(format!("initiator-name is `{initiator}`: it must begin with iqn., eui. or naa."));
        }
        let zone = text("AVAILABILITY_ZONE").or_else(|| text("AVAILABILITY"));
        if zone.is_some() && zone_from_topology {
            problems.push("availability-zone and zone-from-topology exclude each other: drop one of them".to_owned());
        }
        if !problems.is_empty() {
            return Err(Failure::config(problems.join("\n")));
        }
        Ok(Self {
            volume_type: text("TYPE"),
            zone,
            zone_from_topology,
            hints,
            metadata,
            initiator,
            connector_host: text("CONNECTOR_HOST").unwrap_or_else(|| format!("flex-provisioner-{instance}")),
            connector_ip: text("CONNECTOR_IP").unwrap_or_else(|| "127.0.0.1".into()),
            wwpns: list("WWPNS"),
            wwnns: list("WWNNS"),
            multipath,
            secret_namespace: text("SECRET_NAMESPACE").unwrap_or_else(|| SECRETS.into()),
            rbd_form,
            ceph_driver: text("CEPH_DRIVER").unwrap_or_else(|| "rbd.csi.ceph.com".into()),
            ceph_cluster: text("CEPH_CLUSTER"),
            ceph_features: text("CEPH_FEATURES").unwrap_or_else(|| "layering".into()),
            ceph_secret: text("CEPH_SECRET"),
            smartclone,
            clone_namespaces: list("CLONE_NAMESPACES"),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parameters(pairs: &[(&str, &str)]) -> Result<Parameters, Failure> {
        Parameters::from_env(|name| pairs.iter().find(|(key, _)| *key == name).map(|(_, value)| (*value).to_owned()))
    }

    #[test]
    fn no_parameter_is_required() {
        let found = parameters(&[("TYPE", ""), ("INSTANCE", "b"), ("POD_NAMESPACE", "flex")]).unwrap();
        assert_eq!(found.volume_type, None);
        assert_eq!(found.initiator, "iqn.2026-11.io.flex-provisioner:b");
        assert_eq!(found.connector_host, "flex-provisioner-b");
        assert!(found.multipath && !found.smartclone && !found.zone_from_topology);
        assert_eq!(found.secret_namespace, "flex-cinder-secrets", "not the namespace of the configs' accounts");
    }

    #[test]
    fn names_of_the_old_provisioner_work() {
        let found = parameters(&[("TYPE", "gold"), ("AVAILABILITY", "nova"), ("SMARTCLONE", "sure")]).unwrap();
        assert_eq!(
            (found.volume_type.as_deref(), found.zone.as_deref(), found.smartclone),
            (Some("gold"), Some("nova"), true)
        );
        assert!(!parameters(&[("SMARTCLONE", "false")]).unwrap().smartclone);
    }

    #[test]
    fn all_problems_are_reported_at_once() {
        let failure = parameters(&[
            ("HINTS", "x"),
            ("METADATA", "{\"a\": 1}"),
            ("RBD_FORM", "krbd"),
            ("INITIATOR_NAME", "me"),
            ("MULTIPATH", "maybe"),
            ("AVAILABILITY_ZONE", "a"),
            ("ZONE_FROM_TOPOLOGY", "true"),
        ])
        .unwrap_err();
        assert_eq!(failure.code, 78);
        for says in ["hints", "metadata", "rbd-form", "initiator-name", "multipath", "exclude"] {
            assert!(failure.message.contains(says), "{says} in {failure}");
        }
    }
}
