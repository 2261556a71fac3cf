//! The check of the key `storage-mounts`: whether the config's `pod-template` allows the mounts that the key names.

use flex_contract::names::CONTAINER;
use k8s_openapi::api::core::v1::{Container, Volume, VolumeMount};

use super::reader::Reader;
use crate::config::Recipe;
use crate::config::keys;
use crate::config::values::{is_clean_absolute, list};

/// Capabilities with which a process reaches files without a path to them.
const REACHES_ALL: &[&str] = &["ALL", "SYS_ADMIN", "DAC_READ_SEARCH", "SYS_MODULE", "SYS_RAWIO"];

/// Reads the list of paths.
pub(super) fn paths(text: &str) -> Result<Vec<String>, String> {
    let paths = list(text)?;
    let is_path = |path: &str| is_clean_absolute(path) && path.len() > 1 && !path.ends_with('/') && !path.contains(',');
    match paths.iter().find(|path| !is_path(path)) {
        Some(path) => Err(format!("`{path}` is not a path at which `pod-template` mounts, such as /var/lib/volumes")),
        None => Ok(paths),
    }
}

/// Refuses everything in the template that would let a run see more than its own storage.
pub(super) fn check(r: &mut Reader<'_>, recipe: &Recipe) {
    if recipe.storage_mounts.is_empty() {
        return;
    }
    let spec = recipe.pod_template.as_ref().and_then(|template| template.spec.as_ref());
    let container = spec.and_then(|spec| spec.containers.iter().find(|container| container.name == CONTAINER));
    let mounts: Vec<&VolumeMount> = container.iter().flat_map(|c| c.volume_mounts.iter().flatten()).collect();
    let volumes: Vec<&Volume> = spec.iter().flat_map(|spec| spec.volumes.iter().flatten()).collect();
    for path in &recipe.storage_mounts {
        if let Some(why) = mismatch(path, &mounts, &volumes) {
            r.fail(&keys::STORAGE_MOUNTS, why);
        }
    }
    let of_pod = spec.and_then(|spec| match (spec.host_pid, spec.share_process_namespace) {
        (Some(true), _) => Some("`hostPID`".to_owned()),
        (_, Some(true)) => Some("`shareProcessNamespace`".to_owned()),
        _ => None,
    });
    if let Some(right) = of_pod.or_else(|| container.and_then(reaches_all)) {
        r.fail(&keys::STORAGE_MOUNTS, format!("cannot confine a run to its own volume, because `pod-template` gives the run {right}, with which it reaches the storage in other ways: remove {right}, or this key"));
    }
}

/// Returns the reason why parts of the mount at a path cannot be mounted alone.
fn mismatch(path: &str, mounts: &[&VolumeMount], volumes: &[&Volume]) -> Option<String> {
    let Some(mount) = mounts.iter().find(|mount| mount.mount_path == path) else {
        return Some(format!(
            "`{path}` is a path at which `pod-template` mounts nothing into the container `provisioner`"
        ));
    };
    if mount.sub_path.is_some() || mount.sub_path_expr.is_some() || mount.read_only == Some(true) {
        return Some(format!(
            "`{path}` must be mounted whole and writable in `pod-template`: the provisioner sets `subPath` and `readOnly` for each run"
        ));
    }
    let of = |name: &str| volumes.iter().find(|volume| volume.name == name);
    let on_node =
        |name: &str| of(name).and_then(|volume| volume.host_path.as_ref()).map(|on_node| on_node.path.as_str());
    let own = on_node(&mount.name);
    let shows = |other: &&&VolumeMount| {
        let overlaps = own.zip(on_node(&other.name)).is_some_and(|(own, other)| is_in(own, other) || is_in(other, own));
        other.name == mount.name || overlaps
    };
    let other = mounts.iter().filter(|other| other.mount_path != mount.mount_path).find(shows)?;
    Some(format!(
        "`{path}` shows a run only its own volume, but `pod-template` mounts the same storage at `{}`, too",
        other.mount_path
    ))
}

/// Checks whether a path is a directory or something in it.
fn is_in(path: &str, directory: &str) -> bool {
    let rest = path.trim_end_matches('/').strip_prefix(directory.trim_end_matches('/'));
    rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

/// Returns the setting by which a container reaches its node in other ways.
fn reaches_all(container: &Container) -> Option<String> {
    let security = container.security_context.as_ref()?;
    if security.privileged == Some(true) {
        return Some("`privileged`".into());
    }
    let mut added = security.capabilities.iter().flat_map(|capabilities| capabilities.add.iter().flatten());
    let name = |capability: &String| capability.to_ascii_uppercase().trim_start_matches("CAP_").to_owned();
    added
        .find(|capability| REACHES_ALL.contains(&name(capability).as_str()))
        .map(|found| format!("the capability {found}"))
}
