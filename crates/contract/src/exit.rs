//! What an image says by its exit code. The numbers are those of `sysexits.h`.
//!
//! | code | name | meaning |
//! |---|---|---|
//! | 0 | `OK` | done |
//! | 64, 65 | `USAGE`, `DATAERR` | never for this request: the same call can only fail again |
//! | 78 | `CONFIG` | never with this config: tried again as soon as the config or the class changes |
//! | 69 | `UNAVAILABLE` | no room on this node or in this zone: another one may do |
//! | 75 | `TEMPFAIL` | try again later |
//! | 77 | `NOPERM` | the image lacks a permission; tried again later |
//! | any other | – | try again later |

/// Done.
pub const OK: i32 = 0;
/// Never for this request: called wrongly.
pub const USAGE: i32 = 64;
/// Never for this request: its data is unacceptable.
pub const DATAERR: i32 = 65;
/// No room here.
pub const UNAVAILABLE: i32 = 69;
/// Try again later.
pub const TEMPFAIL: i32 = 75;
/// A permission is missing.
pub const NOPERM: i32 = 77;
/// The config cannot work as it stands.
pub const CONFIG: i32 = 78;

/// What the orchestrator does about a failed run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Failure {
    /// Try again, with backoff.
    Retry,
    /// Try again only when the config or the class has changed, or at the slow pace.
    Never,
    /// Ask the scheduler for another node, where there is one to ask for; else like `Retry`.
    NoRoom,
}

/// The meaning of a non-zero exit code.
pub fn failure(code: i32) -> Failure {
    match code {
        USAGE | DATAERR | CONFIG => Failure::Never,
        UNAVAILABLE => Failure::NoRoom,
        _ => Failure::Retry,
    }
}

/// A short explanation of an exit code, for events. Codes above 128 are deaths by signal.
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
