//! `trace`: shows the way of a claim to its volume.

mod observation;
mod text;

use std::fmt::Debug;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use clap::Args;
use flex_contract::names;
use flex_contract::operation::Operation;
use flex_core::claim::failed_attempts::{FailedAttempt, FailedAttempts};
use flex_core::claim::standing::Standing;
use flex_core::claim::timeline::{Basis, Stage, Timeline};
use flex_core::config::classes::{Class, ClassLookup, Classes, Identity};
use flex_core::model::claim::Claim;
use flex_core::model::namespace::Namespaces;
use flex_core::model::volume::Volume;
use flex_core::object::ObjectName;
use flex_core::run::member::Member;
use flex_core::run::view;
use flex_provisioner::api::client::Connection;
use flex_provisioner::api::{claim_events, pages, says};
use flex_provisioner::clock::Clock;
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::{Namespace, PersistentVolume, PersistentVolumeClaim, Pod};
use kube::api::ListParams;
use kube::{Api, Client};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use self::observation::Trace;
use self::text::text;
use crate::claim::{ClaimName, Found};
use crate::cluster::Cluster;
use crate::flags::Output;
use crate::leader;
use crate::out::say;

/// The exit code for a claim that is not bound.
const NOT_BOUND: u8 = 2;
/// The time between two looks at a claim that is watched.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// The time between two reads of what seldom changes: the classes and the leader.
const REREAD: Duration = Duration::from_secs(15);

#[derive(Debug, Args)]
pub(super) struct TraceArgs {
    #[command(flatten)]
    claim: ClaimName,
    /// Show the claim again whenever something has changed, until it is bound.
    #[arg(short, long)]
    watch: bool,
    /// The form of the output.
    #[arg(short, long, value_enum, default_value = "table")]
    output: Output,
    #[command(flatten)]
    cluster: Cluster,
}

pub(super) fn trace(args: TraceArgs) -> anyhow::Result<ExitCode> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(work(&args))
}

async fn work(args: &TraceArgs) -> anyhow::Result<ExitCode> {
    let (Connection { client, namespace, clock, .. }, identity) = args.cluster.open().await?;
    let named = args.claim.named(&namespace)?;
    let (mut shown, mut surroundings) = (None, None);
    loop {
        let object = match named.find(&client, &identity).await? {
            Found::Claim(object) => object,
            Found::Left(left) => {
                match args.output.document(|| left.to_json())? {
                    Some(document) => say!("{document}"),
                    None => say!("{}", left.text(clock.now()).trim_end()),
                }
                return Ok(ExitCode::from(NOT_BOUND));
            }
        };
        let trace = read(&client, &identity, &object, &mut surroundings, &clock).await;
        // Ages change all the time, and are no news.
        let why = (trace.obstacle.clone(), trace.idle.clone());
        let news = (trace.timeline.clone(), trace.events.clone(), trace.claim.phase.clone(), why);
        if shown.as_ref() != Some(&news) {
            match args.output.document(|| to_json(&trace))? {
                Some(document) => say!("{document}"),
                None if shown.is_some() => say!("\n{}", text(&trace, clock.now()).trim_end()),
                None => say!("{}", text(&trace, clock.now()).trim_end()),
            }
        }
        let is_bound = trace.is_bound();
        if is_bound || !args.watch {
            return Ok(if is_bound { ExitCode::SUCCESS } else { ExitCode::from(NOT_BOUND) });
        }
        shown = Some(news);
        tokio::time::sleep(LOOK_EVERY).await;
    }
}

/// Reads all that a trace of a claim needs. What cannot be read is left out.
pub(super) async fn record(client: &Client, identity: &Identity, claim: &ObjectName, clock: &Clock) {
    let claims: Api<PersistentVolumeClaim> = Api::namespaced(client.clone(), &claim.namespace);
    if let Ok(object) = claims.get(&claim.name).await {
        read(client, identity, &object, &mut None, clock).await;
    }
}

/// What decides whether anybody works on a claim. It seldom changes.
struct Surroundings {
    /// The time of the read, as [`Clock::passed`] tells it.
    read: Duration,
    /// The classes; or why they could not be read.
    classes: Result<Classes, String>,
    /// The claim's namespace, if a class selects namespaces by their labels; or why it could not be read.
    namespaces: Result<Namespaces, String>,
    /// Why nobody leads, and what to do; or why that is not known.
    without_leader: Result<Option<String>, String>,
}

impl Surroundings {
    async fn read(client: &Client, identity: &Identity, namespace: &str, clock: &Clock) -> Self {
        let classes = crate::beside::classes(client, identity).await.map_err(|error| says::causes(&error));
        let by_label = classes.as_ref().is_ok_and(|table| table.iter().any(Class::selects_namespaces));
        let namespaces = if by_label { namespaces(client, namespace).await } else { Ok(Namespaces::default()) };
        let leader = leader::read(client, identity, clock).await.map_err(|error| says::causes(&error));
        let without_leader = leader.map(|leader| leader.missing.map(|it| format!("{}; {}", it.detail, it.remedy)));
        Surroundings { read: clock.passed(), classes, namespaces, without_leader }
    }

    /// Returns how a claim stands, if its class is known to be the orchestrator's.
    fn standing(&self, identity: &Identity, claim: &Claim, now: i64) -> Option<Standing> {
        let table = self.classes.as_ref().ok()?;
        let ClassLookup::Ours(class) = table.lookup(claim.class.as_deref()?) else { return None };
        let is_request = claim.is_pool_request(&identity.namespace);
        Some(Standing::of(claim, class, self.namespaces.as_ref().ok(), is_request, now))
    }
}

/// Reads one namespace.
async fn namespaces(client: &Client, name: &str) -> Result<Namespaces, String> {
    let mut namespaces = Namespaces::default();
    let found = Api::<Namespace>::all(client.clone()).get_opt(name).await.map_err(|error| says::error(&error))?;
    if let Some(namespace) = &found {
        namespaces.apply(namespace.into());
    }
    Ok(namespaces)
}

async fn read(
    client: &Client,
    identity: &Identity,
    object: &PersistentVolumeClaim,
    surroundings: &mut Option<Surroundings>,
    clock: &Clock,
) -> Trace {
    let claim = Claim::from(object);
    let mut unseen = Vec::new();
    let mut seen = |what: &str, why: &str| unseen.push(format!("{what}: {why}"));
    let events = claim_events::read(client, &identity.provisioner, &claim).await.unwrap_or_else(|error| {
        seen("its events", &says::error(&error));
        Vec::new()
    });
    let written = object.metadata.annotations.as_ref().and_then(|all| all.get(names::TIMELINE));
    let written = written.and_then(|text| Timeline::read(text)).filter(|timeline| is_current(timeline, &claim));
    let timeline = match written {
        Some(timeline) => timeline,
        None => current(client, &claim, &mut seen).await,
    };
    let (standing, idle) = match claim.is_bound() {
        true => (None, None),
        false => {
            if surroundings.as_ref().is_none_or(|known| clock.since(known.read) >= REREAD) {
                *surroundings = Some(Surroundings::read(client, identity, &claim.name.namespace, clock).await);
            }
            let known = surroundings.as_ref();
            let standing = known.and_then(|known| known.standing(identity, &claim, clock.now()));
            (standing, known.and_then(|known| idle(identity, &claim, known, &mut seen)))
        }
    };
    let (obstacle, next_try) = standing.map_or((None, None), |standing| (standing.obstacle, standing.next_try));
    let failed = FailedAttempts::of_object(&object.metadata, &claim);
    Trace { claim, timeline, failed, events, obstacle, next_try, idle, unseen }
}

/// Checks whether a timeline is that of the claim's last attempt. A copied claim may have that of its original.
fn is_current(timeline: &Timeline, claim: &Claim) -> bool {
    let stamp = claim.own_stamp();
    timeline.created.div_euclid(1000) == claim.created
        && (claim.is_bound() || stamp.is_some_and(|stamp| stamp.attempt == timeline.attempt))
}

/// Returns the timeline of an attempt in progress, as far as its objects can be read.
async fn current(client: &Client, claim: &Claim, unseen: &mut impl FnMut(&str, &str)) -> Timeline {
    let (mut jobs, mut pods) = (Vec::new(), Vec::new());
    let stamp = claim.own_stamp();
    let namespace = stamp.and_then(|stamp| stamp.recipe_version.split_once('/')).map(|(namespace, _)| namespace);
    if let (Some(stamp), Some(namespace)) = (stamp, namespace) {
        let api = Api::<Job>::namespaced(client.clone(), namespace);
        match of_attempt(&api, claim, stamp.attempt, |job: Job| seen_job(view::Job::from(&job), claim)).await {
            Ok(found) => jobs.extend(found.into_iter().map(Arc::new)),
            Err(error) => unseen(&format!("the Job in namespace {namespace}"), &says::error(&error)),
        }
        let api = Api::<Pod>::namespaced(client.clone(), namespace);
        match of_attempt(&api, claim, stamp.attempt, |pod: Pod| seen_pod(view::Pod::from(&pod), claim)).await {
            Ok(found) => pods.extend(found.into_iter().map(Arc::new)),
            Err(error) => unseen(&format!("the pod in namespace {namespace}"), &says::error(&error)),
        }
    }
    let name = names::pv_name(&claim.volume_id());
    let volume = match Api::<PersistentVolume>::all(client.clone()).get_opt(&name).await {
        Ok(volume) => volume.as_ref().map(Volume::from),
        Err(error) => {
            unseen("its volume", &says::error(&error));
            None
        }
    };
    Timeline::of(Basis { claim, jobs: &jobs, pods: &pods, volume: volume.as_ref() })
}

/// Reads the Jobs or pods of an attempt for a claim: those of a run of its own, else those of the batch that has it among its
/// members.
async fn of_attempt<K: Clone + DeserializeOwned + Debug, V>(
    api: &Api<K>,
    claim: &Claim,
    attempt: u32,
    seen: impl Fn(K) -> Option<V>,
) -> kube::Result<Vec<V>> {
    let own = format!("{}={},{}={attempt}", names::LABEL_VOLUME_ID, claim.volume_id(), names::LABEL_ATTEMPT);
    let any = format!("{}={}", names::LABEL_OPERATION, Operation::Provision);
    for run in [own, any] {
        let found: Vec<V> =
            pages::all(api, ListParams::default().labels(&run), &seen).await?.into_iter().flatten().collect();
        if !found.is_empty() {
            return Ok(found);
        }
    }
    Ok(Vec::new())
}

/// Returns a Job as a claim sees it; `None` for that of a run for others.
fn seen_job(job: view::Job, claim: &Claim) -> Option<view::Job> {
    match number(&job.members, claim) {
        Some(number) => job.as_seen_by(number, &[], false),
        None => (job.run_labels.id == claim.volume_id()).then_some(job),
    }
}

/// Returns a pod as a claim sees it; `None` for that of a run for others.
fn seen_pod(pod: view::Pod, claim: &Claim) -> Option<view::Pod> {
    match number(&pod.members, claim) {
        Some(number) => pod.as_seen_by(number),
        None => (pod.run_labels.id == claim.volume_id()).then_some(pod),
    }
}

/// Returns the number of a claim among the members of a batch, from 0.
fn number(members: &[Member], claim: &Claim) -> Option<usize> {
    let id = claim.volume_id();
    members.iter().position(|member| member.id == id)
}

/// Says why nobody works on a claim, if that is so.
fn idle(
    identity: &Identity,
    claim: &Claim,
    surroundings: &Surroundings,
    unseen: &mut impl FnMut(&str, &str),
) -> Option<String> {
    let Some(class) = claim.class.as_deref().filter(|class| !class.is_empty()) else {
        return Some("the claim has no class: name one in spec.storageClassName".to_owned());
    };
    if let Err(error) = &surroundings.namespaces {
        unseen("the claim's namespace", error);
    }
    match &surroundings.classes {
        Err(error) => unseen("the configs of the provisioner", error),
        Ok(table) => match table.lookup(class) {
            ClassLookup::Ours(_) => {}
            ClassLookup::Foreign => {
                return Some(format!("class {class} belongs to another provisioner than {}", identity.provisioner));
            }
            ClassLookup::Unknown => {
                let namespaces = identity.config_namespaces.join(", ");
                return Some(format!(
                    "class {class} does not exist: there is no StorageClass of that name, and no provisioner config with the label {}={class} in namespace {namespaces}",
                    names::LABEL_STORAGE_CLASS
                ));
            }
        },
    }
    match &surroundings.without_leader {
        Ok(missing) => missing.clone(),
        Err(error) => {
            unseen("the Lease of the provisioner", error);
            None
        }
    }
}

fn to_json(trace: &Trace) -> Value {
    let Trace { claim, timeline, failed, events, next_try, idle, unseen, .. } = trace;
    let ObjectName { namespace, name } = &claim.name;
    let attempt = |attempt: &FailedAttempt| {
        let FailedAttempt { timeline, reason, message } = attempt;
        json!({ "attempt": timeline.attempt, "stages": stages(timeline), "reason": reason, "message": message })
    };
    let events: Vec<_> = events
        .iter()
        .map(|event| {
            json!({
                "reason": event.reason, "message": event.message, "warning": event.warning, "count": event.count,
                "at": event.at,
            })
        })
        .collect();
    json!({
        "namespace": namespace,
        "name": name,
        "class": claim.class,
        "bound": trace.is_bound(),
        "volume": claim.volume_name,
        "created": claim.created,
        "attempt": timeline.attempt,
        "failed": timeline.has(Stage::Failed),
        "stages": stages(timeline),
        "failedAttempts": failed.kept().iter().map(attempt).collect::<Vec<_>>(),
        "failedAttemptsLeftOut": failed.left_out(),
        "lastFailure": claim.last_failure,
        "refused": trace.refused(),
        "nextTry": next_try,
        "idle": idle,
        "events": events,
        "unseen": unseen,
    })
}

fn stages(timeline: &Timeline) -> Value {
    let reached = timeline.stages().into_iter();
    reached
        .map(|reached| json!({ "stage": reached.stage.name(), "afterMs": reached.after, "tookMs": reached.took }))
        .collect()
}
