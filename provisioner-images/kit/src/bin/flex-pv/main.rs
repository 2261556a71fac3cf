//! `flex-pv`: creates the PersistentVolume of a provisioner image, and reports failures.
//!
//! It is a single static binary that a vendor copies into an image. The image's script then needs no kubectl, no curl
//! and no YAML.

use std::io::{Read, Write};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use clap::Parser;
use flex_contract::exit;
use flex_contract::volume::persistent_volume;
use flex_image_kit::each::{Each, each};
use flex_image_kit::flex_pv::args::{Cli, Command, Create, Kind, PathCommand};
use flex_image_kit::flex_pv::made;
use flex_image_kit::mounted::{self, Mounts};
use flex_image_kit::{Failure, cluster, handover, ids, named, parameters};

/// The largest file for `--from`. The API accepts no larger PersistentVolume.
const LARGEST_FILE: u64 = 1 << 20;

fn main() -> ExitCode {
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        // clap returns `--help` and `--version` as errors too, to be printed on standard output.
        Err(error) if !error.use_stderr() => {
            // Nobody may read on, as with `| head`.
            let _ = error.print();
            return ExitCode::SUCCESS;
        }
        Err(error) => return flex_image_kit::conclude(Err(Failure::usage(error.to_string().trim_end().to_owned()))),
    };
    flex_image_kit::conclude(match cli.command {
        Command::Create(create) => run(*create),
        Command::List => flex_image_kit::listing::read(std::io::stdin().lock())
            .and_then(|entries| flex_image_kit::listing::print(&entries)),
        Command::Capacity { bytes, maximum_volume_size } => flex_image_kit::capacity::print(bytes, maximum_volume_size),
        Command::Copy { from, to } if Mounts::of_run().have(&to) => mounted::fill(&from, &to),
        Command::Copy { from, to } => flex_image_kit::copy::copy(&from, &to),
        Command::Remove { path } => remove(path),
        Command::Keep { every, age, path } => keep(every, age, &path),
        Command::Parameters { name } => parameters::check(|name| std::env::var(name).ok(), &name),
        Command::Ids => ids::check(|name| std::env::var(name).ok()),
        Command::Path(command) => path(command),
        Command::Rename { from, to } => flex_image_kit::remove::rename(&from, &to),
        Command::Each { jobs, timeout, command } => {
            let limit = timeout.map(|seconds| Duration::from_secs(seconds.into()));
            return each(Each { command, jobs: jobs.into(), limit });
        }
        Command::OnHost { key, variable } => flex_image_kit::on_host::on_host(&variable, key),
        Command::Fail { kind, message } => Err(Failure { code: code(kind), message: message.join(" ") }),
    })
}

fn code(kind: Kind) -> i32 {
    match kind {
        Kind::Never => exit::DATAERR,
        Kind::NoRoom => exit::UNAVAILABLE,
        Kind::Retry => exit::TEMPFAIL,
        Kind::Config => exit::CONFIG,
    }
}

fn run(create: Create) -> Result<(), Failure> {
    let request = flex_image_kit::request()?;
    let (dry_run, patience) = (create.dry_run, Duration::from_secs(create.timeout));
    let pod_node = std::env::var(flex_contract::variable::POD_NODE.name).ok();
    let made = made(create, &request, pod_node.as_deref(), read)?;
    let volume = persistent_volume(&request, made);
    if dry_run {
        return cluster::print(&volume);
    }
    mounted::check(&Mounts::of_run(), &volume)?;
    let by_itself =
        || flex_image_kit::block_on(async { cluster::create(cluster::connect().await?, &volume, patience).await });
    handover::create(&volume, patience).unwrap_or_else(by_itself)?;
    note(&format!("created PersistentVolume {}", request.pv_name));
    Ok(())
}

/// Says what was done. The work does not depend on whether somebody reads it.
fn note(text: &str) {
    let _ = writeln!(std::io::stdout().lock(), "{text}");
}

fn remove(paths: Vec<PathBuf>) -> Result<(), Failure> {
    let mounts = Mounts::of_run();
    let (mounted, other): (Vec<_>, Vec<_>) = paths.into_iter().partition(|path| mounts.have(path));
    let mounted = mounted.iter().map(|path| mounted::empty(path));
    Failure::all(std::iter::once(flex_image_kit::remove::remove(&other)).chain(mounted))
}

fn path(command: PathCommand) -> Result<(), Failure> {
    let print = |text: String| {
        let written = std::io::stdout().lock().write_all(text.as_bytes());
        written.map_err(|error| Failure::retry(format!("the path cannot be printed: {error}")))
    };
    match command {
        PathCommand::Take { base, pattern } => {
            let path = named::take(&base, &pattern, &flex_image_kit::request()?)?;
            print(format!("{path}\n"))
        }
        PathCommand::Free { base, id } => named::free(&base, &id),
        PathCommand::Check { base, id, path } => named::check(&base, &id, &path),
        PathCommand::List { base } => named::list(&base).and_then(print),
    }
}

/// Keeps the directories once, or forever. In the second case a failure is reported and the work tried again.
fn keep(every: Option<u32>, age: u32, paths: &[PathBuf]) -> Result<(), Failure> {
    let round = |path: &PathBuf| {
        let removed = mounted::keep(path, Duration::from_secs(age.into()))?;
        removed.iter().for_each(|name| note(&format!("removed {}/{name}", path.display())));
        Ok(())
    };
    loop {
        let kept = Failure::all(paths.iter().map(round));
        let Some(every) = every else { return kept };
        if let Err(failure) = kept {
            eprintln!("{failure}");
        }
        std::thread::sleep(Duration::from_secs(every.into()));
    }
}

/// Reads the text of `--from`.
fn read(file: &str) -> Result<String, Failure> {
    let mut text = String::new();
    let read = match file {
        "-" => std::io::stdin().take(LARGEST_FILE + 1).read_to_string(&mut text),
        path => std::fs::File::open(path).and_then(|file| file.take(LARGEST_FILE + 1).read_to_string(&mut text)),
    };
    read.map_err(|error| Failure::usage(format!("--from {file}: {error}")))?;
    if text.len() as u64 > LARGEST_FILE {
        return Err(Failure::usage(format!(
            "--from {file}: it has more than {LARGEST_FILE} bytes; no volume is so large"
        )));
    }
    Ok(text)
}
