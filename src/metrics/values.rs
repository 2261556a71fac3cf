//! The values that the orchestrator measures.

use std::fmt;

use prometheus_client::encoding::{EncodeLabelValue, LabelValueEncoder};

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

/// The end of a request to the API server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum RequestCode {
    /// The API server answered with this status of HTTP.
    Status(u16),
    /// There was no answer: the connection failed, or the orchestrator did not wait any longer.
    Error,
}

impl EncodeLabelValue for RequestCode {
    fn encode(&self, encoder: &mut LabelValueEncoder<'_>) -> Result<(), fmt::Error> {
        match self {
            RequestCode::Status(status) => u64::from(*status).encode(encoder),
            RequestCode::Error => "error".encode(encoder),
        }
    }
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
