//! Which content a VolumeSnapshot gets, and what its status says: a pure function of what was observed.
//!
//! The first row that holds is taken. "Held" means that our finalizer is on the VolumeSnapshot, "its content" the one
//! that refers to it by its UID.
//!
//! | # | the VolumeSnapshot is | and | step |
//! |---|---|---|---|
//! | 1 | going, not held | | nothing |
//! | 2 | going, held | its content is going | wait for its end |
//! | 3 | going, held | its content is not ready, or to be deleted | [`Step::DeleteContent`] |
//! | 4 | going, held | its content is to stay | [`Step::Release`] |
//! | 5 | going, held | that it has no content is not sure | [`Step::ConfirmNoContent`] |
//! | 6 | going, held | it has no content | [`Step::Release`] |
//! | 7 | of a class or content of another driver | | nothing |
//! | 8 | of a CSI volume, not held | | nothing: it is the snapshot-controller's |
//! | 9 | of a claim, without a class | its volume is ours | [`Step::SetClass`], or told that there is no default |
//! | 10 | not held | its content could be bound, or its claim has a volume | [`Step::Hold`] |
//! | 11 | of a claim, without content | it can be made | [`Step::CreateContent`] |
//! | 12 | without content | it cannot be made, or is not there | [`Step::Refuse`], or nothing where an error stands there; told |
//! | 13 | of a content | that is not bound | [`Step::BindContent`] |
//! | 14 | with its content | its status says something else than the content's | [`Step::Mirror`] |
//! | 15 | with its content | | nothing |
//!
//! Where an error stands in the status already before there is a content, it is left: the snapshot-controller writes its
//! own whenever it finds another, and the two would write for ever. As soon as there is a content both write what that says.

use contract::names::{self, reason};

use super::{Content, Of, Snapshot, Status};
use crate::volume::Volume;

/// What is known of a VolumeSnapshot's class.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ClassOf<'a> {
    /// Another driver's, or not there.
    NotOurs,
    /// Ours, with this policy.
    Ours {
        /// `Delete` or `Retain`.
        policy: &'a str,
    },
    /// It names none. The default of our driver, or why there is none.
    Unnamed(Result<&'a str, String>),
}

/// The claim that a VolumeSnapshot is to be of.
#[derive(Clone, Debug)]
pub enum Source<'a> {
    /// It is bound to this volume, which was made by this orchestrator.
    Ours(&'a Volume),
    /// Its volume is somebody else's.
    Foreign,
    /// It has no volume, for this reason.
    Unbound(String),
}

/// All that the decision rests on.
#[derive(Clone, Debug)]
pub struct Observed<'a> {
    /// The VolumeSnapshot.
    pub snapshot: &'a Snapshot,
    /// Its class.
    pub class: ClassOf<'a>,
    /// Its source, where it is to be of a claim.
    pub source: Source<'a>,
    /// The content of its name.
    pub content: Option<&'a Content>,
    /// That content is of our driver, and not another instance's.
    pub content_ours: bool,
    /// A quorum read found no content that is its own.
    pub no_content: bool,
}

/// What to do.
#[derive(Clone, Debug, Default, PartialEq, strum::VariantNames)]
pub enum Step {
    /// Nothing; the next event decides again.
    #[default]
    Nothing,
    /// Put the finalizer on.
    Hold,
    /// Write the default class on it.
    SetClass {
        /// Its name.
        class: String,
    },
    /// Create the content that it is to be bound to.
    CreateContent {
        /// `Delete` or `Retain`.
        policy: String,
    },
    /// Write its UID on the content that names it.
    BindContent,
    /// Write into its status how its content stands.
    Mirror(Status),
    /// Write into its status why it has no content.
    Refuse {
        /// Why.
        why: String,
    },
    /// Delete its content; what is stored goes before that does.
    DeleteContent,
    /// Ask the API, not the cache, whether there is a content, and decide again.
    ConfirmNoContent,
    /// Take the finalizer off.
    Release,
}

/// A decision about a VolumeSnapshot.
pub type Decision = crate::decision::Decision<Step>;

/// The next step for a VolumeSnapshot.
pub fn decide(o: &Observed<'_>) -> Decision {
    let snapshot = o.snapshot;
    if snapshot.deleting {
        return if snapshot.is_held() { leaving(o).into() } else { Step::Nothing.into() };
    }
    match &snapshot.of {
        Of::Claim(_) => dynamic(o),
        Of::Content(name) => existing(o, name),
        Of::Nothing => Step::Nothing.into(),
    }
}

/// Its content: the one of the right name that refers to it.
fn own<'a>(o: &Observed<'a>) -> Option<&'a Content> {
    o.content.filter(|content| content.snapshot_uid == o.snapshot.uid && content.snapshot == o.snapshot.name)
}

/// Rows 2 to 6.
fn leaving(o: &Observed<'_>) -> Step {
    match own(o) {
        Some(content) if content.deleting => Step::Nothing,
        Some(content) if !content.ready || content.policy == "Delete" => Step::DeleteContent,
        Some(_) => Step::Release,
        // Also where one is seen that was not bound to it: that it is bound by now may not be seen yet.
        None if !o.no_content => Step::ConfirmNoContent,
        None => Step::Release,
    }
}

/// It cannot be bound: told, and written where nothing is written yet.
fn refused(o: &Observed<'_>, why: String) -> Decision {
    let status = &o.snapshot.status;
    let step = match status.error.is_none() && status.ready != Some(true) {
        true => Step::Refuse { why: why.clone() },
        false => Step::Nothing,
    };
    Decision::from(step).saying(true, reason::SNAPSHOT_FAILED, why)
}

/// Rows 7 to 12, 14 and 15, of a snapshot that is to be made.
fn dynamic(o: &Observed<'_>) -> Decision {
    let snapshot = o.snapshot;
    if let Some(content) = own(o) {
        // One of a CSI volume is the snapshot-controller's.
        let ours = o.content_ours && (snapshot.is_held() || content.instance.is_some());
        return if ours { bound(o, content) } else { Step::Nothing.into() };
    }
    let policy = match (&o.class, &o.source) {
        (ClassOf::NotOurs, _) => return Step::Nothing.into(),
        (_, Source::Ours(volume)) if volume.source == Some("csi") => return Step::Nothing.into(),
        (ClassOf::Ours { policy }, _) => (*policy).to_owned(),
        (ClassOf::Unnamed(Ok(class)), Source::Ours(_)) => return Step::SetClass { class: (*class).to_owned() }.into(),
        (ClassOf::Unnamed(Err(why)), Source::Ours(_)) => return refused(o, why.clone()),
        (ClassOf::Unnamed(_), _) => return Step::Nothing.into(),
    };
    if o.content.is_some() {
        let name = names::content_name(&snapshot.uid);
        return refused(
            o,
            format!("the VolumeSnapshotContent {name} belongs to another snapshot; find out who made it"),
        );
    }
    match &o.source {
        Source::Ours(_) if !snapshot.is_held() => Step::Hold.into(),
        Source::Ours(_) => Step::CreateContent { policy }.into(),
        Source::Foreign => refused(
            o,
            "the driver of the snapshot's class did not make the claim's volume; name a VolumeSnapshotClass of the driver that made it".into(),
        ),
        Source::Unbound(why) => refused(o, why.clone()),
    }
}

/// Rows 7, 10 and 12 to 15, of a snapshot that somebody else made.
fn existing(o: &Observed<'_>, name: &str) -> Decision {
    let snapshot = o.snapshot;
    let Some(content) = o.content else {
        return match &o.class {
            ClassOf::Ours { .. } => {
                refused(o, format!("the VolumeSnapshotContent {name} does not exist; the provisioner waits for it"))
            }
            ClassOf::NotOurs | ClassOf::Unnamed(_) => Step::Nothing.into(),
        };
    };
    if !o.content_ours {
        return Step::Nothing.into();
    }
    if content.handle.is_none() {
        return refused(
            o,
            format!(
                "the VolumeSnapshotContent {name} was made for another snapshot; you can only name a content with a snapshotHandle"
            ),
        );
    }
    let named = content.snapshot == snapshot.name;
    if !named || !(content.snapshot_uid.is_empty() || content.snapshot_uid == snapshot.uid) {
        return refused(o, format!("the VolumeSnapshotContent {name} is for VolumeSnapshot {}", content.snapshot));
    }
    match (content.deleting, snapshot.is_held(), content.snapshot_uid.is_empty()) {
        (true, _, true) => refused(o, format!("the VolumeSnapshotContent {name} is being deleted")),
        (false, false, _) => Step::Hold.into(),
        (false, true, true) => Step::BindContent.into(),
        (_, _, false) => bound(o, content),
    }
}

/// Rows 10, 14 and 15.
fn bound(o: &Observed<'_>, content: &Content) -> Decision {
    if !o.snapshot.is_held() && !content.deleting {
        return Step::Hold.into();
    }
    let status = mirrored(content, &o.snapshot.status);
    match status == o.snapshot.status {
        true => Step::Nothing.into(),
        false => {
            let ready = status.ready == Some(true) && o.snapshot.status.ready != Some(true);
            let decision = Decision::from(Step::Mirror(status));
            match ready {
                true => decision.saying(false, reason::SNAPSHOT_READY, "the snapshot can be restored"),
                false => decision,
            }
        }
    }
}

/// What a VolumeSnapshot's status says for a content. What stands there of time and size stays, as nobody may change it.
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
