//! The provision run: claims the path, makes the directory or a copy, and creates the PersistentVolume.

use flex_contract::request::RunRequest;
use flex_contract::volume::{Made, persistent_volume};
use flex_contract::volume_mode::VolumeMode;
use flex_image_kit::{Failure, cluster};
use k8s_openapi::api::core::v1::{NFSVolumeSource, PersistentVolumeSpec};

use crate::parameters::Parameters;
use crate::server::Server;
use crate::{copies, nesting, pattern, record};

/// Why a volume cannot be made on an export. The exit code does not decide whether another export may serve the claim: a
/// path that is taken on one export may be free on the next one.
#[derive(Debug)]
pub enum Fault {
    /// No other export would do better: the claim gives no path, or another run for the volume is under way.
    EachExport(Failure),
    /// This export does not serve the claim, and the next one may.
    ThisExport(Failure),
}

impl From<Failure> for Fault {
    fn from(failure: Failure) -> Self {
        Fault::ThisExport(failure)
    }
}

impl From<Fault> for Failure {
    fn from(fault: Fault) -> Self {
        match fault {
            Fault::EachExport(failure) | Fault::ThisExport(failure) => failure,
        }
    }
}

/// Refuses what this image cannot make.
pub fn check(request: &RunRequest) -> Result<(), Failure> {
    if request.volume_mode == VolumeMode::Block {
        return Err(Failure::never("volumeMode Block is not possible: NFS has directories, not block devices"));
    }
    Ok(())
}

/// Makes the volume's directory or a copy, or continues where an earlier run stopped. Returns its path.
pub async fn make(server: &Server, parameters: &Parameters, request: &RunRequest) -> Result<String, Fault> {
    let source = copies::source(server, parameters, request).await?;
    let path = claimed_path(server, parameters, request).await?;
    let is_new = match &source {
        // A copy has the mode and the owner of its source.
        Some(source) => copies::make(server, parameters, source, &path, &request.volume_id).await?,
        None => make_empty(server, parameters, &path, &request.volume_id).await?,
    };
    // Another run may have claimed a directory around this one, and have found nothing there.
    if let Some(around) = nesting::around(server, &path).await? {
        match source {
            // The users of that directory must not read the copy.
            Some(_) if is_new => copies::withdraw(server, &path, &request.volume_id).await?,
            None if is_new => drop(server.remove_empty(&path).await?),
            _ => {}
        }
        return Err(nesting::refused(&path, &around).into());
    }
    if source.is_none() {
        server.set(&path, parameters.mode, parameters.owner, parameters.group).await?;
    }
    Ok(path)
}

/// Makes an empty directory, if the records still give the path to the volume. Returns whether it is new.
async fn make_empty(server: &Server, parameters: &Parameters, path: &str, id: &str) -> Result<bool, Fault> {
    let is_new = server.make_directory(path, parameters.mode).await?;
    // A run that was suspended before this step may wake up after the deletion.
    if server.is_recorded(path, id).await? {
        return Ok(is_new);
    }
    if is_new {
        server.remove_empty(path).await?;
    }
    Err(Fault::EachExport(Failure::retry(format!("the volume was deleted before its directory {path} was made"))))
}

/// Creates the PersistentVolume of a directory.
pub async fn create(parameters: &Parameters, request: &RunRequest, path: &str, dry_run: bool) -> Result<(), Failure> {
    let source = NFSVolumeSource {
        server: parameters.server.clone(),
        path: format!("{}/{path}", parameters.export),
        read_only: None,
    };
    let source = PersistentVolumeSpec { nfs: Some(source), ..PersistentVolumeSpec::default() };
    let volume = persistent_volume(request, Made { source, ..Made::default() });
    if dry_run {
        return cluster::print(&volume);
    }
    cluster::create(cluster::connect().await?, &volume, cluster::API_RETRY_TIMEOUT).await
}

/// Returns the volume's path within the export: the recorded one, or a new one by the pattern.
async fn claimed_path(server: &Server, parameters: &Parameters, request: &RunRequest) -> Result<String, Fault> {
    let id = &request.volume_id;
    let of_volume = record::of_volume(id);
    if let Some(path) = server.read_record(&of_volume).await? {
        // The path is claimed already, unless a delete run died after it had released the path.
        claim(server, &path, id, true).await?;
        return Ok(path);
    }
    let path = pattern::path(&parameters.subdirectory, request).map_err(Fault::EachExport)?;
    claim(server, &path, id, false).await?;
    if server.make_record(&of_volume, &path).await? || server.read_record(&of_volume).await?.as_ref() == Some(&path) {
        return Ok(path);
    }
    server.remove_record_of(&record::of_path(&path), id).await?;
    Err(Fault::EachExport(Failure::retry(format!(
        "another run for this volume has just recorded another place than {path}"
    ))))
}

/// Makes the path this volume's own, or refuses if it belongs to another volume.
///
/// Only a path without a directory can be claimed. A run that finds its own claim may use the directory there, because
/// an earlier run of the same volume made it after claiming the path. `is_recorded` says whether the volume had its own
/// record before.
async fn claim(server: &Server, path: &str, id: &str, is_recorded: bool) -> Result<(), Failure> {
    let of_path = record::of_path(path);
    let owner = match server.read_record(&of_path).await? {
        Some(owner) => owner,
        None if server.has_directory(path).await? => match server.read_record(&of_path).await? {
            // Another run for this volume may have made the record and the directory since the first look.
            Some(owner) => owner,
            None => return Err(taken(path, "somebody else (it was not made by this image)")),
        },
        None if new_record(server, path, id, is_recorded).await? => return Ok(()),
        // Another run was faster.
        None => server.read_record(&of_path).await?.unwrap_or_default(),
    };
    if owner == id {
        return Ok(());
    }
    // The message becomes an event of this claim's user, and the log is for the admin.
    eprintln!("the directory {path} belongs to volume {owner}");
    Err(taken(path, "another volume, which the log of this run names,"))
}

/// Records that the path is the volume's. Returns false if another run was faster.
///
/// No volume is in the directory of another one, whose users could change it, and whose deletion would delete it.
async fn new_record(server: &Server, path: &str, id: &str, is_recorded: bool) -> Result<bool, Failure> {
    nesting::check(server, path).await?;
    if !server.make_record(&record::of_path(path), id).await? {
        return Ok(false);
    }
    // Another run may have claimed a directory around this one meanwhile, or in this one.
    let conflict = match nesting::around(server, path).await? {
        Some(around) => nesting::refused(path, &around),
        None if server.has_directory(path).await? => {
            // Another run for this volume has found the new record, and has made the other one and the directory.
            if !is_recorded && server.read_record(&record::of_volume(id)).await?.is_some_and(|other| other == path) {
                return Ok(true);
            }
            taken(path, "somebody else (another run has just made it)")
        }
        None => return Ok(true),
    };
    server.remove_record_of(&record::of_path(path), id).await?;
    Err(conflict)
}

fn taken(path: &str, by: &str) -> Failure {
    Failure::never(format!(
        "the directory {path} belongs to {by} already, so this claim cannot have it; give the parameter `subdirectory` \
         a part that is different for each volume, such as ${{pv.name}}"
    ))
}
