//! The kinds of findings, each with its documentation and severity.
//!
//! The tables of `docs/troubleshooting.md` are printed from here.

use std::fmt;

/// The documentation and properties of a kind.
#[derive(Clone, Copy, Debug)]
pub struct FindingSpec {
    /// The name of the kind in metrics and in the output of `doctor`.
    pub name: &'static str,
    /// Its severity.
    pub severity: Severity,
    /// When it is found: lines of Markdown.
    pub doc: &'static [&'static str],
    /// Its meaning, in the words of doctor and event.
    pub meaning: &'static str,
    /// The remedy for an admin, as Markdown. Each finding also has a remedy with the names of its objects.
    pub remedy: &'static str,
    /// A step of the orchestrator already emits an event about it on the object.
    pub emitted_by_steps: bool,
    /// The time for which a finding must be seen without a break, in seconds. Shorter ones are passing states.
    pub confirm_after: i64,
}

/// The severity of a finding.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, serde::Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Severity {
    /// Information: somebody may want it so.
    Info,
    /// The problem remains until somebody acts.
    Warning,
    /// Data is lost, or nothing works.
    Error,
}

/// Declares the kinds, with their comments as documentation, and what is known of each.
macro_rules! kinds {
    ($($(#[doc = $doc:literal])+ $kind:ident = $name:literal, $severity:ident {
        meaning: $meaning:literal,
        remedy: $remedy:literal,
        emitted_by_steps: $emitted:ident, confirm_after: $confirm:expr,
    })*) => {
        /// The kind of a finding.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, serde::Serialize)]
        #[serde(rename_all = "kebab-case")]
        pub enum FindingKind {
            $($(#[doc = $doc])+ $kind,)*
        }

        impl FindingKind {
            /// All kinds, the most severe first.
            pub const ALL: &[FindingKind] = &[$(FindingKind::$kind),*];

            /// Returns the documentation and properties of the kind.
            pub const fn spec(self) -> &'static FindingSpec {
                match self {
                    $(FindingKind::$kind => &FindingSpec {
                        name: $name,
                        severity: Severity::$severity,
                        doc: &[$($doc),+],
                        meaning: $meaning,
                        remedy: $remedy,
                        emitted_by_steps: kinds!(@ $emitted),
                        confirm_after: $confirm,
                    },)*
                }
            }
        }
    };
    (@ yes) => { true };
    (@ no) => { false };
}

kinds! {
    /// A volume's storage is not in a complete list of the backend and node where it was made.
    BackendMissing = "backend-missing", Error {
        meaning: "the storage of a volume is not on its backend any more: its data is lost, or the backend is not what it was",
        remedy: "Look at the backend. Restore from a backup, or delete the claim.",
        emitted_by_steps: no, confirm_after: 30,
    }

    /// A claim's volume does not exist, or is reserved for another UID or claim.
    ClaimLost = "claim-lost", Error {
        meaning: "Kubernetes cannot bind this claim to its volume any more",
        remedy: "[see below](#claim-lost)",
        emitted_by_steps: no, confirm_after: 30,
    }

    /// Nobody has renewed the Lease for a minute.
    NoLeader = "no-leader", Error {
        meaning: "no orchestrator is at work: nothing is provisioned or deleted",
        remedy: "`kubectl -n flex-provisioner get pods,lease`",
        emitted_by_steps: no, confirm_after: 30,
    }

    /// No claim, volume or run of this cluster has the id of this storage.
    BackendUnknown = "backend-unknown", Warning {
        meaning: "storage that no claim, volume or run of this cluster knows; another cluster may use the same backend",
        remedy: "Make sure that no other cluster uses the storage, and that no restored claim [got an empty volume in its place](how-to/backup.md), then delete it by hand.",
        emitted_by_steps: no, confirm_after: 30,
    }

    /// A deletion was interrupted and left this, and no run continues it.
    BackendRubbish = "backend-rubbish", Warning {
        meaning: "a deletion was interrupted and left this, and no run continues it",
        remedy: "Make sure that no other cluster uses the storage, then delete it by hand.",
        emitted_by_steps: no, confirm_after: 30,
    }

    /// A list run failed, or its list was not whole.
    BackendNotListed = "backend-not-listed", Warning {
        meaning: "nobody knows what storage this backend has",
        remedy: "Correct what the message names.",
        emitted_by_steps: no, confirm_after: 30,
    }

    /// The node of a volume is gone.
    NodeGone = "node-gone", Warning {
        meaning: "the node that has this volume's storage is gone",
        remedy: "Bring the node back, or look up [nodes that are gone](how-to/lost-nodes.md). Only if the storage is lost, delete pod and claim.",
        emitted_by_steps: no, confirm_after: 30,
    }

    /// The node of a volume exists, but the node affinity excludes it, or includes another node, too.
    NodeLabels = "node-labels", Warning {
        meaning: "the labels of nodes lead pods away from this volume's storage",
        remedy: "Set the labels that the finding names. The storage is there: do not delete the claim.",
        emitted_by_steps: no, confirm_after: 30,
    }

    /// Delete runs fail, or one does not end.
    VolumeHeld = "volume-held", Warning {
        meaning: "the claim is gone, and the storage cannot be deleted",
        remedy: "[Look up the message](#a-deletion-hangs).",
        emitted_by_steps: yes, confirm_after: 30,
    }

    /// Nobody knows how the volume was made, and no known run made it.
    VolumeNotAdopted = "volume-not-adopted", Warning {
        meaning: "nobody knows how this volume was made, so its storage can only be deleted by hand",
        remedy: "[Look up the message](#a-deletion-hangs).",
        emitted_by_steps: no, confirm_after: 30,
    }

    /// A volume was restored from a backup, and nobody has vouched for it.
    VolumeRestored = "volume-restored", Warning {
        meaning: "this volume was restored from a backup, and the orchestrator neither deletes nor changes its storage until an admin vouches for it",
        remedy: "`flex-provisioner vouch VOLUME`",
        emitted_by_steps: yes, confirm_after: 30,
    }

    /// The volume's record cannot be read.
    VolumeUnreadable = "volume-unreadable", Warning {
        meaning: "how this volume was made cannot be read, so its storage can only be deleted by hand",
        remedy: "[Look up the message](#a-deletion-hangs).",
        emitted_by_steps: no, confirm_after: 30,
    }

    /// A released volume has the id of another volume.
    VolumeMisnamed = "volume-misnamed", Warning {
        meaning: "this volume has the id of another volume, so its deletion would delete the storage of that one",
        remedy: "[Look up the message](#a-deletion-hangs).",
        emitted_by_steps: no, confirm_after: 30,
    }

    /// An image made a volume that does not fit.
    VolumeQuarantined = "volume-quarantined", Warning {
        meaning: "an image made a volume that does not fit its claim",
        remedy: "Correct the image, then delete the volume.",
        emitted_by_steps: yes, confirm_after: 30,
    }

    /// The claim has another volume, and the policy keeps this one.
    VolumeElsewhere = "volume-elsewhere", Warning {
        meaning: "the claim that this volume was made for has another volume, and nothing deletes this one",
        remedy: "Delete the volume by hand, if nobody needs it.",
        emitted_by_steps: no, confirm_after: 30,
    }

    /// A class does not want this [pooled volume](how-to/pools.md), or cannot be served.
    VolumeUnasked = "volume-unasked", Warning {
        meaning: "this volume waits in a pool, but no class asks for it",
        remedy: "Correct the config, else [see below](#volume-unasked).",
        emitted_by_steps: no, confirm_after: 30,
    }

    /// Another instance has done nothing about this terminating or released volume for 10 minutes.
    VolumeForeign = "volume-foreign", Warning {
        meaning: "another orchestrator must remove its finalizer from this volume, but has not done so for long",
        remedy: "Make sure that it runs.",
        emitted_by_steps: no, confirm_after: 30,
    }

    /// The class of a claim is gone or another's, or its config is lost.
    ClaimHeld = "claim-held", Warning {
        meaning: "an attempt for this claim can neither continue nor be undone",
        remedy: "Bring class and config back. Else delete the claim; if its record then stays, [look up the message](#a-deletion-hangs).",
        emitted_by_steps: no, confirm_after: 30,
    }

    /// A claim gets no volume.
    ClaimStuck = "claim-stuck", Warning {
        meaning: "this claim gets no volume",
        remedy: "[Look up the message](#why-an-attempt-failed).",
        emitted_by_steps: yes, confirm_after: 30,
    }

    /// What attempts for a deleted claim left cannot be deleted.
    ClaimUndeleted = "claim-undeleted", Warning {
        meaning: "the orchestrator cannot delete what attempts for this deleted claim left behind",
        remedy: "[Look up the message](#a-deletion-hangs).",
        emitted_by_steps: yes, confirm_after: 30,
    }

    /// A claim was deleted unseen, and its class keeps what its attempts may have made.
    StorageKept = "storage-kept", Warning {
        meaning: "attempts for a deleted claim may have made storage, which its class keeps",
        remedy: "Look on the backend for the ids that the finding names, then [let go](operations.md#letting-go-the-abandon-annotation) of the record.",
        emitted_by_steps: yes, confirm_after: 30,
    }

    /// A snapshot cannot be made.
    SnapshotStuck = "snapshot-stuck", Warning {
        meaning: "this snapshot cannot be made",
        remedy: "[Look up the message](#why-an-attempt-failed): the reasons are the same.",
        emitted_by_steps: yes, confirm_after: 30,
    }

    /// The delete-snapshot runs of a deleted snapshot fail.
    ContentHeld = "content-held", Warning {
        meaning: "the snapshot was deleted, but the stored data cannot be deleted",
        remedy: "Fix what the message names, or [let go](operations.md#letting-go-the-abandon-annotation) of the VolumeSnapshotContent.",
        emitted_by_steps: yes, confirm_after: 30,
    }

    /// A backup may have restored a content: its VolumeSnapshot is gone, and its record or its status is not its own.
    ContentRestored = "content-restored", Warning {
        meaning: "a backup may have restored this content, and nobody knows whether its snapshot is stored",
        remedy: "See [backup and restore](how-to/backup.md#what-can-go-wrong).",
        emitted_by_steps: yes, confirm_after: 30,
    }

    /// Somebody removed the finalizers of a VolumeSnapshot, and nothing deletes its content.
    ContentWithoutSnapshot = "content-without-snapshot", Warning {
        meaning: "the VolumeSnapshot is gone, and nothing deletes its content and its stored data",
        remedy: "Delete the VolumeSnapshotContent, which also deletes the stored data.",
        emitted_by_steps: no, confirm_after: 30,
    }

    /// A claim, VolumeSnapshot or content has a finalizer of ours that nothing needs.
    FinalizerLeft = "finalizer-left", Warning {
        meaning: "this object cannot be deleted, because of a finalizer that nothing needs any more",
        remedy: "Make sure that an orchestrator runs, else remove the finalizer by hand.",
        emitted_by_steps: no, confirm_after: 30,
    }

    /// A Job is two minutes past its deadline, and Kubernetes made no pod for it.
    JobStalled = "job-stalled", Warning {
        meaning: "Kubernetes neither makes a pod for this run nor ends it",
        remedy: "The sweep and `--fix` remove it, and the run starts again.",
        emitted_by_steps: no, confirm_after: 30,
    }

    /// The orchestrator of another cluster created this Job: a backup tool has copied it.
    JobCopied = "job-copied", Warning {
        meaning: "a copy of another cluster's run, which may change the storage of that cluster",
        remedy: "The sweep and `--fix` remove it. Exclude Jobs from backups.",
        emitted_by_steps: no, confirm_after: 1,
    }

    /// The claim, volume or content of a Job is gone.
    JobWithoutOwner = "job-without-owner", Warning {
        meaning: "a run for a claim or volume that does not exist any more",
        remedy: "The sweep and `--fix` remove it.",
        emitted_by_steps: no, confirm_after: 30,
    }

    /// Somebody deleted a Job without its pod (`--cascade=orphan`).
    PodWithoutJob = "pod-without-job", Warning {
        meaning: "a pod of a run whose Job was deleted without it",
        remedy: "Let the pod end, or delete it.",
        emitted_by_steps: no, confirm_after: 30,
    }

    /// A config names a ServiceAccount that does not exist.
    AccountMissing = "account-missing", Warning {
        meaning: "a provisioner config names a ServiceAccount that does not exist: its runs get no pod",
        remedy: "Create the account, or correct `service-account-name`.",
        emitted_by_steps: no, confirm_after: 30,
    }

    /// An [admission policy](operations.md#admission-policies) is not as this version ships it, or no binding applies it.
    PolicyOutdated = "policy-outdated", Warning {
        meaning: "an admission policy of the provisioner is not in force as shipped",
        remedy: "Apply the whole of `deploy/`.",
        emitted_by_steps: no, confirm_after: 30,
    }

    /// An admission policy is not installed.
    PolicyMissing = "policy-missing", Info {
        meaning: "an admission policy of the provisioner is not installed",
        remedy: "Nothing, or install it.",
        emitted_by_steps: no, confirm_after: 30,
    }

    /// A Job is over and should be gone.
    JobFinished = "job-finished", Info {
        meaning: "a run that is over and that nobody needs",
        remedy: "The sweep and `--fix` remove it.",
        emitted_by_steps: no, confirm_after: 30,
    }

    /// Nothing refers to a kept version of a config.
    RevisionUnused = "revision-unused", Info {
        meaning: "a version of a config that nothing uses",
        remedy: "The sweep and `--fix` remove it.",
        // The orchestrator deletes unused revisions itself every quarter of an hour.
        emitted_by_steps: no, confirm_after: 20 * 60,
    }

    /// The claim is gone, and the policy keeps volume and storage.
    VolumeRetained = "volume-retained", Info {
        meaning: "the claim is gone, and the policy keeps volume and storage",
        remedy: "Nothing, or what the finding says: a restored claim may need the volume.",
        emitted_by_steps: no, confirm_after: 30,
    }

    /// The VolumeSnapshot is gone, and the policy keeps content and storage.
    ContentRetained = "content-retained", Info {
        meaning: "the VolumeSnapshot is gone, and the policy keeps content and storage",
        remedy: "Nothing, or delete both by hand.",
        emitted_by_steps: no, confirm_after: 30,
    }
}

impl FindingKind {
    /// Returns the name of the kind in metrics and in the output of `doctor`.
    pub fn as_str(self) -> &'static str {
        self.spec().name
    }

    /// Returns the severity of the kind.
    pub fn severity(self) -> Severity {
        self.spec().severity
    }

    /// Explains the kind.
    pub fn meaning(self) -> &'static str {
        self.spec().meaning
    }

    /// Checks whether a step of the orchestrator already emits an event about it on the object.
    pub fn is_emitted_by_steps(self) -> bool {
        self.spec().emitted_by_steps
    }

    /// Returns the time for which a finding must be seen without a break, in seconds. Shorter ones are passing states.
    pub fn confirm_after(self) -> i64 {
        self.spec().confirm_after
    }
}

impl fmt::Display for FindingKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn each_kind_has_a_name_of_its_own_and_is_documented() {
        let names: BTreeSet<&str> = FindingKind::ALL.iter().map(|kind| kind.as_str()).collect();
        assert_eq!(names.len(), FindingKind::ALL.len(), "a name exists twice");
        for kind in FindingKind::ALL {
            let FindingSpec { name, doc, meaning, remedy, confirm_after, .. } = kind.spec();
            assert_eq!(serde_json::json!(kind), *name);
            assert!(doc[0].ends_with('.') && doc[0].split(' ').count() <= 24, "{name}: {doc:?}");
            assert!(!meaning.ends_with('.') && !remedy.is_empty() && *confirm_after > 0, "{name}");
        }
    }

    #[test]
    fn the_most_severe_come_first() {
        assert!(FindingKind::ALL.is_sorted() && FindingKind::ALL.is_sorted_by(|a, b| a.severity() >= b.severity()));
    }
}
