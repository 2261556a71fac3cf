//! The exports of a config, and which of them serves a run.
//!
//! Runs for a volume go to the export that the volume's source names. A delete run also asks the exports that notes name,
//! because an earlier run may have left something there, and waits for them.

use flex_contract::request::RunRequest;
use flex_image_kit::{Failure, capacity, listing};
use futures::future::join_all;
use std::collections::BTreeSet;
use std::time::Duration;

use crate::parameters::{OnDelete, Parameters};
use crate::server::Server;
use crate::{choice, copies, delete, expand, list, moving, pattern, record, waiting};

/// The time for the answer of one of several exports, when another may serve the run.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(8);

/// An export that answers.
pub struct Export<'a> {
    /// The connection.
    pub server: Server,
    /// The parameters of this export.
    pub parameters: &'a Parameters,
}

/// The answers of all exports.
pub struct Answers<'a> {
    /// The exports that answer.
    pub present: Vec<Export<'a>>,
    away: Vec<(&'a Parameters, Failure)>,
}

/// Does some work on an export within a time.
pub async fn limited<T, E: From<Failure>>(
    parameters: &Parameters,
    time: Duration,
    work: impl Future<Output = Result<T, E>>,
) -> Result<T, E> {
    match tokio::time::timeout(time, work).await {
        Ok(outcome) => outcome,
        Err(_) => Err(E::from(Failure::retry(format!(
            "{} gave no answer within {} s",
            parameters.location(),
            time.as_secs()
        )))),
    }
}

/// Asks all exports at the same time.
pub async fn ask(all: &[Parameters]) -> Answers<'_> {
    let connect = async |parameters| limited(parameters, ANSWER_TIMEOUT, Server::connect(parameters)).await;
    let connected = match all {
        [only] => vec![Server::connect(only).await],
        several => join_all(several.iter().map(connect)).await,
    };
    let mut answers = Answers { present: Vec::new(), away: Vec::new() };
    for (parameters, connected) in all.iter().zip(connected) {
        match connected {
            Ok(server) => answers.present.push(Export { server, parameters }),
            Err(failure) => answers.away.push((parameters, failure)),
        }
    }
    answers
}

impl Answers<'_> {
    /// Returns why an export gives no answer.
    pub fn failure(&self, of: &Parameters) -> Option<Failure> {
        self.away.iter().find(|(parameters, _)| *parameters == of).map(|(_, failure)| failure.clone())
    }

    /// Ends all sessions.
    pub async fn leave(self) {
        for export in self.present {
            export.server.leave().await;
        }
    }

    /// Returns the failure if an export is away, with the words for what the run waits for.
    fn all_present(&self, all: &[Parameters], words: fn(&Parameters) -> String) -> Result<(), Failure> {
        let Some((away, failure)) = self.away.first() else { return Ok(()) };
        Err(waiting::explained(all, failure.clone(), &words(away)))
    }
}

/// A storage: its identity, and the number of its file system on its server.
pub type Storage = (String, u64);

impl Export<'_> {
    /// Returns whether none of these storages is that of this export, and adds it to them. A copy of another storage has
    /// the same identity, but is another file system.
    pub async fn is_new(&self, identity: Option<String>, known: &mut Vec<Storage>) -> Result<bool, Failure> {
        let Some(identity) = identity else { return Ok(true) };
        let storage = (identity, self.server.file_system().await?);
        if known.contains(&storage) {
            return Ok(false);
        }
        known.push(storage);
        Ok(true)
    }
}

/// Checks whether an earlier run began the volume on an export.
pub async fn holds(server: &Server, parameters: &Parameters, request: &RunRequest) -> Result<bool, Failure> {
    if server.read_record(&record::of_volume(&request.volume_id)).await?.is_some() {
        return Ok(true);
    }
    // The run may have died between its two records.
    let Ok(path) = pattern::path(&parameters.subdirectory, request) else { return Ok(false) };
    Ok(server.read_record(&record::of_path(&path)).await?.is_some_and(|owner| owner == request.volume_id))
}

/// Returns the export of the run's volume; `None` for a volume that has no source yet.
fn of_volume_source<'a>(all: &'a [Parameters], request: &RunRequest) -> Result<Option<&'a Parameters>, Failure> {
    let mut problem = None;
    for parameters in all {
        match record::source_path(&request.volume_source, parameters) {
            Ok(Some(_)) => return Ok(Some(parameters)),
            Ok(None) => return Ok(None),
            Err(failure) => problem = Some(failure),
        }
    }
    problem.map_or(Ok(None), Err)
}

/// Deletes the volume where it is. Without a source, a run may have begun it on each of the exports.
pub async fn delete(all: &[Parameters], request: &RunRequest) -> Result<(), Failure> {
    match of_volume_source(all, request)? {
        Some(parameters) => {
            let server = connected(all, parameters, waiting::for_volume).await?;
            let outcome = delete_with_notes(&server, parameters, all, request).await;
            server.leave().await;
            outcome
        }
        None => {
            let answers = ask(all).await;
            let outcome = delete_everywhere(&answers, all, request).await;
            answers.leave().await;
            outcome
        }
    }
}

/// Connects to the export of a volume. A failure says what waits for the export.
async fn connected(all: &[Parameters], own: &Parameters, words: fn(&Parameters) -> String) -> Result<Server, Failure> {
    Server::connect(own).await.map_err(|failure| waiting::explained(all, failure, &words(own)))
}

async fn delete_with_notes(
    server: &Server,
    parameters: &Parameters,
    all: &[Parameters],
    request: &RunRequest,
) -> Result<(), Failure> {
    delete::delete(server, parameters, request).await?;
    if all.len() > 1 {
        remove_begin_notes(server, parameters, all, &request.volume_id).await?;
    }
    for other in all.iter().filter(|other| *other != parameters) {
        let note = record::of_note(&request.volume_id, other);
        if server.read_record(&note).await?.is_none() {
            continue;
        }
        let removed = remove_leftover(other, &note, all, request).await;
        removed
            .map_err(|failure| waiting::explained(all, failure, &waiting::for_leftover(parameters, other, &note)))?;
        server.remove_record(&note).await?;
    }
    Ok(())
}

/// Removes what an earlier run left on another export than that of the volume.
async fn remove_leftover(
    other: &Parameters,
    note: &str,
    all: &[Parameters],
    request: &RunRequest,
) -> Result<(), Failure> {
    let there = Server::connect(other).await?;
    let removed = async {
        // No export has a note about itself. So this one is the export of the volume by another name, or a copy of it.
        if there.read_record(note).await?.is_some() {
            return Ok(());
        }
        // No volume leads to what an earlier run left there.
        let parameters = Parameters { on_delete: OnDelete::Delete, ..other.clone() };
        delete::delete(&there, &parameters, &record::without_source(request)).await?;
        remove_notes(&there, &request.volume_id, all).await
    };
    let removed = removed.await;
    there.leave().await;
    removed
}

/// Removes the notes of a run that died before it removed them. The export of the volume has one, too. An export that is
/// away keeps its note, which nothing reads any more.
async fn remove_begin_notes(server: &Server, own: &Parameters, all: &[Parameters], id: &str) -> Result<(), Failure> {
    let note = record::of_begin(id);
    if server.read_record(&note).await?.is_none() {
        return Ok(());
    }
    let remove = async |other: &Parameters| {
        let there = Server::connect(other).await?;
        let removed = there.remove_record(&note).await;
        there.leave().await;
        removed
    };
    let others = all.iter().filter(|other| *other != own);
    for outcome in join_all(others.map(|other| limited(other, ANSWER_TIMEOUT, remove(other)))).await {
        if let Err(failure) = outcome {
            eprintln!("the record {note} may stay there: {failure}");
        }
    }
    server.remove_record(&note).await
}

/// Deletes the volume of a claim that never got a PersistentVolume, on each export.
async fn delete_everywhere(answers: &Answers<'_>, all: &[Parameters], request: &RunRequest) -> Result<(), Failure> {
    let mut outcome = Ok(());
    for Export { server, parameters } in &answers.present {
        let deleted = delete::delete(server, parameters, request).await;
        outcome = outcome.and(deleted);
    }
    outcome.and(answers.all_present(all, waiting::for_unfinished))?;
    for Export { server, .. } in &answers.present {
        remove_notes(server, &request.volume_id, all).await?;
    }
    Ok(())
}

/// Removes all notes for a volume of which no export has anything any more.
async fn remove_notes(server: &Server, id: &str, all: &[Parameters]) -> Result<(), Failure> {
    if all.len() > 1 {
        for other in all {
            server.remove_record(&record::of_note(id, other)).await?;
        }
        server.remove_record(&record::of_begin(id)).await?;
    }
    Ok(())
}

/// Expands the volume where it is.
pub async fn expand(all: &[Parameters], request: &RunRequest) -> Result<(), Failure> {
    let parameters = match of_volume_source(all, request)? {
        Some(parameters) => parameters,
        None => recorded(all, request).await?,
    };
    let server = connected(all, parameters, waiting::for_run).await?;
    let outcome = expand::expand(&server, parameters, request).await;
    server.leave().await;
    outcome
}

/// Returns the export with the record of the volume, or the first if none has it.
async fn recorded<'a>(all: &'a [Parameters], request: &RunRequest) -> Result<&'a Parameters, Failure> {
    let [first, _, ..] = all else { return Ok(&all[0]) };
    let answers = ask(all).await;
    for Export { server, parameters } in &answers.present {
        if holds(server, parameters, request).await? {
            return Ok(parameters);
        }
    }
    answers.all_present(all, waiting::for_search).map(|()| first)
}

/// Moves storage in, or out, where its path is.
pub async fn move_in_or_out(all: &[Parameters], request: &RunRequest, is_in: bool) -> Result<(), Failure> {
    let parameters = of_volume_source(all, request)?.unwrap_or(&all[0]);
    let server = connected(all, parameters, waiting::for_run).await?;
    let outcome = match is_in {
        true => moving::move_in(&server, parameters, request).await,
        false => moving::move_out(&server, parameters, request).await,
    };
    server.leave().await;
    outcome
}

/// Prints the volumes of all exports. A list without those of one export would say that they are lost.
pub async fn list(all: &[Parameters]) -> Result<(), Failure> {
    let answers = ask(all).await;
    let outcome = async {
        answers.all_present(all, waiting::for_list)?;
        let mut entries = Vec::new();
        let mut known = Vec::new();
        for export @ Export { server, parameters } in &answers.present {
            if all.len() > 1 && !export.is_new(server.read_record(record::IDENTITY).await?, &mut known).await? {
                continue;
            }
            entries.extend(list::list(server, parameters).await?);
        }
        entries.sort();
        listing::print(&entries)
    };
    let outcome = outcome.await;
    answers.leave().await;
    outcome
}

/// Reports the free bytes of all exports that answer. File systems that are exported several times count once.
pub async fn capacity(all: &[Parameters]) -> Result<(), Failure> {
    let answers = ask(all).await;
    let outcome = free_bytes(all, &answers).await;
    answers.leave().await;
    let (sum, largest) = outcome?;
    capacity::print(sum, (sum != largest).then_some(largest))
}

/// Returns the sum of the free bytes, and the most of one export. An export that fails has none.
async fn free_bytes(all: &[Parameters], answers: &Answers<'_>) -> Result<(u64, u64), Failure> {
    let (mut sum, mut largest, mut seen, mut known) = (0_u64, 0, BTreeSet::new(), Vec::new());
    let mut failed = answers.away.first().map(|(_, failure)| failure.clone());
    let mut any = false;
    for export @ Export { server, parameters } in &answers.present {
        let asked = limited(parameters, ANSWER_TIMEOUT, async {
            let free = server.free().await?;
            if all.len() == 1 {
                return Ok(Some(free));
            }
            let is_new = export.is_new(server.read_record(record::IDENTITY).await?, &mut known).await?;
            let is_first = seen.insert((&parameters.server, server.file_system().await?));
            Ok((is_new && is_first).then_some(free))
        });
        match asked.await {
            Ok(free) => {
                any = true;
                sum = sum.saturating_add(free.unwrap_or(0));
                largest = free.unwrap_or(0).max(largest);
            }
            Err(failure) => {
                eprintln!("{} does not count: {failure}", parameters.location());
                failed.get_or_insert(failure);
            }
        }
    }
    match failed {
        Some(failure) if !any => Err(failure),
        _ => Ok((sum, largest)),
    }
}

/// Returns the export with the source of a copy; `None` for an empty volume, which may be on any export.
pub async fn of_data_source<'a, 'b>(
    all: &[Parameters],
    answers: &'b Answers<'a>,
    request: &RunRequest,
) -> Result<Option<&'b Export<'a>>, Failure> {
    if request.clone_of.is_none() && request.snapshot.is_none() {
        return Ok(None);
    }
    let asked = answers.present.iter().map(|Export { server, parameters }| {
        limited(parameters, ANSWER_TIMEOUT, async move { copies::source(server, parameters, request).await.map(drop) })
    });
    let n = choice::of_data_source(join_all(asked).await, answers.all_present(all, waiting::for_data_source))?;
    Ok(Some(&answers.present[n]))
}

/// Makes a snapshot on the export of its volume.
pub async fn snapshot(all: &[Parameters], request: &RunRequest) -> Result<(), Failure> {
    let id = copies::snapshot_id(request)?;
    let parameters = match of_volume_source(all, request)? {
        Some(parameters) => parameters,
        None => recorded(all, request).await?,
    };
    let server = connected(all, parameters, waiting::for_run).await?;
    let outcome = copies::snapshot(&server, parameters, request, id).await;
    server.leave().await;
    outcome
}

/// Deletes a snapshot wherever it is. Its volume may be gone.
pub async fn delete_snapshot(all: &[Parameters], request: &RunRequest) -> Result<(), Failure> {
    let id = copies::snapshot_id(request)?;
    let answers = ask(all).await;
    let outcome = delete_snapshot_from(all, &answers, id).await;
    answers.leave().await;
    outcome
}

async fn delete_snapshot_from(all: &[Parameters], answers: &Answers<'_>, id: &str) -> Result<(), Failure> {
    let (mut outcome, mut unused) = (Ok(()), Vec::new());
    for Export { server, .. } in &answers.present {
        let deleted = match server.has(record::FOLDER).await {
            Ok(true) => copies::delete_snapshot(server, id).await,
            Ok(false) => {
                unused.push(server.not_mounted());
                Ok(())
            }
            Err(failure) => Err(failure),
        };
        outcome = outcome.and(deleted);
    }
    outcome.and(answers.all_present(all, waiting::for_snapshot))?;
    // The snapshot's volume had records on one of them.
    match unused.pop() {
        Some(failure) if unused.len() + 1 == all.len() => Err(failure),
        _ => Ok(()),
    }
}
