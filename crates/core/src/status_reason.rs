//! A reason with its message, as Kubernetes writes both in the status of an object.

use crate::limits;
use crate::text::{cut, name};

/// The reason and the message of a condition or of a waiting container.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StatusReason {
    /// The reason, a word for programs; may be empty.
    pub reason: String,
    /// The message, a text for people; may be empty.
    pub message: String,
}

impl StatusReason {
    /// Makes a reason with its message, both cut. Others write statuses, and the API bounds no text in them.
    pub fn new(reason: impl AsRef<str>, message: impl AsRef<str>) -> Self {
        StatusReason { reason: name(reason.as_ref()), message: message_of(message) }
    }
}

/// Returns a message as the cache keeps it, and as a decision compares it with its own.
pub fn message_of(message: impl AsRef<str>) -> String {
    cut(message.as_ref(), limits::MESSAGE).into_owned()
}
