//! The common part of all operations: the two APIs, the request, and patience.

use std::cell::RefCell;
use std::time::Duration;

use flex_contract::request::RunRequest;
use flex_image_kit::Failure;
use serde_json::{Value, json};

use crate::api::{Cinder, Snapshot, Volume};
use crate::cluster::Cluster;
use crate::names;
use crate::parameters::Parameters;
use crate::step::{Removal, removal};
use crate::trouble::{Kind, Trouble};

/// The time for which a temporary problem is retried. The orchestrator waits for the end of longer outages, because a
/// waiting pod uses resources of its node.
pub const RETRY_TIMEOUT: Duration = Duration::from_secs(20);

/// One run of the image.
pub struct Run {
    /// The client of Cinder.
    pub cinder: Cinder,
    /// The client of Kubernetes.
    pub cluster: Cluster,
    /// The parameters of the config.
    pub parameters: Parameters,
    /// The request of the run.
    pub request: RunRequest,
    /// The present work, for messages when a wait is ended.
    pub doing: RefCell<String>,
}

/// The reason why a run cannot continue.
pub type Stop = flex_image_kit::patience::Stop<Trouble>;

/// The outcome of an operation.
pub type Outcome<T> = Result<T, Stop>;

/// The delay between two requests for a state: short at first, because most storage systems are fast.
pub struct PollDelay(Duration);

impl PollDelay {
    /// Begins with the shortest delay.
    pub fn new() -> Self {
        Self(Duration::from_millis(80))
    }

    /// Waits, longer each time.
    pub async fn wait(&mut self) {
        tokio::time::sleep(self.0).await;
        self.0 = (self.0 * 5 / 4).min(Duration::from_secs(2));
    }
}

impl Run {
    /// Returns all volumes with an id.
    pub async fn volumes_of(&self, id: &str) -> Result<Vec<Volume>, Trouble> {
        self.cinder.volumes_with(names::METADATA_VOLUME_ID, id).await
    }

    /// Returns the one volume with an id, for operations on an existing volume.
    ///
    /// # Errors
    /// If there is none, or more than one.
    pub async fn the_volume(&self, id: &str) -> Outcome<Volume> {
        let mut volumes = self.volumes_of(id).await?;
        match (volumes.pop(), volumes.is_empty()) {
            (Some(volume), true) => Ok(volume),
            (None, _) => Err(Failure::never(format!(
                "Cinder has no volume of the id {id} (metadata {}) in the project of {}",
                names::METADATA_VOLUME_ID,
                self.cinder.origin()
            ))
            .into()),
            (Some(_), false) => Err(Failure::never(format!("Cinder has several volumes of the id {id}")).into()),
        }
    }

    /// Finds a snapshot of this image by its snapshot id, or one that somebody made by Cinder's id.
    pub async fn find_snapshot(&self, id: &str) -> Result<Option<Snapshot>, Trouble> {
        if !names::is_id(id) {
            return Ok(None);
        }
        let named = self.cinder.snapshots_named(&names::snapshot(id)).await?;
        match named.into_iter().next() {
            Some(snapshot) => Ok(Some(snapshot)),
            None => self.cinder.snapshot(id).await,
        }
    }

    /// Records the present work.
    pub fn waiting_for(&self, volume: &str, status: &str) {
        self.doing.replace(format!("Cinder's volume {volume} is still `{status}`"));
    }

    /// Describes the nodes to the storage system. All nodes have the same description, because any of them may use the
    /// volume.
    pub fn connector(&self) -> Value {
        let Parameters { initiator, connector_host, connector_ip, wwpns, wwnns, multipath, .. } = &self.parameters;
        let mut connector = json!({
            "host": connector_host, "ip": connector_ip, "initiator": initiator, "multipath": multipath,
            "platform": "x86_64", "os_type": "linux",
        });
        if !wwpns.is_empty() {
            connector["wwpns"] = json!(wwpns);
            connector["wwnns"] = json!(wwnns);
        }
        connector
    }

    /// Deletes a volume and waits until it is gone.
    ///
    /// # Errors
    /// If it remains. The message says why.
    pub async fn remove(&self, id: &str, volumes: impl AsyncFn() -> Result<Vec<Volume>, Trouble>) -> Outcome<()> {
        let mut delay = PollDelay::new();
        let mut tried = false;
        loop {
            let Some(volume) = volumes().await?.into_iter().find(|volume| volume.id == id) else { return Ok(()) };
            self.waiting_for(&volume.id, &volume.status);
            match removal(&volume, tried) {
                Removal::Stop(failure) => return Err(failure.into()),
                Removal::Wait => delay.wait().await,
                Removal::Close => {
                    self.close(&volume).await?;
                    tried = true;
                    self.cinder.delete(id).await.map_err(kept)?;
                }
                Removal::Delete => {
                    tried = true;
                    self.cinder.delete(id).await.map_err(kept)?;
                }
                Removal::Force => {
                    tried = true;
                    self.cinder.force_delete(id).await?;
                }
            }
        }
    }

    async fn close(&self, volume: &Volume) -> Result<(), Trouble> {
        match self.cinder.disconnect(&volume.id, &self.connector()).await {
            // A volume that never had a connection may have none to end.
            Err(trouble) if trouble.kind == Kind::Refused && volume.status == "available" => {}
            other => other?,
        }
        self.cinder.unreserve(&volume.id).await
    }
}

/// Handles a refusal. Cinder does not delete a volume that has snapshots or dependent copies. This ends when those are
/// deleted.
fn kept(trouble: Trouble) -> Stop {
    match trouble.kind {
        Kind::Refused => Failure::retry(format!("{}; it is tried again", trouble.message)).into(),
        _ => trouble.into(),
    }
}
