//! iSCSI: the kubelet logs in to the target itself, with CHAP if Cinder says so.

use flex_image_kit::Failure;
use k8s_openapi::api::core::v1::{ISCSIPersistentVolumeSource, PersistentVolumeSpec};
use serde_json::Value;

use super::kind::{Credentials, Growth, Mapped, Mapper, Target, is_read_only, lacking, some, text};
use crate::parameters::Parameters;

/// The mapper for iSCSI.
pub struct Iscsi;

impl Mapper for Iscsi {
    fn kind(&self) -> &'static str {
        "iscsi"
    }

    fn grows(&self, _: &Parameters) -> Growth {
        Growth::BlockOnly
    }

    fn map(&self, data: &Value, target: &Target<'_>) -> Result<Mapped, Failure> {
        let paths = paths(data);
        let Some(IscsiPath { portal, iqn, lun }) = paths.first().cloned() else {
            return Err(lacking("iscsi", "target_portal, target_iqn and target_lun"));
        };
        let lun = i32::try_from(lun).map_err(|_| lacking("iscsi", "LUN that Kubernetes can name"))?;
        // The kubelet supports one target with several portals. Paths to other targets are left out: one path is
        // enough.
        let mut portals: Vec<String> = Vec::new();
        for other in &paths[1..] {
            let same_target = other.iqn == iqn && other.lun == i64::from(lun);
            if same_target && other.portal != portal && !portals.contains(&other.portal) {
                portals.push(other.portal.clone());
            }
        }
        let secret = chap(data)?;
        let source = ISCSIPersistentVolumeSource {
            target_portal: portal,
            portals: (!portals.is_empty()).then_some(portals),
            iqn,
            lun,
            initiator_name: some(&target.parameters.initiator),
            chap_auth_session: secret.is_some().then_some(true),
            chap_auth_discovery: secret.as_ref().is_some_and(has_discovery).then_some(true),
            secret_ref: secret.is_some().then(|| target.secret.clone()),
            fs_type: some(target.fs_type),
            read_only: is_read_only(data),
            ..ISCSIPersistentVolumeSource::default()
        };
        Ok(Mapped { source: PersistentVolumeSpec { iscsi: Some(source), ..PersistentVolumeSpec::default() }, secret })
    }
}

/// A path to the volume.
#[derive(Clone)]
struct IscsiPath {
    portal: String,
    /// The name of the target.
    iqn: String,
    lun: i64,
}

/// Returns all paths: the single one first, then those of the plural form.
fn paths(data: &Value) -> Vec<IscsiPath> {
    let mut paths = Vec::new();
    if let (Some(portal), Some(iqn), Some(lun)) =
        (text(data, "target_portal"), text(data, "target_iqn"), data["target_lun"].as_i64())
    {
        paths.push(IscsiPath { portal, iqn, lun });
    }
    let texts = |key: &str| data[key].as_array().cloned().unwrap_or_default();
    let (portals, iqns, luns) = (texts("target_portals"), texts("target_iqns"), texts("target_luns"));
    for ((portal, iqn), lun) in portals.iter().zip(&iqns).zip(&luns) {
        if let (Some(portal), Some(iqn), Some(lun)) = (portal.as_str(), iqn.as_str(), lun.as_i64()) {
            paths.push(IscsiPath { portal: portal.to_owned(), iqn: iqn.to_owned(), lun });
        }
    }
    paths
}

/// Returns the credentials for CHAP, in the form that the kubelet reads.
fn chap(data: &Value) -> Result<Option<Credentials>, Failure> {
    let Some(method) = text(data, "auth_method") else { return Ok(None) };
    if method != "CHAP" {
        return Err(Failure::config(format!(
            "Cinder's iscsi connection asks for the login method `{method}`, and the kubelet knows CHAP alone: set up the \
             backend with CHAP or without a login"
        )));
    }
    let mut credentials = Credentials { kind: "kubernetes.io/iscsi-chap", data: Default::default() };
    for (method, keys) in [("auth", "node.session.auth"), ("discovery_auth", "discovery.sendtargets.auth")] {
        if method == "discovery_auth" && text(data, "discovery_auth_method").as_deref() != Some("CHAP") {
            continue;
        }
        let (Some(user), Some(password)) =
            (text(data, &format!("{method}_username")), text(data, &format!("{method}_password")))
        else {
            return Err(lacking("iscsi", &format!("{method}_username and {method}_password")));
        };
        credentials.data.insert(format!("{keys}.username"), user);
        credentials.data.insert(format!("{keys}.password"), password);
    }
    Ok(Some(credentials))
}

fn has_discovery(credentials: &Credentials) -> bool {
    credentials.data.contains_key("discovery.sendtargets.auth.username")
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn map(data: Value) -> Result<Mapped, Failure> {
        let parameters = Parameters { initiator: "iqn.a:b".into(), ..Parameters::default() };
        Iscsi.map(&data, &super::super::kind::target(&parameters, "xfs"))
    }

    #[test]
    fn chap_and_portals_become_a_source() {
        let mapped = map(json!({
            "target_portal": "10.0.0.1:3260", "target_iqn": "iqn.t", "target_lun": 1,
            "target_portals": ["10.0.0.1:3260", "10.0.0.2:3260", "10.0.0.3:3260", "10.0.0.4:3260"],
            "target_iqns": ["iqn.t", "iqn.t", "iqn.other", "iqn.t"], "target_luns": [1, 1, 1, 2],
            "auth_method": "CHAP", "auth_username": "u", "auth_password": "p", "access_mode": "rw",
        }))
        .unwrap();
        let source = serde_json::to_value(mapped.source.iscsi.as_ref().unwrap()).unwrap();
        assert_eq!(
            source,
            json!({
                "targetPortal": "10.0.0.1:3260", "portals": ["10.0.0.2:3260"], "iqn": "iqn.t", "lun": 1, "fsType": "xfs",
                "initiatorName": "iqn.a:b", "chapAuthSession": true,
                "secretRef": { "name": "flex-cinder-1", "namespace": "flex" },
            })
        );
        let secret = mapped.secret.unwrap();
        assert_eq!(secret.kind, "kubernetes.io/iscsi-chap");
        assert_eq!(secret.data["node.session.auth.username"], "u");
        assert_eq!(secret.data["node.session.auth.password"], "p");
        assert_eq!(secret.data.len(), 2);
        assert!(!format!("{secret:?}").contains("\"p\""), "{secret:?}");
    }

    #[test]
    fn without_a_login_there_is_no_secret() {
        let mapped = map(json!({ "target_portal": "[fd00::1]:3260", "target_iqn": "iqn.t", "target_lun": 0 })).unwrap();
        let source = mapped.source.iscsi.unwrap();
        assert_eq!((source.secret_ref, source.chap_auth_session, source.portals), (None, None, None));
        assert_eq!(mapped.secret, None);
        let plural = map(json!({ "target_portals": ["a:1", "b:1"], "target_iqns": ["i", "i"], "target_luns": [3, 3] }));
        let source = plural.unwrap().source.iscsi.unwrap();
        assert_eq!((source.target_portal.as_str(), source.lun), ("a:1", 3));
        assert_eq!(source.portals.as_deref(), Some(&["b:1".to_owned()][..]));
    }

    #[test]
    fn discovery_may_need_a_login_of_its_own() {
        let mut data = json!({
            "target_portal": "a", "target_iqn": "i", "target_lun": 0, "auth_method": "CHAP", "auth_username": "u",
            "auth_password": "p", "discovery_auth_method": "CHAP", "discovery_auth_username": "d", "discovery_auth_password": "q",
        });
        let mapped = map(data.clone()).unwrap();
        assert_eq!(mapped.source.iscsi.unwrap().chap_auth_discovery, Some(true));
        assert_eq!(mapped.secret.unwrap().data["discovery.sendtargets.auth.password"], "q");
        data["discovery_auth_password"] = Value::Null;
        assert_eq!(map(data).unwrap_err().code, 75);
    }

    #[test]
    fn data_without_a_source_are_refused() {
        for (data, code, says) in [
            (json!({}), 75, "target_portal"),
            (json!({ "target_portal": "a", "target_iqn": "i", "target_lun": "x" }), 75, "target_lun"),
            (json!({ "target_portal": "a", "target_iqn": "i", "target_lun": 0, "auth_method": "SRP" }), 78, "`SRP`"),
            (
                json!({ "target_portal": "a", "target_iqn": "i", "target_lun": 0, "auth_method": "CHAP" }),
                75,
                "auth_username",
            ),
        ] {
            let failure = map(data.clone()).unwrap_err();
            assert_eq!(failure.code, code, "{data}");
            assert!(failure.message.contains(says), "{data}: {failure}");
        }
    }
}
