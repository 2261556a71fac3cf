use flex_contract::capacity::MAX_BYTES;

use super::*;
use crate::capacity::segment::tests::{class, node};
use crate::capacity::segment::wanted;
use crate::config::classes::Class;
use crate::run::node::Node;

const INSTANCE: &str = "default";
/// The config's minimum delay and its interval, in seconds.
const PAUSE: i64 = 10;
const INTERVAL: i64 = 1800;

/// A cluster with everything that matters for capacity. The test carries out the steps in it.
#[derive(Clone)]
struct World {
    classes: Vec<Class>,
    nodes: Vec<Arc<Node>>,
    published: BTreeMap<String, Arc<Published>>,
    driver: Option<Driver>,
    runs: Vec<ObservedRun>,
    starting: BTreeSet<String>,
    /// The number of changes on each node.
    changes: BTreeMap<String, u32>,
    started: usize,
    now: i64,
}

fn asked(name: &str) -> Class {
    class(name, &[("capabilities", "capacity")])
}

impl World {
    fn new(classes: &[Class], nodes: &[&str]) -> World {
        World {
            classes: classes.to_vec(),
            nodes: nodes.iter().map(|name| node(name, "z")).collect(),
            published: BTreeMap::new(),
            driver: None,
            runs: Vec::new(),
            starting: BTreeSet::new(),
            changes: BTreeMap::new(),
            started: 0,
            now: 1_000_000,
        }
    }

    fn wanted(&self) -> Vec<WantedSegment> {
        let classes: Vec<&Class> = self.classes.iter().collect();
        let foreign = self.driver.as_ref().is_some_and(|d| d.on && d.instance.as_deref() != Some(INSTANCE));
        wanted(INSTANCE, &classes, &self.nodes, foreign)
    }

    fn plan(&self) -> Plan {
        let wanted = self.wanted();
        let fingerprints = wanted.iter().map(|wanted| {
            let node = wanted.source.as_ref().and_then(|source| source.node.clone()).unwrap_or_default();
            (wanted.segment.id.clone(), self.changes.get(&node).copied().unwrap_or_default().to_string())
        });
        let observed = Observed {
            wanted: &wanted,
            published: &self.published,
            driver: self.driver.as_ref(),
            instance: INSTANCE,
            runs: &self.runs,
            starting: &self.starting,
            fingerprint: &fingerprints.collect(),
        };
        decide(&observed, self.now)
    }

    /// Returns the rules of the next steps.
    fn rules(&self) -> Vec<Rule> {
        self.plan().steps.iter().map(|decision| decision.rule).collect()
    }

    fn apply(&mut self, step: Step) {
        match step {
            Step::Publish { segment, answer, record } => {
                let published = Published {
                    name: segment.object_name(),
                    class: segment.class.clone(),
                    topology: segment.topology.clone(),
                    bytes: answer.bytes,
                    largest: answer.largest,
                    record: record.map(|record| *record),
                    ..Published::default()
                };
                self.published.insert(segment.object_name(), Arc::new(published));
            }
            Step::Start { segment, source, run: ask } => {
                let mut job = Job {
                    recipe_version: source.recipe.version(),
                    fingerprint: ask.fingerprint,
                    created: self.now,
                    ..Job::default()
                };
                job.name = ObjectName::new("admin", crate::capacity::run::name(&segment.id, ask.attempt));
                (job.run_labels.id, job.run_labels.attempt, job.run_labels.class) =
                    (segment.id, ask.attempt, segment.class);
                assert!(self.runs.iter().all(|run| run.job.name != job.name), "{} runs twice", job.name);
                self.started += 1;
                self.runs.push(ObservedRun { job: Arc::new(job), outcome: Outcome::Running });
            }
            Step::Switch { on } => {
                assert!(!on || self.unknown().is_empty(), "it looks before all is known: {:?}", self.unknown());
                let driver = Driver {
                    name: "flex".into(),
                    uid: "u".into(),
                    resource_version: "1".into(),
                    instance: Some(INSTANCE.into()),
                    on,
                };
                assert!(self.driver.as_ref().is_none_or(|driver| driver.instance.as_deref() == Some(INSTANCE)));
                self.driver = Some(driver);
            }
            Step::RemoveDriver => {
                let driver = self.driver.take().expect("it is there");
                assert_eq!(driver.instance.as_deref(), Some(INSTANCE), "that of another");
                assert!(!driver.on, "the scheduler first stops to look");
            }
            Step::DeleteObject { name } => drop(self.published.remove(&name).expect("it is there")),
            Step::RemoveJob { job, .. } => self.runs.retain(|run| run.job.name != job),
        }
        self.check();
    }

    /// Checks the invariants, also between two steps.
    fn check(&self) {
        let mut of_segment: BTreeMap<&str, usize> = BTreeMap::new();
        for run in self.runs.iter().filter(|run| run.outcome == Outcome::Running) {
            *of_segment.entry(&run.job.run_labels.id).or_default() += 1;
        }
        assert!(of_segment.values().all(|runs| *runs == 1), "two runs of one segment: {of_segment:?}");
    }

    /// Returns the segments without a published capacity that should have one.
    fn unknown(&self) -> Vec<String> {
        let wanted = self.wanted().into_iter();
        let known = wanted.filter(|wanted| wanted.source.as_ref().is_none_or(|source| source.can_run));
        let unknown = known.filter(|wanted| !self.published.contains_key(&wanted.segment.object_name()));
        unknown.map(|wanted| wanted.segment.to_string()).collect()
    }

    /// Takes all steps that can be taken now, and returns their number.
    fn settle(&mut self) -> usize {
        let mut steps = 0;
        for _ in 0..50 {
            let plan = self.plan();
            if plan.steps.is_empty() {
                let unknown = self.unknown();
                let unasked = unknown.iter().filter(|segment| !segment.contains("hostname"));
                assert_eq!(unasked.count(), 0, "a class has no capacity: {unknown:?}");
                return steps;
            }
            steps += plan.steps.len();
            plan.steps.into_iter().for_each(|decision| self.apply(decision.step));
        }
        panic!("it does not come to an end");
    }

    fn end(&mut self, at: usize, outcome: Outcome) {
        let run = &mut self.runs[at];
        let mut job = (*run.job).clone();
        (job.is_over, job.complete) = (true, matches!(outcome, Outcome::Answered(_)));
        (run.job, run.outcome) = (Arc::new(job), outcome);
    }

    /// Ends all runs in progress with this outcome.
    fn end_all(&mut self, outcome: &Outcome) {
        for at in 0..self.runs.len() {
            if self.runs[at].outcome == Outcome::Running {
                self.end(at, outcome.clone());
            }
        }
    }

    fn known(&self) -> Vec<u64> {
        self.published.values().map(|published| published.bytes).collect()
    }

    fn looks(&self) -> bool {
        self.driver.as_ref().is_some_and(|driver| driver.on)
    }
}

fn capacity(bytes: u64) -> Outcome {
    Outcome::Answered(Answer { bytes, largest: None })
}

#[test]
fn the_scheduler_checks_capacity_once_all_is_known() {
    let mut world = World::new(&[asked("c"), class("plain", &[])], &["a", "b"]);
    world.settle();
    assert_eq!((world.started, world.known(), world.looks()), (2, vec![MAX_BYTES], false), "plain alone is known");
    world.end(0, capacity(5));
    world.settle();
    assert!(!world.looks(), "one node has not answered");
    world.end_all(&capacity(7));
    world.settle();
    let mut known = world.known();
    known.sort_unstable();
    assert_eq!((known, world.looks()), (vec![5, 7, MAX_BYTES], true));
    assert!(world.runs.is_empty(), "answered runs are removed");
    assert_eq!(world.settle(), 0);
}

#[test]
fn a_change_leads_to_a_capacity_run_in_its_segment_only() {
    let mut world = World::new(&[asked("c")], &["a", "b"]);
    world.settle();
    world.end_all(&capacity(5));
    world.settle();
    let first = world.started;
    world.now += INTERVAL - 1;
    assert_eq!(world.settle(), 0, "until the interval is over");
    assert_eq!(world.plan().waits, [Rule::RunNotDue, Rule::RunNotDue]);
    assert_eq!(world.plan().requeue_at, Some(world.now + 1));
    world.now += 1;
    assert_eq!(world.rules(), [Rule::IntervalPassed, Rule::IntervalPassed]);
    world.settle();
    assert_eq!(world.started, first + 2, "then both");
    assert_eq!(world.plan().waits, [Rule::RunInProgress, Rule::RunInProgress]);
    world.end_all(&capacity(5));
    world.settle();

    world.changes.insert("a".into(), 1);
    assert_eq!(world.settle(), 0, "not at once after the last answer");
    assert_eq!(world.plan().requeue_at, Some(world.now + PAUSE));
    world.now += PAUSE;
    assert_eq!(world.rules(), [Rule::ConfigOrUsageChanged]);
    world.settle();
    assert_eq!(world.started, first + 3, "only where something changed");
    world.changes.insert("a".into(), 2);
    world.end_all(&capacity(4));
    world.now += PAUSE;
    world.settle();
    assert_eq!(world.started, first + 3, "the change during the run is after its answer, which counts from now");
    world.now += PAUSE;
    world.settle();
    assert_eq!(world.started, first + 4, "and it is asked again");
}

#[test]
fn a_run_whose_job_is_not_visible_yet_is_not_started_again() {
    let mut world = World::new(&[asked("c")], &["a", "b"]);
    let wanted = world.wanted();
    world.starting = wanted.iter().take(1).map(|wanted| wanted.segment.id.clone()).collect();
    let plan = world.plan();
    let started: Vec<_> = plan.steps.iter().filter(|decision| matches!(decision.step, Step::Start { .. })).collect();
    assert_eq!((started.len(), plan.waits.as_slice()), (1, [Rule::RunInProgress].as_slice()));
    let Step::Start { segment, .. } = &started[0].step else { panic!("{started:?}") };
    assert_eq!(segment.id, wanted[1].segment.id);
}

/// The gate has deleted the Job, whose name the next run has, too.
#[test]
fn a_run_waits_until_the_job_with_its_name_is_gone() {
    let mut world = World::new(&[asked("c")], &["a"]);
    world.settle();
    let job = Job { terminating: true, ..(*world.runs[0].job).clone() };
    world.runs[0].job = Arc::new(job);
    assert_eq!((world.rules(), world.plan().waits), (vec![], vec![Rule::RunInProgress]));
    world.runs.clear();
    assert_eq!(world.rules(), [Rule::FirstRun]);
    // A run before it may still be ending.
    world.settle();
    world.end_all(&capacity(5));
    world.settle();
    world.now += INTERVAL;
    world.settle();
    let mut former = (*world.runs[0].job).clone();
    (former.terminating, former.run_labels.attempt) = (true, 1);
    world.runs[0].job = Arc::new(former);
    assert_eq!(world.rules(), [Rule::IntervalPassed]);
}

#[test]
fn a_failed_run_keeps_no_pod_from_a_node() {
    let mut world = World::new(&[asked("c")], &["a"]);
    world.settle();
    world.end_all(&Outcome::Failed("no such file".into()));
    let plan = world.plan();
    assert_eq!(plan.steps[0].rule, Rule::RunFailed);
    let ConfigEvent { config, event } = &plan.events[0];
    assert_eq!(config.name, "config-of-c");
    assert!(event.message.contains("no such file") && event.message.contains("hostname=a"), "{}", event.message);
    world.settle();
    assert_eq!((world.known(), world.looks()), (vec![MAX_BYTES], true));
    // Failed runs are repeated more and more rarely.
    let mut pauses = Vec::new();
    for _ in 0..9 {
        let due = world.plan().requeue_at.expect("it is tried again");
        pauses.push(due - world.now);
        world.now = due;
        assert_eq!(world.rules(), [Rule::RetryAfterFailure]);
        world.settle();
        world.end_all(&Outcome::Failed("no such file".into()));
        world.settle();
    }
    assert_eq!(pauses, [20, 40, 80, 160, 320, 640, 1280, 1800, 1800]);
    world.now = world.plan().requeue_at.unwrap();
    world.settle();
    world.end_all(&capacity(3));
    world.settle();
    assert_eq!(world.known(), [3]);

    // The last answer stays valid for a while.
    world.changes.insert("a".into(), 1);
    world.now += PAUSE;
    world.settle();
    world.end_all(&Outcome::Failed("busy".into()));
    world.settle();
    assert_eq!(world.known(), [3], "the last answer");
    world.now += i64::from(ANSWER_VALID_INTERVALS) * INTERVAL;
    world.settle();
    world.end_all(&Outcome::Failed("busy".into()));
    world.settle();
    assert_eq!(world.known(), [MAX_BYTES], "not for ever");
}

#[test]
fn another_version_of_the_config_gets_a_run_at_once() {
    let mut world = World::new(&[asked("c")], &["a"]);
    world.settle();
    world.end_all(&Outcome::Failed("config".into()));
    world.settle();
    world.classes = vec![class("c", &[("capabilities", "capacity"), ("pool-name", "p")])];
    world.now += PAUSE;
    world.settle();
    assert_eq!(world.started, 2);
}

#[test]
fn a_clock_that_is_set_back_stops_no_run() {
    let mut world = World::new(&[asked("c")], &["a"]);
    world.settle();
    world.end_all(&capacity(1));
    world.settle();
    world.now -= 1_000_000;
    world.changes.insert("a".into(), 1);
    assert_eq!(world.rules(), [Rule::ConfigOrUsageChanged]);
    world.settle();
    assert_eq!(world.started, 2);
}

#[test]
fn the_scheduler_stops_checking_before_the_last_capacity_is_removed() {
    let mut world = World::new(&[asked("c"), class("plain", &[])], &["a", "b"]);
    world.settle();
    world.end_all(&capacity(1));
    world.settle();
    world.classes = vec![class("c", &[]), class("plain", &[])];
    let plan = world.plan();
    assert_eq!(plan.steps, [Rule::NoneReported.step(Step::Switch { on: false })]);
    world.settle();
    assert_eq!((world.published.len(), world.driver.is_none()), (0, true));
}

#[test]
fn a_class_that_stops_reporting_is_never_without_capacity() {
    let mut world = World::new(&[asked("c"), asked("d")], &["a"]);
    world.settle();
    world.end_all(&capacity(1));
    world.settle();
    world.classes[0] = class("c", &[]);
    let steps = world.plan().steps;
    let publish = steps.iter().position(|decision| decision.rule == Rule::ClassUnlimited);
    let withdraw = steps.iter().position(|decision| decision.rule == Rule::ObjectNotNeeded);
    assert!(publish.is_some() && publish < withdraw, "{steps:?}");
    world.settle();
    assert!(world.looks());
    assert_eq!(world.published.len(), 2);
    // The capacity of the old config stays valid until the nodes have answered under the new one.
    world.classes[0] = asked("c");
    world.settle();
    assert_eq!(world.published.len(), 2);
    world.end_all(&capacity(1));
    world.settle();
    assert_eq!(world.known(), [1, 1]);
}

#[test]
fn the_object_of_a_deleted_node_is_removed_and_that_of_an_unreachable_one_stays() {
    let mut world = World::new(&[asked("c")], &["a", "b"]);
    world.settle();
    world.end_all(&capacity(1));
    world.settle();
    world.nodes[0] = Arc::new(Node { reachable: false, ..(*world.nodes[0]).clone() });
    world.now += INTERVAL;
    world.settle();
    assert_eq!((world.published.len(), world.runs.len()), (2, 1), "only b is asked");
    assert_eq!(world.plan().waits, [Rule::RunNotPossible, Rule::RunInProgress]);
    world.nodes.remove(1);
    world.settle();
    assert_eq!((world.published.len(), world.runs.len()), (1, 0), "b is gone, and its run");
}

#[test]
fn a_foreign_csidriver_is_left_alone() {
    let mut world = World::new(&[asked("c")], &["a"]);
    let foreign = |on, instance: Option<&str>| Driver {
        name: "flex".into(),
        uid: "f".into(),
        resource_version: "1".into(),
        instance: instance.map(str::to_owned),
        on,
    };
    for instance in [None, Some("other")] {
        world.driver = Some(foreign(false, instance));
        world.settle();
        world.end_all(&capacity(1));
        world.settle();
        assert_eq!(world.driver, Some(foreign(false, instance)));
        assert_eq!(world.plan().events.len(), 1, "it is reported");
        assert!(world.plan().waits.contains(&Rule::DriverOfOther));
        world.driver = Some(foreign(true, instance));
        world.settle();
        assert_eq!((world.known(), world.plan().events.len()), (vec![1], 0), "its owner has the scheduler look");
    }
    // Without an image that reports them, the classes must still seem to have capacity.
    world.classes = vec![class("plain", &[])];
    world.settle();
    assert_eq!(world.known(), [MAX_BYTES]);
    assert_eq!(world.driver, Some(foreign(true, Some("other"))));
}

#[test]
fn capacity_runs_are_limited() {
    let names: Vec<String> = (0..25).map(|n| format!("n{n}")).collect();
    let mut world = World::new(&[asked("c"), asked("d")], &names.iter().map(String::as_str).collect::<Vec<_>>());
    world.settle();
    assert_eq!(world.runs.len(), 2 * MAX_CONCURRENT_RUNS, "of each class");
    let waits = world.plan().waits.into_iter().filter(|rule| *rule == Rule::ManyRunsInProgress);
    assert_eq!(waits.count(), 50 - 2 * MAX_CONCURRENT_RUNS);
    assert!(Rule::ManyRunsInProgress.documentation().contains(&format!("{MAX_CONCURRENT_RUNS} runs")));
    while !world.runs.is_empty() {
        world.end(0, capacity(1));
        world.settle();
    }
    assert_eq!((world.started, world.looks()), (50, true));
}

#[test]
fn the_answer_of_a_run_is_its_last_report() {
    use crate::run::state::{Cause, RunState};
    use crate::run::view::ContainerEnd;
    let job = Job { uid: "j".into(), is_over: true, complete: true, ..Job::default() };
    let pod = |uid: &str, message: &str| {
        let terminated = ContainerEnd {
            container: "provisioner".into(),
            code: 0,
            reason: String::new(),
            message: message.into(),
            at: 0,
        };
        Arc::new(Pod { job_uid: uid.into(), terminated: Some(terminated), ..Pod::default() })
    };
    let said = |pods: &[Arc<Pod>]| outcome(RunState::Succeeded, &job, pods);
    assert_eq!(said(&[pod("before", "flex-capacity 1 9"), pod("j", "flex-capacity 1 3")]), capacity(3));
    let failed = |outcome: Outcome| match outcome {
        Outcome::Failed(why) => why,
        other => panic!("{other:?}"),
    };
    assert!(failed(said(&[pod("j", "all is well")])).contains("/dev/termination-log"));
    assert!(failed(said(&[])).contains("its pod is gone"));
    assert_eq!(outcome(RunState::Succeeded, &Job { is_over: false, ..job.clone() }, &[]), Outcome::Running);
    let cause = Cause::new("ExitCode", "exit code 78");
    let state = RunState::Failed { cause, reaction: flex_contract::exit::Reaction::Never, at: 0, pods_ended: false };
    assert_eq!(failed(outcome(state, &job, &[])), "exit code 78");
}

#[path = "decide_properties.rs"]
mod properties;
