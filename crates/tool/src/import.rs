//! `import`: data that exist become a volume with a claim, which a config serves from then on.

use std::process::ExitCode;

use anyhow::bail;
use clap::builder::NonEmptyStringValueParser;
use clap::{Args, ValueEnum};
use clap_complete::ArgValueCompleter;
use flex_contract::operation::Operation;
use flex_contract::policy::ReclaimPolicy;
use flex_contract::quantity::{bytes, quantity};
use flex_contract::request::RunRequest;
use flex_core::config::Recipe;
use flex_core::model::volume::Volume;
use flex_core::object::ObjectName;
use flex_core::run::node::NodeLabels;
use flex_core::run::request::AttemptStart;
use flex_core::volume::import::{Import, Imported, import as imported};
use flex_core::volume::move_in::Refusal;
use flex_core::volume::move_out::check_undo_import;
use flex_core::volume::place::{Neighbour, Overlap, Place, Places, neighbour};
use flex_core::volume::request::request;
use flex_core::volume::reserved_paths::verify_unreserved;
use flex_provisioner::api::says;
use flex_provisioner::clock::Clock;

use crate::adopt::begin;
use crate::adopt::work::{Fresh, Work};
use crate::claim::Named;
use crate::cluster::Cluster;
use crate::complete::candidates::{classes, namespaces};
use crate::flags::config_name;
use crate::job::RunFailure;
use crate::out::say;
use crate::places::{check_config, places};

/// The treatment of imported data when their claim is deleted.
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
    cluster: Cluster,
    /// The provisioner ConfigMap that serves the volume from then on.
    #[arg(long, value_name = "NAMESPACE/NAME", value_parser = config_name)]
    config: ObjectName,
    /// The class of the claim [default: the only class of the config].
    #[arg(long, add = ArgValueCompleter::new(classes))]
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
    /// The claim to create, as NAME, NAMESPACE/NAME or pvc/NAME.
    #[arg(long, required_unless_present = "undo")]
    claim: Option<String>,
    /// The namespace of the claim [default: that of the context].
    #[arg(short = 'n', long, value_name = "NAMESPACE", value_parser = NonEmptyStringValueParser::new(), add = ArgValueCompleter::new(namespaces))]
    namespace: Option<String>,
    /// The size of volume and claim, such as 10Gi.
    #[arg(long, value_parser = size, required_unless_present = "undo")]
    size: Option<u64>,
    /// The access modes, comma-separated.
    #[arg(long, value_delimiter = ',', default_value = "ReadWriteOnce")]
    access_modes: Vec<String>,
    /// Whether the data stay when the claim is deleted.
    #[arg(long, value_enum, default_value = "retain")]
    reclaim: Reclaim,
    /// Say that NFS servers with different names are different servers. Else volumes with one path are refused.
    #[arg(long)]
    servers_differ: bool,
    /// Print what would be created, and change nothing.
    #[arg(long)]
    dry_run: bool,
    /// Take back an import. Its claim must be gone. The data stay.
    #[arg(long)]
    undo: bool,
}

impl ImportArgs {
    fn server(&self) -> Option<&str> {
        Some(self.server.as_str()).filter(|server| !server.is_empty())
    }

    /// Returns the name of the claim; an empty one for `--undo`, which needs none.
    fn claim(&self, of_context: &str) -> anyhow::Result<ObjectName> {
        let Some(claim) = &self.claim else { return Ok(ObjectName::default()) };
        match Named::read(claim, self.namespace.as_deref(), of_context)? {
            Named::Claim(name) => Ok(name),
            volume @ Named::Volume(_) => bail!("{volume} is no claim: name the claim to create"),
        }
    }
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
    let work = begin(&args.cluster, &args.config).await?;
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
    if !args.dry_run {
        work.verify_version().await?;
    }
    let claim = args.claim(&work.of_context)?;
    let made = match built(&work, args, &claim, recipe) {
        Ok(made) => made,
        Err(why) => return Ok(Err(why)),
    };
    match args.undo {
        true => Ok(undo(&work, args, &made, recipe).await),
        false => Ok(bring_in(&work, args, (&made, &claim), recipe).await),
    }
}

/// Builds the objects.
fn built(work: &Work, args: &ImportArgs, claim: &ObjectName, recipe: &Recipe) -> Result<Imported, String> {
    let node = match &args.node {
        None => None,
        Some(name) => Some(work.index.node(name).ok_or_else(|| format!("node {name} does not exist"))?),
    };
    let of = Import {
        path: &args.path,
        server: args.server(),
        node: node.as_ref().map(|node| NodeLabels { node: &node.name, labels: &node.labels }),
        claim,
        size: args.size.unwrap_or(1),
        access_modes: &args.access_modes,
        policy: match args.reclaim {
            Reclaim::Retain => ReclaimPolicy::Retain,
            Reclaim::Delete => ReclaimPolicy::Delete,
        },
    };
    imported(&of, recipe, &work.identity)
}

/// Imports the data, or finishes what an interrupted command has begun.
async fn bring_in(
    work: &Work,
    args: &ImportArgs,
    (made, claim): (&Imported, &ObjectName),
    recipe: &Recipe,
) -> Result<(), String> {
    let name = volume(made).name;
    let present = work.index.volume(&name);
    if let Some(present) = present.as_ref().filter(|present| present.is_adopted()) {
        return Err(format!("it is volume {} already: the claim that has it exists already, or is gone", present.name));
    }
    if work.index.claim(claim).is_some_and(|claim| claim.volume_name.as_deref() != Some(&name)) {
        return Err(format!("claim {claim} exists already: name another, or delete it"));
    }
    verify_unreserved(&args.path, args.server(), recipe, work.index.configs())?;
    verify_apart(args, made, &work.places)?;
    let at = args.server().or(args.node.as_deref()).unwrap_or_default();
    say!(
        "{} ({at}) → volume {name} of {}, class {}, claim {claim}, policy {:?}",
        args.path,
        quantity(args.size.unwrap_or_default()).0,
        recipe.class,
        args.reclaim
    );
    work.writes.validate_import(made).await.map_err(|error| error.to_string())?;
    if args.dry_run {
        say!("{}: would be imported, if it exists", args.path);
        return Ok(());
    }
    run(work, made, recipe, Operation::MoveIn).await.map_err(|failure| failure.message)?;
    let recorded = match places(&work.client).await.map_err(|error| says::causes(&error)) {
        Ok(places) => match verify_apart(args, made, &places) {
            Ok(()) => work.writes.import(made).await.map_err(|error| error.to_string()),
            Err(why) => Err(why),
        },
        Err(why) => Err(why),
    };
    let recorded = match recorded {
        Ok(recorded) => recorded,
        // The volume of an interrupted command keeps the record of its image.
        Err(why) if present.is_some() => return Err(why),
        Err(why) => {
            let left = run(work, made, recipe, Operation::MoveOut).await.err();
            let left = left.map(|failure| format!("; the image could not take back its record: {}", failure.message));
            return Err(why + &left.unwrap_or_default());
        }
    };
    match work.writes.confirm_move(&recorded).await {
        Ok(volume) => {
            say!("{}: imported as volume {}; the config serves it from now on", args.path, volume.name);
            Ok(())
        }
        Err(error) => Err(format!("its record is written, its mark is not: run the command again ({error})")),
    }
}

/// Checks that no other volume has files of the data.
fn verify_apart(args: &ImportArgs, made: &Imported, places: &Places) -> Result<(), String> {
    let place = made.volume("").spec.as_ref().and_then(Place::of);
    let found = place.and_then(|place| neighbour(places, &volume(made).name, &place));
    match found {
        Some(Neighbour { volume: other, overlap: Overlap::Same }) => {
            Err(format!("volume {other} may have the same files"))
        }
        Some(Neighbour { volume: other, overlap: Overlap::OtherServer }) if !args.servers_differ => {
            Err(Refusal::OtherServer(other.to_owned()).to_string())
        }
        Some(Neighbour { volume: other, overlap: Overlap::OtherNode }) => {
            say!(
                "{}: warning: volume {other} has the same path on another node; if both nodes mount one file system there, it has the same files",
                args.path
            );
            Ok(())
        }
        _ => Ok(()),
    }
}

/// Takes an import back: the image forgets the data, and the volume is deleted. If the volume is gone already, only the
/// image forgets them.
async fn undo(work: &Work, args: &ImportArgs, made: &Imported, recipe: &Recipe) -> Result<(), String> {
    let name = volume(made).name;
    let Some(volume) = work.index.volume(&name) else {
        if !args.dry_run {
            run(work, made, recipe, Operation::MoveOut).await.map_err(|failure| failure.message)?;
        }
        say!("{}: there is no volume {name}; the image has no record of it any more", args.path);
        return Ok(());
    };
    let Fresh { volume, claim, .. } = work.fresh(&volume.name).await?;
    let moving_out = work.moving_out(&volume, claim.as_ref(), |of| check_undo_import(&volume, of, &work.identity))?;
    if args.dry_run {
        say!("{}: volume {name} would be deleted, and the data stay", args.path);
        return Ok(());
    }
    let unmarked = work.forget(&volume, &moving_out).await?;
    let deleted = work.writes.remove_volume(&unmarked).await;
    deleted.map_err(|error| format!("{error}; its mark is gone: run this command again"))?;
    say!("{}: volume {name} is deleted, and the data stay", args.path);
    Ok(())
}

fn volume(made: &Imported) -> Volume {
    Volume::from(&made.volume(""))
}

/// Lets the image look at the data, or forget them.
async fn run(work: &Work, made: &Imported, recipe: &Recipe, operation: Operation) -> Result<(), RunFailure> {
    let object = made.volume("");
    let spec = object.spec.unwrap_or_default();
    let kind = flex_contract::volume::volume_source_kind(&spec).unwrap_or_default();
    let source = serde_json::json!({ kind: serde_json::json!(spec)[kind] }).to_string();
    let start = AttemptStart { attempt: 1, ts: Clock::default().wall().to_string() };
    let node = made.provenance.origin_node.as_deref();
    let asked = request(&volume(made), node, recipe, &work.identity, &work.kube_api, start, source);
    let path = made.provenance.moved_in.as_ref().map(|moved_in| moved_in.path.clone()).unwrap_or_default();
    work.start(recipe, RunRequest { operation, moved_in_path: path, ..asked }).await
}
