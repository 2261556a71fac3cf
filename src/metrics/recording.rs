//! The functions that count and set the metrics.

use std::collections::BTreeMap;
use std::time::Duration;

use flex_contract::operation::Operation;
use flex_core::capacity::{CAPABILITY, Published};
use flex_core::claim::progress::Progress;
use flex_core::claim::timeline::Timeline;
use flex_core::config::classes::{ConfigState, Verdict};
use flex_core::findings::FindingKind;
use flex_core::object::ObjectName;
use flex_core::rules::Rule;
use flex_core::tables::{Series, series_of};
use prometheus_client::metrics::counter::Counter;

use super::values::{ErrorCategory, ProcessUse, RequestCode, Waiting};
use super::{
    Category, Class, ClassRun, Configured, Decided, InProgress, Kind, Metrics, Outcome, Provisioned, Reached,
    Reconciled, Requested, Run, Segment, Size, Watched,
};

fn class(class: &str) -> Class {
    Class { class: class.to_owned() }
}

impl Metrics {
    /// Counts a claim that is bound, with the kind of its data source and the time since its attempt began.
    pub fn provisioned(&self, name: &str, source: &'static str, took: Duration) {
        let labels = Provisioned { class: name.to_owned(), source };
        self.provisioned.get_or_create(&labels).inc();
        self.provision_seconds.get_or_create(&labels).observe(took.as_secs_f64());
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

    /// Counts a failed attempt of a claim, with the kind of its data source.
    pub fn provision_failed(&self, name: &str, source: &'static str) {
        self.provision_failed.get_or_create(&Provisioned { class: name.to_owned(), source }).inc();
    }

    /// Counts a volume that was deleted with its storage, with the time since its delete run began.
    pub fn deleted(&self, name: &str, took: Duration) {
        self.deleted.get_or_create(&class(name)).inc();
        self.delete_seconds.get_or_create(&class(name)).observe(took.as_secs_f64());
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
        self.decisions.get_or_create(&Decided::from(series_of(rule))).inc();
    }

    /// Returns the number of decisions of a series.
    pub fn decisions(&self, series: Series) -> u64 {
        self.decisions.get_or_create(&Decided::from(series)).get()
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

    /// Removes what only a leader measures, because another process leads.
    pub fn forget(&self) {
        self.findings.clear();
        self.capacities.clear();
        self.pool_ready.clear();
        self.configs(std::iter::empty());
    }

    /// Counts an orphaned object that was deleted.
    pub fn orphan_removed(&self, kind: FindingKind) {
        self.orphans_removed.get_or_create(&Kind { kind: kind.as_str() }).inc();
    }

    /// Sets the states of the configs.
    pub fn configs<'a>(&self, verdicts: impl Iterator<Item = (&'a ObjectName, &'a Verdict)>) {
        let (mut all, mut refused) = (0, 0);
        self.config_state.clear();
        for (config, verdict) in verdicts {
            all += 1;
            refused += i64::from(verdict.state() == ConfigState::Refused);
            let labels = Configured { config: config.to_string(), state: verdict.state().into() };
            self.config_state.get_or_create(&labels).set(1);
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

    /// Sets the operations of classes that have an outage.
    pub fn outages(&self, outages: Vec<(String, Operation)>) {
        self.outages.clear();
        for (class, operation) in outages {
            self.outages.get_or_create(&ClassRun { class, operation: operation.as_str() }).set(1);
        }
    }

    /// Counts a reconciliation of an object of this kind.
    pub fn reconciled(&self, object: &'static str, took: Duration) {
        self.reconcile_seconds.get_or_create(&Reconciled { object }).observe(took.as_secs_f64());
    }

    /// Counts a request to the API server, with the time until its answer.
    pub fn requested(&self, verb: &'static str, code: RequestCode, took: Duration) {
        self.request_seconds.get_or_create(&Requested { verb, code }).observe(took.as_secs_f64());
    }

    /// Returns the counter of watches of a kind that began again. It counts from 0, so that the first restart is an
    /// increase.
    pub fn watch_restarts(&self, kind: &str) -> Counter {
        self.watch_restarts.get_or_create_owned(&Watched { kind: kind.to_owned() })
    }

    /// Sets what this process uses.
    pub fn process(&self, used: ProcessUse) {
        self.process_seconds.inc_by((used.processor - self.process_seconds.get()).max(0.0));
        self.process_bytes.set(used.resident);
        self.process_files.set(used.files);
    }
}
