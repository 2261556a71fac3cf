//! `adopt`: volumes that another provisioner made are served by a config from then on, with their storage where it is.

pub(super) mod places;
mod undo;
pub(super) mod work;

use std::process::ExitCode;

use anyhow::bail;
use clap::{Args, ValueEnum};
use flex_contract::request::Operation;

use super::doctor::collect;
use super::flags::{Names, Namespaces};
use super::out::say;
use crate::api::writes::{Binding, Writes};
use crate::api::{client, external_provisioner};
use crate::clock::Clock;
use crate::config::external_provisioner::drivers_of;
use crate::model::volume::Volume;
use crate::object::ObjectName;
use crate::volume::moving_in::{Candidate, Former, Mapping, Refusal, map, moved_in};
use places::{check_config, overlapping, places, recipe};
use work::Work;

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
    names: Names,
    #[command(flatten)]
    namespaces: Namespaces,
    /// The kind of the provisioner that made the volumes.
    #[arg(long, value_enum)]
    from: From,
    /// The name of that provisioner, as it stands in its StorageClass [default: the usual name].
    #[arg(long)]
    provisioner: Option<String>,
    /// The provisioner ConfigMap that serves the volumes from then on.
    #[arg(long, value_name = "NAMESPACE/NAME", value_parser = config_name)]
    config: ObjectName,
    /// Only these PersistentVolumes [default: all of that provisioner].
    #[arg(long = "volume", value_name = "NAME")]
    volumes: Vec<String>,
    /// Print the table, and change nothing.
    #[arg(long)]
    dry_run: bool,
    /// Take back what this command wrote, so that the former provisioner serves the volumes again.
    #[arg(long)]
    undo: bool,
}

/// Reads the name of a ConfigMap with its namespace.
pub(super) fn config_name(text: &str) -> Result<ObjectName, String> {
    match text.split_once('/') {
        Some((namespace, name)) if !namespace.is_empty() && !name.is_empty() && !name.contains('/') => {
            Ok(ObjectName::new(namespace, name))
        }
        _ => Err("write NAMESPACE/NAME".to_owned()),
    }
}

pub(super) fn adopt(args: AdoptArgs) -> anyhow::Result<ExitCode> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let refused = runtime.block_on(work(&args))?;
    Ok(ExitCode::from(if refused == 0 { 0 } else { 2 }))
}

/// Reads the cluster for a command that moves storage in.
pub(super) async fn begin(names: &Names, namespaces: &Namespaces, config: &ObjectName) -> anyhow::Result<Work> {
    let identity = names.identity(namespaces);
    let (client, kube_api) = client::connect().await?;
    let index = collect::index(&client, &identity, &Clock::default()).await?;
    let places = places(&client).await?;
    let scripts = collect::scripts(&client, &identity).await?;
    let writes = Writes::new(client.clone(), identity.clone(), Binding::Direct);
    let config = config.clone();
    Ok(Work { client, identity, kube_api, index, places, scripts, writes, config })
}

async fn work(args: &AdoptArgs) -> anyhow::Result<usize> {
    let former = match args.from {
        From::LocalPath => Former::LocalPath,
        From::NfsSubdir => Former::NfsSubdir,
    };
    let name = args.provisioner.as_deref().unwrap_or(former.usual_name());
    let work = begin(&args.names, &args.namespaces, &args.config).await?;
    let is_from = |volume: &Volume| volume.provisioned_by.as_deref() == Some(name);
    let moved = |volume: &Volume| moved_in(volume).is_some_and(|moved_in| moved_in.from == name);
    let is_meant = |volume: &Volume| is_from(volume) || moved(volume);
    let mut volumes: Vec<Volume> = Vec::new();
    if args.volumes.is_empty() {
        volumes.extend(work.index.volumes().filter(|volume| is_meant(volume)).map(|volume| (*volume).clone()));
    }
    for name in &args.volumes {
        let Some(volume) = work.index.volume(name) else { bail!("PersistentVolume {name} does not exist") };
        volumes.push((*volume).clone());
    }
    volumes.sort_by(|a, b| a.name.cmp(&b.name));
    if args.undo {
        volumes.retain(|volume| moved_in(volume).is_some() || !args.volumes.is_empty());
        return Ok(undo::undo(&work, &volumes, args.dry_run).await);
    }
    check_former(&work, name).await?;
    check_config(&work.index.classes(), &args.config)?;
    // Volumes that have moved in need nothing more.
    volumes.retain(|volume| !(volume.is_adopted() && moved(volume)));
    Ok(move_all(&work, &volumes, (former, name), args.dry_run).await)
}

/// Checks that the former provisioner does not run: it would delete released volumes, too.
async fn check_former(work: &Work, name: &str) -> anyhow::Result<()> {
    let config = work.index.config(&work.config);
    let drivers = drivers_of(name, config);
    let found = external_provisioner::once(&work.client, drivers, &Clock::default()).await;
    match found.of(name).blocking_reason(name, &[]) {
        Some(why) => bail!("{why}"),
        None => Ok(()),
    }
}

async fn move_all(work: &Work, volumes: &[Volume], of: (Former, &str), dry_run: bool) -> usize {
    let mapped: Vec<_> = volumes.iter().map(|volume| mapping(work, volume, of)).collect();
    table(work, volumes, &mapped);
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
        say!("no volume of {} is left to move in", of.1);
    }
    refused
}

fn mapping(work: &Work, volume: &Volume, of: (Former, &str)) -> Result<Mapping, Refusal> {
    let classes = work.index.classes();
    let place = work.places.get(&volume.name);
    let claim = volume.claim_ref.as_ref().and_then(|reference| work.index.claim(&reference.name));
    let candidate = Candidate {
        volume,
        place,
        claim: claim.as_deref(),
        overlapping: place.and_then(|place| overlapping(&work.places, &volume.name, place)),
        recipe: recipe(&classes, &work.config, &volume.class),
        config: &work.config,
    };
    map(&candidate, of, &work.identity)
}

async fn move_one(work: &Work, volume: &Volume, mapping: &Mapping, of: (Former, &str)) -> Result<(), String> {
    work.run(Operation::MoveIn, volume, &mapping.id, &mapping.provenance).await?;
    // The run took a while. The write rests on what the volume is now.
    let fresh = work.writes.read_volume(&volume.name).await.map_err(|error| error.to_string())?;
    let fresh = fresh.ok_or("it was deleted meanwhile")?;
    let now = self::mapping(work, &fresh, of).map_err(|refusal| refusal.to_string())?;
    if now != *mapping {
        return Err("it was changed meanwhile: run the command again".to_owned());
    }
    work.writes.move_in(&fresh, mapping).await.map(drop).map_err(|error| error.to_string())
}

/// Prints a line for each volume.
fn table(work: &Work, volumes: &[Volume], mapped: &[Result<Mapping, Refusal>]) {
    if volumes.is_empty() {
        return;
    }
    let mut rows = vec![["VOLUME", "CLAIM", "PATH", "NODE", "CONFIG, OR WHY IT STAYS"].map(str::to_owned)];
    for (volume, mapped) in volumes.iter().zip(mapped) {
        let place = work.places.get(&volume.name);
        let claim = volume.claim_ref.as_ref().map(|reference| reference.name.to_string());
        let path = place.map(|place| match place.server.as_str() {
            "" => place.path.clone(),
            server => format!("{server}:{}", place.path),
        });
        let node = place.map(|place| place.node.clone()).filter(|node| !node.is_empty());
        let what = match mapped {
            Ok(mapping) => format!("{} (class {})", work.config, mapping.provenance.record.class),
            Err(refusal) => refusal.to_string(),
        };
        let shown = [Some(volume.name.clone()), claim, path, node].map(|cell| cell.unwrap_or_else(|| "-".to_owned()));
        let [volume, claim, path, node] = shown;
        rows.push([volume, claim, path, node, what].map(|cell| crate::text::line(&cell, usize::MAX)));
    }
    let widths: [usize; 4] =
        std::array::from_fn(|column| rows.iter().map(|row| row[column].chars().count()).max().unwrap_or_default());
    for row in rows {
        let [a, b, c, d] = widths;
        say!("{:a$}  {:b$}  {:c$}  {:d$}  {}", row[0], row[1], row[2], row[3], row[4]);
    }
}
