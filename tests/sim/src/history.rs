//! One history, from a seed.

mod faults;
mod requests;

use std::collections::BTreeSet;
use std::time::Duration;

use flex_contract::names;
use flex_core::config::classes::Identity;
use flex_core::object::ObjectName;
use flex_provisioner::metrics::Metrics;
use serde_json::Value;

use self::faults::Stall;
use self::requests::LateRequest;
use crate::actors::Actors;
use crate::bugs::Bug;
use crate::check::{self, Guarantee, Violation};
use crate::profile::{ACTIONS, Profile};
use crate::pv::PvController;
use crate::replica::Replica;
use crate::rng::Rng;
use crate::store::{self, KINDS, Kind, Store, text, uid};
use crate::time::SimTime;
use crate::trace::{self, count, line};
use crate::wire::Wire;
use crate::world::{StorageKey, World};
use crate::{INSTANCE, PROVISIONER, SYSTEM, VENDOR};

/// A step that can happen next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// A request reaches the API server.
    Request,
    /// An answer reaches the orchestrator.
    Answer,
    /// A watch of the orchestrator shows a change.
    Watch,
    /// A reconciliation begins.
    Pass,
    /// The cluster takes a step.
    World,
    /// The PV controller takes a step.
    Volumes,
    /// A user or an admin acts.
    Actors,
    /// A process of the orchestrator dies, restarts or takes over; or a clock is set.
    Fault,
    /// Time passes until something wakes.
    Time,
}

const ALL: [Action; ACTIONS] = [
    Action::Request,
    Action::Answer,
    Action::Watch,
    Action::Pass,
    Action::World,
    Action::Volumes,
    Action::Actors,
    Action::Fault,
    Action::Time,
];

/// The most steps of the part with faults.
const CHAOS: usize = 1500;
/// The same while the backend is down: with fewer, too few runs fail to show their pace.
const CHAOS_IN_OUTAGE: usize = 2 * CHAOS;
/// The time for which the backend is down, in milliseconds, if the steps suffice and no admin repairs it earlier.
const OUTAGE: u64 = 120_000;
/// The most steps until everything has come to rest: far more than any history needs.
const REST: usize = 20_000;
/// The same in the world of a bug, with and without it, where the answer must be quick, not certain.
const REST_WITH_BUG: usize = 6_000;
/// The most time until everything has come to rest: the slowest backoff is half an hour.
const REST_TIMEOUT: u64 = 24 * 3600 * 1000;
/// How long an admin waits before deleting refused volumes again.
const ADMIN_DELAY: u64 = 60 * 1000;

struct History {
    rng: Rng,
    time: SimTime,
    store: Store,
    world: World,
    pv: PvController,
    actors: Actors,
    wire: Wire,
    replicas: Vec<Replica>,
    created: usize,
    metrics: Metrics,
    identity: Identity,
    profile: Profile,
    bug: Option<Bug>,
    late_requests: Vec<LateRequest>,
    answered: check::gates::Answered,
    term: Option<usize>,
    accepted_leaks: BTreeSet<StorageKey>,
    volumes_shown: usize,
    steps: usize,
    stalls: Vec<Stall>,
    /// The most steps until everything has come to rest.
    rest_steps: usize,
    /// Whether quotas are never exceeded, not even while a new leader knows less than the old one did.
    respects_limits: bool,
}

/// The outcome of a history.
#[derive(Debug)]
pub struct Outcome {
    /// The violations; empty if there are none.
    pub wrong: Vec<Violation>,
    /// The events of the history.
    pub trace: trace::Trace,
}

/// The choice of a history.
#[derive(Clone, Copy, Debug, Default)]
pub struct Plan {
    /// The seed from which all chance follows.
    pub seed: u64,
    /// The bug for which the world is prepared, whether it is planted or not.
    pub suited: Option<Bug>,
    /// The planted bug.
    pub bug: Option<Bug>,
}

/// Runs the history of a seed, with a bug in a world that is prepared for it.
pub fn run(seed: u64, bug: Option<Bug>, traced: bool, metrics: &Metrics) -> Outcome {
    run_plan(Plan { seed, suited: bug, bug }, traced, metrics)
}

/// Runs a history.
pub fn run_plan(plan: Plan, traced: bool, metrics: &Metrics) -> Outcome {
    trace::begin(traced);
    let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime without drivers");
    let metrics = metrics.clone();
    let wrong = runtime.block_on(async move {
        let mut history = History::new(plan, metrics);
        let wrong = match history.run_to_end().await {
            Ok(()) => Vec::new(),
            Err(wrong) => wrong,
        };
        history.replicas.drain(..).for_each(Replica::kill);
        wrong
    });
    Outcome { wrong, trace: trace::end() }
}

type StepResult = Result<(), Vec<Violation>>;

impl History {
    fn new(plan: Plan, metrics: Metrics) -> Self {
        let Plan { seed, suited, bug } = plan;
        let mut rng = Rng::new(seed);
        let mut profile = Profile::new(&mut rng).with_additions(&mut Rng::new(!seed));
        if let Some(suited) = suited {
            suited.prepare(&mut profile);
        }
        line(|| format!("{profile:?}"));
        let respects_limits = profile.respects_limits() && bug.is_none();
        let time = SimTime::default();
        let mut store = Store::new(time.clone());
        let actors = Actors::new(&mut store, &profile);
        let identity = Identity {
            provisioner: PROVISIONER.into(),
            plugin: names::DEFAULT_PLUGIN.into(),
            instance: INSTANCE.into(),
            config_namespaces: vec![SYSTEM.into(), VENDOR.into()],
            namespace: SYSTEM.into(),
            shell_image: None,
            cluster: String::new(),
        };
        History {
            rng,
            time,
            store,
            world: World::new(&profile, actors.pools(&profile)),
            pv: PvController::default(),
            actors,
            wire: Wire::default(),
            replicas: Vec::new(),
            created: 0,
            metrics,
            identity,
            profile,
            bug,
            late_requests: Vec::new(),
            answered: check::gates::Answered::default(),
            term: None,
            accepted_leaks: BTreeSet::new(),
            volumes_shown: 0,
            steps: 0,
            stalls: Vec::new(),
            rest_steps: if suited.is_some() { REST_WITH_BUG } else { REST },
            respects_limits,
        }
    }

    async fn run_to_end(&mut self) -> StepResult {
        for _ in 0..self.profile.replicas {
            self.start();
        }
        self.elect()?;
        let mut steps = 0;
        let goes_on = |history: &Self, steps: usize| {
            let (most, waits) = match history.world.is_down {
                true => (CHAOS_IN_OUTAGE, history.time.millis() < OUTAGE),
                false => (CHAOS, false),
            };
            steps < most && (history.profile.actor_actions > 0 || steps < 150 || waits)
        };
        while goes_on(self, steps) {
            self.step().await?;
            steps += 1;
        }
        line(|| "the faults are over".to_owned());
        // Events of an ended process are lost, those of a reconciliation with the reconciliation, and events that were
        // refused for long are not emitted again.
        let whole =
            self.created == self.profile.replicas && self.replicas.iter().all(|replica| replica.broken_off == 0);
        let events_are_complete = whole && !self.profile.is_lossy();
        self.profile.calm_down();
        self.stalls.clear();
        self.actors.repair_all(&mut self.store, &mut self.world, &self.profile);
        while self.replicas.len() < self.profile.replicas {
            self.start();
        }
        self.elect()?;
        // Paused watches continue.
        self.world.has_leftovers.extend(self.store.all(Kind::Claim).map(|(name, _)| (Kind::Claim, name.clone())));
        self.rest().await?;
        self.judge(events_are_complete)?;
        line(|| "all claims are deleted".to_owned());
        self.actors.delete_everything(&mut self.store, &mut self.rng);
        self.world.pools.clear();
        self.rest().await?;
        self.judge(false)
    }

    fn judge(&self, events_are_complete: bool) -> StepResult {
        let mut wrong = check::check_end(&self.store, &self.world, &self.accepted_leaks(), events_are_complete);
        let left = |replica: &Replica| check::records::stand_ins(&self.store, replica.number, &replica.stand_ins());
        let left = self.replicas.iter().filter_map(left);
        wrong.extend(left.map(|what| Violation { guarantee: Guarantee::Stuck, what }));
        if wrong.is_empty() { Ok(()) } else { Err(wrong) }
    }

    /// Returns the number of changes since the beginning.
    fn changes(&self) -> usize {
        KINDS.iter().map(|kind| self.store.log(*kind).len()).sum()
    }

    /// Runs until nothing is left to do.
    async fn rest(&mut self) -> StepResult {
        let (began, mut requests) = (self.time.millis(), 0);
        let mut resynced = None;
        for _ in 0..self.rest_steps {
            let before = self.time.millis();
            let went_on = self.step().await?;
            // Admins repeatedly delete refused volumes, also where the orchestrator keeps trying.
            if !went_on || self.time.millis() > before + ADMIN_DELAY {
                self.actors.delete_all(&mut self.store, &mut self.world);
            }
            if !went_on && self.store.touched.is_empty() {
                // The PV controller resyncs all objects every 15 seconds, also without an event.
                let changes = self.changes();
                if resynced == Some(changes) {
                    return Ok(());
                }
                resynced = Some(changes);
                self.pv.resync();
            }
            if self.time.millis() > began + REST_TIMEOUT {
                break;
            }
            requests += 1;
        }
        let mut wrong = check::check_end(&self.store, &self.world, &self.accepted_leaks(), false);
        let what =
            format!("after {requests} steps and {} s it has not come to rest", (self.time.millis() - began) / 1000);
        wrong.insert(0, Violation { guarantee: Guarantee::Stuck, what });
        Err(wrong)
    }

    /// Takes one step. Returns whether there was one.
    async fn step(&mut self) -> Result<bool, Vec<Violation>> {
        self.world.notice(&mut self.store);
        self.cancel_late();
        self.wake();
        let part = self.next();
        let Some(part) = part else { return Ok(false) };
        self.time.pass(self.rng.below(20) as u64);
        trace::at(self.time.millis());
        self.wire.waiting().now = self.time.millis();
        let changes = self.changes();
        match part {
            Action::Request => self.request()?,
            Action::Answer => self.answer(),
            Action::Watch => self.watch(),
            Action::Pass => {
                let ready = self.ready();
                let at = *self.rng.pick(&ready);
                self.replicas[at].begin();
            }
            Action::World => {
                let at = self.rng.below(self.world.has_leftovers.len());
                let (kind, name) = self.world.has_leftovers.iter().nth(at).cloned().expect("the choice is in range");
                self.world.has_leftovers.remove(&(kind, name.clone()));
                self.world.reconcile(&mut self.store, &mut self.rng, &self.profile, kind, &name);
            }
            Action::Volumes => self.volumes(),
            Action::Actors => {
                self.profile.actor_actions -= 1;
                self.actors.act(&mut self.store, &mut self.world, &mut self.rng, &self.profile);
                if self.actors.has_lost() {
                    [Kind::Claim, Kind::Volume].into_iter().for_each(|kind| {
                        while self.pv.is_behind(&self.store, kind) {
                            self.pv.show_next(&self.store, kind);
                        }
                    });
                    self.actors.restore_lost(&mut self.store, &mut self.world);
                }
            }
            Action::Fault => self.fault()?,
            Action::Time => self.pass_time(),
        }
        while let Some((at, kind, name)) = self.world.timers.first().cloned() {
            if at > self.time.millis() {
                break;
            }
            self.world.timers.remove(&(at, kind, name.clone()));
            self.world.has_leftovers.insert((kind, name));
        }
        // Everything runs until it waits for an answer.
        for _ in 0..2 {
            tokio::task::yield_now().await;
        }
        self.replicas.iter_mut().for_each(Replica::collect);
        self.note_retained();
        let now = self.changes();
        if (now != changes || std::mem::take(&mut self.world.changed))
            && let Some(wrong) = check::check_step(&self.store, &self.world)
        {
            return Err(vec![wrong]);
        }
        if self.respects_limits
            && let Some(wrong) = check::quotas(&self.store, &self.world)
        {
            return Err(vec![wrong]);
        }
        if let Some(what) = self.world.wrong.pop() {
            return Err(vec![Violation { guarantee: Guarantee::Duplicate, what }]);
        }
        Ok(true)
    }

    /// Returns the storage on nodes that do not come back, unless another node must delete it. If such a node came back
    /// nevertheless, its storage stays.
    fn accepted_leaks(&self) -> BTreeSet<StorageKey> {
        let gone = |node: &String| match self.profile.node_gone {
            "run-elsewhere" => false,
            "forget" => self.world.went.contains(node),
            _ => self.world.lost.contains(node),
        };
        let lost = self.world.storage_keys().filter(|(_, node)| gone(node)).cloned();
        let kept = check::snapshots::retained(&self.store, &self.world);
        let recorded = check::records::kept(&self.store, &self.world);
        self.accepted_leaks.iter().cloned().chain(lost).chain(kept).chain(recorded).collect()
    }

    /// Records storage that is left on purpose, because its deleted volume was to be retained. This includes volumes
    /// whose policy just changed: an admin who changes the policy and deletes the volume before it has the
    /// orchestrator's finalizer, or in the other order, deletes only the volume. A terminating object accepts no new
    /// finalizer.
    fn note_retained(&mut self) {
        let log = self.store.log(Kind::Volume);
        for at in self.volumes_shown..log.len() {
            check::records::note_kept(&self.store, &mut self.world, &log[..=at]);
        }
        for (at, change) in log.iter().enumerate().skip(self.volumes_shown).filter(|(_, change)| change.gone) {
            let deletes = |volume: &Value| text(volume, "/spec/persistentVolumeReclaimPolicy") == "Delete";
            let guarded = |volume: &Value| deletes(volume) && store::has_finalizer(volume, names::VOLUME_FINALIZER);
            let same = |volume: &Value| uid(volume) == uid(&change.object);
            let mut states = log[..=at].iter().rev().map(|of| &of.object).filter(|volume| same(volume));
            if states.find(|volume| guarded(volume) || !deletes(volume)).is_some_and(|volume| !deletes(volume)) {
                self.accepted_leaks.extend(self.world.made.get(uid(&change.object)).cloned());
            }
        }
        self.volumes_shown = log.len();
    }

    fn next(&mut self) -> Option<Action> {
        let (mut requests, mut answers) = (false, false);
        for pending in self.wire.waiting().requests.values() {
            match pending.answer {
                None => requests = true,
                Some(_) => answers |= !self.is_stalled(pending.from, None),
            }
        }
        let watches = self.replicas.iter().any(|replica| KINDS.iter().any(|kind| self.shows(replica, *kind)));
        let passes = !self.ready().is_empty();
        let pv = !self.pv.todo.is_empty()
            || [Kind::Claim, Kind::Volume].iter().any(|kind| self.pv.is_behind(&self.store, *kind));
        let faults = self.profile.crashes + self.profile.handovers + self.profile.jumps + self.profile.stalls > 0
            || self.replicas.len() < self.profile.replicas;
        let there = [
            requests || !self.late_requests.is_empty(),
            answers,
            watches,
            passes,
            !self.world.has_leftovers.is_empty(),
            pv,
            self.profile.actor_actions > 0,
            faults,
        ];
        let busy = there[..6].contains(&true);
        let mut weights = [0; ACTIONS];
        for (at, there) in there.into_iter().enumerate().filter(|(_, there)| *there) {
            weights[at] = self.profile.speed[at] * if there { 10 } else { 0 };
        }
        // Actions of people and faults are rare among the many small steps.
        weights[Action::Actors as usize] /= if busy { 10 } else { 1 };
        weights[Action::Fault as usize] /= if busy { 20 } else { 1 };
        let wakes = self.wakes().is_some();
        weights[Action::Time as usize] = match (wakes, busy, self.profile.is_calm) {
            (false, ..) => 0,
            (true, true, true) => 0,
            (true, true, false) => self.profile.speed[Action::Time as usize] / 3,
            (true, false, _) => 50,
        };
        self.rng.weighted(&weights).map(|at| ALL[at])
    }

    fn watch(&mut self) {
        let mut behind = Vec::new();
        let mut weights = Vec::new();
        for (at, replica) in self.replicas.iter().enumerate() {
            for kind in KINDS.into_iter().filter(|kind| self.shows(replica, *kind)) {
                behind.push((at, kind));
                weights.push(self.profile.watches[kind as usize]);
            }
        }
        let Some(choice) = self.rng.weighted(&weights) else { return };
        let (at, kind) = behind[choice];
        if self.rng.permille(self.profile.relist) {
            count("watches interrupted");
            if kind == Kind::Claim {
                check::records::note_missed(&self.store, &mut self.world, self.replicas[at].cache(kind));
            }
            return self.replicas[at].list(&self.store, kind);
        }
        if self.rng.permille(self.profile.twice) {
            count("events twice");
            return self.replicas[at].show_again(&self.store, kind);
        }
        self.replicas[at].show_next(&self.store, kind);
    }

    fn volumes(&mut self) {
        let behind: Vec<Kind> =
            [Kind::Claim, Kind::Volume].into_iter().filter(|kind| self.pv.is_behind(&self.store, *kind)).collect();
        let choice = self.rng.below(behind.len() + self.pv.todo.len());
        if let Some(kind) = behind.get(choice) {
            return self.pv.show_next(&self.store, *kind);
        }
        let (kind, name) = self.pv.todo.iter().nth(choice - behind.len()).cloned().expect("the choice is in range");
        self.pv.todo.remove(&(kind, name.clone()));
        self.pv.sync(&mut self.store, kind, &name);
    }

    /// Returns the next moment at which a timer fires.
    fn wakes(&self) -> Option<u64> {
        let millis = |at: Duration| at.as_millis() as u64 + 1;
        let alarms =
            self.replicas.iter().filter(|replica| replica.leads || !replica.is_idle()).filter_map(Replica::alarm);
        let timers = self.world.timers.first().map(|(at, ..)| *at);
        alarms.map(millis).chain(timers).chain(self.time.alarm()).min()
    }

    fn pass_time(&mut self) {
        if let Some(at) = self.wakes() {
            let now = self.time.millis();
            self.time.pass(at.saturating_sub(now));
            // The PV controller resyncs every 15 seconds.
            if at.saturating_sub(now) > 15_000 {
                self.pv.resync();
            }
        }
    }
}

/// Returns the name of a claim, for tests.
pub fn claim(name: &str) -> ObjectName {
    ObjectName::new(crate::TEAM, name)
}
