//! The property that after each sequence of events no step is left.

use proptest::prelude::*;

use super::*;

#[derive(Clone, Debug)]
enum Event {
    Answers(usize),
    Fails(usize),
    Changes(usize),
    NodeComes(usize),
    NodeGoes(usize),
    NodeSilent(usize),
    Asked(usize),
    Plain(usize),
    ClassGoes(usize),
    Published(usize),
    Time(i64),
}

fn events() -> impl Strategy<Value = Vec<Event>> {
    let event = prop_oneof![
        4 => (0usize..8).prop_map(Event::Answers),
        1 => (0usize..8).prop_map(Event::Fails),
        2 => (0usize..4).prop_map(Event::Changes),
        1 => (0usize..4).prop_map(Event::NodeComes),
        1 => (0usize..4).prop_map(Event::NodeGoes),
        1 => (0usize..4).prop_map(Event::NodeSilent),
        1 => (0usize..3).prop_map(Event::Asked),
        1 => (0usize..3).prop_map(Event::Plain),
        1 => (0usize..3).prop_map(Event::ClassGoes),
        1 => (0usize..8).prop_map(Event::Published),
        2 => (1i64..4000).prop_map(Event::Time),
    ];
    prop::collection::vec(event, 1..60)
}

impl World {
    fn happens(&mut self, event: &Event) {
        let name = |n: usize| format!("n{n}");
        let put = |world: &mut World, class: Class| {
            world.classes.retain(|other| other.name != class.name);
            world.classes.push(class);
            world.classes.sort_by(|a, b| a.name.cmp(&b.name));
        };
        match event {
            Event::Answers(n) | Event::Fails(n) => {
                let on: Vec<usize> =
                    (0..self.runs.len()).filter(|at| self.runs[*at].outcome == Outcome::Running).collect();
                if let Some(at) = on.get(n % on.len().max(1)) {
                    let answered = matches!(event, Event::Answers(_));
                    self.end(*at, if answered { capacity(*n as u64) } else { Outcome::Failed("busy".into()) });
                }
            }
            Event::Changes(n) => *self.changes.entry(name(*n)).or_default() += 1,
            Event::NodeComes(n) => {
                self.nodes.retain(|node| node.name != name(*n));
                self.nodes.push(node(&name(*n), "z"));
            }
            Event::NodeGoes(n) => self.nodes.retain(|node| node.name != name(*n)),
            Event::NodeSilent(n) => {
                for node in self.nodes.iter_mut().filter(|node| node.name == name(*n)) {
                    *node = Arc::new(Node { reachable: false, ..(**node).clone() });
                }
            }
            Event::Asked(n) => put(self, asked(&format!("new-{n}"))),
            Event::Plain(n) => put(self, class(&format!("new-{n}"), &[])),
            // Kubernetes deletes everything that the class owns.
            Event::ClassGoes(n) => {
                let class = format!("new-{n}");
                self.classes.retain(|other| other.name != class);
                self.published.retain(|_, published| published.class != class);
            }
            Event::Published(n) => {
                let gone = self.published.keys().nth(*n).cloned();
                gone.into_iter().for_each(|name| drop(self.published.remove(&name)));
            }
            Event::Time(seconds) => self.now += seconds,
        }
    }
}

proptest! {
    /// For all sequences of events: a segment has at most one run at a time; the scheduler checks capacity only when
    /// every class has an object; and after all runs have answered, the objects hold the true capacity and no step is
    /// left.
    #[test]
    fn capacity_runs_end_with_all_capacities_known(events in events()) {
        let mut world = World::new(&[], &["n0", "n1"]);
        for event in &events {
            world.happens(event);
            world.settle();
        }
        for _ in 0..20 {
            world.now += INTERVAL * 2;
            world.settle();
            world.end_all(&capacity(1));
            world.settle();
        }
        prop_assert_eq!(world.settle(), 0);
        let wanted = world.wanted();
        let asked = wanted.iter().any(|wanted| wanted.source.is_some());
        prop_assert_eq!(world.unknown(), Vec::<String>::new());
        prop_assert_eq!(world.looks(), asked);
        let of_today = |name: &String| wanted.iter().any(|wanted| wanted.segment.object_name() == *name);
        prop_assert!(world.published.keys().all(of_today));
        // The failed Jobs remain where no run has answered since, because their nodes do not answer.
        let failed = |run: &ObservedRun| {
            let published = world.published.values().find(|published| published.name.ends_with(&run.job.run_labels.id));
            published.and_then(|published| published.record.as_ref()).is_some_and(|record| record.failures > 0)
        };
        prop_assert!(world.runs.iter().all(failed), "{:?}", world.runs);
    }
}
