//! Ceph: attached by the Ceph CSI driver as a static volume, or by the kubelet up to Kubernetes 1.30.

use std::collections::BTreeMap;

use flex_image_kit::Failure;
use k8s_openapi::api::core::v1::{
    CSIPersistentVolumeSource, PersistentVolumeSpec, RBDPersistentVolumeSource, SecretReference,
};
use serde_json::Value;

use super::kind::{Credentials, Growth, Mapped, Mapper, Target, is_read_only, lacking, some, text};
use crate::parameters::{Parameters, RbdForm};

/// The mapper for Ceph.
pub struct Rbd;

impl Mapper for Rbd {
    fn kind(&self) -> &'static str {
        "rbd"
    }

    fn grows(&self, parameters: &Parameters) -> Growth {
        match parameters.rbd_form {
            RbdForm::Csi => Growth::OnTheNode,
            RbdForm::InTree => Growth::BlockOnly,
        }
    }

    fn map(&self, data: &Value, target: &Target<'_>) -> Result<Mapped, Failure> {
        let name = text(data, "name").ok_or_else(|| lacking("rbd", "name"))?;
        let (pool, image) = name.rsplit_once('/').ok_or_else(|| lacking("rbd", "name of the form POOL/IMAGE"))?;
        let user = text(data, "auth_username").unwrap_or_else(|| "admin".into());
        let login = login(data, &user, target)?;
        match target.parameters.rbd_form {
            RbdForm::Csi => csi(pool, image, login, data, target),
            RbdForm::InTree => in_tree(pool, image, &user, login, data, target),
        }
    }
}

/// The login of the kubelet at Ceph.
#[derive(Default)]
struct Login {
    /// The Secret with Ceph's key.
    secret_ref: Option<SecretReference>,
    /// The contents of that Secret, if it is the volume's own.
    secret: Option<Credentials>,
}

/// Returns the Secret with Ceph's key: the volume's own if Cinder returns the key, or the admin's.
fn login(data: &Value, user: &str, target: &Target<'_>) -> Result<Login, Failure> {
    if let Some(name) = &target.parameters.ceph_secret {
        let secret_ref = SecretReference { name: Some(name.clone()), ..target.secret.clone() };
        return Ok(Login { secret_ref: Some(secret_ref), secret: None });
    }
    let key = text(data, "keyring").and_then(|keyring| key_of(&keyring));
    let (kind, data) = match (key, data["auth_enabled"].as_bool() != Some(false), target.parameters.rbd_form) {
        (None, false, RbdForm::InTree) => return Ok(Login::default()),
        (None, _, _) => {
            return Err(Failure::config(format!(
                "Cinder does not tell the key of Ceph's user `{user}`: make a Secret with it (userID and userKey for rbd-form csi, \
                 key for in-tree) in the namespace {} and name it in the parameter `ceph-secret`",
                target.secret.namespace.as_deref().unwrap_or_default()
            )));
        }
        (Some(key), _, RbdForm::Csi) => {
            ("Opaque", BTreeMap::from([("userID".to_owned(), user.to_owned()), ("userKey".to_owned(), key)]))
        }
        (Some(key), _, RbdForm::InTree) => ("kubernetes.io/rbd", BTreeMap::from([("key".to_owned(), key)])),
    };
    Ok(Login { secret_ref: Some(target.secret.clone()), secret: Some(Credentials { kind, data }) })
}

/// Returns the key in a keyring, or the text itself.
fn key_of(keyring: &str) -> Option<String> {
    let keyring = keyring.trim();
    if !keyring.contains(['[', '\n']) {
        return some(keyring);
    }
    let lines = keyring.lines().filter_map(|line| line.split_once('='));
    let mut keys = lines.filter(|(key, _)| key.trim() == "key");
    keys.next().and_then(|(_, value)| some(value.trim()))
}

fn csi(pool: &str, image: &str, login: Login, data: &Value, target: &Target<'_>) -> Result<Mapped, Failure> {
    let parameters = target.parameters;
    let Some(cluster) = &parameters.ceph_cluster else {
        return Err(Failure::config(
            "`ceph-cluster` is missing: with rbd-form csi it must be the clusterID under which the Ceph CSI driver of this \
             Kubernetes knows the Ceph cluster (in its ConfigMap ceph-csi-config)",
        ));
    };
    let attributes = [
        ("clusterID", cluster.as_str()),
        ("pool", pool),
        ("imageFeatures", parameters.ceph_features.as_str()),
        // The driver did not make the image: the image's name is the handle.
        ("staticVolume", "true"),
    ];
    let Login { secret_ref, secret } = login;
    let source = CSIPersistentVolumeSource {
        driver: parameters.ceph_driver.clone(),
        volume_handle: image.to_owned(),
        volume_attributes: Some(attributes.map(|(key, value)| (key.to_owned(), value.to_owned())).into()),
        node_stage_secret_ref: secret_ref.clone(),
        node_expand_secret_ref: secret_ref,
        fs_type: some(target.fs_type),
        read_only: is_read_only(data),
        ..CSIPersistentVolumeSource::default()
    };
    Ok(Mapped { source: PersistentVolumeSpec { csi: Some(source), ..PersistentVolumeSpec::default() }, secret })
}

fn in_tree(
    pool: &str,
    image: &str,
    user: &str,
    login: Login,
    data: &Value,
    target: &Target<'_>,
) -> Result<Mapped, Failure> {
    let list = |key: &str| -> Vec<String> {
        let values = data[key].as_array().into_iter().flatten();
        values.map(|value| value.as_str().map_or_else(|| value.to_string(), str::to_owned)).collect()
    };
    let monitors: Vec<String> =
        list("hosts").iter().zip(list("ports")).map(|(host, port)| format!("{host}:{port}")).collect();
    if monitors.is_empty() {
        return Err(lacking("rbd", "hosts and ports"));
    }
    let Login { secret_ref, secret } = login;
    let source = RBDPersistentVolumeSource {
        monitors,
        image: image.to_owned(),
        pool: some(pool),
        user: some(user),
        secret_ref,
        fs_type: some(target.fs_type),
        read_only: is_read_only(data),
        ..RBDPersistentVolumeSource::default()
    };
    Ok(Mapped { source: PersistentVolumeSpec { rbd: Some(source), ..PersistentVolumeSpec::default() }, secret })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn data() -> Value {
        json!({
            "name": "volumes/volume-1", "hosts": ["10.0.0.1", "10.0.0.2"], "ports": ["6789", 6790], "cluster_name": "ceph",
            "auth_enabled": true, "auth_username": "cinder", "secret_type": "ceph", "secret_uuid": "s",
            "keyring": "[client.cinder]\n\tkey = AQBs==\n\tcaps mon = \"x\"\n",
        })
    }

    fn map(data: Value, parameters: &Parameters) -> Result<Mapped, Failure> {
        Rbd.map(&data, &super::super::kind::target(parameters, "ext4"))
    }

    fn parameters(form: RbdForm) -> Parameters {
        Parameters {
            rbd_form: form,
            ceph_driver: "rbd.csi.ceph.com".into(),
            ceph_cluster: Some("c".into()),
            ceph_features: "layering".into(),
            ..Parameters::default()
        }
    }

    #[test]
    fn the_ceph_csi_driver_gets_its_source() {
        let mapped = map(data(), &parameters(RbdForm::Csi)).unwrap();
        let secret = json!({ "name": "flex-cinder-1", "namespace": "flex" });
        assert_eq!(
            serde_json::to_value(mapped.source.csi.unwrap()).unwrap(),
            json!({
                "driver": "rbd.csi.ceph.com", "volumeHandle": "volume-1", "fsType": "ext4",
                "volumeAttributes": { "clusterID": "c", "pool": "volumes", "imageFeatures": "layering", "staticVolume": "true" },
                "nodeStageSecretRef": secret, "nodeExpandSecretRef": secret,
            })
        );
        let secret = mapped.secret.unwrap();
        assert_eq!((secret.data["userID"].as_str(), secret.data["userKey"].as_str()), ("cinder", "AQBs=="));
    }

    #[test]
    fn an_old_kubelet_gets_an_in_tree_source() {
        let mapped = map(data(), &parameters(RbdForm::InTree)).unwrap();
        assert_eq!(
            serde_json::to_value(mapped.source.rbd.unwrap()).unwrap(),
            json!({
                "monitors": ["10.0.0.1:6789", "10.0.0.2:6790"], "image": "volume-1", "pool": "volumes", "user": "cinder",
                "fsType": "ext4", "secretRef": { "name": "flex-cinder-1", "namespace": "flex" },
            })
        );
        let secret = mapped.secret.unwrap();
        assert_eq!((secret.kind, secret.data["key"].as_str()), ("kubernetes.io/rbd", "AQBs=="));
    }

    #[test]
    fn a_key_that_cinder_does_not_return_is_in_the_admin_s_secret() {
        let mut data = data();
        data["keyring"] = Value::Null;
        let failure = map(data.clone(), &parameters(RbdForm::Csi)).unwrap_err();
        assert!(failure.code == 78 && failure.message.contains("`ceph-secret`"), "{failure}");
        let with = Parameters { ceph_secret: Some("ceph".into()), ..parameters(RbdForm::Csi) };
        let mapped = map(data, &with).unwrap();
        assert_eq!(mapped.secret, None);
        let reference = mapped.source.csi.unwrap().node_stage_secret_ref.unwrap();
        assert_eq!((reference.name.as_deref(), reference.namespace.as_deref()), (Some("ceph"), Some("flex")));
    }

    #[test]
    fn data_without_a_source_are_refused() {
        let without = |key: &str| {
            let mut data = data();
            data[key] = Value::Null;
            data
        };
        assert!(map(without("name"), &parameters(RbdForm::Csi)).unwrap_err().message.contains("name"));
        assert!(map(without("hosts"), &parameters(RbdForm::InTree)).unwrap_err().message.contains("hosts"));
        let nameless = Parameters { ceph_cluster: None, ..parameters(RbdForm::Csi) };
        let failure = map(data(), &nameless).unwrap_err();
        assert!(failure.code == 78 && failure.message.contains("`ceph-cluster`"), "{failure}");
        assert_eq!(key_of("AQ=="), Some("AQ==".into()));
        assert_eq!(key_of("[client.x]\ncaps = y"), None);
    }
}
