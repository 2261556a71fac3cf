//! One process of the orchestrator: its own context, cache, queue and code, and watches that lag.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use flex_core::config::classes::Identity;
use flex_core::config::modify;
use flex_core::object::ObjectName;
use flex_provisioner::api::events::{EventRecorder, Reporter};
use flex_provisioner::api::writes::{Binding, WriteError, Writes};
use flex_provisioner::clock::Clock;
use flex_provisioner::metrics::Metrics;
use flex_provisioner::reconcile::{self, Context, Requeue};
use flex_provisioner::state::ClusterState;
use flex_provisioner::state::index::{TermItems, WatchChange, WorkItem};
use flex_provisioner::state::queue::QueueState;
use futures::FutureExt;
use tokio::task::JoinHandle;

use crate::store::{KINDS, Kind, Store};
use crate::trace::{count, line};
use crate::view;
use crate::wire::Wire;
use crate::{SYSTEM, VENDOR};

/// The number of work items that one process reconciles at one time.
const WORKERS: usize = 8;
/// The time limit of a reconciliation, after which the process starts it again.
const RECONCILE_TIMEOUT: Duration = Duration::from_secs(60);

type Outcomes = Arc<Mutex<Vec<(u64, Result<Requeue, WriteError>)>>>;

/// A reconciliation in progress.
struct Running {
    key: WorkItem,
    task: JoinHandle<()>,
    since: Duration,
}

/// One process of the orchestrator.
pub struct Replica {
    /// Its number, which no earlier process had.
    pub number: usize,
    /// Whether it leads.
    pub leads: bool,
    /// The number of reconciliations that took too long.
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
    /// Starts a process with a list of all objects.
    pub fn new(
        number: usize,
        wire: &Wire,
        identity: &Identity,
        clock: Clock,
        binding: Binding,
        metrics: Metrics,
        snapshot_classes: &[flex_core::model::snapshot::SnapshotClass],
    ) -> Self {
        let client = wire.client(number);
        let cluster = ClusterState::new(identity.clone(), clock.clone());
        // These objects never change, so that they need no watch.
        for name in crate::actors::ATTRIBUTES {
            let parameters = [("tier".to_owned(), name.to_owned())].into();
            let class =
                modify::AttributesClass { name: name.to_owned(), driver: identity.provisioner.clone(), parameters };
            cluster.index_mut().change_attributes_class(WatchChange::Apply(class));
        }
        for class in snapshot_classes {
            cluster.index_mut().change_snapshot_class(WatchChange::Apply(class.clone()));
        }
        let (events, writer) = EventRecorder::start(
            client.clone(),
            Reporter::new(&identity.provisioner, &number.to_string()),
            clock.clone(),
        );
        let writes = Writes::new(client, identity.clone(), binding).with_cache(&cluster);
        let kube_api = "https://api".to_owned();
        let context = Context::new(identity.clone(), cluster, writes, events, metrics, kube_api, clock.clone());
        // Orphans that the sweep would remove must not exist in the first place.
        context.sweep.every(None);
        let mut queue = QueueState::default();
        queue.pause();
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

    /// Sets how many claims of one namespace and class may be gone while first attempts begin there.
    pub fn set_most_left(&self, most: usize) {
        self.context.cluster.index_mut().set_most_left(most);
    }

    /// Ends the process, whatever it does.
    pub fn kill(self) {
        self.events.abort();
        self.running.values().for_each(|running| running.task.abort());
    }

    /// Makes it lead, or stop leading.
    pub fn lead(&mut self, leads: bool) {
        if leads && !self.leads {
            self.queue.resume();
            let TermItems { items, checks } = self.context.cluster.index_mut().begin_term();
            self.queue.check_all(checks);
            items.into_iter().for_each(|key| self.queue.add(key));
        }
        if !leads {
            self.queue.pause();
        }
        self.leads = leads;
    }

    /// Returns whether a watch has a change to show.
    pub fn is_behind(&self, store: &Store, kind: Kind) -> bool {
        kind != Kind::Event && self.cache[kind as usize] < store.log(kind).len()
    }

    /// Returns the progress of the watch of a kind.
    pub fn cache(&self, kind: Kind) -> usize {
        self.cache.get(kind as usize).copied().unwrap_or_default()
    }

    /// Shows one more change of a kind.
    pub fn show_next(&mut self, store: &Store, kind: Kind) {
        let at = self.cache[kind as usize];
        self.cache[kind as usize] += 1;
        self.show(store, kind, at);
    }

    /// Shows the last change of a kind again.
    pub fn show_again(&mut self, store: &Store, kind: Kind) {
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
            true => view::delete(&mut self.context.cluster.index_mut(), kind, change.name.clone()),
            false => view.clone().apply(&mut self.context.cluster.index_mut()),
        };
        keys.into_iter().for_each(|key| self.queue.add(key));
    }

    /// Lists a kind again: the watch misses the changes meanwhile, and shows only their result.
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
                let keys = self.context.cluster.index_mut().list(|index| view.clone().apply(index));
                keys.into_iter().for_each(|key| self.queue.add(key));
                listed.push(name.clone());
            }
        }
        let mut index = self.context.cluster.index_mut();
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

    /// Lists all kinds again.
    pub fn list_all(&mut self, store: &Store) {
        KINDS.into_iter().filter(|kind| *kind != Kind::Event).for_each(|kind| self.list(store, kind));
    }

    /// Returns whether a reconciliation can begin.
    pub fn is_ready(&mut self) -> bool {
        self.queue.wake(self.clock.passed());
        self.leads && self.queue.ready() > 0 && self.running.len() < WORKERS
    }

    /// Returns when it wakes by itself, without the sweep of configs.
    pub fn alarm(&self) -> Option<Duration> {
        let broken_off = self.running.values().map(|running| running.since + RECONCILE_TIMEOUT).min();
        let soon = self.clock.passed() + RECONCILE_TIMEOUT;
        // The sweep of configs repeats forever; only a failed write of a config is worth waiting for.
        self.queue
            .alarms()
            .find(|(at, key)| **key != WorkItem::Configs || *at < soon)
            .map(|(at, _)| at)
            .into_iter()
            .chain(broken_off)
            .min()
    }

    /// Begins a reconciliation of the next work item.
    pub fn begin(&mut self) {
        let Some(key) = self.queue.take() else { return };
        self.count += 1;
        count("reconciliations");
        line(|| format!("pass {}.{}: {key:?}", self.number, self.count));
        let (context, outcomes, number, of) = (self.context.clone(), self.outcomes.clone(), self.count, key.clone());
        let task = tokio::spawn(async move {
            let outcome = reconcile::reconcile(&context, &of).await;
            outcomes.lock().expect("nothing panics while it holds the outcomes").push((number, outcome));
        });
        self.running.insert(self.count, Running { key, task, since: self.clock.passed() });
    }

    /// Applies the results of reconciliations, and stops those that take too long.
    pub fn collect(&mut self) {
        let outcomes = std::mem::take(&mut *self.outcomes.lock().expect("nothing panics while it holds the outcomes"));
        // Work items that the reconciliation found.
        while let Some(key) = self.context.cluster.queue.next().now_or_never() {
            self.context.cluster.queue.done(&key);
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
            count("reconciliations stopped");
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

    /// Returns the UIDs of the claims that are gone and for which a record stands, as its cache has them.
    pub fn stand_ins(&self) -> Vec<String> {
        let index = self.context.cluster.index();
        index.claims().filter(|claim| claim.is_stand_in()).map(|claim| claim.uid.clone()).collect()
    }

    /// Returns whether no reconciliation is in progress.
    pub fn is_idle(&self) -> bool {
        self.running.is_empty()
    }
}
