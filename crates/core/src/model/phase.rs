//! The phases of claims and volumes, as Kubernetes writes them into the status.

use std::fmt;

/// The phase of a PersistentVolumeClaim.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum ClaimPhase {
    /// The status has no phase yet.
    #[default]
    Unset,
    /// The claim has no volume yet.
    Pending,
    /// The claim is bound to a volume.
    Bound,
    /// The volume of the claim is gone.
    Lost,
    /// Any other text.
    Other(String),
}

impl From<&str> for ClaimPhase {
    fn from(text: &str) -> Self {
        match text {
            "" => ClaimPhase::Unset,
            "Pending" => ClaimPhase::Pending,
            "Bound" => ClaimPhase::Bound,
            "Lost" => ClaimPhase::Lost,
            other => ClaimPhase::Other(other.to_owned()),
        }
    }
}

/// The phase of a PersistentVolume.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum VolumePhase {
    /// The status has no phase yet.
    #[default]
    Unset,
    /// The PV controller has not seen the volume yet.
    Pending,
    /// The volume is not bound.
    Available,
    /// The volume is bound to a claim.
    Bound,
    /// The claim of the volume is gone.
    Released,
    /// The claim of the volume is gone, and the PV controller has failed to reclaim the volume.
    Failed,
    /// Any other text.
    Other(String),
}

impl VolumePhase {
    /// Returns the text of the phase in the status; empty for none.
    pub fn as_str(&self) -> &str {
        match self {
            VolumePhase::Unset => "",
            VolumePhase::Pending => "Pending",
            VolumePhase::Available => "Available",
            VolumePhase::Bound => "Bound",
            VolumePhase::Released => "Released",
            VolumePhase::Failed => "Failed",
            VolumePhase::Other(text) => text,
        }
    }

    /// Checks whether the claim of the volume is gone.
    pub fn is_released(&self) -> bool {
        matches!(self, VolumePhase::Released | VolumePhase::Failed)
    }
}

impl From<&str> for VolumePhase {
    fn from(text: &str) -> Self {
        match text {
            "" => VolumePhase::Unset,
            "Pending" => VolumePhase::Pending,
            "Available" => VolumePhase::Available,
            "Bound" => VolumePhase::Bound,
            "Released" => VolumePhase::Released,
            "Failed" => VolumePhase::Failed,
            other => VolumePhase::Other(other.to_owned()),
        }
    }
}

impl fmt::Display for VolumePhase {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_text_of_a_volume_s_phase_is_kept() {
        for text in ["", "Pending", "Available", "Bound", "Released", "Failed", "Melted"] {
            let phase = VolumePhase::from(text);
            assert_eq!(phase.as_str(), text);
            assert_eq!(phase.is_released(), ["Released", "Failed"].contains(&text));
        }
        assert_eq!(VolumePhase::from("Melted"), VolumePhase::Other("Melted".into()));
    }

    #[test]
    fn an_unknown_phase_of_a_claim_is_no_known_one() {
        let known = [ClaimPhase::Unset, ClaimPhase::Pending, ClaimPhase::Bound, ClaimPhase::Lost];
        assert_eq!(["", "Pending", "Bound", "Lost"].map(ClaimPhase::from), known);
        assert_eq!(ClaimPhase::from("bound"), ClaimPhase::Other("bound".into()));
    }
}
