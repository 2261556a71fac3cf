//! The PersistentVolume that an image creates as the last act of a provision run.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{
    NodeSelector, NodeSelectorRequirement, NodeSelectorTerm, ObjectReference, PersistentVolume, PersistentVolumeSpec,
    VolumeNodeAffinity,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use crate::names;
use crate::policy::ReclaimPolicy;
use crate::quantity::quantity;
use crate::request::RunRequest;

/// The facts about a volume that only the image knows.
#[derive(Clone, Debug, Default)]
pub struct Made {
    /// A spec from which only the volume source (`nfs`, `local`, `csi`, …) and the node affinity are used.
    pub source: PersistentVolumeSpec,
    /// The real size in bytes, where it is larger than the requested size.
    pub size_bytes: Option<u64>,
    /// The labels of the nodes that reach the volume. If empty, the source's node affinity applies.
    pub reachable_from: BTreeMap<String, String>,
    /// Further annotations of the volume.
    pub annotations: BTreeMap<String, String>,
}

/// Returns the kind of a spec's volume source, by its name in the API. Returns `None` for no source and for several.
pub fn volume_source_kind(spec: &PersistentVolumeSpec) -> Option<&'static str> {
    let mut kinds = volume_source_kinds(spec);
    match (kinds.next(), kinds.next()) {
        (Some(kind), None) => Some(kind),
        _ => None,
    }
}

/// Returns the source of a volume as JSON, as runs get it in `VOLUME_SOURCE`; empty if there is none.
pub fn volume_source(volume: &PersistentVolume) -> String {
    let Some(spec) = &volume.spec else { return String::new() };
    let source = volume_source_kind(spec).map(|kind| (kind, serde_json::json!(spec)[kind].take()));
    source.map(|(kind, source)| serde_json::json!({ kind: source }).to_string()).unwrap_or_default()
}

/// All kinds of volume sources, by their names in the API.
pub const VOLUME_SOURCE_KINDS: &[&str] = &[
    "hostPath",
    "local",
    "nfs",
    "csi",
    "iscsi",
    "fc",
    "rbd",
    "cephfs",
    "cinder",
    "flexVolume",
    "glusterfs",
    "awsElasticBlockStore",
    "azureDisk",
    "azureFile",
    "flocker",
    "gcePersistentDisk",
    "photonPersistentDisk",
    "portworxVolume",
    "quobyte",
    "scaleIO",
    "storageos",
    "vsphereVolume",
];

/// Returns the CSI driver to which Kubernetes hands the volumes of an in-tree kind.
pub fn migrated_to(kind: &str) -> Option<&'static str> {
    match kind {
        "awsElasticBlockStore" => Some("ebs.csi.aws.com"),
        "azureDisk" => Some("disk.csi.azure.com"),
        "azureFile" => Some("file.csi.azure.com"),
        "cinder" => Some("cinder.csi.openstack.org"),
        "gcePersistentDisk" => Some("pd.csi.storage.gke.io"),
        "portworxVolume" => Some("pxd.portworx.com"),
        "vsphereVolume" => Some("csi.vsphere.vmware.com"),
        _ => None,
    }
}

fn volume_source_kinds(spec: &PersistentVolumeSpec) -> impl Iterator<Item = &'static str> {
    let present = [
        spec.host_path.is_some(),
        spec.local.is_some(),
        spec.nfs.is_some(),
        spec.csi.is_some(),
        spec.iscsi.is_some(),
        spec.fc.is_some(),
        spec.rbd.is_some(),
        spec.cephfs.is_some(),
        spec.cinder.is_some(),
        spec.flex_volume.is_some(),
        spec.glusterfs.is_some(),
        spec.aws_elastic_block_store.is_some(),
        spec.azure_disk.is_some(),
        spec.azure_file.is_some(),
        spec.flocker.is_some(),
        spec.gce_persistent_disk.is_some(),
        spec.photon_persistent_disk.is_some(),
        spec.portworx_volume.is_some(),
        spec.quobyte.is_some(),
        spec.scale_io.is_some(),
        spec.storageos.is_some(),
        spec.vsphere_volume.is_some(),
    ];
    VOLUME_SOURCE_KINDS.iter().zip(present).filter(|(_, present)| *present).map(|(kind, _)| *kind)
}

/// Returns a node affinity that only nodes with these labels satisfy. Returns `None` without labels.
pub fn affinity(labels: &BTreeMap<String, String>) -> Option<VolumeNodeAffinity> {
    if labels.is_empty() {
        return None;
    }
    let expressions = labels
        .iter()
        .map(|(key, value)| NodeSelectorRequirement {
            key: key.clone(),
            operator: "In".into(),
            values: Some(vec![value.clone()]),
        })
        .collect();
    let term = NodeSelectorTerm { match_expressions: Some(expressions), match_fields: None };
    Some(VolumeNodeAffinity { required: Some(NodeSelector { node_selector_terms: vec![term] }) })
}

/// Returns the placeholder for claimRef. It names a claim that does not exist, in the namespace of the run's pod,
/// without a UID. Only admins can create claims in that namespace. No other pending claim can take the volume, and the
/// PV controller does not bind it. So the orchestrator can check the volume first, and then writes the claim in place
/// of the placeholder.
pub fn placeholder(request: &RunRequest) -> ObjectReference {
    ObjectReference {
        api_version: Some("v1".into()),
        kind: Some("PersistentVolumeClaim".into()),
        namespace: Some(request.pod_namespace.clone()),
        name: Some(request.volume_id.clone()),
        ..ObjectReference::default()
    }
}

/// Builds the whole PersistentVolume. The placeholder reserves it from its creation. With the reclaim policy `Delete`,
/// a finalizer keeps the volume until its storage is deleted.
pub fn persistent_volume(request: &RunRequest, made: Made) -> PersistentVolume {
    let Made { source, size_bytes, reachable_from, annotations } = made;
    let own = [
        (names::CLAIM_UID, request.claim.uid.as_str()),
        (names::VOLUME_ID, request.volume_id.as_str()),
        (names::PROVISIONED_BY, request.provisioner.as_str()),
    ];
    let annotations =
        annotations.into_iter().chain(own.map(|(key, value)| (key.to_owned(), value.to_owned()))).collect();
    let finalizers =
        (request.reclaim_policy == ReclaimPolicy::Delete).then(|| vec![names::VOLUME_FINALIZER.to_owned()]);
    PersistentVolume {
        metadata: ObjectMeta {
            name: Some(request.pv_name.clone()),
            annotations: Some(annotations),
            labels: Some([(names::LABEL_INSTANCE.to_owned(), request.instance.clone())].into()),
            finalizers,
            ..ObjectMeta::default()
        },
        spec: Some(PersistentVolumeSpec {
            capacity: Some([("storage".to_owned(), quantity(size_bytes.unwrap_or(request.size_bytes)))].into()),
            access_modes: Some(request.access_modes.clone()),
            volume_mode: Some(request.volume_mode.to_string()),
            mount_options: (!request.mount_options.is_empty()).then(|| request.mount_options.clone()),
            persistent_volume_reclaim_policy: Some(request.reclaim_policy.to_string()),
            storage_class_name: Some(request.storage_class.clone()),
            claim_ref: Some(placeholder(request)),
            node_affinity: affinity(&reachable_from).or_else(|| source.node_affinity.clone()),
            ..source
        }),
        status: None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use k8s_openapi::api::core::v1::{LocalVolumeSource, NFSVolumeSource};

    #[test]
    fn a_volume_has_all_fields_of_the_contract() {
        let request = crate::request::tests::request();
        let source = PersistentVolumeSpec {
            local: Some(LocalVolumeSource { path: "/data/x".into(), fs_type: None }),
            ..PersistentVolumeSpec::default()
        };
        let reachable_from = [(names::HOSTNAME.to_owned(), "node-1".to_owned())].into();
        let pv = persistent_volume(&request, Made { source, reachable_from, ..Made::default() });
        let spec = pv.spec.as_ref().unwrap();
        assert_eq!(pv.metadata.name.as_deref(), Some(request.pv_name.as_str()));
        assert_eq!(pv.metadata.annotations.as_ref().unwrap()[names::CLAIM_UID], request.claim.uid);
        let reference = spec.claim_ref.as_ref().unwrap();
        assert_eq!((reference.name.as_deref(), &reference.uid), (Some(request.volume_id.as_str()), &None));
        assert_eq!(spec.capacity.as_ref().unwrap()["storage"].0, "3Gi");
        assert_eq!(volume_source_kind(spec), Some("local"));
        assert!(spec.node_affinity.is_some());
        assert_eq!(pv.metadata.finalizers, Some(vec![names::VOLUME_FINALIZER.to_owned()]));
    }

    #[test]
    fn a_volume_has_exactly_one_source() {
        assert_eq!(volume_source_kind(&PersistentVolumeSpec::default()), None);
        let two = PersistentVolumeSpec {
            local: Some(LocalVolumeSource::default()),
            nfs: Some(NFSVolumeSource::default()),
            ..PersistentVolumeSpec::default()
        };
        assert_eq!(volume_source_kind(&two), None);
    }
}
