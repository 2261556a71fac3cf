//! Snapshot and delete-snapshot runs.

use std::collections::BTreeMap;

use flex_image_kit::Failure;
use serde_json::json;

use crate::names;
use crate::run::{Outcome, PollDelay, Run};
use crate::trouble::{Kind, Trouble};

impl Run {
    /// Makes the snapshot, or finds the one that an earlier run made.
    ///
    /// # Errors
    /// If there is none. The message says why.
    pub async fn snapshot(&self) -> Outcome<()> {
        let id = self.snapshot_id()?;
        let name = names::snapshot(&id);
        let volume = self.the_volume(&self.request.volume_id).await?;
        let mut delay = PollDelay::new();
        let mut made = false;
        loop {
            let found = self.cinder.snapshots_named(&name).await?;
            let Some(snapshot) = found.first() else {
                self.unreserve_for_copy(&volume).await?;
                let metadata: BTreeMap<_, _> = [("flex-provisioner.snapshot", id.as_str())].into();
                let body = json!({ "snapshot": {
                    "volume_id": volume.id, "name": name, "force": true, "metadata": metadata,
                    "description": format!("VolumeSnapshot {}", self.snapshot_name()),
                } });
                let asked = self.cinder.snapshot_of(body).await;
                // To request the snapshot is enough. A run that fails or is stopped meanwhile may be the last one.
                let reserved = self.reserve_again(&volume.id).await;
                asked.map_err(passes)?;
                reserved?;
                made = true;
                continue;
            };
            self.waiting_for(&snapshot.id, &snapshot.status);
            match snapshot.status.as_str() {
                "available" => break,
                "error" => {
                    let messages = self.cinder.messages(&snapshot.id).await;
                    self.remove_snapshot(&snapshot.id).await?;
                    if made {
                        self.reserve_again(&volume.id).await?;
                        return Err(self.not_made("snapshot", &snapshot.id, messages));
                    }
                }
                "error_deleting" => self.remove_snapshot(&snapshot.id).await?,
                _ => delay.wait().await,
            }
        }
        self.reserve_again(&volume.id).await
    }

    /// Deletes the snapshot, or what unfinished runs left of it: each may have left one of the name.
    ///
    /// # Errors
    /// If something remains. The message says what, and why.
    pub async fn delete_snapshot(&self) -> Outcome<()> {
        let id = self.snapshot_id()?;
        while let Some(snapshot) = self.find_snapshot(&id).await? {
            self.remove_snapshot(&snapshot.id).await?;
        }
        Ok(())
    }

    fn snapshot_id(&self) -> Result<String, Failure> {
        let id = self.request.snapshot.as_ref().map(|snapshot| snapshot.id.clone()).unwrap_or_default();
        match names::is_id(&id) {
            true => Ok(id),
            false => Err(Failure::never(format!("SNAPSHOT_ID is `{id}`: it is no id of a snapshot here or in Cinder"))),
        }
    }

    fn snapshot_name(&self) -> String {
        let of = self.request.snapshot.clone().unwrap_or_default();
        format!("{}/{}", of.namespace, of.name)
    }

    async fn remove_snapshot(&self, id: &str) -> Outcome<()> {
        let mut delay = PollDelay::new();
        let mut tried = false;
        loop {
            let Some(snapshot) = self.cinder.snapshot(id).await? else { return Ok(()) };
            self.waiting_for(id, &snapshot.status);
            match snapshot.status.as_str() {
                "creating" | "deleting" => delay.wait().await,
                _ if tried => {
                    return Err(Failure::retry(format!(
                        "Cinder could not delete snapshot {id}: it is `{}`; the log of cinder-volume says why",
                        snapshot.status
                    ))
                    .into());
                }
                _ => {
                    tried = true;
                    self.cinder.delete_snapshot(id).await.map_err(passes)?;
                }
            }
        }
    }

    async fn reserve_again(&self, id: &str) -> Outcome<()> {
        match self.cinder.reserve(id).await {
            // The volume was not unreserved, or another run has reserved it already.
            Err(trouble) if trouble.kind == Kind::Refused => Ok(()),
            other => Ok(other?),
        }
    }
}

/// Marks a refusal because of a state as temporary: the state changes.
fn passes(trouble: Trouble) -> Trouble {
    match trouble.kind {
        Kind::Refused => Trouble::new(Kind::Passing, trouble.message),
        _ => trouble,
    }
}
