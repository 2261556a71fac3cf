//! The expansion of a volume, and the change of its attributes.

use csi_spec::csi::controller_service_capability::rpc::Type;
use csi_spec::csi::{CapacityRange, ControllerExpandVolumeRequest, ControllerModifyVolumeRequest};
use flex_image_kit::Failure;

use crate::capability::capabilities;
use crate::run::{MODIFY_SECRET, Outcome, Run};
use crate::secrets::Kind;

impl Run {
    /// Expands the volume to the requested size. The kubelet does the rest on the node.
    ///
    /// # Errors
    /// If the volume does not have the size. The message says why.
    pub async fn expand(&self) -> Outcome<()> {
        let source = self.the_source()?;
        if !self.driver.can(Type::ExpandVolume) && self.driver.expands() {
            eprintln!("the volumes of this driver are made larger on their nodes alone");
            return Ok(());
        }
        self.driver.must(Type::ExpandVolume, "make volumes larger")?;
        // The volume's own reference counts, whatever the class says now.
        let secrets = self.credentials(source.controller_expand_secret_ref.as_ref()).await?;
        let fs_type = source.fs_type.clone().unwrap_or_default();
        let tells_writers_apart = self.driver.can(Type::SingleNodeMultiWriter);
        let wanted = i64::try_from(self.request.size_bytes).unwrap_or(i64::MAX);
        let message = ControllerExpandVolumeRequest {
            volume_id: source.volume_handle.clone(),
            capacity_range: Some(CapacityRange {
                required_bytes: wanted,
                limit_bytes: i64::try_from(self.parameters.limit.unwrap_or_default()).unwrap_or(i64::MAX),
            }),
            secrets,
            volume_capability: capabilities(&self.request, &fs_type, tells_writers_apart)?.into_iter().next(),
        };
        let asked = self.driver.call("ControllerExpandVolume", &source.volume_handle, async {
            self.driver.controller().controller_expand_volume(self.driver.request(message)).await
        });
        let answer = asked.await?;
        match answer.capacity_bytes {
            has if has < wanted => Err(Failure::retry(format!(
                "the CSI driver says that the volume has {has} bytes now, and {wanted} were asked for"
            ))
            .into()),
            _ => Ok(()),
        }
    }

    /// Gives the volume the attributes of its VolumeAttributesClass. A class without parameters asks for no change, and
    /// drivers refuse a call without them.
    ///
    /// # Errors
    /// If the volume does not have them. The message says why.
    pub async fn modify(&self) -> Outcome<()> {
        let source = self.the_source()?;
        self.driver.must(Type::ModifyVolume, "modify volumes")?;
        if self.request.attributes.is_empty() {
            eprintln!("the VolumeAttributesClass has no parameters: the volume stays as it is");
            return Ok(());
        }
        let secrets = self.later_credentials(Kind::ControllerModify, MODIFY_SECRET).await?;
        let message = ControllerModifyVolumeRequest {
            volume_id: source.volume_handle.clone(),
            secrets,
            mutable_parameters: self.request.attributes.clone(),
        };
        let asked = self.driver.call("ControllerModifyVolume", &source.volume_handle, async {
            self.driver.controller().controller_modify_volume(self.driver.request(message)).await
        });
        asked.await?;
        Ok(())
    }
}
