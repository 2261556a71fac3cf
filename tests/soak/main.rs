//! The soak test: thousands of claims are created and deleted in random order, while runs fail, Jobs are deleted and
//! the orchestrator is killed. At the end nothing is left, and the orchestrator uses no more memory than before.
//!
//! The API server and the controller manager are real; the node is simulated ([`node`]). `CLAIMS` sets the number of
//! claims, `SEED` repeats the chances of another run, and the orchestrator beside the tool that `FLEX_PROVISIONER` names
//! runs in place of the one built with the tests. `scripts/soak.sh` is the long form.
//!
//! **Time** is mostly that of the control plane. A claim costs about 85 requests. Most are for two Jobs with their
//! pods, by the Job controller, the garbage collector and this node. A third comes from the orchestrator and the PV
//! controller. The waits here, lives of a few seconds and delays between attempts, are spread over [`ALIVE`] claims at
//! one time.
//!
//! **Memory** is that of one process that lives through the whole test. A second replica is killed: it gets the lead by
//! a write of the Lease, works for a while, and is killed during its work. Then the first replica, whose memory is
//! measured, leads again. The test compares the mean resident size during the first quarter of the claims, without the
//! first twentieth, with that of the last quarter.

#![allow(clippy::too_many_lines, reason = "a test of a whole story is read from top to bottom")]

mod node;

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::pin::pin;
use std::process::Stdio;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use cluster::{ClientLimits, Cluster};
use flex_contract::names;
use futures::TryStreamExt;
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim, Pod};
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams};
use kube::runtime::{WatchStreamExt, watcher};
use kube::{Api, ResourceExt};
use serde_json::json;
use tokio::process::{Child, Command};
use tokio::sync::{Semaphore, watch};
use tokio::task::JoinSet;

use crate::node::{SimulatedNode, is_wrong};
use orchestrator::dice::Dice;
use orchestrator::programs::orchestrator;
use orchestrator::ring::{ADMIN, OWN, Ring, phase, uid};

const CLASS: &str = "soak";
/// Claims that exist at one time.
const ALIVE: usize = 150;
/// Every claim that can be served is Bound within this time, whatever else happens.
const BIND_TIMEOUT: Duration = Duration::from_secs(600);
/// The number of claims from which on the memory of the first and the last quarter is compared.
const MEANINGFUL: usize = 5_000;

/// The observed state of a claim, or none before it exists and after it is deleted.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Observed {
    phase: String,
    volume: Option<String>,
}

/// The state that all parts of the run share.
struct Run {
    ring: Ring,
    node: SimulatedNode,
    logs: tempfile::TempDir,
    seed: u64,
    states: Mutex<HashMap<String, watch::Sender<Option<Observed>>>>,
    ended: AtomicUsize,
    bound: AtomicUsize,
    half_way: AtomicUsize,
    refused: AtomicUsize,
    /// Claims that were observed in the phase Lost, or in another phase after Bound.
    lost: Mutex<BTreeSet<String>>,
    rebound: Mutex<Vec<String>>,
    done: AtomicBool,
}

fn number(variable: &str, default: u64) -> u64 {
    match std::env::var(variable) {
        Ok(text) => text.parse().unwrap_or_else(|_| panic!("{variable} is `{text}`, which is not a number")),
        Err(_) => default,
    }
}

#[tokio::test]
async fn many_claims_leave_nothing_and_memory_stays_flat() {
    let claims = number("CLAIMS", 300) as usize;
    let seed = number("SEED", u64::from(std::process::id()) ^ jiff::Timestamp::now().as_microsecond() as u64);
    println!("{claims} claims, at most {ALIVE} at one time; SEED={seed} repeats their chances");
    let plane = Cluster::control_plane().unaudited().unweighed().with_few_controllers();
    let plane = plane.with_controller_manager(ClientLimits::Raised);
    let cluster = plane.await.expect("the control plane starts");
    let ring = Ring::on(cluster, &[]).await;
    let limit = ALIVE.to_string();
    let config = [
        ("placement", "any"),
        ("backoff", "1s..4s"),
        ("retries", "1000"),
        ("timeout", "20s"),
        ("max-in-flight", limit.as_str()),
        ("volume-sources", "nfs"),
    ];
    ring.config(CLASS, CLASS, &config).await;
    ring.class(CLASS, names::DEFAULT_PROVISIONER, json!({})).await;
    let node = SimulatedNode::start(ring.client.clone(), ADMIN, seed).await;
    let run = Arc::new(Run {
        ring,
        node,
        logs: tempfile::tempdir().unwrap(),
        seed,
        states: Mutex::default(),
        ended: AtomicUsize::default(),
        bound: AtomicUsize::default(),
        half_way: AtomicUsize::default(),
        refused: AtomicUsize::default(),
        lost: Mutex::default(),
        rebound: Mutex::default(),
        done: AtomicBool::default(),
    });
    tokio::spawn(follow_claims(run.clone()));
    let survivor = run.replica("one");
    let pid = survivor.id().expect("the orchestrator runs");
    let began = Instant::now();
    let memory = tokio::spawn(measure(run.clone(), pid));
    let killer = tokio::spawn(kill_now_and_then(run.clone(), claims));

    let room = Arc::new(Semaphore::new(ALIVE));
    let mut lives = JoinSet::new();
    for number in 0..claims {
        let location = room.clone().acquire_owned().await.unwrap();
        let run = run.clone();
        lives.spawn(async move {
            live(&run, number).await;
            drop(location);
        });
        // A stuck claim ends the run at once, with all that is known of it.
        while let Some(done) = lives.try_join_next() {
            done.unwrap_or_else(|error| std::panic::resume_unwind(error.into_panic()));
        }
    }
    while let Some(done) = lives.join_next().await {
        done.unwrap_or_else(|error| std::panic::resume_unwind(error.into_panic()));
    }
    let took = began.elapsed();
    run.done.store(true, Ordering::SeqCst);
    let kills = killer.await.unwrap();
    let samples = memory.await.unwrap();
    let cleared = Instant::now();
    nothing_left(&run).await;
    let (one, end) = (cleared.elapsed(), survivor);

    let count = |counter: &AtomicUsize| counter.load(Ordering::SeqCst);
    let seconds = took.as_secs_f64();
    println!("{claims} claims in {seconds:.0} s: {:.1} a second, to the end of each", claims as f64 / seconds);
    println!(
        "bound {}, deleted half-way {}, with a volume that does not fit {}",
        count(&run.bound),
        count(&run.half_way),
        count(&run.refused)
    );
    println!("orchestrators killed during their work: {kills}");
    for ((operation, fate), times) in &run.node.backend().fates {
        println!("{operation} runs, {fate:?}: {times}");
    }
    println!("requests that the API server answered: {}", requests(&run).await);
    println!("everything was deleted {one:.1?} after the last claim");
    let (first, last) = (mean(&samples, claims, 0.05, 0.25), mean(&samples, claims, 0.75, 1.0));
    let change = (last - first) / first * 100.0;
    println!(
        "resident memory of the surviving process: first quarter {first:.0} KiB, last quarter {last:.0} KiB, {change:+.1} %"
    );
    let mut end = end;
    assert!(end.try_wait().unwrap().is_none(), "the replica that was not killed has ended by itself");

    let overlaps = run.node.backend().overlaps.clone();
    for overlap in &overlaps {
        let id = overlap.rsplit(' ').next().unwrap_or_default();
        let story = run.node.backend().story[id].join("\n");
        println!("--- {overlap}:\n{story}");
        for replica in ["one", "two"] {
            let log = std::fs::read_to_string(run.logs.path().join(format!("{replica}.log"))).unwrap_or_default();
            log.lines().filter(|line| line.contains(id)).for_each(|line| println!("{replica}: {line}"));
        }
    }
    assert_eq!(overlaps, Vec::<String>::new(), "two runs worked on a volume at one time");
    assert_eq!(*run.rebound.lock().unwrap(), Vec::<String>::new(), "a claim was bound to two volumes");
    assert_eq!(*run.lost.lock().unwrap(), BTreeSet::new(), "claims were Lost, or not Bound any more");
    assert!(claims < MEANINGFUL || change.abs() <= 10.0, "the memory is not flat");
    println!("{claims} claims: 0 leaked, 0 duplicate, 0 stuck, 0 Lost");
}

impl Run {
    fn replica(&self, name: &str) -> Child {
        let log = self.logs.path().join(format!("{name}.log"));
        let log = std::fs::File::options().create(true).append(true).open(log).unwrap();
        Command::new(orchestrator())
            .args(["--namespace", OWN, "--config-namespace", ADMIN, "--admin-address", "127.0.0.1:0"])
            .args(["--replica", name])
            // Forgotten removed Jobs must be found within the time limit for a claim.
            .args(["--sweep-interval", "60s"])
            .env("KUBECONFIG", self.ring.cluster().kubeconfig())
            .stderr(Stdio::from(log))
            .kill_on_drop(true)
            .spawn()
            .unwrap()
    }

    fn watched(&self, claim: &str) -> watch::Receiver<Option<Observed>> {
        let mut observed = self.states.lock().unwrap();
        observed.entry(claim.to_owned()).or_insert_with(|| watch::Sender::new(None)).subscribe()
    }

    /// Writes the holder of the Lease, so that the lead changes without waiting for the end of a term.
    async fn hand_lead_to(&self, replica: &str) {
        let leases: Api<Lease> = Api::namespaced(self.ring.client.clone(), OWN);
        let body = Patch::Merge(json!({ "spec": { "holderIdentity": replica } }));
        while let Err(error) = leases.patch("flex-provisioner-default", &PatchParams::default(), &body).await {
            println!("the Lease was not written: {error}");
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
    }
}

/// Plays one claim from its creation to its end.
async fn live(run: &Run, number: usize) {
    let name = format!("c{number}");
    let mut dice = Dice::of(run.seed, number as u64, "life");
    let (half_way, wrong) = (dice.roll(4) == 0, is_wrong(run.seed, &name));
    let mut watched = run.watched(&name);
    let body: PersistentVolumeClaim = serde_json::from_value(json!({
        "metadata": { "name": name },
        "spec": { "storageClassName": CLASS, "accessModes": ["ReadWriteOnce"], "resources": { "requests": { "storage": "1Gi" } } },
    }))
    .unwrap();
    let created = until_answered(|| async {
        match run.ring.claims().create(&PostParams::default(), &body).await {
            // A write may succeed although its answer is an error.
            Err(kube::Error::Api(status)) if status.code == 409 => run.ring.claims().get(&name).await,
            other => other,
        }
    })
    .await;
    if half_way {
        tokio::time::sleep(dice.time(Duration::from_millis(1500))).await;
        run.half_way.fetch_add(1, Ordering::SeqCst);
    } else if wrong {
        tokio::time::sleep(dice.time(Duration::from_secs(5))).await;
        run.refused.fetch_add(1, Ordering::SeqCst);
    } else {
        let is_bound =
            |observed: &Option<Observed>| observed.as_ref().is_some_and(|observed| observed.phase == "Bound");
        let bound = tokio::time::timeout(BIND_TIMEOUT, watched.wait_for(is_bound)).await.map(|_| ());
        if bound.is_err() {
            stuck(run, &name, "is not Bound").await;
        }
        let volume = watched.borrow().as_ref().and_then(|observed| observed.volume.clone());
        assert_eq!(volume, Some(names::pv_name(&uid(&created))), "{name} is bound to its own volume");
        run.bound.fetch_add(1, Ordering::SeqCst);
        tokio::time::sleep(dice.time(Duration::from_secs(6))).await;
    }
    until_answered(|| async {
        match run.ring.claims().delete(&name, &DeleteParams::default()).await {
            Err(kube::Error::Api(status)) if status.code == 404 => Ok(()),
            other => other.map(drop),
        }
    })
    .await;
    if tokio::time::timeout(BIND_TIMEOUT, watched.wait_for(Option::is_none)).await.is_err() {
        stuck(run, &name, "is not gone").await;
    }
    run.states.lock().unwrap().remove(&name);
    run.ended.fetch_add(1, Ordering::SeqCst);
}

/// Repeats a request while the API server is too busy to answer, as a client does.
async fn until_answered<T, F: Future<Output = kube::Result<T>>>(ask: impl Fn() -> F) -> T {
    let began = Instant::now();
    loop {
        match ask().await {
            Ok(answer) => return answer,
            Err(kube::Error::Api(status)) if status.code < 500 && status.code != 429 => panic!("{status:?}"),
            Err(error) if began.elapsed() > BIND_TIMEOUT => panic!("{error}"),
            Err(error) => println!("asked again: {error}"),
        }
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
}

/// Ends the run, with all that is known of a claim.
async fn stuck(run: &Run, name: &str, what: &str) {
    let claim = run.ring.claims().get_opt(name).await;
    let id = claim.as_ref().ok().and_then(|claim| claim.as_ref().map(uid)).unwrap_or_default();
    let labels = ListParams::default().labels(&format!("{}={id}", names::LABEL_VOLUME_ID));
    let jobs = run.ring.api::<Job>(ADMIN).list(&labels).await.map(|list| list.items);
    let pods = run.ring.api::<Pod>(ADMIN).list(&labels).await.map(|list| list.items);
    for replica in ["one", "two"] {
        let log = std::fs::read_to_string(run.logs.path().join(format!("{replica}.log"))).unwrap_or_default();
        let about: Vec<_> = log.lines().filter(|line| line.contains(name) || line.contains(&id)).collect();
        println!("--- what {replica} logged of it:\n{}", about.join("\n"));
    }
    panic!("{name} {what} after {BIND_TIMEOUT:?}: {claim:#?}\n{jobs:#?}\n{pods:#?}");
}

async fn follow_claims(run: Arc<Run>) {
    let mut stream = pin!(watcher(run.ring.claims(), watcher::Config::default()).default_backoff());
    let mut listed = BTreeSet::new();
    loop {
        let (claim, there) = match stream.try_next().await {
            Ok(Some(watcher::Event::Init)) => {
                listed.clear();
                continue;
            }
            Ok(Some(watcher::Event::InitApply(claim))) => {
                listed.insert(claim.name_any());
                (claim, true)
            }
            // A watch that begins again does not tell which claims were deleted meanwhile.
            Ok(Some(watcher::Event::InitDone)) => {
                let states = run.states.lock().unwrap();
                let gone = states.iter().filter(|(name, state)| state.borrow().is_some() && !listed.contains(*name));
                gone.for_each(|(_, state)| drop(state.send_replace(None)));
                continue;
            }
            Ok(Some(watcher::Event::Apply(claim))) => (claim, true),
            Ok(Some(watcher::Event::Delete(claim))) => (claim, false),
            Ok(None) => return,
            Err(error) => {
                println!("the watch of claims was interrupted: {error}");
                continue;
            }
        };
        let new =
            Observed { phase: phase(&claim), volume: claim.spec.as_ref().and_then(|spec| spec.volume_name.clone()) };
        let observed = run.states.lock().unwrap();
        let Some(sender) = observed.get(&claim.name_any()) else { continue };
        let was_bound = sender.borrow().as_ref().is_some_and(|observed| observed.phase == "Bound");
        if there && (new.phase == "Lost" || (was_bound && new.phase != "Bound")) {
            run.lost.lock().unwrap().insert(format!("{} {}", claim.name_any(), new.phase));
        }
        let before = sender.borrow().as_ref().and_then(|observed| observed.volume.clone());
        if there && before.is_some() && before != new.volume {
            run.rebound.lock().unwrap().push(claim.name_any());
        }
        sender.send_replace(there.then_some(new));
    }
}

/// Kills the second replica twenty times in the course of the run, at least three times.
async fn kill_now_and_then(run: Arc<Run>, claims: usize) -> usize {
    let mut dice = Dice::of(run.seed, 0, "kills");
    let every = (claims / 20).max(75);
    let mut victim = run.replica("two");
    let (mut kills, mut next) = (0, every / 2);
    while !run.done.load(Ordering::SeqCst) {
        tokio::time::sleep(Duration::from_millis(100)).await;
        let ended = run.ended.load(Ordering::SeqCst);
        if ended < next {
            continue;
        }
        next = ended + every;
        run.hand_lead_to("two").await;
        tokio::time::sleep(Duration::from_secs(2) + dice.time(Duration::from_secs(3))).await;
        victim.kill().await.unwrap();
        run.hand_lead_to("one").await;
        kills += 1;
        println!("{ended} claims have ended; killed orchestrator {kills}");
        victim = run.replica("two");
    }
    victim.kill().await.unwrap();
    kills
}

/// Measures the resident memory of a process in KiB, each second, with the number of ended claims.
async fn measure(run: Arc<Run>, pid: u32) -> Vec<(usize, f64)> {
    let mut samples = Vec::new();
    while !run.done.load(Ordering::SeqCst) {
        tokio::time::sleep(Duration::from_secs(1)).await;
        let status = std::fs::read_to_string(format!("/proc/{pid}/status")).expect("the process lives");
        let resident =
            status.lines().find_map(|line| line.strip_prefix("VmRSS:")).expect("the process has a resident size");
        let size = resident.trim().trim_end_matches(" kB").parse().expect("a number of KiB");
        samples.push((run.ended.load(Ordering::SeqCst), size));
        if samples.len() % 60 == 0 {
            println!("{} s: {} claims have ended, {size} KiB", samples.len(), samples.last().unwrap().0);
        }
    }
    samples
}

fn mean(samples: &[(usize, f64)], claims: usize, from: f64, to: f64) -> f64 {
    let part = |ended: usize| ended as f64 / claims as f64;
    let sizes: Vec<f64> =
        samples.iter().filter(|(ended, _)| (from..to).contains(&part(*ended))).map(|(_, size)| *size).collect();
    sizes.iter().sum::<f64>() / sizes.len() as f64
}

/// Returns the numbers of requests that the API server counted, by verb.
async fn requests(run: &Run) -> String {
    let request = axum::http::Request::get("/metrics").body(Vec::new()).unwrap();
    let text = run.ring.client.request_text(request).await.unwrap();
    let mut verbs: BTreeMap<&str, f64> = BTreeMap::new();
    for line in text.lines().filter(|line| line.starts_with("apiserver_request_total{")) {
        let verb = line.split("verb=\"").nth(1).and_then(|rest| rest.split('"').next()).unwrap_or_default();
        *verbs.entry(verb).or_default() += line.rsplit(' ').next().and_then(|n| n.parse::<f64>().ok()).unwrap_or(0.0);
    }
    let all: Vec<_> = verbs.iter().map(|(verb, count)| format!("{verb} {count:.0}")).collect();
    all.join(", ")
}

/// Waits until the storage is empty, and the API has no object of any claim.
async fn nothing_left(run: &Run) {
    let began = Instant::now();
    loop {
        let mut leftovers: Vec<String> =
            run.node.backend().volumes.iter().map(|id| format!("storage of {id}")).collect();
        let all = ListParams::default();
        for namespace in [ADMIN, OWN] {
            leftovers.extend(names_of(run.ring.api::<Job>(namespace), &all).await);
            leftovers.extend(names_of(run.ring.api::<Pod>(namespace), &all).await);
        }
        leftovers.extend(names_of::<PersistentVolume>(run.ring.volumes(), &all).await);
        leftovers.extend(names_of(run.ring.claims(), &all).await);
        let stored = names_of(run.ring.revisions(), &all).await;
        leftovers.extend(stored.into_iter().filter(|name| name.contains(" flex-record-")));
        if leftovers.is_empty() {
            return;
        }
        assert!(
            began.elapsed() < BIND_TIMEOUT,
            "{} objects are left: {:?}",
            leftovers.len(),
            &leftovers[..leftovers.len().min(20)]
        );
        tokio::time::sleep(Duration::from_millis(500)).await;
    }
}

async fn names_of<K>(api: Api<K>, list: &ListParams) -> Vec<String>
where
    K: kube::Resource<DynamicType = ()> + Clone + std::fmt::Debug + serde::de::DeserializeOwned,
{
    let kind = K::kind(&()).into_owned();
    let found = until_answered(|| api.list(list)).await;
    found.items.iter().map(|object| format!("{kind} {}", object.name_any())).collect()
}
