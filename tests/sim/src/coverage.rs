//! The check whether the histories have led the orchestrator through each rule of its decisions.

use std::collections::BTreeMap;

use flex_core::tables::{self, Series};
use flex_provisioner::metrics::Metrics;

/// The number of decisions of each series.
#[derive(Clone, Debug, Default)]
pub struct Coverage(BTreeMap<Series, u64>);

impl Coverage {
    /// Reads the counts of all rules.
    pub fn of(metrics: &Metrics) -> Coverage {
        Coverage(tables::series().into_iter().map(|series| (series, metrics.decisions(series))).collect())
    }

    /// Adds the counts of another thread.
    pub fn add(&mut self, other: &Coverage) {
        other.0.iter().for_each(|(series, count)| *self.0.entry(*series).or_default() += count);
    }

    /// Returns what these counts say about the rules.
    pub fn report(&self) -> Report {
        let count = |series| self.0.get(series).copied().unwrap_or_default();
        let (mut unknown, mut reached) = (Vec::new(), Vec::new());
        let all = tables::series();
        for series in &all {
            match (count(series), UNREACHED.iter().find(|known| known.is(*series))) {
                (0, None) => unknown.push(*series),
                (1.., Some(Unreached { why: Why::Impossible(why), .. })) => reached.push((*series, *why)),
                _ => {}
            }
        }
        let decided = all.iter().filter(|series| count(*series) > 0).count();
        let all = all.len();
        Report { all, decided, unknown, reached }
    }
}

/// The rules that some histories have reached, and the others.
#[derive(Debug)]
pub struct Report {
    /// The number of rules.
    pub all: usize,
    /// The number of rules that were reached.
    pub decided: usize,
    /// The rules that no history has reached, although [`UNREACHED`] does not say why.
    pub unknown: Vec<Series>,
    /// The rules that a history has reached, although [`UNREACHED`] says that none can, with its reason.
    pub reached: Vec<(Series, &'static str)>,
}

/// The reason why histories do not reach a rule.
#[derive(Clone, Copy, Debug)]
pub enum Why {
    /// The simulated world cannot lead to the rule.
    Impossible(&'static str),
    /// The simulated world leads to the rule so rarely that a long run may not reach it.
    Rare(&'static str),
}

/// A rule that histories need not reach.
#[derive(Clone, Copy, Debug)]
pub struct Unreached {
    /// The objects of its table.
    pub object: &'static str,
    /// For what a run is; empty for a rule of the object itself.
    pub run: &'static str,
    /// The name of the rule; `*` for all rules of the table.
    pub rule: &'static str,
    /// The reason.
    pub why: Why,
}

impl Unreached {
    fn is(&self, Series { object, run, rule }: Series) -> bool {
        (self.object, self.run) == (object, run) && [rule, ANY].contains(&self.rule)
    }
}

/// The name that stands for all rules of a table.
const ANY: &str = "*";

const fn impossible(object: &'static str, rule: &'static str, why: &'static str) -> Unreached {
    Unreached { object, run: "", rule, why: Why::Impossible(why) }
}

const fn rare(object: &'static str, rule: &'static str, why: &'static str) -> Unreached {
    Unreached { object, run: "", rule, why: Why::Rare(why) }
}

const fn rare_run(object: &'static str, run: &'static str, rule: &'static str, why: &'static str) -> Unreached {
    Unreached { object, run, rule, why: Why::Rare(why) }
}

const NO_ENVIRONMENT: &str =
    "the simulated API server keeps no environment of a Job, from which the request of the delete run follows";

/// The rules that the simulated world cannot reach, or reaches too rarely. Tests of the tables cover them.
pub const UNREACHED: &[Unreached] = &[
    // Claims.
    rare("claim", "AdoptionNeedsRecipe", "the stored recipe must be lost before the volume of an attempt is adopted"),
    impossible("claim", "VolumeNameTaken", "nobody makes a volume by the name of another claim's volume"),
    rare("claim", "CleanupNeedsRecipe", "the stored recipe must be lost before the claim of an attempt is deleted"),
    impossible("claim", "LeftToPopulator", "no claim has a data source of another kind"),
    rare("volume", "RestoredTerminating", "somebody must delete a restored volume for which no admin has vouched"),
    rare("claim", "RecordLost", "nobody deletes the record of a claim that exists"),
    rare(
        "claim",
        "LeftStorageRetained",
        "an admin must delete a retained volume that was bound before its adoption, while its claim is gone",
    ),
    rare("claim", "ClaimRefused", "users create claims that their classes can serve"),
    rare("claim", "AttributesUnavailable", "the VolumeAttributesClasses exist in all histories"),
    impossible("claim", "SelectedNodeForbidden", "no class has allowedTopologies"),
    rare("claim", "HoldLost", "no user removes the annotation by which a claim is held"),
    rare(
        "claim",
        "NoRoomOnRemovedNode",
        "somebody else must remove the selected node between the end of a run and the next decision",
    ),
    rare("claim", "TooManyNodes", "a history has fewer nodes than a claim can record"),
    // Volumes.
    rare(
        "volume",
        "RestoredNotExpanded",
        "a user must request a larger size before an admin vouches for the restored volume",
    ),
    rare("volume", "ReserveRestored", "a volume must be restored without its claimRef while no claim names it"),
    rare(
        "volume",
        "ClaimRefRemovedRetained",
        "a pool request must be gone when its retained volume is given to a claim, which takes it back",
    ),
    impossible("volume", "ClaimRefRemovedHold", "nobody removes a claimRef"),
    rare(
        "volume",
        "DeletePolicyTooLate",
        "an admin must delete a retained volume, and then change its policy to Delete",
    ),
    rare(
        "volume",
        "QuarantinedHalfBound",
        "an admin must delete a refused volume while the PV controller is between the two halves of its binding",
    ),
    impossible("volume", "UnusableVolumeId", "nobody writes other ids on volumes"),
    rare("volume", "OriginUnknown", "a volume must appear after the record of its claim is gone"),
    rare("volume", "ProvenanceUnreadable", "nobody changes the record of an adopted volume"),
    rare("volume", "StorageOnOtherNode", "no node of a history gets the labels of another"),
    rare("volume", "RetainedCleaned", "an admin must change the policy while storage on other nodes is deleted"),
    impossible("volume", "ExpandFileSystemPending", "no volume has a file system that the kubelet grows"),
    rare("volume", "ExpandNotSupported", "users request larger sizes only of classes that can expand"),
    impossible("volume", "ExpandAboveMaxSize", "no config has max-size"),
    impossible("volume", "ExpandQuotaReached", "no config has max-bytes"),
    rare("volume", "ModifyNoteOutdated", "a user must take back the request for other attributes at the right moment"),
    rare("volume", "ModifyRequestNotAvailable", "the VolumeAttributesClasses exist in all histories"),
    rare("volume", "ModifyNotSupported", "users request other attributes only of classes that can modify"),
    // VolumeSnapshots.
    rare("snapshot", "KeptByOtherFinalizers", "another finalizer must outlive that of the orchestrator"),
    impossible("snapshot", "NoSource", "each VolumeSnapshot names a claim or a content"),
    impossible("snapshot", "CsiVolume", "no volume is a CSI volume"),
    impossible("snapshot", "NoDefaultClass", "one VolumeSnapshotClass is always the default"),
    rare("snapshot", "ContentOfOther", "no other snapshot has a content of that name"),
    // VolumeSnapshotContents.
    impossible("content", "NotOurs", "all contents belong to the driver of the orchestrator"),
    rare("content", "KeptByOtherFinalizers", "another finalizer must outlive that of the orchestrator"),
    rare("content", "RestoreInProgress", "a user must delete the VolumeSnapshot while a claim is restored from it"),
    rare("content", "Restored", "a ready content must be lost and restored from a backup"),
    rare("content", "DeletedButRetained", "an admin must delete the content of a retained snapshot"),
    rare("content", "Unbound", "a content must be restored without the UID of its VolumeSnapshot, and not be ready"),
    // Late runs.
    rare(
        "late-run",
        "RunRestored",
        "the clock of a replica must be ten minutes behind that of the API server when it asks for a late run's Job",
    ),
    rare("late-run", "RecipeUnknown", "the stored recipe must be lost before the late run ends"),
    rare("late-run", "MayBeKept", "a Job must be created after a content with the policy Retain is gone"),
    rare("late-run", "RunInProgress", "a Job must be created after its content is gone"),
    rare("late-run", "DeleteRunDue", "a Job must be created after its content is gone"),
    impossible("late-run", "StorageDeleted", NO_ENVIRONMENT),
    impossible("late-run", "DeleteRunStuck", NO_ENVIRONMENT),
    impossible("late-run", "DeleteRunInProgress", NO_ENVIRONMENT),
    impossible("late-run", "DeleteRunNotDue", NO_ENVIRONMENT),
    // Runs.
    rare_run("claim", "volume", "RunRefused", "the API server must refuse a Job, and not answer that it is too busy"),
    rare_run("claim", "leftover", "RunNotWanted", "an admin must abandon a claim while its delete run is in progress"),
    rare_run(
        "content",
        "stored-snapshot",
        "RunNotWanted",
        "an admin must abandon or retain a snapshot while its delete run is in progress",
    ),
    rare_run("volume", "attributes", "RunNotWanted", "a user must delete the claim while a modify run is in progress"),
    rare_run(
        "volume",
        "size",
        "RunEnding",
        "the Job of an expand run must fail or be deleted long before its pod ends",
    ),
    rare_run(
        "volume",
        "attributes",
        "RunEnding",
        "the Job of a modify run must fail or be deleted long before its pod ends",
    ),
    rare_run(
        "volume",
        "storage",
        "RunStuck",
        "the image of the class must be missing, and the config must stay as it is",
    ),
    rare_run("volume", "size", "RunStopping", "a stuck expand run must be removed while its pod stays"),
    rare_run("volume", "size", "RunOutdated", "a user must change the request while the image of the class is missing"),
    rare_run("volume", "size", "RunStuck", "the image of the class must be missing when a user requests a larger size"),
    rare_run("volume", "size", "OtherRunEnding", "a pod must outlive its Job while a user requests a larger size"),
    rare_run("volume", "attributes", "RunStopping", "a stuck modify run must be removed while its pod stays"),
    rare_run(
        "volume",
        "attributes",
        "RunOutdated",
        "a user must change the request while the image of the class is missing",
    ),
    rare_run(
        "volume",
        "attributes",
        "RunStuck",
        "the image of the class must be missing when a user requests other attributes",
    ),
    rare_run(
        "volume",
        "attributes",
        "OtherRunEnding",
        "a pod must outlive its Job while a user requests other attributes",
    ),
    rare_run("volume", "size", "RunUnreachable", "a node must be lost while an expand run is on it"),
    rare_run("volume", "attributes", "RunUnreachable", "a node must be lost while a modify run is on it"),
    rare_run("content", "snapshot", "RunUnreachable", "a node must be lost while a snapshot run is on it"),
    rare_run("content", "snapshot", "RunStopping", "somebody else must delete the Job of a snapshot run"),
    rare_run(
        "content",
        "stored-snapshot",
        "RunUnreachable",
        "a node must be lost while a delete-snapshot run is on it",
    ),
    rare_run(
        "content",
        "stored-snapshot",
        "NodeGoneRunElsewhere",
        "the node of a snapshot must be lost in a history with this `node-gone`",
    ),
    rare_run(
        "content",
        "stored-snapshot",
        "NodeGoneForget",
        "the node of a snapshot must be lost in a history with this `node-gone`",
    ),
    rare_run(
        "content",
        "snapshot",
        "OtherRunEnding",
        "a pod of a failed snapshot run must outlive the delay of the next",
    ),
    // Pools.
    rare("pool", "RequestBlocksClaim", "a claim must wait for quota while a request of the pool has not begun"),
    // Scripts.
    impossible("script", ANY, "no config of a history has a script"),
    // Capacity.
    impossible("capacity", ANY, "the simulated world has no scheduler that checks capacity"),
];

#[cfg(test)]
mod tests {
    use flex_core::run::{self, rule::Target};
    use flex_core::volume::rule::Rule;

    use super::*;

    #[test]
    fn each_rule_that_need_not_be_reached_exists_and_is_listed_once() {
        for series in tables::series() {
            let times = UNREACHED.iter().filter(|listed| listed.is(series)).count();
            assert!(times <= 1, "{series:?} is listed {times} times");
        }
        let is_unknown = |listed: &&Unreached| !tables::series().into_iter().any(|series| listed.is(series));
        let unknown: Vec<_> = UNREACHED.iter().filter(is_unknown).collect();
        assert!(unknown.is_empty(), "there are no such rules: {unknown:?}");
    }

    #[test]
    fn a_report_names_what_was_missed_and_what_was_reached_against_expectation() {
        let metrics = Metrics::default();
        metrics.decided(Rule::Run(Target::Storage, run::rule::Rule::RunDue));
        metrics.decided(Rule::ClaimRefRemovedHold);
        let mut coverage = Coverage::of(&Metrics::default());
        coverage.add(&Coverage::of(&metrics));
        let report = coverage.report();
        let volume = |run, rule| Series { object: "volume", run, rule };
        assert_eq!((report.decided, report.all), (2, tables::series().len()));
        assert!(!report.unknown.contains(&volume("storage", "RunDue")));
        assert!(report.unknown.contains(&volume("size", "RunDue")), "it is another series");
        assert!(report.unknown.contains(&volume("", "StorageDeleted")));
        assert!(!report.unknown.contains(&volume("size", "RunStuck")), "it is too rare to be missed");
        let reached: Vec<_> = report.reached.iter().map(|(series, _)| *series).collect();
        assert_eq!(reached, [volume("", "ClaimRefRemovedHold")]);
    }
}
