//! Decides which content a VolumeSnapshot gets, and its status: a pure function of the observation.
//!
//! The first row that holds applies. "Held" means that the VolumeSnapshot has the orchestrator's finalizer. "Its
//! content" is the content that refers to the VolumeSnapshot by its UID.
//!
//! | # | the VolumeSnapshot is | and | step |
//! |---|---|---|---|
//! | 1 | terminating, not held | | nothing |
//! | 2 | terminating, held | its content is terminating | wait for its end |
//! | 3 | terminating, held | its content is not ready, or must be deleted | [`Step::DeleteContent`] |
//! | 4 | terminating, held | its content must stay | [`Step::RemoveFinalizer`] |
//! | 5 | terminating, held | it is not certain that it has no content | [`Step::ConfirmNoContent`] |
//! | 6 | terminating, held | it has no content | [`Step::RemoveFinalizer`] |
//! | 7 | of a class or content of another driver | | nothing |
//! | 8 | of a CSI volume, not held | | nothing: the snapshot-controller serves it |
//! | 9 | of a claim, without a class | its volume is the orchestrator's | [`Step::SetClass`], or an event that there is no default |
//! | 10 | not held | its content could be bound, or its claim has a volume | [`Step::AddFinalizer`] |
//! | 11 | of a claim, without content | it can be made | [`Step::CreateContent`] |
//! | 12 | without content | it cannot be made, or its content does not exist | [`Step::Refuse`], or nothing if the status has an error; an event |
//! | 13 | of a content | the content is not bound | [`Step::BindContent`] |
//! | 14 | with its content | its status differs from the content's | [`Step::Mirror`] |
//! | 15 | with its content | | nothing |
//!
//! An error that is in the status before there is a content stays. The snapshot-controller writes its own error
//! whenever it finds another, and both would write forever. As soon as there is a content, both write what the content
//! says.

use flex_contract::names::{self, reason};

use crate::model::snapshot::Content;
use crate::model::snapshot::Of;
use crate::model::snapshot::Snapshot;
use crate::model::snapshot::Status;
use crate::model::volume::Volume;

/// The class of a VolumeSnapshot.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SnapshotClassLookup<'a> {
    /// The class belongs to another driver, or does not exist.
    NotOurs,
    /// The class is the orchestrator's, with this policy.
    Ours {
        /// The deletion policy: `Delete` or `Retain`.
        policy: &'a str,
    },
    /// The VolumeSnapshot names no class. The default of the orchestrator's driver, or the reason why there is none.
    Unnamed(Result<&'a str, String>),
}

/// The claim of which a VolumeSnapshot is made.
#[derive(Clone, Debug)]
pub enum Source<'a> {
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
    pub source: Source<'a>,
    /// The content with the VolumeSnapshot's content name.
    pub content: Option<&'a Content>,
    /// The content belongs to the orchestrator's driver, and to no other instance.
    pub content_ours: bool,
    /// A quorum read found no content of the VolumeSnapshot.
    pub no_content: bool,
}

/// The next step for a VolumeSnapshot.
#[derive(Clone, Debug, Default, PartialEq, strum::VariantNames)]
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
        /// The deletion policy: `Delete` or `Retain`.
        policy: String,
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

/// A decision about a VolumeSnapshot: the next step, an event, and a time.
pub type Decision = crate::decision::Decision<Step>;

/// Decides the next step for a VolumeSnapshot.
pub fn decide(o: &Observed<'_>) -> Decision {
    let snapshot = o.snapshot;
    if snapshot.deleting {
        return if snapshot.has_finalizer() { leaving(o).into() } else { Step::Nothing.into() };
    }
    match &snapshot.of {
        Of::Claim(_) => dynamic(o),
        Of::Content(name) => existing(o, name),
        Of::Nothing => Step::Nothing.into(),
    }
}

/// Returns the content of the VolumeSnapshot: it has the right name and refers to the VolumeSnapshot.
fn own<'a>(o: &Observed<'a>) -> Option<&'a Content> {
    o.content.filter(|content| content.snapshot_uid == o.snapshot.uid && content.snapshot == o.snapshot.name)
}

/// Decides rows 2 to 6.
fn leaving(o: &Observed<'_>) -> Step {
    match own(o) {
        Some(content) if content.deleting => Step::Nothing,
        Some(content) if !content.ready || content.policy == "Delete" => Step::DeleteContent,
        Some(_) => Step::RemoveFinalizer,
        // A content that does not seem bound may have been bound a moment ago.
        None if !o.no_content => Step::ConfirmNoContent,
        None => Step::RemoveFinalizer,
    }
}

/// Emits an event that the VolumeSnapshot cannot be bound, and writes the error if the status has none.
fn refused(o: &Observed<'_>, why: String) -> Decision {
    let status = &o.snapshot.status;
    let step = match status.error.is_none() && status.ready != Some(true) {
        true => Step::Refuse { why: why.clone() },
        false => Step::Nothing,
    };
    Decision::from(step).with_warning(reason::SNAPSHOT_FAILED, why)
}

/// Decides rows 7 to 12, 14 and 15, for a snapshot that is to be made.
fn dynamic(o: &Observed<'_>) -> Decision {
    let snapshot = o.snapshot;
    if let Some(content) = own(o) {
        // The content of a CSI volume belongs to the snapshot-controller.
        let ours = o.content_ours && (snapshot.has_finalizer() || content.instance.is_some());
        return if ours { bound(o, content) } else { Step::Nothing.into() };
    }
    let policy = match (&o.class, &o.source) {
        (SnapshotClassLookup::NotOurs, _) => return Step::Nothing.into(),
        (_, Source::Ours(volume)) if volume.source_kind == Some("csi") => return Step::Nothing.into(),
        (SnapshotClassLookup::Ours { policy }, _) => (*policy).to_owned(),
        (SnapshotClassLookup::Unnamed(Ok(class)), Source::Ours(_)) => {
            return Step::SetClass { class: (*class).to_owned() }.into();
        }
        (SnapshotClassLookup::Unnamed(Err(why)), Source::Ours(_)) => return refused(o, why.clone()),
        (SnapshotClassLookup::Unnamed(_), _) => return Step::Nothing.into(),
    };
    if o.content.is_some() {
        let name = names::content_name(&snapshot.uid);
        return refused(
            o,
            format!("the VolumeSnapshotContent {name} belongs to another snapshot; find out who made it"),
        );
    }
    match &o.source {
        Source::Ours(_) if !snapshot.has_finalizer() => Step::AddFinalizer.into(),
        Source::Ours(_) => Step::CreateContent { policy }.into(),
        Source::Foreign => refused(
            o,
            "the driver of the snapshot's class did not make the claim's volume; name a VolumeSnapshotClass of the driver that made it".into(),
        ),
        Source::Unbound(why) => refused(o, why.clone()),
    }
}

/// Decides rows 7, 10 and 12 to 15, for an existing snapshot of somebody else.
fn existing(o: &Observed<'_>, name: &str) -> Decision {
    let snapshot = o.snapshot;
    let Some(content) = o.content else {
        return match &o.class {
            SnapshotClassLookup::Ours { .. } => {
                refused(o, format!("the VolumeSnapshotContent {name} does not exist; the provisioner waits for it"))
            }
            SnapshotClassLookup::NotOurs | SnapshotClassLookup::Unnamed(_) => Step::Nothing.into(),
        };
    };
    if !o.content_ours {
        return Step::Nothing.into();
    }
    if content.handle.is_none() {
        return refused(
            o,
            format!(
                "the VolumeSnapshotContent {name} was made for another snapshot; a VolumeSnapshot can only name a content that has a snapshotHandle"
            ),
        );
    }
    let named = content.snapshot == snapshot.name;
    if !named || !(content.snapshot_uid.is_empty() || content.snapshot_uid == snapshot.uid) {
        return refused(o, format!("the VolumeSnapshotContent {name} is for VolumeSnapshot {}", content.snapshot));
    }
    match (content.deleting, snapshot.has_finalizer(), content.snapshot_uid.is_empty()) {
        (true, _, true) => refused(o, format!("the VolumeSnapshotContent {name} is being deleted")),
        (false, false, _) => Step::AddFinalizer.into(),
        (false, true, true) => Step::BindContent.into(),
        (_, _, false) => bound(o, content),
    }
}

/// Decides rows 10, 14 and 15.
fn bound(o: &Observed<'_>, content: &Content) -> Decision {
    if !o.snapshot.has_finalizer() && !content.deleting {
        return Step::AddFinalizer.into();
    }
    let status = mirrored(content, &o.snapshot.status);
    match status == o.snapshot.status {
        true => Step::Nothing.into(),
        false => {
            let ready = status.ready == Some(true) && o.snapshot.status.ready != Some(true);
            let decision = Decision::from(Step::Mirror(status));
            match ready {
                true => decision.with_event(reason::SNAPSHOT_READY, "the snapshot can be restored"),
                false => decision,
            }
        }
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
#[path = "bind_tests.rs"]
mod tests;
