//! Markers: how the orchestrator learns, of many volumes at one time, that the PV controller knows them.
//!
//! The PV controller calls a claim Lost whose binding is complete before it knows the volume as the claim's ([ADR 6]). Of one
//! volume it shows that by the phase that it writes; of many that comes at the pace of its limits. A *marker* is a volume that
//! nobody can claim. The controller takes volumes up in the order in which they change, and writes the phase of one that is
//! reserved as it takes it up: when a marker has its phase, it has gone over what was there before the marker. One volume may
//! have been in its hands just then, and is taken up anew: two markers, one after the other, tell of all.
//!
//! The first row that holds is taken.
//!
//! | # | there is | and | step |
//! |---|---|---|---|
//! | 1 | a marker that is not the current one | is not going | [`Step::Remove`] |
//! | 2 | a current one | for less than [`PATIENCE`] | [`Step::Wait`] |
//! | 3 | a current one | for longer | [`Step::GiveUp`] |
//! | 4 | none | [`MANY`] volumes wait to be known, or more; or one of which the first marker has told | [`Step::Create`] |
//! | 5 | none | | [`Step::Nothing`] |
//!
//! [ADR 6]: https://github.com/flex-provisioner/flex-provisioner/blob/main/docs/adr/0006-binding-in-one-step.md

use std::time::Duration;

/// So many volumes are worth markers, each of which costs two writes and gets the controller manager to make two. Fewer it gets
/// to as fast.
pub const MANY: usize = 3;
/// How long a marker may be without its phase. The controller may be slow, or down; or nobody knows whether it was created.
pub const PATIENCE: Duration = Duration::from_secs(10);

/// All that the decision rests on.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Observed<'a> {
    /// A marker of this orchestrator that is not the current one, and is not going.
    pub old: Option<&'a str>,
    /// Since when there is a current one.
    pub current: Option<Duration>,
    /// Volumes wait to be known that are worth one.
    pub many: bool,
}

/// What to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// Nothing, until an event.
    Nothing,
    /// Nothing, until an event or this time has passed.
    Wait(Duration),
    /// Create one, and have it be the current one.
    Create,
    /// Delete this one.
    Remove(String),
    /// The current one is so no more.
    GiveUp,
}

/// The next step.
pub fn decide(o: &Observed<'_>) -> Step {
    match (o.old, o.current) {
        (Some(old), _) => Step::Remove(old.to_owned()),
        (None, Some(since)) if since < PATIENCE => Step::Wait(PATIENCE - since),
        (None, Some(_)) => Step::GiveUp,
        (None, None) if o.many => Step::Create,
        (None, None) => Step::Nothing,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_1_to_5() {
        let old = Observed { old: Some("a"), current: Some(Duration::ZERO), many: true };
        assert_eq!(decide(&old), Step::Remove("a".into()));
        let current = Observed { old: None, ..old };
        assert_eq!(decide(&current), Step::Wait(PATIENCE));
        assert_eq!(decide(&Observed { current: Some(PATIENCE), ..current.clone() }), Step::GiveUp);
        let none = Observed { current: None, ..current };
        assert_eq!(decide(&none), Step::Create);
        assert_eq!(decide(&Observed { many: false, ..none }), Step::Nothing);
    }
}
