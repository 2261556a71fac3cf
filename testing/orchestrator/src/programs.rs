//! The orchestrator and the tool for people: as they are shipped, or as they were built with the tests.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::LazyLock;

/// Returns the tool: the program that `FLEX_PROVISIONER` names, as it is shipped, or the one beside the orchestrator that
/// was built with the tests.
pub fn tool() -> PathBuf {
    static TOOL: LazyLock<PathBuf> = LazyLock::new(|| {
        let beside = || built(orchestrator().parent().expect("a folder has it"), "flex-tool", "flex-provisioner");
        shipped().unwrap_or_else(beside)
    });
    TOOL.clone()
}

/// Returns the orchestrator: the one beside the tool that `FLEX_PROVISIONER` names, or the one that was built with the
/// tests.
pub fn orchestrator() -> PathBuf {
    match shipped() {
        Some(tool) => tool.with_file_name("flex-orchestrator"),
        None => {
            let program = std::env::var_os("CARGO_BIN_EXE_flex-orchestrator");
            program.expect("cargo, or FLEX_PROVISIONER, names the program").into()
        }
    }
}

fn shipped() -> Option<PathBuf> {
    std::env::var_os("FLEX_PROVISIONER").map(PathBuf::from)
}

/// Returns a program of the workspace from the folder of its programs, where a build of the whole workspace leaves it. A
/// build of one test alone does not, and leaves an old one as it is.
pub fn built(folder: &Path, package: &str, program: &str) -> PathBuf {
    let path = folder.join(program);
    if !path.exists() || is_stale(&path) {
        let mut build = Command::new(env!("CARGO"));
        build.args(["build", "--package", package, "--bin", program]);
        if folder.file_name().is_some_and(|name| name != "debug") {
            build.arg("--profile").arg(folder.file_name().expect("the folder has a name"));
        }
        assert!(build.status().expect("cargo starts").success(), "{program} cannot be built");
    }
    path
}

/// Checks whether a source of a program is newer than the program. Cargo lists the sources in a file beside it.
fn is_stale(program: &Path) -> bool {
    let modified = |file: &Path| fs::metadata(file).and_then(|file| file.modified()).ok();
    let sources = fs::read_to_string(program.with_extension("d")).unwrap_or_default();
    sources.split_whitespace().skip(1).any(|source| modified(Path::new(source)) > modified(program))
}
