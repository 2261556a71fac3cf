//! The part of Kubernetes that the image needs. It reads Secrets that a class names, nodes of a driver with topology,
//! PersistentVolumes and their attachments. Each is read only if the class or the driver requires it.

use std::collections::BTreeMap;

use flex_contract::names::{CLAIM_UID, VOLUME_ID};
use flex_image_kit::Failure;
use flex_image_kit::cluster::says;
use k8s_openapi::api::core::v1::{Node, PersistentVolume, Secret, SecretReference};
use k8s_openapi::api::storage::v1::{CSINode, VolumeAttachment};
use kube::api::{Api, ListParams};
use kube::core::PartialObjectMeta;
use kube::{Client, Error};
use tokio::sync::OnceCell;

use crate::topology;

/// Kubernetes, or its replacement in a dry run.
pub struct Cluster {
    dry: bool,
    /// The ServiceAccount of the run's pod as `namespace:name`, for messages.
    account: String,
    client: OnceCell<Client>,
}

/// The owner of a driver's volume.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Owner {
    /// This provisioner, with the volume id.
    Ours(String),
    /// Somebody else.
    Other,
}

impl Cluster {
    /// Makes a client that has not connected yet.
    pub fn new(dry: bool, account: String) -> Self {
        Self { dry, account, client: OnceCell::new() }
    }

    async fn client(&self) -> Result<Client, Failure> {
        self.client.get_or_try_init(flex_image_kit::cluster::connect).await.cloned()
    }

    /// Reads the content of a Secret; `None` if it does not exist.
    ///
    /// # Errors
    /// If it cannot be read, or is no text.
    pub async fn secret(&self, location: &SecretReference) -> Result<Option<BTreeMap<String, String>>, Failure> {
        let (namespace, name) = parts(location);
        let secrets: Api<Secret> = Api::namespaced(self.client().await?, namespace);
        let secret = match secrets.get(name).await {
            Ok(secret) => secret,
            Err(Error::Api(status)) if status.code == 404 => return Ok(None),
            Err(error) => {
                let grant = grant(namespace, name, &self.account);
                return Err(unreadable(&format!("the Secret {namespace}/{name}"), &error, &grant));
            }
        };
        let text = |(key, value): (String, k8s_openapi::ByteString)| match String::from_utf8(value.0) {
            Ok(value) => Ok((key, value)),
            Err(_) => Err(Failure::config(format!("the Secret {namespace}/{name} has a key {key} that is no text"))),
        };
        secret.data.unwrap_or_default().into_iter().map(text).collect::<Result<_, _>>().map(Some)
    }

    /// Returns one node, or all nodes, with the place that the driver stated there.
    ///
    /// # Errors
    /// If they cannot be read.
    pub async fn nodes(&self, only: Option<&str>, driver: &str) -> Result<Vec<topology::Node>, Failure> {
        let client = self.client().await?;
        let nodes: Api<PartialObjectMeta<Node>> = Api::all(client.clone());
        let csi_nodes: Api<CSINode> = Api::all(client);
        const GRANT: &str = "a driver with topology needs get and list on nodes and csinodes: the ClusterRole flex-csi of \
                             configmaps/csi.yaml";
        let refused = |error: Error| unreadable("the nodes", &error, GRANT);
        let (nodes, csi_nodes) = match only {
            Some(name) => {
                let node = nodes.get_opt(name).await.map_err(refused)?;
                (node.into_iter().collect(), csi_nodes.get_opt(name).await.map_err(refused)?.into_iter().collect())
            }
            None => {
                let all = ListParams::default();
                (nodes.list(&all).await.map_err(refused)?.items, csi_nodes.list(&all).await.map_err(refused)?.items)
            }
        };
        Ok(joined(nodes, csi_nodes, driver))
    }

    /// Returns the annotations of a PersistentVolume; none if it does not exist.
    ///
    /// # Errors
    /// If it cannot be read.
    pub async fn annotations(&self, volume: &str) -> Result<BTreeMap<String, String>, Failure> {
        if self.dry {
            return Ok(BTreeMap::new());
        }
        let volumes: Api<PartialObjectMeta<PersistentVolume>> = Api::all(self.client().await?);
        let found = volumes.get_opt(volume).await.map_err(|error| {
            unreadable(&format!("the PersistentVolume {volume}"), &error, "bind the ClusterRole flex-provisioner-image")
        })?;
        Ok(found.and_then(|volume| volume.metadata.annotations).unwrap_or_default())
    }

    /// Returns the handle of a PersistentVolume of a driver; `None` if it does not exist.
    ///
    /// # Errors
    /// If it cannot be read.
    pub async fn handle(&self, volume: &str, driver: &str) -> Result<Option<String>, Failure> {
        if self.dry {
            return Ok(None);
        }
        let volumes: Api<PersistentVolume> = Api::all(self.client().await?);
        let found = volumes.get_opt(volume).await.map_err(|error| {
            unreadable(&format!("the PersistentVolume {volume}"), &error, "bind the ClusterRole flex-provisioner-image")
        })?;
        let source = found.and_then(|volume| volume.spec?.csi).filter(|csi| csi.driver == driver);
        Ok(source.map(|csi| csi.volume_handle))
    }

    /// Returns the nodes to which a volume is attached.
    ///
    /// # Errors
    /// If the attachments cannot be read.
    pub async fn attached_to(&self, volume: &str) -> Result<Vec<String>, Failure> {
        if self.dry {
            return Ok(Vec::new());
        }
        let attachments: Api<VolumeAttachment> = Api::all(self.client().await?);
        let all = attachments.list(&ListParams::default()).await.map_err(|error| {
            let grant = "a driver whose volumes are attached needs list on volumeattachments: the ClusterRole flex-csi of \
                         configmaps/csi.yaml";
            unreadable("the VolumeAttachments", &error, grant)
        })?;
        let of_volume = |it: &VolumeAttachment| it.spec.source.persistent_volume_name.as_deref() == Some(volume);
        Ok(all.items.into_iter().filter(of_volume).map(|it| it.spec.node_name).collect())
    }

    /// Returns the owners of a driver's volumes, by their handles.
    ///
    /// # Errors
    /// If the volumes cannot be read.
    pub async fn owners(&self, driver: &str) -> Result<BTreeMap<String, Owner>, Failure> {
        let volumes: Api<PersistentVolume> = Api::all(self.client().await?);
        let all = volumes.list(&ListParams::default()).await.map_err(|error| {
            let grant = "to tell which volumes of a driver are whose, `list` needs list on persistentvolumes: the ClusterRole \
                         flex-csi of configmaps/csi.yaml";
            unreadable("the PersistentVolumes", &error, grant)
        })?;
        Ok(all.items.iter().filter_map(|volume| owner(volume, driver)).collect())
    }

    /// Creates the volume.
    ///
    /// # Errors
    /// Those of [`flex_image_kit::cluster::create`].
    pub async fn create_volume(&self, volume: &PersistentVolume) -> Result<(), Failure> {
        match self.dry {
            true => flex_image_kit::cluster::print(volume),
            false => {
                flex_image_kit::cluster::create(
                    self.client().await?,
                    volume,
                    flex_image_kit::cluster::API_RETRY_TIMEOUT,
                )
                .await
            }
        }
    }
}

fn owner(volume: &PersistentVolume, driver: &str) -> Option<(String, Owner)> {
    let source = volume.spec.as_ref()?.csi.as_ref().filter(|csi| csi.driver == driver)?;
    let annotations = volume.metadata.annotations.as_ref();
    let id = annotations.and_then(|all| all.get(VOLUME_ID).or_else(|| all.get(CLAIM_UID)));
    Some((source.volume_handle.clone(), id.map_or(Owner::Other, |id| Owner::Ours(id.clone()))))
}

fn joined(nodes: Vec<PartialObjectMeta<Node>>, csi_nodes: Vec<CSINode>, driver: &str) -> Vec<topology::Node> {
    let mut keys: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for csi_node in csi_nodes {
        let its = csi_node.spec.drivers.into_iter().find(|its| its.name == driver);
        let its = its.and_then(|its| its.topology_keys).unwrap_or_default();
        keys.insert(csi_node.metadata.name.unwrap_or_default(), its);
    }
    let mut all: Vec<_> = nodes
        .into_iter()
        .map(|node| {
            let name = node.metadata.name.unwrap_or_default();
            let keys = keys.remove(&name).unwrap_or_default();
            topology::Node { labels: node.metadata.labels.unwrap_or_default(), keys, name }
        })
        .collect();
    all.sort_by(|a, b| a.name.cmp(&b.name));
    all
}

/// Returns the commands that let an account read a Secret.
fn grant(namespace: &str, name: &str, account: &str) -> String {
    format!(
        "to grant it: kubectl -n {namespace} create role csi-{name} --verb=get --resource=secrets --resource-name={name} && \
         kubectl -n {namespace} create rolebinding csi-{name} --role=csi-{name} --serviceaccount={account}"
    )
}

fn parts(location: &SecretReference) -> (&str, &str) {
    (location.namespace.as_deref().unwrap_or_default(), location.name.as_deref().unwrap_or_default())
}

fn unreadable(what: &str, error: &Error, grant: &str) -> Failure {
    match error {
        Error::Api(status) if status.code == 403 => {
            Failure::permission(format!("{what} cannot be read: {}; {grant}", status.message))
        }
        _ => Failure::retry(format!("{what} cannot be read: {}", says(error))),
    }
}
