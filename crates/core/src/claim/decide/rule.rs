//! The rules that decide about a claim.
//!
//! A claim is *held* from its first stamp on, by an annotation with its own UID, until the orchestrator *ends the hold*: it
//! removes the annotation, or settles the record of a claim that is gone. A claim is *stamped* if it has a stamp that was
//! written for this very claim.

use strum::{EnumIter, EnumMessage, IntoStaticStr};

use super::step::Step;
use crate::rules;
use crate::run::rule::{Rule as RunRule, Target};

/// A decision about a claim.
pub type Decision = rules::Decision<Rule>;

/// The rules of a claim. A comment names each group. The functions in `decide` find the group, and its first rule
/// that holds applies.
#[derive(Clone, Copy, Debug, PartialEq, Eq, EnumIter, EnumMessage, IntoStaticStr)]
pub enum Rule {
    // Pool requests.
    /// A held pool request has a volume that is ready and not adopted. Adopts the volume without a claim.
    AdoptPooledVolume,
    /// The volume of a pool request is adopted, or already assigned to a claim, and the request is not terminating.
    /// Deletes the request.
    CompletePoolRequest,
    /// The volume of a terminating pool request is adopted, or already assigned to a claim. Ends the hold.
    PoolRequestTerminating,

    // Claims that have a volume.
    /// The claim is held and bound to a volume that does not fit, because somebody wrote the claim's UID on it.
    /// Quarantines the volume, and emits an event.
    QuarantineBoundVolume,
    /// The claim is held and bound to a volume that is quarantined. Emits an event.
    BoundVolumeQuarantined,
    /// Another claim has taken a volume that was made for this claim. Emits an event: no other attempt begins, and nothing is
    /// deleted while that claim may use the volume.
    VolumeTakenByOther,
    /// The claim is held and bound to a volume that no watch has shown. Waits for the volume, or for the claim's
    /// deletion.
    BoundVolumeNotSeen,
    /// The claimRef of a volume that was adopted before, or to which the claim is bound, does not have the claim's UID, but
    /// the claim comes from the cache. Reads the claim: it may be gone, and a backup may have restored the volume for
    /// another claim of its name.
    ReadClaimBeforeAdoption,
    /// The claim is held, and the PV controller has bound it before the volume was adopted. Adopts the volume.
    AdoptBoundVolume,
    /// The volume is adopted but for its mark, and the claim is bound or terminating. Writes the mark.
    MarkAdoptedVolume,
    /// The claim is held and bound to a volume that is adopted. Ends the hold, and emits an event.
    BoundClaimHeld,
    /// The claim is held and bound to a volume that cannot be adopted any more. Waits for the end of the claim, with which
    /// the volume goes, too.
    BoundVolumeTerminating,
    /// The recipe of the attempt is not known any more: its volume cannot be adopted. Emits an event.
    AdoptionNeedsRecipe,
    /// The claim is bound or terminating and not held, and a Job of it has ended. Deletes the Job.
    RemoveEndedJob,
    /// The PV controller has bound the claim to the pooled volume that was assigned to it. Writes the stamp.
    BoundToPooledVolume,
    /// The claim is bound or terminating, and the orchestrator has nothing left to do for it. Does nothing.
    Settled,

    // Claims that are terminating or have another volume: the orchestrator undoes their attempts.
    /// An admin has set the abandon annotation. Ends the hold, and emits an event.
    Abandoned,
    /// No container of the attempt has run, and this is not recorded. Records it before the Job is deleted, because the
    /// proof vanishes with the Job.
    RecordNeverStarted,
    /// The volume is terminating, and cannot be adopted any more. Emits an event, and waits for its end.
    VolumeTerminating,
    /// A volume has the name of the terminating claim's volume, but was made for another claim. Emits an event.
    VolumeNameTaken,
    /// The claim is terminating, and the storage of its volume must stay: its Bound volume cannot be adopted any more, or another
    /// claim had it, with the policy Retain. Ends the hold.
    VolumeRetained,
    /// The volume of a terminating claim is not adopted, and no other claim may use it. Adopts it, so that the volume's own
    /// reconciler deletes it.
    AdoptLeftVolume,
    /// The volume of a terminating claim is adopted. Ends the hold: the volume's own reconciler deletes it.
    LeftVolumeAdopted,
    /// The claim is terminating, and it is not certain that it has no volume. Asks the API.
    ConfirmNoVolumeLeft,
    /// The claim is terminating, and no container of any attempt has run. Ends the hold: nothing can be left.
    NothingLeftBehind,
    /// The claim is gone and has no volume, and a watch has shown the end of a retained volume of it. Emits an event, and forgets
    /// the claim.
    LeftStorageRetained,
    /// The claim is gone and has no volume, the recipe of its attempts keeps storage or is not known any more, and no watch has
    /// shown that nobody had a volume. Emits an event, and marks the record, which a finding names until an admin abandons it.
    LeftStorageUnknown,
    /// An attempt may have left storage, and its recipe is not known any more. Emits an event.
    CleanupNeedsRecipe,
    /// A rule about a run that makes the volume, or deletes what attempts may have left.
    #[strum(disabled)]
    Run(Target, RunRule),

    // Claims that no attempt may begin for.
    /// The class is not the orchestrator's, and the claim is not held. Does nothing.
    NotOurs,
    /// The claim is held, but its class is not the orchestrator's any more. It has no volume, and its run is neither in
    /// progress nor succeeded. Emits an event: the attempt ends, and no other follows.
    ClassNotServed,
    /// The claim names a volume itself. Does nothing.
    VolumeNamedByUser,

    // Claims without a stamp.
    /// A populator fills the claim and brings its volume. Emits an event.
    LeftToPopulator,
    /// Only the label of a config has made the class, a moment ago. Waits, because a StorageClass may follow.
    ClassObjectMayFollow,
    /// Only the label of a config makes the class, and a watch may be late. Asks the API for the StorageClass.
    ConfirmNoClassObject,
    /// The class has no valid config. Emits an event, and waits for the config.
    ConfigUnusable,
    /// A volume is reserved for the claim by name. Emits an event: Kubernetes binds the two.
    VolumeReserved,
    /// The class cannot serve the claim as it is. Emits an event.
    ClaimRefused,
    /// The claim requests attributes that it cannot have. Emits an event.
    AttributesUnavailable,
    /// The class binds when a pod uses the claim, and no node is selected. Waits.
    WaitForFirstConsumer,
    /// The data source is not ready. Emits an event, and waits for it.
    SourceNotReady,
    /// The storage of the data source is on a node that no watch has shown. Asks the API.
    ConfirmSourceNode,
    /// The storage of the data source is on a node that is gone. Emits an event, and waits for the node.
    SourceNodeGone,
    /// No watch has shown the selected node. Asks the API.
    ConfirmSelectedNode,
    /// The class does not allow the selected node. Removes it from the claim, so that the scheduler selects another.
    SelectedNodeForbidden,
    /// The selected node is gone. Removes it from the claim, so that the scheduler selects another.
    SelectedNodeGone,
    /// The class has a pooled volume that fits. Assigns it to the claim, regardless of quota and slots.
    AssignPooledVolume,
    /// The claim would exceed a quota. Emits an event, and waits for quota.
    QuotaReached,
    /// Another claim of this name is gone, and what its attempts left is being deleted. Emits an event, and waits: a path may
    /// come from the name.
    NamesakeNotUndone,
    /// Many claims of the same namespace and class are gone, and what their attempts may have left is not deleted yet. Emits an
    /// event, and waits until there are fewer.
    TooMuchLeft,
    /// No node takes a run for the claim. Emits an event.
    NoNodeForRun,
    /// The revision of the class's recipe is not stored yet. Waits for it.
    RevisionNotStored,
    /// The claim has the stamp of another claim, as a copy or a restored backup has. Replaces it by that of the first
    /// attempt, and emits an event.
    ReplaceStaleStamp,
    /// The class can serve the claim, and there is a slot. Stamps the claim for its first attempt.
    FirstAttemptDue,

    // Held claims without a record.
    /// An attempt of the held claim may have run, no volume of it is known, and no record names it: somebody has deleted the
    /// record. Reads the claim, and asks the API for a volume. Then records the attempt again.
    RecordLost,

    // Volumes that exist, however the run ended.
    /// The claim's volume is Bound, but cannot be adopted any more. Writes its name on the claim, because Kubernetes
    /// keeps a Bound volume.
    NameHalfBoundVolume,
    /// A volume fits the claim and is not adopted. Adopts it.
    AdoptVolume,
    /// The volume is adopted, and the PV controller knows it. Binds the claim, and emits an event.
    BindVolume,
    /// A pooled volume was assigned to the claim, and the PV controller knows it. Binds the claim.
    BindPooledVolume,
    /// The volume is the claim's, and the PV controller would not choose it. Writes its name on the claim.
    NameVolume,
    /// The volume is the claim's. Waits until the PV controller knows it or has bound it.
    WaitForBinding,
    /// A volume does not fit the claim. Quarantines it, and emits an event.
    QuarantineVolume,
    /// The volume of the attempt is quarantined. Records that the attempt failed.
    RecordQuarantine,

    // The run of the stamped attempt.
    /// The claim is stamped, but somebody has removed the annotation by which it is held. Stamps it for the next attempt.
    HoldLost,
    /// The recipe of the attempt is not known any more, and no Job of it exists. Records that the attempt failed.
    RecipeLost,
    /// The attempt has no Job, but the claim comes from the cache. Reads the claim.
    ReadClaimBeforeRun,
    /// The attempt has no Job, and it must be on another node than its stamp records. Stamps the claim for the next
    /// attempt.
    NodeChanged,
    /// The attempt is a copy, and its data source is not protected. Adds a finalizer to the data source.
    ProtectSource,
    /// Somebody has deleted the Job of the attempt again and again. Emits an event, and waits.
    JobRemovedRepeatedly,
    /// The run of a batch has been in progress for 30 s. Waits for its end, and emits an event.
    BatchSlow,
    /// The image was not pulled in time. Records that the attempt failed.
    ImagePullTimeout,
    /// The node did not admit the pod in time. Records that the node had no capacity.
    NodeAdmissionTimeout,
    /// The image exited 0, and it is not certain that it made no volume. Asks the API.
    ConfirmNoVolumeMade,
    /// The image exited 0 without making a volume. Records that the attempt failed.
    NoVolumeMade,

    // Attempts that failed.
    /// No container of the failed attempt has run, and this is not recorded. Records it.
    RecordUnstartedFailure,
    /// A Job of a later attempt exists, but the claim comes from the cache. Reads the claim.
    ReadClaimBeforeStop,
    /// The image failed, and another container of its pod still runs. Deletes the Job.
    StopSidecars,
    /// The image failed a moment ago, and another container of its pod still runs. Waits for its end.
    SidecarsRunning,
    /// The selected node had no capacity. Removes it from the claim, so that the scheduler selects another.
    NoRoomOnNode,
    /// The node had no capacity, and somebody else has removed it from the claim. Records a failure like others.
    NoRoomOnRemovedNode,
    /// The attempt failed, and the scheduler has not selected a node again. Waits.
    WaitForReschedule,
    /// Attempts may have left storage on too many nodes. Emits an event, and tries no other node.
    TooManyNodes,
    /// The next attempt is due, or once more one that may have run, and it is not certain that the last has neither a run nor
    /// a volume. Asks the API.
    ConfirmNoVolumeBeforeAttempt,

    // Claims that are data sources, when nothing else is left to do.
    /// Clones or snapshots for which the claim is protected are made or abandoned. Removes their finalizers.
    UnprotectSource,
    /// The claim is terminating, and clones or snapshots are made of it. Emits an event, and waits for them.
    BeingCloned,
}

/// Returns the rule about a run that makes the volume.
pub(super) fn run(rule: RunRule) -> Rule {
    Rule::Run(Target::Volume, rule)
}

crate::run::rule::table_with_runs!(Rule, Step, "claim", [Volume, Leftover]);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rules::Rule as _;

    #[test]
    fn each_rule_says_when_it_holds() {
        for rule in Rule::all().into_iter().filter(|rule| rule.target().is_none()) {
            assert!(rule.documentation().ends_with('.') && rule.documentation().len() > 30, "{rule:?}");
            assert_eq!(rule.name(), format!("{rule:?}"));
        }
    }
}
