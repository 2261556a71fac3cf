//! Directories that the image did not make: they move in with records of their own, and keep their place.

use flex_contract::request::RunRequest;
use flex_contract::storage;
use flex_image_kit::{Failure, nested};

use crate::list::{RecordedVolume, recorded};
use crate::nesting::OwnedDirectory;
use crate::parameters::Parameters;
use crate::server::Server;
use crate::{nesting, record};

/// Checks that the directory exists, and records that it is this volume's. A repeated run finds its own records.
pub async fn move_in(server: &Server, parameters: &Parameters, request: &RunRequest) -> Result<(), Failure> {
    let id = &request.volume_id;
    let path = place(parameters, request)?;
    if !server.has_directory(&path).await? {
        return Err(Failure::never(format!(
            "the directory {path} is not on the server: there is nothing that could move in"
        )));
    }
    record::check_length(&path, id)?;
    let (of_path, of_volume) = (record::of_path(&path), record::of_volume(id));
    if let Some(other) = server.read_record(&of_volume).await?.filter(|other| *other != path) {
        return Err(Failure::never(format!("volume {id} has the directory {other} already: nothing is done")));
    }
    let is_new = make(server, &of_path, id, &format!("the directory {path} belongs to volume")).await?;
    // A run that claims a directory looks for one around it after it has made its record, as this run does. So one of
    // both notices.
    if let Err(failure) = apart(server, &path, id).await {
        if is_new {
            server.remove_record_of(&of_path, id).await?;
        }
        return Err(failure);
    }
    make(server, &of_volume, &path, &format!("volume {id} has just got the directory")).await.map(drop)
}

/// Checks that the directory is not in that of another volume, and that no other volume is in it.
async fn apart(server: &Server, path: &str, id: &str) -> Result<(), Failure> {
    if let Some(OwnedDirectory { path: around, owner }) = nesting::around(server, path).await? {
        return Err(Failure::never(format!(
            "the directory {path} is in {around}, which belongs to volume {owner}: nothing is done"
        )));
    }
    let others = recorded(server).await?;
    let mut others = others.iter().filter(|other| other.id != id);
    match others.find(|other| nested::overlap(&other.path, path)) {
        Some(RecordedVolume { id: other, path: at }) => Err(Failure::never(format!(
            "the directory {path} has files in common with {at}, which belongs to volume {other}: nothing is done"
        ))),
        None => Ok(()),
    }
}

/// Removes the records of the volume. The directory stays.
pub async fn move_out(server: &Server, parameters: &Parameters, request: &RunRequest) -> Result<(), Failure> {
    let id = &request.volume_id;
    let path = place(parameters, request)?;
    let (of_path, of_volume) = (record::of_path(&path), record::of_volume(id));
    match server.read_record(&of_volume).await? {
        Some(other) if other != path => {
            return Err(Failure::never(format!("volume {id} has the directory {other}, not {path}: nothing is done")));
        }
        _ => {}
    }
    server.remove_record_of(&of_path, id).await?;
    server.remove_record(&of_volume).await
}

/// Makes a record, unless it has this text already. Returns whether it is new.
async fn make(server: &Server, name: &str, text: &str, otherwise: &str) -> Result<bool, Failure> {
    if server.make_record(name, text).await? {
        return Ok(true);
    }
    match server.read_record(name).await?.unwrap_or_default() {
        present if present == text => Ok(false),
        present => Err(Failure::never(format!("{otherwise} {present}: nothing is done"))),
    }
}

/// Returns the path within the export, which the volume's source and its record must both name.
fn place(parameters: &Parameters, request: &RunRequest) -> Result<String, Failure> {
    let path = &request.moved_in_path;
    let refused = |why: &str| Err(Failure::never(format!("`{path}` {why}: nothing is done")));
    let Some(within) = record::source_path(&request.volume_source, parameters)? else {
        return Err(Failure::never("VOLUME_SOURCE is empty: nothing is done"));
    };
    if storage::moved_in(path).is_none() || within.split('/').any(|name| name.starts_with('.')) {
        return refused("is no path of storage that can move in");
    }
    if *path != format!("{}/{within}", parameters.export) {
        return refused(&format!("is not the path of the volume, {}/{within}", parameters.export));
    }
    Ok(within)
}
