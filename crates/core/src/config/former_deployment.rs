//! The Deployments of provisioners that are no CSI drivers, such as local-path. Most of them hold no Lease.
//!
//! Anybody may give a Deployment any name in a namespace of their own, and may own the namespace of a provisioner that was
//! removed. So of the Deployments that an admin names, and of those with the usual names, only the ones count whose account
//! may create PersistentVolumes.

use std::collections::{BTreeMap, BTreeSet};

use super::keys;
use crate::object::{ObjectName, is_dns_name};

/// The Deployments of well-known provisioners, as their own manifests install them.
const USUAL: &[(&str, &str, &str)] = &[
    ("rancher.io/local-path", "local-path-storage", "local-path-provisioner"),
    ("rancher.io/local-path", "kube-system", "local-path-provisioner"),
    ("openebs.io/local", "openebs", "openebs-localpv-provisioner"),
];

/// A Deployment, with the fields that matter here.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Deployment {
    /// The name of the Deployment.
    pub name: ObjectName,
    /// The ServiceAccount of its pods.
    pub account: ObjectName,
    /// The number of replicas that it asks for.
    pub wanted: i32,
    /// The number of replicas that exist.
    pub present: i32,
}

impl From<&k8s_openapi::api::apps::v1::Deployment> for Deployment {
    fn from(deployment: &k8s_openapi::api::apps::v1::Deployment) -> Self {
        let spec = deployment.spec.as_ref();
        let status = deployment.status.as_ref();
        let name = ObjectName::of(&deployment.metadata);
        let account = spec.and_then(|spec| spec.template.spec.as_ref()?.service_account_name.as_deref());
        Deployment {
            account: ObjectName::new(&name.namespace, account.unwrap_or("default")),
            name,
            wanted: spec.and_then(|spec| spec.replicas).unwrap_or(1),
            present: status.and_then(|status| status.replicas.max(status.ready_replicas)).unwrap_or(0),
        }
    }
}

/// Checks whether a provisioner is no CSI driver, by its name: that of a driver has no slash.
pub fn is_no_driver(provisioner: &str) -> bool {
    provisioner.contains('/')
}

/// Returns the Deployments of a provisioner: those that a config names, else the usual ones.
pub fn deployments(provisioner: &str, data: &BTreeMap<String, String>) -> BTreeSet<ObjectName> {
    let named = data.get(keys::REPLACES_DEPLOYMENT.name).and_then(|text| read(text).ok());
    named.filter(|names| !names.is_empty()).unwrap_or_else(|| {
        let usual = USUAL.iter().filter(|(name, ..)| *name == provisioner);
        usual.map(|(_, namespace, name)| ObjectName::new(*namespace, *name)).collect()
    })
}

/// Reads a list of Deployments.
///
/// # Errors
/// If an entry is not `NAMESPACE/NAME`.
pub fn read(text: &str) -> Result<BTreeSet<ObjectName>, String> {
    let entries = text.split([',', ' ', '\n']).map(str::trim).filter(|entry| !entry.is_empty());
    let name = |entry: &str| match entry.split_once('/') {
        Some((namespace, name)) if is_dns_name(namespace) && is_dns_name(name) => Ok(ObjectName::new(namespace, name)),
        _ => Err(format!("`{entry}` is not the name of a Deployment; write NAMESPACE/NAME")),
    };
    entries.map(name).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn data(named: &str) -> BTreeMap<String, String> {
        [(keys::REPLACES_DEPLOYMENT.name.to_owned(), named.to_owned())].into()
    }

    #[test]
    fn a_config_names_the_deployments_or_they_have_their_usual_names() {
        let names = |of: BTreeSet<ObjectName>| of.iter().map(ToString::to_string).collect::<Vec<_>>();
        let usual = deployments("rancher.io/local-path", &BTreeMap::new());
        assert_eq!(names(usual), ["kube-system/local-path-provisioner", "local-path-storage/local-path-provisioner"]);
        assert_eq!(names(deployments("rancher.io/local-path", &data("a/b, c/d"))), ["a/b", "c/d"]);
        assert_eq!(names(deployments("ebs.csi.aws.com", &BTreeMap::new())), [""; 0]);
        for wrong in ["a", "a/b/c", "A/b", "a/"] {
            assert!(read(wrong).is_err(), "{wrong}");
        }
    }
}
