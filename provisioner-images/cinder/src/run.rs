//! The common part of all operations: the two APIs, the request, and patience.

use std::cell::{Cell, RefCell};
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
/// The number of volumes or snapshots that Cinder may fail to make in one run.
const TRIES: u32 = 3;

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
    /// The number of volumes or snapshots that Cinder failed to make in this run.
    pub failed: Cell<u32>,
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

/// The reason why Cinder could not make a volume or snapshot.
#[derive(Debug, PartialEq, Eq)]
enum NotMade {
    /// No backend has room.
    NoRoom(String),
    /// Cinder reports another reason.
    Failed(String),
    /// Cinder reports no reason. The text is the answer in place of one, if any.
    Unknown(Option<String>),
}

impl NotMade {
    /// Reads Cinder's messages. If a backend has failed, Cinder looks for another, and then also reports that it found none.
    fn of(messages: Result<Vec<String>, Trouble>) -> Self {
        let is_about_room = |message: &String| {
            ["o backend", "No valid host", "weighted backend"].iter().any(|part| message.contains(part))
        };
        match messages {
            Err(trouble) => NotMade::Unknown(Some(trouble.message)),
            Ok(messages) if messages.is_empty() => NotMade::Unknown(None),
            Ok(messages) if messages.iter().all(is_about_room) => NotMade::NoRoom(messages.join("; ")),
            Ok(messages) => NotMade::Failed(messages.join("; ")),
        }
    }

    fn text(&self, id: &str) -> String {
        match self {
            NotMade::NoRoom(why) | NotMade::Failed(why) => why.clone(),
            NotMade::Unknown(answer) => {
                let answer = answer.as_deref().unwrap_or("it does not say why");
                format!("{answer}; look for {id} in the logs of cinder-scheduler and cinder-volume")
            }
        }
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

    /// Handles a volume or snapshot that this run requested, that ended as `error`, and that is deleted. Nobody has used
    /// it, so the run requests it again after a pause, a few times. Another try at once finds no more room than the last.
    pub fn not_made(&self, what: &str, id: &str, messages: Result<Vec<String>, Trouble>) -> Stop {
        self.failed.set(self.failed.get() + 1);
        let cause = NotMade::of(messages);
        let text = format!("Cinder could not make the {what}: {}", cause.text(id));
        match cause {
            NotMade::NoRoom(_) if self.parameters.zone_from_topology => Failure::no_capacity(text).into(),
            NotMade::Failed(_) | NotMade::Unknown(_) if self.failed.get() < TRIES => {
                eprintln!("{text}; it is deleted, and asked for again");
                Trouble::new(Kind::Passing, text).into()
            }
            _ => Failure::retry(text).into(),
        }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failed_backend_is_no_lack_of_room() {
        const NO_ROOM: &str = "schedule allocate volume:Could not find any available weighted backend.";
        const LOGS: &str = "; look for 7f2d in the logs of cinder-scheduler and cinder-volume";
        const FAILED: &str = "create volume from backend storage:Driver failed to create the volume.";
        let of = |texts: &[&str]| NotMade::of(Ok(texts.iter().map(|text| (*text).to_owned()).collect()));
        assert_eq!(of(&[NO_ROOM]), NotMade::NoRoom(NO_ROOM.into()));
        assert_eq!(of(&[NO_ROOM, FAILED]), NotMade::Failed(format!("{NO_ROOM}; {FAILED}")));
        assert_eq!(of(&[]).text("7f2d"), format!("it does not say why{LOGS}"));
        let denied = NotMade::of(Err(Trouble::new(Kind::Denied, "Cinder does not say why: 403")));
        assert_eq!(denied.text("7f2d"), format!("Cinder does not say why: 403{LOGS}"));
    }
}
