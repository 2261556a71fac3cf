//! A reason with its message, as Kubernetes writes both in the status of an object.

/// The reason and the message of a condition or of a waiting container.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StatusReason {
    /// The reason, a word for programs; may be empty.
    pub reason: String,
    /// The message, a text for people; may be empty.
    pub message: String,
}

impl StatusReason {
    /// Makes a reason with its message.
    pub fn new(reason: impl Into<String>, message: impl Into<String>) -> Self {
        StatusReason { reason: reason.into(), message: message.into() }
    }
}
