//! The name of the program: its own, or that of a plugin of kubectl.

use std::ffi::OsString;
use std::path::Path;
use std::sync::LazyLock;

use flex_core::text::line;

/// The program's own name.
const OWN: &str = "flex-provisioner";
/// The file by which kubectl knows its plugin `flex`.
pub(super) const PLUGIN_FILE: &str = "kubectl-flex";
/// The command that runs the plugin.
const PLUGIN: &str = "kubectl flex";
/// The commands that texts of the orchestrator name.
const COMMANDS: [&str; 5] = ["vouch", "logs", "validate", "explain", "doctor"];

/// Returns the name of the program, as users type it.
pub(super) fn name() -> &'static str {
    static NAME: LazyLock<&str> = LazyLock::new(|| of(std::env::args_os().next()));
    *NAME
}

/// Writes the commands in a text of the orchestrator, such as `flex-provisioner vouch`, as the user types them.
pub(super) fn as_called(text: &str) -> String {
    called(text, name())
}

/// Makes one line of a text of the orchestrator or of others, with the commands in it as the user types them.
pub(super) fn told(text: &str) -> String {
    as_called(&line(text, usize::MAX))
}

fn called(text: &str, name: &str) -> String {
    let own = format!("{OWN} ");
    let mut parts = text.split(own.as_str());
    let first = parts.next().unwrap_or_default().to_owned();
    parts.fold(first, |before, part| {
        // A namespace may have the name of the program.
        let begins = before.is_empty() || before.ends_with('`') || before.ends_with(": ");
        let word = part.split(|c: char| !c.is_ascii_alphanumeric() && c != '-').next().unwrap_or_default();
        let typed = if begins && COMMANDS.contains(&word) { name } else { OWN };
        format!("{before}{typed} {part}")
    })
}

/// Checks whether the program is the plugin of kubectl.
pub(super) fn is_plugin() -> bool {
    name() != OWN
}

fn of(started: Option<OsString>) -> &'static str {
    let file = started.as_deref().map(Path::new).and_then(Path::file_name).and_then(|name| name.to_str());
    // A package may add the platform, as in `kubectl-flex-linux-amd64` or `kubectl-flex.exe`.
    let rest = file.and_then(|file| file.strip_prefix(PLUGIN_FILE).or_else(|| file.strip_prefix("kubectl_flex")));
    // A shell gives the word that was typed, and kubectl the path of the file.
    if started.as_deref().is_some_and(|started| started == PLUGIN_FILE) {
        return PLUGIN_FILE;
    }
    if rest.is_some_and(|rest| rest.is_empty() || rest.starts_with(['.', '-', '_'])) { PLUGIN } else { OWN }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_file_name_says_whether_the_program_is_a_plugin() {
        for (started, expected) in [
            (None, OWN),
            (Some(""), OWN),
            (Some("flex-provisioner"), OWN),
            (Some("/flex-provisioner"), OWN),
            (Some("kubectl-flex"), PLUGIN_FILE),
            (Some("/usr/local/bin/kubectl-flex"), PLUGIN),
            (Some("./kubectl-flex.exe"), PLUGIN),
            (Some("kubectl-flex-linux-amd64"), PLUGIN),
            (Some("/usr/local/bin/kubectl_flex"), PLUGIN),
            (Some("kubectl-flexible"), OWN),
            (Some("/kubectl-flex/flex-provisioner"), OWN),
        ] {
            assert_eq!(of(started.map(OsString::from)), expected, "{started:?}");
        }
    }

    #[test]
    fn a_text_of_the_orchestrator_names_the_command_as_it_was_typed() {
        let text = "`flex-provisioner vouch pvc-u` in namespace flex-provisioner logs it; now: flex-provisioner logs a, else `flex-provisioner doctor`";
        assert_eq!(called(text, OWN), text);
        let typed = "`kubectl flex vouch pvc-u` in namespace flex-provisioner logs it; now: kubectl flex logs a, else `kubectl flex doctor`";
        assert_eq!(called(text, PLUGIN), typed);
        for kept in ["kubectl -n flex-provisioner logs deploy/flex-provisioner", "flex-provisioner doctors it"] {
            assert_eq!(called(kept, PLUGIN), kept);
        }
    }
}
