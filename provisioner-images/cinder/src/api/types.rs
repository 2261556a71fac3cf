//! What Cinder says of its objects, as far as it matters here.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::Value;

use crate::trouble::{Kind, Trouble};

/// A volume.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
pub struct Volume {
    /// Cinder's id of it.
    pub id: String,
    /// Its name.
    #[serde(default)]
    pub name: Option<String>,
    /// `creating`, `available`, `attaching` and so on.
    pub status: String,
    /// Its size in GiB.
    pub size: u64,
    /// When it was made; comparable as text.
    #[serde(default)]
    pub created_at: String,
    /// What stands on it.
    #[serde(default)]
    pub metadata: BTreeMap<String, String>,
    /// Its type, where it has one.
    #[serde(default)]
    pub volume_type: Option<String>,
    /// The zone it is in.
    #[serde(default)]
    pub availability_zone: Option<String>,
}

/// A snapshot.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
pub struct Snapshot {
    /// Cinder's id of it.
    pub id: String,
    /// Its name.
    #[serde(default)]
    pub name: Option<String>,
    /// `creating`, `available`, `error` and so on.
    pub status: String,
    /// The size of its volume in GiB.
    pub size: u64,
}

/// How a volume is reached.
#[derive(Clone, PartialEq, Eq)]
pub struct Connection {
    /// `iscsi`, `rbd`, `fibre_channel` and so on.
    pub kind: String,
    /// What there is to know; it may hold passwords.
    pub data: Value,
}

/// A part of a backend.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pool {
    /// The name by which volume types choose it.
    pub backend: String,
    /// What is free, in whole GiB; none where the backend says that it has no end, or does not know.
    pub free: Option<u64>,
}

fn read<'a, T: Deserialize<'a>>(json: &'a Value, what: &str) -> Result<T, Trouble> {
    T::deserialize(json)
        .map_err(|error| Trouble::new(Kind::Config, format!("Cinder describes a {what} in an unknown form: {error}")))
}

impl Volume {
    /// Its size in bytes; the largest number for one that no number has.
    pub fn bytes(&self) -> u64 {
        self.size.saturating_mul(crate::run::GIB)
    }

    /// As Cinder describes it.
    pub fn of(json: &Value) -> Result<Self, Trouble> {
        read(json, "volume")
    }
}

impl Snapshot {
    /// As Cinder describes it.
    pub fn of(json: &Value) -> Result<Self, Trouble> {
        read(json, "snapshot")
    }
}

impl Connection {
    /// As Cinder describes it.
    pub fn of(json: &Value) -> Result<Self, Trouble> {
        match json["driver_volume_type"].as_str() {
            Some(kind) => Ok(Self { kind: kind.to_owned(), data: json["data"].clone() }),
            None => Err(Trouble::new(Kind::Config, "Cinder does not say of what kind the connection to the volume is")),
        }
    }
}

impl Pool {
    /// As Cinder describes it. `infinite` and `unknown` stand in place of numbers.
    fn of_capabilities(capabilities: &Value) -> Self {
        let number = |key: &str| capabilities[key].as_f64();
        let total = number("total_capacity_gb").unwrap_or(0.0);
        let reserved = total * number("reserved_percentage").unwrap_or(0.0) / 100.0;
        let free = number("free_capacity_gb").map(|free| (free - reserved).max(0.0) as u64);
        Self { backend: capabilities["volume_backend_name"].as_str().unwrap_or_default().to_owned(), free }
    }

    /// As Cinder describes it.
    pub fn of(json: &Value) -> Self {
        Self::of_capabilities(&json["capabilities"])
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn what_is_free_is_without_the_reserve() {
        for (free, reserved, expected) in [
            (json!(100.7), 0, Some(100)),
            (json!(100), 10, Some(80)),
            (json!(5), 10, Some(0)),
            (json!("infinite"), 0, None),
            (json!("unknown"), 0, None),
        ] {
            let pool = json!({ "name": "a@b#c", "capabilities": {
                "volume_backend_name": "b", "total_capacity_gb": 200, "free_capacity_gb": free, "reserved_percentage": reserved,
            } });
            assert_eq!(Pool::of(&pool).free, expected, "{pool}");
        }
    }
}
