//! The meaning of the words before the unfinished one.

use std::ffi::OsString;

use clap::{ArgMatches, Command, FromArgMatches as _};

use crate::cluster::Cluster;

/// The flag that only commands about a cluster have.
const CLUSTER_FLAG: &str = "kubeconfig";
/// The flag with the namespace of a claim.
const NAMESPACE_FLAG: &str = "namespace";

/// The cluster and the namespace that flags have chosen already.
#[derive(Clone, Debug, Default)]
pub(super) struct Line {
    /// The cluster; `None` for a command that needs none.
    pub(super) cluster: Option<Cluster>,
    /// The namespace of the claim.
    pub(super) namespace: Option<String>,
}

impl Line {
    /// Reads the words after the name of the program, as far as they can be understood.
    pub(super) fn read(command: &Command, words: &[OsString]) -> Self {
        let all = std::iter::once(command.get_name().into()).chain(words.iter().cloned());
        let read = command.clone().ignore_errors(true).try_get_matches_from(all);
        let read = read.as_ref().ok().and_then(ArgMatches::subcommand);
        let Some((name, flags)) = read else { return Line::default() };
        let has = |flag: &str| {
            command.find_subcommand(name).is_some_and(|found| found.get_arguments().any(|one| one.get_id() == flag))
        };
        Line {
            cluster: has(CLUSTER_FLAG).then(|| Cluster::from_arg_matches(flags).ok()).flatten(),
            namespace: has(NAMESPACE_FLAG).then(|| flags.get_one::<String>(NAMESPACE_FLAG).cloned()).flatten(),
        }
    }
}
