//! The command line, with a file for each subcommand.

// `out` alone writes to standard output, whose reader may leave.
#![warn(clippy::print_stdout)]

mod beside;
mod check;
mod doctor;
mod out;
mod render;
mod run;
mod status;
mod uninstall;
mod validate;
mod vouch;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::Context;
use clap::{Args, CommandFactory, Parser, Subcommand, ValueEnum};
use flex_contract::names;

use crate::config::classes::Identity;

/// Any container image that can make a volume becomes a dynamic provisioner of Kubernetes.
#[derive(Debug, Parser)]
#[command(name = "flex-provisioner", version)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Run the orchestrator: provision, bind and delete volumes until stopped.
    Run(run::RunArgs),
    /// Check provisioner ConfigMaps in files, as `run` checks them in the cluster.
    Validate(validate::ValidateArgs),
    /// Print the Job that a claim would get, without a cluster.
    Render(render::RenderArgs),
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
    /// Confirm the record of PersistentVolumes that were restored from a backup.
    ///
    /// Such a volume lacks the mark that the orchestrator wrote into its status, so that its storage is neither deleted
    /// nor changed. Prints the record, checks it against the volume and its class, and writes the mark again. Exits 0
    /// if all were confirmed, 2 if any was refused, and 1 if the cluster could not be read.
    Vouch(vouch::VouchArgs),
    /// Show classes, claims in progress, pools, capacity and admission policies.
    Status(status::StatusArgs),
    /// Show what still needs the orchestrator before it is removed, and keep storage where asked (--retain).
    ///
    /// Only reads, unless --retain is given. Exits 0 if the orchestrator can be removed, 2 if something still needs it,
    /// and 1 if the cluster could not be read.
    Uninstall(uninstall::UninstallArgs),
}

/// The names of the orchestrator, which are the same for all subcommands.
#[derive(Clone, Debug, Args)]
struct Names {
    /// The `provisioner` of StorageClasses: a DNS name without a slash, not of kubernetes.io.
    #[arg(long, env = "FLEX_PROVISIONER_NAME", default_value = names::DEFAULT_PROVISIONER, value_parser = provisioner_name)]
    provisioner_name: String,
    /// The `plugin-name` of provisioner ConfigMaps.
    #[arg(long, env = "FLEX_PLUGIN_NAME", default_value = names::DEFAULT_PLUGIN)]
    plugin_name: String,
    /// The id of this orchestrator on all its objects. Several orchestrators in one cluster need different ids.
    #[arg(long, env = "FLEX_INSTANCE", default_value = names::DEFAULT_INSTANCE, value_parser = instance_id)]
    instance: String,
}

/// The namespaces of the orchestrator and of its configs.
#[derive(Clone, Debug, Args)]
struct Namespaces {
    /// The orchestrator's own namespace, with its Lease and the versions of configs.
    #[arg(long, env = "POD_NAMESPACE", default_value = "flex-provisioner")]
    namespace: String,
    /// Namespaces of provisioner ConfigMaps, comma-separated [default: the orchestrator's own].
    #[arg(long = "config-namespace", env = "FLEX_CONFIG_NAMESPACES", value_delimiter = ',')]
    config_namespaces: Vec<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Output {
    /// For people.
    Table,
    /// For scripts.
    Json,
}

fn provisioner_name(text: &str) -> Result<String, String> {
    match crate::object::is_dns_name(text) {
        true if text.ends_with("kubernetes.io") || text.ends_with("k8s.io") => Err("names of kubernetes.io belong to Kubernetes itself".into()),
        true => Ok(text.to_owned()),
        false => Err("must be a DNS name in lower case without a slash, such as flex-provisioner.io, because other programs derive object names from it".into()),
    }
}

fn instance_id(text: &str) -> Result<String, String> {
    match text.len() <= 63 && !text.contains('.') && crate::object::is_dns_name(text) {
        true => Ok(text.to_owned()),
        false => Err("must be a label value of lower-case letters, digits and `-`, at most 63".into()),
    }
}

impl Names {
    fn identity(&self, namespaces: &Namespaces) -> Identity {
        let Namespaces { namespace, config_namespaces } = namespaces.clone();
        let mut config_namespaces =
            if config_namespaces.is_empty() { vec![namespace.clone()] } else { config_namespaces };
        config_namespaces.sort();
        config_namespaces.dedup();
        let Names { provisioner_name, plugin_name, instance } = self.clone();
        Identity { provisioner: provisioner_name, plugin: plugin_name, instance, config_namespaces, namespace }
    }
}

fn read(path: &Path) -> anyhow::Result<String> {
    if path == Path::new("-") {
        return std::io::read_to_string(std::io::stdin()).context("standard input cannot be read");
    }
    std::fs::read_to_string(path).with_context(|| format!("{} cannot be read", path.display()))
}

fn shown(path: &Path) -> String {
    if path == Path::new("-") { "<stdin>".into() } else { path.display().to_string() }
}

/// Returns the files, and for each directory its YAML files.
fn expand(paths: &[PathBuf]) -> anyhow::Result<Vec<PathBuf>> {
    let mut files = Vec::new();
    for path in paths {
        if !path.is_dir() {
            files.push(path.clone());
            continue;
        }
        let entries = std::fs::read_dir(path).with_context(|| format!("{} cannot be read", path.display()))?;
        let mut found: Vec<_> = entries.filter_map(|entry| Some(entry.ok()?.path())).collect();
        found.retain(|file| file.extension().is_some_and(|ending| ending == "yaml" || ending == "yml"));
        found.sort();
        files.extend(found);
    }
    Ok(files)
}

/// The commands with their flags, as the documentation lists them.
pub fn command() -> clap::Command {
    Cli::command()
}

/// Parses the command line and runs the subcommand.
pub fn main() -> ExitCode {
    let Cli { command } = Cli::parse();
    let done = match command {
        Command::Run(args) => run::run(args),
        Command::Validate(args) => validate::validate(args),
        Command::Render(args) => render::render(args),
        Command::Check(args) => check::check(args),
        Command::Doctor(args) => doctor::doctor(args),
        Command::Vouch(args) => vouch::vouch(args),
        Command::Status(args) => status::status(args),
        Command::Uninstall(args) => uninstall::uninstall(args),
    };
    match done {
        Ok(code) => code,
        Err(error) => {
            eprintln!("flex-provisioner: {error:#}");
            ExitCode::FAILURE
        }
    }
}
