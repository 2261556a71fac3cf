//! `import`: data that exist become a volume with a claim, which a config serves from then on.

use std::process::ExitCode;

use anyhow::bail;
use clap::{Args, ValueEnum};
use flex_contract::policy::ReclaimPolicy;
use flex_contract::quantity::{bytes, quantity};
use flex_contract::request::{Operation, RunRequest};

use super::adopt::places::{check_config, overlapping};
use super::adopt::work::Work;
use super::adopt::{begin, config_name};
use super::flags::{Names, Namespaces};
use super::out::say;
use crate::clock::Clock;
use crate::config::Recipe;
use crate::model::volume::Volume;
use crate::object::ObjectName;
use crate::volume::import::{Import, Imported, import as imported};
use crate::volume::moving_in::Place;
use crate::volume::request::request;

/// What becomes of imported data when their claim is deleted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Reclaim {
    /// They stay.
    Retain,
    /// The image deletes them.
    Delete,
}

#[derive(Debug, Args)]
pub(super) struct ImportArgs {
    #[command(flatten)]
    names: Names,
    #[command(flatten)]
    namespaces: Namespaces,
    /// The provisioner ConfigMap that serves the volume from then on.
    #[arg(long, value_name = "NAMESPACE/NAME", value_parser = config_name)]
    config: ObjectName,
    /// The class of the claim [default: the only class of the config].
    #[arg(long)]
    class: Option<String>,
    /// The absolute path of the directory, on the node or on the server.
    #[arg(long)]
    path: String,
    /// The NFS server, for a directory on one.
    #[arg(long, default_value = "", hide_default_value = true)]
    server: String,
    /// The node with the directory.
    #[arg(long)]
    node: Option<String>,
    /// The claim to create.
    #[arg(long, value_name = "NAMESPACE/NAME", value_parser = config_name)]
    claim: ObjectName,
    /// The size of volume and claim, such as 10Gi.
    #[arg(long, value_parser = size)]
    size: u64,
    /// The access modes, comma-separated.
    #[arg(long, value_delimiter = ',', default_value = "ReadWriteOnce")]
    access_modes: Vec<String>,
    /// What becomes of the data when the claim is deleted.
    #[arg(long, value_enum, default_value = "retain")]
    reclaim: Reclaim,
    /// Print what would be created, and change nothing.
    #[arg(long)]
    dry_run: bool,
}

fn size(text: &str) -> Result<u64, String> {
    match bytes(text) {
        Ok(0) => Err("must be more than nothing".to_owned()),
        size => size.map_err(|error| error.to_string()),
    }
}

pub(super) fn import(args: ImportArgs) -> anyhow::Result<ExitCode> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    match runtime.block_on(work(&args))? {
        Ok(()) => Ok(ExitCode::SUCCESS),
        Err(why) => {
            say!("{}: refused: {why}", args.path);
            Ok(ExitCode::from(2))
        }
    }
}

async fn work(args: &ImportArgs) -> anyhow::Result<Result<(), String>> {
    let work = begin(&args.names, &args.namespaces, &args.config).await?;
    let classes = work.index.classes();
    check_config(&classes, &args.config)?;
    let served = classes.iter().filter_map(|class| class.recipe.as_deref().ok());
    let served = served.filter(|recipe| recipe.config == args.config);
    let asked: Vec<&Recipe> =
        served.filter(|recipe| args.class.as_ref().is_none_or(|class| *class == recipe.class)).collect();
    let recipe = match asked.as_slice() {
        [recipe] => *recipe,
        [] => bail!("the config {} does not serve class {}", args.config, args.class.clone().unwrap_or_default()),
        _ => bail!("the config {} serves several classes: name one with --class", args.config),
    };
    let made = match checked(&work, args, recipe) {
        Ok(made) => made,
        Err(why) => return Ok(Err(why)),
    };
    let at = if args.server.is_empty() { args.node.clone().unwrap_or_default() } else { args.server.clone() };
    say!(
        "{} ({at}) → volume {} of {}, class {}, claim {}, policy {:?}",
        args.path,
        volume(&made).name,
        quantity(args.size).0,
        recipe.class,
        args.claim,
        args.reclaim
    );
    if args.dry_run {
        say!("{}: would be imported, if it exists", args.path);
        return Ok(Ok(()));
    }
    if let Err(why) = run(&work, &made, recipe).await {
        return Ok(Err(why));
    }
    let volume = work.writes.import(&made).await?;
    say!("{}: imported as volume {}; the config serves it from now on", args.path, volume.name);
    Ok(Ok(()))
}

/// Builds the objects, and checks that they collide with none.
fn checked(work: &Work, args: &ImportArgs, recipe: &Recipe) -> Result<Imported, String> {
    let node = match &args.node {
        None => None,
        Some(name) => Some(work.index.node(name).ok_or_else(|| format!("node {name} does not exist"))?),
    };
    let of = Import {
        path: &args.path,
        server: &args.server,
        node: node.as_ref().map(|node| (node.name.as_str(), &node.labels)),
        claim: &args.claim,
        size: args.size,
        access_modes: &args.access_modes,
        policy: match args.reclaim {
            Reclaim::Retain => ReclaimPolicy::Retain,
            Reclaim::Delete => ReclaimPolicy::Delete,
        },
    };
    let made = imported(&of, recipe, &work.identity)?;
    if work.index.claim(&args.claim).is_some() {
        return Err(format!("claim {} exists already: name another, or delete it", args.claim));
    }
    let place = made.volume("").spec.as_ref().and_then(Place::of);
    match place.and_then(|place| overlapping(&work.places, "", &place).map(str::to_owned)) {
        Some(other) => Err(format!("volume {other} may have the same files")),
        None => Ok(made),
    }
}

fn volume(made: &Imported) -> Volume {
    Volume::from(&made.volume(""))
}

/// Lets the image look at the data.
async fn run(work: &Work, made: &Imported, recipe: &Recipe) -> Result<(), String> {
    let object = made.volume("");
    let spec = object.spec.unwrap_or_default();
    let kind = flex_contract::volume::volume_source_kind(&spec).unwrap_or_default();
    let source = serde_json::json!({ kind: serde_json::json!(spec)[kind] }).to_string();
    let ts = Clock::default().wall().to_string();
    let node = &made.provenance.node;
    let asked = request(&volume(made), node, recipe, &work.identity, &work.kube_api, (1, ts), source);
    let path = made.provenance.moved_in.as_ref().map(|moved_in| moved_in.path.clone()).unwrap_or_default();
    work.start(recipe, RunRequest { operation: Operation::MoveIn, moved_in_path: path, ..asked }).await
}
