//! What Jobs and pods of runs have in common: their labels, their mark and their members.

use std::fmt;
use std::sync::Arc;

use flex_contract::names;
use flex_contract::operation::Operation;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time};

use super::member::{self, Member};

/// The operation of a run, as the label of its Job or pod has it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum LabelledOperation {
    /// The object has no such label.
    #[default]
    None,
    /// An operation of this version.
    Known(Operation),
    /// Any other text.
    Other(String),
}

impl LabelledOperation {
    /// Returns the text of the label; empty for none.
    pub fn as_str(&self) -> &str {
        match self {
            LabelledOperation::None => "",
            LabelledOperation::Known(operation) => operation.as_str(),
            LabelledOperation::Other(text) => text,
        }
    }

    /// Checks whether the run is for a whole class, and for no volume or snapshot. Runs of an admin's command count as
    /// such: they are for volumes that the orchestrator does not have yet, or not any more.
    pub fn is_of_no_volume(&self) -> bool {
        let of_command = |operation: &Operation| matches!(operation, Operation::MoveIn | Operation::MoveOut);
        matches!(self, LabelledOperation::Known(operation) if !operation.is_of_volume() || of_command(operation))
    }

    /// Checks whether the run makes or deletes a snapshot. An operation of another version has it in its name.
    pub fn is_of_snapshot(&self) -> bool {
        match self {
            LabelledOperation::None => false,
            LabelledOperation::Known(operation) => operation.is_of_snapshot(),
            LabelledOperation::Other(text) => text.contains("snapshot"),
        }
    }
}

impl From<&str> for LabelledOperation {
    fn from(text: &str) -> Self {
        match text.parse() {
            Ok(operation) => LabelledOperation::Known(operation),
            Err(_) if text.is_empty() => LabelledOperation::None,
            Err(_) => LabelledOperation::Other(text.to_owned()),
        }
    }
}

impl PartialEq<Operation> for LabelledOperation {
    fn eq(&self, other: &Operation) -> bool {
        matches!(self, LabelledOperation::Known(operation) if operation == other)
    }
}

impl fmt::Display for LabelledOperation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

/// The labels of a Job or pod of the orchestrator.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RunLabels {
    /// The operation of the run.
    pub operation: LabelledOperation,
    /// The volume id of the run.
    pub id: String,
    /// The number of the attempt.
    pub attempt: u32,
    /// The class, in the form of a label value.
    pub class: String,
}

/// Reads the labels of a Job or pod.
pub(super) fn run_labels(metadata: &ObjectMeta) -> RunLabels {
    let label = |key: &str| metadata.labels.as_ref().and_then(|labels| labels.get(key).cloned()).unwrap_or_default();
    RunLabels {
        operation: label(names::LABEL_OPERATION).as_str().into(),
        id: label(names::LABEL_VOLUME_ID),
        attempt: label(names::LABEL_ATTEMPT).parse().unwrap_or(0),
        class: label(names::LABEL_CLASS),
    }
}

/// Checks whether a Job, or that of a pod, is certainly the first of its attempt.
pub(super) fn is_first(metadata: &ObjectMeta) -> bool {
    let mark = metadata.annotations.as_ref().and_then(|annotations| annotations.get(names::FIRST_JOB));
    mark.is_some_and(|mark| mark == names::FIRST_JOB_YES)
}

/// Reads the members of a batch if the Job has the name of a batch. Pods of other runs may have any annotations from an
/// admin's template.
pub(super) fn members(job: &str, metadata: Option<&ObjectMeta>) -> Arc<[Member]> {
    let metadata = metadata.filter(|_| member::operation(job).is_some());
    member::members(metadata.and_then(|metadata| metadata.annotations.as_ref()))
}

/// Converts an API time to seconds since 1970; 0 without a time.
pub fn seconds(time: Option<&Time>) -> i64 {
    time.map_or(0, |time| time.0.as_second())
}
