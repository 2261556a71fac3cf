//! The contexts of a kubeconfig, as candidates.

use std::cell::RefCell;
use std::ffi::OsStr;
use std::path::PathBuf;

use clap_complete::CompletionCandidate;
use kube::config::Kubeconfig;

thread_local! {
    /// The kubeconfig that a flag has named before. The library that asks for candidates does not pass the flags on.
    static FILE: RefCell<Option<PathBuf>> = RefCell::default();
}

/// Takes the kubeconfig that a flag has named.
pub(super) fn complete_from(file: Option<PathBuf>) {
    FILE.set(file);
}

/// Returns the contexts of the kubeconfig.
pub(crate) fn contexts(begun: &OsStr) -> Vec<CompletionCandidate> {
    let read = match FILE.take() {
        Some(file) => Kubeconfig::read_from(file),
        None => Kubeconfig::read(),
    };
    let contexts = read.map(|read| read.contexts).unwrap_or_default().into_iter().map(|context| context.name);
    matching(begun, contexts)
}

/// Returns the names that begin with the unfinished word, in the order of the alphabet.
pub(super) fn matching(begun: &OsStr, names: impl IntoIterator<Item = String>) -> Vec<CompletionCandidate> {
    let begun = begun.to_string_lossy();
    let mut found: Vec<_> = names.into_iter().filter(|name| name.starts_with(&*begun)).collect();
    found.sort();
    found.into_iter().map(CompletionCandidate::new).collect()
}
