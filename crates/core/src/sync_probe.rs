//! Sync probes show the orchestrator, for many volumes at once, that the PV controller has seen them.
//!
//! The PV controller calls a claim Lost if its binding is complete before the controller has seen the volume with the
//! claim ([ADR 6]). The phase of a volume shows that the controller has seen it. But the controller writes the phases
//! of many volumes only as fast as its rate limit allows. A *sync probe* is a volume that nobody can claim. The
//! controller takes up volumes in the order of their changes, and writes the phase of a reserved volume when it takes
//! the volume up. So when a probe has its phase, the controller has taken up all volumes that changed before the probe.
//! One volume may have been in progress at that moment, and is taken up again. So two probes, one after the other,
//! cover all volumes.
//!
//! The first row that holds applies.
//!
//! | # | there is | and | step |
//! |---|---|---|---|
//! | 1 | a probe that is not the current one | it is not terminating | [`Step::DeleteProbe`] |
//! | 2 | a current probe | for less than [`PROBE_TIMEOUT`] | [`Step::Wait`] |
//! | 3 | a current probe | for longer | [`Step::GiveUpProbe`] |
//! | 4 | no probe | [`MIN_VOLUMES`] unseen volumes wait, or more; or one for which the first probe has its phase | [`Step::Create`] |
//! | 5 | no probe | | [`Step::Nothing`] |
//!
//! [ADR 6]: https://github.com/flex-provisioner/flex-provisioner/blob/main/docs/adr/0006-binding-in-one-step.md

use std::time::Duration;

/// The smallest number of waiting volumes for which a probe is created. A probe costs two writes here, and two of the
/// controller manager. The controller writes the phases of fewer volumes just as fast.
pub const MIN_VOLUMES: usize = 3;
/// The longest time without a phase. The controller may be slow or down, or the creation of the probe may have failed
/// unnoticed.
pub const PROBE_TIMEOUT: Duration = Duration::from_secs(10);

/// The observation on which the decision rests.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Observed<'a> {
    /// A probe of this orchestrator that is neither the current one nor terminating.
    pub old: Option<&'a str>,
    /// The time since the current probe was created.
    pub current: Option<Duration>,
    /// Enough volumes wait for a probe.
    pub many: bool,
}

/// The next step.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// Waits for an event.
    Nothing,
    /// Waits for an event, or for this time.
    Wait(Duration),
    /// Creates a probe, which becomes the current one.
    Create,
    /// Deletes this probe.
    DeleteProbe(String),
    /// Gives up the current probe.
    GiveUpProbe,
}

/// Decides the next step.
pub fn decide(o: &Observed<'_>) -> Step {
    match (o.old, o.current) {
        (Some(old), _) => Step::DeleteProbe(old.to_owned()),
        (None, Some(since)) if since < PROBE_TIMEOUT => Step::Wait(PROBE_TIMEOUT - since),
        (None, Some(_)) => Step::GiveUpProbe,
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
        assert_eq!(decide(&old), Step::DeleteProbe("a".into()));
        let current = Observed { old: None, ..old };
        assert_eq!(decide(&current), Step::Wait(PROBE_TIMEOUT));
        assert_eq!(decide(&Observed { current: Some(PROBE_TIMEOUT), ..current.clone() }), Step::GiveUpProbe);
        let none = Observed { current: None, ..current };
        assert_eq!(decide(&none), Step::Create);
        assert_eq!(decide(&Observed { many: false, ..none }), Step::Nothing);
    }
}
