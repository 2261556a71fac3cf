//! The reclaim policy of a volume.

use std::fmt;

/// The reclaim policy: the treatment of a volume after its claim is gone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ReclaimPolicy {
    /// The volume is deleted, and its storage with it.
    Delete,
    /// The volume stays, with its storage.
    Retain,
    /// Any other text.
    Other(String),
}

impl ReclaimPolicy {
    /// Returns the text of the policy in objects of Kubernetes and in `RECLAIM_POLICY`.
    pub fn as_str(&self) -> &str {
        match self {
            ReclaimPolicy::Delete => "Delete",
            ReclaimPolicy::Retain => "Retain",
            ReclaimPolicy::Other(text) => text,
        }
    }
}

impl From<&str> for ReclaimPolicy {
    fn from(text: &str) -> Self {
        match text {
            "Delete" => ReclaimPolicy::Delete,
            "Retain" => ReclaimPolicy::Retain,
            other => ReclaimPolicy::Other(other.to_owned()),
        }
    }
}

impl fmt::Display for ReclaimPolicy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_text_of_a_policy_is_kept() {
        for text in ["Delete", "Retain", "Recycle", "delete", ""] {
            assert_eq!(ReclaimPolicy::from(text).as_str(), text);
        }
        assert_eq!(ReclaimPolicy::from("Delete"), ReclaimPolicy::Delete);
        assert_eq!(ReclaimPolicy::from("Retain"), ReclaimPolicy::Retain);
    }
}
