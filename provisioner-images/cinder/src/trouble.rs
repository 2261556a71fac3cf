//! The meaning of Cinder's answer for the run. The functions are pure.
//!
//! | answer | kind | exit code |
//! |---|---|---|
//! | none, 408, 429, 5xx | temporary: tried again for a while, then | 75 |
//! | 409 | temporary | 75 |
//! | 413 | over the quota | 75 |
//! | 401, 403, 204 without a token | denied | 77 |
//! | 3xx, 405, and a 404 without an object: the page of another server | config | 78 |
//! | 404 | missing | as the step says; else 75 |
//! | 400 | refused | as the step says; else 65 |

use ::http::StatusCode;
use flex_image_kit::Failure;
use serde_json::Value;

/// The kind of a problem.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// The problem may be temporary.
    Passing,
    /// The quota of the project is too small.
    Quota,
    /// The user of the image lacks a permission.
    Denied,
    /// The object does not exist.
    Missing,
    /// The request, or the state of its object, does not allow the operation.
    Refused,
    /// The server is no Cinder.
    Config,
}

/// A request that failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Trouble {
    /// The kind of the problem.
    pub kind: Kind,
    /// The request, and Cinder's message about it.
    pub message: String,
}

impl flex_image_kit::patience::Trouble for Trouble {
    fn passes(&self) -> bool {
        self.kind == Kind::Passing
    }
}

impl Trouble {
    /// Makes a problem.
    pub fn new(kind: Kind, message: impl Into<String>) -> Self {
        Self { kind, message: message.into() }
    }

    /// Makes a problem from an answer that is no success.
    pub fn of(what: &str, status: StatusCode, body: &Value) -> Self {
        let said = said(body);
        let text = match said {
            Some(said) => format!("Cinder {what}: {said}"),
            None => format!("Cinder {what}: it answers {status}"),
        };
        match status.as_u16() {
            413 => Self::new(Kind::Quota, text),
            401 | 403 => Self::new(Kind::Denied, format!("{text} (the user lacks a right, see Cinder's policy)")),
            404 if said.is_some() => Self::new(Kind::Missing, text),
            204 => Self::new(
                Kind::Denied,
                "Cinder answers without content: it is set up without Keystone (auth_strategy = noauth), or asks for a token \
                 that it did not get; use cinder-endpoint for the one, auth-url for the other",
            ),
            300..=399 | 404 | 405 => Self::new(
                Kind::Config,
                format!(
                    "{text}; what answers there is no Cinder of version 3, or does not know the project: check the endpoint"
                ),
            ),
            408 | 409 | 429 | 500..=599 => Self::new(Kind::Passing, text),
            _ => Self::new(Kind::Refused, text),
        }
    }

    /// Returns the exit code and last words of a run that cannot solve the problem.
    pub fn failure(self) -> Failure {
        match self.kind {
            Kind::Passing | Kind::Missing => Failure::retry(self.message),
            Kind::Quota => Failure::retry(format!(
                "{}; it is tried again: delete what is not needed, or have the quota of the project raised",
                self.message
            )),
            Kind::Denied => Failure::permission(self.message),
            Kind::Refused => Failure::never(self.message),
            Kind::Config => Failure::config(self.message),
        }
    }
}

/// Reads the message of `{"KIND": {"code": N, "message": "…"}}`, for any kind.
fn said(body: &Value) -> Option<&str> {
    body.as_object()?.values().find_map(|value| value["message"].as_str())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn every_answer_has_its_exit_code() {
        let error = |kind: &str, message: &str| json!({ kind: { "code": 0, "message": message } });
        for (status, body, code, says) in [
            (413, error("overLimit", "VolumeLimitExceeded: Maximum number of volumes allowed (10)"), 75, "quota"),
            (404, error("itemNotFound", "Volume type with name x could not be found."), 75, "type with name x"),
            (404, Value::Null, 78, "check the endpoint"),
            (300, json!({ "choices": [] }), 78, "no Cinder of version 3"),
            (301, Value::Null, 78, "check the endpoint"),
            (400, error("badRequest", "Invalid volume: status"), 65, "Invalid volume"),
            (403, error("forbidden", "Policy doesn't allow it"), 77, "Policy"),
            (401, error("error", "The request you have made requires authentication."), 77, "authentication"),
            (204, Value::Null, 77, "noauth"),
            (409, error("conflictingRequest", "busy"), 75, "busy"),
            (500, error("computeFault", "The server has erred"), 75, "erred"),
            (503, Value::Null, 75, "503"),
            (429, Value::Null, 75, "429"),
        ] {
            let failure = Trouble::of("does not do it", StatusCode::from_u16(status).unwrap(), &body).failure();
            assert_eq!(failure.code, code, "{status}: {failure}");
            assert!(failure.message.contains(says), "{status}: {failure}");
        }
    }
}
