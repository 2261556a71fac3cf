//! An open batch: a batch that collects its members, until its Job is created.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use flex_contract::operation::Operation;
use flex_contract::request::RunRequest;
use flex_core::batch::Member;
use flex_core::config::Recipe;
use flex_core::limits;
use flex_core::model::claim::Claim;
use flex_core::run::job::RunTarget;

/// An open batch: its members are being collected, and its Job is about to be created.
#[derive(Debug)]
pub(super) struct OpenBatch {
    pub(super) operation: Operation,
    /// The recipe version.
    pub(super) version: String,
    /// The node to which the pod is bound.
    pub(super) node: Option<String>,
    /// The batch makes pooled volumes, and no claim waits for it.
    pub(super) for_pool: bool,
    /// The last attempts of the members failed. They delay no claims whose first attempt is due.
    pub(super) is_retry: bool,
    pub(super) class: String,
    pub(super) size: usize,
    pub(super) window: Duration,
    pub(super) began: Duration,
    /// The time when the last member has joined.
    pub(super) joined: Duration,
    /// The ids of all stamped members, whether they have arrived or not.
    pub(super) stamped: BTreeSet<String>,
    /// The members that have arrived.
    pub(super) entries: Vec<WeighedEntry>,
}

/// A member that has arrived, with its part of the size of the Job.
#[derive(Debug)]
pub(super) struct WeighedEntry {
    pub(super) entry: BatchEntry,
    /// The estimated bytes that it adds.
    pub(super) bytes: usize,
    /// The estimated bytes that it adds to the record of the run.
    pub(super) recorded: usize,
}

/// A member that has arrived for its batch.
#[derive(Clone, Debug)]
pub struct BatchEntry {
    /// The member.
    pub member: Member,
    /// The request to the image.
    pub request: RunRequest,
    /// The target of the run.
    pub target: RunTarget,
    /// The recipe of the attempt.
    pub recipe: Arc<Recipe>,
    /// The claim for which the run makes a volume.
    pub claim: Option<Box<Claim>>,
}

impl OpenBatch {
    pub(super) fn new(
        operation: Operation,
        recipe: &Recipe,
        node: Option<&str>,
        for_pool: bool,
        is_retry: bool,
        began: Duration,
    ) -> Self {
        OpenBatch {
            operation,
            version: recipe.version(),
            node: node.map(str::to_owned),
            for_pool,
            is_retry,
            class: recipe.class.clone(),
            size: recipe.batch_size,
            window: recipe.batch_window,
            began,
            joined: began,
            stamped: BTreeSet::new(),
            entries: Vec::new(),
        }
    }

    /// Makes the batch for which this member has arrived.
    pub(super) fn of(entry: &BatchEntry, for_pool: bool, began: Duration) -> Self {
        let (node, is_retry) = (entry.target.node.as_deref(), entry.member.attempt > 1);
        OpenBatch::new(entry.request.operation, &entry.recipe, node, for_pool, is_retry, began)
    }

    pub(super) fn is_full(&self) -> bool {
        self.entries.len() >= self.size
            || self.entries.iter().map(|weighed| weighed.bytes).sum::<usize>() >= limits::POD / 2
            || self.entries.iter().map(|weighed| weighed.recorded).sum::<usize>() >= limits::RECORD
    }

    pub(super) fn entry(&self, id: &str) -> Option<&BatchEntry> {
        self.entries.iter().map(|weighed| &weighed.entry).find(|entry| entry.member.id == id)
    }

    pub(super) fn matches(&self, operation: Operation, recipe: &Recipe, node: Option<&str>) -> bool {
        self.operation == operation && self.version == recipe.version() && self.node.as_deref() == node
    }

    pub(super) fn is_for(&self, entry: &BatchEntry) -> bool {
        let same_place = self.entries.first().is_none_or(|first| first.entry.target == entry.target);
        same_place && self.matches(entry.request.operation, &entry.recipe, entry.target.node.as_deref())
    }

    pub(super) fn leave(&mut self, id: &str) {
        self.stamped.remove(id);
        self.entries.retain(|weighed| weighed.entry.member.id != id);
    }
}
