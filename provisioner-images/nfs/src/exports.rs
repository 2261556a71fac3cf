//! The exports of a config, and which of them serves a run.
//!
//! A volume stays on the export where its record is. An export that does not answer holds up no new volumes. It may have
//! the record of an earlier run for the same volume, so the chosen export gets a note that names it. A delete run asks
//! the noted exports, too, and waits for them.

use flex_contract::request::RunRequest;
use flex_image_kit::{Failure, capacity, listing};
use std::collections::BTreeSet;
use std::time::Duration;

use crate::parameters::{OnDelete, Parameters};
use crate::server::Server;
use crate::{delete, expand, list, moving, pattern, provision, record};

/// The time for the answer of one of several exports, when another may serve the run.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(8);

/// An export that answers.
struct Export<'a> {
    server: Server,
    parameters: &'a Parameters,
}

/// The answers of all exports.
struct Answers<'a> {
    present: Vec<Export<'a>>,
    away: Vec<(&'a Parameters, Failure)>,
}

/// Asks all exports at the same time.
async fn ask(all: &[Parameters]) -> Answers<'_> {
    let connect = async |parameters| match tokio::time::timeout(ANSWER_TIMEOUT, Server::connect(parameters)).await {
        Ok(connected) => connected,
        Err(_) => Err(Failure::retry(format!(
            "{} gave no answer within {} s",
            parameters.location(),
            ANSWER_TIMEOUT.as_secs()
        ))),
    };
    let connected = match all {
        [only] => vec![Server::connect(only).await],
        several => futures::future::join_all(several.iter().map(connect)).await,
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
    /// Ends all sessions.
    async fn leave(self) {
        for export in self.present {
            export.server.leave().await;
        }
    }

    /// Returns the failure if an export is away.
    fn all_present(&self) -> Result<(), Failure> {
        self.away.first().map_or(Ok(()), |(_, failure)| Err(failure.clone()))
    }
}

/// Makes the volume where an earlier run began it, or on the export with the most free bytes.
pub async fn provision(all: &[Parameters], request: &RunRequest, dry_run: bool) -> Result<(), Failure> {
    let answers = ask(all).await;
    let outcome = provision_on(&answers, request, dry_run).await;
    answers.leave().await;
    outcome
}

async fn provision_on(answers: &Answers<'_>, request: &RunRequest, dry_run: bool) -> Result<(), Failure> {
    let mut chosen: Option<(&Export, bool, u64)> = None;
    let mut others: Vec<&Parameters> = answers.away.iter().map(|(parameters, _)| *parameters).collect();
    for export in &answers.present {
        let has = holds(export, request).await?;
        let free = if answers.present.len() > 1 { export.server.free().await? } else { 0 };
        let is_better = match chosen {
            // A run that did not reach the one has chosen the other, and noted that.
            Some((former, true, _)) if has => is_noted(export, &request.volume_id, former.parameters).await?,
            Some((_, had, most)) => (has && !had) || (has == had && free > most),
            None => true,
        };
        let left = if is_better { chosen.replace((export, has, free)) } else { Some((export, has, free)) };
        others.extend(left.filter(|(_, has, _)| *has).map(|(export, ..)| export.parameters));
    }
    let Some((Export { server, parameters }, ..)) = chosen else {
        return answers.all_present();
    };
    for (parameters, failure) in &answers.away {
        eprintln!("{} does not serve this run: {failure}", parameters.location());
    }
    for other in others {
        server.make_record(&record::of_note(&request.volume_id, other), &other.location()).await?;
    }
    if answers.present.len() + answers.away.len() > 1 {
        eprintln!("the volume is on {}", parameters.location());
    }
    provision::provision(server, parameters, request, dry_run).await
}

/// Checks whether an export has a note about another one.
async fn is_noted(export: &Export<'_>, id: &str, other: &Parameters) -> Result<bool, Failure> {
    Ok(export.server.read_record(&record::of_note(id, other)).await?.is_some())
}

/// Checks whether an earlier run began the volume on an export.
async fn holds(Export { server, parameters }: &Export<'_>, request: &RunRequest) -> Result<bool, Failure> {
    if server.read_record(&record::of_volume(&request.volume_id)).await?.is_some() {
        return Ok(true);
    }
    // The run may have died between its two records.
    let Ok(path) = pattern::path(&parameters.subdirectory, request) else { return Ok(false) };
    Ok(server.read_record(&record::of_path(&path)).await?.is_some_and(|owner| owner == request.volume_id))
}

/// Returns the export of the run's volume; `None` for a volume that has no source yet.
fn of_source<'a>(all: &'a [Parameters], request: &RunRequest) -> Result<Option<&'a Parameters>, Failure> {
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
    match of_source(all, request)? {
        Some(parameters) => {
            let server = Server::connect(parameters).await?;
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

async fn delete_with_notes(
    server: &Server,
    parameters: &Parameters,
    all: &[Parameters],
    request: &RunRequest,
) -> Result<(), Failure> {
    delete::delete(server, parameters, request).await?;
    for other in all.iter().filter(|other| *other != parameters) {
        let note = record::of_note(&request.volume_id, other);
        if server.read_record(&note).await?.is_none() {
            continue;
        }
        // No volume leads to what an earlier run left there.
        let unused = RunRequest { volume_source: String::new(), ..request.clone() };
        let there = Server::connect(other).await?;
        let removed = async {
            delete::delete(&there, &Parameters { on_delete: OnDelete::Delete, ..other.clone() }, &unused).await?;
            remove_notes(&there, &request.volume_id, all).await
        };
        let removed = removed.await;
        there.leave().await;
        removed?;
        server.remove_record(&note).await?;
    }
    Ok(())
}

async fn delete_everywhere(answers: &Answers<'_>, all: &[Parameters], request: &RunRequest) -> Result<(), Failure> {
    let mut outcome = Ok(());
    for Export { server, parameters } in &answers.present {
        let deleted = delete::delete(server, parameters, request).await;
        outcome = outcome.and(deleted);
    }
    outcome.and(answers.all_present())?;
    for Export { server, .. } in &answers.present {
        remove_notes(server, &request.volume_id, all).await?;
    }
    Ok(())
}

/// Removes the notes about other exports, which have nothing of the volume any more.
async fn remove_notes(server: &Server, id: &str, all: &[Parameters]) -> Result<(), Failure> {
    if all.len() > 1 {
        for other in all {
            server.remove_record(&record::of_note(id, other)).await?;
        }
    }
    Ok(())
}

/// Expands the volume where it is.
pub async fn expand(all: &[Parameters], request: &RunRequest) -> Result<(), Failure> {
    let parameters = match of_source(all, request)? {
        Some(parameters) => parameters,
        None => recorded(all, request).await?,
    };
    let server = Server::connect(parameters).await?;
    let outcome = expand::expand(&server, parameters, request).await;
    server.leave().await;
    outcome
}

/// Returns the export with the record of the volume, or the first if none has it.
async fn recorded<'a>(all: &'a [Parameters], request: &RunRequest) -> Result<&'a Parameters, Failure> {
    let [first, _, ..] = all else { return Ok(&all[0]) };
    let answers = ask(all).await;
    for export in &answers.present {
        if holds(export, request).await? {
            return Ok(export.parameters);
        }
    }
    answers.all_present().map(|()| first)
}

/// Moves storage in, or out, where its path is.
pub async fn move_in_or_out(all: &[Parameters], request: &RunRequest, is_in: bool) -> Result<(), Failure> {
    let parameters = of_source(all, request)?.unwrap_or(&all[0]);
    let server = Server::connect(parameters).await?;
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
        answers.all_present()?;
        let mut entries = Vec::new();
        for Export { server, parameters } in &answers.present {
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
    let outcome = async {
        let (mut sum, mut largest, mut seen) = (0_u64, 0, BTreeSet::new());
        for Export { server, parameters } in &answers.present {
            if all.len() > 1 && !seen.insert((&parameters.server, server.file_system().await?)) {
                continue;
            }
            let free = server.free().await?;
            sum = sum.saturating_add(free);
            largest = free.max(largest);
        }
        if answers.present.is_empty() {
            return answers.all_present();
        }
        capacity::print(sum, (sum != largest).then_some(largest))
    };
    let outcome = outcome.await;
    answers.leave().await;
    outcome
}
