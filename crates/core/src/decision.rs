//! The form of a decision: a step, an event, and the time of the next decision.

use flex_contract::reason::Reason;

/// An event to emit on an object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewEvent {
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
    pub event: Option<NewEvent>,
    /// The time of the next decision if nothing happens, in seconds since 1970.
    pub requeue_at: Option<i64>,
}

impl<Step> From<Step> for Decision<Step> {
    fn from(step: Step) -> Self {
        Decision { step, event: None, requeue_at: None }
    }
}

impl<Step> Decision<Step> {
    /// Makes a decision of a step with a warning.
    pub fn warning(step: Step, reason: &'static Reason, message: impl Into<String>) -> Self {
        Decision::from(step).with_warning(reason, message)
    }

    /// Adds a warning to the decision.
    pub fn with_warning(self, reason: &'static Reason, message: impl Into<String>) -> Self {
        self.with(NewEvent { warning: true, reason, message: message.into() })
    }

    /// Adds an event that is no warning.
    pub fn with_event(self, reason: &'static Reason, message: impl Into<String>) -> Self {
        self.with(NewEvent { warning: false, reason, message: message.into() })
    }

    fn with(mut self, event: NewEvent) -> Self {
        self.event = Some(event);
        self
    }

    /// Returns this decision if it has a step or an event, else the other. The earlier of both times applies.
    pub fn or(self, other: Self) -> Self
    where
        Step: Default + PartialEq,
    {
        let requeue_at = self.requeue_at.into_iter().chain(other.requeue_at).min();
        let idle = self.step == Step::default() && (self.event.is_none() || other.step != Step::default());
        Decision { requeue_at, ..if idle { other } else { self } }
    }

    /// Turns the step into one of another type.
    pub fn as_part_of<Whole: Default>(self, whole: impl FnOnce(Step) -> Whole) -> Decision<Whole>
    where
        Step: Default + PartialEq,
    {
        let Decision { step, event, requeue_at } = self;
        let step = if step == Step::default() && event.is_none() { Whole::default() } else { whole(step) };
        Decision { step, event, requeue_at }
    }

    /// Adds the time of the next decision.
    pub fn requeue_at(mut self, at: i64) -> Self {
        self.requeue_at = Some(at);
        self
    }
}
