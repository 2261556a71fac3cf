//! What a claim is made from that names a VolumeSnapshot as its data source.

use contract::names;
use contract::quantity::quantity;

use super::{Content, Provenance, Snapshot};
use crate::claim::Claim;
use crate::claim::origin::not_granted;

/// What is seen of the VolumeSnapshot that a claim is to be made from.
#[derive(Clone, Copy, Debug)]
pub struct Stored<'a> {
    /// The VolumeSnapshot; none if it is not there.
    pub snapshot: Option<&'a Snapshot>,
    /// The content that it is bound to, and that refers to it.
    pub content: Option<&'a Content>,
    /// That content is of our driver, and not another instance's; or of the driver that the claim's class stands for.
    pub ours: bool,
    /// How it was made, where that is known.
    pub made_by: Option<&'a Provenance>,
    /// The node where it is, if that matters.
    pub node: &'a str,
    /// It is in the claim's namespace, or that is granted.
    pub granted: bool,
}

impl Stored<'_> {
    /// It is kept from deletion for the sake of this claim.
    pub fn is_kept_for(&self, claim: &Claim) -> bool {
        let finalizer = names::clone_finalizer(&claim.uid);
        self.content.is_some_and(|content| content.finalizers.contains(&finalizer))
    }

    /// Whether the claim can be made from it now.
    ///
    /// # Errors
    /// What it waits for, or what the user must change, in words for the claim.
    pub fn check(&self, claim: &Claim) -> Result<(), String> {
        let source = claim.data_source.as_ref().map(ToString::to_string).unwrap_or_default();
        let waits = |why: &str| Err(format!("{source}, the data source of this claim, {why}"));
        let kept = self.is_kept_for(claim);
        // Nothing is said of what may not be seen.
        if !self.granted && !kept {
            return waits(&not_granted(claim));
        }
        match self.snapshot {
            // A claim that was begun is made, also when the VolumeSnapshot is gone.
            _ if kept => {}
            None => return waits("does not exist; the provisioner waits for it"),
            Some(snapshot) if snapshot.deleting => return waits("is being deleted"),
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
        if content.deleting && !kept {
            return waits("is being deleted");
        }
        if let Some(made_by) = self.made_by.filter(|made_by| Some(&made_by.record.class) != claim.class.as_ref()) {
            let class = &made_by.record.class;
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
