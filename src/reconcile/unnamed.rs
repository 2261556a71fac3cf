//! The rules of tables whose rules have no names yet.

use std::fmt;
use std::marker::PhantomData;

use crate::decision;
use crate::rules::{Decision, Rule};

/// The steps of such a table.
pub(super) trait Steps: fmt::Debug + Default + PartialEq + Send + 'static {
    /// The word for the objects of the table.
    const OBJECT: &'static str;
}

impl Steps for crate::snapshot::bind::Step {
    const OBJECT: &'static str = "snapshot";
}

impl Steps for crate::snapshot::decide::Step {
    const OBJECT: &'static str = "content";
}

/// The only rule of such a table.
pub(super) struct Unnamed<Step>(PhantomData<fn() -> Step>);

impl<Step> Clone for Unnamed<Step> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<Step> Copy for Unnamed<Step> {}

impl<Step> fmt::Debug for Unnamed<Step> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Unnamed")
    }
}

impl<Step> PartialEq for Unnamed<Step> {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

impl<Step> Eq for Unnamed<Step> {}

impl<S: Steps> Rule for Unnamed<S> {
    type Step = S;
    const OBJECT: &'static str = S::OBJECT;

    fn all() -> Vec<Self> {
        vec![Unnamed(PhantomData)]
    }

    fn name(self) -> &'static str {
        "Unnamed"
    }

    fn documentation(self) -> &'static str {
        "The rules of this table have no names yet."
    }
}

/// Gives a decision of such a table the form of the others.
pub(super) fn unnamed<S: Steps>(decision: decision::Decision<S>) -> Decision<Unnamed<S>> {
    let decision::Decision { step, event, requeue_at } = decision;
    Decision { rule: Unnamed(PhantomData), step, event, requeue_at }
}
