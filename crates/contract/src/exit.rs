//! The exit codes of images, each with its documentation. The numbers are those of `sysexits.h`.
//!
//! The table of `docs/contract.md` is printed from here.

/// The orchestrator's reaction to a failed run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Reaction {
    /// The orchestrator tries again, with backoff.
    Retry,
    /// The orchestrator tries again when the config or the class changes, else every 30 minutes.
    Never,
    /// The orchestrator asks the scheduler for another node if the class waits for its first consumer. Else like
    /// `Retry`.
    NoCapacity,
}

/// An exit code of the contract.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct ExitCode {
    /// The number.
    pub code: i32,
    /// The name in `sysexits.h`.
    pub name: &'static str,
    /// The reaction of the orchestrator to a run that ends with the code.
    pub reaction: Reaction,
    /// The words for the code in events; empty for a success.
    pub words: &'static str,
    /// The meaning, as lines of Markdown.
    pub doc: &'static [&'static str],
    /// The consequence, as Markdown.
    pub follows: &'static str,
}

/// Declares a constant for each code, with its comment as documentation, and the list of all.
macro_rules! exit_codes {
    ($($(#[doc = $doc:literal])+ $name:ident = $code:literal, $reaction:ident, $words:literal: $follows:literal;)*) => {
        $($(#[doc = $doc])+ pub const $name: i32 = $code;)*

        /// All codes of the contract; every other code means [`Reaction::Retry`].
        pub const ALL: &[ExitCode] = &[$(ExitCode {
            code: $code,
            name: stringify!($name),
            reaction: Reaction::$reaction,
            words: $words,
            doc: &[$($doc),+],
            follows: $follows,
        }),*];
    };
}

exit_codes! {
    /// Done.
    OK = 0, Retry, "": "";
    /// Never for this request: the image was called wrongly.
    USAGE = 64, Never, "never for this request":
        "The next attempt starts when the config or the class changes, else every 30 minutes.";
    /// Never for this request: its data is unacceptable.
    DATAERR = 65, Never, "never for this request": "As after 64.";
    /// Never with this config.
    CONFIG = 78, Never, "the config cannot work": "As after 64.";
    /// No capacity on this node or in this zone.
    UNAVAILABLE = 69, NoCapacity, "no room here":
        "Where the class waits for its first consumer, the orchestrator asks the scheduler for another node; else as after 75.";
    /// Try again.
    TEMPFAIL = 75, Retry, "try again later": "The next attempt starts after the config's [`backoff`](#attempts).";
    /// The image lacks a permission.
    NOPERM = 77, Retry, "permission denied": "As after 75.";
}

fn find(code: i32) -> Option<&'static ExitCode> {
    ALL.iter().find(|known| known.code == code)
}

/// Returns the orchestrator's reaction to a non-zero exit code.
pub fn reaction(code: i32) -> Reaction {
    find(code).map_or(Reaction::Retry, |known| known.reaction)
}

/// The number that a container's exit code has beside that of the signal that killed it.
pub const SIGNALS: i32 = 128;

/// Explains an exit code in a few words, for events. Codes above 128 mean that a signal killed the image.
pub fn explain(code: i32) -> String {
    if let Some(known) = find(code).filter(|known| !known.words.is_empty()) {
        return format!("exit code {code}: {}", known.words);
    }
    match code {
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
    fn each_exit_code_has_its_meaning() {
        for (code, expected) in [
            (1, Reaction::Retry),
            (64, Reaction::Never),
            (65, Reaction::Never),
            (69, Reaction::NoCapacity),
            (75, Reaction::Retry),
            (77, Reaction::Retry),
            (78, Reaction::Never),
            (137, Reaction::Retry),
        ] {
            assert_eq!(reaction(code), expected, "code {code}");
        }
        assert_eq!(explain(69), "exit code 69: no room here");
        assert_eq!(
            [explain(0), explain(1), explain(143)],
            ["exit code 0", "exit code 1", "exit code 143: killed by signal 15"]
        );
    }
}
