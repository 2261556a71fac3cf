//! `vouch`: an admin confirms the provenance of volumes that were restored without the adoption mark.

use std::process::ExitCode;

use anyhow::bail;
use clap::Args;
use flex_contract::names;
use flex_core::config::effective_config::EffectiveConfig;
use flex_core::config::keys;
use flex_core::config::script::kept_prefix;
use flex_core::model::moved_in::MovedIn;
use flex_core::model::volume::{OtherAttempt, Provenance, Volume};
use flex_core::text::line;
use flex_core::volume::place::{Places, verify_alone};
use flex_core::volume::vouch::{
    Answers, ClassConfigs, ReferredClaim, SnapshotElsewhere, Vouchable, explain_other_cluster, snapshots_elsewhere,
    vouchable,
};
use flex_provisioner::api::client::Connection;
use flex_provisioner::api::writes::{Binding, Writes};
use flex_provisioner::clock::Clock;
use flex_provisioner::state::index::Index;

use crate::cluster::Cluster;
use crate::collect;
use crate::out::say;
use crate::places::places;

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
        let restored = index.volumes().filter(|volume| volume.is_restored() && volume.belongs_to(&identity));
        let names = match args.all {
            true => restored.map(|volume| volume.name.clone()).collect(),
            false => args.volumes.clone(),
        };
        let work = Work {
            args: &args,
            index: &index,
            configs: ClassConfigs { identity: &identity, classes: &classes, recipes: &recipes, nodes: &nodes },
            places: places(&client).await?,
            writes: Writes::new(client, identity.clone(), Binding::Direct),
        };
        let mut refused = 0;
        for name in &names {
            if let Err(why) = work.confirm(name).await? {
                say!("{name}: refused: {why}");
                refused += 1;
            }
        }
        anyhow::Ok(refused)
    })?;
    Ok(ExitCode::from(if refused == 0 { 0 } else { 2 }))
}

/// The data of one command.
struct Work<'a> {
    args: &'a VouchArgs,
    index: &'a Index,
    configs: ClassConfigs<'a>,
    places: Places,
    writes: Writes,
}

impl Work<'_> {
    /// Prints the record of a volume, and confirms it with the records of its snapshots. Returns the reason if an admin
    /// cannot vouch for it, or must say more.
    async fn confirm(&self, name: &str) -> anyhow::Result<Result<(), String>> {
        let volume = self.index.volume(name);
        let snapshots = self.snapshots(name, volume.as_deref());
        let Some(volume) = volume else {
            if snapshots.is_empty() {
                bail!("PersistentVolume {name} does not exist");
            }
            return self.confirm_snapshots_alone(name, &snapshots).await;
        };
        if volume.is_adopted() && volume.origin_node() == self.args.node && !snapshots.is_empty() {
            return self.confirm_snapshots_alone(name, &snapshots).await;
        }
        let vouchable = match self.vouchable(&volume) {
            Ok(vouchable) => vouchable,
            Err(why) => return Ok(Err(why)),
        };
        show(name, &lines_of(&vouchable.provenance));
        self.show_snapshots(&snapshots);
        if let Some(why) = self.question(name, vouchable) {
            return Ok(Err(why));
        }
        if self.args.dry_run {
            say!("{name}: would be confirmed");
            return Ok(Ok(()));
        }
        // An admin who repeats an interrupted command finds the volume unchanged.
        self.move_snapshots(&snapshots).await?;
        self.writes.vouch(&volume, self.args.node.as_deref()).await?;
        say!("{name}: confirmed; the orchestrator expands and deletes it by this record from now on");
        Ok(Ok(()))
    }

    /// Checks whether an admin can vouch for a volume.
    fn vouchable(&self, volume: &Volume) -> Result<Vouchable, String> {
        let held = volume.volume_id().and_then(|id| self.index.claim_by_id(id)).filter(|claim| claim.is_held());
        if let Some(claim) = held {
            return Err(format!("claim {} is adopting it", claim.name));
        }
        let referred = ReferredClaim::of(volume, |uid| self.index.claim_by_id(uid).is_some());
        let answers = Answers { also_released: self.args.also_released, node: self.args.node.as_deref() };
        vouchable(volume, &self.configs, referred, answers)
    }

    /// Returns the question that an admin must answer first, if there is one.
    fn question(&self, name: &str, vouchable: Vouchable) -> Option<String> {
        let Vouchable { provenance, unknown_node, untrusted_difference, other_cluster } = vouchable;
        let place = self.places.get(name).filter(|_| provenance.moved_in.is_some());
        let not_alone = || place.and_then(|place| verify_alone(&self.places, name, place).err());
        let elsewhere = || {
            let cluster = other_cluster.filter(|other| self.args.from_cluster.as_ref() != Some(other))?;
            let why = explain_other_cluster(&cluster);
            Some(format!("{why}; if it does not, add --from-cluster {cluster}"))
        };
        let untrusted = || {
            let why = untrusted_difference.filter(|_| !self.args.trust_record)?;
            Some(format!("{why}; if the record above is right, add --trust-record"))
        };
        unknown_node.or_else(not_alone).or_else(elsewhere).or_else(untrusted)
    }

    /// Returns the snapshots of a volume, whether it exists or not, that are to follow it to another node.
    fn snapshots(&self, name: &str, volume: Option<&Volume>) -> Vec<SnapshotElsewhere> {
        let Some(node) = self.args.node.as_deref() else { return Vec::new() };
        let named = name.strip_prefix(names::PV_PREFIX);
        let id = volume.map_or(named, Volume::volume_id).unwrap_or_default();
        snapshots_elsewhere(id, node, self.index.contents(), self.configs.identity)
    }

    /// Confirms another node for snapshots whose volume is gone, or has that node in its record already.
    async fn confirm_snapshots_alone(
        &self,
        name: &str,
        snapshots: &[SnapshotElsewhere],
    ) -> anyhow::Result<Result<(), String>> {
        let node = self.args.node.as_deref().unwrap_or_default();
        say!("{name}: snapshots alone");
        self.show_snapshots(snapshots);
        if !self.configs.nodes.iter().any(|known| known.name == node) {
            return Ok(Err(format!("node {node} does not exist")));
        }
        if self.args.dry_run {
            say!("{name}: its snapshots would be confirmed");
            return Ok(Ok(()));
        }
        self.move_snapshots(snapshots).await?;
        say!("{name}: its snapshots are confirmed; the orchestrator deletes them on node {node} from now on");
        Ok(Ok(()))
    }

    fn show_snapshots(&self, snapshots: &[SnapshotElsewhere]) {
        let node = self.args.node.as_deref().unwrap_or_default();
        for SnapshotElsewhere { content, former_node } in snapshots {
            let (snapshot, former_node) = (&content.snapshot, line(former_node, usize::MAX));
            say!(
                "    snapshot {snapshot} (VolumeSnapshotContent {}): from node {former_node} to node {node}",
                content.name
            );
        }
    }

    async fn move_snapshots(&self, snapshots: &[SnapshotElsewhere]) -> anyhow::Result<()> {
        let node = self.args.node.as_deref().unwrap_or_default();
        for snapshot in snapshots {
            self.writes.vouch_snapshot(&snapshot.content, node).await?;
        }
        Ok(())
    }
}

/// Prints a record, for the admin to check.
fn show(name: &str, lines: &[String]) {
    let (first, rest) = lines.split_first().map_or(("", lines), |(first, rest)| (first.as_str(), rest));
    say!("{name}: {first}");
    rest.iter().for_each(|line| say!("    {line}"));
}

/// Returns the lines of a record, with each text that a run would get. The record has no Secret's value.
fn lines_of(Provenance { effective_config, origin_node, moved_in, cluster, others }: &Provenance) -> Vec<String> {
    let mut lines = vec![class_of(effective_config)];
    lines.extend(cluster.as_ref().map(|cluster| format!("adopted in the cluster: {}", whole(cluster))));
    lines.extend(origin_node.as_ref().map(|node| format!("on node: {}", whole(node))));
    if let Some(MovedIn { path, from, size, finalizers }) = moved_in {
        lines.push(format!("storage: {}", whole(path)));
        lines.push(format!("storage has moved in with {size} bytes"));
        lines.extend(from.as_ref().map(|from| format!("storage was made by: {}", whole(from))));
        lines.extend(finalizers.iter().map(|finalizer| format!("finalizer before it moved in: {}", whole(finalizer))));
    }
    lines.extend(settings_of(effective_config));
    for OtherAttempt { effective_config, nodes } in others {
        lines.push(format!("deleted with it, what may be left of {}", class_of(effective_config)));
        lines.extend(nodes.iter().map(|node| format!("on node: {}", whole(node))));
        lines.extend(settings_of(effective_config));
    }
    lines
}

/// Returns a whole text, so that it does nothing to a terminal.
fn whole(text: &str) -> String {
    line(text, usize::MAX)
}

fn class_of(EffectiveConfig { class, config, .. }: &EffectiveConfig) -> String {
    format!("class {}, config {}", whole(class), whole(&config.to_string()))
}

/// Returns the lines of a config, without its name and its class.
fn settings_of(effective_config: &EffectiveConfig) -> Vec<String> {
    let EffectiveConfig { config: _, class: _, service_token, data, script, replaces, parameters } = effective_config;
    let mut lines = Vec::new();
    if !replaces.is_empty() {
        lines.push(format!("provisioner of the class: {}", whole(replaces)));
    }
    if *service_token {
        lines.push(format!("{}: (not shown)", keys::SERVICE_TOKEN.name));
    }
    let is_parameter = |key: &str| !keys::is_key(key);
    lines.extend(data.iter().map(|(key, value)| {
        let kind = if is_parameter(key) { "parameter " } else { "" };
        format!("{kind}{}: {}", whole(key), whole(value))
    }));
    // None of these is a key, whatever its name.
    lines.extend(parameters.iter().map(|(name, value)| format!("parameter {}: {}", whole(name), whole(value))));
    let revision = script.as_ref().map(|hash| whole(&kept_prefix(hash)));
    lines.extend(revision.map(|revision| format!("script: in the ControllerRevision {revision}")));
    lines
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    /// Collects the texts of a value: those of its fields, and the names in its maps of settings.
    fn texts(value: &Value, found: &mut Vec<String>) {
        match value {
            Value::String(text) => found.push(text.clone()),
            Value::Array(all) => all.iter().for_each(|value| texts(value, found)),
            Value::Object(fields) => {
                for (name, value) in fields {
                    if ["data", "parameters"].contains(&name.as_str()) {
                        found.extend(value.as_object().into_iter().flat_map(|settings| settings.keys().cloned()));
                    }
                    texts(value, found);
                }
            }
            _ => {}
        }
    }

    #[test]
    fn each_text_of_a_record_is_shown() {
        let record = json!({
            "config": { "namespace": "the-namespace", "name": "the-config" }, "class": "the-class",
            "service_token": true, "script": "the-hash", "replaces": "the-driver",
            "data": { "image": "the-image", "secret-env": "the-secret", "zone": "the-zone" },
            "parameters": { "csi.storage.k8s.io/provisioner-secret-name": "the-other-secret", "image": "no-image" },
            "node": "the-node", "cluster": "the-cluster",
            "moved-in": { "path": "/the/path", "from": "the-maker", "size": 7, "finalizers": ["the-finalizer"] },
            "others": [{
                "config": { "namespace": "another-namespace", "name": "another-config" }, "class": "another-class",
                "data": { "zone": "another-zone" }, "nodes": ["another-node"],
            }],
        });
        let provenance: Provenance = serde_json::from_value(record.clone()).unwrap();
        assert_eq!(json!(provenance), record, "the test has each field of a record");
        let (lines, mut wanted) = (lines_of(&provenance), Vec::new());
        texts(&record, &mut wanted);
        for text in wanted {
            assert!(lines.iter().any(|line| line.contains(&text)), "{text} is not in {lines:#?}");
        }
        assert!(lines.contains(&"service-token: (not shown)".to_owned()), "{lines:#?}");
        assert!(lines.contains(&"parameter image: no-image".to_owned()), "{lines:#?}");
        let acting = Provenance { origin_node: Some("a\u{1b}[2Kb".into()), ..provenance };
        assert!(lines_of(&acting).iter().all(|line| !line.contains('\u{1b}')));
    }
}
