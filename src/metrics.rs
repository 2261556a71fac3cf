//! The metrics, with the names that dashboards for Kubernetes already use, where those exist.
//!
//! The table in this file makes the fields, their registration and their documentation. `recording` has the functions that
//! set the fields.

use std::borrow::Cow;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use flex_core::tables::{self, Series};
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::encoding::text::encode;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};
use prometheus_client::registry::Registry;

mod age;
mod recording;
mod spec;
#[cfg(test)]
mod tests;
mod values;

pub use age::Age;
use spec::{Labels, Measured, help, labels, metrics};
pub use spec::{MetricKind, MetricSpec};
pub use values::{ErrorCategory, ProcessUse, RequestCode, Waiting};

/// The label of all series that names the orchestrator by its instance. So several orchestrators of one cluster are told
/// apart.
pub const ORCHESTRATOR: &str = "orchestrator";

labels! {
    Class { class: String }
    Provisioned { class: String, source: &'static str }
    Category { category: &'static str }
    Kind { kind: &'static str }
    Outcome { operation: &'static str, outcome: &'static str }
    Size { class: String, size: String }
    Segment { class: String, topology: String }
    InProgress { class: String, state: &'static str }
    Run { operation: String }
    ClassRun { class: String, operation: &'static str }
    Reconciled { object: &'static str }
    Build { version: &'static str }
    Reached { class: String, stage: &'static str }
    Decided { object: &'static str, run: &'static str, rule: &'static str }
    Requested { verb: &'static str, code: RequestCode }
    Watched { kind: String }
    Configured { config: String, state: &'static str }
}

metrics! {
    /// Claims bound to the volumes of their attempts. The label `source` has the kind of the claim's data source:
    /// `PersistentVolumeClaim`, `VolumeSnapshot`, `other`, or empty for none.
    provisioned: Family<Provisioned, Counter> = "controller_persistentvolumeclaim_provision";
    /// Attempts that failed.
    provision_failed: Family<Provisioned, Counter> = "controller_persistentvolumeclaim_provision_failed";
    /// Time from the beginning of the last attempt to the binding.
    provision_seconds: Family<Provisioned, Histogram> = "controller_persistentvolumeclaim_provision_duration_seconds",
        made by Family::new_with_constructor(|| Histogram::new(exponential_buckets(0.05, 2.0, 14)));
    /// Time that bound claims needed for each stage of their last attempt. Kubernetes tells some stages in whole seconds.
    stage_seconds: Family<Reached, Histogram> = "flex_stage_duration_seconds",
        made by Family::new_with_constructor(|| Histogram::new(exponential_buckets(0.05, 2.0, 14)));
    /// Time from the adoption of a volume until the PV controller has seen it with its claim. No claim is bound before.
    pv_sync_seconds: Histogram = "flex_pv_sync_duration_seconds",
        made by Histogram::new(exponential_buckets(0.01, 1.5, 18));
    /// Volumes deleted with their storage.
    deleted: Family<Class, Counter> = "controller_persistentvolume_delete";
    /// Time from the creation of the last delete run's Job, which Kubernetes tells in whole seconds, to the deletion of the
    /// volume.
    delete_seconds: Family<Class, Histogram> = "controller_persistentvolume_delete_duration_seconds",
        made by Family::new_with_constructor(|| Histogram::new(exponential_buckets(0.05, 2.0, 14)));
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
    /// Decisions, by the kind of object and the rule that applied; `run` says for what a run is, if the rule is about one.
    decisions: Family<Decided, Counter> = "flex_decisions", made by no_decisions();
    /// Steps that failed and are repeated. The category is `conflict`, `not-found`, `refused`, `foreign`, `incomplete`,
    /// `failed` or `timeout`.
    errors: Family<Category, Counter> = "flex_errors";
    /// Findings of the last sweep, by the kinds of the doctor.
    findings: Family<Kind, Gauge> = "flex_findings";
    /// Objects that the sweep has removed.
    orphans_removed: Family<Kind, Counter> = "flex_orphans_removed";
    /// Always 1, for each provisioner ConfigMap. The label `config` has its namespace and name. The state is `accepted`,
    /// `warnings`, or `refused` for a ConfigMap with errors.
    config_state: Family<Configured, Gauge> = "flex_config_state";
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
    /// Always 1, for each operation of a class whose last runs have all failed. One run begins at a time, until one
    /// succeeds.
    outages: Family<ClassRun, Gauge> = "flex_outages";
    /// Work items that are ready, or with a worker.
    pub queue_depth: Gauge = "flex_queue_depth";
    /// Time of the reconciliations of a kind of object, with all their requests.
    reconcile_seconds: Family<Reconciled, Histogram> = "flex_reconcile_duration_seconds",
        made by Family::new_with_constructor(|| Histogram::new(exponential_buckets(0.0005, 2.0, 18)));
    /// Time until the headers of the API server's answer, with the repetitions of the client. The code is that of HTTP, or
    /// `error` if there was no answer.
    request_seconds: Family<Requested, Histogram> = "flex_api_request_duration_seconds",
        made by Family::new_with_constructor(|| Histogram::new(exponential_buckets(0.001, 2.0, 16)));
    /// Watches of a kind that ended with an error and began again, with a new list if necessary. A search for a kind or
    /// namespace that does not exist is no error.
    watch_restarts: Family<Watched, Counter> = "flex_watch_restarts";
    /// Time since this process has renewed the Lease. Only the process that renewed it last has this metric.
    pub lease_age: Age = "flex_lease_age_seconds";
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

/// Returns the counters of all rules. A rule that has not applied counts as 0, so that its first decision is an
/// increase.
fn no_decisions() -> Family<Decided, Counter> {
    let decisions = Family::default();
    for series in tables::series() {
        drop(decisions.get_or_create(&Decided::from(series)));
    }
    decisions
}

impl From<Series> for Decided {
    fn from(Series { object, run, rule }: Series) -> Self {
        Decided { object, run, rule }
    }
}

impl Metrics {
    /// Makes the metrics of an orchestrator, by its instance.
    pub fn of(orchestrator: &str) -> Self {
        let label = (Cow::Borrowed(ORCHESTRATOR), Cow::Owned(orchestrator.to_owned()));
        Metrics::registered(Registry::with_labels([label].into_iter()))
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
