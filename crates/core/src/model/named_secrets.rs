//! The Secrets that the source and the annotations of a volume name, for each kind of volume source.

use flex_contract::names;
use k8s_openapi::api::core::v1::{ObjectReference, PersistentVolume, PersistentVolumeSpec, SecretReference};

/// A Secret that a volume names.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct NamedSecret {
    /// The namespace; empty for that of the volume's claim.
    pub namespace: String,
    /// The name.
    pub name: String,
}

impl NamedSecret {
    fn of(namespace: Option<&String>, name: Option<&String>) -> Self {
        let text = |text: Option<&String>| text.cloned().unwrap_or_default();
        NamedSecret { namespace: text(namespace), name: text(name) }
    }
}

impl From<&SecretReference> for NamedSecret {
    fn from(reference: &SecretReference) -> Self {
        NamedSecret::of(reference.namespace.as_ref(), reference.name.as_ref())
    }
}

impl From<&ObjectReference> for NamedSecret {
    fn from(reference: &ObjectReference) -> Self {
        NamedSecret::of(reference.namespace.as_ref(), reference.name.as_ref())
    }
}

/// Returns all Secrets that a volume names.
pub fn named_secrets(volume: &PersistentVolume) -> Vec<NamedSecret> {
    let mut secrets = volume.spec.as_ref().map(of_source).unwrap_or_default();
    let annotation = |key: &str| volume.metadata.annotations.as_ref().and_then(|all| all.get(key));
    let (name, namespace) = (annotation(names::DELETION_SECRET_NAME), annotation(names::DELETION_SECRET_NAMESPACE));
    if name.is_some() || namespace.is_some() {
        secrets.push(NamedSecret::of(namespace, name));
    }
    secrets
}

fn of_source(spec: &PersistentVolumeSpec) -> Vec<NamedSecret> {
    let csi = spec.csi.iter().flat_map(|csi| {
        [
            &csi.controller_publish_secret_ref,
            &csi.node_stage_secret_ref,
            &csi.node_publish_secret_ref,
            &csi.controller_expand_secret_ref,
            &csi.node_expand_secret_ref,
        ]
    });
    let references = [
        spec.iscsi.as_ref().map(|iscsi| &iscsi.secret_ref),
        spec.rbd.as_ref().map(|rbd| &rbd.secret_ref),
        spec.cephfs.as_ref().map(|cephfs| &cephfs.secret_ref),
        spec.cinder.as_ref().map(|cinder| &cinder.secret_ref),
        spec.flex_volume.as_ref().map(|flex| &flex.secret_ref),
    ];
    let references = references.into_iter().flatten().chain(csi).flatten();
    let scale_io = spec.scale_io.iter().map(|scale_io| &scale_io.secret_ref);
    let storageos = spec.storageos.iter().filter_map(|storageos| storageos.secret_ref.as_ref());
    let azure = spec.azure_file.iter().filter(|azure| !azure.secret_name.is_empty());
    let azure = azure.map(|azure| NamedSecret::of(azure.secret_namespace.as_ref(), Some(&azure.secret_name)));
    let all = references.chain(scale_io).map(NamedSecret::from).chain(storageos.map(NamedSecret::from));
    all.chain(azure).collect()
}
