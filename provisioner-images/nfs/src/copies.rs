//! Clones and snapshots: copies of a volume's directory, each on the export of its source.
//!
//! A copy is made in a hidden directory and gets its place when the copy is complete. So a run that dies leaves nothing
//! that looks complete, and the next run begins the copy again.
//!
//! Two runs for one copy may overlap. So each run has a name of its own in the hidden directory, and a run that removes
//! the copy of another run renames that copy first. From then on, the other run cannot give the copy its place: it knows
//! only the former name.
//!
//! Snapshots are in the folder of the records, which only root may enter. A delete-snapshot run leaves a tombstone, and a run
//! that makes a snapshot looks for the tombstone when its own directory exists. If the look finds no tombstone, the delete run
//! finds the directory.

use std::hash::{BuildHasher, Hasher, RandomState};

use flex_contract::listing::{Entry, State};
use flex_contract::request::{CloneSource, RunRequest};
use flex_image_kit::Failure;

use crate::parameters::Parameters;
use crate::record::{self, FOLDER, PathParts};
use crate::server::Server;
use crate::{copy, nesting, tree};

/// The prefix of the directory of unfinished copies. The id of the volume or snapshot follows.
const HALF: &str = ".copying-";
/// The prefix of a snapshot that is being deleted.
const DELETING: &str = ".deleting-";
/// The prefix of the name of an unfinished copy that is being removed.
const REMOVED: &str = "removed-";
/// The number of looks at the unfinished copies, because other runs may make some meanwhile.
const ROUNDS: u32 = 5;
/// The mode of the directory of unfinished copies. No user reads a copy before it is complete.
const PRIVATE: u32 = 0o700;
/// The protocol version of a copy where the config leaves the choice: only 4.2 knows the copy by the server, and extended
/// attributes.
const NEWEST: &str = "4.2";

/// Returns the path of a snapshot within the export.
fn of_snapshot(id: &str) -> String {
    format!("{FOLDER}/snapshot-{id}")
}

/// Returns the directory of the unfinished copies. The directory is beside the complete copy, because both must be on one
/// file system.
fn half(path: &str, id: &str) -> String {
    match record::split(path) {
        PathParts { folder: "", .. } => format!("{HALF}{id}"),
        PathParts { folder, .. } => format!("{folder}/{HALF}{id}"),
    }
}

/// Returns the id of the run's snapshot, checked.
pub fn snapshot_id(request: &RunRequest) -> Result<&str, Failure> {
    let id = request.snapshot.as_ref().map_or("", |snapshot| snapshot.id.as_str());
    check_snapshot_id(id).map(|()| id)
}

/// Checks the id of a snapshot, which becomes a part of names on the server. A person may have written it.
fn check_snapshot_id(id: &str) -> Result<(), Failure> {
    record::check_id(id).map_err(|_| {
        Failure::never(format!("SNAPSHOT_ID is {id:?}, which is no snapshot of this image: nothing is done"))
    })
}

/// Returns the directory that a provision run copies; `None` for an empty volume.
pub async fn source(server: &Server, parameters: &Parameters, request: &RunRequest) -> Result<Option<String>, Failure> {
    if request.snapshot.is_some() {
        let id = snapshot_id(request)?;
        let path = of_snapshot(id);
        return match server.has_directory(&path).await? {
            true => Ok(Some(path)),
            false => {
                let lost = format!("the snapshot {id} is not on {}: nothing is made", parameters.location());
                Err(server.missing(Failure::never(lost)).await)
            }
        };
    }
    match &request.clone_of {
        Some(source) => cloned(server, parameters, source).await.map(Some),
        None => Ok(None),
    }
}

/// Returns the directory of a clone's source, which must be its own.
async fn cloned(server: &Server, parameters: &Parameters, source: &CloneSource) -> Result<String, Failure> {
    let CloneSource { id, source: place, moved_in_path, .. } = source;
    record::check_id(id)?;
    let refused = |why: String| Failure::never(format!("volume {id}, the source of the copy, {why}: nothing is made"));
    let named = record::source_path(place, parameters)
        .map_err(|_| refused(format!("is not on {}, but at {place}", parameters.location())))?;
    let Some(path) = owned(server, id).await? else {
        return Err(server.missing(refused(format!("has no directory on {}", parameters.location()))).await);
    };
    if named.as_ref().is_some_and(|named| *named != path)
        || !(moved_in_path.is_empty() || *moved_in_path == format!("{}/{path}", parameters.export))
    {
        return Err(refused(format!("is at {place} {moved_in_path}, but its record on the server names {path}")));
    }
    Ok(path)
}

/// Returns the directory of a volume, if it has one.
async fn owned(server: &Server, id: &str) -> Result<Option<String>, Failure> {
    let Some(path) = server.read_record(&record::of_volume(id)).await? else { return Ok(None) };
    let ours = server.read_record(&record::of_path(&path)).await?.is_some_and(|owner| owner == *id);
    Ok((ours && server.has_directory(&path).await?).then_some(path))
}

/// Makes a complete copy, unless an earlier run did. `id` is that of the new volume or snapshot. Returns whether the copy
/// is new.
pub async fn make(server: &Server, parameters: &Parameters, from: &str, to: &str, id: &str) -> Result<bool, Failure> {
    if server.has_directory(to).await? {
        // A run that died right after it gave the copy its place has left the directory around the copy.
        if let Err(failure) = remove_half(server, to, id).await {
            note_left(&half(to, id), &failure);
        }
        return Ok(false);
    }
    let folder = record::split(to).folder;
    if !folder.is_empty() && folder != FOLDER {
        server.make_directory(folder, 0o755).await?;
        // Another run may have claimed a directory around this one just before the folder existed. No run can claim one
        // from now on, because the folder exists.
        nesting::check(server, to).await?;
    }
    remove_half(server, to, id).await?;
    let half = half(to, id);
    server.make_directory(&half, PRIVATE).await?;
    let own = format!("{half}/{:016x}", random());
    let made = async {
        server.make_inside(&own, PRIVATE).await?;
        // From now on, a run that deletes the snapshot finds this directory, or this run finds the tombstone.
        check_not_deleted(server, to, id).await?;
        copied(parameters, from, &own).await?;
        publish(server, &own, to, id).await
    };
    let made = made.await;
    let cleaned = async {
        if made.is_err() {
            tree::remove(server, &own).await?;
        }
        server.remove_empty(&half).await
    };
    if let Err(failure) = cleaned.await {
        note_left(&half, &failure);
    }
    made.map(|()| true)
}

/// Writes into the log that a directory of unfinished copies stays.
fn note_left(half: &str, failure: &Failure) {
    eprintln!("the unfinished copy {half} stays until the next run, or until the deletion: {failure}");
}

/// Checks that a snapshot was not deleted. A volume has records instead, which its delete run removes.
async fn check_not_deleted(server: &Server, to: &str, id: &str) -> Result<(), Failure> {
    let tombstone = record::of_tombstone(id);
    if to != of_snapshot(id) || server.read_record(&tombstone).await?.is_none() {
        return Ok(());
    }
    Err(Failure::never(format!(
        "the snapshot {id} was deleted, as the link {tombstone} says: nothing is made; if the snapshot must be made again, \
         remove the link"
    )))
}

/// Copies a directory through a connection of its own.
async fn copied(parameters: &Parameters, from: &str, to: &str) -> Result<(), Failure> {
    let copier = connect(parameters).await?;
    let copied = copy::tree(&copier, from, to).await;
    copier.leave().await;
    copied
}

/// Returns a number that no other run has.
fn random() -> u64 {
    RandomState::new().build_hasher().finish()
}

/// Gives a complete copy its place, if the place is still the volume's.
async fn publish(server: &Server, own: &str, to: &str, id: &str) -> Result<(), Failure> {
    let lost =
        || Failure::retry(format!("the volume of the copy {own} was deleted before the copy got its place {to}"));
    if !is_wanted(server, to, id).await? {
        return Err(lost());
    }
    if !server.rename(own, to).await? {
        return Err(Failure::retry(format!("another run removed the copy {own} before the copy got its place {to}")));
    }
    // A delete run may have looked for the directory just before the rename.
    if is_wanted(server, to, id).await? {
        return Ok(());
    }
    withdraw(server, to, id).await?;
    Err(lost())
}

/// Checks whether the records still give a place to its volume. A snapshot has no record.
async fn is_wanted(server: &Server, to: &str, id: &str) -> Result<bool, Failure> {
    if record::split(to).folder == FOLDER {
        return Ok(true);
    }
    server.is_recorded(to, id).await
}

/// Removes a copy that this run has just made.
pub async fn withdraw(server: &Server, path: &str, id: &str) -> Result<(), Failure> {
    remove_renamed(server, path, &record::rubbish(path, id)).await
}

/// Renames a directory, so that no run finds it under its name any more, and removes it.
async fn remove_renamed(server: &Server, path: &str, rubbish: &str) -> Result<(), Failure> {
    // An earlier run may have left this directory, which would be in the way.
    tree::remove(server, rubbish).await?;
    server.rename(path, rubbish).await?;
    tree::remove(server, rubbish).await
}

/// Connects with the newest version of the protocol that the config allows and the server speaks.
async fn connect(parameters: &Parameters) -> Result<Server, Failure> {
    if parameters.versions.len() > 1 {
        if let Some(server) = Server::connect_with(parameters, NEWEST).await? {
            return Ok(server);
        }
        eprintln!("so this image reads and writes each file, and the copy has no extended attributes");
    }
    Server::connect(parameters).await
}

/// Removes the unfinished copies of a volume or snapshot.
///
/// Each copy is renamed before it is removed. A run that is about to give the copy its place has looked up the directory
/// around it already, and would find the copy there, half removed.
pub async fn remove_half(server: &Server, path: &str, id: &str) -> Result<(), Failure> {
    let half = half(path, id);
    if !server.has(&half).await? {
        return Ok(());
    }
    for _ in 0..ROUNDS {
        for name in server.names_in(&half).await? {
            match name.as_str() {
                "." | ".." => {}
                // An earlier run has renamed it.
                name if name.starts_with(REMOVED) => tree::remove(server, &format!("{half}/{name}")).await?,
                name => remove_renamed(server, &format!("{half}/{name}"), &format!("{half}/{REMOVED}{name}")).await?,
            }
        }
        if server.remove_empty(&half).await? {
            return Ok(());
        }
    }
    Err(Failure::retry(format!("other runs make copies in {half} all the time, so it cannot be removed")))
}

/// Makes a snapshot of the run's volume.
pub async fn snapshot(server: &Server, parameters: &Parameters, request: &RunRequest, id: &str) -> Result<(), Failure> {
    let volume = &request.volume_id;
    let Some(path) = owned(server, volume).await? else {
        let at = parameters.location();
        let lost = format!("volume {volume} has no directory on {at}: there is nothing to keep in a snapshot");
        return Err(server.missing(Failure::never(lost)).await);
    };
    record::check_place(request, parameters, &path)?;
    check_not_deleted(server, &of_snapshot(id), id).await?;
    make(server, parameters, &path, &of_snapshot(id), id).await.map(drop)
}

/// Deletes a snapshot, or what an unfinished run left of it.
///
/// The order of the steps matters. Each run that looks for the tombstone after the first step makes nothing. Each other run has
/// its directory among the unfinished copies, and publishes nothing after the second step.
pub async fn delete_snapshot(server: &Server, id: &str) -> Result<(), Failure> {
    server.make_record(&record::of_tombstone(id), "deleted").await?;
    let path = of_snapshot(id);
    remove_half(server, &path, id).await?;
    remove_renamed(server, &path, &record::rubbish(&path, id)).await?;
    if let Err(failure) = remove_old_tombstones(server, id).await {
        eprintln!("old links in {} stay until the next deletion: {failure}", record::TOMBSTONES);
    }
    Ok(())
}

async fn remove_old_tombstones(server: &Server, just_made: &str) -> Result<(), Failure> {
    let tombstones = server.times_in(record::TOMBSTONES).await?;
    for id in record::old_tombstones(&tombstones, just_made) {
        server.remove_record(&record::of_tombstone(id)).await?;
    }
    Ok(())
}

/// Returns an entry for the unfinished copies of a volume, if there is one.
pub async fn leftover(
    server: &Server,
    parameters: &Parameters,
    path: &str,
    id: &str,
) -> Result<Option<Entry>, Failure> {
    let half = half(path, id);
    Ok(server.has_directory(&half).await?.then(|| rubbish(parameters, &half, id)))
}

/// Returns an entry for each name of the folder of the records that an unfinished run for a snapshot left.
pub fn leftovers(parameters: &Parameters, names: &[String]) -> Vec<Entry> {
    let id = |name: &str| {
        let id = name.strip_prefix(HALF).or_else(|| name.strip_prefix(DELETING))?;
        record::check_id(id).ok().map(|()| id.to_owned())
    };
    let found = names.iter().filter_map(|name| Some((name, id(name)?)));
    found.map(|(name, id)| rubbish(parameters, &format!("{FOLDER}/{name}"), &id)).collect()
}

fn rubbish(parameters: &Parameters, path: &str, id: &str) -> Entry {
    let place = format!("{}:{}/{path}", parameters.server, parameters.export);
    Entry { state: State::Rubbish, id: id.to_owned(), bytes: None, place }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ID: &str = "c0ffee00-0000-4000-8000-000000000001";

    #[test]
    fn what_is_removed_is_rubbish_in_the_list() {
        assert_eq!(record::rubbish(&of_snapshot("1"), "1"), format!("{FOLDER}/{DELETING}1"));
        assert_ne!(random(), random(), "two runs have one name");
    }

    #[test]
    fn an_unfinished_copy_is_beside_the_complete_one() {
        assert_eq!(half("a", "1"), ".copying-1");
        assert_eq!(half("t/a", "1"), "t/.copying-1");
        assert_eq!(half(&of_snapshot("1"), "1"), ".flex-provisioner/.copying-1");
    }

    #[test]
    fn a_snapshot_by_hand_leads_nowhere_else() {
        for id in ["", "..", "../x", "a/b", "volume-x"] {
            let failure = check_snapshot_id(id).unwrap_err();
            assert!(failure.code == 65 && failure.message.contains("SNAPSHOT_ID"), "{failure}");
        }
        check_snapshot_id(ID).unwrap();
    }

    #[test]
    fn leftovers_of_snapshots_are_rubbish_and_snapshots_are_not() {
        let parameters = Parameters::from_env(|name| match name {
            "SERVER" => Some("nas".into()),
            "EXPORT" => Some("/e".into()),
            _ => None,
        })
        .unwrap()
        .remove(0);
        let names = [format!("{HALF}{ID}"), format!("{DELETING}{ID}"), format!("snapshot-{ID}"), format!("{HALF}x")];
        let found = leftovers(&parameters, &names);
        assert_eq!(found.len(), 2);
        assert!(found.iter().all(|entry| entry.id == ID && entry.state == State::Rubbish));
        assert_eq!(found[0].place, format!("nas:/e/.flex-provisioner/.copying-{ID}"));
    }
}
