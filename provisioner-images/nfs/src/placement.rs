//! The provision run of a class with several exports: it asks all of them, and makes the volume on one.

use std::time::Duration;

use flex_contract::request::RunRequest;
use flex_image_kit::Failure;
use futures::future::join_all;

use crate::choice::{Answer, Choice, choose};
use crate::exports::{self, Answers, Export, Storage, holds, limited};
use crate::parameters::Parameters;
use crate::provision::Fault;
use crate::server::Server;
use crate::{choice, pattern, provision, record};

/// The time for all calls that make a volume on one export, when another may serve the run.
const WORK_TIMEOUT: Duration = Duration::from_secs(10);

/// The exports of a run, by their number in the config.
struct Site<'a> {
    all: &'a [Parameters],
    servers: Vec<Option<&'a Server>>,
    answers: Vec<Option<Answer>>,
    /// Why an export does not serve this run.
    failed: Vec<Option<Failure>>,
}

/// The rest of a volume on an export after a failure.
enum Undone {
    /// Nothing is left.
    All,
    /// Another run has made the directory.
    InUse,
    /// Something may be left.
    Unknown,
}

/// Makes the volume where an earlier run began it, or on the first export that can.
pub async fn provision(all: &[Parameters], request: &RunRequest, dry_run: bool) -> Result<(), Failure> {
    provision::check(request)?;
    let answers = exports::ask(all).await;
    let outcome = match (all, answers.present.as_slice()) {
        ([only], [export]) => on_the_only(only, &export.server, request, dry_run).await,
        _ => on_one_of(all, &answers, request, dry_run).await,
    };
    answers.leave().await;
    outcome
}

async fn on_the_only(only: &Parameters, server: &Server, request: &RunRequest, dry_run: bool) -> Result<(), Failure> {
    let path = provision::make(server, only, request).await?;
    provision::create(only, request, &path, dry_run).await
}

async fn on_one_of(
    all: &[Parameters],
    answers: &Answers<'_>,
    request: &RunRequest,
    dry_run: bool,
) -> Result<(), Failure> {
    let mut site = Site::observe(all, answers, request).await;
    // A copy is beside its source, and on no other export.
    if let Some(export) = exports::of_data_source(all, answers, request).await? {
        return site.copy_on(export, request, dry_run).await;
    }
    let (order, is_begun, mut left) = match choose(&site.answers, request.attempt <= 1) {
        Choice::WaitFor(away) => return Err(site.waits_for(away)),
        Choice::Try { order, is_begun, left } => (order, is_begun, left),
    };
    if !is_begun {
        // A claim that gives no path is refused before the first note.
        pattern::path(&all[0].subdirectory, request)?;
    }
    for (place, n) in order.into_iter().enumerate() {
        let Some(server) = site.servers[n] else { continue };
        let was_begun = is_begun && place == 0;
        if !was_begun {
            site.still_unused(n, request).await?;
        }
        let failure = match site.begin(n, &left, request).await {
            Ok(()) => match limited(&all[n], WORK_TIMEOUT, provision::make(server, &all[n], request)).await {
                Ok(path) => {
                    eprintln!("the volume is on {}", all[n].location());
                    provision::create(&all[n], request, &path, dry_run).await?;
                    site.end(n, &left, request).await;
                    return Ok(());
                }
                Err(Fault::EachExport(failure)) => return Err(failure),
                Err(Fault::ThisExport(failure)) => match site.undone(n, was_begun, request).await {
                    Undone::All => failure,
                    Undone::InUse => return Err(failure),
                    Undone::Unknown if was_begun => return Err(failure),
                    Undone::Unknown => {
                        left.push(n);
                        failure
                    }
                },
            },
            Err(failure) if was_begun => return Err(failure),
            Err(failure) => failure,
        };
        site.fails(n, failure);
    }
    site.forget(&left, request).await;
    Err(site.no_export())
}

impl<'a> Site<'a> {
    /// Asks each export about the volume.
    async fn observe(all: &'a [Parameters], answers: &'a Answers<'_>, request: &RunRequest) -> Self {
        let mut site = Site { all, servers: vec![None; all.len()], answers: vec![None; all.len()], failed: Vec::new() };
        site.failed = all.iter().map(|one| answers.failure(one)).collect();
        let asked = answers.present.iter().map(async |export| (export, answer(export, all, request).await));
        let mut identities: Vec<Storage> = Vec::new();
        for (export, answered) in join_all(asked).await {
            let Some(n) = all.iter().position(|one| one == export.parameters) else { continue };
            let answered = match answered {
                Ok((answer, identity)) => export.is_new(identity, &mut identities).await.map(|is_new| (answer, is_new)),
                Err(failure) => Err(failure),
            };
            match answered {
                Ok((answer, true)) => {
                    site.servers[n] = Some(&export.server);
                    site.answers[n] = Some(answer);
                }
                // Another name of the same storage. That name serves the run.
                Ok((_, false)) => site.answers[n] = Some(Answer::default()),
                Err(failure) => site.failed[n] = Some(failure),
            }
        }
        for (one, failure) in all.iter().zip(&site.failed) {
            if let Some(failure) = failure {
                eprintln!("{} does not serve this run: {failure}", one.location());
            }
        }
        site
    }

    /// Makes a copy on the export of its source. No run can have begun the copy elsewhere.
    async fn copy_on(&mut self, export: &'a Export<'a>, request: &RunRequest, dry_run: bool) -> Result<(), Failure> {
        let Export { server, parameters: place } = export;
        let Some(n) = self.all.iter().position(|one| one == *place) else { return Err(self.no_export()) };
        if let Some(failure) = &self.failed[n] {
            return Err(failure.clone());
        }
        // The source may have the second name of a storage, which serves no new volumes.
        self.servers[n] = Some(server);
        let left = match choose(&self.answers, true) {
            Choice::Try { left, .. } => left,
            Choice::WaitFor(_) => Vec::new(),
        };
        self.begin(n, &left, request).await?;
        // The copy has no limit of time: it takes as long as its content needs.
        let path = provision::make(server, place, request).await?;
        eprintln!("the volume is on {}", place.location());
        provision::create(place, request, &path, dry_run).await?;
        self.end(n, &left, request).await;
        Ok(())
    }

    /// Notes that an export does not serve this run.
    fn fails(&mut self, n: usize, failure: Failure) {
        eprintln!("{} does not serve this run: {failure}", self.all[n].location());
        self.failed[n] = Some(failure);
    }

    /// Writes the notes before the first record of the volume: on each export, where the volume is begun, and on the
    /// chosen one, which others may have a leftover. An export that takes no note gets no volume, either.
    async fn begin(&mut self, n: usize, left: &[usize], request: &RunRequest) -> Result<(), Failure> {
        let (id, chosen) = (&request.volume_id, &self.all[n]);
        for (other, server) in self.reachable().collect::<Vec<_>>() {
            let written = limited(&self.all[other], WORK_TIMEOUT, async {
                if other == n {
                    server.make_record(record::IDENTITY, &record::identity(id, chosen)).await?;
                    for left in left {
                        let note = record::of_note(id, &self.all[*left]);
                        server.make_record(&note, &self.text_of_note(*left)).await?;
                    }
                }
                server.replace_record(&record::of_begin(id), &chosen.location()).await
            });
            match written.await {
                Err(failure) if other == n => return Err(failure),
                Err(failure) => {
                    self.servers[other] = None;
                    self.fails(other, failure);
                }
                Ok(()) => {}
            }
        }
        Ok(())
    }

    /// Removes the notes that nothing needs any more. The chosen export keeps its own until all others have lost theirs,
    /// so that the delete run removes what is left.
    async fn end(&self, n: usize, left: &[usize], request: &RunRequest) {
        let id = &request.volume_id;
        let Some(chosen) = self.servers[n] else { return };
        let removed = async {
            for (other, server) in self.reachable().filter(|(other, _)| *other != n) {
                server.remove_record(&record::of_begin(id)).await?;
                if !left.contains(&other) {
                    chosen.remove_record(&record::of_note(id, &self.all[other])).await?;
                }
            }
            chosen.remove_record(&record::of_begin(id)).await
        };
        if let Err(failure) = limited(&self.all[n], WORK_TIMEOUT, removed).await {
            eprintln!("a note stays until the volume is deleted: {failure}");
        }
    }

    /// Removes the notes of a run that has begun the volume nowhere. A later run need not return to an export that is away
    /// by then.
    async fn forget(&self, left: &[usize], request: &RunRequest) {
        let note = record::of_begin(&request.volume_id);
        let undone: Vec<String> =
            self.reachable().filter(|(n, _)| !left.contains(n)).map(|(n, _)| self.all[n].location()).collect();
        for (n, server) in self.reachable() {
            let removed = limited(&self.all[n], WORK_TIMEOUT, async {
                match server.read_record(&note).await? {
                    Some(at) if undone.contains(&at) => server.remove_record(&note).await,
                    _ => Ok(()),
                }
            });
            if let Err(failure) = removed.await {
                eprintln!("the record {note} stays until the next run, or until the deletion: {failure}");
            }
        }
    }

    /// Checks that no other run has begun the volume on an export since this run has asked. This run may have been
    /// suspended meanwhile, and the volume may be in use by now.
    async fn still_unused(&self, n: usize, request: &RunRequest) -> Result<(), Failure> {
        let Some(server) = self.servers[n] else { return Ok(()) };
        let parameters = &self.all[n];
        match limited(parameters, WORK_TIMEOUT, holds(server, parameters, request)).await {
            Ok(true) => {
                Err(Failure::retry(format!("another run has just begun this volume on {}", parameters.location())))
            }
            // A failure shows in the next step, too, which tries the next export then.
            _ => Ok(()),
        }
    }

    /// Removes what this run has begun on an export. A directory of another run stays, and so do files.
    async fn undone(&self, n: usize, was_begun: bool, request: &RunRequest) -> Undone {
        let Some(server) = self.servers[n] else { return Undone::Unknown };
        let id = &request.volume_id;
        let removed = async {
            // Only an empty directory is removed: another run may make the directory at any moment, and a pod may write.
            if let Some(path) = server.read_record(&record::of_volume(id)).await? {
                if server.has_directory(&path).await? && (was_begun || !server.remove_empty(&path).await?) {
                    return Ok(Undone::InUse);
                }
                server.remove_record_of(&record::of_path(&path), id).await?;
                server.remove_record(&record::of_volume(id)).await?;
            } else if let Ok(path) = pattern::path(&self.all[n].subdirectory, request) {
                server.remove_record_of(&record::of_path(&path), id).await?;
            }
            Ok::<_, Failure>(Undone::All)
        };
        limited(&self.all[n], WORK_TIMEOUT, removed).await.unwrap_or(Undone::Unknown)
    }

    /// Returns the exports that answer, by their number.
    fn reachable(&self) -> impl Iterator<Item = (usize, &'a Server)> {
        self.servers.iter().enumerate().filter_map(|(n, server)| Some((n, (*server)?)))
    }

    fn text_of_note(&self, n: usize) -> String {
        record::text_of_note(&self.all[n], self.failed[n].as_ref())
    }

    fn waits_for(&self, away: usize) -> Failure {
        let why = self.failed[away].as_ref().map(ToString::to_string).unwrap_or_default();
        Failure::retry(format!(
            "an earlier run has begun this volume on {}, and this claim waits for that export: {why}; if it never comes \
             back, take it out of `exports` in the config",
            self.all[away].location()
        ))
    }

    /// Returns the failure of all exports.
    fn no_export(&self) -> Failure {
        let failed = self.all.iter().zip(&self.failed);
        choice::of_failures(failed.filter_map(|(one, failure)| Some((one.location(), failure.as_ref()?))))
    }
}

/// Asks one export about the volume. Returns its identity, too.
async fn answer(
    export: &Export<'_>,
    all: &[Parameters],
    request: &RunRequest,
) -> Result<(Answer, Option<String>), Failure> {
    let (id, server) = (&request.volume_id, &export.server);
    let work = async {
        let has = holds(server, export.parameters, request).await?;
        let begun = server.read_record(&record::of_begin(id)).await?;
        let begun_at = all.iter().position(|one| Some(one.location()) == begun);
        let mut noted = Vec::new();
        for (n, other) in all.iter().enumerate().filter(|_| has) {
            if server.read_record(&record::of_note(id, other)).await?.is_some() {
                noted.push(n);
            }
        }
        let free = server.free().await?;
        let mut identity = server.read_record(record::IDENTITY).await?;
        if identity.is_none() && !has {
            // Before the choice, because the first run must also see that two names lead to one storage.
            server.make_record(record::IDENTITY, &record::identity(id, export.parameters)).await?;
            identity = server.read_record(record::IDENTITY).await?;
        }
        Ok((Answer { has, free, begun_at, noted }, identity))
    };
    limited(export.parameters, WORK_TIMEOUT, work).await
}
