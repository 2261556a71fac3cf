//! Decides which content a VolumeSnapshot gets, and its status: a pure function of the observation.
//!
//! The [rules](Rule) say when it takes which step. "Its content" is the content that refers to the VolumeSnapshot by its
//! UID.
//!
//! An error that is in the status before there is a content stays. The snapshot-controller writes its own error
//! whenever it finds another, and both would write forever. As soon as there is a content, both write what the content
//! says.

use flex_contract::names;
use flex_contract::policy::ReclaimPolicy;
use flex_contract::reason;
use strum::{EnumMessage, IntoStaticStr, VariantArray};

use crate::model::snapshot::Content;
use crate::model::snapshot::Of;
use crate::model::snapshot::Snapshot;
use crate::model::snapshot::Status;
use crate::model::volume::Volume;
use crate::rules::{self, Rule as _};

/// The class of a VolumeSnapshot.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SnapshotClassLookup<'a> {
    /// The class belongs to another driver, or does not exist.
    NotOurs,
    /// The class is the orchestrator's, with this policy.
    Ours {
        /// The deletion policy.
        policy: &'a ReclaimPolicy,
    },
    /// The VolumeSnapshot names no class. The default of the orchestrator's driver, or the reason why there is none.
    Unnamed(Result<&'a str, String>),
}

/// The claim of which a VolumeSnapshot is made.
#[derive(Clone, Debug)]
pub enum SourceClaim<'a> {
    /// The claim is bound to this volume, which this orchestrator made.
    Ours(&'a Volume),
    /// The volume of the claim belongs to somebody else.
    Foreign,
    /// The claim has no volume, for this reason.
    Unbound(String),
}

/// The observation on which the decision rests.
#[derive(Clone, Debug)]
pub struct Observed<'a> {
    /// The VolumeSnapshot.
    pub snapshot: &'a Snapshot,
    /// The class of the VolumeSnapshot.
    pub class: SnapshotClassLookup<'a>,
    /// The source, if the VolumeSnapshot is made of a claim.
    pub source: SourceClaim<'a>,
    /// The content with the VolumeSnapshot's content name.
    pub content: Option<&'a Content>,
    /// The content belongs to the orchestrator's driver, and to no other instance.
    pub content_ours: bool,
    /// A quorum read found no content of the VolumeSnapshot.
    pub no_content: bool,
}

/// The next step for a VolumeSnapshot.
#[derive(Clone, Debug, Default, PartialEq)]
pub enum Step {
    /// Does nothing. The next event brings a new decision.
    #[default]
    Nothing,
    /// Adds the finalizer.
    AddFinalizer,
    /// Writes the default class on the VolumeSnapshot.
    SetClass {
        /// The name of the class.
        class: String,
    },
    /// Creates the content to which the VolumeSnapshot is bound.
    CreateContent {
        /// The deletion policy.
        policy: ReclaimPolicy,
    },
    /// Writes the VolumeSnapshot's UID on the content that names it.
    BindContent,
    /// Writes the state of the content into the status.
    Mirror(Status),
    /// Writes into the status why there is no content.
    Refuse {
        /// The reason.
        why: String,
    },
    /// Deletes the content. The stored snapshot is deleted before the content is gone.
    DeleteContent,
    /// Asks the API, not the cache, whether there is a content, and decides again.
    ConfirmNoContent,
    /// Removes the finalizer.
    RemoveFinalizer,
}

/// The rules of a VolumeSnapshot, in their order: the first that holds applies.
#[derive(Clone, Copy, Debug, PartialEq, Eq, EnumMessage, IntoStaticStr, VariantArray)]
pub enum Rule {
    /// The VolumeSnapshot is terminating, and has no finalizer of the orchestrator. Does nothing.
    KeptByOtherFinalizers,
    /// The VolumeSnapshot and its content are terminating. Waits until the content is gone.
    ContentTerminating,
    /// The VolumeSnapshot is terminating, and its content is not ready, or its policy is Delete. Deletes the content.
    DeleteContent,
    /// The VolumeSnapshot is terminating, and its content stays. Removes the finalizer.
    ContentRetained,
    /// The VolumeSnapshot is terminating, and the cache has no content of it. Asks the API.
    ConfirmNoContent,
    /// The VolumeSnapshot is terminating, and has no content. Removes the finalizer.
    NoContentLeft,
    /// The VolumeSnapshot names neither a claim nor a content. Does nothing.
    NoSource,
    /// The content, the class, or the volume of the claim belongs to another driver. Does nothing.
    NotOurs,
    /// The claim has a CSI volume. Does nothing: the snapshot-controller serves it.
    CsiVolume,
    /// The VolumeSnapshot names no class, and its claim has a volume of the orchestrator. Writes the default class.
    SetDefaultClass,
    /// The VolumeSnapshot names no class, and there is no default. Writes that into the status, and emits an event.
    NoDefaultClass,
    /// The content of that name belongs to another snapshot. Writes that into the status, and emits an event.
    ContentOfOther,
    /// The claim has a volume of another driver. Writes that into the status, and emits an event.
    VolumeOfOther,
    /// The claim has no volume that can be used. Writes that into the status, and emits an event.
    NoVolume,
    /// The VolumeSnapshot has or can get a content, and has no finalizer. Adds the finalizer.
    ProtectSnapshot,
    /// The VolumeSnapshot is of a claim, and has no content. Creates the content.
    CreateContent,
    /// The VolumeSnapshot names a content that does not exist. Writes that into the status, and emits an event.
    ContentMissing,
    /// The VolumeSnapshot names a content that is terminating. Writes that into the status, and emits an event.
    UnboundContentTerminating,
    /// The VolumeSnapshot names a content that is not bound. Binds it.
    BindContent,
    /// The status differs from that of the content. Writes the content's, with an event when it is ready.
    MirrorStatus,
    /// The status is that of the content. Does nothing.
    StatusCurrent,
}

rules::table!(Rule, Step, "snapshot");

/// A decision about a VolumeSnapshot.
pub type Decision = rules::Decision<Rule>;

/// Decides the next step for a VolumeSnapshot.
pub fn decide(o: &Observed<'_>) -> Decision {
    let snapshot = o.snapshot;
    if snapshot.terminating {
        return if snapshot.has_finalizer() { terminating(o) } else { Rule::KeptByOtherFinalizers.nothing() };
    }
    match &snapshot.of {
        Of::Claim(_) => dynamic(o),
        Of::Content(name) => existing(o, name),
        Of::Nothing => Rule::NoSource.nothing(),
    }
}

/// Returns the content of the VolumeSnapshot: it has the right name and refers to the VolumeSnapshot.
fn own<'a>(o: &Observed<'a>) -> Option<&'a Content> {
    o.content
        .filter(|content| content.snapshot_uid.as_ref() == Some(&o.snapshot.uid) && content.snapshot == o.snapshot.name)
}

/// Decides about a terminating VolumeSnapshot with the finalizer.
fn terminating(o: &Observed<'_>) -> Decision {
    match own(o) {
        Some(content) if content.terminating => Rule::ContentTerminating.nothing(),
        Some(content) if !content.ready || content.policy == ReclaimPolicy::Delete => {
            Rule::DeleteContent.step(Step::DeleteContent)
        }
        Some(_) => Rule::ContentRetained.step(Step::RemoveFinalizer),
        // A content that does not seem bound may have been bound a moment ago.
        None if !o.no_content => Rule::ConfirmNoContent.step(Step::ConfirmNoContent),
        None => Rule::NoContentLeft.step(Step::RemoveFinalizer),
    }
}

/// Emits an event that the VolumeSnapshot cannot be bound, and writes the error if the status has none.
fn refused(rule: Rule, o: &Observed<'_>, why: String) -> Decision {
    let status = &o.snapshot.status;
    let step = match status.error.is_none() && status.ready != Some(true) {
        true => Step::Refuse { why: why.clone() },
        false => Step::Nothing,
    };
    rule.step(step).with_warning(reason::SNAPSHOT_CREATION_FAILED, why)
}

/// Decides about a snapshot that is to be made.
fn dynamic(o: &Observed<'_>) -> Decision {
    let snapshot = o.snapshot;
    if let Some(content) = own(o) {
        // The content of a CSI volume belongs to the snapshot-controller.
        let ours = o.content_ours && (snapshot.has_finalizer() || content.instance.is_some());
        return if ours { bound(o, content) } else { Rule::NotOurs.nothing() };
    }
    let policy = match (&o.class, &o.source) {
        (SnapshotClassLookup::NotOurs, _) => return Rule::NotOurs.nothing(),
        (_, SourceClaim::Ours(volume)) if volume.source_kind == Some("csi") => return Rule::CsiVolume.nothing(),
        (SnapshotClassLookup::Ours { policy }, _) => (*policy).to_owned(),
        (SnapshotClassLookup::Unnamed(Ok(class)), SourceClaim::Ours(_)) => {
            return Rule::SetDefaultClass.step(Step::SetClass { class: (*class).to_owned() });
        }
        (SnapshotClassLookup::Unnamed(Err(why)), SourceClaim::Ours(_)) => {
            return refused(Rule::NoDefaultClass, o, why.clone());
        }
        (SnapshotClassLookup::Unnamed(_), _) => return Rule::NotOurs.nothing(),
    };
    if o.content.is_some() {
        let name = names::content_name(&snapshot.uid);
        let why = format!("the VolumeSnapshotContent {name} belongs to another snapshot; find out who made it");
        return refused(Rule::ContentOfOther, o, why);
    }
    match &o.source {
        SourceClaim::Ours(_) if !snapshot.has_finalizer() => Rule::ProtectSnapshot.step(Step::AddFinalizer),
        SourceClaim::Ours(_) => Rule::CreateContent.step(Step::CreateContent { policy }),
        SourceClaim::Foreign => refused(
            Rule::VolumeOfOther,
            o,
            "the driver of the snapshot's class did not make the claim's volume; name a VolumeSnapshotClass of the driver that made it".into(),
        ),
        SourceClaim::Unbound(why) => refused(Rule::NoVolume, o, why.clone()),
    }
}

/// Decides about an existing snapshot of somebody else.
fn existing(o: &Observed<'_>, name: &str) -> Decision {
    let snapshot = o.snapshot;
    let Some(content) = o.content else {
        return match &o.class {
            SnapshotClassLookup::Ours { .. } => {
                let why = format!("the VolumeSnapshotContent {name} does not exist; the provisioner waits for it");
                refused(Rule::ContentMissing, o, why)
            }
            SnapshotClassLookup::NotOurs | SnapshotClassLookup::Unnamed(_) => Rule::NotOurs.nothing(),
        };
    };
    if !o.content_ours {
        return Rule::NotOurs.nothing();
    }
    if content.handle.is_none() {
        let why = format!(
            "the VolumeSnapshotContent {name} was made for another snapshot; a VolumeSnapshot can only name a content that has a snapshotHandle"
        );
        return refused(Rule::ContentOfOther, o, why);
    }
    let named = content.snapshot == snapshot.name;
    if !named || content.snapshot_uid.as_ref().is_some_and(|uid| *uid != snapshot.uid) {
        let why = format!("the VolumeSnapshotContent {name} is for VolumeSnapshot {}", content.snapshot);
        return refused(Rule::ContentOfOther, o, why);
    }
    match (content.terminating, snapshot.has_finalizer(), content.snapshot_uid.is_none()) {
        (true, _, true) => {
            let why = format!("the VolumeSnapshotContent {name} is being deleted");
            refused(Rule::UnboundContentTerminating, o, why)
        }
        (false, false, _) => Rule::ProtectSnapshot.step(Step::AddFinalizer),
        (false, true, true) => Rule::BindContent.step(Step::BindContent),
        (_, _, false) => bound(o, content),
    }
}

/// Decides about a VolumeSnapshot with its content.
fn bound(o: &Observed<'_>, content: &Content) -> Decision {
    if !o.snapshot.has_finalizer() && !content.terminating {
        return Rule::ProtectSnapshot.step(Step::AddFinalizer);
    }
    let before = &o.snapshot.status;
    let status = mirrored(content, before);
    if status == *before {
        return Rule::StatusCurrent.nothing();
    }
    let becomes_ready = status.ready == Some(true) && before.ready != Some(true);
    let decision = Rule::MirrorStatus.step(Step::Mirror(status));
    match becomes_ready {
        true => decision.with_event(reason::SNAPSHOT_READY, "the snapshot can be restored"),
        false => decision,
    }
}

/// Returns the status of a VolumeSnapshot for its content. A time and size in the old status stay, because nobody may
/// change them.
pub fn mirrored(content: &Content, before: &Status) -> Status {
    Status {
        content: Some(content.name.clone()),
        ready: Some(content.ready),
        made_at: before.made_at.or(content.made_at),
        size: before.size.filter(|size| *size > 0).or(content.size).or(before.size),
        error: content.error.clone(),
    }
}

#[cfg(test)]
#[path = "decide_tests.rs"]
mod tests;
