//! The files that subcommands read.

use std::path::{Path, PathBuf};

use anyhow::Context;

/// Reads a file, or standard input for `-`.
pub(super) fn read(path: &Path) -> anyhow::Result<String> {
    if path == Path::new("-") {
        return std::io::read_to_string(std::io::stdin()).context("standard input cannot be read");
    }
    std::fs::read_to_string(path).with_context(|| format!("{} cannot be read", path.display()))
}

/// Names a file for messages.
pub(super) fn shown(path: &Path) -> String {
    if path == Path::new("-") { "<stdin>".into() } else { path.display().to_string() }
}

/// Returns the files, and for each directory its YAML files.
pub(super) fn expand(paths: &[PathBuf]) -> anyhow::Result<Vec<PathBuf>> {
    let mut files = Vec::new();
    for path in paths {
        if !path.is_dir() {
            files.push(path.clone());
            continue;
        }
        let entries = std::fs::read_dir(path).with_context(|| format!("{} cannot be read", path.display()))?;
        let mut found: Vec<_> = entries.filter_map(|entry| Some(entry.ok()?.path())).collect();
        found.retain(|file| file.extension().is_some_and(|ending| ending == "yaml" || ending == "yml"));
        found.sort();
        files.extend(found);
    }
    Ok(files)
}
