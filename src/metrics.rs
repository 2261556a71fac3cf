//! Metrics, with the names that dashboards for Kubernetes already use, where those exist.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use flex_contract::operation::Operation;
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::encoding::text::encode;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};
use prometheus_client::registry::Registry;

use crate::capacity::{CAPABILITY, Published};
use crate::claim::progress::Progress;
use crate::claim::timeline::Timeline;
use crate::config::classes::Verdict;
use crate::findings::FindingKind;
use crate::rules::Rule;
use crate::tables::{self, NamedRule, Table};

mod spec;

use spec::{Labels, Measured, help, labels, metrics};
pub use spec::{MetricKind, MetricSpec};

labels! {
    Class { class: String }
    Category { category: &'static str }
    Kind { kind: &'static str }
    Outcome { operation: &'static str, outcome: &'static str }
    Size { class: String, size: String }
    Segment { class: String, topology: String }
    InProgress { class: String, state: &'static str }
    Run { operation: String }
    Reconciled { object: &'static str }
    Build { version: &'static str }
    Reached { class: String, stage: &'static str }
    Decided { object: &'static str, rule: &'static str }
}

metrics! {
    /// Claims bound to the volumes of their attempts.
    provisioned: Family<Class, Counter> = "controller_persistentvolumeclaim_provision";
    /// Attempts that failed.
    provision_failed: Family<Class, Counter> = "controller_persistentvolumeclaim_provision_failed";
    /// Time from the beginning of the last attempt to the binding.
    provision_seconds: Family<Class, Histogram> = "controller_persistentvolumeclaim_provision_duration_seconds",
        made by Family::new_with_constructor(|| Histogram::new(exponential_buckets(0.05, 2.0, 14)));
    /// Time that bound claims needed for each stage of their last attempt. Kubernetes tells some stages in whole seconds.
    stage_seconds: Family<Reached, Histogram> = "flex_stage_duration_seconds",
        made by Family::new_with_constructor(|| Histogram::new(exponential_buckets(0.05, 2.0, 14)));
    /// Time from the adoption of a volume until the PV controller has seen it with its claim. No claim is bound before.
    pv_sync_seconds: Histogram = "flex_pv_sync_duration_seconds",
        made by Histogram::new(exponential_buckets(0.01, 1.5, 18));
    /// Volumes deleted with their storage.
    deleted: Family<Class, Counter> = "controller_persistentvolume_delete";
    /// Volumes deleted without their storage: an admin abandoned them, or their node is gone for good.
    abandoned: Family<Class, Counter> = "flex_volumes_abandoned";
    /// Delete runs that failed.
    delete_failed: Family<Class, Counter> = "controller_persistentvolume_delete_failed";
    /// Claims whose storage has grown.
    expanded: Family<Class, Counter> = "controller_persistentvolumeclaim_expand";
    /// Expand runs that failed.
    expand_failed: Family<Class, Counter> = "controller_persistentvolumeclaim_expand_failed";
    /// Claims whose volume has got other attributes.
    modified: Family<Class, Counter> = "controller_persistentvolumeclaim_modify";
    /// Modify runs that failed.
    modify_failed: Family<Class, Counter> = "controller_persistentvolumeclaim_modify_failed";
    /// Snapshot and delete-snapshot runs that ended, `done` or `failed`.
    snapshot_runs: Family<Outcome, Counter> = "flex_snapshot_runs";
    /// Published capacity of each node or zone of a class.
    capacities: Family<Segment, Gauge<u64, AtomicU64>> = "flex_capacity_bytes";
    /// Capacity runs that ended, `done` or `failed`.
    capacity_runs: Family<Outcome, Counter> = "flex_capacity_runs";
    /// Batches that began.
    batches: Family<Class, Counter> = "flex_batches";
    /// Claims and volumes in the batches that began.
    batch_claims: Family<Class, Counter> = "flex_batch_claims";
    /// Pooled volumes that are ready. The label `size` has the bytes of one.
    pool_ready: Family<Size, Gauge> = "flex_pool_ready";
    /// Claims that got a pooled volume.
    pool_hits: Family<Class, Counter> = "flex_pool_hits";
    /// Claims of classes with a pool for which a volume had to be made.
    pool_misses: Family<Class, Counter> = "flex_pool_misses";
    /// Decisions, by the kind of object and the rule that applied.
    decisions: Family<Decided, Counter> = "flex_decisions", made by no_decisions();
    /// Steps that failed and are repeated. The category is `conflict`, `not-found`, `refused`, `foreign`, `incomplete`,
    /// `failed` or `timeout`.
    errors: Family<Category, Counter> = "flex_errors";
    /// Findings of the last sweep, by the kinds of the doctor.
    findings: Family<Kind, Gauge> = "flex_findings";
    /// Objects that the sweep has removed.
    orphans_removed: Family<Kind, Counter> = "flex_orphans_removed";
    /// Provisioner ConfigMaps.
    configs: Gauge = "flex_configs";
    /// Provisioner ConfigMaps with errors.
    configs_refused: Gauge = "flex_configs_refused";
    /// Claims that are not bound, by state: `Waiting` for an attempt, `Running`, `Failed` until the next attempt, or
    /// `Deleting`.
    claims: Family<InProgress, Gauge> = "flex_claims_in_progress";
    /// Age of the oldest claim of that state.
    oldest_claim: Family<InProgress, Gauge> = "flex_claims_in_progress_oldest_seconds";
    /// Runs in progress, by operation.
    runs: Family<Run, Gauge> = "flex_runs_in_progress";
    /// Work items that are ready, or with a worker.
    pub queue_depth: Gauge = "flex_queue_depth";
    /// Time of the reconciliations of a kind of object, with all their requests.
    reconcile_seconds: Family<Reconciled, Histogram> = "flex_reconcile_duration_seconds",
        made by Family::new_with_constructor(|| Histogram::new(exponential_buckets(0.0005, 2.0, 18)));
    /// 1 while this process leads.
    pub leader: Gauge = "flex_leader";
    /// Always 1. The label has the version of this process.
    build: Family<Build, Gauge> = "flex_build_info";
    /// Time that this process has spent on processors.
    process_seconds: Counter<f64, AtomicU64> = "process_cpu_seconds";
    /// Memory of this process.
    process_bytes: Gauge<u64, AtomicU64> = "process_resident_memory_bytes";
    /// Open files and connections of this process.
    process_files: Gauge = "process_open_fds";
}

/// Why a step failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, strum::IntoStaticStr, strum::VariantArray)]
#[strum(serialize_all = "kebab-case")]
pub enum ErrorCategory {
    /// Somebody else wrote first.
    Conflict,
    /// The object does not exist.
    NotFound,
    /// The API server refused the write.
    Refused,
    /// The object belongs to somebody else.
    Foreign,
    /// The object that the API server stored lacks a part of what was written.
    Incomplete,
    /// Any other error.
    Failed,
    /// The API server did not answer in time.
    Timeout,
}

impl ErrorCategory {
    /// Returns the text in the label.
    pub fn as_str(self) -> &'static str {
        self.into()
    }
}

/// Returns the counters of all rules. A rule that has not applied counts as 0, so that its first decision is an
/// increase.
fn no_decisions() -> Family<Decided, Counter> {
    let decisions = Family::default();
    for Table { object, rules, .. } in tables::all() {
        for NamedRule { name: rule, .. } in rules {
            drop(decisions.get_or_create(&Decided { object, rule }));
        }
    }
    decisions
}

/// The claims of a class that are in one state.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Waiting {
    /// Their number.
    pub claims: i64,
    /// The age of the oldest, in seconds.
    pub oldest: i64,
}

/// The machine's resources that this process uses.
#[derive(Clone, Copy, Debug)]
pub struct ProcessUse {
    /// The memory, in bytes.
    pub resident: u64,
    /// The time on processors since its start, in seconds.
    pub processor: f64,
    /// The open files and connections.
    pub files: i64,
}

fn class(class: &str) -> Class {
    Class { class: class.to_owned() }
}

impl Metrics {
    /// Counts a claim that is bound, with the time since its attempt began.
    pub fn provisioned(&self, name: &str, took: Duration) {
        self.provisioned.get_or_create(&class(name)).inc();
        self.provision_seconds.get_or_create(&class(name)).observe(took.as_secs_f64());
    }

    /// Counts the stages of a claim that is bound.
    pub fn reached(&self, name: &str, timeline: &Timeline) {
        for stage in timeline.stages() {
            let labels = Reached { class: name.to_owned(), stage: stage.stage.name() };
            self.stage_seconds
                .get_or_create(&labels)
                .observe(Duration::from_millis(stage.took.unsigned_abs()).as_secs_f64());
        }
    }

    /// Counts a volume of which the PV controller knows, with the time from its adoption until then.
    pub fn pv_synced(&self, waited: Duration) {
        self.pv_sync_seconds.observe(waited.as_secs_f64());
    }

    /// Counts a failed attempt.
    pub fn provision_failed(&self, name: &str) {
        self.provision_failed.get_or_create(&class(name)).inc();
    }

    /// Counts a volume that was deleted with its storage.
    pub fn deleted(&self, name: &str) {
        self.deleted.get_or_create(&class(name)).inc();
    }

    /// Counts a volume that was deleted without its storage.
    pub fn abandoned(&self, name: &str) {
        self.abandoned.get_or_create(&class(name)).inc();
    }

    /// Counts a failed delete run.
    pub fn delete_failed(&self, name: &str) {
        self.delete_failed.get_or_create(&class(name)).inc();
    }

    /// Counts a successful expand run.
    pub fn expanded(&self, name: &str) {
        self.expanded.get_or_create(&class(name)).inc();
    }

    /// Counts a run for a snapshot that has ended.
    pub fn snapshot_run(&self, operation: Operation, done: bool) {
        let outcome = if done { "done" } else { "failed" };
        self.snapshot_runs.get_or_create(&Outcome { operation: operation.as_str(), outcome }).inc();
    }

    /// Counts a run for several claims or volumes of a class.
    pub fn batch(&self, name: &str, claims: usize) {
        self.batches.get_or_create(&class(name)).inc();
        self.batch_claims.get_or_create(&class(name)).inc_by(claims as u64);
    }

    /// Sets the numbers of ready volumes, by class and size.
    pub fn ready(&self, counts: BTreeMap<(String, u64), usize>) {
        self.pool_ready.clear();
        for ((class, bytes), count) in counts {
            self.pool_ready.get_or_create(&Size { class, size: bytes.to_string() }).set(count as i64);
        }
    }

    /// Counts a claim that got a pooled volume.
    pub fn pool_hit(&self, name: &str) {
        self.pool_hits.get_or_create(&class(name)).inc();
    }

    /// Counts a claim of a class with a pool for which a volume had to be made.
    pub fn pool_miss(&self, name: &str) {
        self.pool_misses.get_or_create(&class(name)).inc();
    }

    /// Counts a capacity run that has ended.
    pub fn capacity_run(&self, done: bool) {
        let outcome = if done { "done" } else { "failed" };
        self.capacity_runs.get_or_create(&Outcome { operation: CAPABILITY, outcome }).inc();
    }

    /// Sets the published capacities of the classes that an image reports.
    pub fn capacities<'a>(&self, published: impl Iterator<Item = &'a Published>) {
        self.capacities.clear();
        for published in published.filter(|published| published.record.is_some()) {
            let labels = published.topology.iter().map(|(label, value)| format!("{label}={value}"));
            let topology = labels.collect::<Vec<_>>().join(",");
            let segment = Segment { class: published.class.clone(), topology };
            self.capacities.get_or_create(&segment).set(published.bytes);
        }
    }

    /// Counts a failed expand run.
    pub fn expand_failed(&self, name: &str) {
        self.expand_failed.get_or_create(&class(name)).inc();
    }

    /// Counts a volume that has got other attributes.
    pub fn modified(&self, name: &str) {
        self.modified.get_or_create(&class(name)).inc();
    }

    /// Counts a failed modify run.
    pub fn modify_failed(&self, name: &str) {
        self.modify_failed.get_or_create(&class(name)).inc();
    }

    /// Counts a decision.
    pub fn decided<R: Rule>(&self, rule: R) {
        self.decisions.get_or_create(&Decided { object: R::OBJECT, rule: rule.name() }).inc();
    }

    /// Returns the number of decisions by a rule.
    pub fn decisions(&self, object: &'static str, rule: &'static str) -> u64 {
        self.decisions.get_or_create(&Decided { object, rule }).get()
    }

    /// Counts a failed step.
    pub fn step_failed(&self, category: ErrorCategory) {
        self.errors.get_or_create(&Category { category: category.as_str() }).inc();
    }

    /// Sets the numbers of findings of the last sweep, by kind.
    pub fn findings<'a>(&self, kinds: impl Iterator<Item = &'a FindingKind>) {
        let mut counts: BTreeMap<FindingKind, i64> = BTreeMap::new();
        kinds.for_each(|kind| *counts.entry(*kind).or_default() += 1);
        for kind in FindingKind::ALL {
            let count = counts.get(kind).copied().unwrap_or(0);
            self.findings.get_or_create(&Kind { kind: kind.as_str() }).set(count);
        }
    }

    /// Removes the findings, because another process leads and sweeps.
    pub fn forget(&self) {
        self.findings.clear();
        self.capacities.clear();
        self.pool_ready.clear();
    }

    /// Counts an orphaned object that was deleted.
    pub fn orphan_removed(&self, kind: FindingKind) {
        self.orphans_removed.get_or_create(&Kind { kind: kind.as_str() }).inc();
    }

    /// Sets the states of the configs.
    pub fn configs<'a>(&self, verdicts: impl Iterator<Item = &'a Verdict>) {
        let (mut all, mut refused) = (0, 0);
        for verdict in verdicts {
            all += 1;
            refused += i64::from(!verdict.problems.is_empty());
        }
        self.configs.set(all);
        self.configs_refused.set(refused);
    }

    /// Sets the claims and runs in progress.
    pub fn in_progress(&self, claims: BTreeMap<(String, Progress), Waiting>, runs: BTreeMap<String, i64>) {
        self.claims.clear();
        self.oldest_claim.clear();
        self.runs.clear();
        for ((class, progress), Waiting { claims, oldest }) in claims {
            let labels = InProgress { class, state: progress.as_str() };
            self.claims.get_or_create(&labels).set(claims);
            self.oldest_claim.get_or_create(&labels).set(oldest);
        }
        for (operation, count) in runs {
            self.runs.get_or_create(&Run { operation }).set(count);
        }
    }

    /// Counts a reconciliation of an object of this kind.
    pub fn reconciled(&self, object: &'static str, took: Duration) {
        self.reconcile_seconds.get_or_create(&Reconciled { object }).observe(took.as_secs_f64());
    }

    /// Sets what this process uses.
    pub fn process(&self, used: ProcessUse) {
        self.process_seconds.inc_by((used.processor - self.process_seconds.get()).max(0.0));
        self.process_bytes.set(used.resident);
        self.process_files.set(used.files);
    }

    /// Returns all metrics in the text format of Prometheus.
    pub fn text(&self) -> String {
        self.build.get_or_create(&Build { version: env!("CARGO_PKG_VERSION") }).set(1);
        let mut text = String::new();
        // A write to a String cannot fail.
        let _ = encode(&mut text, &self.registry);
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::capacity::CapacityRecord;
    use crate::claim::timeline::Stage;

    /// Returns the names of the labels of a line such as `name{a="x",b="y"} 1`.
    fn labels(line: &str) -> Vec<&str> {
        let labels = line.split_once('{').and_then(|(_, rest)| rest.rsplit_once('}')).map_or("", |(labels, _)| labels);
        labels.split("=\"").filter_map(|part| part.rsplit(['"', ',']).next()).filter(|name| !name.is_empty()).collect()
    }

    #[test]
    fn each_category_of_errors_is_documented() {
        let errors = Metrics::ALL.iter().find(|spec| spec.name == "flex_errors").unwrap();
        for category in <ErrorCategory as strum::VariantArray>::VARIANTS {
            assert!(errors.doc.concat().contains(&format!("`{}`", category.as_str())), "{category:?}");
        }
    }

    #[test]
    fn each_metric_is_counted_and_has_the_labels_of_its_documentation() {
        let metrics = Metrics::default();
        let published =
            Published { class: "c".into(), record: Some(CapacityRecord::default()), ..Published::default() };
        metrics.provisioned("c", Duration::from_secs(1));
        metrics.pv_synced(Duration::from_millis(20));
        metrics.capacities([&published].into_iter());
        metrics.capacity_run(true);
        metrics.snapshot_run(Operation::Snapshot, true);
        metrics.ready([(("c".to_owned(), 1), 1)].into());
        metrics.batch("c", 2);
        metrics.step_failed(ErrorCategory::Conflict);
        metrics.findings([FindingKind::NodeGone].iter());
        metrics.orphan_removed(FindingKind::JobFinished);
        metrics.configs(std::iter::empty());
        let waiting = Waiting { claims: 1, oldest: 2 };
        metrics.in_progress([(("c".into(), Progress::Waiting), waiting)].into(), [("provision".into(), 1)].into());
        metrics.reconciled("claim", Duration::from_millis(1));
        metrics.reached("c", &{
            let mut timeline = Timeline::new(1, 0);
            timeline.reach(Stage::Bound, 1);
            timeline
        });
        type Counts = fn(&Metrics, &str);
        let by_class: [Counts; 10] = [
            Metrics::provision_failed,
            Metrics::deleted,
            Metrics::abandoned,
            Metrics::delete_failed,
            Metrics::expanded,
            Metrics::expand_failed,
            Metrics::modified,
            Metrics::modify_failed,
            Metrics::pool_hit,
            Metrics::pool_miss,
        ];
        by_class.iter().for_each(|count| count(&metrics, "c"));
        let text = metrics.text();
        for spec in Metrics::ALL {
            let name = match spec.kind {
                MetricKind::Histogram => format!("{}_count", spec.name),
                _ => spec.exposed(),
            };
            let is_of = |line: &&str| line.strip_prefix(&name).is_some_and(|rest| rest.starts_with(['{', ' ']));
            let line = text.lines().find(is_of).unwrap_or_else(|| panic!("no line counts {name}: {text}"));
            assert_eq!(labels(line), spec.labels, "{line}");
            assert!(text.contains(&format!("# TYPE {} {}\n", spec.name, spec.kind)), "{name}: {text}");
        }
    }

    #[test]
    fn each_rule_is_known_before_it_applies() {
        use crate::volume::rule::Rule;
        let metrics = Metrics::default();
        let is_line = |line: &&str| line.starts_with("flex_decisions_total{");
        let rules: usize = tables::all().iter().map(|table| table.rules.len()).sum();
        assert_eq!(metrics.text().lines().filter(is_line).count(), rules);
        metrics.decided(Rule::ConfirmClaimGone);
        metrics.decided(Rule::Expand(crate::volume::expand::Rule::ExpandAttemptDue));
        let text = metrics.text();
        for (rule, count) in [("ConfirmClaimGone", 1), ("ExpandAttemptDue", 1), ("ModifyAttemptDue", 0)] {
            let line = format!("flex_decisions_total{{object=\"volume\",rule=\"{rule}\"}} {count}\n");
            assert!(text.contains(&line), "{line} is not in {text}");
            assert_eq!(metrics.decisions("volume", rule), count);
        }
        assert_eq!(text.lines().filter(is_line).count(), rules);
    }

    #[test]
    fn capacity_metrics_show_the_published_capacity() {
        let metrics = Metrics::default();
        let published = |class: &str, node: &str, bytes: u64, asked: bool| Published {
            class: class.into(),
            topology: [("kubernetes.io/hostname".to_owned(), node.to_owned())].into(),
            bytes,
            record: asked.then(CapacityRecord::default),
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
