//! The form of a decision table: rules with names, and what they decide.
//!
//! Each table is an enum whose variants are its rules, in groups. The decision first finds the group, and code says how.
//! Within the group, the documentation of a rule says when it holds, and the first that holds applies. Logs, metrics, tests,
//! the simulation and `docs/internals/rules.md` name rules by these variants.

use std::fmt::Debug;

use flex_contract::reason::Reason;

/// The rules of one decision table.
pub trait Rule: Copy + Debug + Eq + 'static {
    /// The steps of the table. The default step, where there is one, does nothing.
    type Step: Debug + PartialEq;

    /// The word for the objects of the table, as the metric names them, such as `claim`.
    const OBJECT: &'static str;

    /// Returns all rules in the order of the table.
    fn all() -> Vec<Self>;

    /// Returns the name of the rule, as logs and metrics show it.
    fn name(self) -> &'static str;

    /// Returns the documentation of the rule: when it holds, and what it does.
    fn documentation(self) -> &'static str;

    /// Returns for what the run is about which the rule decides, if it is one of [`run::rule`](crate::run::rule).
    fn target(self) -> Option<&'static str> {
        None
    }

    /// Decides a step.
    fn step(self, step: Self::Step) -> Decision<Self> {
        Decision { rule: self, step, event: None, requeue_at: None }
    }

    /// Decides to do nothing. The next event brings a new decision.
    fn nothing(self) -> Decision<Self>
    where
        Self::Step: Default,
    {
        self.step(Self::Step::default())
    }

    /// Decides to do nothing but emit a warning.
    fn warn(self, reason: &'static Reason, message: impl Into<String>) -> Decision<Self>
    where
        Self::Step: Default,
    {
        self.nothing().with_warning(reason, message)
    }
}

/// Implements [`Rule`] for an enum without fields. The enum derives `EnumMessage`, `IntoStaticStr` and `VariantArray`
/// of strum.
macro_rules! table {
    ($rule:ty, $step:ty, $object:literal) => {
        impl $crate::rules::Rule for $rule {
            type Step = $step;
            const OBJECT: &'static str = $object;

            fn all() -> Vec<Self> {
                <Self as strum::VariantArray>::VARIANTS.to_vec()
            }

            fn name(self) -> &'static str {
                self.into()
            }

            fn documentation(self) -> &'static str {
                strum::EnumMessage::get_documentation(&self).unwrap_or_default().trim()
            }
        }
    };
}

pub(crate) use table;

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

/// A decision about an object: the rule that applies, its step, an event, and the time of the next decision.
#[derive(Clone, Debug, PartialEq)]
pub struct Decision<R: Rule> {
    /// The rule that applies.
    pub rule: R,
    /// The next step.
    pub step: R::Step,
    /// The event to emit, if any.
    pub event: Option<NewEvent>,
    /// The time of the next decision if nothing happens, in seconds since 1970.
    pub requeue_at: Option<i64>,
}

impl<R: Rule> Decision<R> {
    /// Adds a warning.
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

    /// Sets the time of the next decision.
    pub fn requeue_at(mut self, at: i64) -> Self {
        self.requeue_at = Some(at);
        self
    }

    /// Checks whether the decision has neither a step nor an event.
    pub fn is_idle(&self) -> bool
    where
        R::Step: Default,
    {
        self.step == R::Step::default() && self.event.is_none()
    }
}
