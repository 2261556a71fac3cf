//! Outages: the failures of each class since its last success, by which the slots follow.
//!
//! All failures are those that claims, volumes and contents record, so a new leader knows them from its cache.

use std::collections::BTreeMap;

use flex_contract::exit::Reaction;
use flex_contract::operation::Operation;
use flex_core::model::claim::Claim;
use flex_core::model::phase::VolumePhase;
use flex_core::model::snapshot::Content;
use flex_core::model::volume::Volume;
use flex_core::object::label_value;
use flex_core::run::outage::Failures;
use flex_core::run::view::{LabelledOperation, Pod};

use crate::state::watch_change::Changed;
use crate::state::work_item::WorkItem;

/// The failures of all classes, by the label values of the classes.
#[derive(Debug, Default)]
pub struct Outages {
    classes: BTreeMap<String, BTreeMap<Operation, Ends>>,
    /// The classes and operations of which an item has failed.
    failed: BTreeMap<WorkItem, Vec<(String, Operation)>>,
}

/// The ends of the runs of one operation of a class. All times are in seconds since 1970.
#[derive(Debug, Default)]
struct Ends {
    /// The items whose last run has failed since the last success, and asks for another try, with the time of the failure.
    failed: BTreeMap<WorkItem, i64>,
    first: i64,
    last: i64,
    /// The time of the last success.
    succeeded: Option<i64>,
    /// The time when the last run began.
    begun: i64,
}

impl Ends {
    fn add(&mut self, item: &WorkItem, at: i64) {
        if Some(at) <= self.succeeded {
            return;
        }
        (self.first, self.last) = match self.failed.is_empty() {
            true => (at, at),
            false => (self.first.min(at), self.last.max(at)),
        };
        self.failed.insert(item.clone(), at);
    }

    fn succeed(&mut self, at: i64) {
        self.succeeded = self.succeeded.max(Some(at));
        self.failed.retain(|_, failed| Some(*failed) > self.succeeded);
        self.first = self.failed.values().min().copied().unwrap_or_default();
    }

    fn failures(&self) -> Failures {
        Failures { objects: self.failed.len(), first: self.first, last: self.last.max(self.begun) }
    }
}

/// Changes that watches report.
impl Outages {
    /// Records a change of a claim.
    pub fn on_claim(&mut self, changed: &Changed<Claim>) {
        let claim = changed.last();
        let waits = changed.now.as_ref().filter(|claim| claim.own_stamp().is_some() && !claim.is_bound());
        let failure = waits.and_then(|claim| claim.last_failure.as_ref());
        // The failure of an attempt was counted while its claim was there.
        let is_counted = |operation| operation == Operation::Provision && claim.is_stand_in();
        let failure = failure.filter(|failure| failure.reaction == Reaction::Retry && !is_counted(failure.operation));
        let class = claim.class.as_deref().unwrap_or_default();
        self.note(WorkItem::Claim(claim.name.clone()), class, failure.map(|failure| (failure.operation, failure.at)));
    }

    /// Records a change of a volume. An adopted volume shows that a run of its class has succeeded.
    pub fn on_volume(&mut self, changed: &Changed<Volume>) {
        let volume = changed.last();
        let runs = changed.now.iter().flat_map(|volume| volume.failed_runs());
        // Such a volume asks for no other run, and its last failure is never cleared.
        let asks_again = |operation| match operation {
            Operation::Delete => !volume.abandoned,
            _ => volume.phase == VolumePhase::Bound && !volume.terminating,
        };
        let failed = runs.filter(|run| run.reaction == Reaction::Retry && asks_again(run.operation));
        let failed = failed.map(|run| (run.operation, run.at));
        self.note(WorkItem::Volume(volume.name.clone()), &volume.class, failed);
        let is_new = changed.before.as_ref().is_none_or(|before| !before.is_adopted());
        if is_new && changed.now.as_ref().is_some_and(|now| now.is_adopted()) {
            self.ends(&label_value(&volume.class), Operation::Provision).succeed(volume.created);
        }
    }

    /// Records a change of a content; `None` if it is gone.
    pub fn on_content(&mut self, name: &str, content: Option<&Content>) {
        let failure = content.and_then(|content| content.last_failure.as_ref());
        let failure = failure.filter(|failure| failure.reaction == Reaction::Retry);
        let made_by = failure.and(content).and_then(Content::made_by);
        let class = made_by.map(|made_by| made_by.effective_config.class).unwrap_or_default();
        self.note(WorkItem::Content(name.to_owned()), &class, failure.map(|failure| (failure.operation, failure.at)));
    }

    /// Records a change of a pod, which may show that its run has succeeded by now.
    pub fn on_pod(&mut self, before: Option<&Pod>, pod: &Pod, now: i64) {
        let LabelledOperation::Known(operation) = pod.run_labels.operation else { return };
        if pod.has_succeeded() && before.is_some_and(|before| !before.has_succeeded()) {
            self.ends(&pod.run_labels.class, operation).succeed(now);
        }
    }

    /// Replaces the failures of an item.
    fn note(&mut self, item: WorkItem, class: &str, failed: impl IntoIterator<Item = (Operation, i64)>) {
        for (class, operation) in self.failed.remove(&item).unwrap_or_default() {
            self.ends(&class, operation).failed.remove(&item);
        }
        for (operation, at) in failed.into_iter().filter(|_| !class.is_empty()) {
            let label = label_value(class);
            self.ends(&label, operation).add(&item, at);
            self.failed.entry(item.clone()).or_default().push((label, operation));
        }
    }

    fn ends(&mut self, class: &str, operation: Operation) -> &mut Ends {
        self.classes.entry(class.to_owned()).or_default().entry(operation).or_default()
    }
}

/// What slots ask.
impl Outages {
    /// Returns the failures of each operation of a class that has an outage.
    pub fn of<'a>(&'a self, class: &str) -> impl Iterator<Item = (Operation, Failures)> + use<'a> {
        let operations = self.classes.get(class).into_iter().flatten();
        let all = operations.map(|(operation, ends)| (*operation, ends.failures()));
        all.filter(|(_, failures)| failures.are_outage())
    }

    /// Checks whether the last run of an item has failed since the last success of its class.
    pub fn has_failed(&self, class: &str, operation: Operation, item: &WorkItem) -> bool {
        let ends = self.classes.get(class).and_then(|operations| operations.get(&operation));
        ends.is_some_and(|ends| ends.failed.contains_key(item))
    }

    /// Records that a run begins.
    pub fn begin(&mut self, class: &str, operation: Operation, now: i64) {
        if let Some(ends) = self.classes.get_mut(class).and_then(|operations| operations.get_mut(&operation)) {
            ends.begun = now;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use k8s_openapi::api::core::v1::PersistentVolume;
    use serde_json::json;

    use super::*;
    use crate::state::testing::{CLASS, failed_claim, job, pod_of};
    use flex_core::config::effective_config::EffectiveConfig;
    use flex_core::model::snapshot::SnapshotProvenance;
    use flex_core::model::snapshot::api::VolumeSnapshotContent;
    use flex_core::run::failure::LastFailure;
    use flex_core::run::state::Cause;

    fn seen<T>(now: T) -> Changed<T> {
        Changed { before: None, now: Some(Arc::new(now)) }
    }

    /// Counts the objects of which an operation has failed.
    fn objects(outages: &Outages, operation: Operation) -> usize {
        let ends = outages.classes.get(CLASS).and_then(|operations| operations.get(&operation));
        ends.map_or(0, |ends| ends.failures().objects)
    }

    #[test]
    fn each_object_whose_last_run_asks_for_another_try_counts_once() {
        let retry = |name: &str, at| failed_claim(name, Reaction::Retry, at);
        let bound = |claim| Claim { volume_name: Some("pv".into()), bind_completed: true, ..claim };
        let mut outages = Outages::default();
        for (what, change, expected) in [
            ("a first failure", seen(retry("a", 1)), 1),
            ("a second one of the same claim", seen(retry("a", 2)), 1),
            ("the fault of a claim", seen(failed_claim("b", Reaction::Never, 2)), 1),
            ("no room", seen(failed_claim("b", Reaction::NoCapacity, 2)), 1),
            ("another claim", seen(retry("c", 3)), 2),
            ("a claim without an attempt of its own", seen(Claim { stamp: None, ..retry("d", 3) }), 2),
            ("a claim that has its volume", seen(bound(retry("c", 3))), 1),
            ("a claim that is gone", Changed::gone(Arc::new(retry("a", 2))), 0),
        ] {
            outages.on_claim(&change);
            assert_eq!(objects(&outages, Operation::Provision), expected, "{what}");
        }
        assert!(outages.of(CLASS).next().is_none());
    }

    fn volume(status: &str) -> Volume {
        let object = json!({ "metadata": { "name": "pvc-z" }, "spec": { "storageClassName": CLASS } });
        let volume = Volume::from(&serde_json::from_value::<PersistentVolume>(object).unwrap());
        Volume { phase: status.into(), ..volume }
    }

    #[test]
    fn volumes_and_contents_fail_too_each_operation_by_itself() {
        let cause = Cause::new("ExitCode", "off");
        let mut outages = Outages::default();
        let last_failure = Some(LastFailure::of_delete_run(1, 4, &cause, None));
        outages.on_volume(&seen(Volume { last_failure, ..volume("Released") }));
        assert_eq!((objects(&outages, Operation::Delete), objects(&outages, Operation::Provision)), (1, 0));
        outages.on_volume(&Changed::gone(Arc::new(volume("Released"))));
        assert_eq!(objects(&outages, Operation::Delete), 0);

        let provenance = SnapshotProvenance {
            effective_config: EffectiveConfig { class: CLASS.into(), ..EffectiveConfig::default() },
            origin_node: None,
            volume_id: "v".into(),
            pv_name: "pvc-v".into(),
            size: 1,
            volume_mode: "Filesystem".into(),
            content_uid: None,
        };
        let object: VolumeSnapshotContent = serde_json::from_value(json!({
            "metadata": { "name": "s" },
            "spec": { "deletionPolicy": "Delete", "driver": "p", "source": {}, "volumeSnapshotRef": {} },
        }))
        .unwrap();
        let last_failure = Some(LastFailure::new(Operation::Snapshot, 1, 4, &cause, Reaction::Retry));
        let provenance = Some(json!(provenance).to_string());
        let content = Content { provenance, last_failure, ..Content::from(&object) };
        outages.on_content("s", Some(&content));
        assert_eq!(objects(&outages, Operation::Snapshot), 1);
        outages.on_content("s", None);
        assert_eq!(objects(&outages, Operation::Snapshot), 0);
    }

    #[test]
    fn a_success_ends_the_failures_before_it_and_those_of_its_own_run() {
        let retry = |name: &str, at| seen(failed_claim(name, Reaction::Retry, at));
        let mut outages = Outages::default();
        [("a", 1), ("b", 2), ("c", 9)].into_iter().for_each(|(name, at)| outages.on_claim(&retry(name, at)));
        let provenance = "{}";
        let adoption_mark = Some(flex_core::model::volume::adoption_mark(provenance, ""));
        let made = Volume { created: 5, provenance: Some(provenance.into()), adoption_mark, ..volume("Bound") };
        outages.on_volume(&seen(made));
        let has_failed = |outages: &Outages, name: &str| {
            let item = WorkItem::Claim(flex_core::object::ObjectName::new("team", name));
            outages.has_failed(CLASS, Operation::Provision, &item)
        };
        assert!(!has_failed(&outages, "b") && has_failed(&outages, "c"), "a new leader learns it from the volumes");
        outages.on_claim(&retry("a", 1));
        assert_eq!(objects(&outages, Operation::Provision), 1, "a watch shows it again");

        let pod = |code| pod_of(&job("provision", "x"), code);
        for (what, before, now, expected) in [
            ("it has failed", Some(pod(None)), pod(Some(75)), 1),
            ("nobody knows when it has succeeded", None, pod(Some(0)), 1),
            ("it has succeeded before", Some(pod(Some(0))), pod(Some(0)), 1),
            ("it has succeeded now", Some(pod(None)), pod(Some(0)), 0),
        ] {
            outages.on_pod(before.as_ref(), &now, 20);
            assert_eq!(objects(&outages, Operation::Provision), expected, "{what}");
        }
        outages.on_claim(&retry("d", 20));
        assert_eq!(objects(&outages, Operation::Provision), 0, "it was in the same batch");
        outages.on_claim(&retry("d", 21));
        assert_eq!(objects(&outages, Operation::Provision), 1);
    }
}
