//! The phases of claims and volumes, as Kubernetes writes them into the status.

use flex_contract::text_enum;

text_enum! {
    /// The phase of a PersistentVolumeClaim.
    #[derive(Default)]
    pub enum ClaimPhase {
        /// The status has no phase yet.
        #[default]
        Unset = "",
        /// The claim has no volume yet.
        Pending = "Pending",
        /// The claim is bound to a volume.
        Bound = "Bound",
        /// The volume of the claim is gone.
        Lost = "Lost",
    }
}

text_enum! {
    /// The phase of a PersistentVolume.
    #[derive(Default)]
    pub enum VolumePhase {
        /// The status has no phase yet.
        #[default]
        Unset = "",
        /// The PV controller has not seen the volume yet.
        Pending = "Pending",
        /// The volume is not bound.
        Available = "Available",
        /// The volume is bound to a claim.
        Bound = "Bound",
        /// The claim of the volume is gone.
        Released = "Released",
        /// The claim of the volume is gone, and the PV controller has failed to reclaim the volume.
        Failed = "Failed",
    }
}

impl VolumePhase {
    /// Checks whether the claim of the volume is gone.
    pub fn is_claim_gone(&self) -> bool {
        matches!(self, VolumePhase::Released | VolumePhase::Failed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_phase_says_whether_the_claim_is_gone() {
        for text in ["", "Pending", "Available", "Bound", "Released", "Failed", "Melted"] {
            assert_eq!(VolumePhase::from(text).is_claim_gone(), ["Released", "Failed"].contains(&text), "{text}");
        }
    }
}
