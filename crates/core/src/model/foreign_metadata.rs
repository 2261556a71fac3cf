//! The fields that an image writes on its volume beyond its task, and on which other programs would act.

use flex_contract::{names, volume as contract_volume};
use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeSpec};

use super::manifest::LAST_APPLIED;
use super::named_secrets::{NamedSecret, named_secrets};
use crate::limits;
use crate::text::cut;

/// The fields of a volume on which Kubernetes and drivers of others act. The cache keeps them until the volume is
/// adopted.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ForeignMetadata {
    /// The driver that mounts the volume, for `csi`, for `flexVolume`, and for the kinds that Kubernetes hands to a CSI
    /// driver.
    pub driver: Option<String>,
    /// The Secrets that the volume names.
    pub secrets: Vec<NamedSecret>,
    /// The target WWNs of an `fc` volume.
    pub wwns: Vec<String>,
    /// The `fc` volume names no targets, or disks by WWIDs. A WWID may be that of a disk of the node itself.
    pub names_disks: bool,
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

/// The finalizer that Kubernetes adds to each volume.
pub const PV_PROTECTION: &str = "kubernetes.io/pv-protection";

/// The finalizers that Kubernetes itself adds to volumes of every kind, and the orchestrator's.
pub const FINALIZERS: &[&str] = &[names::VOLUME_FINALIZER, PV_PROTECTION];

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
        let annotation = |key: &str| metadata.annotations.as_ref().and_then(|all| all.get(key).cloned());
        let fc = spec.and_then(|spec| spec.fc.as_ref());
        let wwns = fc.iter().flat_map(|fc| fc.target_wwns.iter().flatten().cloned());
        let options = spec.and_then(|spec| spec.mount_options.clone()).unwrap_or_default();
        let of_old = annotation(MOUNT_OPTIONS).unwrap_or_default();
        let of_old = of_old.split(',').map(str::trim).filter(|option| !option.is_empty()).map(str::to_owned);
        let owners = metadata.owner_references.iter().flatten();
        let keys = metadata.labels.iter().chain(&metadata.annotations).flatten().map(|(key, _)| key);
        ForeignMetadata {
            driver: spec.and_then(driver).map(|driver| cut(driver, limits::NAME).into_owned()),
            secrets: named_secrets(volume).into_iter().map(cut_secret).collect(),
            wwns: bounded(wwns),
            names_disks: fc.is_some_and(|fc| {
                let targets = fc.target_wwns.as_ref().map_or(0, Vec::len);
                fc.wwids.as_ref().is_some_and(|wwids| !wwids.is_empty()) || !(1..=MAX_ITEMS).contains(&targets)
            }),
            mount_options: bounded(options.into_iter().chain(of_old)),
            owners: bounded(owners.map(|owner| format!("{} {}", owner.kind, owner.name))),
            metadata: bounded(
                keys.filter(|key| is_of_kubernetes(key) && !ALLOWED_METADATA.contains(&key.as_str())).cloned(),
            ),
        }
    }
}

/// Returns the driver that mounts a volume.
fn driver(spec: &PersistentVolumeSpec) -> Option<&str> {
    let flex_volume = spec.flex_volume.as_ref().map(|flex| flex.driver.as_str());
    let kind = contract_volume::volume_source_kind(spec)?;
    spec.csi.as_ref().map(|csi| csi.driver.as_str()).or(flex_volume).or_else(|| contract_volume::migrated_to(kind))
}

fn cut_secret(NamedSecret { namespace, name }: NamedSecret) -> NamedSecret {
    let cut = |text: String| cut(&text, limits::NAME).into_owned();
    NamedSecret { namespace: cut(namespace), name: cut(name) }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn of_json(volume: serde_json::Value) -> ForeignMetadata {
        ForeignMetadata::on(&serde_json::from_value(volume).unwrap())
    }

    /// Each kind of volume source of the API, with all references to Secrets that it can have.
    #[test]
    fn every_reference_to_a_secret_of_every_kind_is_found() {
        let secret = json!({ "name": "s", "namespace": "kube-system" });
        let csi = [
            "controllerPublishSecretRef",
            "nodeStageSecretRef",
            "nodePublishSecretRef",
            "controllerExpandSecretRef",
            "nodeExpandSecretRef",
        ];
        for kind in contract_volume::VOLUME_SOURCE_KINDS {
            let fields: &[&str] = match *kind {
                "csi" => &csi,
                "flexVolume" | "rbd" | "cephfs" | "iscsi" | "scaleIO" | "storageos" | "cinder" => &["secretRef"],
                "azureFile" => &["secretName"],
                _ => &[],
            };
            // The API has no other field for a Secret.
            let mut body = json!({ "driver": "d", "volumeHandle": "h", "image": "i", "monitors": [], "iqn": "i", "lun": 1,
                "targetPortal": "t", "gateway": "g", "system": "s", "volumeID": "v", "path": "/p", "server": "s",
                "endpoints": "e", "diskName": "n", "diskURI": "u", "pdName": "p", "pdID": "p", "shareName": "s",
                "registry": "r", "volume": "v", "volumePath": "v", "secretNamespace": "kube-system",
                "secretName": "s", "secretRef": secret });
            csi.iter().for_each(|field| body[field] = secret.clone());
            let mut volume: PersistentVolume = serde_json::from_value(json!({ "spec": { *kind: body } })).unwrap();
            let spec = serde_json::to_value(&volume).unwrap()["spec"][*kind].to_string();
            let read: usize = fields.iter().map(|field| spec.matches(&format!("\"{field}\"")).count()).sum();
            assert_eq!(read, fields.len(), "{kind}: {spec}");
            assert_eq!(
                spec.to_lowercase().matches("secret").count(),
                read + usize::from(*kind == "azureFile"),
                "{spec}"
            );
            let found = ForeignMetadata::on(&volume).secrets;
            let expected = NamedSecret { namespace: "kube-system".into(), name: "s".into() };
            assert_eq!(found, vec![expected; fields.len()], "{kind}");
            volume.spec = None;
            assert!(ForeignMetadata::on(&volume).secrets.is_empty());
        }
        let iscsi = json!({ "iqn": "i", "lun": 1, "targetPortal": "t", "secretRef": { "name": "s" } });
        let found = of_json(json!({ "spec": { "iscsi": iscsi } })).secrets;
        assert_eq!(found, [NamedSecret { namespace: String::new(), name: "s".into() }], "the namespace of its claim");
        let key = "volume.kubernetes.io/provisioner-deletion-secret-namespace";
        let noted = json!({ "metadata": { "annotations": { key: "kube-system" } }, "spec": {} });
        assert_eq!(of_json(noted).secrets, [NamedSecret { namespace: "kube-system".into(), name: String::new() }]);
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
