//! The restore of a claim whose data source is a VolumeSnapshot.

use flex_contract::names;
use flex_contract::quantity::quantity;

use crate::model::claim::Claim;
use crate::model::grant::not_granted;
use crate::model::snapshot::Content;
use crate::model::snapshot::Snapshot;
use crate::model::snapshot::SnapshotProvenance;

/// The observed state of the VolumeSnapshot that is the data source of a claim.
#[derive(Clone, Copy, Debug)]
pub struct RestoreSource<'a> {
    /// The cluster serves VolumeSnapshots and their contents.
    pub served: bool,
    /// The VolumeSnapshot; `None` if it does not exist.
    pub snapshot: Option<&'a Snapshot>,
    /// The content to which it is bound and that refers to it.
    pub content: Option<&'a Content>,
    /// The content belongs to the driver of this orchestrator or of the claim's class, and to no other instance.
    pub ours: bool,
    /// The provenance of the snapshot, where it is known.
    pub made_by: Option<&'a SnapshotProvenance>,
    /// The node of the snapshot, if that matters.
    pub node: Option<&'a str>,
    /// The VolumeSnapshot is in the claim's namespace, or a ReferenceGrant allows the restore.
    pub granted: bool,
}

impl RestoreSource<'_> {
    /// Checks whether the content is protected for this claim.
    pub fn is_kept_for(&self, claim: &Claim) -> bool {
        let finalizer = names::clone_finalizer(&claim.uid);
        self.content.is_some_and(|content| content.finalizers.contains(&finalizer))
    }

    /// Checks whether the snapshot can be restored now.
    ///
    /// # Errors
    /// If it cannot. The text, for the claim's event, says what the claim waits for or what the user must change.
    pub fn check(&self, claim: &Claim) -> Result<(), String> {
        let source = claim.data_source.as_ref().map(ToString::to_string).unwrap_or_default();
        let waits = |why: &str| Err(format!("{source}, the data source of this claim, {why}"));
        if !self.served {
            return waits(
                "is not known: this cluster serves no VolumeSnapshots; ask an admin to install the snapshot CRDs and controller",
            );
        }
        let kept = self.is_kept_for(claim);
        // The event says nothing about an object that the user may not see.
        if !self.granted && !kept {
            return waits(&not_granted(claim));
        }
        match self.snapshot {
            // A restore that has begun is finished, even if the VolumeSnapshot is gone.
            _ if kept => {}
            None => return waits("does not exist; the provisioner waits for it"),
            Some(snapshot) if snapshot.terminating => return waits("is being deleted"),
            Some(snapshot) if snapshot.status.ready != Some(true) => {
                return waits("is not ready; the provisioner waits for it");
            }
            Some(_) => {}
        }
        let Some(content) = self.content else {
            return waits("is not bound to its content; the provisioner waits for it");
        };
        if !self.ours {
            return waits("belongs to another driver");
        }
        if !content.ready {
            return waits("is not ready; the provisioner waits for it");
        }
        if content.has_long_id() {
            return waits("has an id in the storage that is too long for a run");
        }
        if content.terminating && !kept {
            return waits("is being deleted");
        }
        if let Some(made_by) =
            self.made_by.filter(|made_by| Some(&made_by.effective_config.class) != claim.class.as_ref())
        {
            let class = &made_by.effective_config.class;
            return waits(&format!(
                "is of a volume of class {class}: only a claim of the same class can be made from it"
            ));
        }
        if let Some(mode) = content.volume_mode.as_ref().filter(|mode| **mode != claim.volume_mode) {
            return waits(&format!(
                "is of a volume of mode {mode}, this claim has {}: they must be the same",
                claim.volume_mode
            ));
        }
        match (content.size, &claim.size) {
            (Some(has), Ok(wants)) if *wants < has => waits(&format!(
                "is of a volume of {}, this claim asks for {}: it must be at least as large",
                quantity(has).0,
                quantity(*wants).0
            )),
            _ => Ok(()),
        }
    }
}
