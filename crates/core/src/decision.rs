//! The form of a decision: a step, what is said with it, and when to decide again.

use contract::reason::Reason;

/// Something to say on an object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tell {
    /// It is a warning.
    pub warning: bool,
    /// The event's reason.
    pub reason: &'static Reason,
    /// The event's message.
    pub message: String,
}

/// A decision.
#[derive(Clone, Debug, PartialEq)]
pub struct Decision<Step> {
    /// What to do.
    pub step: Step,
    /// What to say.
    pub tell: Option<Tell>,
    /// When to decide again if nothing happens, in seconds since 1970.
    pub wake_at: Option<i64>,
}

impl<Step> From<Step> for Decision<Step> {
    fn from(step: Step) -> Self {
        Decision { step, tell: None, wake_at: None }
    }
}

impl<Step> Decision<Step> {
    /// A step, with a warning.
    pub fn warning(step: Step, reason: &'static Reason, message: impl Into<String>) -> Self {
        Decision::from(step).saying(true, reason, message)
    }

    /// The same, with something to say.
    pub fn saying(mut self, warning: bool, reason: &'static Reason, message: impl Into<String>) -> Self {
        debug_assert!(reason.allows(warning), "an event {reason} is no warning, or always one");
        self.tell = Some(Tell { warning, reason, message: message.into() });
        self
    }

    /// The same where it does or says something, else the other; to be decided again at the earlier time.
    pub fn or(self, other: Self) -> Self
    where
        Step: Default + PartialEq,
    {
        let wake_at = self.wake_at.into_iter().chain(other.wake_at).min();
        let idle = self.step == Step::default() && (self.tell.is_none() || other.step != Step::default());
        Decision { wake_at, ..if idle { other } else { self } }
    }

    /// The same as a step among others.
    pub fn as_part_of<Whole: Default>(self, whole: impl FnOnce(Step) -> Whole) -> Decision<Whole>
    where
        Step: Default + PartialEq,
    {
        let Decision { step, tell, wake_at } = self;
        let step = if step == Step::default() && tell.is_none() { Whole::default() } else { whole(step) };
        Decision { step, tell, wake_at }
    }

    /// The same, to be decided again at this time.
    pub fn until(mut self, at: i64) -> Self {
        self.wake_at = Some(at);
        self
    }
}
