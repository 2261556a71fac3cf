//! Texts that mostly are UUIDs, or names of volumes with one.

use std::fmt;

use flex_contract::names::PV_PREFIX;
use uuid::Uuid;
use uuid::fmt::Hyphenated;

/// A text that mostly has a UUID, as UIDs of objects, volume ids and names of volumes have. Such a text takes no memory
/// on the heap.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Id {
    /// A UUID, as Kubernetes writes it.
    Uuid(Uuid),
    /// The name of a volume, which is the prefix `pvc-` and a UUID.
    Volume(Uuid),
    /// Any other text.
    Other(Box<str>),
}

impl From<&str> for Id {
    fn from(text: &str) -> Self {
        match text.strip_prefix(PV_PREFIX) {
            Some(id) => uuid(id).map(Id::Volume),
            None => uuid(text).map(Id::Uuid),
        }
        .unwrap_or_else(|| Id::Other(text.into()))
    }
}

impl fmt::Display for Id {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Id::Uuid(uuid) => uuid.hyphenated().fmt(f),
            Id::Volume(uuid) => write!(f, "{PV_PREFIX}{}", uuid.hyphenated()),
            Id::Other(text) => f.write_str(text),
        }
    }
}

/// Reads a UUID. Returns `None` if its form is not that of Kubernetes, because the text could not be restored.
fn uuid(text: &str) -> Option<Uuid> {
    let is_same = |uuid: &Uuid| uuid.hyphenated().encode_lower(&mut [0; Hyphenated::LENGTH]) == text;
    Uuid::try_parse(text).ok().filter(is_same)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_text_comes_back_as_it_was() {
        for (text, is_uuid) in [
            ("0f8fad5b-d9cb-469f-a165-70867728950e", true),
            ("00000000-0000-0000-0000-000000000000", true),
            ("0F8FAD5B-d9cb-469f-a165-70867728950e", false),
            ("0f8fad5bd9cb469fa16570867728950e", false),
            ("{0f8fad5b-d9cb-469f-a165-70867728950e}", false),
            ("", false),
            ("pvc-", false),
            ("pvc-data", false),
            ("pvc-0F8FAD5B-d9cb-469f-a165-70867728950e", false),
            ("data", false),
        ] {
            let id = Id::from(text);
            assert_eq!((id.to_string().as_str(), matches!(id, Id::Uuid(_))), (text, is_uuid));
        }
        let name = "pvc-0f8fad5b-d9cb-469f-a165-70867728950e";
        assert_eq!((Id::from(name).to_string().as_str(), matches!(Id::from(name), Id::Volume(_))), (name, true));
        assert_eq!(size_of::<Id>(), 24);
    }
}
