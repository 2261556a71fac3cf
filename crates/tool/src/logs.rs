//! `logs`: prints the log of a claim's current run, or what is left of it. For a claim that is gone, it prints the log of
//! the last run for what the claim has left.

use std::process::ExitCode;

use anyhow::{Context as _, bail};
use clap::Args;
use flex_contract::names;
use flex_contract::operation::Operation;
use flex_core::config::classes::Identity;
use flex_core::model::claim::Claim;
use flex_core::model::volume::Volume;
use flex_core::object::ObjectName;
use flex_core::run::failure::LastFailure;
use flex_core::run::view;
use flex_core::text::{line, printable};
use flex_provisioner::api::client::Connection;
use flex_provisioner::api::{pages, says};
use k8s_openapi::api::core::v1::{PersistentVolume, Pod};
use kube::api::{ListParams, LogParams};
use kube::{Api, Client};

use crate::claim::{ClaimName, Found};
use crate::cluster::Cluster;
use crate::left::Left;
use crate::name::told;
use crate::out::{remark, say};

/// The exit code if there is no log.
const NO_LOG: u8 = 2;

#[derive(Debug, Args)]
pub(super) struct LogsArgs {
    #[command(flatten)]
    claim: ClaimName,
    /// The attempt before the last one.
    #[arg(short, long)]
    previous: bool,
    #[command(flatten)]
    cluster: Cluster,
}

/// The run whose log the user wants.
#[derive(Debug, PartialEq, Eq)]
struct Wanted {
    /// The operations of such runs.
    operations: &'static [Operation],
    /// The volume id.
    id: String,
    /// The number of the attempt; `None` for the last one that has a pod.
    attempt: Option<u32>,
}

/// The claim, or what it has left, as far as the log of a run is concerned.
#[derive(Debug)]
struct Subject {
    /// The name, with its kind.
    title: String,
    /// The last failed run.
    failure: Option<LastFailure>,
    /// The namespace of the config, as the attempt in progress knows it.
    config_namespace: Option<String>,
    /// The claim is bound.
    is_bound: bool,
    /// The command that says more.
    more: String,
}

impl Subject {
    fn of_claim(claim: &Claim) -> Self {
        let ObjectName { namespace, name } = &claim.name;
        let stamped = claim.own_stamp().and_then(|stamp| stamp.recipe_version.split_once('/'));
        Subject {
            title: format!("claim {}", claim.name),
            failure: claim.last_failure.clone(),
            config_namespace: stamped.map(|(namespace, _)| namespace.to_owned()),
            is_bound: claim.is_bound(),
            more: format!("kubectl -n {namespace} describe pvc {name}"),
        }
    }

    fn of_left(left: &Left) -> Self {
        let volume = left.volume.as_ref();
        let more = volume.map(|volume| format!("kubectl describe pv {}", volume.name));
        let stamped = left.stand_in.as_ref().and_then(|claim| claim.own_stamp());
        let stamped = stamped.and_then(|stamp| stamp.recipe_version.split_once('/'));
        let of_stamp = || stamped.map(|(namespace, _)| namespace.to_owned());
        let config_namespace = left.jobs.last().map(|job| job.name.namespace.clone()).or_else(of_stamp);
        let failed = left.stand_in.as_ref().and_then(|claim| claim.last_failure.clone());
        let more = more.unwrap_or_else(|| {
            let namespace = left.claim.as_ref().map(|claim| claim.namespace.as_str()).unwrap_or_default();
            format!("kubectl -n {namespace} get events")
        });
        Subject {
            title: left.title(),
            failure: volume.and_then(|volume| volume.last_failure.clone()).or(failed),
            config_namespace,
            is_bound: false,
            more,
        }
    }
}

pub(super) fn logs(args: LogsArgs) -> anyhow::Result<ExitCode> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(work(&args))
}

async fn work(args: &LogsArgs) -> anyhow::Result<ExitCode> {
    if let Some(bundle) = args.cluster.bundle() {
        let file = bundle.display();
        bail!("a support bundle has the logs as files: `tar -xzf {file}`, and look into flex-bundle/logs/");
    }
    let (Connection { client, namespace, .. }, identity) = args.cluster.open().await?;
    let (subject, wanted) = match args.claim.named(&namespace)?.find(&client, &identity).await? {
        Found::Claim(claim) => {
            let claim = Claim::from(&*claim);
            let wanted = wanted(&claim, volume_id(&client, &claim).await, args.previous);
            (Subject::of_claim(&claim), wanted)
        }
        Found::Left(left) => (Subject::of_left(&left), Ok(wanted_of_left(&left))),
    };
    let wanted = match wanted {
        Ok(wanted) => wanted,
        Err(why) => {
            say!("{}: {why}", subject.title);
            return Ok(ExitCode::from(NO_LOG));
        }
    };
    let pods = match pods(&client, &identity, &subject, &wanted).await {
        Ok(pods) => pods,
        Err(error) => return last_words(&subject, error),
    };
    let (attempt, selected) = selected(&pods, &wanted, args.previous);
    let mut printed = 0;
    for pod in &selected {
        if selected.len() > 1 {
            say!("==> pod {} <==", pod.name);
        }
        printed += usize::from(print(&client, pod).await?);
    }
    if selected.is_empty() {
        say!("{}: {}", subject.title, without_pod(&subject, &wanted, attempt));
    }
    Ok(ExitCode::from(if printed > 0 { 0 } else { NO_LOG }))
}

/// Prints the last words that an object keeps, for a user who may not read the pods.
fn last_words(subject: &Subject, error: anyhow::Error) -> anyhow::Result<ExitCode> {
    let Some(failure) = &subject.failure else { return Err(error) };
    let why = line(&says::causes(&error), usize::MAX);
    say!("{}: {why}", subject.title);
    let message = told(&failure.message);
    say!("{} keeps the last words of its {} run {}: {message}", subject.title, failure.operation, failure.attempt);
    Ok(ExitCode::from(NO_LOG))
}

/// Returns the id of a claim's volume, if it has one that can be read.
async fn volume_id(client: &Client, claim: &Claim) -> Option<String> {
    let name = claim.volume_name.as_ref().filter(|_| claim.is_bound())?;
    let volume = Api::<PersistentVolume>::all(client.clone()).get(name).await.ok()?;
    Volume::from(&volume).volume_id().map(str::to_owned)
}

/// Returns the run that a claim is about: the attempt to make its volume, then changes of the volume, and at last the
/// deletion of what attempts have left.
fn wanted(claim: &Claim, volume_id: Option<String>, previous: bool) -> Result<Wanted, String> {
    let id = volume_id.unwrap_or_else(|| claim.volume_id());
    let last = |operations| Ok(Wanted { operations, id: id.clone(), attempt: None });
    if claim.is_bound() {
        return last(&[Operation::Expand, Operation::Modify]);
    }
    if claim.terminating {
        return last(&[Operation::Delete]);
    }
    let Some(stamp) = claim.own_stamp() else {
        return Err(format!("no attempt to make its volume has begun; {}", its_events(&Subject::of_claim(claim))));
    };
    let attempt = stamp.attempt.saturating_sub(u32::from(previous));
    if attempt == 0 {
        return Err("its last attempt is its first: there is none before".to_owned());
    }
    Ok(Wanted { operations: &[Operation::Provision], id, attempt: Some(attempt) })
}

/// Returns the run that a claim has left: its deletion, or the attempt that came too late.
fn wanted_of_left(left: &Left) -> Wanted {
    let last = left.jobs.last().map(|job| &job.run_labels);
    let is_late = last.is_some_and(|labels| labels.operation == Operation::Provision);
    let operations: &[Operation] = if is_late { &[Operation::Provision] } else { &[Operation::Delete] };
    let id = left.volume.as_ref().and_then(Volume::volume_id);
    let id = id.or(last.map(|labels| labels.id.as_str())).map(str::to_owned);
    let id = id.or_else(|| left.stand_in.as_ref().map(|claim| claim.volume_id())).unwrap_or_default();
    Wanted { operations, id, attempt: None }
}

fn its_events(subject: &Subject) -> String {
    format!("its events say more: {}", subject.more)
}

/// Returns pods that may be those of the wanted run. They are where the config is, or was.
async fn pods(
    client: &Client,
    identity: &Identity,
    subject: &Subject,
    wanted: &Wanted,
) -> anyhow::Result<Vec<view::Pod>> {
    let mut namespaces = identity.config_namespaces.clone();
    namespaces.extend(subject.config_namespace.clone());
    namespaces.sort();
    namespaces.dedup();
    let own = format!("{}={}", names::LABEL_VOLUME_ID, wanted.id);
    let operations: Vec<_> = wanted.operations.iter().map(|operation| operation.as_str()).collect();
    // An attempt may be in a batch, whose pod lists its members.
    let any = format!(
        "{}={},{} in ({})",
        names::LABEL_INSTANCE,
        identity.instance,
        names::LABEL_OPERATION,
        operations.join(",")
    );
    for selector in [own, any] {
        let mut found = Vec::new();
        for namespace in &namespaces {
            let api: Api<Pod> = Api::namespaced(client.clone(), namespace);
            let listed = pages::all(&api, ListParams::default().labels(&selector), |pod| view::Pod::from(&pod)).await;
            let listed = listed.with_context(|| format!("the pods in namespace {namespace} cannot be listed"))?;
            found.extend(listed);
        }
        if found.iter().any(|pod| attempt_of(pod, wanted).is_some_and(|n| wanted.attempt.is_none_or(|w| w == n))) {
            return Ok(found);
        }
    }
    Ok(Vec::new())
}

/// Returns the number of the attempt that a pod makes, if it is one of the wanted kind.
fn attempt_of(pod: &view::Pod, wanted: &Wanted) -> Option<u32> {
    let labels = &pod.run_labels;
    if !wanted.operations.iter().any(|operation| labels.operation == *operation) {
        return None;
    }
    let member = pod.members.iter().find(|member| member.id == wanted.id).map(|member| member.attempt);
    member.or((labels.id == wanted.id).then_some(labels.attempt))
}

/// Selects the pods of the wanted attempt, the oldest first, and returns its number.
fn selected<'a>(pods: &'a [view::Pod], wanted: &Wanted, previous: bool) -> (Option<u32>, Vec<&'a view::Pod>) {
    let attempts: Vec<_> = pods.iter().filter_map(|pod| Some((attempt_of(pod, wanted)?, pod))).collect();
    let last = attempts.iter().map(|(attempt, _)| *attempt).max();
    let attempt = wanted.attempt.or(last.and_then(|last| last.checked_sub(u32::from(previous))));
    let mut found: Vec<_> = attempts.iter().filter(|(one, _)| Some(*one) == attempt).map(|(_, pod)| *pod).collect();
    found.sort_by(|a, b| (a.created, &a.name).cmp(&(b.created, &b.name)));
    (attempt, found)
}

/// Prints the log of a pod. Returns whether there is one.
async fn print(client: &Client, pod: &view::Pod) -> anyhow::Result<bool> {
    let ObjectName { namespace, name } = &pod.name;
    if pod.members.len() > 1 {
        remark!("pod {} works for {} claims or volumes: its log is about all of them", pod.name, pod.members.len());
    }
    let pods: Api<Pod> = Api::namespaced(client.clone(), namespace);
    let params = LogParams { container: Some(names::CONTAINER.into()), ..LogParams::default() };
    match pods.logs(name, &params).await {
        Ok(log) if log.trim().is_empty() => remark!("pod {} has written nothing", pod.name),
        Ok(log) => say!("{}", printable(log.trim_end(), usize::MAX)),
        // The container has not started yet, or the pod has gone meanwhile.
        Err(kube::Error::Api(status)) if matches!(status.code, 400 | 404) => {
            say!("pod {} has no log: {}", pod.name, line(&status.message, usize::MAX));
            return Ok(false);
        }
        Err(error) => return Err(error).with_context(|| format!("the log of pod {} cannot be read", pod.name)),
    }
    Ok(true)
}

/// Says what is known of a run without a pod.
fn without_pod(subject: &Subject, wanted: &Wanted, attempt: Option<u32>) -> String {
    let of_run = subject.failure.as_ref().filter(|failure| {
        wanted.operations.contains(&failure.operation) && attempt.is_none_or(|attempt| failure.attempt == attempt)
    });
    let no_pod = match attempt.or(of_run.map(|failure| failure.attempt)) {
        Some(attempt) => format!("no pod of attempt {attempt} exists"),
        None => format!("no pod of a run to {} it exists", wanted.operations[0]),
    };
    match of_run {
        Some(failure) => {
            let (reason, words) = (told(&failure.reason), told(&failure.message));
            format!("{no_pod} any more; its last words were: {reason}: {words}")
        }
        None if subject.is_bound => {
            format!("{no_pod}; it is bound, and the pods of its attempts were deleted then")
        }
        None => format!("{no_pod}; {}", its_events(subject)),
    }
}

#[cfg(test)]
mod tests {
    use flex_core::run::member::{Member, MemberObject};
    use k8s_openapi::api::core::v1::PersistentVolumeClaim;
    use serde_json::{Value, json};

    use super::*;

    const BATCH: &str = "provision-batch-0123456789abcdef";

    fn claim(annotations: Value, phase: &str) -> Claim {
        let mut annotations = annotations;
        annotations[names::CLAIM_UID] = json!("u");
        let metadata = json!({ "name": "data", "namespace": "team", "uid": "u", "annotations": annotations });
        let spec = json!({ "volumeName": if phase == "Bound" { Some("pvc-u") } else { None } });
        let object = json!({ "metadata": metadata, "spec": spec, "status": { "phase": phase } });
        let mut object: PersistentVolumeClaim = serde_json::from_value(object).unwrap();
        if phase == "Bound" {
            let annotations = object.metadata.annotations.get_or_insert_default();
            annotations.insert(names::BIND_COMPLETED.into(), "yes".into());
        }
        Claim::from(&object)
    }

    fn stamped(attempt: u32) -> Value {
        json!({ names::ATTEMPT: attempt.to_string(), names::RECIPE_VERSION: "admin/c@1" })
    }

    fn pod(name: &str, operation: &str, id: &str, attempt: u32, members: &Value) -> view::Pod {
        let labels = json!({ names::LABEL_OPERATION: operation, names::LABEL_VOLUME_ID: id, names::LABEL_ATTEMPT: attempt.to_string(), "batch.kubernetes.io/job-name": BATCH });
        let annotations = json!({ names::BATCH: members.to_string() });
        let metadata = json!({ "name": name, "namespace": "admin", "labels": labels, "annotations": annotations });
        view::Pod::from(&serde_json::from_value::<Pod>(json!({ "metadata": metadata })).unwrap())
    }

    #[test]
    fn the_wanted_run_follows_from_the_state_of_the_claim() {
        let provision =
            |attempt| Wanted { operations: &[Operation::Provision], id: "u".into(), attempt: Some(attempt) };
        let of = |annotations: Value, previous| wanted(&claim(annotations, "Pending"), None, previous);
        assert_eq!(of(stamped(3), false), Ok(provision(3)));
        assert_eq!(of(stamped(3), true), Ok(provision(2)));
        assert!(of(stamped(1), true).is_err_and(|why| why.contains("there is none before")));
        let never = of(json!({}), false);
        assert!(
            never.as_ref().is_err_and(|why| why.contains("has begun; its events say more: kubectl -n team")),
            "{never:?}"
        );
        let bound = wanted(&claim(stamped(3), "Bound"), Some("v".into()), false).unwrap();
        assert_eq!((bound.operations, bound.id.as_str()), (&[Operation::Expand, Operation::Modify][..], "v"));
        let terminating = Claim { terminating: true, ..claim(stamped(3), "Pending") };
        assert_eq!(wanted(&terminating, None, false).unwrap().operations, [Operation::Delete]);
    }

    #[test]
    fn the_pods_of_the_wanted_attempt_are_selected() {
        let claim = MemberObject::Claim(ObjectName::new("team", "data"));
        let member = |id: &str, attempt: u32| Member {
            id: id.into(),
            attempt,
            object: claim.clone(),
            scope: String::new(),
            attributes: None,
            is_first: false,
        };
        let none = json!([]);
        let pods = [
            pod("first", "provision", "u", 1, &none),
            pod("second", "provision", "u", 2, &none),
            pod("of-another", "provision", "w", 2, &none),
            pod("batch", "provision", BATCH, 1, &json!([member("w", 1), member("u", 3)])),
            pod("delete", "delete", "u", 2, &none),
            pod("expand", "expand", "u", 7, &none),
            pod("modify", "modify", "u", 8, &none),
        ];
        for (operations, attempt, previous, expected) in [
            (&[Operation::Provision][..], Some(2), false, "second"),
            (&[Operation::Provision], Some(3), false, "batch"),
            (&[Operation::Provision], Some(4), false, ""),
            (&[Operation::Delete], None, false, "delete"),
            (&[Operation::Expand, Operation::Modify], None, false, "modify"),
            (&[Operation::Expand, Operation::Modify], None, true, "expand"),
            (&[Operation::Snapshot], None, false, ""),
        ] {
            let wanted = Wanted { operations, id: "u".into(), attempt };
            let (_, found) = selected(&pods, &wanted, previous);
            let found: Vec<_> = found.iter().map(|pod| pod.name.name.as_str()).collect();
            assert_eq!(found.join(","), expected, "{wanted:?}");
        }
    }

    #[test]
    fn without_a_pod_the_last_words_are_printed() {
        let mut failed = stamped(3);
        let failure = json!({ "operation": "provision", "attempt": 3, "at": 1, "kind": "retry", "reason": "ExitCode", "message": "exit code 75: off" });
        failed[names::FAILURE] = json!(failure.to_string());
        let of = |claim: &Claim, previous| {
            let wanted = wanted(claim, None, previous).unwrap();
            without_pod(&Subject::of_claim(claim), &wanted, wanted.attempt)
        };
        let claim_of = |annotations: &Value, phase: &str| claim(annotations.clone(), phase);
        let pending = claim_of(&failed, "Pending");
        assert!(pending.last_failure.is_some());
        assert_eq!(
            of(&pending, false),
            "no pod of attempt 3 exists any more; its last words were: ExitCode: exit code 75: off"
        );
        assert_eq!(
            of(&pending, true),
            "no pod of attempt 2 exists; its events say more: kubectl -n team describe pvc data"
        );
        assert_eq!(
            of(&claim_of(&failed, "Bound"), false),
            "no pod of a run to expand it exists; it is bound, and the pods of its attempts were deleted then"
        );
    }
}
