//! One history, from a seed.

mod faults;
mod requests;

use std::collections::BTreeSet;
use std::time::Duration;

use flex_contract::names;
use flex_provisioner::config::classes::Identity;
use flex_provisioner::metrics::Metrics;
use flex_provisioner::object::ObjectName;
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

/// What can happen next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// A request reaches the API server.
    Request,
    /// An answer reaches the orchestrator.
    Answer,
    /// A watch of the orchestrator says something.
    Watch,
    /// A pass begins.
    Pass,
    /// The cluster goes on.
    World,
    /// The PV controller goes on.
    Volumes,
    /// Somebody does something.
    Actors,
    /// A process of the orchestrator dies, comes back, takes over; the clock is set.
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

/// Steps of the part with faults, at the most.
const CHAOS: usize = 1500;
/// Steps until all must have come to rest: far more than any history needs.
const REST: usize = 20_000;
/// The same with a bug, which has not to be right but to be quick.
const REST_WITH_BUG: usize = 6_000;
/// Time until all must have come to rest: the slowest pace is half an hour.
const LONG: u64 = 24 * 3600 * 1000;
/// For so long an admin who deletes what was refused does something else.
const A_WHILE: u64 = 60 * 1000;

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
    term: Option<usize>,
    accepted_leaks: BTreeSet<StorageKey>,
    volumes_shown: usize,
    steps: usize,
    stalls: Vec<Stall>,
    /// Limits are never passed in it, not even for the moment in which a new leader sees less than the old one did.
    respects_limits: bool,
}

/// What came of a history.
#[derive(Debug)]
pub struct Outcome {
    /// What was wrong; empty if nothing was.
    pub wrong: Vec<Violation>,
    /// What happened.
    pub trace: trace::Trace,
}

/// Which history it is.
#[derive(Clone, Copy, Debug, Default)]
pub struct Plan {
    /// All that is chance follows from it.
    pub seed: u64,
    /// The world is made for this bug to do its harm, whether it is there or not.
    pub suited: Option<Bug>,
    /// The bug that is put in.
    pub bug: Option<Bug>,
}

/// Runs the history of a seed, with a bug in a world that is made for it.
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
        let wrong = match history.go().await {
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
        let mut profile = Profile::new(&mut rng).and_more(&mut Rng::new(!seed));
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
        };
        History {
            rng,
            time,
            store,
            world: World::new(profile.share, actors.pools(&profile)),
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
            term: None,
            accepted_leaks: BTreeSet::new(),
            volumes_shown: 0,
            steps: 0,
            stalls: Vec::new(),
            respects_limits,
        }
    }

    async fn go(&mut self) -> StepResult {
        for _ in 0..self.profile.replicas {
            self.start();
        }
        self.elect()?;
        let mut steps = 0;
        while steps < CHAOS && (self.profile.actor_actions > 0 || steps < 150) {
            self.step().await?;
            steps += 1;
        }
        line(|| "the faults are over".to_owned());
        // What a process told last goes with it, what a pass had to tell with the pass, and what was refused for long
        // is not told any more.
        let whole =
            self.created == self.profile.replicas && self.replicas.iter().all(|replica| replica.broken_off == 0);
        let told = whole && !self.profile.is_lossy();
        self.profile.is_calm();
        self.stalls.clear();
        self.actors.repair_all(&mut self.store, &mut self.world, &self.profile);
        while self.replicas.len() < self.profile.replicas {
            self.start();
        }
        self.elect()?;
        // A pause of the watches does not last.
        self.world.has_leftovers.extend(self.store.all(Kind::Claim).map(|(name, _)| (Kind::Claim, name.clone())));
        self.rest().await?;
        self.judge(told)?;
        line(|| "all claims are deleted".to_owned());
        self.actors.leave(&mut self.store, &mut self.rng);
        self.world.pools.clear();
        self.rest().await?;
        self.judge(false)
    }

    fn judge(&self, told: bool) -> StepResult {
        let wrong = check::check_end(&self.store, &self.world, &self.accepted_leaks(), told);
        if wrong.is_empty() { Ok(()) } else { Err(wrong) }
    }

    /// How much has changed since the beginning.
    fn changes(&self) -> usize {
        KINDS.iter().map(|kind| self.store.log(*kind).len()).sum()
    }

    /// Until nothing is left to do.
    async fn rest(&mut self) -> StepResult {
        let (began, mut requests) = (self.time.millis(), 0);
        let mut resynced = None;
        for _ in 0..if self.bug.is_some() { REST_WITH_BUG } else { REST } {
            let before = self.time.millis();
            let went_on = self.step().await?;
            // Admins look again and again at what was refused, also where the orchestrator goes on trying.
            if !went_on || self.time.millis() > before + A_WHILE {
                self.actors.delete_all(&mut self.store, &self.world);
            }
            if !went_on && self.store.touched.is_empty() {
                // The PV controller looks at everything every 15 seconds, also where no event leads it there.
                let changes = self.changes();
                if resynced == Some(changes) {
                    return Ok(());
                }
                resynced = Some(changes);
                self.pv.resync();
            }
            if self.time.millis() > began + LONG {
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

    /// One thing happens. Says whether there was anything.
    async fn step(&mut self) -> Result<bool, Vec<Violation>> {
        self.world.notice(&mut self.store);
        self.give_up();
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
                let (kind, name) = self.world.has_leftovers.iter().nth(at).cloned().expect("it is among them");
                self.world.has_leftovers.remove(&(kind, name.clone()));
                self.world.look(&mut self.store, &mut self.rng, &self.profile, kind, &name);
            }
            Action::Volumes => self.volumes(),
            Action::Actors => {
                self.profile.actor_actions -= 1;
                self.actors.act(&mut self.store, &mut self.world, &mut self.rng, &self.profile);
                if self.actors.has_lost() {
                    [Kind::Claim, Kind::Volume].into_iter().for_each(|kind| {
                        while self.pv.is_behind(&self.store, kind) {
                            self.pv.see(&self.store, kind);
                        }
                    });
                    self.actors.bring_back(&mut self.store, &mut self.world);
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
        // All that can run runs until it waits for an answer.
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
            && let Some(wrong) = check::shares(&self.store, &self.world)
        {
            return Err(vec![wrong]);
        }
        if let Some(what) = self.world.wrong.pop() {
            return Err(vec![Violation { guarantee: Guarantee::Duplicate, what }]);
        }
        Ok(true)
    }

    /// What is on a node that does not come back goes with it, unless it is to be deleted from elsewhere. What was on one that
    /// comes back against all that was said stays there.
    fn accepted_leaks(&self) -> BTreeSet<StorageKey> {
        let gone = |node: &String| match self.profile.node_gone {
            "run-elsewhere" => false,
            "forget" => self.world.went.contains(node),
            _ => self.world.lost.contains(node),
        };
        let lost = self.world.storage_keys().filter(|(_, node)| gone(node)).cloned();
        let kept = check::snapshots::retained(&self.store, &self.world);
        self.accepted_leaks.iter().cloned().chain(lost).chain(kept).collect()
    }

    /// A volume that is gone and was to be kept leaves its storage on purpose. So does one that was to be kept until a
    /// moment ago: an admin who changes the policy and deletes the volume before it has our finalizer, or the other way
    /// round, deletes no more than the volume. No finalizer can be added to what is being deleted.
    fn note_retained(&mut self) {
        let log = self.store.log(Kind::Volume);
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
        // People and faults are rare among the many small steps.
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
            return self.replicas[at].list(&self.store, kind);
        }
        if self.rng.permille(self.profile.twice) {
            count("events twice");
            return self.replicas[at].see_again(&self.store, kind);
        }
        self.replicas[at].see(&self.store, kind);
    }

    fn volumes(&mut self) {
        let behind: Vec<Kind> =
            [Kind::Claim, Kind::Volume].into_iter().filter(|kind| self.pv.is_behind(&self.store, *kind)).collect();
        let choice = self.rng.below(behind.len() + self.pv.todo.len());
        if let Some(kind) = behind.get(choice) {
            return self.pv.see(&self.store, *kind);
        }
        let (kind, name) = self.pv.todo.iter().nth(choice - behind.len()).cloned().expect("it is among them");
        self.pv.todo.remove(&(kind, name.clone()));
        self.pv.sync(&mut self.store, kind, &name);
    }

    /// The next moment at which something wakes by itself.
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

/// The name of a claim, for tests.
pub fn claim(name: &str) -> ObjectName {
    ObjectName::new(crate::TEAM, name)
}
