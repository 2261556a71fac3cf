//! Reads what the page shows. The lock of the index is held only to copy references, and never while a page is written.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use flex_contract::names;
use flex_contract::operation::Operation;
use flex_core::claim::failed_attempts::FailedAttempts;
use flex_core::claim::progress::{Progress, progress};
use flex_core::claim::timeline::Timeline;
use flex_core::config::Recipe;
use flex_core::config::classes::{Class, ClassLookup, Classes};
use flex_core::model::claim::Claim;
use flex_core::model::volume::Volume;
use flex_core::object::ObjectName;
use flex_core::run::view::Job;
use k8s_openapi::api::core::v1::PersistentVolumeClaim;
use kube::Api;
use tokio::sync::Semaphore;

use super::model::claims::{ClaimFacts, ClaimRow, ClaimsInFlight, Moment, OneClaim};
use super::model::configs::Configs;
use super::model::failures::{self, FailureRow, Failures};
use super::model::findings::Findings;
use super::model::overview::{ClassRow, Overview, Policies};
use super::model::runs::{RunFacts, RunRow, Runs};
use super::model::{Counts, Document, Head, MAX_ROWS, Nothing, Rows};
use super::sources::Sources;
use crate::api::claim_events;
use crate::api::says;
use crate::overview::{self, collect};
use crate::reconcile::Context;
use crate::state::index::Index;

/// The longest time for the events of a claim.
const EVENTS_TIMEOUT: Duration = Duration::from_secs(5);

/// The objects in progress, as references into the cache.
struct InProgress {
    classes: Arc<Classes>,
    /// The claims of our classes that are not bound.
    claims: Vec<Arc<Claim>>,
    /// Volumes that are not settled.
    volumes: Vec<Arc<Volume>>,
    /// The number of runs that make no volume.
    runs: usize,
}

impl InProgress {
    fn of(index: &Index) -> Self {
        let classes = index.classes();
        let is_ours = |claim: &Arc<Claim>| {
            let class = claim.class.as_deref().map(|class| classes.lookup(class));
            matches!(class, Some(ClassLookup::Ours(_))) && !progress(claim).is_bound()
        };
        let claims = index.unsettled_claims().filter(is_ours).collect();
        let is_failed = |volume: &Arc<Volume>| volume.failed_runs().next().is_some();
        let volumes = index.unsettled_volumes().filter(is_failed).collect();
        let runs = index.jobs().filter(|job| RunFacts::is_shown(job)).count();
        InProgress { classes, claims, volumes, runs }
    }

    /// Returns the volumes that matter for the health of classes: those that could not be deleted, and for a class with
    /// failed attempts all, because a volume that was made since shows that attempts succeed again.
    fn volumes_for_health(&self, context: &Context) -> Vec<Arc<Volume>> {
        let is_failed = |claim: &&Arc<Claim>| claim.last_failure.is_some();
        let failed = self.claims.iter().filter(is_failed).filter_map(|claim| claim.class.as_deref());
        let failed: BTreeSet<&str> = failed.collect();
        let is_ours = |volume: &Arc<Volume>| volume.belongs_to(&context.identity);
        if failed.is_empty() {
            return self.volumes.iter().filter(|volume| is_ours(volume)).cloned().collect();
        }
        let index = context.cluster.index();
        let matters = |volume: &Arc<Volume>| {
            is_ours(volume) && (failed.contains(volume.class.as_str()) || volume.failed_runs().next().is_some())
        };
        index.volumes().filter(matters).collect()
    }

    fn failures(&self, context: &Context) -> Vec<FailureRow> {
        let now = context.clock.now();
        let of_claims = self.claims.iter().filter_map(|claim| {
            failures::of_claim(claim, recipe(&self.classes, claim.class.as_deref().unwrap_or_default()), now)
        });
        let is_ours = |volume: &&Arc<Volume>| volume.belongs_to(&context.identity);
        let of_volumes = self
            .volumes
            .iter()
            .filter(is_ours)
            .flat_map(|volume| failures::of_volume(volume, recipe(&self.classes, &volume.class), now));
        of_claims.chain(of_volumes).collect()
    }
}

fn class<'a>(classes: &'a Classes, name: &str) -> Option<&'a Class> {
    match classes.lookup(name) {
        ClassLookup::Ours(class) => Some(class),
        ClassLookup::Foreign | ClassLookup::Unknown => None,
    }
}

fn recipe<'a>(classes: &'a Classes, name: &str) -> Option<&'a Recipe> {
    class(classes, name)?.recipe.as_ref().ok().map(AsRef::as_ref)
}

fn document<B>(sources: &Sources, seen: &InProgress, failures: usize, body: B) -> Document<B> {
    let Sources { context, replica, leading, holder, .. } = sources;
    let leads = *leading.borrow();
    let leader = match leads {
        true => Some(replica.clone()),
        // A replica that has lost the Lease may still be named in what it read.
        false => Some(holder.borrow().clone()).filter(|holder| !holder.is_empty() && holder != replica),
    };
    let verdicts = &seen.classes.verdicts;
    let head = Head {
        version: env!("CARGO_PKG_VERSION"),
        provisioner: context.identity.provisioner.clone(),
        instance: context.identity.instance.clone(),
        namespace: context.identity.namespace.clone(),
        replica: replica.clone(),
        leads,
        leader,
        is_ready: context.cluster.is_ready(),
        at: context.clock.now(),
        uptime: i64::try_from(context.clock.passed().as_secs()).unwrap_or(i64::MAX),
        counts: Counts {
            claims: seen.claims.len(),
            runs: seen.runs,
            failures,
            findings: context.sweep.report().total,
            configs: verdicts.len(),
            refused: verdicts.values().filter(|verdict| !verdict.problems.is_empty()).count(),
        },
    };
    Document { head, body }
}

fn page<B>(sources: &Sources, body: impl FnOnce(&InProgress, Vec<FailureRow>) -> B) -> Document<B> {
    let seen = InProgress::of(&sources.context.cluster.index());
    let failures = seen.failures(&sources.context);
    let count = failures.len();
    let body = body(&seen, failures);
    document(sources, &seen, count, body)
}

/// Observes nothing but the head.
pub fn nothing(sources: &Sources) -> Document<Nothing> {
    page(sources, |_, _| Nothing {})
}

/// Observes the overview.
pub fn overview(sources: &Sources) -> Document<Overview> {
    let context = &sources.context;
    page(sources, |seen, _| {
        let (instance, volumes) = (&context.identity.instance, seen.volumes_for_health(context));
        let classes = collect::classes(&context.cluster, instance, &seen.claims, &volumes, context.clock.now());
        let now = context.clock.passed();
        let row = |mut row: overview::ClassRow| {
            row.forget_parameters();
            let hour = context.last_hour.bound(&row.name, now).into();
            ClassRow { row, hour }
        };
        let runs = context.cluster.index().jobs().filter(|job| !job.is_over).count();
        Overview {
            classes: classes.into_iter().map(row).collect(),
            policies: Policies::of(sources.policies.get()),
            queue: context.cluster.queue.depth(),
            runs,
        }
    })
}

/// Returns what the cache tells of a claim. The lock is held by the caller.
fn facts(index: &Index, claim: &Arc<Claim>) -> ClaimFacts {
    let id = claim.volume_id();
    ClaimFacts {
        jobs: index.jobs_of(&id),
        pods: index.pods_of(&id),
        volume: index.volume(&names::pv_name(&id)),
        written: None,
        failed: FailedAttempts::of(claim),
        namespaces: index.namespaces().clone(),
        message: None,
        claim: claim.clone(),
    }
}

/// Adds what the decision about a claim without an attempt says.
fn decided(context: &Context, facts: ClaimFacts) -> ClaimFacts {
    let is_waiting = progress(&facts.claim) == Progress::Waiting;
    let message = if is_waiting { crate::reconcile::claim::message(context, &facts.claim) } else { None };
    ClaimFacts { message, ..facts }
}

fn moment<'a>(context: &Context, classes: &'a Classes, claim: &Claim) -> Moment<'a> {
    let name = claim.class.as_deref().unwrap_or_default();
    Moment {
        now_ms: context.clock.wall().as_millisecond(),
        class: class(classes, name),
        p50: context.last_hour.bound(name, context.clock.passed()).p50,
    }
}

/// Observes the claims in flight.
pub fn claims(sources: &Sources) -> Document<ClaimsInFlight> {
    let context = &sources.context;
    page(sources, |seen, _| {
        let mut oldest: Vec<_> = seen.claims.iter().collect();
        oldest.sort_by(|a, b| (a.created, &a.name).cmp(&(b.created, &b.name)));
        let more = oldest.len().saturating_sub(MAX_ROWS);
        oldest.truncate(MAX_ROWS);
        let facts: Vec<_> = {
            let index = context.cluster.index();
            oldest.into_iter().map(|claim| facts(&index, claim)).collect()
        };
        let facts = facts.into_iter().map(|facts| decided(context, facts));
        let row = |facts: ClaimFacts| ClaimRow::of(&facts, moment(context, &seen.classes, &facts.claim));
        ClaimsInFlight { claims: Rows { rows: facts.map(row).collect(), more } }
    })
}

/// Observes one claim, with its events. Returns `None` if the cache has no claim of this name whose class is ours.
pub async fn claim(sources: &Sources, name: &ObjectName) -> Option<Document<OneClaim>> {
    let context = &sources.context;
    let (facts, classes) = {
        let index = context.cluster.index();
        let (claim, classes) = (index.claim(name)?, index.classes());
        class(&classes, claim.class.as_deref()?)?;
        (facts(&index, &claim), classes)
    };
    let mut facts = decided(context, facts);
    // Each look holds pages of events: one after the other.
    static LOOKS: Semaphore = Semaphore::const_new(1);
    let events = async {
        let _look = LOOKS.acquire().await.expect("nobody closes it");
        claim_events::read(&sources.client, &context.identity.provisioner, &facts.claim).await
    };
    let events = match context.clock.within(EVENTS_TIMEOUT, events).await {
        Some(events) => events.map_err(|error| says::error(&error)),
        None => Err("the API server did not answer in time".to_owned()),
    };
    if facts.claim.is_bound()
        && let Some(Some(kept)) = context.clock.within(EVENTS_TIMEOUT, kept(sources, &facts.claim)).await
    {
        (facts.written, facts.failed) = kept;
    }
    Some(page(sources, |_, _| {
        let recipe = recipe(&classes, facts.claim.class.as_deref().unwrap_or_default());
        let failure = failures::of_claim(&facts.claim, recipe, context.clock.now());
        OneClaim::of(&facts, moment(context, &classes, &facts.claim), failure, events)
    }))
}

/// Reads the timeline and the failed attempts that are written on a bound claim. The cache does not keep them.
async fn kept(sources: &Sources, claim: &Claim) -> Option<(Option<Timeline>, FailedAttempts)> {
    let api: Api<PersistentVolumeClaim> = Api::namespaced(sources.client.clone(), &claim.name.namespace);
    let object = api.get_metadata(&claim.name.name).await.ok()?;
    let failed = FailedAttempts::of_object(&object.metadata, claim);
    let text = object.metadata.annotations.as_ref().and_then(|annotations| annotations.get(names::TIMELINE));
    let timeline = text.and_then(|text| Timeline::read(text));
    Some((timeline.filter(|timeline| timeline.created.div_euclid(1000) == claim.created), failed))
}

/// Observes the runs that make no volume.
pub fn runs(sources: &Sources) -> Document<Runs> {
    let context = &sources.context;
    page(sources, |_, _| {
        let mut facts: Vec<_> = {
            let index = context.cluster.index();
            let shown = index.jobs().filter(|job| RunFacts::is_shown(job));
            shown.map(|job| run_facts(&index, job)).collect()
        };
        facts.sort_by(|a, b| (a.job.created, &a.job.name).cmp(&(b.job.created, &b.job.name)));
        let Rows { rows, more } = Rows::cut(facts);
        let now_ms = context.clock.wall().as_millisecond();
        Runs { runs: Rows { rows: rows.iter().map(|facts| RunRow::of(facts, now_ms)).collect(), more } }
    })
}

/// Returns what the page knows of a run. A volume tells since when it is not needed.
fn run_facts(index: &Index, job: &Arc<Job>) -> RunFacts {
    let is_deletion = job.run_labels.operation == Operation::Delete;
    let volume = job.volume.as_deref().filter(|_| is_deletion).and_then(|volume| index.volume(volume));
    RunFacts {
        job: job.clone(),
        pods: index.pods_of(&job.run_labels.id),
        wanted: volume.and_then(|volume| volume.unneeded_since),
    }
}

/// Observes the failures.
pub fn failures(sources: &Sources) -> Document<Failures> {
    page(sources, |_, rows| failures::sorted(rows))
}

/// Observes the findings.
pub fn findings(sources: &Sources) -> Document<Findings> {
    let sweep = &sources.context.sweep;
    page(sources, |_, _| Findings::of(&sweep.report(), sweep.interval().map(|interval| interval.as_secs())))
}

/// Observes the configs.
pub fn configs(sources: &Sources) -> Document<Configs> {
    page(sources, |seen, _| Configs::of(&seen.classes))
}
