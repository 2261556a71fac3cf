//! An open batch: the list of its members, until its Job is created.

use std::sync::Arc;
use std::time::Duration;

use flex_contract::request::RunRequest;
use flex_core::batch::{self, Member};
use flex_core::config::Recipe;
use flex_core::limits;
use flex_core::model::claim::Claim;
use flex_core::model::record::Record;
use flex_core::model::volume::Volume;
use flex_core::run::job::RunTarget;

/// An open batch. It has a member at least, and what all of them have in common is that of the first.
#[derive(Debug)]
pub(super) struct OpenBatch {
    /// The batch makes pooled volumes, and no claim waits for it.
    pub(super) for_pool: bool,
    /// The time when the first member has joined.
    pub(super) began: Duration,
    members: Vec<WeighedEntry>,
}

/// A member, with its part of the size of the Job.
#[derive(Debug)]
struct WeighedEntry {
    entry: BatchEntry,
    /// The estimated bytes that it adds.
    bytes: usize,
    /// The estimated bytes that it adds to the record of the run.
    recorded: usize,
}

/// A run that is due, and shares the Job of a batch.
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
    /// The volume whose storage the run deletes, as that was decided.
    pub volume: Option<Box<Volume>>,
}

impl OpenBatch {
    /// Opens a batch with its first member.
    pub(super) fn new(first: BatchEntry, for_pool: bool, began: Duration) -> Self {
        let mut open = OpenBatch { for_pool, began, members: Vec::new() };
        open.add(first);
        open
    }

    /// Adds a member.
    pub(super) fn add(&mut self, entry: BatchEntry) {
        let bytes = batch::weight(&self.first().unwrap_or(&entry).request, &entry.request);
        let recorded = entry.claim.as_deref().map_or(0, Record::weight);
        self.members.push(WeighedEntry { entry, bytes, recorded });
    }

    /// Returns the first member.
    pub(super) fn first(&self) -> Option<&BatchEntry> {
        self.entries().next()
    }

    /// Returns the members.
    pub(super) fn entries(&self) -> impl Iterator<Item = &BatchEntry> {
        self.members.iter().map(|weighed| &weighed.entry)
    }

    /// Returns the members, when the batch is closed.
    pub(super) fn into_entries(self) -> impl Iterator<Item = BatchEntry> {
        self.members.into_iter().map(|weighed| weighed.entry)
    }

    /// Removes a member.
    pub(super) fn remove(&mut self, id: &str) -> Option<BatchEntry> {
        let at = self.entries().position(|entry| entry.member.id == id)?;
        Some(self.members.remove(at).entry)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.members.is_empty()
    }

    pub(super) fn is_full(&self) -> bool {
        self.first().is_some_and(|first| self.members.len() >= first.recipe.batch_size)
            || self.members.iter().map(|weighed| weighed.bytes).sum::<usize>() >= limits::POD / 2
            || self.members.iter().map(|weighed| weighed.recorded).sum::<usize>() >= limits::RECORD
    }

    /// Checks whether a run can share the Job: it has the same operation, recipe and place. Attempts after a failure delay no
    /// claims whose first attempt is due.
    pub(super) fn takes(&self, entry: &BatchEntry, for_pool: bool) -> bool {
        self.for_pool == for_pool
            && !self.is_full()
            && self.first().is_some_and(|first| {
                first.request.operation == entry.request.operation
                    && first.target == entry.target
                    && (first.member.attempt > 1) == (entry.member.attempt > 1)
                    && first.recipe.version() == entry.recipe.version()
            })
    }
}
