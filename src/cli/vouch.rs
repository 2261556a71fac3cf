//! `vouch`: an admin confirms the provenance of volumes that were restored without the adoption mark.

use std::process::ExitCode;

use anyhow::bail;
use clap::Args;

use super::adopt::places::places;
use super::cluster::Cluster;
use super::doctor::collect;
use super::out::say;
use crate::api::client::Connection;
use crate::api::writes::{Binding, Writes};
use crate::clock::Clock;
use crate::config::keys;
use crate::config::script::kept_prefix;
use crate::model::volume::Provenance;
use crate::text::line;
use crate::volume::place::verify_alone;
use crate::volume::vouch::{Answers, ClassConfigs, ReferredClaim, Vouchable, explain_other_cluster, vouchable};

#[derive(Debug, Args)]
pub(super) struct VouchArgs {
    #[command(flatten)]
    cluster: Cluster,
    /// The PersistentVolumes to confirm.
    #[arg(required_unless_present = "all", conflicts_with = "all")]
    volumes: Vec<String>,
    /// Confirm all PersistentVolumes that have a record without the mark.
    #[arg(long)]
    all: bool,
    /// Confirm also a record that differs from the present provisioner config: check the printed differences first.
    #[arg(long)]
    trust_record: bool,
    /// Confirm also volumes whose claim is gone and whose policy is Delete: their storage is deleted at once.
    #[arg(long)]
    also_released: bool,
    /// Confirm also volumes that the cluster with this UID has adopted: it must not use their storage any more.
    #[arg(long, value_name = "UID")]
    from_cluster: Option<String>,
    /// Record that this node has the storage: it was renamed or replaced, or the storage was copied to it.
    #[arg(long, value_name = "NAME", conflicts_with = "all")]
    node: Option<String>,
    /// Print what would be confirmed, and change nothing.
    #[arg(long)]
    dry_run: bool,
}

pub(super) fn vouch(args: VouchArgs) -> anyhow::Result<ExitCode> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let refused = runtime.block_on(async {
        let (Connection { client, .. }, identity) = args.cluster.open().await?;
        let index = collect::index(&client, &identity, &Clock::default()).await?;
        let (classes, recipes) = (index.classes(), index.recipe_hashes().map(str::to_owned).collect());
        let nodes: Vec<_> = index.nodes().cloned().collect();
        let configs = ClassConfigs { identity: &identity, classes: &classes, recipes: &recipes, nodes: &nodes };
        let answers = Answers { also_released: args.also_released, node: args.node.as_deref() };
        let restored = index.volumes().filter(|volume| volume.is_restored() && volume.belongs_to(&identity));
        let names = match args.all {
            true => restored.map(|volume| volume.name.clone()).collect(),
            false => args.volumes.clone(),
        };
        let places = places(&client).await?;
        let writes = Writes::new(client, identity.clone(), Binding::Direct);
        let mut refused = 0;
        for name in names {
            let Some(volume) = index.volume(&name) else { bail!("PersistentVolume {name} does not exist") };
            let held = volume.volume_id().and_then(|id| index.claim_by_id(id)).filter(|claim| claim.has_finalizer());
            let checked = match held {
                Some(claim) => Err(format!("claim {} is adopting it", claim.name)),
                None => {
                    let referred = ReferredClaim::of(&volume, |uid| index.claim_by_id(uid).is_some());
                    vouchable(&volume, &configs, referred, answers)
                }
            };
            let Vouchable { provenance, unknown_node, untrusted_difference, other_cluster } = match checked {
                Ok(vouchable) => vouchable,
                Err(why) => {
                    say!("{name}: refused: {why}");
                    refused += 1;
                    continue;
                }
            };
            show(&name, &provenance);
            if let Some(why) = unknown_node {
                say!("{name}: refused: {why}");
                refused += 1;
                continue;
            }
            let place = places.get(&name).filter(|_| provenance.moved_in.is_some());
            if let Some(why) = place.and_then(|place| verify_alone(&places, &name, place).err()) {
                say!("{name}: refused: {why}");
                refused += 1;
                continue;
            }
            if let Some(cluster) = other_cluster.filter(|other| args.from_cluster.as_ref() != Some(other)) {
                let why = explain_other_cluster(&cluster);
                say!("{name}: refused: {why}; if it does not, add --from-cluster {cluster}");
                refused += 1;
                continue;
            }
            match untrusted_difference.filter(|_| !args.trust_record) {
                Some(why) => {
                    say!("{name}: refused: {why}; if the record above is right, add --trust-record");
                    refused += 1;
                }
                None if args.dry_run => say!("{name}: would be confirmed"),
                None => {
                    writes.vouch(&volume, args.node.as_deref()).await?;
                    say!("{name}: confirmed; the orchestrator expands and deletes it by this record from now on");
                }
            }
        }
        anyhow::Ok(refused)
    })?;
    Ok(ExitCode::from(if refused == 0 { 0 } else { 2 }))
}

/// Prints a record, for the admin to check.
fn show(name: &str, Provenance { effective_config, origin_node: node, moved_in, cluster }: &Provenance) {
    say!("{name}: class {}, config {}", effective_config.class, effective_config.config);
    if let Some(cluster) = cluster {
        say!("    adopted in the cluster: {}", line(cluster, usize::MAX));
    }
    if let Some(node) = node {
        say!("    on node: {}", line(node, usize::MAX));
    }
    if let Some(moved_in) = moved_in {
        say!("    storage: {}", line(&moved_in.path, usize::MAX));
    }
    for (key, value) in &effective_config.data {
        let kind = if keys::is_key(key) { "" } else { "parameter " };
        say!("    {kind}{}: {}", line(key, usize::MAX), line(value, usize::MAX));
    }
    if let Some(hash) = &effective_config.script {
        say!("    script: in the ControllerRevision {}", kept_prefix(hash));
    }
}
