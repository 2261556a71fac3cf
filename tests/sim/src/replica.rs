//! One process of the orchestrator: its own context, cache, queue and code, and watches that lag.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use flex_provisioner::api::events::EventRecorder;
use flex_provisioner::api::writes::{Binding, WriteError, Writes};
use flex_provisioner::attributes;
use flex_provisioner::clock::Clock;
use flex_provisioner::config::classes::Identity;
use flex_provisioner::metrics::Metrics;
use flex_provisioner::object::ObjectName;
use flex_provisioner::reconcile::{self, Context, Requeue};
use flex_provisioner::state::ClusterState;
use flex_provisioner::state::index::{Change, WorkItem};
use flex_provisioner::state::queue::QueueState;
use futures::FutureExt;
use tokio::task::JoinHandle;

use crate::store::{KINDS, Kind, Store};
use crate::trace::{count, line};
use crate::view;
use crate::wire::Wire;
use crate::{SYSTEM, VENDOR};

/// Keys that one process decides at one time.
const WORKERS: usize = 8;
/// What a process gives a pass; then it begins anew.
const RECONCILE_TIMEOUT: Duration = Duration::from_secs(60);

type Outcomes = Arc<Mutex<Vec<(u64, Result<Requeue, WriteError>)>>>;

/// A pass under way.
struct Running {
    key: WorkItem,
    task: JoinHandle<()>,
    since: Duration,
}

/// One process of the orchestrator.
pub struct Replica {
    /// Its number: never one that was there before.
    pub number: usize,
    /// It leads.
    pub leads: bool,
    /// Passes that took too long.
    pub broken_off: u64,
    context: Arc<Context>,
    clock: Clock,
    queue: QueueState<WorkItem, Duration>,
    cache: [usize; KINDS.len()],
    running: BTreeMap<u64, Running>,
    count: u64,
    outcomes: Outcomes,
    events: JoinHandle<()>,
}

impl Replica {
    /// A process that begins with a list of everything.
    pub fn new(
        number: usize,
        wire: &Wire,
        identity: &Identity,
        clock: Clock,
        binding: Binding,
        metrics: Metrics,
        snapshot_classes: &[flex_provisioner::model::snapshot::Class],
    ) -> Self {
        let client = wire.client(number);
        let shared = ClusterState::new(identity.clone(), clock.clone());
        // They never change, so that no watch is needed for them.
        for name in crate::actors::ATTRIBUTES {
            let parameters = [("tier".to_owned(), name.to_owned())].into();
            let class = attributes::Class { name: name.to_owned(), driver: identity.provisioner.clone(), parameters };
            shared.index().change_attributes_class(Change::Apply(class));
        }
        for class in snapshot_classes {
            shared.index().change_snapshot_class(Change::Apply(class.clone()));
        }
        let (events, writer) = EventRecorder::start(client.clone(), identity.provisioner.clone(), clock.clone());
        let writes = Writes::new(client, identity.clone(), binding).with_cache(&shared);
        let kube_api = "https://api".to_owned();
        let context = Context::new(identity.clone(), shared, writes, events, metrics, kube_api, clock.clone());
        // What the sweep would remove must not be left in the first place.
        context.sweep.every(None);
        let mut queue = QueueState::default();
        queue.pause(true);
        Replica {
            number,
            leads: false,
            broken_off: 0,
            context,
            clock,
            queue,
            cache: [0; KINDS.len()],
            running: BTreeMap::new(),
            count: 0,
            outcomes: Outcomes::default(),
            events: writer,
        }
    }

    /// The end of the process, at whatever it was.
    pub fn kill(self) {
        self.events.abort();
        self.running.values().for_each(|running| running.task.abort());
    }

    /// It leads from now on, or does not any more.
    pub fn lead(&mut self, leads: bool) {
        if leads && !self.leads {
            let keys = self.context.shared.index().begin_term();
            keys.into_iter().for_each(|key| self.queue.add(key));
        }
        self.leads = leads;
        self.queue.pause(!leads);
    }

    /// A watch has something to say.
    pub fn is_behind(&self, store: &Store, kind: Kind) -> bool {
        kind != Kind::Event && self.cache[kind as usize] < store.log(kind).len()
    }

    /// How far the watch of a kind has come.
    pub fn cache(&self, kind: Kind) -> usize {
        self.cache.get(kind as usize).copied().unwrap_or_default()
    }

    /// The watch of a kind shows one change more.
    pub fn see(&mut self, store: &Store, kind: Kind) {
        let at = self.cache[kind as usize];
        self.cache[kind as usize] += 1;
        self.show(store, kind, at);
    }

    /// The watch of a kind says again what it said last.
    pub fn see_again(&mut self, store: &Store, kind: Kind) {
        if let Some(at) = self.cache[kind as usize].checked_sub(1) {
            self.show(store, kind, at);
        }
    }

    fn show(&mut self, store: &Store, kind: Kind, at: usize) {
        let change = &store.log(kind)[at];
        let Some(view) = change.view(kind) else { return };
        line(|| {
            format!("watch of {}: {kind:?} {}{}", self.number, change.name, if change.gone { " is gone" } else { "" })
        });
        let keys = match change.gone {
            true => view::delete(&mut self.context.shared.index(), kind, change.name.clone()),
            false => view.clone().apply(&mut self.context.shared.index()),
        };
        keys.into_iter().for_each(|key| self.queue.add(key));
    }

    /// The watch of a kind lists anew: what happened meanwhile is not seen, only what came of it.
    pub fn list(&mut self, store: &Store, kind: Kind) {
        self.cache[kind as usize] = store.log(kind).len();
        let mut last: BTreeMap<&ObjectName, usize> = BTreeMap::new();
        for (at, change) in store.log(kind).iter().enumerate() {
            match change.gone {
                true => last.remove(&change.name),
                false => last.insert(&change.name, at),
            };
        }
        line(|| format!("watch of {}: lists {kind:?}", self.number));
        let mut listed = Vec::new();
        for (name, at) in last {
            if let Some(view) = store.log(kind)[at].view(kind) {
                let keys = self.context.shared.index().list(|index| view.clone().apply(index));
                keys.into_iter().for_each(|key| self.queue.add(key));
                listed.push(name.clone());
            }
        }
        let mut index = self.context.shared.index();
        let gone = match kind {
            Kind::Config | Kind::Job | Kind::Pod => [SYSTEM, VENDOR]
                .into_iter()
                .flat_map(|namespace| {
                    let within = listed.iter().filter(|name| name.namespace == namespace).cloned();
                    view::retain_in(&mut index, kind, namespace, within)
                })
                .collect(),
            _ => view::retain(&mut index, kind, listed.into_iter()),
        };
        let keys = gone.into_iter().chain(index.end_list());
        keys.for_each(|key| self.queue.add(key));
    }

    /// All watches list.
    pub fn list_all(&mut self, store: &Store) {
        KINDS.into_iter().filter(|kind| *kind != Kind::Event).for_each(|kind| self.list(store, kind));
    }

    /// A pass can begin.
    pub fn is_ready(&mut self) -> bool {
        self.queue.wake(self.clock.passed());
        self.leads && self.queue.ready() > 0 && self.running.len() < WORKERS
    }

    /// When it wakes by itself, for anything but the sweep of configs.
    pub fn alarm(&self) -> Option<Duration> {
        let broken_off = self.running.values().map(|running| running.since + RECONCILE_TIMEOUT).min();
        let soon = self.clock.passed() + RECONCILE_TIMEOUT;
        // The sweep of configs comes again and again; a write of them that failed is something to wait for.
        self.queue
            .alarms()
            .find(|(at, key)| **key != WorkItem::Configs || *at < soon)
            .map(|(at, _)| at)
            .into_iter()
            .chain(broken_off)
            .min()
    }

    /// Begins a pass over the next key.
    pub fn begin(&mut self) {
        let Some(key) = self.queue.take() else { return };
        self.count += 1;
        count("passes");
        line(|| format!("pass {}.{}: {key:?}", self.number, self.count));
        let (context, outcomes, number, of) = (self.context.clone(), self.outcomes.clone(), self.count, key.clone());
        let task = tokio::spawn(async move {
            let outcome = reconcile::reconcile(&context, &of).await;
            outcomes.lock().expect("nothing panics while it holds the outcomes").push((number, outcome));
        });
        self.running.insert(self.count, Running { key, task, since: self.clock.passed() });
    }

    /// Takes up what passes have come to, and breaks off those that take too long.
    pub fn collect(&mut self) {
        let outcomes = std::mem::take(&mut *self.outcomes.lock().expect("nothing panics while it holds the outcomes"));
        // What a pass found that others can go on.
        while let Some(key) = self.context.shared.queue.next().now_or_never() {
            self.context.shared.queue.done(&key);
            self.queue.add(key);
        }
        for (number, outcome) in outcomes {
            line(|| format!("pass {}.{number} ends: {outcome:?}", self.number));
            if let Err(WriteError::Conflict(_)) = &outcome {
                count("conflicts");
            }
            self.end(number, Some(outcome));
        }
        let now = self.clock.passed();
        let late: Vec<u64> = self
            .running
            .iter()
            .filter(|(_, running)| now >= running.since + RECONCILE_TIMEOUT)
            .map(|(number, _)| *number)
            .collect();
        for number in late {
            count("passes broken off");
            self.broken_off += 1;
            if let Some(running) = self.running.get(&number) {
                running.task.abort();
            }
            self.end(number, None);
        }
    }

    fn end(&mut self, number: u64, outcome: Option<Result<Requeue, WriteError>>) {
        let Some(Running { key, .. }) = self.running.remove(&number) else { return };
        if let Some(delay) = reconcile::requeue_after(&self.context, &key, outcome) {
            self.queue.add_at(key.clone(), self.clock.passed() + delay);
        }
        self.queue.done(&key);
    }

    /// Nothing is under way.
    pub fn is_idle(&self) -> bool {
        self.running.is_empty()
    }
}
