//! The tool for people, with a file for each subcommand.

// `out` alone writes to the terminal: the reader of standard output may leave, and texts of others act on no terminal.
#![warn(clippy::print_stdout, clippy::print_stderr)]

mod adopt;
mod archive;
mod bar;
mod beside;
mod bundle;
mod check;
mod claim;
mod cluster;
mod collect;
mod complete;
mod completion;
mod contexts;
mod desk;
mod doctor;
mod each;
mod explain;
mod export_traces;
mod files;
mod flags;
mod forward;
mod import;
mod job;
mod kind;
mod leader;
mod left;
mod log_level;
mod logs;
mod markdown;
mod name;
mod namespaces;
mod new;
mod out;
mod places;
mod recording;
mod render;
mod retry;
mod rights;
mod schema;
mod shell;
mod status;
mod table;
mod trace;
mod ui;
mod uninstall;
mod validate;
mod version;
mod vouch;

use std::process::ExitCode;

use anyhow::anyhow;
use clap::{CommandFactory, FromArgMatches, Parser, Subcommand};
use flex_provisioner::api::says::causes;

use self::out::{Colours, remark};

/// Any container image that can make a volume becomes a dynamic provisioner of Kubernetes.
#[derive(Debug, Parser)]
#[command(name = "flex-provisioner", version)]
struct Cli {
    /// When the output has colours: `auto` for a terminal, unless the variable NO_COLOR is set.
    #[arg(long, global = true, value_enum, value_name = "WHEN", default_value = "auto")]
    color: Colours,
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Check provisioner ConfigMaps in files, as the orchestrator checks them in the cluster.
    ///
    /// Exits 0 if there are no errors, also with warnings, and 1 if there are errors.
    Validate(validate::ValidateArgs),
    /// Print the Job that a claim would get, without a cluster.
    ///
    /// Exits 0, or 1 if the claim could not be served.
    Render(render::RenderArgs),
    /// Print the JSON schema of a config, by which editors complete and check it.
    ///
    /// Exits 0.
    Schema,
    /// Write the files of a provisioner of your own: program, Dockerfile, config, class, claim and test.
    ///
    /// Makes a directory with the name, and overwrites nothing. What it writes is a whole provisioner, which passes
    /// `validate`, `try` and `conformance`. Exits 0, or 1 if the directory exists or cannot be written.
    New(new::NewArgs),
    /// Run a program on this machine as the orchestrator would: confined, unless --on-node or --unconfined trusts it like your own.
    ///
    /// Needs no cluster. The program gets the environment, the files, the mounts and the user of its pod, and an API for its
    /// PersistentVolume. Prints its output, the volume, the orchestrator's judgement and the events that users would read.
    /// Exits 0 if the orchestrator would go on, 2 if the run failed or its volume would not be bound, and 1 if the program
    /// could not be run.
    Try(desk::attempt::TryArgs),
    /// Prove that a program keeps the contract: run, kill and repeat it, confined unless --on-node or --unconfined trusts it.
    ///
    /// Needs no cluster, unless --cluster is given. Prints a line for each case; `--explain ID` says what a case does, why,
    /// and how to mend the program. Exits 0 if no case fails, 1 if a case fails, and 2 if the cases could not be run, or if
    /// something that they made could not be removed.
    Conformance(Box<desk::conformance::ConformanceArgs>),
    /// Check whether the cluster is ready for the orchestrator (--pre), or whether the installation works.
    ///
    /// Prints a line for each check with ✓, ‼ or ✗, and what to do. Exits 0 if all is well, 1 if there are warnings, and
    /// 2 if something does not work or the cluster does not answer.
    Check(check::CheckArgs),
    /// Find orphaned and stuck objects, and say what to do.
    ///
    /// Only reads, unless --fix is given. Exits 0 if there is no problem, 2 if somebody must act, 3 if data is lost or
    /// no orchestrator leads, and 1 if the cluster could not be read.
    Doctor(doctor::DoctorArgs),
    /// Confirm the records (how each was made) of PersistentVolumes that were restored from a backup.
    ///
    /// Such a volume lacks the mark that the orchestrator wrote into its status. The orchestrator neither deletes nor
    /// changes its storage. Prints the record, checks it against the volume and its class, and writes the mark again.
    /// Exits 0 if all were confirmed, 2 if any was refused, and 1 if the cluster could not be read.
    Vouch(vouch::VouchArgs),
    /// Serve volumes that another provisioner made, and leave their storage where it is.
    ///
    /// Prints a line for each volume: what will serve it, or why it stays and what to do. A run of the image then checks
    /// that the storage exists, and the command writes the record by which the volume grows and is deleted. --undo takes
    /// that back. Exits 0 if all volumes moved, 2 if any stays, and 1 if the command could not begin.
    Adopt(adopt::AdoptArgs),
    /// Turn an existing directory into a volume with a claim, served by a config.
    ///
    /// A run of the image checks that the directory exists. Then the command creates claim and volume. The data stay
    /// when the claim is deleted, unless --reclaim says otherwise. Exits 0 if the data were imported, 2 if they cannot
    /// be, and 1 if the command could not begin.
    Import(import::ImportArgs),
    /// Show classes, claims in progress, pools, capacity and admission policies; or one class with its limits.
    ///
    /// With --watch, shows them again and again. Exits 0, or 1 if the cluster could not be read or does not have the class.
    Status(status::StatusArgs),
    /// Show where each value of a class comes from, what its image is asked to do, and what would refuse a claim.
    ///
    /// Exits 0, 2 if the class serves no claim now or would refuse one of the files, and 1 if the cluster or a file could
    /// not be read.
    Explain(explain::ExplainArgs),
    /// Print the log of the last run for a claim, or its last words.
    ///
    /// The run is the last attempt to make the claim's volume; for a bound claim, its last expansion or modification; for
    /// a terminating one, or one that is gone, the run that deletes what is left of it. Exits 0 if there is a log, 2 if
    /// there is none (any more), and 1 if the cluster could not be read.
    Logs(logs::LogsArgs),
    /// Change the log filter of the running orchestrator for a time.
    ///
    /// Exits 0, or 1 if the filter is not valid or the Lease could not be changed.
    LogLevel(log_level::LogLevelArgs),
    /// Show when a claim reached each stage on the way to its volume, who was slow, and what it waits for.
    ///
    /// Exits 0 if the claim is bound, 2 if it is not, or is gone, and 1 if the claim could not be read.
    Trace(trace::TraceArgs),
    /// Send the timelines of claims to a collector of OpenTelemetry, as traces.
    ///
    /// A claim is a trace, with a span for each attempt and for each stage. Exits 0 if the collector accepted all spans, 2
    /// if it refused some, and 1 if the claims could not be read or no collector took the spans.
    ExportTraces(export_traces::ExportTracesArgs),
    /// Begin the next attempt after a failure now, for a claim or for all that has failed in a class.
    ///
    /// Exits 0 if something is tried again, 2 if no attempt has failed, and 1 if the objects could not be read or changed.
    Retry(retry::RetryArgs),
    /// Write what a supporter needs into one file: state, findings, decisions and events, without Secrets.
    ///
    /// Other commands read the file with --bundle. Exits 0, or 1 if the cluster does not answer or the file cannot be
    /// written.
    SupportBundle(bundle::SupportBundleArgs),
    /// Show what the orchestrator would decide about each object, and by which rule.
    ///
    /// Reads a support bundle (--bundle) or the cluster, and changes nothing. Exits 0, or 1 if the objects could not be
    /// read.
    Replay(bundle::ReplayArgs),
    /// Show the status page of the leader in a browser.
    ///
    /// Forwards a port of this machine to the pod that leads, as `kubectl port-forward` does, and prints the address of
    /// the page. Exits 0 when Ctrl-C ends it, 2 if no orchestrator leads or its page cannot be reached, and 1 if the
    /// cluster could not be read.
    Ui(ui::UiArgs),
    /// Show what still needs the orchestrator before it is removed, and keep storage where asked (--retain).
    ///
    /// Only reads, unless --retain is given. Exits 0 if the orchestrator can be removed, 2 if something still needs it,
    /// and 1 if the cluster could not be read.
    Uninstall(uninstall::UninstallArgs),
    /// Print the versions of this command, of the cluster and of the orchestrator.
    ///
    /// Exits 0, or 1 if the cluster could not be read.
    Version(version::VersionArgs),
    /// Print the completion of commands and flags for a shell, or the program that completes `kubectl flex`.
    ///
    /// Exits 0.
    Completion(completion::CompletionArgs),
    /// Write a page of the manual for each command.
    ///
    /// Exits 0, or 1 if the pages cannot be written.
    Man(completion::ManArgs),
}

/// Returns the commands with their flags, as the documentation lists them.
pub fn command() -> clap::Command {
    Cli::command()
}

/// Returns the JSON schema of a provisioner ConfigMap, as `schema` prints it.
pub fn config_schema() -> String {
    schema::text() + "\n"
}

/// Parses the command line and runs the subcommand.
pub fn main() -> ExitCode {
    let mut words = std::env::args_os().skip(1);
    let done = match words.next() {
        Some(first) if first == complete::COMPLETE => complete::complete(words.collect(), command()),
        Some(first) if first == "run" => {
            Err(anyhow!("the orchestrator is the program flex-orchestrator: start that, with the same flags"))
        }
        _ => run_command(),
    };
    match done {
        Ok(code) => code,
        Err(error) => {
            remark!("{}: {}", name::name(), causes(&error));
            ExitCode::FAILURE
        }
    }
}

fn run_command() -> anyhow::Result<ExitCode> {
    let typed = command().bin_name(name::name()).get_matches();
    let Cli { command: chosen, color } = Cli::from_arg_matches(&typed).unwrap_or_else(|error| error.exit());
    color.choose();
    match chosen {
        Command::Validate(args) => validate::validate(args),
        Command::Render(args) => render::render(args),
        Command::Schema => schema::schema(),
        Command::New(args) => new::new(args),
        Command::Try(args) => desk::attempt::attempt(args),
        Command::Conformance(args) => desk::conformance::conformance(*args),
        Command::Check(args) => check::check(args),
        Command::Doctor(args) => doctor::doctor(args),
        Command::Vouch(args) => vouch::vouch(args),
        Command::Adopt(args) => adopt::adopt(args),
        Command::Import(args) => import::import(args),
        Command::Status(args) => status::status(args),
        Command::Explain(args) => explain::explain_class(args),
        Command::SupportBundle(args) => bundle::support_bundle(args),
        Command::Replay(args) => bundle::replay(args),
        Command::Retry(args) => retry::retry(args),
        Command::Logs(args) => logs::logs(args),
        Command::LogLevel(args) => log_level::log_level(args),
        Command::Trace(args) => trace::trace(args),
        Command::ExportTraces(args) => export_traces::export_traces(args),
        Command::Ui(args) => ui::ui(args),
        Command::Uninstall(args) => uninstall::uninstall(args),
        Command::Version(args) => version::version(args),
        Command::Completion(args) => completion::completion(args, command()),
        Command::Man(args) => completion::man(args, command()),
    }
}
