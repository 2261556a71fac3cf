//! The part of Kubernetes that the image needs: PersistentVolumes, Secrets of volumes, and the claims of copies. A dry
//! run writes nothing, and prints what it would write.

use flex_contract::names::{FIELD_MANAGER, LABEL_INSTANCE, LABEL_VOLUME_ID};
use flex_contract::request::RunRequest;
use flex_image_kit::Failure;
use flex_image_kit::cluster::says;
use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim, Secret, SecretReference};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};
use kube::api::{Api, DeleteParams, Patch, PatchParams};
use kube::{Client, Error};
use serde_json::json;
use tokio::sync::OnceCell;

use crate::mapper::Credentials;

/// Kubernetes, or its replacement in a dry run.
pub struct Cluster {
    dry: bool,
    client: OnceCell<Client>,
}

impl Cluster {
    /// Makes a client that has not connected yet.
    pub fn new(dry: bool) -> Self {
        Self { dry, client: OnceCell::new() }
    }

    async fn client(&self) -> Result<Client, Failure> {
        self.client.get_or_try_init(flex_image_kit::cluster::connect).await.cloned()
    }

    /// Checks that kubelets of this cluster still mount Ceph volumes by themselves.
    ///
    /// # Errors
    /// If they do not. The message says what the cluster can use instead. Also if the API does not tell its version.
    pub async fn check_in_tree_rbd(&self) -> Result<(), Failure> {
        if self.dry {
            println!("# rbd-form in-tree is for Kubernetes up to 1.30: this cannot be checked here");
            return Ok(());
        }
        let version = self.client().await?.apiserver_version().await.map_err(|error| {
            Failure::retry(format!("the Kubernetes API does not say which version it has: {}", says(&error)))
        })?;
        in_tree_rbd(&version.major, &version.minor).map(|says| eprintln!("{says}"))
    }

    /// Writes the Secret of a volume, also over one of an earlier run. This needs no permission to read Secrets.
    ///
    /// # Errors
    /// If the permission is missing, or the API does not answer.
    pub async fn write_secret(
        &self,
        location: &SecretReference,
        credentials: &Credentials,
        request: &RunRequest,
    ) -> Result<(), Failure> {
        let labels = [(LABEL_VOLUME_ID, &request.volume_id), (LABEL_INSTANCE, &request.instance)];
        let secret = Secret {
            metadata: ObjectMeta {
                name: location.name.clone(),
                namespace: location.namespace.clone(),
                labels: Some(labels.map(|(key, value)| (key.to_owned(), value.clone())).into()),
                ..ObjectMeta::default()
            },
            type_: Some(credentials.kind.to_owned()),
            string_data: Some(credentials.data.clone()),
            ..Secret::default()
        };
        if self.dry {
            let shown = flex_manifest::to_yaml(&secret).map_err(Failure::never)?;
            println!("{shown}---");
            return Ok(());
        }
        let (namespace, name) = parts(location);
        let secrets: Api<Secret> = Api::namespaced(self.client().await?, namespace);
        let (apply, body) = (PatchParams::apply(FIELD_MANAGER).force(), Patch::Apply(&secret));
        let applied = match secrets.patch(name, &apply, &body).await {
            // An earlier run wrote the Secret for another form of the volume, and the type of a Secret cannot be
            // changed.
            Err(Error::Api(status)) if status.code == 422 => {
                self.delete_secret(location, true).await?;
                secrets.patch(name, &apply, &body).await
            }
            applied => applied,
        };
        applied.map(drop).map_err(|error| refused("written", location, &error))
    }

    /// Deletes the Secret of a volume; a missing one is a success.
    ///
    /// # Errors
    /// If the permission is missing, or the API does not answer.
    pub async fn delete_secret(&self, location: &SecretReference, is_there: bool) -> Result<(), Failure> {
        if self.dry {
            println!("# Secret {}/{} is deleted", parts(location).0, parts(location).1);
            return Ok(());
        }
        let (namespace, name) = parts(location);
        let secrets: Api<Secret> = Api::namespaced(self.client().await?, namespace);
        match secrets.delete(name, &DeleteParams::default()).await {
            Ok(_) => Ok(()),
            Err(Error::Api(status)) if status.code == 404 => Ok(()),
            // An image without the permission to delete the Secret could not create it either.
            Err(Error::Api(status)) if status.code == 403 && !is_there => Ok(()),
            Err(error) => Err(refused("deleted", location, &error)),
        }
    }

    /// Creates the volume, and then makes it the owner of its Secret. So the Secret is deleted too if somebody deletes
    /// a volume that was retained.
    ///
    /// # Errors
    /// Those of [`flex_image_kit::cluster::create`].
    pub async fn create_volume(
        &self,
        volume: &PersistentVolume,
        secret: Option<&SecretReference>,
    ) -> Result<(), Failure> {
        if self.dry {
            return flex_image_kit::cluster::print(volume);
        }
        let client = self.client().await?;
        flex_image_kit::cluster::create(client.clone(), volume, flex_image_kit::cluster::API_RETRY_TIMEOUT).await?;
        let Some(location) = secret else { return Ok(()) };
        // The volume exists, and nothing that it needs may follow. So the run succeeds whatever happens here.
        if let Err(error) = own(client, volume, location).await {
            eprintln!(
                "the Secret of the volume could not be made its own, and stays if the volume is deleted by hand: {}",
                says(&error)
            );
        }
        Ok(())
    }

    /// Reads a claim.
    ///
    /// # Errors
    /// If it does not exist, or cannot be read.
    pub async fn claim(&self, namespace: &str, name: &str) -> Result<PersistentVolumeClaim, Failure> {
        let claims: Api<PersistentVolumeClaim> = Api::namespaced(self.client().await?, namespace);
        claims.get(name).await.map_err(|error| unreadable(&format!("the claim {namespace}/{name}"), &error))
    }

    /// Reads a volume.
    ///
    /// # Errors
    /// If it does not exist, or cannot be read.
    pub async fn volume(&self, name: &str) -> Result<PersistentVolume, Failure> {
        let volumes: Api<PersistentVolume> = Api::all(self.client().await?);
        volumes.get(name).await.map_err(|error| unreadable(&format!("the PersistentVolume {name}"), &error))
    }

    /// Writes an annotation on a claim.
    ///
    /// # Errors
    /// If the permission is missing, or the API does not answer.
    pub async fn annotate_claim(&self, namespace: &str, name: &str, key: &str, value: &str) -> Result<(), Failure> {
        if self.dry {
            println!("# PersistentVolumeClaim {namespace}/{name} gets {key}: {value}");
            return Ok(());
        }
        let claims: Api<PersistentVolumeClaim> = Api::namespaced(self.client().await?, namespace);
        let annotation = Patch::Merge(json!({ "metadata": { "annotations": { key: value } } }));
        match claims.patch(name, &PatchParams::default(), &annotation).await {
            Ok(_) => Ok(()),
            Err(error) => Err(unreadable(&format!("the annotation {key} of the claim {namespace}/{name}"), &error)),
        }
    }
}

/// Returns what a cluster can use, by the version of its API server. Kubelets are never newer. The function is pure.
fn in_tree_rbd(major: &str, minor: &str) -> Result<String, Failure> {
    let number = |text: &str| text.trim_end_matches('+').parse::<u32>().unwrap_or(u32::MAX);
    match (number(major), number(minor)) < (1, 31) {
        true => Ok(format!(
            "this cluster is Kubernetes {major}.{minor}, and can use both rbd-form in-tree and csi; change to csi before it \
             becomes 1.31"
        )),
        false => Err(Failure::config(format!(
            "rbd-form is in-tree, and this cluster is Kubernetes {major}.{minor}: since 1.31 kubelets do not mount such volumes. \
             What it can use is rbd-form: csi, with `ceph-cluster` and the Ceph CSI driver"
        ))),
    }
}

async fn own(client: Client, volume: &PersistentVolume, location: &SecretReference) -> Result<(), Error> {
    let name = volume.metadata.name.clone().unwrap_or_default();
    let made = Api::<PersistentVolume>::all(client.clone()).get(&name).await?;
    let owner = OwnerReference {
        api_version: "v1".into(),
        kind: "PersistentVolume".into(),
        name,
        uid: made.metadata.uid.unwrap_or_default(),
        ..OwnerReference::default()
    };
    let secrets: Api<Secret> = Api::namespaced(client, parts(location).0);
    let body = Patch::Merge(json!({ "metadata": { "ownerReferences": [owner] } }));
    secrets.patch(parts(location).1, &PatchParams::default(), &body).await.map(drop)
}

fn parts(location: &SecretReference) -> (&str, &str) {
    (location.namespace.as_deref().unwrap_or_default(), location.name.as_deref().unwrap_or_default())
}

fn refused(what: &str, location: &SecretReference, error: &Error) -> Failure {
    let (namespace, name) = parts(location);
    let why = says(error);
    let text = format!("the Secret {namespace}/{name} with the volume's credentials cannot be {what}: {why}");
    match error {
        Error::Api(status) if status.code == 403 => Failure::permission(format!(
            "{text}. The ServiceAccount of the config needs create, patch and delete on secrets in the namespace {namespace}, \
             where nothing else should be: see the Role in configmaps/cinder.yaml, and configmaps/cinder-secrets.yaml"
        )),
        _ => Failure::retry(text),
    }
}

fn unreadable(what: &str, error: &Error) -> Failure {
    match error {
        Error::Api(status) if status.code == 403 => Failure::permission(format!(
            "{what}: {}. To follow k8s.io/CloneRequest the ServiceAccount of the config needs the ClusterRole of \
             configmaps/cinder-clones.yaml",
            says(error)
        )),
        Error::Api(status) if status.code == 404 => Failure::retry(format!("{what} is not there")),
        _ => Failure::retry(format!("{what}: {}", says(error))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_version_of_kubernetes_decides_how_ceph_is_mounted() {
        for (major, minor, expected) in [
            ("1", "30", Ok("both")),
            ("1", "30+", Ok("both")),
            ("1", "9", Ok("both")),
            ("1", "31", Err(78)),
            ("1", "36+", Err(78)),
            ("2", "0", Err(78)),
            ("1", "", Err(78)),
        ] {
            match (in_tree_rbd(major, minor), expected) {
                (Ok(says), Ok(word)) => assert!(says.contains(word), "{says}"),
                (Err(failure), Err(code)) => {
                    assert_eq!(failure.code, code);
                    assert!(failure.message.contains("rbd-form: csi"), "{failure}");
                }
                (found, _) => panic!("{major}.{minor}: {found:?}"),
            }
        }
    }
}
