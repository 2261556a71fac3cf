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
//! The [rules](Rule) say when which step is taken.
//!
//! [ADR 6]: https://github.com/flex-provisioner/flex-provisioner/blob/main/docs/adr/0006-binding-in-one-step.md

use std::time::Duration;

use strum::{EnumMessage, IntoStaticStr, VariantArray};

use crate::rules::{self, Rule as _};

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
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Step {
    /// Waits for an event.
    #[default]
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

/// The rules of sync probes, in their order: the first that holds applies.
#[derive(Clone, Copy, Debug, PartialEq, Eq, EnumMessage, IntoStaticStr, VariantArray)]
pub enum Rule {
    /// A probe exists that is neither the current one nor terminating. Deletes it.
    ProbeOutdated,
    /// The current probe has no phase yet. Waits, at most 10 s.
    ProbeAwaited,
    /// The current probe has had no phase for 10 s. Gives it up.
    ProbeTimedOut,
    /// At least 3 volumes wait for a first probe, or one for its second. Creates a probe.
    VolumesWaiting,
    /// Nothing waits for a probe. Does nothing.
    NothingWaiting,
}

rules::table!(Rule, Step, "sync-probe");

/// A decision about sync probes.
pub type Decision = rules::Decision<Rule>;

/// Decides the next step.
pub fn decide(o: &Observed<'_>) -> Decision {
    match (o.old, o.current) {
        (Some(old), _) => Rule::ProbeOutdated.step(Step::DeleteProbe(old.to_owned())),
        (None, Some(since)) if since < PROBE_TIMEOUT => Rule::ProbeAwaited.step(Step::Wait(PROBE_TIMEOUT - since)),
        (None, Some(_)) => Rule::ProbeTimedOut.step(Step::GiveUpProbe),
        (None, None) if o.many => Rule::VolumesWaiting.step(Step::Create),
        (None, None) => Rule::NothingWaiting.nothing(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_rule_has_its_step() {
        let old = Observed { old: Some("a"), current: Some(Duration::ZERO), many: true };
        assert_eq!(decide(&old), Rule::ProbeOutdated.step(Step::DeleteProbe("a".into())));
        let current = Observed { old: None, ..old };
        assert_eq!(decide(&current), Rule::ProbeAwaited.step(Step::Wait(PROBE_TIMEOUT)));
        let late = Observed { current: Some(PROBE_TIMEOUT), ..current.clone() };
        assert_eq!(decide(&late), Rule::ProbeTimedOut.step(Step::GiveUpProbe));
        let none = Observed { current: None, ..current };
        assert_eq!(decide(&none), Rule::VolumesWaiting.step(Step::Create));
        assert_eq!(decide(&Observed { many: false, ..none }), Rule::NothingWaiting.nothing());
    }

    #[test]
    fn the_documentation_says_the_limits() {
        let timeout = format!("{} s", PROBE_TIMEOUT.as_secs());
        assert!(Rule::ProbeAwaited.documentation().contains(&timeout));
        assert!(Rule::ProbeTimedOut.documentation().contains(&timeout));
        assert!(Rule::VolumesWaiting.documentation().contains(&format!("{MIN_VOLUMES} volumes")));
    }
}
