//! Expectations: Jobs that this process has created or is about to create, and that no watch shows yet. The
//! expectation of a run also holds its slot.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use flex_contract::operation::Operation;
use flex_core::object::ObjectName;

use crate::state::work_item::WorkItem;

/// The time within which a watch shows a new Job. Later the watch counts as broken, and a quorum read decides.
pub const EXPECTATION_TIMEOUT: Duration = Duration::from_secs(10);

/// An expectation: a Job that the watch does not show yet.
#[derive(Debug, Default)]
pub struct Expectation {
    /// The time from which the watch has [`EXPECTATION_TIMEOUT`] to show the Job.
    pub since: Duration,
    /// The label value of the class; empty if the Job holds no slot.
    pub class_label: String,
    /// The namespace of the user.
    pub namespace: String,
    /// The Job is created, or being created.
    pub created: bool,
    /// The operation of the Job; `None` while only its name is known.
    pub operation: Option<Operation>,
    /// The Job makes a pooled volume.
    pub for_pool: bool,
    /// The node to which the pod is bound.
    pub node: Option<String>,
    /// The membership in the batch that exists in place of the Job.
    pub batch: Option<Membership>,
}

/// A membership in a batch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Membership {
    /// The name of the batch.
    pub batch: String,
    /// The work item of the member.
    pub member: WorkItem,
}

impl Expectation {
    /// Returns the name of the batch that exists in place of the Job.
    pub fn batch_name(&self) -> Option<&str> {
        self.batch.as_ref().map(|membership| membership.batch.as_str())
    }
}

/// All expectations, by the names of their Jobs.
#[derive(Debug, Default)]
pub struct Expectations {
    jobs: BTreeMap<String, Expectation>,
    /// Jobs, of batches too, that are being created: no answer has arrived yet, however long that takes.
    creating: BTreeSet<ObjectName>,
}

impl Expectations {
    /// Adds an expectation, in place of an earlier one for the Job.
    pub fn add(&mut self, job: &str, expectation: Expectation) {
        self.jobs.insert(job.to_owned(), expectation);
    }

    /// Checks whether there is an expectation for a Job, even if it has expired.
    pub fn contains(&self, job: &str) -> bool {
        self.jobs.contains_key(job)
    }

    /// Records that this process has created a Job. Until the watch shows the Job, it does not count as absent.
    pub fn expect(&mut self, job: &str, now: Duration) {
        let expected = self.jobs.entry(job.to_owned()).or_default();
        (expected.since, expected.created) = (now, true);
    }

    /// Checks whether a Job, of a batch too, is being created, and no answer has arrived yet.
    pub fn is_being_created(&self, job: &ObjectName) -> bool {
        self.creating.contains(job)
    }

    /// Removes the expectation for a Job that was not created, or that nobody wants. Returns the label value of its class.
    pub fn remove(&mut self, job: &str) -> Option<String> {
        self.jobs.remove(job).map(|expected| expected.class_label)
    }

    /// Removes the expectation for the Job of a run, because a Job with the run is visible. If the run is expected in another one,
    /// this one has come late, and is no end of the wait.
    pub fn show(&mut self, run: &str, job: &str) {
        let is_other = |expected: &Expectation| expected.created && expected.batch_name().unwrap_or(run) != job;
        if !self.jobs.get(run).is_some_and(is_other) {
            self.jobs.remove(run);
        }
    }

    /// Checks whether a Job was created a moment ago and is not visible yet.
    pub fn is_expected(&self, job: &str, now: Duration) -> bool {
        self.jobs.get(job).is_some_and(|expected| expected.created && self.may_still_appear(job, expected, now))
    }

    /// Checks the same for all Jobs whose names have this prefix.
    pub fn has_any(&self, prefix: &str, now: Duration) -> bool {
        let from = self.jobs.range(prefix.to_owned()..).take_while(|(job, _)| job.starts_with(prefix));
        from.into_iter().any(|(job, _)| self.is_expected(job, now))
    }

    /// Returns the Jobs of a class that may still appear, by the label value of the class.
    pub fn of_class(&self, class_label: &str, now: Duration) -> impl Iterator<Item = (&String, &Expectation)> {
        let runs = self.jobs.iter().filter(move |(_, expected)| expected.class_label == class_label);
        runs.filter(move |(job, expected)| self.may_still_appear(job, expected, now))
    }

    /// Removes expectations that have expired.
    pub fn drop_expired(&mut self, now: Duration) {
        let mut jobs = std::mem::take(&mut self.jobs);
        jobs.retain(|job, expected| self.may_still_appear(job, expected, now));
        self.jobs = jobs;
    }

    /// Checks whether the watch may still show an expected Job.
    fn may_still_appear(&self, job: &str, expected: &Expectation, now: Duration) -> bool {
        let name = expected.batch_name().unwrap_or(job);
        now.saturating_sub(expected.since) < EXPECTATION_TIMEOUT || self.creating.iter().any(|job| job.name == name)
    }

    /// Records that the Job of a batch will be in place of the Job as which the slot of a run is taken.
    pub fn join_batch(&mut self, job: &str, batch: &str, member: WorkItem) {
        if let Some(expected) = self.jobs.get_mut(job) {
            expected.created = true;
            expected.batch = Some(Membership { batch: batch.to_owned(), member });
        }
    }

    /// Checks whether a run has its slot for a batch.
    pub fn is_member(&self, job: &str, batch: &str) -> bool {
        self.jobs.get(job).is_some_and(|expected| expected.batch_name() == Some(batch))
    }

    /// Removes the expectation of a run that leaves a batch, unless it is in another one by now. Returns the label value of its
    /// class.
    pub fn leave_batch(&mut self, job: &str, batch: &str) -> Option<String> {
        if self.is_member(job, batch) { self.remove(job) } else { None }
    }

    /// Records that a Job is being created. That of a batch is in place of the Jobs of these members.
    pub fn begin_creation(&mut self, job: &ObjectName, members: impl Iterator<Item = String>, now: Duration) {
        for member in members {
            self.jobs.entry(member).and_modify(|expected| expected.since = now);
        }
        self.expect(&job.name, now);
        self.creating.insert(job.clone());
    }

    /// Records that the creation of a Job was answered, or will never be. The time of its expectation, and of those of
    /// its members, begins now: the request may arrive when nobody waits for its answer any more.
    pub fn end_creation(&mut self, job: &ObjectName, now: Duration) {
        self.creating.remove(job);
        let name = job.name.as_str();
        let is_of_it = |job: &str, expected: &Expectation| job == name || expected.batch_name() == Some(name);
        self.jobs.iter_mut().filter(|(job, expected)| is_of_it(job, expected)).for_each(|(_, e)| e.since = now);
    }

    /// Forgets a batch for which nobody waits any more. Returns its members.
    pub fn dissolve(&mut self, batch: &str) -> Vec<WorkItem> {
        let mut members = Vec::new();
        self.jobs.retain(|_, expected| match &expected.batch {
            Some(membership) if membership.batch == batch && expected.created => {
                members.push(membership.member.clone());
                false
            }
            _ => true,
        });
        members
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const LATER: Duration = EXPECTATION_TIMEOUT;

    #[test]
    fn an_expectation_expires_unless_its_job_is_being_created() {
        let mut expectations = Expectations::default();
        let member = WorkItem::Volume("pv".into());
        expectations.add("delete-a-1", Expectation { class_label: "c".into(), ..Expectation::default() });
        assert!(!expectations.is_expected("delete-a-1", Duration::ZERO), "only its slot is taken");
        expectations.join_batch("delete-a-1", "batch", member.clone());
        expectations.expect("delete-b-1", Duration::ZERO);
        assert!(
            expectations.has_any("delete-a-", Duration::ZERO) && !expectations.has_any("delete-c-", Duration::ZERO)
        );
        let batch = ObjectName::new("admin", "batch");
        expectations.begin_creation(&batch, ["delete-a-1".to_owned()].into_iter(), Duration::ZERO);
        let elsewhere = ObjectName::new("own", "batch");
        assert!(expectations.is_being_created(&batch) && !expectations.is_being_created(&elsewhere));
        expectations.end_creation(&elsewhere, Duration::ZERO);
        assert!(expectations.is_expected("delete-a-1", LATER) && !expectations.is_expected("delete-b-1", LATER));
        expectations.drop_expired(LATER);
        assert!(expectations.contains("delete-a-1") && !expectations.contains("delete-b-1"));
        expectations.end_creation(&batch, LATER);
        assert!(expectations.is_expected("batch", LATER) && !expectations.is_expected("batch", LATER * 2));
        assert_eq!(expectations.of_class("c", LATER).count(), 1);
        let single = ObjectName::new("admin", "delete-c-1");
        expectations.begin_creation(&single, std::iter::empty(), LATER);
        assert!(expectations.is_expected("delete-c-1", LATER * 2), "its request is on its way");
        expectations.end_creation(&single, LATER * 2);
        assert!(expectations.is_expected("delete-c-1", LATER * 2), "the request may have been lost, and arrive");
        assert!(!expectations.is_expected("delete-c-1", LATER * 3));
        assert_eq!(expectations.dissolve("batch"), [member]);
        assert_eq!(expectations.of_class("c", LATER).count(), 0);
    }

    #[test]
    fn a_job_that_comes_late_is_no_end_of_the_wait_for_another_one_with_the_run() {
        let run = "provision-a-1";
        for (expected_in, visible, stays) in [
            (None, run, false),
            (None, "late", false),
            (Some(run), run, false),
            (Some(run), "late", true),
            (Some("batch"), "batch", false),
            (Some("batch"), "late", true),
            (Some("batch"), run, true),
        ] {
            let mut expectations = Expectations::default();
            expectations.add(run, Expectation::default());
            match expected_in {
                None => {}
                Some(own) if own == run => expectations.expect(run, Duration::ZERO),
                Some(batch) => expectations.join_batch(run, batch, WorkItem::Volume("pv".into())),
            }
            expectations.show(run, visible);
            assert_eq!(expectations.contains(run), stays, "{expected_in:?} {visible}");
        }
    }

    #[test]
    fn a_run_leaves_only_the_batch_in_which_it_is() {
        let mut expectations = Expectations::default();
        expectations.add("delete-a-1", Expectation { class_label: "c".into(), ..Expectation::default() });
        expectations.join_batch("delete-a-1", "batch", WorkItem::Volume("pv".into()));
        assert_eq!(expectations.leave_batch("delete-a-1", "former"), None);
        assert!(expectations.is_member("delete-a-1", "batch") && !expectations.is_member("delete-a-1", "former"));
        assert_eq!(expectations.leave_batch("delete-a-1", "batch").as_deref(), Some("c"));
        assert!(!expectations.contains("delete-a-1"));
    }

    proptest! {
        /// A slot is taken once and given back once, alone or in a batch.
        #[test]
        fn each_slot_is_given_back_once(operations in prop::collection::vec((0..4_u8, 0..2_usize, 0..5_u8), 0..50)) {
            let (mut expectations, mut model) = (Expectations::default(), BTreeMap::<String, Option<usize>>::new());
            for (run, batch, operation) in operations {
                let (own, batch_name) = (format!("run-{run}"), format!("batch-{batch}"));
                match operation {
                    0 => {
                        let expected = Expectation { class_label: "c".into(), created: true, ..Expectation::default() };
                        expectations.add(&own, expected);
                        model.insert(own, None);
                    }
                    1 => {
                        let had = model.remove(&own).is_some();
                        prop_assert_eq!(expectations.remove(&own).is_some(), had);
                    }
                    2 if model.contains_key(&own) => {
                        expectations.join_batch(&own, &batch_name, WorkItem::Volume(own.clone()));
                        model.insert(own, Some(batch));
                    }
                    3 => {
                        let members = model.values().filter(|of| **of == Some(batch)).count();
                        model.retain(|_, of| *of != Some(batch));
                        prop_assert_eq!(expectations.dissolve(&batch_name).len(), members);
                    }
                    4 => {
                        let job = ObjectName::new("admin", &batch_name);
                        expectations.begin_creation(&job, model.keys().cloned(), Duration::ZERO);
                        expectations.end_creation(&job, Duration::ZERO);
                    }
                    _ => {}
                }
                let jobs = expectations.of_class("c", Duration::ZERO).map(|(job, _)| job);
                prop_assert!(jobs.eq(model.keys()));
                prop_assert!(model.keys().all(|job| expectations.is_expected(job, Duration::ZERO)));
            }
            expectations.drop_expired(LATER);
            prop_assert_eq!(expectations.of_class("c", Duration::ZERO).count(), 0);
        }
    }
}
