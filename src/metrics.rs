//! Metrics, under the names that the field's dashboards use where those exist.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use contract::request::Operation;
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::encoding::text::encode;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};
use prometheus_client::registry::Registry;

use crate::capacity::{CAPABILITY, Published};
use crate::config::classes::Verdict;
use crate::orphans::Kind;

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct Class {
    class: String,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct Category {
    category: String,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct OrphanKind {
    kind: &'static str,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct Outcome {
    operation: &'static str,
    outcome: &'static str,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct Size {
    class: String,
    size: String,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct Segment {
    class: String,
    topology: String,
}

/// What is counted.
#[derive(Clone)]
pub struct Metrics {
    registry: Arc<Registry>,
    provisioned: Family<Class, Counter>,
    provision_failed: Family<Class, Counter>,
    provision_seconds: Family<Class, Histogram>,
    deleted: Family<Class, Counter>,
    delete_failed: Family<Class, Counter>,
    expanded: Family<Class, Counter>,
    expand_failed: Family<Class, Counter>,
    modified: Family<Class, Counter>,
    modify_failed: Family<Class, Counter>,
    snapshot_runs: Family<Outcome, Counter>,
    capacities: Family<Segment, Gauge<u64, AtomicU64>>,
    capacity_runs: Family<Outcome, Counter>,
    batches: Family<Class, Counter>,
    batch_claims: Family<Class, Counter>,
    pool_ready: Family<Size, Gauge>,
    pool_hits: Family<Class, Counter>,
    pool_misses: Family<Class, Counter>,
    errors: Family<Category, Counter>,
    orphans: Family<OrphanKind, Gauge>,
    orphans_removed: Family<OrphanKind, Counter>,
    configs: Gauge,
    configs_refused: Gauge,
    /// 1 while this process leads.
    pub leader: Gauge,
}

impl Default for Metrics {
    fn default() -> Self {
        let seconds = || Histogram::new(exponential_buckets(0.05, 2.0, 14));
        let provision_seconds = Family::<Class, Histogram>::new_with_constructor(seconds);
        let mut registry = Registry::default();
        let (provisioned, provision_failed, deleted, delete_failed) =
            <(Family<_, _>, Family<_, _>, Family<_, _>, Family<_, _>)>::default();
        let (expanded, expand_failed) = <(Family<_, _>, Family<_, _>)>::default();
        let (modified, modify_failed) = <(Family<_, _>, Family<_, _>)>::default();
        let snapshot_runs = Family::<Outcome, Counter>::default();
        let (capacities, capacity_runs) = <(Family<Segment, _>, Family<Outcome, Counter>)>::default();
        let (batches, batch_claims) = <(Family<Class, Counter>, Family<Class, Counter>)>::default();
        let pool_ready = Family::<Size, Gauge>::default();
        let (pool_hits, pool_misses) = <(Family<Class, Counter>, Family<Class, Counter>)>::default();
        let errors = Family::<Category, Counter>::default();
        let (orphans, orphans_removed) = <(Family<OrphanKind, Gauge>, Family<OrphanKind, Counter>)>::default();
        let (configs, configs_refused, leader) = <(Gauge, Gauge, Gauge)>::default();
        registry.register("controller_persistentvolumeclaim_provision", "Claims bound, by class", provisioned.clone());
        registry.register(
            "controller_persistentvolumeclaim_provision_failed",
            "Failed attempts, by class",
            provision_failed.clone(),
        );
        registry.register(
            "controller_persistentvolumeclaim_provision_duration_seconds",
            "From the beginning of the attempt to the claim's binding",
            provision_seconds.clone(),
        );
        registry.register(
            "controller_persistentvolume_delete",
            "Volumes deleted with their storage, by class",
            deleted.clone(),
        );
        registry.register(
            "controller_persistentvolume_delete_failed",
            "Failed delete runs, by class",
            delete_failed.clone(),
        );
        registry.register(
            "controller_persistentvolumeclaim_expand",
            "Claims whose storage has grown, by class",
            expanded.clone(),
        );
        registry.register(
            "controller_persistentvolumeclaim_expand_failed",
            "Failed expand runs, by class",
            expand_failed.clone(),
        );
        registry.register(
            "controller_persistentvolumeclaim_modify",
            "Claims whose volume has got other attributes, by class",
            modified.clone(),
        );
        registry.register(
            "controller_persistentvolumeclaim_modify_failed",
            "Failed modify runs, by class",
            modify_failed.clone(),
        );
        registry.register(
            "flex_snapshot_runs",
            "Snapshot and delete-snapshot runs that ended, by outcome",
            snapshot_runs.clone(),
        );
        registry.register(
            "flex_capacity_bytes",
            "Room that the scheduler is told of, by class and by the labels of the nodes that it is for",
            capacities.clone(),
        );
        registry.register("flex_capacity_runs", "Capacity runs that ended, by outcome", capacity_runs.clone());
        registry.register(
            "flex_batches",
            "Runs for several claims or volumes that were begun, by class",
            batches.clone(),
        );
        registry.register(
            "flex_batch_claims",
            "Claims and volumes for which they were, by class",
            batch_claims.clone(),
        );
        registry.register(
            "flex_pool_ready",
            "Volumes that are kept ready, by class and size in bytes",
            pool_ready.clone(),
        );
        registry.register("flex_pool_hits", "Claims that were given such a volume, by class", pool_hits.clone());
        registry.register(
            "flex_pool_misses",
            "Claims of a class with a pool for which a volume had to be made, by class",
            pool_misses.clone(),
        );
        registry.register("flex_errors", "Steps that did not succeed and are repeated, by category", errors.clone());
        registry.register("flex_orphans", "What is left over, or does not get on, by kind", orphans.clone());
        registry.register("flex_orphans_removed", "What was left over and has been removed", orphans_removed.clone());
        registry.register("flex_configs", "Provisioner ConfigMaps", configs.clone());
        registry.register("flex_configs_refused", "Provisioner ConfigMaps with errors", configs_refused.clone());
        registry.register("flex_leader", "1 while this process leads", leader.clone());
        Metrics {
            registry: Arc::new(registry),
            provisioned,
            provision_failed,
            provision_seconds,
            deleted,
            delete_failed,
            expanded,
            expand_failed,
            modified,
            modify_failed,
            snapshot_runs,
            capacities,
            capacity_runs,
            batches,
            batch_claims,
            pool_ready,
            pool_hits,
            pool_misses,
            errors,
            orphans,
            orphans_removed,
            configs,
            configs_refused,
            leader,
        }
    }
}

fn class(class: &str) -> Class {
    Class { class: class.to_owned() }
}

impl Metrics {
    /// A claim is bound, so long after its attempt began.
    pub fn provisioned(&self, name: &str, took: Duration) {
        self.provisioned.get_or_create(&class(name)).inc();
        self.provision_seconds.get_or_create(&class(name)).observe(took.as_secs_f64());
    }

    /// An attempt failed.
    pub fn provision_failed(&self, name: &str) {
        self.provision_failed.get_or_create(&class(name)).inc();
    }

    /// A volume is gone with its storage.
    pub fn deleted(&self, name: &str) {
        self.deleted.get_or_create(&class(name)).inc();
    }

    /// A delete run failed.
    pub fn delete_failed(&self, name: &str) {
        self.delete_failed.get_or_create(&class(name)).inc();
    }

    /// The storage of a claim has grown.
    pub fn expanded(&self, name: &str) {
        self.expanded.get_or_create(&class(name)).inc();
    }

    /// A run about a snapshot ended.
    pub fn snapshot_run(&self, operation: Operation, done: bool) {
        let outcome = if done { "done" } else { "failed" };
        self.snapshot_runs.get_or_create(&Outcome { operation: operation.as_str(), outcome }).inc();
    }

    /// A run for so many claims or volumes of a class was begun.
    pub fn batch(&self, name: &str, claims: usize) {
        self.batches.get_or_create(&class(name)).inc();
        self.batch_claims.get_or_create(&class(name)).inc_by(claims as u64);
    }

    /// So many volumes are ready, by class and size.
    pub fn ready(&self, counts: BTreeMap<(String, u64), usize>) {
        self.pool_ready.clear();
        for ((class, bytes), count) in counts {
            self.pool_ready.get_or_create(&Size { class, size: bytes.to_string() }).set(count as i64);
        }
    }

    /// A claim was given a volume that was ready.
    pub fn pool_hit(&self, name: &str) {
        self.pool_hits.get_or_create(&class(name)).inc();
    }

    /// A volume had to be made for a claim of a class with a pool.
    pub fn pool_miss(&self, name: &str) {
        self.pool_misses.get_or_create(&class(name)).inc();
    }

    /// A capacity run ended.
    pub fn capacity_run(&self, done: bool) {
        let outcome = if done { "done" } else { "failed" };
        self.capacity_runs.get_or_create(&Outcome { operation: CAPABILITY, outcome }).inc();
    }

    /// How much room the scheduler is told of now: of classes that are asked.
    pub fn capacities<'a>(&self, published: impl Iterator<Item = &'a Published>) {
        self.capacities.clear();
        for published in published.filter(|published| published.record.is_some()) {
            let labels = published.topology.iter().map(|(label, value)| format!("{label}={value}"));
            let topology = labels.collect::<Vec<_>>().join(",");
            let segment = Segment { class: published.class.clone(), topology };
            self.capacities.get_or_create(&segment).set(published.bytes);
        }
    }

    /// An expand run failed.
    pub fn expand_failed(&self, name: &str) {
        self.expand_failed.get_or_create(&class(name)).inc();
    }

    /// A volume has got other attributes.
    pub fn modified(&self, name: &str) {
        self.modified.get_or_create(&class(name)).inc();
    }

    /// A modify run failed.
    pub fn modify_failed(&self, name: &str) {
        self.modify_failed.get_or_create(&class(name)).inc();
    }

    /// A step did not succeed.
    pub fn errors(&self, category: &str) {
        self.errors.get_or_create(&Category { category: category.to_owned() }).inc();
    }

    /// What the last look found, by kind.
    pub fn orphans<'a>(&self, kinds: impl Iterator<Item = &'a Kind>) {
        let mut counts: BTreeMap<Kind, i64> = BTreeMap::new();
        kinds.for_each(|kind| *counts.entry(*kind).or_default() += 1);
        for kind in Kind::ALL {
            let count = counts.get(kind).copied().unwrap_or(0);
            self.orphans.get_or_create(&OrphanKind { kind: kind.as_str() }).set(count);
        }
    }

    /// Another process leads, and looks.
    pub fn forget(&self) {
        self.orphans.clear();
        self.capacities.clear();
        self.pool_ready.clear();
    }

    /// Something was removed that was left over.
    pub fn orphan_removed(&self, kind: Kind) {
        self.orphans_removed.get_or_create(&OrphanKind { kind: kind.as_str() }).inc();
    }

    /// How the configs stand.
    pub fn configs<'a>(&self, verdicts: impl Iterator<Item = &'a Verdict>) {
        let (mut all, mut refused) = (0, 0);
        for verdict in verdicts {
            all += 1;
            refused += i64::from(!verdict.problems.is_empty());
        }
        self.configs.set(all);
        self.configs_refused.set(refused);
    }

    /// All of it, as Prometheus reads it.
    pub fn text(&self) -> String {
        let mut text = String::new();
        // Writing to a String cannot fail.
        let _ = encode(&mut text, &self.registry);
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::capacity::Record;

    #[test]
    fn room_is_that_of_the_last_look() {
        let metrics = Metrics::default();
        let published = |class: &str, node: &str, bytes: u64, asked: bool| Published {
            class: class.into(),
            topology: [("kubernetes.io/hostname".to_owned(), node.to_owned())].into(),
            bytes,
            record: asked.then(Record::default),
            ..Published::default()
        };
        let (a, b) = (published("c", "a", 10, true), published("c", "b", u64::MAX, true));
        metrics.capacities([&a, &b, &published("unasked", "a", 1, false)].into_iter());
        metrics.capacity_run(true);
        let line = |node: &str, bytes: u64| {
            format!("flex_capacity_bytes{{class=\"c\",topology=\"kubernetes.io/hostname={node}\"}} {bytes}\n")
        };
        let text = metrics.text();
        assert!(text.contains(&line("a", 10)) && text.contains(&line("b", u64::MAX)), "{text}");
        assert!(!text.contains("unasked"), "{text}");
        assert!(text.contains("flex_capacity_runs_total{operation=\"capacity\",outcome=\"done\"} 1\n"), "{text}");
        metrics.capacities([&a].into_iter());
        assert!(metrics.text().contains(&line("a", 10)) && !metrics.text().contains(&line("b", u64::MAX)));
        metrics.forget();
        assert!(!metrics.text().contains("flex_capacity_bytes{"));
    }
}
