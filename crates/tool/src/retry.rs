//! `retry`: begins the next attempt after a failure now, and not when its delay is over.

use std::process::ExitCode;

use anyhow::Context as _;
use clap::Args;
use clap_complete::ArgValueCompleter;
use flex_contract::names;
use flex_core::claim::progress::{Progress, progress};
use flex_core::model::claim::Claim;
use flex_core::model::snapshot::Content;
use flex_core::model::snapshot::api::VolumeSnapshotContent;
use flex_core::model::volume::Volume;
use flex_core::object::ObjectName;
use flex_core::text::line;
use flex_provisioner::age::age;
use flex_provisioner::api::client::Connection;
use flex_provisioner::state::index::Index;
use k8s_openapi::api::apps::v1::ControllerRevision;
use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim};
use kube::api::{Patch, PatchParams};
use kube::{Api, Client};
use serde_json::json;

use crate::claim::{Found, Named};
use crate::cluster::Cluster;
use crate::collect;
use crate::complete::candidates::{claims, classes};
use crate::each::each;
use crate::name::as_called;
use crate::namespaces::UserNamespaces;
use crate::out::say;

/// The exit code if no attempt has failed.
const NOTHING_FAILED: u8 = 2;

#[derive(Debug, Args)]
pub(super) struct RetryArgs {
    /// The claim, as NAME, NAMESPACE/NAME or pvc/NAME; or its volume, as pv/NAME.
    #[arg(value_name = "CLAIM", add = ArgValueCompleter::new(claims))]
    claim: Option<String>,
    /// Try again whatever has failed for this class: attempts for claims, and runs that delete, expand or modify
    /// volumes or delete snapshots.
    #[arg(long, conflicts_with = "claim", required_unless_present = "claim", add = ArgValueCompleter::new(classes))]
    class: Option<String>,
    #[command(flatten)]
    namespaces: UserNamespaces,
    /// Print what would be tried again, and change nothing.
    #[arg(long)]
    dry_run: bool,
    #[command(flatten)]
    cluster: Cluster,
}

/// An object whose last run failed.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Failed {
    object: Object,
    /// What failed, when and why.
    what: String,
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Object {
    Claim(ObjectName),
    /// The record of a claim that is gone.
    Record(ObjectName),
    Volume(String),
    Content(String),
}

impl std::fmt::Display for Object {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Object::Claim(name) => write!(f, "claim {name}"),
            Object::Record(name) => write!(f, "record {name}"),
            Object::Volume(name) => write!(f, "volume {name}"),
            Object::Content(name) => write!(f, "VolumeSnapshotContent {name}"),
        }
    }
}

pub(super) fn retry(args: RetryArgs) -> anyhow::Result<ExitCode> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(work(args))
}

async fn work(mut args: RetryArgs) -> anyhow::Result<ExitCode> {
    let (Connection { client, namespace, has_context, clock, .. }, identity) = args.cluster.open().await?;
    args.namespaces.take_usual(has_context, &namespace);
    let failed = match (&args.claim, &args.class) {
        (Some(claim), _) => {
            let named = Named::read(claim, args.namespaces.of_claim(claim)?, &namespace)?;
            match named.find(&client, &identity).await? {
                Found::Claim(claim) => of_claim(&client, &Claim::from(&*claim), clock.now()).await?,
                Found::Left(left) => {
                    let volume = left.volume.iter().filter_map(|it| failed_volume(it, clock.now()));
                    volume.chain(left.stand_in.iter().filter_map(|it| failed_claim(it, clock.now()))).collect()
                }
            }
        }
        (None, Some(class)) => {
            let index = collect::index(&client, &identity, &clock).await?;
            of_class(&index, class, &args.namespaces, clock.now())
        }
        (None, None) => Vec::new(),
    };
    if failed.is_empty() {
        let usual = args.namespaces.usual().filter(|_| args.class.is_some());
        let place = usual.map(|namespace| format!(" in namespace {namespace} (-A: in all)")).unwrap_or_default();
        say!("nothing to retry{place}: no attempt has failed that waits for its next try");
        return Ok(ExitCode::from(NOTHING_FAILED));
    }
    let now = clock.wall().to_string();
    // A claim may be gone by now.
    each(failed, async |Failed { object, what }| {
        if args.dry_run {
            say!("{object}: would be tried again: {what}");
            return Ok(());
        }
        ask(&client, &object, &now).await.with_context(|| format!("{object} cannot be tried again"))?;
        say!("{object}: the next attempt begins now: {what}");
        Ok(())
    })
    .await?;
    Ok(ExitCode::SUCCESS)
}

/// Asks the orchestrator for the next attempt.
async fn ask(client: &Client, object: &Object, now: &str) -> kube::Result<()> {
    let patch = Patch::Merge(json!({ "metadata": { "annotations": { names::RETRY: now } } }));
    let params = PatchParams::default();
    match object {
        Object::Claim(ObjectName { namespace, name }) => {
            let api: Api<PersistentVolumeClaim> = Api::namespaced(client.clone(), namespace);
            api.patch(name, &params, &patch).await.map(drop)
        }
        Object::Record(ObjectName { namespace, name }) => {
            let api: Api<ControllerRevision> = Api::namespaced(client.clone(), namespace);
            api.patch(name, &params, &patch).await.map(drop)
        }
        Object::Volume(name) => {
            Api::<PersistentVolume>::all(client.clone()).patch(name, &params, &patch).await.map(drop)
        }
        Object::Content(name) => {
            Api::<VolumeSnapshotContent>::all(client.clone()).patch(name, &params, &patch).await.map(drop)
        }
    }
}

/// Returns what has failed for a claim: its own last run, or the last run that should change its volume.
async fn of_claim(client: &Client, claim: &Claim, now: i64) -> anyhow::Result<Vec<Failed>> {
    let Some(name) = claim.volume_name.as_ref().filter(|_| claim.is_bound()) else {
        return Ok(failed_claim(claim, now).into_iter().collect());
    };
    let volume = Api::<PersistentVolume>::all(client.clone()).get(name).await;
    let volume = volume.with_context(|| format!("volume {name} of claim {} cannot be read", claim.name))?;
    Ok(failed_volume(&Volume::from(&volume), now).into_iter().collect())
}

/// Returns what has failed for a class, in the namespaces of these users.
fn of_class(index: &Index, class: &str, namespaces: &UserNamespaces, now: i64) -> Vec<Failed> {
    let claims = index.claims().filter(|claim| claim.class.as_deref() == Some(class) && !claim.is_bound());
    let claims = claims.filter(|claim| namespaces.has(&claim.name.namespace));
    let mut claims: Vec<_> = claims.filter_map(|claim| failed_claim(&claim, now)).collect();
    // Claims of a batch that are gone share a record.
    claims.sort_by(|a, b| a.object.cmp(&b.object));
    claims.dedup_by(|a, b| a.object == b.object);
    let volumes = index.volumes().filter(|volume| volume.class == class && namespaces.has(volume.user_namespace()));
    let volumes = volumes.filter_map(|volume| failed_volume(&volume, now));
    let of_class = |content: &Content| content.made_by().is_some_and(|made_by| made_by.effective_config.class == class);
    let contents = index.contents();
    let contents = contents.filter(|content| of_class(content) && namespaces.has(&content.snapshot.namespace));
    let contents = contents.filter_map(|content| failed_content(content, now));
    claims.into_iter().chain(volumes).chain(contents).collect()
}

fn failed_claim(claim: &Claim, now: i64) -> Option<Failed> {
    let failure = claim.last_failure.as_ref()?;
    let waits = matches!(progress(claim), Progress::Failed | Progress::Deleting);
    let what = described(failure.operation.as_str(), failure.attempt, now - failure.at, &failure.message);
    let object = match &claim.record {
        Some(record) => Object::Record(record.name.clone()),
        None => Object::Claim(claim.name.clone()),
    };
    waits.then_some(Failed { object, what })
}

fn failed_volume(volume: &Volume, now: i64) -> Option<Failed> {
    let failed = volume.failed_runs().next()?;
    let what = described(failed.operation.as_str(), failed.attempt, now - failed.at, failed.message);
    Some(Failed { object: Object::Volume(volume.name.clone()), what })
}

fn failed_content(content: &Content, now: i64) -> Option<Failed> {
    let failure = content.last_failure.as_ref()?;
    let what = described(failure.operation.as_str(), failure.attempt, now - failure.at, &failure.message);
    Some(Failed { object: Object::Content(content.name.clone()), what })
}

/// The longest text of an image beside its run. `logs` and the events have the whole.
const MAX_WORDS: usize = 200;

fn described(operation: &str, attempt: u32, ago: i64, message: &str) -> String {
    format!("{operation} run {attempt} failed {} ago: {}", age(ago), as_called(&line(message, MAX_WORDS)))
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;

    const NOW: i64 = 1_800_000_000;

    fn failure(operation: &str, attempt: u32) -> String {
        let failure = json!({
            "operation": operation, "attempt": attempt, "at": NOW - 90, "kind": "retry", "reason": "ExitCode",
            "message": "exit code 75:\nbusy",
        });
        failure.to_string()
    }

    fn claim(annotations: &Value, deleted: bool) -> Claim {
        let mut metadata = json!({ "name": "data", "namespace": "team", "uid": "u", "annotations": annotations });
        if deleted {
            metadata["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
        }
        Claim::from(&serde_json::from_value::<PersistentVolumeClaim>(json!({ "metadata": metadata })).unwrap())
    }

    #[test]
    fn a_claim_is_tried_again_while_its_last_run_has_failed() {
        let stamped = |attempt: &str, failure: Option<String>| {
            let mut annotations = json!({ names::CLAIM_UID: "u", names::ATTEMPT: attempt });
            if let Some(failure) = failure {
                annotations[names::FAILURE] = json!(failure);
            }
            annotations
        };
        let failed = |operation, attempt| Some(failure(operation, attempt));
        for (what, annotations, deleted, expected) in [
            ("no attempt", json!({}), false, None),
            ("the first attempt", stamped("1", None), false, None),
            ("a failed attempt", stamped("2", failed("provision", 2)), false, Some("provision run 2 failed 90s ago")),
            ("the next attempt runs", stamped("3", failed("provision", 2)), false, None),
            ("a failed deletion", stamped("1", failed("delete", 4)), true, Some("delete run 4 failed 90s ago")),
        ] {
            let found = failed_claim(&claim(&annotations, deleted), NOW).map(|failed| failed.what);
            let expected = expected.map(|text| format!("{text}: exit code 75:\\nbusy"));
            assert_eq!(found, expected, "{what}");
        }
    }

    #[test]
    fn a_volume_is_tried_again_after_each_kind_of_failure() {
        let volume = |key: &str, note: &Value| {
            let annotations = json!({ key: note.to_string() });
            let object = json!({ "metadata": { "name": "pvc-a", "annotations": annotations } });
            Volume::from(&serde_json::from_value::<PersistentVolume>(object).unwrap())
        };
        let deletion: Value = serde_json::from_str(&failure("delete", 2)).unwrap();
        let expansion = json!({
            "attempt": 3, "size": 2, "config": "a/b@c", "tries": 1, "at": NOW - 90, "kind": "never", "reason": "ExitCode",
            "message": "full",
        });
        for (key, note, expected) in [
            (names::FAILURE, deletion, "delete run 2 failed 90s ago: exit code 75:\\nbusy"),
            (names::EXPANSION, expansion, "expand run 3 failed 90s ago: full"),
        ] {
            let found = failed_volume(&volume(key, &note), NOW);
            let object = Object::Volume("pvc-a".into());
            assert_eq!(found, Some(Failed { object, what: expected.to_owned() }), "{key}");
        }
        assert_eq!(failed_volume(&volume("other", &json!({})), NOW), None);
    }
}
