//! The deletion of a volume, or of what an unfinished run left of it.

use csi_spec::csi::controller_service_capability::rpc::Type;
use csi_spec::csi::{CreateVolumeRequest, Volume};
use flex_contract::names;
use flex_image_kit::Failure;
use tonic::Code;

use crate::provision::{CreateCall, is_taken, without_source};
use crate::run::{Credentials, DELETION_SECRET, Outcome, Run, Stop};
use crate::secrets::Kind;
use crate::trouble::{self, Trouble};

impl Run {
    /// Deletes the volume of the PersistentVolume. Without one, deletes the volume that a run may have made without
    /// reporting it.
    ///
    /// # Errors
    /// If something remains. The message says what, and why.
    pub async fn delete(&self) -> Outcome<()> {
        let Some(source) = self.source()? else { return self.delete_unknown().await };
        self.driver.must(Type::CreateDeleteVolume, "delete volumes")?;
        if self.driver.can(Type::PublishUnpublishVolume) {
            let nodes = self.cluster.attached_to(&self.request.pv_name).await?;
            if !nodes.is_empty() {
                return Err(Failure::retry(format!(
                    "the volume is still attached to {}: it is deleted when it is not",
                    nodes.join(", ")
                ))
                .into());
            }
        }
        let secrets = self.later_credentials(Kind::Provisioner, DELETION_SECRET).await?;
        Ok(self.remove(&source.volume_handle, secrets).await?)
    }

    /// Deletes the volume with the claim's name. Only CreateVolume returns the volume with a name. So it is called once
    /// more. It returns the existing volume, or makes one, and that volume is deleted.
    async fn delete_unknown(&self) -> Outcome<()> {
        if !self.driver.can(Type::CreateDeleteVolume) {
            return Ok(());
        }
        let CreateCall { message, is_in_place, .. } = self.message().await?;
        let (volume, is_whole) = self.create_again(&message).await;
        let is_proof = self.request.attempts_alike && is_in_place && is_whole;
        let volume = match volume {
            Ok(volume) => volume,
            Err(Stop::Trouble(trouble)) => match trouble.status.code() {
                // The driver refused the same request in each attempt, so that nothing was made.
                Code::InvalidArgument | Code::OutOfRange | Code::ResourceExhausted if is_proof => return Ok(()),
                // A driver may refuse a request before it looks for the name.
                Code::InvalidArgument | Code::OutOfRange | Code::ResourceExhausted => {
                    return Err(Failure::retry(format!(
                        "an earlier attempt asked in another way and may have made a volume called {}; the CSI driver answers {} to this request ({}), which does not say whether that volume exists: look there and delete it, then annotate the claim with {}={}, or remove the Job of the attempt if the claim is gone",
                        message.name,
                        trouble::name(trouble.status.code()),
                        trouble.status.message(),
                        names::ABANDON,
                        names::ABANDON_YES
                    ))
                    .into());
                }
                Code::AlreadyExists => {
                    return Err(Failure::retry(format!(
                        "the CSI driver has a volume called {} and does not tell which it is, since it was asked for in another way ({}): \
                         delete it there",
                        message.name,
                        trouble.status.message()
                    ))
                    .into());
                }
                _ => return Err(trouble.into()),
            },
            Err(other) => return Err(other),
        };
        let secrets: Credentials = message.secrets;
        Ok(self.remove(&volume.volume_id, secrets).await?)
    }

    /// Calls CreateVolume for a volume that may exist. If the driver may have lost the data source, or has forgotten the
    /// one of the volume, calls it once more without a data source: the driver then returns the volume, makes an empty
    /// one, or says that the name is used. Returns also whether the last call had the whole request.
    async fn create_again(&self, message: &CreateVolumeRequest) -> (Outcome<Volume>, bool) {
        match self.create(message).await {
            Err(Stop::Trouble(trouble)) if self.may_lack_source(&trouble, message) || is_taken(&trouble, message) => {
                match self.create(&without_source(message)).await {
                    Err(Stop::Trouble(second)) if second.status.code() == Code::AlreadyExists => {
                        (Err(unknown_volume(&message.name, &trouble, &second).into()), false)
                    }
                    other => (other, false),
                }
            }
            other => (other, self.names_source(message)),
        }
    }

    /// Checks whether the driver may have failed because it has lost the data source. Not all drivers say `NOT_FOUND`
    /// then. After other codes, a call of this run that may be in progress may still make the copy.
    fn may_lack_source(&self, trouble: &Trouble, message: &CreateVolumeRequest) -> bool {
        let is_said = trouble.status.code() == Code::NotFound;
        let is_possible = trouble.kind() == trouble::Kind::Failed && !self.may_be_under_way.get();
        message.volume_content_source.is_some() && (is_said || is_possible)
    }

    /// Checks whether the request names the data source of the claim, if it has one. The handle of a snapshot may be
    /// unknown, and the driver may not be able to copy any more.
    fn names_source(&self, message: &CreateVolumeRequest) -> bool {
        let is_copy = self.request.clone_of.is_some() || self.request.snapshot.is_some();
        !is_copy || message.volume_content_source.is_some()
    }
}

/// Returns the failure of a run that cannot learn which volume has the name of a copy.
fn unknown_volume(name: &str, first: &Trouble, second: &Trouble) -> Failure {
    Failure::retry(format!(
        "the CSI driver has a volume called {name} and does not tell which it is: it answers {} to the request with the data source \
         ({}), and {} to the one without it ({}); if that stays so, delete the volume there",
        trouble::name(first.status.code()),
        first.status.message(),
        trouble::name(second.status.code()),
        second.status.message()
    ))
}
