//! Exit codes of images. The numbers are those of `sysexits.h`.
//!
//! | code | name | meaning |
//! |---|---|---|
//! | 0 | `OK` | done |
//! | 64, 65 | `USAGE`, `DATAERR` | never for this request: the same call would fail again |
//! | 78 | `CONFIG` | never with this config: the orchestrator tries again when the config or the class changes |
//! | 69 | `UNAVAILABLE` | no room on this node or in this zone; another node may have room |
//! | 75 | `TEMPFAIL` | try again later |
//! | 77 | `NOPERM` | the image lacks a permission: the orchestrator tries again later |
//! | any other | – | try again later |

/// The operation is done.
pub const OK: i32 = 0;
/// Never for this request: the image was called in a wrong way.
pub const USAGE: i32 = 64;
/// Never for this request: the image cannot accept its data.
pub const DATAERR: i32 = 65;
/// This node or zone has no room.
pub const UNAVAILABLE: i32 = 69;
/// The failure is temporary: try again later.
pub const TEMPFAIL: i32 = 75;
/// The image lacks a permission.
pub const NOPERM: i32 = 77;
/// The image can never succeed with this config.
pub const CONFIG: i32 = 78;

/// The orchestrator's reaction to a failed run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Failure {
    /// The orchestrator tries again, with backoff.
    Retry,
    /// The orchestrator tries again when the config or the class changes, else every 30 minutes.
    Never,
    /// The orchestrator asks the scheduler for another node if the class waits for its first consumer. Else like
    /// `Retry`.
    NoRoom,
}

/// Returns the orchestrator's reaction to a non-zero exit code.
pub fn failure(code: i32) -> Failure {
    match code {
        USAGE | DATAERR | CONFIG => Failure::Never,
        UNAVAILABLE => Failure::NoRoom,
        _ => Failure::Retry,
    }
}

/// Explains an exit code in a few words, for events. Codes above 128 mean that a signal killed the image.
pub fn explain(code: i32) -> String {
    match code {
        USAGE | DATAERR => format!("exit code {code}: never for this request"),
        CONFIG => format!("exit code {code}: the config cannot work"),
        UNAVAILABLE => format!("exit code {code}: no room here"),
        TEMPFAIL => format!("exit code {code}: try again later"),
        NOPERM => format!("exit code {code}: permission denied"),
        126 => "exit code 126: the command is not executable".into(),
        127 => "exit code 127: the command was not found in the image".into(),
        137 => "exit code 137: killed (out of memory, or by the deadline)".into(),
        129..=159 => format!("exit code {code}: killed by signal {}", code - 128),
        _ => format!("exit code {code}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn table() {
        for (code, expected) in [
            (1, Failure::Retry),
            (64, Failure::Never),
            (65, Failure::Never),
            (69, Failure::NoRoom),
            (75, Failure::Retry),
            (77, Failure::Retry),
            (78, Failure::Never),
            (137, Failure::Retry),
        ] {
            assert_eq!(failure(code), expected, "code {code}");
        }
    }
}
