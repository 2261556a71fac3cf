//! The kinds of findings, and their severity.

use std::fmt;

/// The kind of a finding.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, serde::Serialize)]
#[serde(rename_all = "kebab-case")]
#[allow(missing_docs)] // The table in `orphans` says what each is.
pub enum Kind {
    BackendMissing,
    ClaimLost,
    NoLeader,
    BackendUnknown,
    BackendRubbish,
    BackendNotListed,
    NodeGone,
    VolumeHeld,
    VolumeNotAdopted,
    VolumeRestored,
    VolumeUnreadable,
    VolumeMisnamed,
    VolumeQuarantined,
    VolumeElsewhere,
    VolumeUnasked,
    VolumeForeign,
    ClaimHeld,
    ClaimStuck,
    ClaimUndeleted,
    SnapshotStuck,
    ContentHeld,
    ContentWithoutSnapshot,
    FinalizerLeft,
    JobStalled,
    JobWithoutOwner,
    PodWithoutJob,
    AccountMissing,
    PolicyOutdated,
    PolicyMissing,
    JobFinished,
    RevisionUnused,
    VolumeRetained,
    ContentRetained,
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

impl Kind {
    /// All kinds, the most severe first.
    pub const ALL: [Kind; 33] = [
        Kind::BackendMissing,
        Kind::ClaimLost,
        Kind::NoLeader,
        Kind::BackendUnknown,
        Kind::BackendRubbish,
        Kind::BackendNotListed,
        Kind::NodeGone,
        Kind::VolumeHeld,
        Kind::VolumeNotAdopted,
        Kind::VolumeRestored,
        Kind::VolumeUnreadable,
        Kind::VolumeMisnamed,
        Kind::VolumeQuarantined,
        Kind::VolumeElsewhere,
        Kind::VolumeUnasked,
        Kind::VolumeForeign,
        Kind::ClaimHeld,
        Kind::ClaimStuck,
        Kind::ClaimUndeleted,
        Kind::SnapshotStuck,
        Kind::ContentHeld,
        Kind::ContentWithoutSnapshot,
        Kind::FinalizerLeft,
        Kind::JobStalled,
        Kind::JobWithoutOwner,
        Kind::PodWithoutJob,
        Kind::AccountMissing,
        Kind::PolicyOutdated,
        Kind::PolicyMissing,
        Kind::JobFinished,
        Kind::RevisionUnused,
        Kind::VolumeRetained,
        Kind::ContentRetained,
    ];

    /// Returns the name of the kind in metrics and in the output of `doctor`.
    pub fn as_str(self) -> &'static str {
        match self {
            Kind::BackendMissing => "backend-missing",
            Kind::ClaimLost => "claim-lost",
            Kind::NoLeader => "no-leader",
            Kind::BackendUnknown => "backend-unknown",
            Kind::BackendRubbish => "backend-rubbish",
            Kind::BackendNotListed => "backend-not-listed",
            Kind::NodeGone => "node-gone",
            Kind::VolumeHeld => "volume-held",
            Kind::VolumeNotAdopted => "volume-not-adopted",
            Kind::VolumeRestored => "volume-restored",
            Kind::VolumeUnreadable => "volume-unreadable",
            Kind::VolumeMisnamed => "volume-misnamed",
            Kind::VolumeQuarantined => "volume-quarantined",
            Kind::VolumeElsewhere => "volume-elsewhere",
            Kind::VolumeUnasked => "volume-unasked",
            Kind::VolumeForeign => "volume-foreign",
            Kind::ClaimHeld => "claim-held",
            Kind::ClaimStuck => "claim-stuck",
            Kind::ClaimUndeleted => "claim-undeleted",
            Kind::SnapshotStuck => "snapshot-stuck",
            Kind::ContentHeld => "content-held",
            Kind::ContentWithoutSnapshot => "content-without-snapshot",
            Kind::FinalizerLeft => "finalizer-left",
            Kind::JobStalled => "job-stalled",
            Kind::JobWithoutOwner => "job-without-owner",
            Kind::PodWithoutJob => "pod-without-job",
            Kind::AccountMissing => "account-missing",
            Kind::PolicyOutdated => "policy-outdated",
            Kind::PolicyMissing => "policy-missing",
            Kind::JobFinished => "job-finished",
            Kind::RevisionUnused => "revision-unused",
            Kind::VolumeRetained => "volume-retained",
            Kind::ContentRetained => "content-retained",
        }
    }

    /// Returns the severity of the kind.
    pub fn severity(self) -> Severity {
        match self {
            Kind::BackendMissing | Kind::ClaimLost | Kind::NoLeader => Severity::Error,
            Kind::JobFinished
            | Kind::RevisionUnused
            | Kind::VolumeRetained
            | Kind::ContentRetained
            | Kind::PolicyMissing => Severity::Info,
            _ => Severity::Warning,
        }
    }

    /// Explains the kind.
    pub fn meaning(self) -> &'static str {
        match self {
            Kind::BackendMissing => {
                "the storage of a volume is not on its backend any more: its data is lost, or the backend is not what it was"
            }
            Kind::ClaimLost => "Kubernetes cannot bind this claim to its volume any more",
            Kind::NoLeader => "no orchestrator is at work: nothing is provisioned or deleted",
            Kind::BackendUnknown => {
                "storage that no claim, volume or run of this cluster knows; another cluster may use the same backend"
            }
            Kind::BackendRubbish => "a deletion left this half-way, and no run goes on with it",
            Kind::BackendNotListed => "nothing is known of what this backend has",
            Kind::NodeGone => "the node is gone that this volume's storage is on",
            Kind::VolumeHeld => "the claim is gone, and the storage cannot be deleted",
            Kind::VolumeNotAdopted => {
                "nobody knows how this volume was made, so its storage can only be deleted by hand"
            }
            Kind::VolumeRestored => {
                "this volume was restored from a backup, and its storage is neither deleted nor changed until an admin vouches for it"
            }
            Kind::VolumeUnreadable => {
                "how this volume was made cannot be read, so its storage can only be deleted by hand"
            }
            Kind::VolumeMisnamed => "this volume bears the id of another one, whose storage would be deleted with it",
            Kind::VolumeQuarantined => "an image made a volume that does not fit its claim",
            Kind::VolumeElsewhere => {
                "the claim that this volume was made for has another one, and nothing deletes this one"
            }
            Kind::VolumeUnasked => "this volume is kept ready, and no class asks for it",
            Kind::VolumeForeign => {
                "another orchestrator must take its finalizer off this volume, and has done nothing about it for long"
            }
            Kind::ClaimHeld => "what was begun for this claim cannot go on, nor be taken back",
            Kind::ClaimStuck => "this claim gets no volume",
            Kind::ClaimUndeleted => "this claim cannot go, because what an attempt left behind cannot be deleted",
            Kind::SnapshotStuck => "this snapshot cannot be made",
            Kind::ContentHeld => "the snapshot was deleted, and what is stored for it cannot be",
            Kind::ContentWithoutSnapshot => {
                "the VolumeSnapshot is gone, and nothing deletes its content and what is stored for it"
            }
            Kind::ContentRetained => "the VolumeSnapshot is gone, and the policy keeps content and storage",
            Kind::FinalizerLeft => "this object cannot be deleted, because of a finalizer that nothing needs any more",
            Kind::AccountMissing => {
                "a provisioner config names a ServiceAccount that does not exist: its runs get no pod"
            }
            Kind::PolicyOutdated => "an admission policy of the provisioner does not do what it was shipped for",
            Kind::PolicyMissing => "an admission policy of the provisioner is not installed",
            Kind::JobStalled => "a run for which Kubernetes makes no pod, and which it does not end either",
            Kind::JobWithoutOwner => "a run for a claim or volume that does not exist any more",
            Kind::PodWithoutJob => "a pod of a run whose Job was deleted without it",
            Kind::JobFinished => "a run that is over and that nobody needs",
            Kind::RevisionUnused => "a version of a config that nothing uses",
            Kind::VolumeRetained => "the claim is gone, and the policy keeps volume and storage",
        }
    }

    /// Checks whether a step of the orchestrator already emits an event about it on the object.
    pub fn is_told(self) -> bool {
        matches!(
            self,
            Kind::VolumeQuarantined
                | Kind::VolumeRestored
                | Kind::VolumeHeld
                | Kind::ClaimStuck
                | Kind::ClaimUndeleted
                | Kind::SnapshotStuck
                | Kind::ContentHeld
        )
    }

    /// Returns the time for which a finding must be seen without a break, in seconds. Shorter ones are passing states.
    pub fn settles(self) -> i64 {
        match self {
            // The orchestrator deletes unused revisions itself every quarter of an hour.
            Kind::RevisionUnused => 20 * 60,
            _ => 30,
        }
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}
