//! A request to the API, and the form of its errors.

use serde_json::{Value, json};

/// A request.
#[derive(Clone, Copy, Debug)]
pub struct Asked<'a> {
    /// The method.
    pub method: &'a str,
    /// The path.
    pub path: &'a str,
    /// The body.
    pub body: &'a [u8],
}

/// Returns the answer to a request that failed.
pub(super) fn status(code: u16, reason: &str, message: &str) -> (u16, Value) {
    let status = json!({
        "kind": "Status", "apiVersion": "v1", "status": "Failure", "code": code, "reason": reason, "message": message,
    });
    (code, status)
}
