//! `adopt`: volumes that another provisioner made are served by a config from then on, with their storage where it is.

mod former;
mod table;
mod undo;
pub(super) mod work;

use std::collections::{BTreeMap, BTreeSet};
use std::process::ExitCode;

use anyhow::bail;
use clap::{Args, ValueEnum};
use flex_contract::operation::Operation;
use flex_core::config::classes::Identity;
use flex_core::model::claim::Claim;
use flex_core::model::volume::Volume;
use flex_core::object::ObjectName;
use flex_core::volume::move_in::{
    Candidate, Former, FormerProvisioner, Mapping, Refusal, is_of_provisioner, map, moved_in,
};
use flex_core::volume::place::{Neighbour, Overlap, Places, neighbour};
use flex_provisioner::api::client::Connection;
use flex_provisioner::api::writes::{Binding, Writes};
use flex_provisioner::clock::Clock;

use self::work::{Fresh, Work};
use crate::cluster::Cluster;
use crate::collect;
use crate::flags::config_name;
use crate::out::say;
use crate::places::{check_config, places, recipe};

/// The provisioners whose volumes can move in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum From {
    /// The local-path provisioner: directories on nodes.
    LocalPath,
    /// The NFS subdir external provisioner: directories on a server.
    NfsSubdir,
}

#[derive(Debug, Args)]
pub(super) struct AdoptArgs {
    #[command(flatten)]
    cluster: Cluster,
    /// The kind of the provisioner that made the volumes.
    #[arg(long, value_enum)]
    from: From,
    /// The name of that provisioner, as in its StorageClass [default: the usual name].
    #[arg(long)]
    provisioner: Option<String>,
    /// The provisioner ConfigMap that serves the volumes from then on.
    #[arg(long, value_name = "NAMESPACE/NAME", value_parser = config_name)]
    config: ObjectName,
    /// Only these PersistentVolumes [default: all of that provisioner].
    #[arg(long = "volume", value_name = "NAME")]
    volumes: Vec<String>,
    /// Say that the former provisioner is gone for good, if no Deployment of it is left to show that.
    #[arg(long)]
    former_is_gone: bool,
    /// Say that NFS servers with different names are different servers. Else volumes with one path are refused.
    #[arg(long)]
    servers_differ: bool,
    /// Print the table, and change nothing.
    #[arg(long)]
    dry_run: bool,
    /// Take back what this command wrote. The former provisioner then serves the volumes again.
    #[arg(long)]
    undo: bool,
}

pub(super) fn adopt(args: AdoptArgs) -> anyhow::Result<ExitCode> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let refused = runtime.block_on(work(&args))?;
    Ok(ExitCode::from(if refused == 0 { 0 } else { 2 }))
}

/// Reads the cluster for a command that moves storage in.
pub(super) async fn begin(cluster: &Cluster, config: &ObjectName) -> anyhow::Result<Work> {
    let (Connection { client, address: kube_api, namespace: of_context, .. }, identity) = cluster.open().await?;
    let index = collect::index(&client, &identity, &Clock::default()).await?;
    let nodes = index.nodes().cloned().collect();
    let places = places(&client).await?;
    let scripts = collect::scripts(&client, &identity).await?;
    let writes = Writes::new(client.clone(), identity.clone(), Binding::Direct);
    let config = config.clone();
    Ok(Work { client, identity, kube_api, index, nodes, places, scripts, writes, config, of_context })
}

/// The provisioner whose volumes move in, and the admin's word on servers.
#[derive(Clone, Copy)]
struct Of<'a> {
    former: Former,
    name: &'a str,
    servers_differ: bool,
}

async fn work(args: &AdoptArgs) -> anyhow::Result<usize> {
    let former = match args.from {
        From::LocalPath => Former::LocalPath,
        From::NfsSubdir => Former::NfsSubdir,
    };
    let name = args.provisioner.as_deref().unwrap_or(former.usual_name());
    let of = Of { former, name, servers_differ: args.servers_differ };
    let work = begin(&args.cluster, &args.config).await?;
    verify_name(&work, name)?;
    if !args.undo {
        former::verify_stopped(&work, name, args.former_is_gone).await?;
        check_config(&work.index.classes(), &args.config)?;
    }
    if !args.dry_run {
        work.verify_version().await?;
    }
    let mut volumes: Vec<Volume> = Vec::new();
    if args.volumes.is_empty() {
        let of_it = work.index.volumes().filter(|volume| is_of_provisioner(volume, name, &work.identity));
        let of_it = of_it.filter(|volume| is_ours_or_nobody_s(volume, &work.identity));
        volumes.extend(of_it.map(|volume| (*volume).clone()));
        volumes.retain(|volume| is_by_config(volume, &work.config) || !(args.undo || volume.is_adopted()));
    }
    for name in &args.volumes {
        let Some(volume) = work.index.volume(name) else { bail!("PersistentVolume {name} does not exist") };
        volumes.push((*volume).clone());
    }
    volumes.sort_by(|a, b| a.name.cmp(&b.name));
    volumes.dedup_by(|a, b| a.name == b.name);
    if !args.undo {
        // Volumes that have moved in need nothing more.
        let is_done = |volume: &Volume| volume.is_adopted() && is_by_config(volume, &work.config);
        volumes.retain(|volume| !is_done(volume));
    }
    match args.undo {
        true => Ok(undo::undo(&work, &volumes, name, args.dry_run).await),
        false => Ok(move_all(&work, &volumes, of, args.dry_run).await),
    }
}

/// Checks that a volume is not another orchestrator's.
fn is_ours_or_nobody_s(volume: &Volume, identity: &Identity) -> bool {
    volume.instance.as_ref().is_none_or(|instance| *instance == identity.instance)
}

/// Checks whether the provenance of a volume names a config.
fn is_by_config(volume: &Volume, config: &ObjectName) -> bool {
    let record = volume.provenance.as_deref();
    let record: Option<flex_core::model::volume::Provenance> = record.and_then(|text| serde_json::from_str(text).ok());
    record.is_some_and(|record| record.moved_in.is_some() && record.effective_config.config == *config)
}

/// Checks that some object knows the name of a provisioner: it may be misspelt.
fn verify_name(work: &Work, name: &str) -> anyhow::Result<()> {
    let mut known = BTreeSet::new();
    for volume in work.index.volumes() {
        known.extend(volume.provisioned_by.clone());
        known.extend(moved_in(&volume).and_then(|moved_in| moved_in.from));
    }
    let replaces = work.index.config(&work.config).and_then(|config| config.replaces());
    if replaces == Some(name) || known.contains(name) {
        return Ok(());
    }
    let known: Vec<String> = known.into_iter().collect();
    bail!(
        "no volume is of the provisioner {name}, and the config {} does not replace it; the volumes are of: {}",
        work.config,
        known.join(", ")
    )
}

async fn move_all(work: &Work, volumes: &[Volume], of: Of<'_>, dry_run: bool) -> usize {
    let mapped: Vec<_> = volumes
        .iter()
        .map(|volume| mapping(work, volume, work.claim_of(volume).as_deref(), &work.places, of))
        .collect();
    let outcome = |mapped: &Result<Mapping, Refusal>| match mapped {
        Ok(mapping) => format!("{} (class {})", work.config, mapping.provenance.effective_config.class),
        Err(refusal) => refusal.to_string(),
    };
    table::table(work, volumes, "CONFIG, OR WHY IT STAYS", &mapped.iter().map(outcome).collect::<Vec<_>>());
    explain(work, &mapped);
    let mut refused = mapped.iter().filter(|mapped| mapped.is_err()).count();
    for (volume, mapping) in volumes.iter().zip(&mapped) {
        let Ok(mapping) = mapping else { continue };
        let done = match dry_run {
            true => Ok(()),
            false => move_one(work, volume, mapping, of).await,
        };
        match done {
            Ok(()) if dry_run => say!("{}: would move in, if its storage exists", volume.name),
            Ok(()) => say!("{}: moved in; the config serves it from now on", volume.name),
            Err(why) => {
                say!("{}: refused: {why}", volume.name);
                refused += 1;
            }
        }
    }
    if volumes.is_empty() {
        say!("no volume of {} is left to move in", of.name);
    }
    refused
}

/// Says once for each volume what keeps it from moving in, and warns of paths that two nodes have.
fn explain(work: &Work, mapped: &[Result<Mapping, Refusal>]) {
    let mut blocking: BTreeMap<&str, usize> = BTreeMap::new();
    for refusal in mapped.iter().filter_map(|mapped| mapped.as_ref().err()) {
        if let Refusal::Overlaps(other) = refusal {
            *blocking.entry(other).or_default() += 1;
        }
    }
    for (other, count) in blocking {
        say!("{other}: it may have the files of {count} of these volumes: delete it and keep its data, or move them");
    }
    for volume in mapped.iter().filter_map(|mapped| mapped.as_ref().ok()).map(|mapping| &mapping.volume) {
        let place = work.places.get(volume);
        let Some(Neighbour { volume: other, overlap: Overlap::OtherNode }) =
            place.and_then(|place| neighbour(&work.places, volume, place))
        else {
            continue;
        };
        say!(
            "{volume}: warning: volume {other} has the same path on another node; if both nodes mount one file system there, the two volumes have the same files"
        );
    }
}

fn mapping(
    work: &Work,
    volume: &Volume,
    claim: Option<&Claim>,
    places: &Places,
    of: Of<'_>,
) -> Result<Mapping, Refusal> {
    let classes = work.index.classes();
    let place = places.get(&volume.name);
    let candidate = Candidate {
        volume,
        place,
        claim,
        neighbour: place.and_then(|place| neighbour(places, &volume.name, place)),
        servers_differ: of.servers_differ,
        nodes: &work.nodes,
        recipe: recipe(&classes, &work.config, &volume.class),
        config: &work.config,
    };
    let former = FormerProvisioner { kind: of.former, name: of.name };
    map(&candidate, &former, &work.identity)
}

async fn move_one(work: &Work, volume: &Volume, mapping: &Mapping, of: Of<'_>) -> Result<(), String> {
    let run = async |operation| work.run(operation, volume, &mapping.id, &mapping.provenance).await;
    run(Operation::MoveIn).await.map_err(|failure| failure.message)?;
    let recorded = match confirmed(work, volume, mapping, of).await {
        Ok(fresh) => work.writes.move_in(&fresh, mapping).await.map_err(|error| error.to_string()),
        Err(why) => Err(why),
    };
    let recorded = match recorded {
        Ok(recorded) => recorded,
        // A volume that had provenance before keeps it, and the record of its image.
        Err(why) if volume.provenance.is_some() => return Err(why),
        Err(why) => {
            let left = run(Operation::MoveOut).await.err();
            let left = left.map(|failure| format!("; the image could not take back its record: {}", failure.message));
            return Err(why + &left.unwrap_or_default());
        }
    };
    let marked = work.writes.confirm_move(&recorded).await;
    marked.map(drop).map_err(|error| format!("its record is written, its mark is not: run the command again ({error})"))
}

/// Returns the volume as it is now, if it still maps to the same.
async fn confirmed(work: &Work, volume: &Volume, mapping: &Mapping, of: Of<'_>) -> Result<Volume, String> {
    let Fresh { volume, claim, places } = work.fresh(&volume.name).await?;
    let fresh_mapping =
        self::mapping(work, &volume, claim.as_ref(), &places, of).map_err(|refusal| refusal.to_string())?;
    match fresh_mapping == *mapping {
        true => Ok(volume),
        false => Err("it was changed meanwhile: run the command again".to_owned()),
    }
}
