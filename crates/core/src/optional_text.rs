//! The form of an optional text where a record always has a text: empty stands for none.

use serde::{Deserialize as _, Deserializer, Serializer};

#[expect(clippy::ref_option, reason = "serde gives a reference to the field")]
pub fn serialize<S: Serializer>(text: &Option<String>, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(text.as_deref().unwrap_or_default())
}

pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<String>, D::Error> {
    Ok(Some(String::deserialize(deserializer)?).filter(|text| !text.is_empty()))
}
