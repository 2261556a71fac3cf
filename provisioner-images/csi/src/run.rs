//! The common part of all operations: the driver, Kubernetes, the request, and patience.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::rc::Rc;
use std::time::Duration;

use csi_spec::csi::DeleteVolumeRequest;
use flex_contract::names;
use flex_contract::request::RunRequest;
use flex_image_kit::Failure;
use k8s_openapi::api::core::v1::{CSIPersistentVolumeSource, PersistentVolumeSpec, SecretReference};
use tonic::Code;

use crate::cluster::Cluster;
use crate::driver::Driver;
use crate::parameters::Parameters;
use crate::secrets::{self, Kind, Variables};
use crate::trouble::{self, Trouble};

/// The time for which a call that may be in progress is repeated. The orchestrator waits for longer work, because a
/// waiting pod uses resources of its node.
pub const RETRY_TIMEOUT: Duration = Duration::from_secs(60);

/// On PersistentVolumes: the Secret for deleting the volume.
pub const DELETION_SECRET: [&str; 2] = [names::DELETION_SECRET_NAME, names::DELETION_SECRET_NAMESPACE];
/// On PersistentVolumes: the Secret for modifying the volume.
pub const MODIFY_SECRET: [&str; 2] =
    ["volume.kubernetes.io/controller-modify-secret-name", "volume.kubernetes.io/controller-modify-secret-namespace"];

/// The secrets of a call.
pub type Credentials = BTreeMap<String, String>;

/// One run of the image, or its part for one member of a batch.
pub struct Run {
    /// The connection to the driver.
    pub driver: Driver,
    /// The client of Kubernetes, which the runs of a batch share.
    pub cluster: Rc<Cluster>,
    /// The parameters of class and config.
    pub parameters: Parameters,
    /// The request of the run.
    pub request: RunRequest,
    /// The driver has not said how a call ended that makes a volume or a snapshot, which may exist.
    pub may_be_under_way: Cell<bool>,
}

/// The reason why a run cannot continue.
pub type Stop = flex_image_kit::patience::Stop<Trouble>;

/// The outcome of an operation.
pub type Outcome<T> = Result<T, Stop>;

/// Returns the ServiceAccount of the run's pod as `namespace:name`.
pub fn account(request: &RunRequest) -> String {
    let name = if request.service_account.is_empty() { "default" } else { &request.service_account };
    format!("{}:{name}", request.pod_namespace)
}

impl Run {
    /// Notes that a call which makes something may go on in the driver.
    pub fn note_under_way(&self, trouble: &Trouble) {
        if trouble.kind() == trouble::Kind::UnderWay {
            self.may_be_under_way.set(true);
        }
    }

    /// Returns the source of the run's volume; `None` if it has no PersistentVolume.
    ///
    /// # Errors
    /// If the volume is not of this driver.
    pub fn source(&self) -> Result<Option<CSIPersistentVolumeSource>, Failure> {
        self.csi(&self.request.volume_source)
    }

    /// Returns the CSI part of a source in JSON.
    ///
    /// # Errors
    /// If the source is not of this driver.
    pub fn csi(&self, json: &str) -> Result<Option<CSIPersistentVolumeSource>, Failure> {
        if json.is_empty() {
            return Ok(None);
        }
        let spec: PersistentVolumeSpec = serde_json::from_str(json)
            .map_err(|error| Failure::never(format!("the source of the volume cannot be read: {error}")))?;
        match spec.csi {
            Some(csi) if csi.driver == self.driver.name => Ok(Some(csi)),
            Some(csi) => Err(Failure::config(format!(
                "the volume is of the CSI driver {}, and the one at {} is {}",
                csi.driver, self.parameters.endpoint, self.driver.name
            ))),
            None => Err(Failure::never("the volume is none of a CSI driver")),
        }
    }

    /// Returns the source of the run's volume, which must exist.
    ///
    /// # Errors
    /// If there is none, or if it is not of this driver.
    pub fn the_source(&self) -> Result<CSIPersistentVolumeSource, Failure> {
        self.source()?.ok_or_else(|| Failure::usage("VOLUME_SOURCE is empty: it says which volume it is"))
    }

    /// Returns the Secret of a kind that the class names, if any.
    ///
    /// # Errors
    /// Those of [`secrets::reference`].
    pub fn reference(&self, kind: Kind) -> Result<Option<SecretReference>, Failure> {
        let variables = Variables {
            pv_name: self.request.pv_name.clone(),
            pvc_name: self.request.claim.name.clone(),
            pvc_namespace: self.request.claim.namespace.clone(),
            annotations: self.request.claim_metadata.clone(),
        };
        secrets::reference(kind, &self.parameters.all, &variables)
    }

    /// Reads a Secret that must exist.
    ///
    /// # Errors
    /// If it does not exist, or cannot be read.
    pub async fn credentials(&self, location: Option<&SecretReference>) -> Result<Credentials, Failure> {
        let Some(location) = location else { return Ok(Credentials::new()) };
        self.cluster.secret(location).await?.ok_or_else(|| {
            let text = |part: &Option<String>| part.clone().unwrap_or_default();
            Failure::retry(format!(
                "there is no Secret {}/{}, which the class names for the driver; create it",
                text(&location.namespace),
                text(&location.name)
            ))
        })
    }

    /// Returns the secrets of later calls about a volume, as [`Run::known_credentials`]. A Secret that is gone counts as
    /// empty.
    ///
    /// # Errors
    /// If it exists, and cannot be read.
    pub async fn later_credentials(&self, kind: Kind, keys: [&str; 2]) -> Result<Credentials, Failure> {
        Ok(self.known_credentials(kind, keys).await?.unwrap_or_default())
    }

    /// Returns the secrets of later calls about a volume: by the annotations of its PersistentVolume, else by the
    /// class. Returns `None` if the Secret is gone, or if nobody knows any more which it was.
    ///
    /// # Errors
    /// If it exists, and cannot be read.
    pub async fn known_credentials(&self, kind: Kind, keys: [&str; 2]) -> Result<Option<Credentials>, Failure> {
        // Most classes name no Secret, and then nothing is read.
        if !self.parameters.all.keys().any(|name| secrets::names_one(name)) {
            return Ok(Some(Credentials::new()));
        }
        let annotations = self.cluster.annotations(&self.request.pv_name).await?;
        let [name, namespace] = keys.map(|key| annotations.get(key).cloned().filter(|text| !text.is_empty()));
        let location = match (name, namespace) {
            (Some(name), Some(namespace)) => Some(SecretReference { name: Some(name), namespace: Some(namespace) }),
            // The claim's annotations are not known any more, so that some templates cannot be resolved.
            _ => match self.reference(kind) {
                Ok(location) => location,
                Err(_) => return Ok(None),
            },
        };
        let Some(location) = location else { return Ok(Some(Credentials::new())) };
        let found = self.cluster.secret(&location).await?;
        if found.is_none() {
            eprintln!("the Secret for this call is gone; it is made without");
        }
        Ok(found)
    }

    /// Deletes a volume. A missing one is a success.
    ///
    /// # Errors
    /// If the volume remains. The message says why.
    pub async fn remove(&self, id: &str, secrets: Credentials) -> Result<(), Trouble> {
        let message = DeleteVolumeRequest { volume_id: id.to_owned(), secrets };
        let asked = self.driver.call("DeleteVolume", id, async {
            self.driver.controller().delete_volume(self.driver.request(message)).await
        });
        match asked.await {
            Err(trouble) if trouble.status.code() == Code::NotFound => Ok(()),
            other => other.map(drop),
        }
    }
}
