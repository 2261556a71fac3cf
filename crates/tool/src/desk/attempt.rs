//! `try`: runs a program for a claim on this machine, as the orchestrator would, and shows what became of it.

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context, bail};
use clap::Args;
use flex_contract::names::pv_name;
use flex_contract::operation::Operation;
use flex_core::config::modify::Attributes;
use flex_desk::container::Container;
use flex_desk::desk::{Desk, Stop, Temporary, Tools};
use flex_desk::order::{Content, Made, Order};
use flex_desk::setting::Setting;
use flex_desk::verdict::verdict;
use k8s_openapi::api::core::v1::PersistentVolume;

use super::args::Subject;
use super::report::{Run, document, print};
use crate::flags::Output;
use crate::out::say;

/// The exit code if the run failed, or if its volume would not be bound.
const FAILED: u8 = 2;
/// The id of the snapshot.
const SNAPSHOT: &str = "c0ffee00-0000-4000-8000-00000000000e";
/// The file with the volume that a command leaves for the next one.
const VOLUME: &str = "volume.json";
/// The VolumeAttributesClass of a modify run.
const ATTRIBUTES_CLASS: &str = "desk";

#[derive(Debug, Args)]
pub(crate) struct TryArgs {
    /// The program that stands in for the image, with its arguments; none for a config with a script.
    #[arg(value_name = "PROGRAM", trailing_var_arg = true)]
    program: Vec<String>,
    /// The operations to run, one after the other.
    #[arg(long = "operation", value_name = "OPERATION", value_delimiter = ',', default_value = "provision")]
    operations: Vec<Operation>,
    /// An attribute that a `modify` run gives to the volume, as KEY=VALUE.
    #[arg(long = "attribute", value_name = "KEY=VALUE")]
    attributes: Vec<String>,
    /// The directory that stands for node and storage, and keeps them for the next command: a new one, an empty one, or that of an earlier command [default: a temporary one].
    #[arg(long, value_name = "DIRECTORY")]
    state: Option<PathBuf>,
    /// Show the environment of each run, without values of Secrets, and for people the mounts, too.
    #[arg(long)]
    show_env: bool,
    /// The form of the output.
    #[arg(short, long, value_enum, default_value = "table")]
    output: Output,
    #[command(flatten)]
    subject: Subject,
}

pub(crate) fn attempt(args: TryArgs) -> anyhow::Result<ExitCode> {
    let (setting, tools) = args.subject.read(&args.program)?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let runs = runtime.block_on(run_all(&args, &setting, tools))?;
    let all_good = runs.iter().all(|run| run.verdict.is_good());
    match args.output.document(|| document(&runs, args.show_env))? {
        Some(document) => say!("{document}"),
        None => runs.iter().for_each(|run| print(run, args.show_env)),
    }
    Ok(ExitCode::from(if all_good { 0 } else { FAILED }))
}

async fn run_all(args: &TryArgs, setting: &Setting, tools: Tools) -> anyhow::Result<Vec<Run>> {
    let temporary = Temporary::new()?;
    let folder = args.state.clone().unwrap_or_else(|| temporary.path().to_path_buf());
    let desk = Desk::new(&folder, tools).await?;
    desk.api.permit(&setting.rights);
    if args.state.is_some() {
        restore(&desk).with_context(|| format!("{} in {} cannot be read", VOLUME, folder.display()))?;
    }
    let mut runs = Vec::new();
    for operation in &args.operations {
        let order = order(setting, &desk, *operation, &args.attributes)?;
        let run = run(setting, &desk, &order).await?;
        let is_good = run.verdict.is_good();
        // The orchestrator removes a volume when its storage is gone.
        if is_good && *operation == Operation::Delete {
            desk.api.set(&pv_name(&setting.claim.volume_id()), None);
        }
        runs.push(run);
        if !is_good {
            break;
        }
    }
    if args.state.is_some() {
        let volume = desk.api.volume(&pv_name(&setting.claim.volume_id()));
        let kept = desk.keep(VOLUME, &serde_json::to_string(&volume)?);
        kept.with_context(|| format!("{VOLUME} in {} cannot be written", folder.display()))?;
    }
    Ok(runs)
}

/// Reads the volume that an earlier command has left.
fn restore(desk: &Desk) -> anyhow::Result<()> {
    let Some(text) = desk.kept(VOLUME)? else { return Ok(()) };
    let volume: Option<PersistentVolume> = serde_json::from_str(&text)?;
    if let Some(volume) = volume {
        desk.api.set(&volume.metadata.name.clone().unwrap_or_default(), Some(volume));
    }
    Ok(())
}

fn order(setting: &Setting, desk: &Desk, operation: Operation, attributes: &[String]) -> anyhow::Result<Order> {
    if let Some(capability) = operation.capability().filter(|capability| !setting.recipe.can(capability)) {
        bail!(
            "the config does not declare the capability {capability}, so no run of {operation} starts: --set capabilities={capability}"
        );
    }
    let claim = setting.claim.clone();
    let volume = desk.api.volume(&pv_name(&claim.volume_id()));
    let made = || -> anyhow::Result<Made> {
        let volume = volume.clone().with_context(|| {
            format!("there is no volume for {operation} yet: use --operation provision,{operation}, or --state in both commands")
        })?;
        Ok(setting.adopted(&claim, volume))
    };
    Ok(match operation {
        Operation::Provision => Order::Provision { claim, content: Content::Empty },
        Operation::Delete if volume.is_none() => Order::Undo { claim },
        Operation::Delete => Order::Delete(made()?),
        Operation::Expand => Order::Expand(made()?, claim.size.clone().unwrap_or_default().saturating_mul(2)),
        Operation::Modify => {
            let pairs = attributes.iter().filter_map(|text| text.split_once('='));
            let parameters = pairs.map(|(key, value)| (key.to_owned(), value.to_owned())).collect();
            Order::Modify(made()?, Attributes { class: Some(ATTRIBUTES_CLASS.into()), parameters })
        }
        Operation::Snapshot => Order::Snapshot(made()?, SNAPSHOT.into()),
        Operation::DeleteSnapshot => Order::DeleteSnapshot(made()?, SNAPSHOT.into()),
        Operation::List => Order::List,
        Operation::Capacity => Order::Capacity,
        Operation::MoveIn | Operation::MoveOut => {
            bail!("{operation} needs the storage of another provisioner, which this machine does not have")
        }
    })
}

async fn run(setting: &Setting, desk: &Desk, order: &Order) -> anyhow::Result<Run> {
    let job = setting.job(order, 1, &desk.api.url()).map_err(anyhow::Error::msg)?;
    let container: Container = desk.container(setting, &job)?;
    let ended = desk.run(&container, Stop::Never).await?;
    let volume = desk.api.volume(&pv_name(&setting.claim.volume_id()));
    let operation = order.operation();
    let verdict = verdict(setting, operation, &setting.claim, volume.as_ref(), &ended);
    Ok(Run {
        operation,
        claim: setting.claim.clone(),
        container,
        ended,
        volume: volume.filter(|_| operation == Operation::Provision),
        verdict,
        isolation: desk.isolation(),
    })
}
