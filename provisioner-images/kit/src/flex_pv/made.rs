//! The step from the typed arguments to the facts about the volume. All problems are reported at once.

use std::collections::BTreeMap;

use flex_contract::operation::Operation;
use flex_contract::quantity;
use flex_contract::request::RunRequest;
use flex_contract::volume::{Made, VOLUME_SOURCE_KINDS, volume_source_kind};
use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeSpec};

use super::args::Create;
use super::source;
use crate::{Failure, affinity};

/// Checks the arguments against each other and the request. `read` returns the text of the file of `--from`.
///
/// # Errors
/// If there are problems. The message has all of them.
pub fn made(
    create: Create,
    request: &RunRequest,
    pod_node: Option<&str>,
    read: impl FnOnce(&str) -> Result<String, Failure>,
) -> Result<Made, Failure> {
    is_asked_for(request, create.copied)?;
    let mut problems = Vec::new();
    let volume = given_source(&create, read)?;
    let mut spec = volume.spec.unwrap_or_default();
    let Some(kind) = volume_source_kind(&spec) else {
        return Err(Failure::usage(format!(
            "--from: give exactly one volume source, one of {}",
            VOLUME_SOURCE_KINDS.join(", ")
        )));
    };
    problems.extend(set_fs_type(&mut spec, kind, create.fs_type, &request.fs_type).err());
    problems.extend(set_read_only(&mut spec, kind, create.read_only).err());

    let mut annotations = volume.metadata.annotations.unwrap_or_default();
    annotations.extend(pairs("--annotation", &create.annotation, &mut problems));
    let mut reachable_from = pairs("--affinity", &create.affinity, &mut problems);
    let stands_on_a_node = matches!(kind, "local" | "hostPath") && spec.node_affinity.is_none();
    if create.on_this_node.unwrap_or(stands_on_a_node) {
        match affinity::this_node(request, pod_node) {
            Ok(node) => reachable_from.extend(node),
            Err(failure) => problems.push(failure.message),
        }
    }
    if spec.node_affinity.is_some() && !reachable_from.is_empty() {
        problems.push("the file of --from has a nodeAffinity, and the command line another: drop one of them".into());
    }
    let in_file = spec.capacity.as_ref().and_then(|capacity| capacity.get("storage")).map(|size| size.0.clone());
    let size_bytes = create.size.or(in_file).and_then(|size| match size_of(&size, request) {
        Ok(bytes) => Some(bytes),
        Err(problem) => {
            problems.push(problem);
            None
        }
    });
    if problems.is_empty() {
        Ok(Made { source: spec, size_bytes, reachable_from, annotations })
    } else {
        Err(Failure::usage(problems.join("\n")))
    }
}

/// Returns the volume source that was typed, or the volume in the file of `--from`.
fn given_source(
    create: &Create,
    read: impl FnOnce(&str) -> Result<String, Failure>,
) -> Result<PersistentVolume, Failure> {
    let typed = [
        create.nfs.as_deref().map(source::nfs),
        create.host_path.as_deref().map(source::host_path),
        create.local.as_deref().map(source::local),
        create.iscsi.as_deref().map(source::iscsi),
        create.csi.as_deref().map(source::csi),
    ];
    match (typed.into_iter().flatten().next(), &create.from) {
        (Some(spec), _) => spec
            .map(|spec| PersistentVolume { spec: Some(spec), ..PersistentVolume::default() })
            .map_err(Failure::usage),
        (None, Some(file)) => source::yaml(&read(file)?).map_err(Failure::usage),
        (None, None) => Err(Failure::usage("no volume source was given")),
    }
}

/// Reads the size of the volume, in bytes. It is at least the size that the claim requests.
fn size_of(size: &str, request: &RunRequest) -> Result<u64, String> {
    let bytes = quantity::bytes(size).map_err(|error| format!("--size: {error}"))?;
    if bytes < request.size_bytes {
        let (real, asked) = (quantity::quantity(bytes).0, quantity::quantity(request.size_bytes).0);
        return Err(format!("the volume has {real}, less than the {asked} that the claim asks for"));
    }
    Ok(bytes)
}

/// Checks whether the run asks for a new volume with this content. An image in Rust that makes no copies calls this
/// too, before it makes anything.
///
/// # Errors
/// If the run asks for something else. The message says what, and what to do.
pub fn is_asked_for(request: &RunRequest, copied: bool) -> Result<(), Failure> {
    let operation = request.operation;
    if operation != Operation::Provision {
        let way_out = match operation.capability() {
            Some(name) => format!("take `{name}` out of the `capabilities` of the provisioner config, or let"),
            None => "let".to_owned(),
        };
        return Err(Failure::never(format!(
            "OPERATION is {operation}, and a PersistentVolume is created by provision runs alone: {way_out} the image \
             do that (or say that it cannot: `flex-pv fail never`) for an OPERATION other than provision"
        )));
    }
    let (what, capability) = match (&request.clone_of, &request.snapshot) {
        _ if copied => return Ok(()),
        (Some(source), _) => (format!("a copy of the volume {} (CLONE_OF)", source.id), "clone"),
        (None, Some(snapshot)) => (format!("restored from the snapshot {} (SNAPSHOT_ID)", snapshot.id), "snapshot"),
        (None, None) => return Ok(()),
    };
    Err(Failure::never(format!(
        "the volume is to be {what}, and nothing says that the image has filled it: take `{capability}` out of the \
         `capabilities` of the provisioner config; or let the image copy the content, and then call `flex-pv create \
         --copied`"
    )))
}

/// Sets the class's file system for sources that the kubelet formats. A directory has none.
fn set_fs_type(spec: &mut PersistentVolumeSpec, kind: &str, typed: Option<String>, asked: &str) -> Result<(), String> {
    let default = (!asked.is_empty()).then(|| asked.to_owned());
    match (&mut spec.local, &mut spec.iscsi, &mut spec.csi) {
        (Some(local), _, _) => local.fs_type = typed.or_else(|| local.fs_type.take()),
        (_, Some(iscsi), _) => iscsi.fs_type = typed.or_else(|| iscsi.fs_type.take()).or(default),
        (_, _, Some(csi)) => csi.fs_type = typed.or_else(|| csi.fs_type.take()).or(default),
        _ if typed.is_some() => return Err(format!("--fs-type has no meaning for {kind}")),
        _ => {}
    }
    Ok(())
}

fn set_read_only(spec: &mut PersistentVolumeSpec, kind: &str, read_only: bool) -> Result<(), String> {
    if !read_only {
        return Ok(());
    }
    match (&mut spec.nfs, &mut spec.iscsi, &mut spec.csi) {
        (Some(nfs), _, _) => nfs.read_only = Some(true),
        (_, Some(iscsi), _) => iscsi.read_only = Some(true),
        (_, _, Some(csi)) => csi.read_only = Some(true),
        _ => return Err(format!("--read-only has no meaning for {kind}")),
    }
    Ok(())
}

fn pairs(flag: &str, texts: &[String], problems: &mut Vec<String>) -> BTreeMap<String, String> {
    let mut pairs = BTreeMap::new();
    for text in texts {
        match text.split_once('=') {
            Some((key, value)) if !key.is_empty() => {
                pairs.insert(key.to_owned(), value.to_owned());
            }
            _ => problems.push(format!("{flag} `{text}` is not KEY=VALUE")),
        }
    }
    pairs
}
