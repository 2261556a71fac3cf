//! The name of the program: its own, or that of a plugin of kubectl.

use std::ffi::OsString;
use std::path::Path;

/// The program's own name.
const OWN: &str = "flex-provisioner";
/// The file by which kubectl knows its plugin `flex`.
pub(super) const PLUGIN_FILE: &str = "kubectl-flex";
/// The command that runs the plugin.
const PLUGIN: &str = "kubectl flex";

/// Returns the name of the program, as users type it.
pub(super) fn name() -> &'static str {
    of(std::env::args_os().next())
}

/// Checks whether kubectl has started the program as its plugin.
pub(super) fn is_plugin() -> bool {
    name() == PLUGIN
}

fn of(started: Option<OsString>) -> &'static str {
    let file = started.as_deref().map(Path::new).and_then(Path::file_name).and_then(|name| name.to_str());
    // A package may add the platform, as in `kubectl-flex-linux-amd64` or `kubectl-flex.exe`.
    let rest = file.and_then(|file| file.strip_prefix(PLUGIN_FILE));
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
            (Some("kubectl-flex"), PLUGIN),
            (Some("/usr/local/bin/kubectl-flex"), PLUGIN),
            (Some("./kubectl-flex.exe"), PLUGIN),
            (Some("kubectl-flex-linux-amd64"), PLUGIN),
            (Some("kubectl-flexible"), OWN),
            (Some("/kubectl-flex/flex-provisioner"), OWN),
        ] {
            assert_eq!(of(started.map(OsString::from)), expected, "{started:?}");
        }
    }
}
