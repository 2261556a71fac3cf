//! `uninstall`: shows what still needs the orchestrator before it is removed.

use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail};
use clap::Args;
use flex_contract::policy::ReclaimPolicy;
use flex_core::config::classes::Identity;
use flex_core::model::snapshot::Content;
use flex_core::model::snapshot::api::VolumeSnapshotContent;
use flex_core::model::volume::Volume;
use flex_core::uninstall::{Dependent, can_be_retained, dependents, kept_of};
use flex_provisioner::api::client::Connection;
use flex_provisioner::clock::Clock;
use k8s_openapi::api::core::v1::PersistentVolume;
use kube::api::{Patch, PatchParams};
use kube::{Api, Client};
use serde_json::json;

use crate::cluster::Cluster;
use crate::collect;
use crate::each::each;
use crate::flags::Output;
use crate::name::told;
use crate::out::{remark, say};

/// The time between two looks at the cluster.
const POLL: Duration = Duration::from_secs(1);

#[derive(Debug, Args)]
pub(super) struct UninstallArgs {
    #[command(flatten)]
    cluster: Cluster,
    /// The form of the output.
    #[arg(short, long, value_enum, default_value = "table")]
    output: Output,
    /// Keep the storage of all volumes and snapshots: sets their policies to Retain, once no claim, run or deletion is in
    /// progress. The orchestrator then removes its finalizers from volumes. VolumeSnapshots need the orchestrator until they
    /// are deleted.
    #[arg(long)]
    retain: bool,
    /// The longest time to wait until nothing needs the orchestrator [default: do not wait].
    #[arg(long, value_parser = flex_core::config::values::duration)]
    wait: Option<Duration>,
    /// What else to print if something still needs the orchestrator.
    #[arg(long, value_name = "TEXT")]
    if_refused: Option<String>,
}

/// The objects of an orchestrator.
struct Objects {
    volumes: Vec<Volume>,
    contents: Vec<Content>,
    dependents: Vec<Dependent>,
}

impl Objects {
    /// Checks whether there is something that must end before volumes are retained.
    fn has_work_in_progress(&self) -> bool {
        self.dependents.iter().any(|dependent| dependent.is_in_progress)
    }
}

pub(super) fn uninstall(args: UninstallArgs) -> anyhow::Result<ExitCode> {
    let UninstallArgs { cluster, output, retain, wait, if_refused } = args;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let (found, identity) = runtime.block_on(async {
        let (Connection { client, .. }, identity) = cluster.open().await?;
        let began = Instant::now();
        let may_wait = || wait.is_some_and(|longest| began.elapsed() < longest);
        if retain {
            let objects = last(&client, &identity, may_wait, Objects::has_work_in_progress).await?;
            // Nothing is changed where the removal is not safe afterwards.
            if objects.has_work_in_progress() {
                return Ok((objects.dependents, identity));
            }
            keep(&client, &objects).await?;
        }
        let objects = last(&client, &identity, may_wait, |objects| !objects.dependents.is_empty()).await?;
        anyhow::Ok((objects.dependents, identity))
    })?;
    match output.document(|| json!({ "safe": found.is_empty(), "dependents": found }))? {
        Some(document) => say!("{document}"),
        None => print(&found, &identity),
    }
    if let Some(text) = if_refused.filter(|_| !found.is_empty()) {
        remark!("{text}");
    }
    Ok(ExitCode::from(if found.is_empty() { 0 } else { 2 }))
}

/// Reads the objects again and again while the command `waits` for some of them, as long as it may. Says how many still
/// need the orchestrator, whenever that changes.
async fn last(
    client: &Client,
    identity: &Identity,
    may_wait: impl Fn() -> bool,
    waits: impl Fn(&Objects) -> bool,
) -> anyhow::Result<Objects> {
    let (mut objects, mut said) = (read(client, identity).await?, 0);
    while waits(&objects) && may_wait() {
        let count = objects.dependents.len();
        if let Some(Dependent { kind, name, .. }) = objects.dependents.first().filter(|_| count != said) {
            remark!("waiting: {count} objects still need the orchestrator, such as {kind} {name}");
            said = count;
        }
        tokio::time::sleep(POLL).await;
        objects = read(client, identity).await?;
    }
    Ok(objects)
}

async fn read(client: &Client, identity: &Identity) -> anyhow::Result<Objects> {
    let index = collect::index(client, identity, &Clock::default()).await?;
    let volumes: Vec<_> =
        index.volumes().filter(|volume| volume.belongs_to(identity)).map(|volume| (*volume).clone()).collect();
    let contents: Vec<_> =
        index.contents().filter(|content| content.is_ours(identity)).map(|content| (**content).clone()).collect();
    let claims: Vec<_> = index
        .claims()
        .filter(|claim| !claim.belongs_to_other_instance(&identity.instance))
        .map(|claim| (*claim).clone())
        .collect();
    let jobs: Vec<_> = index.jobs().map(|job| (**job).clone()).collect();
    let mut dependents = dependents(&volumes, &claims, &contents, &jobs);
    dependents.extend(index.kept_records().filter_map(|record| kept_of(record)));
    dependents.sort();
    Ok(Objects { volumes, contents, dependents })
}

/// Sets the policies of volumes and snapshots to Retain. The orchestrator then removes its finalizers.
async fn keep(client: &Client, objects: &Objects) -> anyhow::Result<()> {
    let volumes: Api<PersistentVolume> = Api::all(client.clone());
    let retained = each(objects.volumes.iter().filter(|volume| can_be_retained(volume)), async |volume| {
        let patch = json!({
            "metadata": { "resourceVersion": volume.resource_version },
            "spec": { "persistentVolumeReclaimPolicy": "Retain" },
        });
        let kept = volumes.patch(&volume.name, &PatchParams::default(), &Patch::Merge(patch)).await;
        kept.with_context(|| format!("PersistentVolume {} cannot be retained", volume.name))?;
        remark!("PersistentVolume {}: its storage is kept", volume.name);
        Ok(())
    })
    .await;
    let contents: Api<VolumeSnapshotContent> = Api::all(client.clone());
    let deletable = |content: &&Content| content.policy == ReclaimPolicy::Delete && !content.terminating;
    let kept = each(objects.contents.iter().filter(deletable), async |content| {
        let patch = json!({
            "metadata": { "resourceVersion": content.resource_version },
            "spec": { "deletionPolicy": "Retain" },
        });
        let kept = contents.patch(&content.name, &PatchParams::default(), &Patch::Merge(patch)).await;
        kept.with_context(|| format!("VolumeSnapshotContent {} cannot be retained", content.name))?;
        remark!("VolumeSnapshotContent {}: its snapshot is kept", content.name);
        Ok(())
    })
    .await;
    match (retained, kept) {
        (Err(volumes), Err(contents)) => bail!("{volumes}\n{contents}"),
        (volumes, contents) => volumes.and(contents),
    }
}

fn print(found: &[Dependent], identity: &Identity) {
    for Dependent { kind, name, why, remedy, .. } in found {
        say!("{kind} {name}: {why}");
        say!("    what to do: {}", told(remedy));
    }
    match found.len() {
        0 => say!(
            "nothing needs the orchestrator {} any more: remove it as it was installed (kubectl delete -k, or helm uninstall)",
            identity.instance
        ),
        count => say!("{count} objects still need the orchestrator {}: do not remove it yet", identity.instance),
    }
}
