//! The kinds of objects that people write before a name, as kubectl knows them.

/// A kind of object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// A PersistentVolumeClaim.
    Claim,
    /// A PersistentVolume.
    Volume,
}

impl Kind {
    /// Reads a kind in its short form, in the singular or in the plural; `None` for any other word.
    pub(super) fn read(word: &str) -> Option<Self> {
        match word.to_ascii_lowercase().as_str() {
            "pvc" | "persistentvolumeclaim" | "persistentvolumeclaims" => Some(Kind::Claim),
            "pv" | "persistentvolume" | "persistentvolumes" => Some(Kind::Volume),
            _ => None,
        }
    }
}
