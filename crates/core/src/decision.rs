//! The form of a decision: a step, an event, and the time of the next decision.

use contract::reason::Reason;

/// An event to emit on an object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tell {
    /// The event is a warning.
    pub warning: bool,
    /// The reason of the event.
    pub reason: &'static Reason,
    /// The message of the event.
    pub message: String,
}

/// A decision about an object.
#[derive(Clone, Debug, PartialEq)]
pub struct Decision<Step> {
    /// The next step.
    pub step: Step,
    /// The event to emit, if any.
    pub tell: Option<Tell>,
    /// The time of the next decision if nothing happens, in seconds since 1970.
    pub wake_at: Option<i64>,
}

impl<Step> From<Step> for Decision<Step> {
    fn from(step: Step) -> Self {
        Decision { step, tell: None, wake_at: None }
    }
}

impl<Step> Decision<Step> {
    /// Makes a decision of a step with a warning.
    pub fn warning(step: Step, reason: &'static Reason, message: impl Into<String>) -> Self {
        Decision::from(step).saying(true, reason, message)
    }

    /// Adds an event to the decision.
    pub fn saying(mut self, warning: bool, reason: &'static Reason, message: impl Into<String>) -> Self {
        debug_assert!(reason.allows(warning), "an event {reason} is no warning, or always one");
        self.tell = Some(Tell { warning, reason, message: message.into() });
        self
    }

    /// Returns this decision if it has a step or an event, else the other. The earlier of both times applies.
    pub fn or(self, other: Self) -> Self
    where
        Step: Default + PartialEq,
    {
        let wake_at = self.wake_at.into_iter().chain(other.wake_at).min();
        let idle = self.step == Step::default() && (self.tell.is_none() || other.step != Step::default());
        Decision { wake_at, ..if idle { other } else { self } }
    }

    /// Turns the step into one of another type.
    pub fn as_part_of<Whole: Default>(self, whole: impl FnOnce(Step) -> Whole) -> Decision<Whole>
    where
        Step: Default + PartialEq,
    {
        let Decision { step, tell, wake_at } = self;
        let step = if step == Step::default() && tell.is_none() { Whole::default() } else { whole(step) };
        Decision { step, tell, wake_at }
    }

    /// Adds the time of the next decision.
    pub fn until(mut self, at: i64) -> Self {
        self.wake_at = Some(at);
        self
    }
}
