//! What all operations share: the two APIs, the request, and patience.

use std::cell::RefCell;
use std::time::Duration;

use contract::request::Request;
use kit::Failure;
use serde_json::{Value, json};

use crate::api::{Cinder, Volume};
use crate::cluster::Cluster;
use crate::names;
use crate::parameters::Parameters;
use crate::step::{Removal, removal};
use crate::trouble::{Kind, Trouble};

/// How long trouble that may pass is waited for, between tries. Longer outages are the orchestrator's to wait for: a pod
/// that waits holds a place on its node.
pub const PATIENCE: Duration = Duration::from_secs(20);

/// GiB, the unit of Cinder, in bytes.
pub const GIB: u64 = 1 << 30;

/// One run of the image.
pub struct Run {
    /// Cinder.
    pub cinder: Cinder,
    /// Kubernetes.
    pub cluster: Cluster,
    /// The parameters of the config.
    pub parameters: Parameters,
    /// What is to be done.
    pub request: Request,
    /// What is waited for, for those who end the wait.
    pub doing: RefCell<String>,
}

/// Why a run does not get on.
pub type Stop = kit::patience::Stop<Trouble>;

/// How an operation goes on.
pub type Outcome<T> = Result<T, Stop>;

/// The pace of looking again: quick at first, since most storage systems are.
pub struct Pace(Duration);

impl Pace {
    /// From its beginning.
    pub fn new() -> Self {
        Self(Duration::from_millis(80))
    }

    /// Waits, the longer the more often it has.
    pub async fn wait(&mut self) {
        tokio::time::sleep(self.0).await;
        self.0 = (self.0 * 5 / 4).min(Duration::from_secs(2));
    }
}

impl Run {
    /// All volumes of an id.
    pub async fn volumes_of(&self, id: &str) -> Result<Vec<Volume>, Trouble> {
        self.cinder.volumes_with(names::CLAIM_UUID, id).await
    }

    /// The one volume of an id, for operations on a volume that is there.
    ///
    /// # Errors
    /// There is none, or more than one.
    pub async fn the_volume(&self, id: &str) -> Outcome<Volume> {
        let mut volumes = self.volumes_of(id).await?;
        match (volumes.pop(), volumes.is_empty()) {
            (Some(volume), true) => Ok(volume),
            (None, _) => Err(Failure::never(format!(
                "Cinder has no volume of the id {id} (metadata {}) in the project of {}",
                names::CLAIM_UUID,
                self.cinder.origin()
            ))
            .into()),
            (Some(_), false) => Err(Failure::never(format!("Cinder has several volumes of the id {id}")).into()),
        }
    }

    /// Says what is waited for.
    pub fn waiting_for(&self, volume: &str, status: &str) {
        self.doing.replace(format!("Cinder's volume {volume} is still `{status}`"));
    }

    /// Who the nodes are to the storage system: all of them the same, since any of them may come to use the volume.
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

    /// Takes a volume away and waits until it is gone.
    ///
    /// # Errors
    /// It stays, and why.
    pub async fn remove(&self, id: &str, volumes: impl AsyncFn() -> Result<Vec<Volume>, Trouble>) -> Outcome<()> {
        let mut pace = Pace::new();
        let mut tried = false;
        loop {
            let Some(volume) = volumes().await?.into_iter().find(|volume| volume.id == id) else { return Ok(()) };
            self.waiting_for(&volume.id, &volume.status);
            match removal(&volume, tried) {
                Removal::Stop(failure) => return Err(failure.into()),
                Removal::Wait => pace.wait().await,
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

/// Cinder refuses to delete what has snapshots, or copies that depend on it. That passes when those go.
fn kept(trouble: Trouble) -> Stop {
    match trouble.kind {
        Kind::Refused => Failure::retry(format!("{}; it is tried again", trouble.message)).into(),
        _ => trouble.into(),
    }
}
