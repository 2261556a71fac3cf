//! The fields that an image writes on its volume beyond its task, and on which other programs would act.

use flex_contract::{names, volume as contract_volume};
use k8s_openapi::api::core::v1::PersistentVolume;

use super::manifest::LAST_APPLIED;
use crate::limits;
use crate::text::cut;

/// The fields of a volume on which Kubernetes and drivers of others act. The cache keeps them until the volume is
/// adopted.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ForeignMetadata {
    /// The driver that mounts the volume, for `csi` and `flexVolume`.
    pub driver: Option<String>,
    /// The namespaces of the Secrets that the volume names; empty for that of its claim.
    pub secret_namespaces: Vec<String>,
    /// The mount options, including the options in the old annotation.
    pub mount_options: Vec<String>,
    /// The owners, as `Kind name`. When an owner is gone, Kubernetes deletes the volume.
    pub owners: Vec<String>,
    /// The labels and annotations of Kubernetes that change how the volume is treated.
    pub metadata: Vec<String>,
}

/// The old annotation with mount options.
const MOUNT_OPTIONS: &str = "volume.beta.kubernetes.io/mount-options";

/// Annotations and labels that need no check. Every image writes them, adoption overwrites them, other code checks
/// them, or nobody reads them.
const ALLOWED_METADATA: &[&str] = &[
    names::PROVISIONED_BY,
    names::BOUND_BY_CONTROLLER,
    MOUNT_OPTIONS,
    names::DELETION_SECRET_NAME,
    names::DELETION_SECRET_NAMESPACE,
    LAST_APPLIED,
];

/// The finalizers that Kubernetes itself adds to volumes, and the orchestrator's.
pub const FINALIZERS: &[&str] =
    &[names::VOLUME_FINALIZER, "kubernetes.io/pv-protection", "kubernetes.io/pv-controller"];

/// The number of items of a list that are kept. More of them say nothing more about the fit of a volume.
const MAX_ITEMS: usize = 32;

/// Checks whether a key belongs to Kubernetes.
fn is_of_kubernetes(key: &str) -> bool {
    let domain = key.split_once('/').map_or("", |(domain, _)| domain);
    ["kubernetes.io", "k8s.io"]
        .iter()
        .any(|own| domain.strip_suffix(own).is_some_and(|before| before.is_empty() || before.ends_with('.')))
}

fn bounded(texts: impl IntoIterator<Item = String>) -> Vec<String> {
    let mut all: Vec<_> = texts.into_iter().map(|text| cut(&text, limits::NAME).into_owned()).take(MAX_ITEMS).collect();
    all.sort();
    all.dedup();
    all
}

impl ForeignMetadata {
    /// Reads the fields of a volume.
    pub fn on(volume: &PersistentVolume) -> Self {
        let (metadata, spec) = (&volume.metadata, volume.spec.as_ref());
        let kind = spec.and_then(contract_volume::volume_source_kind);
        let source = kind.map(|kind| serde_json::json!(spec)[kind].take()).unwrap_or_default();
        let annotation = |key: &str| metadata.annotations.as_ref().and_then(|all| all.get(key).cloned());
        let driver = source["driver"].as_str().filter(|_| matches!(kind, Some("csi" | "flexVolume")));
        // All kinds name a Secret in the same way, by fields such as `secretRef` and `nodePublishSecretRef`.
        let referred = source.as_object().into_iter().flatten().filter_map(|(field, value)| {
            let (is_reference, of) = (field.to_ascii_lowercase().ends_with("secretref"), &value["namespace"]);
            (is_reference && value.is_object()).then(|| of.as_str().unwrap_or_default().to_owned())
        });
        let named = source["secretNamespace"].as_str().map(str::to_owned);
        let deletion = annotation(names::DELETION_SECRET_NAMESPACE);
        let options = spec.and_then(|spec| spec.mount_options.clone()).unwrap_or_default();
        let of_old = annotation(MOUNT_OPTIONS).unwrap_or_default();
        let of_old = of_old.split(',').map(str::trim).filter(|option| !option.is_empty()).map(str::to_owned);
        let owners = metadata.owner_references.iter().flatten();
        let keys = metadata.labels.iter().chain(&metadata.annotations).flatten().map(|(key, _)| key);
        ForeignMetadata {
            driver: driver.map(|driver| cut(driver, limits::NAME).into_owned()),
            secret_namespaces: bounded(referred.chain(named).chain(deletion)),
            mount_options: bounded(options.into_iter().chain(of_old)),
            owners: bounded(owners.map(|owner| format!("{} {}", owner.kind, owner.name))),
            metadata: bounded(
                keys.filter(|key| is_of_kubernetes(key) && !ALLOWED_METADATA.contains(&key.as_str())).cloned(),
            ),
        }
    }
}

/// Returns the namespaces of Secrets that a class's parameters name.
pub fn said_namespaces<'a>(
    parameters: impl Iterator<Item = (&'a String, &'a String)> + 'a,
    volume: &'a str,
    claim: &'a str,
) -> impl Iterator<Item = String> + 'a {
    let plain = |key: &str| key.chars().filter(char::is_ascii_alphanumeric).collect::<String>().to_ascii_lowercase();
    parameters
        .filter(move |(key, _)| plain(key).ends_with("secretnamespace"))
        .map(move |(_, value)| value.trim().replace("${pv.name}", volume).replace("${pvc.namespace}", claim))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn of_json(volume: serde_json::Value) -> ForeignMetadata {
        ForeignMetadata::on(&serde_json::from_value(volume).unwrap())
    }

    #[test]
    fn every_kind_of_reference_to_a_secret_is_found() {
        let reference = json!({ "name": "s", "namespace": "kube-system" });
        for (source, fields) in [
            (
                "csi",
                &[
                    "controllerPublishSecretRef",
                    "nodeStageSecretRef",
                    "nodePublishSecretRef",
                    "controllerExpandSecretRef",
                    "nodeExpandSecretRef",
                ][..],
            ),
            ("flexVolume", &["secretRef"]),
            ("rbd", &["secretRef"]),
            ("cephfs", &["secretRef"]),
            ("iscsi", &["secretRef"]),
            ("scaleIO", &["secretRef"]),
            ("storageos", &["secretRef"]),
            ("cinder", &["secretRef"]),
        ] {
            for field in fields {
                let mut body = json!({ "driver": "d", "volumeHandle": "h", "image": "i", "monitors": [], "iqn": "i",
                    "lun": 1, "targetPortal": "t", "gateway": "g", "system": "s", "volumeID": "v" });
                body[field] = reference.clone();
                let written = of_json(json!({ "spec": { source: body } }));
                assert_eq!(written.secret_namespaces, ["kube-system"], "{source} {field}");
            }
        }
        let azure = json!({ "secretName": "s", "secretNamespace": "kube-system", "shareName": "s" });
        assert_eq!(of_json(json!({ "spec": { "azureFile": azure } })).secret_namespaces, ["kube-system"]);
        let iscsi = json!({ "iqn": "i", "lun": 1, "targetPortal": "t", "secretRef": { "name": "s" } });
        assert_eq!(
            of_json(json!({ "spec": { "iscsi": iscsi } })).secret_namespaces,
            [""],
            "the namespace of its claim"
        );
        let key = "volume.kubernetes.io/provisioner-deletion-secret-namespace";
        let noted = json!({ "metadata": { "annotations": { key: "kube-system" } }, "spec": {} });
        assert_eq!(of_json(noted).secret_namespaces, ["kube-system"]);
    }

    #[test]
    fn metadata_that_others_act_on_is_found() {
        let written = of_json(json!({
            "metadata": {
                "labels": { "topology.kubernetes.io/zone": "z", "team": "a" },
                "annotations": { "pv.beta.kubernetes.io/gid": "0", "volume.beta.kubernetes.io/mount-options": "dev, suid",
                    "pv.kubernetes.io/provisioned-by": "p", "example.com/kubernetes.io": "x" },
                "ownerReferences": [{ "apiVersion": "v1", "kind": "ConfigMap", "name": "o", "uid": "u" }],
            },
            "spec": { "mountOptions": ["exec"], "flexVolume": { "driver": "example/d" } },
        }));
        assert_eq!(written.mount_options, ["dev", "exec", "suid"]);
        assert_eq!(written.owners, ["ConfigMap o"]);
        assert_eq!(written.metadata, ["pv.beta.kubernetes.io/gid", "topology.kubernetes.io/zone"]);
        assert_eq!(written.driver.as_deref(), Some("example/d"));
        let nfs = json!({ "spec": { "nfs": { "server": "s", "path": "/p" } } });
        assert_eq!(of_json(nfs), ForeignMetadata::default());
    }

    #[test]
    fn foreign_metadata_is_bounded() {
        let many: Vec<_> = (0..10_000).map(|n| format!("{n}{}", "x".repeat(1000))).collect();
        let written = of_json(json!({ "spec": { "mountOptions": many } }));
        assert!(
            written.mount_options.len() == MAX_ITEMS && written.mount_options.iter().all(|o| o.len() <= limits::NAME)
        );
    }
}
