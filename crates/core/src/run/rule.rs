//! The rules of a run's life, and the targets for which a run is.

use strum::{EnumMessage, IntoStaticStr, VariantArray};

use crate::rules;

/// For what a run is. The log and the metric of decisions say it as `run`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, IntoStaticStr, VariantArray)]
#[strum(serialize_all = "kebab-case")]
pub enum Target {
    /// A volume that is to be made for a claim.
    Volume,
    /// What attempts of a claim may have left, without a volume.
    Leftover,
    /// The storage of a volume, or what attempts have left on other nodes.
    Storage,
    /// The size of a volume.
    Size,
    /// The attributes of a volume.
    Attributes,
    /// A snapshot that is to be stored.
    Snapshot,
    /// A stored snapshot that is to be deleted.
    StoredSnapshot,
}

impl Target {
    /// Returns the name.
    pub fn name(self) -> &'static str {
        self.into()
    }

    /// Returns the rules that can apply to runs for this target, in their order.
    pub fn rules(self) -> impl Iterator<Item = Rule> {
        Rule::VARIANTS.iter().copied().filter(move |rule| self.has(*rule))
    }

    /// Checks whether a rule can apply to runs for this target. Some owners have rules of their own for a success.
    fn has(self, rule: Rule) -> bool {
        use Target::{Attributes, Leftover, Size, Snapshot, Storage, StoredSnapshot, Volume};
        match rule {
            Rule::RunNotWanted
            | Rule::RunStuck
            | Rule::RunUnreachable
            | Rule::RunInProgress
            | Rule::RunEnding
            | Rule::RunFailed
            | Rule::RunNotDue
            | Rule::RunDue => true,
            Rule::AttemptDue => matches!(self, Volume | Size | Attributes | Snapshot),
            Rule::RunStarting => matches!(self, Size | Attributes),
            Rule::RunStopping => !matches!(self, Volume | StoredSnapshot),
            Rule::RunOutdated => !matches!(self, Snapshot | StoredSnapshot),
            Rule::RunSucceeded => !matches!(self, Volume | Storage),
            Rule::JobNotNeeded | Rule::OtherRunEnding => matches!(self, Size | Attributes | Snapshot),
            Rule::NoFreeSlot | Rule::RunRefused => matches!(self, Volume | Snapshot),
            Rule::ConfirmNodeGone | Rule::NodeGoneRunElsewhere | Rule::NodeGoneForget | Rule::NodeGoneHold => {
                matches!(self, Leftover | Storage | StoredSnapshot)
            }
        }
    }
}

/// The rules of a run's life, in their order: the first that holds applies.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, EnumMessage, IntoStaticStr, VariantArray)]
pub enum Rule {
    /// A run is not wanted, and its Job is left. Deletes the Job, which stops its pod.
    RunNotWanted,
    /// A run was started a moment ago. Waits until its Job is visible.
    RunStarting,
    /// The Job of the run is terminating. Waits for its end.
    RunStopping,
    /// The run is stuck, and the config, the request or the node have changed since. Gives it up: its Job is deleted. So is that of
    /// a run which has undone what another record of its claim names.
    RunOutdated,
    /// The run is stuck. Emits an event.
    RunStuck,
    /// The run is in progress, and the node of a pod does not answer. Emits an event, and waits for the node.
    RunUnreachable,
    /// The run is in progress. Waits for its end.
    RunInProgress,
    /// The run has succeeded, and this is not noted. The owner takes what the run has done.
    RunSucceeded,
    /// The run has ended, and nobody needs it. Deletes its Job.
    JobNotNeeded,
    /// The run has failed or is not wanted, and a pod of it may still run. Waits for its end.
    RunEnding,
    /// The run has failed, and this is not noted. Records the failure, and emits an event.
    RunFailed,
    /// The last run failed, and the next is not due. Waits.
    RunNotDue,
    /// A run is due, and a pod of another run may still work there. Waits for its end.
    OtherRunEnding,
    /// A run is due, and there is no free slot. Waits for a slot, with an event after a while.
    NoFreeSlot,
    /// A run is due, and its owner does not say so yet. Notes that it begins, so that no crash can hide it.
    AttemptDue,
    /// A run is due, and the cache does not have its node. Asks the API.
    ConfirmNodeGone,
    /// The node of the run is gone, and `node-gone` says to delete from another node. Starts the run on any node.
    NodeGoneRunElsewhere,
    /// The node of the run is gone, and `node-gone` says to forget what is on it. Goes on as if it were deleted.
    NodeGoneForget,
    /// The node of the run is gone, and `node-gone` says to wait. Emits an event.
    NodeGoneHold,
    /// A run is due. Starts it.
    RunDue,
    /// The API server has refused the Job of the run. Records that as a failure, and emits an event.
    RunRefused,
}

rules::table!(Rule, (), "run");

/// Implements [`rules::Rule`] for an enum whose variants have no fields, except for `Run(Target, Rule)`: the rules of runs for
/// these targets. The enum derives `EnumIter`, `EnumMessage` and `IntoStaticStr` of strum, and disables that variant for strum.
macro_rules! table_with_runs {
    ($rule:ty, $step:ty, $object:literal, [$($target:ident),+]) => {
        impl $crate::rules::Rule for $rule {
            type Step = $step;
            const OBJECT: &'static str = $object;

            fn all() -> Vec<Self> {
                let runs = [$($crate::run::rule::Target::$target),+].into_iter();
                let runs = runs.flat_map(|target| target.rules().map(move |rule| Self::Run(target, rule)));
                <Self as strum::IntoEnumIterator>::iter().chain(runs).collect()
            }

            fn name(self) -> &'static str {
                match self {
                    Self::Run(_, rule) => $crate::rules::Rule::name(rule),
                    own => own.into(),
                }
            }

            fn documentation(self) -> &'static str {
                match self {
                    Self::Run(_, rule) => $crate::rules::Rule::documentation(rule),
                    own => strum::EnumMessage::get_documentation(&own).unwrap_or_default().trim(),
                }
            }

            fn target(self) -> Option<&'static str> {
                match self {
                    Self::Run(target, _) => Some(target.name()),
                    _ => None,
                }
            }
        }
    };
}

pub(crate) use table_with_runs;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_rules_of_a_target_have_the_order_of_the_table_and_each_rule_has_a_target() {
        for target in Target::VARIANTS {
            assert!(target.rules().is_sorted_by(|a, b| a < b), "{target:?}");
        }
        for rule in Rule::VARIANTS {
            assert!(
                Target::VARIANTS.iter().any(|target| target.rules().any(|of_target| of_target == *rule)),
                "{rule:?}"
            );
        }
    }
}
