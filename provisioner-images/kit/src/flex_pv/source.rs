//! The volume sources, from the short forms of the command line.

use flex_manifest::Manifest;
use k8s_openapi::api::core::v1::{
    CSIPersistentVolumeSource, HostPathVolumeSource, ISCSIPersistentVolumeSource, LocalVolumeSource, NFSVolumeSource,
    PersistentVolume, PersistentVolumeSpec,
};

/// Reads `SERVER:/PATH`, where the server may be an IPv6 address in brackets.
pub fn nfs(text: &str) -> Result<PersistentVolumeSpec, String> {
    let wrong =
        || format!("--nfs `{text}` is not SERVER:/PATH, such as nas.example:/exports/a or [fd00::1]:/exports/a");
    let (server, path) = match text.strip_prefix('[') {
        Some(rest) => rest.split_once("]:").ok_or_else(wrong)?,
        None => text.split_once(':').ok_or_else(wrong)?,
    };
    if server.is_empty() || server.contains(char::is_whitespace) || !path.starts_with('/') {
        return Err(wrong());
    }
    let path = absolute("--nfs", path)?;
    let source = NFSVolumeSource { server: server.into(), path, read_only: None };
    Ok(PersistentVolumeSpec { nfs: Some(source), ..PersistentVolumeSpec::default() })
}

/// Reads an absolute path on the node, for a hostPath volume.
pub fn host_path(text: &str) -> Result<PersistentVolumeSpec, String> {
    let source = HostPathVolumeSource { path: absolute("--host-path", text)?, type_: None };
    Ok(PersistentVolumeSpec { host_path: Some(source), ..PersistentVolumeSpec::default() })
}

/// Reads an absolute path on the node, for a local volume.
pub fn local(text: &str) -> Result<PersistentVolumeSpec, String> {
    let source = LocalVolumeSource { path: absolute("--local", text)?, fs_type: None };
    Ok(PersistentVolumeSpec { local: Some(source), ..PersistentVolumeSpec::default() })
}

/// Reads `PORTAL,IQN,LUN`.
pub fn iscsi(text: &str) -> Result<PersistentVolumeSpec, String> {
    let wrong = || format!("--iscsi `{text}` is not PORTAL,IQN,LUN, such as 10.0.0.5:3260,iqn.2026-01.example:disk,0");
    let parts: Vec<&str> = text.split(',').collect();
    let [portal, iqn, lun] = parts[..] else { return Err(wrong()) };
    let lun: i32 = lun.parse().map_err(|_| wrong())?;
    if portal.is_empty() || iqn.is_empty() || !(0..=255).contains(&lun) {
        return Err(wrong());
    }
    let source = ISCSIPersistentVolumeSource {
        target_portal: portal.into(),
        iqn: iqn.into(),
        lun,
        ..ISCSIPersistentVolumeSource::default()
    };
    Ok(PersistentVolumeSpec { iscsi: Some(source), ..PersistentVolumeSpec::default() })
}

/// Reads `DRIVER,HANDLE`. A handle may contain commas, but a driver's name never does.
pub fn csi(text: &str) -> Result<PersistentVolumeSpec, String> {
    match text.split_once(',') {
        Some((driver, handle)) if !driver.is_empty() && !handle.is_empty() => {
            let source = CSIPersistentVolumeSource {
                driver: driver.into(),
                volume_handle: handle.into(),
                ..CSIPersistentVolumeSource::default()
            };
            Ok(PersistentVolumeSpec { csi: Some(source), ..PersistentVolumeSpec::default() })
        }
        _ => Err(format!("--csi `{text}` is not DRIVER,HANDLE, such as csi.example.com,vol-1")),
    }
}

/// Reads a PersistentVolume from YAML, which may also be only its spec.
pub fn yaml(text: &str) -> Result<PersistentVolume, String> {
    let options = || serde_saphyr::options! { legacy_octal_numbers: true };
    let wrong = |error: serde_saphyr::Error| format!("--from: {error}");
    let volume = PersistentVolume::from_yaml(text, options()).map_err(wrong)?;
    if volume.spec.is_some() {
        return Ok(volume);
    }
    let spec = PersistentVolumeSpec::from_yaml(text, options()).map_err(wrong)?;
    Ok(PersistentVolume { spec: Some(spec), ..volume })
}

/// Checks that a path is absolute and has no `..`. Kubernetes refuses `..`, and a relative path has no meaning on a
/// node or server.
fn absolute(flag: &str, path: &str) -> Result<String, String> {
    if !path.starts_with('/') {
        return Err(format!("{flag}: `{path}` is not an absolute path"));
    }
    if path.split('/').any(|part| part == "..") {
        return Err(format!("{flag}: `{path}` contains `..`; write the path without it"));
    }
    Ok(path.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_nfs_server_may_have_any_kind_of_address() {
        for (text, server, path) in [
            ("nas:/a", "nas", "/a"),
            ("10.0.0.1:/", "10.0.0.1", "/"),
            ("[fd00::1]:/a:b", "fd00::1", "/a:b"),
            ("nas.example:/a:/b", "nas.example", "/a:/b"),
        ] {
            let source = nfs(text).unwrap().nfs.unwrap();
            assert_eq!((source.server.as_str(), source.path.as_str()), (server, path), "{text}");
        }
    }

    #[test]
    fn a_handle_may_contain_commas() {
        let source = csi("csi.example,a,b").unwrap().csi.unwrap();
        assert_eq!((source.driver.as_str(), source.volume_handle.as_str()), ("csi.example", "a,b"));
    }

    #[test]
    fn an_invalid_source_is_refused_with_the_right_form() {
        type Form = fn(&str) -> Result<PersistentVolumeSpec, String>;
        let table: [(Form, &str, &[&str]); 5] = [
            (nfs, "SERVER:/PATH", &["", "nas", "nas:", "nas:a", ":/a", "fd00::1:/a", "[fd00::1:/a", "a b:/x"]),
            (iscsi, "PORTAL,IQN,LUN", &["", "a,b", "a,b,c", "a,b,256", "a,b,-1", "a,b,1,2", ",b,1"]),
            (csi, "DRIVER,HANDLE", &["", "a", "a,", ",b"]),
            (local, "--local", &["", "a", "/a/../b", ".."]),
            (host_path, "--host-path", &["", "./a", "/.."]),
        ];
        for (form, says, texts) in table {
            for text in texts {
                let error = form(text).expect_err(text);
                assert!(error.contains(says), "{text}: {error}");
            }
        }
    }

    #[test]
    fn yaml_is_a_volume_or_its_spec() {
        for text in ["spec: {nfs: {server: a, path: /b}}", "nfs: {server: a, path: /b}"] {
            assert_eq!(yaml(text).unwrap().spec.unwrap().nfs.unwrap().server, "a", "{text}");
        }
        for text in ["kind: Pod\nspec: {}", "nfs: 5", "{", "- a"] {
            assert!(yaml(text).is_err(), "{text}");
        }
    }
}
