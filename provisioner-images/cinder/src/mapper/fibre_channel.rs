//! Fibre Channel: the kubelet looks for the LUN behind all ports of the array that Cinder names.

use flex_image_kit::Failure;
use k8s_openapi::api::core::v1::{FCVolumeSource, PersistentVolumeSpec};
use serde_json::Value;

use super::kind::{Growth, Mapped, Mapper, Target, is_read_only, lacking, some};
use crate::parameters::Parameters;

/// The mapper for Fibre Channel.
pub struct FibreChannel;

impl Mapper for FibreChannel {
    fn kind(&self) -> &'static str {
        "fibre_channel"
    }

    fn grows(&self, _: &Parameters) -> Growth {
        Growth::BlockOnly
    }

    fn map(&self, data: &Value, target: &Target<'_>) -> Result<Mapped, Failure> {
        // Some drivers write a single port as a text.
        let wwns: Vec<String> = match &data["target_wwn"] {
            Value::String(one) => vec![one.clone()],
            Value::Array(all) => all.iter().filter_map(Value::as_str).map(str::to_owned).collect(),
            _ => Vec::new(),
        };
        let wwns: Vec<String> = wwns.iter().map(|wwn| wwn.to_lowercase().replace(':', "")).collect();
        let luns = match &data["target_luns"] {
            Value::Array(luns) => luns.iter().filter_map(Value::as_i64).collect(),
            _ => Vec::new(),
        };
        let lun = data["target_lun"].as_i64().or(luns.first().copied());
        let (false, Some(lun)) = (wwns.is_empty(), lun) else {
            return Err(lacking("fibre_channel", "target_wwn and target_lun"));
        };
        if luns.iter().any(|other| *other != lun) {
            return Err(Failure::config(
                "the storage system shows the volume under another LUN at each port, which a PersistentVolume cannot say: set up \
                 the backend so that the LUN is the same at all ports",
            ));
        }
        let source = FCVolumeSource {
            target_wwns: Some(wwns),
            lun: Some(i32::try_from(lun).map_err(|_| lacking("fibre_channel", "LUN that Kubernetes can name"))?),
            fs_type: some(target.fs_type),
            read_only: is_read_only(data),
            wwids: None,
        };
        let source = PersistentVolumeSpec { fc: Some(source), ..PersistentVolumeSpec::default() };
        Ok(Mapped { source, secret: None })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn map(data: Value) -> Result<Value, Failure> {
        let parameters = Parameters::default();
        let mapped = FibreChannel.map(&data, &super::super::kind::target(&parameters, ""))?;
        assert_eq!(mapped.secret, None);
        Ok(serde_json::to_value(mapped.source.fc.unwrap()).unwrap())
    }

    #[test]
    fn one_port_or_several_become_a_source() {
        for (data, expected) in [
            (
                json!({ "target_wwn": ["500A0981891B8DC5", "50:0a:09:81:99:1b:8d:c5"], "target_lun": 7 }),
                json!({ "targetWWNs": ["500a0981891b8dc5", "500a0981991b8dc5"], "lun": 7 }),
            ),
            (
                json!({ "target_wwn": "500A0981891B8DC5", "target_lun": 0, "access_mode": "ro" }),
                json!({ "targetWWNs": ["500a0981891b8dc5"], "lun": 0, "readOnly": true }),
            ),
            (json!({ "target_wwn": ["a", "b"], "target_luns": [2, 2] }), json!({ "targetWWNs": ["a", "b"], "lun": 2 })),
        ] {
            assert_eq!(map(data.clone()).unwrap(), expected, "{data}");
        }
    }

    #[test]
    fn data_without_a_source_are_refused() {
        for (data, code) in [
            (json!({}), 75),
            (json!({ "target_wwn": [], "target_lun": 1 }), 75),
            (json!({ "target_wwn": ["a"] }), 75),
            (json!({ "target_wwn": ["a", "b"], "target_lun": 1, "target_luns": [1, 2] }), 78),
        ] {
            assert_eq!(map(data.clone()).unwrap_err().code, code, "{data}");
        }
    }
}
