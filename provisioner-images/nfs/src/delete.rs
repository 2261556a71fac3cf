//! The deletion of a volume, or of what an unfinished run left of it.

use flex_contract::request::RunRequest;
use flex_image_kit::Failure;

use crate::parameters::{OnDelete, Parameters};
use crate::server::Server;
use crate::{copies, pattern, record, tree};

/// Deletes, archives or keeps the directory, by the volume's own record and nothing else.
///
/// The order of the steps lets each later run continue where this one may die. The path is free for others only after
/// the directory is out of the way, and the volume's record is removed last.
pub async fn delete(server: &Server, parameters: &Parameters, request: &RunRequest) -> Result<(), Failure> {
    let id = &request.volume_id;
    let of_volume = record::of_volume(id);
    let Some(path) = server.read_record(&of_volume).await? else {
        return without_record(server, parameters, request).await;
    };
    record::check_place(request, parameters, &path)?;
    copies::remove_half(server, &path, id).await?;
    let of_path = record::of_path(&path);
    // If another volume owns the path now, an earlier run of this volume has left it.
    let ours = server.read_record(&of_path).await?.is_some_and(|owner| owner == *id);
    match parameters.on_delete {
        // The records stay: the path stays taken, and a second delete run finds nothing to do.
        OnDelete::Keep => return Ok(()),
        OnDelete::Archive if ours => {
            archive(server, &path, id).await?;
        }
        OnDelete::Delete if ours => {
            let rubbish = record::rubbish(&path, id);
            // An earlier delete run, before the last provision run, left this directory, which would be in the way.
            tree::remove(server, &rubbish).await?;
            take_away(server, &path, &rubbish, id).await?;
        }
        OnDelete::Archive | OnDelete::Delete => {}
    }
    server.remove_record_of(&of_path, id).await?;
    if parameters.on_delete == OnDelete::Delete {
        tree::remove(server, &record::rubbish(&path, id)).await?;
    }
    server.remove_record(&of_volume).await
}

/// Renames the volume's directory; a missing one is no error.
///
/// This run may have been suspended since it read the records. Then another run has deleted the volume, and the path may
/// belong to another volume by now. No rename asks whose directory it is, so the run looks at what it has renamed.
async fn take_away(server: &Server, path: &str, to: &str, id: &str) -> Result<(), Failure> {
    let of_path = record::of_path(path);
    let Some(own) = server.handle(path).await? else { return Ok(()) };
    // As long as the record names the volume, the directory is the volume's.
    let is_own = server.read_record(&of_path).await?.is_some_and(|owner| owner == id);
    if !is_own || !server.rename(path, to).await? || server.handle(to).await?.is_none_or(|renamed| renamed == own) {
        return Ok(());
    }
    // Not every server gives a directory one handle for all time. The record decides.
    if server.read_record(&of_path).await?.is_none_or(|owner| owner == id) {
        return Ok(());
    }
    let says = format!("another run has deleted the volume, and the directory {path} belongs to another volume by now");
    match server.has(path).await? {
        false => {
            server.rename(to, path).await?;
            Err(Failure::retry(format!("{says}: this run has deleted nothing")))
        }
        true => Err(Failure::retry(format!("{says}; look at {to}, and move its files there by hand"))),
    }
}

/// Renames the directory to a name that nothing has. A rename replaces an empty directory.
///
/// No other volume can get such a name. So between the look and the rename only another delete run for this volume can
/// take it, with the same directory.
async fn archive(server: &Server, path: &str, id: &str) -> Result<(), Failure> {
    for number in 1..=record::MAX_ARCHIVES {
        let archive = record::archive(path, id, number);
        if !server.has(&archive).await? {
            return take_away(server, path, &archive, id).await;
        }
        // An earlier run has archived the directory.
        if !server.has(path).await? {
            return Ok(());
        }
    }
    Err(Failure::never(format!(
        "the directory {path} has {} archives already: nothing is done; move them to another place by hand",
        record::MAX_ARCHIVES
    )))
}

/// Handles a volume without a record: it was deleted before, or never begun.
async fn without_record(server: &Server, parameters: &Parameters, request: &RunRequest) -> Result<(), Failure> {
    let id = &request.volume_id;
    // A run that died between its two records has claimed a path and made nothing there.
    if let Ok(path) = pattern::path(&parameters.subdirectory, request) {
        server.remove_record_of(&record::of_path(&path), id).await?;
    }
    let Some(path) = record::source_path(&request.volume_source, parameters)? else { return Ok(()) };
    let of_path = record::of_path(&path);
    if server.read_record(&of_path).await?.is_none() && server.has_directory(&path).await? {
        return Err(Failure::never(format!(
            "the directory {path} exists, but no record in {} says that it belongs to this volume: nothing is deleted; \
             take it away by hand if nobody needs it",
            record::FOLDER
        )));
    }
    // The volume was deleted before. But its records were in this folder.
    match server.has(record::FOLDER).await? {
        true => Ok(()),
        false => Err(server.not_mounted()),
    }
}
