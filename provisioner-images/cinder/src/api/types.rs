//! Cinder's objects, with the fields that the image needs.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::Value;

use crate::trouble::{Kind, Trouble};

/// GiB, the unit of Cinder, in bytes.
pub const GIB: u64 = 1 << 30;

/// A volume in Cinder.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
pub struct Volume {
    /// Cinder's id of the volume.
    pub id: String,
    /// The name of the volume.
    #[serde(default)]
    pub name: Option<String>,
    /// The status: `creating`, `available`, `attaching` and so on.
    pub status: String,
    /// The size in GiB.
    pub size: u64,
    /// The time of its creation; comparable as text.
    #[serde(default)]
    pub created_at: String,
    /// The metadata of the volume.
    #[serde(default)]
    pub metadata: BTreeMap<String, String>,
    /// The volume type, if it has one.
    #[serde(default)]
    pub volume_type: Option<String>,
    /// The availability zone.
    #[serde(default)]
    pub availability_zone: Option<String>,
}

/// A snapshot in Cinder.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
pub struct Snapshot {
    /// Cinder's id of the snapshot.
    pub id: String,
    /// The name of the snapshot.
    #[serde(default)]
    pub name: Option<String>,
    /// The status: `creating`, `available`, `error` and so on.
    pub status: String,
    /// The size of the snapshot's volume, in GiB.
    pub size: u64,
}

/// The way to reach a volume.
#[derive(Clone, PartialEq, Eq)]
pub struct Connection {
    /// The kind: `iscsi`, `rbd`, `fibre_channel` and so on.
    pub kind: String,
    /// The details, which may contain passwords.
    pub data: Value,
}

/// A pool: a part of a backend.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pool {
    /// The backend's name, by which volume types choose it.
    pub backend: String,
    /// The free space in whole GiB; `None` if the backend says that it is infinite or unknown.
    pub free: Option<u64>,
}

fn read<'a, T: Deserialize<'a>>(json: &'a Value, what: &str) -> Result<T, Trouble> {
    T::deserialize(json)
        .map_err(|error| Trouble::new(Kind::Config, format!("Cinder describes a {what} in an unknown form: {error}")))
}

impl Volume {
    /// Returns the size in bytes; the largest number if it is too large for any.
    pub fn bytes(&self) -> u64 {
        self.size.saturating_mul(GIB)
    }

    /// Reads Cinder's description.
    pub fn of(json: &Value) -> Result<Self, Trouble> {
        read(json, "volume")
    }
}

impl Snapshot {
    /// Reads Cinder's description.
    pub fn of(json: &Value) -> Result<Self, Trouble> {
        read(json, "snapshot")
    }
}

impl Connection {
    /// Reads Cinder's description.
    pub fn of(json: &Value) -> Result<Self, Trouble> {
        match json["driver_volume_type"].as_str() {
            Some(kind) => Ok(Self { kind: kind.to_owned(), data: json["data"].clone() }),
            None => Err(Trouble::new(Kind::Config, "Cinder does not say of what kind the connection to the volume is")),
        }
    }
}

impl Pool {
    /// Reads Cinder's description. `infinite` and `unknown` may be in place of numbers.
    fn of_capabilities(capabilities: &Value) -> Self {
        let number = |key: &str| capabilities[key].as_f64();
        let total = number("total_capacity_gb").unwrap_or(0.0);
        let reserved = total * number("reserved_percentage").unwrap_or(0.0) / 100.0;
        let free = number("free_capacity_gb").map(|free| (free - reserved).max(0.0) as u64);
        Self { backend: capabilities["volume_backend_name"].as_str().unwrap_or_default().to_owned(), free }
    }

    /// Reads Cinder's description.
    pub fn of(json: &Value) -> Self {
        Self::of_capabilities(&json["capabilities"])
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn free_capacity_excludes_the_reserve() {
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
