//! The members of a batch, as the annotation of its pod lists them, and the name of its Job.

use std::collections::BTreeMap;
use std::sync::Arc;

use flex_contract::names;
use flex_contract::operation::Operation;
use serde::{Deserialize, Serialize};

use super::job_name;
use crate::config::modify::Attributes;
use crate::object::{ObjectName, hash};

/// The object of a member.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum MemberObject {
    /// A claim that gets a volume.
    Claim(ObjectName),
    /// A volume whose storage is deleted.
    Volume(String),
}

/// A member of a batch.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Member {
    /// The volume id of the member.
    pub id: String,
    /// The number of the member's attempt.
    pub attempt: u32,
    /// The name of the claim or volume.
    #[serde(flatten)]
    pub object: MemberObject,
    /// The part of the name of a volume's own Job that tells apart runs of the same id.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub scope: String,
    /// The attributes that the volume gets, if the claim requests some.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub attributes: Option<Attributes>,
    /// The Job is certainly the first of the member's attempt.
    #[serde(rename = "first", default, skip_serializing_if = "std::ops::Not::not")]
    pub is_first: bool,
}

impl Member {
    /// Returns the name of the Job that the member sees in place of the batch: that of a run of its own.
    pub fn job_name(&self) -> String {
        let operation = match self.object {
            MemberObject::Claim(_) => Operation::Provision,
            MemberObject::Volume(_) => Operation::Delete,
        };
        job_name::name(operation, &self.id, self.attempt, &self.scope)
    }

    /// Returns the claim of the member.
    pub fn claim(&self) -> Option<&ObjectName> {
        match &self.object {
            MemberObject::Claim(name) => Some(name),
            MemberObject::Volume(_) => None,
        }
    }

    /// Returns the volume of the member.
    pub fn volume(&self) -> Option<&String> {
        match &self.object {
            MemberObject::Claim(_) => None,
            MemberObject::Volume(name) => Some(name),
        }
    }
}

/// Returns the name of the batch that this id has opened at this time.
pub fn name(operation: Operation, id: &str, ts: &str) -> String {
    format!("{operation}-batch-{}", hash(format!("{id} {ts}").as_bytes()))
}

/// Returns the operation of the batch that a text names; `None` if it names no batch. The Job of a single run has no
/// such name, because an id follows its operation.
pub fn operation(text: &str) -> Option<Operation> {
    let (operation, rest) = text.split_once("-batch-")?;
    let hex = rest.len() == 16 && rest.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'));
    [Operation::Provision, Operation::Delete].into_iter().find(|known| hex && known.as_str() == operation)
}

/// Reads the members of a batch from the annotations of its pod. Returns none for a single run, and if they cannot be
/// read.
pub(crate) fn members(annotations: Option<&BTreeMap<String, String>>) -> Arc<[Member]> {
    let text = annotations.and_then(|annotations| annotations.get(names::BATCH));
    text.and_then(|text| serde_json::from_str::<Vec<Member>>(text).ok()).unwrap_or_default().into()
}
