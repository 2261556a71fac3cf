//! The timeline of one claim or one pod.

use flex_contract::names;
use jiff::Timestamp;
use serde::Serialize;

use crate::record::{Kind, Record};

/// A step from a claim to its volume, in the usual order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Step {
    /// The claim has the stamp.
    Stamped,
    /// The Job exists.
    Job,
    /// Its pod exists.
    Pod,
    /// The pod has a node.
    Scheduled,
    /// containerd begins with the pod's sandbox.
    SandboxBegun,
    /// The sandbox runs.
    Sandbox,
    /// The container runs.
    Container,
    /// The PersistentVolume exists.
    Volume,
    /// The claim is Bound.
    Bound,
    /// The container has ended.
    Exit,
    /// The API shows that the pod has succeeded.
    Reported,
}

impl Step {
    /// All steps.
    pub const ALL: [Step; 11] = [
        Step::Stamped,
        Step::Job,
        Step::Pod,
        Step::Scheduled,
        Step::SandboxBegun,
        Step::Sandbox,
        Step::Container,
        Step::Volume,
        Step::Bound,
        Step::Exit,
        Step::Reported,
    ];

    /// Returns the name of the step in tables.
    pub fn describe(self) -> &'static str {
        match self {
            Step::Stamped => "claim stamped",
            Step::Job => "Job created",
            Step::Pod => "pod created",
            Step::Scheduled => "pod scheduled",
            Step::SandboxBegun => "sandbox begun",
            Step::Sandbox => "sandbox runs",
            Step::Container => "container runs",
            Step::Volume => "PersistentVolume created",
            Step::Bound => "claim Bound",
            Step::Exit => "container ended",
            Step::Reported => "pod reported Succeeded",
        }
    }
}

/// An observed step.
#[derive(Clone, Debug)]
pub struct Observed {
    /// The step.
    pub step: Step,
    /// The time.
    pub at: Timestamp,
    /// The observed object: a name, for most steps.
    pub detail: String,
}

/// Returns the milliseconds from one time to another.
pub fn millis(from: Timestamp, to: Timestamp) -> f64 {
    to.duration_since(from).as_secs_f64() * 1000.0
}

/// Returns the first matching record.
pub fn first(records: &[Record], kind: Kind, fits: impl Fn(&Record) -> bool) -> Option<&Record> {
    records.iter().find(|record| record.kind == kind && fits(record))
}

/// Returns the observed steps of a claim, in their order.
pub fn of_claim(records: &[Record], uid: &str) -> Vec<Observed> {
    let provision = |record: &Record| {
        record.label(names::LABEL_VOLUME_ID) == uid && record.label(names::LABEL_OPERATION) == "provision"
    };
    let claim = |fits: &dyn Fn(&Record) -> bool| first(records, Kind::Claim, |r| r.uid() == uid && fits(r));
    let observed = |step, record: Option<&Record>, detail: &dyn Fn(&Record) -> String| {
        record.map(|record| Observed { step, at: record.at, detail: detail(record) })
    };
    let name = |record: &Record| record.name().to_owned();
    let stamp = |record: &Record| {
        format!("{} attempt {}", record.annotation(names::PROVISION_TS), record.annotation(names::ATTEMPT))
    };
    let volume = names::pv_name(uid);
    let mut steps: Vec<Observed> = [
        observed(Step::Stamped, claim(&|r| r.annotation(names::CLAIM_UID) == uid), &stamp),
        observed(Step::Job, first(records, Kind::Job, provision), &name),
        observed(Step::Volume, first(records, Kind::Volume, |r| r.name() == volume), &name),
        observed(Step::Bound, claim(&|r| r.text("/status/phase") == "Bound"), &|r| {
            r.text("/spec/volumeName").to_owned()
        }),
    ]
    .into_iter()
    .flatten()
    .collect();
    if let Some(pod) = first(records, Kind::Pod, provision) {
        steps.extend(of_pod(records, pod.uid()));
    }
    steps.sort_by_key(|observed| observed.step);
    steps
}

/// Returns the observed steps of a pod with one container, in their order.
pub fn of_pod(records: &[Record], uid: &str) -> Vec<Observed> {
    let pod = |fits: &dyn Fn(&Record) -> bool| first(records, Kind::Pod, |r| r.uid() == uid && fits(r));
    let container = container_id(records, uid);
    let event = |topic: &str, fits: &dyn Fn(&Record) -> bool| {
        first(records, Kind::Container, |r| r.text("/topic") == topic && fits(r))
    };
    let sandbox = |record: &Record| record.text("/pod") == uid;
    let main = |record: &Record| Some(record.text("/id")) == container.as_deref();
    // Only the second event of a sandbox names the pod; the first has the same id.
    let begun = first(records, Kind::Container, sandbox).map(|named| named.text("/id").to_owned());
    let begun = event("/containers/create", &|r| Some(r.text("/id")) == begun.as_deref());
    let observed = |step, record: Option<&Record>, pointer: &str| {
        record.map(|record| Observed { step, at: record.at, detail: record.text(pointer).to_owned() })
    };
    [
        observed(Step::Pod, pod(&|_| true), "/metadata/name"),
        observed(Step::Scheduled, pod(&|r| !r.text("/spec/nodeName").is_empty()), "/spec/nodeName"),
        observed(Step::SandboxBegun, begun, ""),
        observed(Step::Sandbox, event("/tasks/start", &sandbox), ""),
        observed(Step::Container, event("/tasks/start", &main), ""),
        observed(Step::Exit, event("/tasks/exit", &main), ""),
        observed(Step::Reported, pod(&|r| r.text("/status/phase") == "Succeeded"), ""),
    ]
    .into_iter()
    .flatten()
    .collect()
}

/// Returns the container of a pod, from the pod's status once that has one.
pub fn container_id(records: &[Record], pod: &str) -> Option<String> {
    records.iter().filter(|record| record.kind == Kind::Pod && record.uid() == pod).find_map(|record| {
        record.text("/status/containerStatuses/0/containerID").strip_prefix("containerd://").map(str::to_owned)
    })
}
