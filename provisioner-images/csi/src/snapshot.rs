//! Snapshot and delete-snapshot runs. The driver gives each snapshot an id of its own. The snapshot run hands the id back,
//! and later runs get it. They must not ask CreateSnapshot for it: a driver that has lost the snapshot makes a new one,
//! of another content.

use csi_spec::csi::controller_service_capability::rpc::Type;
use csi_spec::csi::{CreateSnapshotRequest, DeleteSnapshotRequest, Snapshot};
use flex_contract::names::{self, pv_name};
use flex_contract::snapshot_handle::LONGEST;
use flex_image_kit::{Failure, snapshot_handle};
use tonic::Code;

use crate::run::{Credentials, DELETION_SECRET, Outcome, Run, Stop};
use crate::secrets::Kind;
use crate::trouble::{self, Trouble};

impl Run {
    /// Makes the snapshot, or finds the one that an earlier run made, waits until it can be restored, and hands back the
    /// driver's id.
    ///
    /// # Errors
    /// If there is none. The message says why.
    pub async fn snapshot(&self) -> Outcome<()> {
        self.driver.must(Type::CreateDeleteSnapshot, "make snapshots")?;
        let source = self.the_source()?;
        let secrets = self.later_credentials(Kind::Provisioner, DELETION_SECRET).await?;
        let snapshot = self.create_snapshot(&source.volume_handle, &secrets).await?;
        let length = snapshot.snapshot_id.len();
        if length > LONGEST {
            return Err(Failure::never(format!(
                "the CSI driver's id of the snapshot has {length} bytes, and no run can get one of more than {LONGEST}"
            ))
            .into());
        }
        match snapshot.ready_to_use {
            true => Ok(snapshot_handle::hand_back(&snapshot.snapshot_id)?),
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
        let handle = self.handle_of_snapshot();
        // No run has made a snapshot with such a driver.
        if handle.is_none() && !self.driver.can(Type::CreateDeleteSnapshot) {
            return Ok(());
        }
        self.driver.must(Type::CreateDeleteSnapshot, "delete snapshots")?;
        let secrets = self.known_credentials(Kind::Provisioner, DELETION_SECRET).await?;
        let snapshot_id = match handle {
            Some(handle) => handle,
            None => match self.unfinished_snapshot(secrets.as_ref()).await? {
                Some(snapshot_id) => snapshot_id,
                None => return Ok(()),
            },
        };
        let secrets = secrets.unwrap_or_default();
        let message = DeleteSnapshotRequest { snapshot_id: snapshot_id.clone(), secrets };
        let asked = self.driver.call("DeleteSnapshot", &snapshot_id, async {
            self.driver.controller().delete_snapshot(self.driver.request(message)).await
        });
        match asked.await {
            Err(trouble) if trouble.status.code() == Code::NotFound => Ok(()),
            other => Ok(other.map(drop)?),
        }
    }

    /// Returns the driver's id of the run's snapshot; `None` if no snapshot run handed it back.
    pub fn handle_of_snapshot(&self) -> Option<String> {
        let snapshot = self.request.snapshot.clone().unwrap_or_default();
        match snapshot.of.is_empty() {
            // Somebody else made the snapshot, so that its id is the driver's own.
            true => Some(snapshot.id),
            false => Some(snapshot.handle).filter(|handle| !handle.is_empty()),
        }
    }

    /// Returns the driver's id of a snapshot that no run has finished. Only CreateSnapshot tells it, by the name and the
    /// volume. It returns what an unfinished run left, or makes a snapshot. The caller deletes either, so that nobody
    /// takes it for the content of an earlier time. The orchestrator keeps the volume until then. Returns `None` if the
    /// driver refuses the request, which is that of each attempt: it would have returned an existing snapshot.
    async fn unfinished_snapshot(&self, secrets: Option<&Credentials>) -> Outcome<Option<String>> {
        let of = self.request.snapshot.as_ref().map(|snapshot| snapshot.of.clone()).unwrap_or_default();
        let volume = pv_name(&of);
        let source = match self.source()? {
            Some(source) => Some(source.volume_handle),
            None => self.cluster.handle(&volume, &self.driver.name).await?,
        };
        let source = source.ok_or_else(|| {
            Failure::retry(format!(
                "no run has said how the driver calls the snapshot, and the PersistentVolume {volume}, by which the driver would \
                 tell it, is gone: delete the snapshot there if it exists, then annotate the VolumeSnapshotContent with {}={}",
                names::ABANDON,
                names::ABANDON_YES
            ))
        })?;
        match self.create_snapshot(&source, secrets.unwrap_or(&Credentials::new())).await {
            Ok(snapshot) => Ok(Some(snapshot.snapshot_id)),
            Err(Stop::Trouble(trouble)) if is_refusal(trouble.status.code()) && !self.may_be_under_way.get() => {
                match secrets {
                    Some(_) => Ok(None),
                    None => Err(self.unproven(&trouble).into()),
                }
            }
            Err(other) => Err(other),
        }
    }

    /// Returns the failure of a run whose request was refused without the Secret that the attempts had.
    fn unproven(&self, trouble: &Trouble) -> Failure {
        Failure::retry(format!(
            "the Secret for the driver is gone, and the CSI driver answers {} to the request without it ({}), which does not \
             say whether it has a snapshot called {}: create the Secret again; or delete the snapshot there if it exists, then \
             annotate the VolumeSnapshotContent with {}={}",
            trouble::name(trouble.status.code()),
            trouble.status.message(),
            self.name_of_snapshot(),
            names::ABANDON,
            names::ABANDON_YES
        ))
    }

    /// Returns the name by which the driver finds the run's snapshot again.
    fn name_of_snapshot(&self) -> String {
        let id = self.request.snapshot.as_ref().map(|snapshot| snapshot.id.as_str()).unwrap_or_default();
        format!("snapshot-{id}")
    }

    async fn create_snapshot(&self, source: &str, secrets: &Credentials) -> Outcome<Snapshot> {
        let message = CreateSnapshotRequest {
            source_volume_id: source.to_owned(),
            name: self.name_of_snapshot(),
            secrets: secrets.clone(),
            parameters: Default::default(),
        };
        let name = message.name.clone();
        let asked = self.driver.call("CreateSnapshot", &name, async {
            self.driver.controller().create_snapshot(self.driver.request(message)).await
        });
        let asked = asked.await.inspect_err(|trouble| self.note_under_way(trouble));
        let snapshot = asked?.snapshot.filter(|snapshot| !snapshot.snapshot_id.is_empty());
        Ok(snapshot.ok_or_else(|| Failure::retry("the CSI driver answers CreateSnapshot without a snapshot"))?)
    }
}

/// Checks whether a driver that has the snapshot would have answered CreateSnapshot in another way. `NOT_FOUND` says that
/// it does not have the volume.
fn is_refusal(code: Code) -> bool {
    matches!(code, Code::InvalidArgument | Code::OutOfRange | Code::NotFound)
}
