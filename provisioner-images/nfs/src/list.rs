//! The list of the export's volumes, by the records of this image.

use flex_contract::listing::{Entry, State};
use flex_image_kit::Failure;
use futures::{StreamExt, TryStreamExt};

use crate::parameters::{OnDelete, Parameters};
use crate::server::Server;
use crate::{copies, record};

/// The number of volumes that are checked at one time. It hides the latency of the server without flooding it.
const MAX_CONCURRENT: usize = 16;

/// Returns an entry for each volume that has a record and a directory.
///
/// A record without its directory is no volume: either its run has not made the directory yet, or the data are lost.
pub async fn list(server: &Server, parameters: &Parameters) -> Result<Vec<Entry>, Failure> {
    let names = server.names_in(record::FOLDER).await?;
    let mut entries: Vec<Entry> = futures::stream::iter(ids(&names))
        .map(async |id| entry(server, parameters, &id).await)
        .buffer_unordered(MAX_CONCURRENT)
        .try_filter_map(|entry| std::future::ready(Ok(entry)))
        .try_collect()
        .await?;
    entries.extend(copies::leftovers(parameters, &names));
    Ok(entries)
}

/// Returns the ids of all volumes that have a record, from the names of the records.
fn ids(names: &[String]) -> Vec<String> {
    let ids = names.iter().filter_map(|name| name.strip_prefix(record::VOLUME));
    ids.filter(|id| record::check_id(id).is_ok()).map(str::to_owned).collect()
}

/// A volume that has a record.
pub struct RecordedVolume {
    /// The id.
    pub id: String,
    /// The path of its directory.
    pub path: String,
}

/// Returns the volumes that have a record.
pub async fn recorded(server: &Server) -> Result<Vec<RecordedVolume>, Failure> {
    let names = server.names_in(record::FOLDER).await?;
    futures::stream::iter(ids(&names))
        .map(async |id| Ok(server.read_record(&record::of_volume(&id)).await?.map(|path| RecordedVolume { id, path })))
        .buffer_unordered(MAX_CONCURRENT)
        .try_filter_map(|found| std::future::ready(Ok(found)))
        .try_collect()
        .await
}

async fn entry(server: &Server, parameters: &Parameters, id: &str) -> Result<Option<Entry>, Failure> {
    // The volume was deleted a moment ago.
    let Some(path) = server.read_record(&record::of_volume(id)).await? else { return Ok(None) };
    let entry = |state, path: &str| Entry {
        state,
        id: id.to_owned(),
        bytes: None,
        place: format!("{}:{}/{path}", parameters.server, parameters.export),
    };
    // With `keep`, nothing on the server distinguishes a volume from one that was deleted and kept.
    let state = if parameters.on_delete == OnDelete::Keep { State::Kept } else { State::Volume };
    // If another volume owns the path now, this one has left it.
    let ours = server.read_record(&record::of_path(&path)).await?.is_some_and(|owner| owner == id);
    if ours && server.has_directory(&path).await? {
        return Ok(Some(entry(state, &path)));
    }
    let rubbish = record::rubbish(&path, id);
    match server.has_directory(&rubbish).await? {
        true => Ok(Some(entry(State::Rubbish, &rubbish))),
        false => copies::leftover(server, parameters, &path, id).await,
    }
}
