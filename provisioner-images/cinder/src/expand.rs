//! The expansion of a volume.
//!
//! Cinder extends only available volumes. So the volume is unreserved, extended, and reserved again. The connection
//! stays, and is requested once more, because some storage systems then show the new size.

use flex_contract::volume_mode::VolumeMode;
use flex_image_kit::Failure;
use serde_json::Value;

use crate::api::{GIB, Volume};
use crate::mapper::{self, Growth, Mapped};
use crate::run::{Outcome, PollDelay, Run};
use crate::trouble::{Kind, Trouble};

/// The next step of an expansion.
#[derive(Debug, PartialEq, Eq)]
enum Step {
    Unreserve,
    Extend,
    Wait,
    Reserve,
    Connect,
    Stop(Failure),
}

/// Decides the next step by Cinder's description of the volume. The function is pure.
fn step(volume: &Volume, wanted: u64) -> Step {
    match (volume.status.as_str(), volume.size >= wanted) {
        ("attaching", false) => Step::Unreserve,
        ("available", false) => Step::Extend,
        ("available", true) => Step::Reserve,
        ("attaching", true) => Step::Connect,
        ("in-use" | "reserved" | "detaching", _) => Step::Stop(Failure::retry(format!(
            "volume {} is `{}` in Cinder: somebody attached it to something else than Kubernetes; detach it there",
            volume.id, volume.status
        ))),
        (status, _) if status.starts_with("error") => Step::Stop(Failure::retry(format!(
            "Cinder could not extend volume {}: it is `{status}` with {}Gi; the log of cinder-volume says why. An admin must set \
             its state to `available` (cinder reset-state), then it is tried again",
            volume.id, volume.size
        ))),
        _ => Step::Wait,
    }
}

impl Run {
    /// Extends the volume to the requested size.
    ///
    /// # Errors
    /// If the volume does not have the size.
    pub async fn expand(&self) -> Outcome<()> {
        let source: Value = serde_json::from_str(&self.request.volume_source).unwrap_or_default();
        self.can_grow(&source)?;
        let wanted = self.request.size_bytes.div_ceil(GIB);
        let mut delay = PollDelay::new();
        loop {
            let volume = self.the_volume(&self.request.volume_id).await?;
            self.waiting_for(&volume.id, &volume.status);
            match step(&volume, wanted) {
                Step::Stop(failure) => return Err(failure.into()),
                Step::Wait => delay.wait().await,
                Step::Unreserve => self.cinder.unreserve(&volume.id).await?,
                Step::Extend => self.extend(&volume, wanted).await?,
                Step::Reserve => match self.cinder.reserve(&volume.id).await {
                    Err(trouble) if trouble.kind == Kind::Refused => delay.wait().await,
                    other => other?,
                },
                Step::Connect => {
                    let connection = self.cinder.connect(&volume.id, &self.connector()).await?;
                    let mapped = self.map(&connection)?;
                    return Ok(unchanged(&mapped, &source)?);
                }
            }
        }
    }

    async fn extend(&self, volume: &Volume, wanted: u64) -> Outcome<()> {
        let outcome = self.cinder.extend(&volume.id, wanted).await;
        let Err(trouble) = outcome else { return Ok(()) };
        if trouble.kind == Kind::Refused && trouble.message.contains("status must be") {
            // A run that copies the volume has reserved it again.
            return Err(Trouble::new(Kind::Passing, trouble.message).into());
        }
        // The volume keeps its size and its reservation.
        self.restore_reservation(volume).await?;
        Err(trouble.into())
    }

    /// Checks that a volume can be expanded. Only the kubelet could resize the file system, and it does so for few
    /// kinds of volumes.
    fn can_grow(&self, source: &Value) -> Result<(), Failure> {
        let Some(mapper) = mapper::of_source(source, &self.parameters) else {
            return Err(Failure::never("VOLUME_SOURCE is of no kind that this image makes: it cannot be expanded"));
        };
        match mapper.grows(&self.parameters) {
            Growth::OnTheNode => Ok(()),
            Growth::BlockOnly if self.request.volume_mode == VolumeMode::Block => Ok(()),
            Growth::BlockOnly => Err(Failure::never(format!(
                "the kubelet does not make file systems on {} volumes larger, so this one stays as it is: ask for the old size \
                 again, and copy the data to a new, larger claim. Volumes with volumeMode Block can grow",
                mapper.kind()
            ))),
        }
    }
}

/// Checks that the PersistentVolume, which cannot be changed, still leads to the volume. The function is pure.
fn unchanged(mapped: &Mapped, source: &Value) -> Result<(), Failure> {
    let now = serde_json::to_value(&mapped.source).unwrap_or_default();
    let leads = |json: &Value| {
        [
            "/iscsi/targetPortal",
            "/iscsi/iqn",
            "/iscsi/lun",
            "/fc/targetWWNs",
            "/fc/lun",
            "/csi/volumeHandle",
            "/rbd/image",
        ]
        .map(|at| json.pointer(at).cloned())
    };
    match leads(&now) == leads(source) {
        true => Ok(()),
        false => Err(Failure::never(
            "the volume has grown, but the storage system shows it elsewhere now, and the PersistentVolume cannot follow: an admin \
             must make a PersistentVolume for the new connection",
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn every_state_has_its_next_step() {
        for (status, size, expected) in [
            ("attaching", 1, Step::Unreserve),
            ("available", 1, Step::Extend),
            ("extending", 1, Step::Wait),
            ("extending", 2, Step::Wait),
            ("available", 2, Step::Reserve),
            ("attaching", 2, Step::Connect),
            ("attaching", 3, Step::Connect),
        ] {
            let volume = Volume { status: status.into(), size, ..Volume::default() };
            assert_eq!(step(&volume, 2), expected, "{status} {size}");
        }
        for status in ["error", "error_extending", "in-use"] {
            let volume = Volume { status: status.into(), size: 1, ..Volume::default() };
            assert!(matches!(step(&volume, 2), Step::Stop(failure) if failure.code == 75), "{status}");
        }
    }

    #[test]
    fn a_changed_connection_is_reported() {
        let mapped = |lun: i32| {
            let source = serde_json::from_value(json!({
                "iscsi": { "targetPortal": "a", "iqn": "i", "lun": lun, "fsType": "xfs" },
            }))
            .unwrap();
            Mapped { source, secret: None }
        };
        let source = json!({ "iscsi": { "targetPortal": "a", "iqn": "i", "lun": 1, "iscsiInterface": "default" } });
        assert_eq!(unchanged(&mapped(1), &source), Ok(()));
        assert_eq!(unchanged(&mapped(2), &source).unwrap_err().code, 65);
    }
}
