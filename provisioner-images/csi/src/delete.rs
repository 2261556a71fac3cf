//! The deletion of a volume, or of what an unfinished run left of it.

use csi_spec::csi::controller_service_capability::rpc::Type;
use csi_spec::csi::{CreateVolumeRequest, Volume};
use flex_contract::names;
use flex_image_kit::Failure;
use tonic::Code;

use crate::provision::{CreateCall, is_taken, without_source};
use crate::run::{Credentials, DELETION_SECRET, Outcome, Run, Stop};
use crate::secrets::Kind;
use crate::trouble;

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

    /// Calls CreateVolume for a volume that may exist. If the driver says that the data source does not exist, or has
    /// forgotten the one of the volume, calls it once more without a data source: the driver then returns the volume,
    /// makes an empty one, or says that the name is used. Returns also whether the last call had the whole request.
    async fn create_again(&self, message: &CreateVolumeRequest) -> (Outcome<Volume>, bool) {
        let is_gone = |code| code == Code::NotFound && message.volume_content_source.is_some();
        match self.create(message).await {
            Err(Stop::Trouble(trouble)) if is_gone(trouble.status.code()) || is_taken(&trouble, message) => {
                (self.create(&without_source(message)).await, false)
            }
            other => (other, !self.lacks_handle()),
        }
    }

    /// Checks whether the claim is from a snapshot whose handle is not known, so that the request names no data source.
    fn lacks_handle(&self) -> bool {
        self.request.snapshot.is_some() && self.handle_of_snapshot().is_none()
    }
}
