//! Kills before and after each write. A first run of each scenario records the writes of the orchestrator. Then the
//! test repeats the scenario for each write: it cuts the orchestrator off there, kills it, and lets a new one take
//! over.

use std::collections::BTreeSet;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use futures::{StreamExt, stream};
use k8s_openapi::api::core::v1::{Event, PersistentVolume, PersistentVolumeClaim};
use kube::api::ListParams;
use kube::{Api, ResourceExt};
use serde_json::json;

use crate::proxy::{Fault, Kind, Point, Proxy, Write, Written};
use crate::scenarios::Scenario;
use crate::site::{PROVISIONERS, Site, provisioner};
use crate::world::{Finding, Trouble, World};
use orchestrator::ring::phase;

/// The number of control planes at one time, each with a scenario of its own: one works while the last cut points of
/// the other wait.
const WORLDS: usize = 2;
/// The number of cut points of a scenario at one time.
const MAX_CONCURRENT: usize = 8;
/// Background writes, such as events and the Lease, may follow after the end of the scenario.
const BACKGROUND_WRITES: Duration = Duration::from_millis(2500);
/// The test stops after this many broken cut points.
const ENOUGH: usize = 8;
/// Replays a part: only the cut points whose description contains this text.
const ONLY: &str = "FLEX_CUTS";
/// The long form: before and after every write in all scenarios.
const ALL: &str = "FLEX_CUTS_ALL";
/// Runs a share of the cut points of each scenario: `1/3` means the second of three shares.
const SHARE: &str = "FLEX_CUTS_SHARE";

/// The result of a run.
struct Run {
    /// The recorded writes.
    writes: Vec<Written>,
    /// Whether the fault has happened.
    reached: bool,
    findings: Vec<Finding>,
}

async fn run(site: &Site<'_>, scenario: Scenario, point: Option<Point>) -> Run {
    let proxy = Proxy::start(site.world.client.clone(), point.clone()).await;
    let through = proxy.kubeconfig(&site.world.file(&format!("{}.kubeconfig", site.name)), json!({}));
    let kills = point.as_ref().is_some_and(|point| point.fault != Fault::AnswerLost);
    let mut process = site.run(&through, "one", "first");
    let supervise = async {
        proxy.happened().await;
        if kills {
            process.kill().await.expect("the process can be killed");
            process = site.run(&site.world.kubeconfig(), "one", "second");
        }
        std::future::pending::<()>().await
    };
    let script = async {
        site.is_ready().await?;
        scenario.prepare(site).await?;
        proxy.arm();
        let bound = scenario.act(site, &proxy).await?;
        site.comes_to_rest(bound).await?;
        if point.is_some() && tokio::time::timeout(BACKGROUND_WRITES, proxy.happened()).await.is_ok() {
            site.comes_to_rest(bound).await?;
        }
        Ok::<(), Vec<Finding>>(())
    };
    let ended = tokio::select! {
        ended = script => ended,
        () = supervise => unreachable!("the supervision never ends"),
    };
    if point.is_none() {
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
    Run { writes: proxy.writes(), reached: proxy.has_happened(), findings: ended.err().unwrap_or_default() }
}

/// Returns the faults to test for a write. The orchestrator decides nothing on the answer to an event or a Lease's
/// renewal: a lost answer to a living process shows no more than an answer that is lost with the process. For all other
/// kinds of writes the scenarios of a whole life are enough. The short form omits points that are equal, or almost
/// equal, to another one. These are the points before events and renewals. In scenarios that add something to a claim's
/// life, they are also the points before all other writes, and all points of events and renewals. By the record, they
/// are also the points of a write that changed nothing, and the point before a write that arrived in the state that an
/// earlier write had left.
fn faults(scenario: Scenario, binding: &str, written: &Written, effect: &Effect) -> Vec<Fault> {
    let all = std::env::var_os(ALL).is_some();
    let is_aside = matches!(written.write.kind.resource.as_str(), "events" | "leases");
    let is_added = !scenario.is_of_claims();
    let before = !(is_aside || is_added || effect.follows);
    let after = !(is_aside && is_added);
    let faults = [
        (Fault::CutBefore, all || effect.changes && before),
        (Fault::CutAfter, all || effect.changes && after),
        (Fault::AnswerLost, scenario.is_of_a_life() && binding == "direct" && !is_aside && (all || effect.changes)),
    ];
    faults.into_iter().filter(|(_, happens)| *happens).map(|(fault, _)| fault).collect()
}

/// The effect of a write on the store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Effect {
    /// Whether it changed something, as far as is known. The state before a write without effect is the state before
    /// the next one, or after the last one.
    changes: bool,
    /// Whether it arrived in the state that an earlier write had left: no write was in progress, and no other client
    /// had written.
    follows: bool,
}

fn effects(writes: &[Written]) -> Vec<Effect> {
    let mut observed = BTreeSet::new();
    let effect = |written: &Written| {
        let latest = observed.last().copied();
        let changes = !written.refused && written.revision.is_none_or(|revision| observed.insert(revision));
        let next = latest.is_some_and(|latest: u64| written.revision == Some(latest + 1));
        Effect { changes, follows: written.alone && next }
    };
    writes.iter().map(effect).collect()
}

/// The totals.
#[derive(Default)]
struct Totals {
    points: usize,
    unreached: usize,
    leaked: usize,
    duplicate: usize,
    stuck: usize,
}

impl Totals {
    fn count(&mut self, findings: &[Finding]) {
        let has = |trouble| usize::from(findings.iter().any(|finding| finding.trouble == trouble));
        self.leaked += has(Trouble::Leaked);
        self.duplicate += has(Trouble::Duplicate);
        self.stuck += has(Trouble::Stuck);
    }

    fn and(mut self, more: &Totals) -> Self {
        self.points += more.points;
        self.unreached += more.unreached;
        self.leaked += more.leaked;
        self.duplicate += more.duplicate;
        self.stuck += more.stuck;
        self
    }

    fn broken(&self) -> usize {
        self.leaked + self.duplicate + self.stuck
    }
}

#[tokio::test]
async fn an_orchestrator_killed_at_any_write_leaves_nothing() {
    let only = std::env::var(ONLY).unwrap_or_default();
    let began = Instant::now();
    let all = Scenario::ALL.into_iter().flat_map(|scenario| scenario.bindings().iter().map(move |of| (scenario, *of)));
    let is_wanted = |of: &(Scenario, &str)| {
        format!("{}-{} ", of.0.name(), of.1).contains(only.split(' ').next().unwrap_or_default())
    };
    let all: Vec<_> = all.filter(is_wanted).collect();
    let worlds = Mutex::new(Vec::new());
    let scenarios = stream::iter(all).map(async |(scenario, binding)| {
        let used = worlds.lock().unwrap().pop();
        let world = match used {
            // With the objects of all earlier scenarios every list would take longer.
            Some(world) => World::renewed(world).await,
            None => World::start().await,
        };
        let totals = cut(&world, scenario, binding, &only).await;
        worlds.lock().unwrap().push(world);
        totals
    });
    let totals = scenarios.buffer_unordered(WORLDS).fold(Totals::default(), async |sum, of| sum.and(&of)).await;
    println!("{} cut points in {:.0?}, {} not reached", totals.points, began.elapsed(), totals.unreached);
    println!(
        "cut points {}: {} leaked, {} duplicate, {} stuck",
        totals.points, totals.leaked, totals.duplicate, totals.stuck
    );
    assert_eq!(totals.broken(), 0);
    assert!(totals.points > totals.unreached * 10, "too many recorded writes did not happen again");
}

/// Returns which share of how many is to be run.
fn share() -> (usize, usize) {
    let Ok(share) = std::env::var(SHARE) else { return (0, 1) };
    let numbers = share.split_once('/').and_then(|(share, of)| Some((share.parse().ok()?, of.parse().ok()?)));
    numbers.filter(|(share, of)| share < of).unwrap_or_else(|| panic!("{SHARE}={share} is not like 1/3"))
}

/// Runs all cut points of a scenario whose description contains a text.
async fn cut(world: &World, scenario: Scenario, binding: &'static str, only: &str) -> Totals {
    let (began, name) = (Instant::now(), format!("{}-{binding}", scenario.name()));
    let site = world.site(format!("{name}-r"), binding).await;
    let recorded = run(&site, scenario, None).await;
    assert!(
        recorded.findings.is_empty(),
        "{name} without a fault: {}{}",
        in_lines(&recorded.findings),
        site.log_end("first")
    );
    let effects = effects(&recorded.writes);
    let carried_out = recorded.writes.iter().zip(&effects).filter(|(written, _)| !written.refused);
    let points = carried_out.flat_map(|(written, effect)| {
        let faults = faults(scenario, binding, written, effect).into_iter();
        faults.map(|fault| Point { fault, write: written.write.clone() })
    });
    let (share, shares) = share();
    let points: Vec<_> = points.filter(|point| format!("{name} {point}").contains(only)).collect();
    let points = points.into_iter().enumerate().filter(|(number, _)| number % shares == share);
    let runs = stream::iter(points).map(|(number, point)| {
        let name = &name;
        async move {
            let site = world.site(format!("{name}-{number:03}"), binding).await;
            let began = Instant::now();
            let run = run(&site, scenario, Some(point.clone())).await;
            let took = began.elapsed();
            if !run.findings.is_empty() {
                println!(
                    "{name} {point}:\n{}--- first:\n{}\n--- second:\n{}",
                    in_lines(&run.findings),
                    site.log_end("first"),
                    site.log_end("second")
                );
            } else if !run.reached {
                println!("{name} {point}: not written this time, so not a cut point");
            }
            (run, point, took)
        }
    });
    let mut runs = runs.buffer_unordered(MAX_CONCURRENT);
    let mut totals = Totals::default();
    let mut slowest = (Duration::ZERO, String::new());
    while let Some((run, point, took)) = runs.next().await {
        if took > slowest.0 {
            slowest = (took, point.to_string());
        }
        totals.count(&run.findings);
        totals.points += usize::from(run.reached);
        totals.unreached += usize::from(!run.reached);
        assert!(totals.broken() < ENOUGH, "{ENOUGH} cut points are broken; see above");
    }
    drop(runs);
    totals.count(&whole(world, &name).await);
    println!(
        "{name}: {} writes recorded, of which {} changed something, {} cut points run, {} not reached, {:.1?}; slowest {:.1?} {}",
        recorded.writes.len(),
        effects.iter().filter(|effect| effect.changes).count(),
        totals.points,
        totals.unreached,
        began.elapsed(),
        slowest.0,
        slowest.1
    );
    totals
}

fn in_lines(findings: &[Finding]) -> String {
    findings.iter().map(|finding| format!("  {finding}\n")).collect()
}

/// Checks all sites together: storage = volumes = bound claims.
async fn whole(world: &World, name: &str) -> Vec<Finding> {
    let claims: Api<PersistentVolumeClaim> = Api::all(world.client.clone());
    let volumes: Api<PersistentVolume> = Api::all(world.client.clone());
    let claims = claims.list(&ListParams::default()).await.expect("claims are listed").items;
    let bound = claims.iter().filter(|claim| phase(claim) == "Bound").count();
    let volumes = volumes.list(&ListParams::default()).await.expect("volumes are listed").items;
    // An orchestrator that ended with its site may have created one last object, which its successor would remove.
    let volumes =
        volumes.iter().filter(|volume| !volume.name_any().starts_with(flex_contract::names::PROBE_PREFIX)).count();
    let storage = world.node.backend().volumes().len();
    println!(
        "{name}: {storage} volumes on the backend, {volumes} PersistentVolumes, {bound} of {} claims Bound",
        claims.len()
    );
    let mut findings = meddling(world, name, &claims).await;
    let same = storage == volumes && volumes == bound && bound == claims.len();
    if !same {
        findings.push(Finding { trouble: Trouble::Leaked, what: "the counts differ".into() });
    }
    findings.iter().for_each(|finding| println!("  {finding}"));
    findings
}

/// Checks that no site's orchestrator emits an event about the claims of another site.
async fn meddling(world: &World, name: &str, claims: &[PersistentVolumeClaim]) -> Vec<Finding> {
    let events: Api<Event> = Api::all(world.client.clone());
    let about = ListParams::default().fields("involvedObject.kind=PersistentVolumeClaim");
    let events = events.list(&about).await.expect("events are listed").items;
    let meddles = |event: &Event| {
        let site = event.involved_object.namespace.clone()?;
        let by = event.source.as_ref()?.component.clone()?;
        let says = event.message.clone().unwrap_or_default();
        (by.ends_with(PROVISIONERS) && by != provisioner(&site))
            .then(|| format!("{by} about a claim of {site}: {says}"))
    };
    let found: Vec<_> = events.iter().filter_map(meddles).collect();
    let sites: BTreeSet<_> = claims.iter().map(|claim| claim.namespace()).collect();
    println!("{name}: {} sites with claims, {} events of one about the claims of another", sites.len(), found.len());
    found.into_iter().map(|what| Finding { trouble: Trouble::Duplicate, what }).collect()
}

#[test]
fn the_state_before_a_write_follows_from_the_revisions() {
    let written = |alone, refused, revision| {
        let kind = Kind { method: "PATCH".into(), resource: "persistentvolumes".into() };
        Written { write: Write { kind, number: 1 }, alone, refused, revision }
    };
    let effect = |changes, follows| Effect { changes, follows };
    let all = [
        ("the first", written(true, false, Some(10)), effect(true, false)),
        ("the next revision", written(true, false, Some(11)), effect(true, true)),
        ("another client wrote before it", written(true, false, Some(13)), effect(true, false)),
        ("refused", written(true, true, None), effect(false, false)),
        ("the next revision after a refused write", written(true, false, Some(14)), effect(true, true)),
        ("beside another", written(false, false, Some(15)), effect(true, false)),
        ("nothing new", written(true, false, Some(14)), effect(false, false)),
        ("an answer without a revision", written(true, false, None), effect(true, false)),
        ("answered before its predecessor", written(false, false, Some(12)), effect(true, false)),
    ];
    let (names, rest): (Vec<_>, Vec<_>) =
        all.into_iter().map(|(name, written, effect)| (name, (written, effect))).unzip();
    let (writes, expected): (Vec<_>, Vec<_>) = rest.into_iter().unzip();
    for ((name, got), expected) in names.iter().zip(effects(&writes)).zip(expected) {
        assert_eq!(got, expected, "{name}");
    }
}
