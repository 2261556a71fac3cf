//! Snapshot and delete-snapshot runs. The driver gives each snapshot an id of its own. Only CreateSnapshot returns this
//! id, by the snapshot's name and as long as its volume exists.

use csi_spec::csi::controller_service_capability::rpc::Type;
use csi_spec::csi::{CreateSnapshotRequest, DeleteSnapshotRequest, Snapshot};
use flex_contract::names::pv_name;
use flex_image_kit::Failure;
use tonic::Code;

use crate::run::{Credentials, DELETION_SECRET, Outcome, Run, Stop};
use crate::secrets::Kind;
use crate::trouble::Trouble;

impl Run {
    /// Makes the snapshot, or finds the one that an earlier run made, and waits until it can be restored.
    ///
    /// # Errors
    /// If there is none. The message says why.
    pub async fn snapshot(&self) -> Outcome<()> {
        self.driver.must(Type::CreateDeleteSnapshot, "make snapshots")?;
        let source = self.the_source()?;
        let secrets = self.later_credentials(Kind::Provisioner, DELETION_SECRET).await?;
        let snapshot = self.create_snapshot(&source.volume_handle, &secrets).await?;
        match snapshot.ready_to_use {
            true => Ok(()),
            // The call is repeated, like one in progress.
            false => Err(Trouble {
                call: "CreateSnapshot",
                status: tonic::Status::aborted(format!("the snapshot {} is not ready yet", snapshot.snapshot_id)),
            }
            .into()),
        }
    }

    /// Deletes the snapshot, or what an unfinished run left of it.
    ///
    /// # Errors
    /// If the snapshot remains. The message says why.
    pub async fn delete_snapshot(&self) -> Outcome<()> {
        self.driver.must(Type::CreateDeleteSnapshot, "delete snapshots")?;
        let secrets = self.later_credentials(Kind::Provisioner, DELETION_SECRET).await?;
        let snapshot_id = self.handle_of_snapshot().await?;
        let message = DeleteSnapshotRequest { snapshot_id: snapshot_id.clone(), secrets };
        let asked = self.driver.call("DeleteSnapshot", &snapshot_id, async {
            self.driver.controller().delete_snapshot(self.driver.request(message)).await
        });
        match asked.await {
            Err(trouble) if trouble.status.code() == Code::NotFound => Ok(()),
            other => Ok(other.map(drop)?),
        }
    }

    /// Returns the driver's id of the run's snapshot.
    ///
    /// # Errors
    /// If the id cannot be found.
    pub async fn handle_of_snapshot(&self) -> Outcome<String> {
        let snapshot = self.request.snapshot.clone().unwrap_or_default();
        // Somebody else made the snapshot, so that its id is the driver's own.
        if snapshot.of.is_empty() {
            return Ok(snapshot.id);
        }
        let volume = pv_name(&snapshot.of);
        let source = match self.request.operation == flex_contract::operation::Operation::Provision {
            false => self.source()?.map(|source| source.volume_handle),
            true => None,
        };
        let source = match source {
            Some(handle) => Some(handle),
            None => self.cluster.handle(&volume, &self.driver.name).await?,
        };
        let source = source.ok_or_else(|| {
            Failure::retry(format!(
                "the driver's id of the snapshot is not known: it tells it by the volume that it is of, and the PersistentVolume \
                 {volume} is gone"
            ))
        })?;
        match self.create_snapshot(&source, &Credentials::new()).await {
            Ok(snapshot) => Ok(snapshot.snapshot_id),
            Err(Stop::Trouble(trouble)) => Err(trouble.into()),
            Err(other) => Err(other),
        }
    }

    async fn create_snapshot(&self, source: &str, secrets: &Credentials) -> Outcome<Snapshot> {
        let id = self.request.snapshot.as_ref().map(|snapshot| snapshot.id.clone()).unwrap_or_default();
        let message = CreateSnapshotRequest {
            source_volume_id: source.to_owned(),
            name: format!("snapshot-{id}"),
            secrets: secrets.clone(),
            parameters: Default::default(),
        };
        let name = message.name.clone();
        let asked = self.driver.call("CreateSnapshot", &name, async {
            self.driver.controller().create_snapshot(self.driver.request(message)).await
        });
        let snapshot = asked.await?.snapshot.filter(|snapshot| !snapshot.snapshot_id.is_empty());
        Ok(snapshot.ok_or_else(|| Failure::retry("the CSI driver answers CreateSnapshot without a snapshot"))?)
    }
}
