//! The parameters of the config, checked. All problems are reported at once.

use std::collections::BTreeMap;

use flex_image_kit::Failure;
use serde_json::Value;

/// The names of all parameters. Those of the cloud are beside them.
pub const NAMES: [&str; 20] = [
    "type",
    "availability-zone",
    "availability",
    "zone-from-topology",
    "hints",
    "metadata",
    "initiator-name",
    "connector-host",
    "connector-ip",
    "wwpns",
    "wwnns",
    "multipath",
    "secret-namespace",
    "rbd-form",
    "ceph-cluster",
    "ceph-driver",
    "ceph-features",
    "ceph-secret",
    "smartclone",
    "clone-namespaces",
];
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
        let mut reader = Reader { env, problems: Vec::new() };
        let r = &mut reader;
        let zone_from_topology = r.flag("zone-from-topology", "ZONE_FROM_TOPOLOGY", false);
        let instance = r.text_or("INSTANCE", flex_contract::names::DEFAULT_INSTANCE);
        let parameters = Self {
            volume_type: r.text("TYPE"),
            zone_from_topology,
            multipath: r.flag("multipath", "MULTIPATH", true),
            // The old provisioner accepted any value.
            smartclone: r.text("SMARTCLONE").is_some_and(|value| !["false", "no"].contains(&value.as_str())),
            hints: r.hints(),
            metadata: r.metadata(),
            rbd_form: r.rbd_form(),
            initiator: r.initiator(&instance),
            zone: r.zone(zone_from_topology),
            connector_host: r.text_or("CONNECTOR_HOST", &format!("flex-provisioner-{instance}")),
            connector_ip: r.text_or("CONNECTOR_IP", "127.0.0.1"),
            wwpns: r.list("WWPNS"),
            wwnns: r.list("WWNNS"),
            secret_namespace: r.text_or("SECRET_NAMESPACE", SECRETS),
            ceph_driver: r.text_or("CEPH_DRIVER", "rbd.csi.ceph.com"),
            ceph_cluster: r.text("CEPH_CLUSTER"),
            ceph_features: r.text_or("CEPH_FEATURES", "layering"),
            ceph_secret: r.text("CEPH_SECRET"),
            clone_namespaces: r.list("CLONE_NAMESPACES"),
        };
        match reader.problems.as_slice() {
            [] => Ok(parameters),
            problems => Err(Failure::config(problems.join("\n"))),
        }
    }
}

/// A reader of variables. It records a problem and continues.
struct Reader<F> {
    env: F,
    problems: Vec<String>,
}

impl<F: Fn(&str) -> Option<String>> Reader<F> {
    fn text(&self, name: &str) -> Option<String> {
        (self.env)(name).map(|value| value.trim().to_owned()).filter(|value| !value.is_empty())
    }

    fn text_or(&self, name: &str, default: &str) -> String {
        self.text(name).unwrap_or_else(|| default.to_owned())
    }

    fn list(&self, name: &str) -> Vec<String> {
        let value = self.text(name).unwrap_or_default();
        value.split([',', ' ', '\n']).filter(|item| !item.is_empty()).map(str::to_owned).collect()
    }

    fn flag(&mut self, parameter: &str, variable: &str, default: bool) -> bool {
        match self.text(variable).as_deref() {
            None => default,
            Some("true" | "yes") => true,
            Some("false" | "no") => false,
            Some(other) => {
                self.problems.push(format!("{parameter} is `{other}`: it must be \"true\" or \"false\""));
                default
            }
        }
    }

    fn hints(&mut self) -> Option<Value> {
        let text = self.text("HINTS")?;
        match serde_json::from_str(&text) {
            Ok(hints @ Value::Object(_)) => Some(hints),
            _ => {
                self.problems
                    .push(format!("hints is `{text}`: it must be a JSON object, such as {{\"same_host\": [\"ID\"]}}"));
                None
            }
        }
    }

    fn metadata(&mut self) -> BTreeMap<String, String> {
        let Some(text) = self.text("METADATA") else { return BTreeMap::new() };
        serde_json::from_str(&text).unwrap_or_else(|_| {
            self.problems.push("metadata must be a JSON object of texts, such as {\"team\": \"storage\"}".to_owned());
            BTreeMap::new()
        })
    }

    fn rbd_form(&mut self) -> RbdForm {
        match self.text("RBD_FORM").as_deref() {
            None | Some("csi") => RbdForm::Csi,
            Some("in-tree") => RbdForm::InTree,
            Some(other) => {
                self.problems.push(format!("rbd-form is `{other}`: it must be csi or in-tree"));
                RbdForm::Csi
            }
        }
    }

    fn initiator(&mut self, instance: &str) -> String {
        let initiator = self.text_or("INITIATOR_NAME", &format!("iqn.2026-11.io.flex-provisioner:{instance}"));
        if !["iqn.", "eui.", "naa."].iter().any(|begin| initiator.starts_with(begin)) {
            self.problems.push(format!("initiator-name is `{initiator}`: it must begin with iqn., eui. or naa."));
        }
        initiator
    }

    fn zone(&mut self, from_topology: bool) -> Option<String> {
        let zone = self.text("AVAILABILITY_ZONE").or_else(|| self.text("AVAILABILITY"));
        if zone.is_some() && from_topology {
            let why = "availability-zone and zone-from-topology exclude each other: drop one of them";
            self.problems.push(why.to_owned());
        }
        zone
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use flex_contract::parameter::env_name;
    use flex_image_kit::parameters::variables_read;

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
    fn the_names_are_those_of_the_variables_that_are_read() {
        let mut read = variables_read(|env| drop(Parameters::from_env(env)));
        assert!(read.remove("INSTANCE"), "a variable of the contract");
        assert_eq!(NAMES.iter().map(|name| env_name(name)).collect::<BTreeSet<_>>(), read);
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
