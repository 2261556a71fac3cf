//! The local-path provisioner, as far as its objects show it: its Deployment and its volumes.

use flex_contract::names;
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim};
use k8s_openapi::api::rbac::v1::ClusterRoleBinding;
use kube::Api;
use kube::api::{Patch, PatchParams, PostParams};
use serde_json::json;

use crate::ring::{Ring, uid};

/// The name of the provisioner.
pub const LOCAL_PATH: &str = "rancher.io/local-path";
/// The finalizer that its library can put on its volumes.
pub const FINALIZER: &str = "external-provisioner.volume.kubernetes.io/finalizer";

/// Returns the name of the directory that the provisioner makes for a claim.
pub fn directory_of(claim: &PersistentVolumeClaim) -> String {
    let (namespace, name) = (claim.metadata.namespace.as_deref().unwrap(), claim.metadata.name.as_deref().unwrap());
    format!("{}_{namespace}_{name}", names::pv_name(&uid(claim)))
}

impl Ring {
    /// Creates the Deployment of the provisioner with a number of replicas, of an image that does nothing.
    pub async fn former_deployment(&self, namespace: &str, name: &str, replicas: u32) {
        let labels = json!({ "app": name });
        let container = json!({ "name": name, "image": "example/former" });
        let body = json!({
            "apiVersion": "apps/v1", "kind": "Deployment", "metadata": { "name": name },
            "spec": {
                "replicas": replicas, "selector": { "matchLabels": labels },
                "template": {
                    "metadata": { "labels": labels },
                    "spec": { "serviceAccountName": name, "containers": [container] },
                },
            },
        });
        let api = self.api::<Deployment>(namespace);
        api.patch(name, &PatchParams::apply("admin").force(), &Patch::Apply(body)).await.unwrap();
    }

    /// Lets the account of a Deployment create volumes, as a provisioner's may.
    pub async fn former_rights(&self, namespace: &str, name: &str) {
        let body = json!({
            "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding", "metadata": { "name": name },
            "roleRef": {
                "apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole",
                "name": "system:persistent-volume-provisioner",
            },
            "subjects": [{ "kind": "ServiceAccount", "namespace": namespace, "name": name }],
        });
        let api: Api<ClusterRoleBinding> = Api::all(self.client.clone());
        api.patch(name, &PatchParams::apply("admin").force(), &Patch::Apply(body)).await.unwrap();
    }

    /// Creates a volume for a claim as the provisioner makes it, and waits until both are bound.
    pub async fn former_volume(&self, claim: &str, folder: &str, node: &str) -> PersistentVolume {
        let claim = self.get_claim(claim).await;
        let path = format!("{folder}/{}", directory_of(&claim));
        let volume = json!({
            "metadata": {
                "name": names::pv_name(&uid(&claim)),
                "annotations": { names::PROVISIONED_BY: LOCAL_PATH },
                "finalizers": [FINALIZER],
            },
            "spec": {
                "storageClassName": claim.spec.as_ref().unwrap().storage_class_name,
                "capacity": { "storage": "1Gi" },
                "accessModes": ["ReadWriteOnce"],
                "persistentVolumeReclaimPolicy": "Delete",
                "hostPath": { "path": path, "type": "DirectoryOrCreate" },
                "nodeAffinity": { "required": { "nodeSelectorTerms": [{
                    "matchExpressions": [{ "key": names::HOSTNAME, "operator": "In", "values": [node] }],
                }] } },
                "claimRef": {
                    "apiVersion": "v1", "kind": "PersistentVolumeClaim",
                    "namespace": claim.metadata.namespace, "name": claim.metadata.name, "uid": uid(&claim),
                },
            },
        });
        let volume = serde_json::from_value(volume).unwrap();
        let made = self.volumes().create(&PostParams::default(), &volume).await.unwrap();
        self.bound(claim.metadata.name.as_deref().unwrap()).await;
        made
    }
}
