//! The timeline of a claim: when it reached each stage on the way to its volume.
//!
//! The orchestrator writes it as the annotation [`TIMELINE`](flex_contract::names::TIMELINE) of the claim, in a write that
//! happens anyway: that of the binding, or of the record of a failed attempt.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use strum::{EnumIter, EnumMessage, IntoEnumIterator as _, IntoStaticStr};

use crate::model::claim::{Claim, Stamp};
use crate::model::volume::Volume;
use crate::run::times::SUSPENDER;
use crate::run::view::{Job, Pod};

/// A stage on the way of a claim to its volume, in their order. The documentation says what has happened then.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, EnumIter, EnumMessage, IntoStaticStr, Serialize, Deserialize,
)]
#[serde(rename_all = "kebab-case")]
#[strum(serialize_all = "kebab-case")]
pub enum Stage {
    /// The orchestrator stamped the claim: the attempt begins.
    Stamped,
    /// The Job of the run was created.
    JobCreated,
    /// The scheduler chose a node for the pod of the run.
    Scheduled,
    /// The container of the image started.
    Started,
    /// The image created the volume.
    VolumeCreated,
    /// The orchestrator adopted the volume.
    Adopted,
    /// The claim was bound to the volume.
    Bound,
    /// The attempt failed.
    Failed,
}

impl Stage {
    /// Returns the name, as annotations and metrics have it.
    pub fn name(self) -> &'static str {
        self.into()
    }

    /// Returns the documentation: what has happened when a claim reaches the stage.
    pub fn documentation(self) -> &'static str {
        self.get_documentation().unwrap_or_default()
    }

    /// Returns the stage in words for people.
    pub fn words(self) -> &'static str {
        match self {
            Stage::Stamped => "waited",
            Stage::JobCreated => "Job created",
            Stage::Scheduled => "scheduled",
            Stage::Started => "running",
            Stage::VolumeCreated => "volume made",
            Stage::Adopted => "checked",
            Stage::Bound => "bound",
            Stage::Failed => "failed",
        }
    }

    /// Returns what a claim waits for that has not reached this stage yet.
    pub fn awaited(self) -> &'static str {
        match self {
            Stage::Stamped => "an attempt to begin",
            Stage::JobCreated => "its Job",
            Stage::Scheduled => "a node",
            Stage::Started => "the container to start",
            Stage::VolumeCreated => "the image to make the volume",
            Stage::Adopted => "the check of the volume",
            Stage::Bound => "the binding",
            Stage::Failed => "the end of the attempt",
        }
    }

    /// Returns who works until the claim reaches this stage.
    pub fn worker(self) -> &'static str {
        match self {
            Stage::Stamped => "the orchestrator, or the limits of the class",
            Stage::JobCreated | Stage::Adopted => "the orchestrator",
            Stage::Scheduled => "the scheduler",
            Stage::Started => "the kubelet: the pod's volumes, and the pull of the image",
            Stage::VolumeCreated | Stage::Failed => "the image",
            Stage::Bound => "the PV controller, and the orchestrator",
        }
    }
}

/// The times of one attempt.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Timeline {
    /// The number of the attempt, from 1; 0 for a claim that got a pooled volume.
    pub attempt: u32,
    /// The time when the claim was created, in milliseconds since 1970. The API tells it in whole seconds. If its first
    /// stage is within that second, the claim counts as created then.
    pub created: i64,
    /// When each stage was reached, in milliseconds after the creation of the claim. A stage that nobody reported in time
    /// is absent.
    #[serde(rename = "ms")]
    reached: BTreeMap<Stage, i64>,
    /// Somebody has suspended the Job.
    #[serde(skip)]
    is_suspended: bool,
}

/// A stage that was reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reached {
    /// The stage.
    pub stage: Stage,
    /// The milliseconds from the creation of the claim. They never decrease from stage to stage.
    pub after: i64,
    /// The milliseconds since the stage before.
    pub took: i64,
}

/// The runs and the volume from which the times of an attempt are read.
#[derive(Clone, Copy, Debug)]
pub struct Basis<'a> {
    /// The claim, with the stamp of the attempt.
    pub claim: &'a Claim,
    /// The Jobs of the claim's provision runs. A batch is here as its member sees it.
    pub jobs: &'a [Arc<Job>],
    /// The pods of these runs, as a member of a batch sees them.
    pub pods: &'a [Arc<Pod>],
    /// The volume of the claim.
    pub volume: Option<&'a Volume>,
}

impl Timeline {
    /// Returns a timeline without a stage. The claim was created at `created`, in milliseconds since 1970.
    pub fn new(attempt: u32, created: i64) -> Self {
        Timeline { attempt, created, ..Timeline::default() }
    }

    /// Returns the timeline of the stamped attempt, as far as its objects tell.
    pub fn of(basis: Basis<'_>) -> Self {
        let Basis { claim, jobs, pods, volume } = basis;
        let stamp = claim.own_stamp();
        let attempt = stamp.map_or(0, |stamp| stamp.attempt);
        let mut timeline = Timeline::new(attempt, claim.created.saturating_mul(1000));
        if let Some(began) = stamp.and_then(Stamp::began) {
            timeline.reach(Stage::Stamped, began.as_millisecond());
        }
        let job = jobs.iter().find(|job| job.run_labels.attempt == attempt);
        timeline.is_suspended = job.is_some_and(|job| job.suspension_text().is_some());
        let of_attempt = |pod: &&Arc<Pod>| pod.run_labels.attempt == attempt;
        let mut seconds = vec![(Stage::JobCreated, job.map(|job| job.created))];
        if let Some(pod) = pods.iter().filter(of_attempt).max_by_key(|pod| pod.created) {
            seconds.extend([(Stage::Scheduled, pod.scheduled_at), (Stage::Started, pod.started_at)]);
        }
        seconds.push((Stage::VolumeCreated, volume.map(|volume| volume.created)));
        for (stage, at) in seconds {
            if let Some(at) = at.filter(|at| *at > 0) {
                timeline.reach(stage, at.saturating_mul(1000));
            }
        }
        timeline
    }

    /// Records a stage with its time, in milliseconds since 1970. The first stage sets the time of the creation, if it is
    /// within that second. Kubernetes tells later stages in whole seconds, so that they may seem to be before it.
    pub fn reach(&mut self, stage: Stage, at: i64) {
        if self.reached.is_empty() && (0..1000).contains(&at.saturating_sub(self.created)) {
            self.created = at;
        }
        self.reached.insert(stage, at.saturating_sub(self.created).max(0));
    }

    /// Returns the stages in their order. Kubernetes tells most times in whole seconds, so that a stage may seem to be
    /// earlier than the one before: then it counts as reached at the same time.
    pub fn stages(&self) -> Vec<Reached> {
        self.stages_since(self.created)
    }

    /// Returns the stages in their order. The first one took the time since `begin`, in milliseconds since 1970.
    pub fn stages_since(&self, begin: i64) -> Vec<Reached> {
        let mut before = begin.saturating_sub(self.created).max(0);
        let stages = Stage::iter().filter_map(|stage| Some((stage, *self.reached.get(&stage)?)));
        stages
            .map(|(stage, after)| {
                let after = after.max(before);
                let took = after - before;
                before = after;
                Reached { stage, after, took }
            })
            .collect()
    }

    /// Returns the time of the first stage, in milliseconds since 1970; `None` without a stage.
    pub fn began(&self) -> Option<i64> {
        self.stages().first().map(|first| self.created.saturating_add(first.after))
    }

    /// Returns the time of the last stage, in milliseconds since 1970.
    pub fn ended(&self) -> i64 {
        self.created.saturating_add(self.stages().last().map_or(0, |last| last.after))
    }

    /// Checks whether a stage was reached.
    pub fn has(&self, stage: Stage) -> bool {
        self.reached.contains_key(&stage)
    }

    /// Returns the stage that comes next; `None` at the end of the attempt.
    pub fn next(&self) -> Option<Stage> {
        let last = self.reached.keys().next_back().copied();
        let last = last.filter(|stage| !matches!(stage, Stage::Bound | Stage::Failed));
        match (last, self.reached.is_empty()) {
            (None, true) => Some(Stage::Stamped),
            (None, false) => None,
            (Some(last), _) => Stage::iter().find(|stage| *stage > last),
        }
    }

    /// Returns who works until the claim reaches the next stage.
    pub fn next_worker(&self) -> &'static str {
        match self.next() {
            Some(_) if self.is_suspended => SUSPENDER,
            next => next.map_or("", Stage::worker),
        }
    }

    /// Returns the stage that took longest; `None` without a stage. The first stage took the time since `begin`, in
    /// milliseconds since 1970.
    pub fn slowest(&self, begin: i64) -> Option<Reached> {
        // The first of several that took as long.
        self.stages_since(begin).into_iter().rev().max_by_key(|reached| reached.took)
    }

    /// Writes the stages on one line, each with the time it took, for a log.
    pub fn line(&self) -> String {
        let stages = self.stages().into_iter();
        let texts: Vec<_> = stages.map(|Reached { stage, took, .. }| format!("{} {took} ms", stage.name())).collect();
        texts.join(", ")
    }

    /// Reads a timeline from its annotation; `None` if it has another form.
    pub fn read(text: &str) -> Option<Self> {
        serde_json::from_str(text).ok()
    }
}

impl std::fmt::Display for Timeline {
    /// Writes the text of the annotation.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&serde_json::json!(self).to_string())
    }
}

#[cfg(test)]
mod tests {
    use flex_contract::names;
    use k8s_openapi::api::core::v1::PersistentVolumeClaim;
    use serde_json::json;

    use super::*;
    use crate::object::ObjectName;
    use crate::run::member::{Member, MemberObject};

    fn timeline(reached: &[(Stage, i64)]) -> Timeline {
        Timeline { attempt: 2, created: 1_000_000, reached: reached.iter().copied().collect(), is_suspended: false }
    }

    #[test]
    fn each_stage_has_documentation_and_a_name_that_is_read_again() {
        for stage in Stage::iter() {
            assert!(stage.documentation().ends_with('.'), "{stage:?}");
            assert!(stage.words().len() < 16, "{stage:?} fits into a column");
            let read: Stage = serde_json::from_value(serde_json::json!(stage.name())).unwrap();
            assert_eq!(read, stage, "annotation and metric have the same name");
        }
    }

    #[test]
    fn a_member_of_a_batch_has_the_stages_of_its_pod() {
        let member = |id: &str, attempt| Member {
            id: id.into(),
            attempt,
            object: MemberObject::Claim(ObjectName::new("team", id)),
            scope: String::new(),
            attributes: None,
            is_first: false,
        };
        let members: Arc<[Member]> = [member("other", 1), member("u", 3)].into();
        let name = ObjectName::new("admin", "provision-batch-0123456789abcdef");
        let job = Job { name: name.clone(), created: 1_001, members: members.clone(), ..Job::default() };
        let (scheduled_at, started_at) = (Some(1_002), Some(1_004));
        let pod = Pod { job: name.name, members, scheduled_at, started_at, ..Pod::default() };
        let earlier = Pod { started_at: Some(900), ..Pod::default() };
        let claim = json!({
            "metadata": {
                "name": "u", "namespace": "team", "uid": "u", "creationTimestamp": "1970-01-01T00:16:40Z",
                "annotations": {
                    names::CLAIM_UID: "u", names::ATTEMPT: "3", names::PROVISION_TS: "1970-01-01T00:16:40.500000Z",
                },
            },
            "spec": {},
        });
        let claim = Claim::from(&serde_json::from_value::<PersistentVolumeClaim>(claim).unwrap());
        let jobs = [job.as_seen_by(1, &[], false).unwrap().into()];
        let pods = [pod.as_seen_by(1).unwrap().into(), earlier.into()];
        let timeline = Timeline::of(Basis { claim: &claim, jobs: &jobs, pods: &pods, volume: None });
        assert_eq!(timeline.line(), "stamped 0 ms, job-created 500 ms, scheduled 1000 ms, started 2000 ms");
        assert_eq!(timeline.attempt, 3);
    }

    #[test]
    fn a_time_in_whole_seconds_never_goes_back() {
        let timeline = timeline(&[(Stage::Stamped, 420), (Stage::JobCreated, 0), (Stage::VolumeCreated, 1000)]);
        let stages: Vec<_> = timeline.stages().iter().map(|reached| (reached.after, reached.took)).collect();
        assert_eq!(stages, [(420, 420), (420, 0), (1000, 580)]);
        assert_eq!(timeline.slowest(0).map(|slowest| slowest.stage), Some(Stage::VolumeCreated));
        assert_eq!(timeline.line(), "stamped 420 ms, job-created 0 ms, volume-created 580 ms");
        assert_eq!(Timeline::default().slowest(0), None);
    }

    #[test]
    fn the_next_stage_is_the_one_after_the_last() {
        assert_eq!(Timeline::default().next(), Some(Stage::Stamped));
        for (last, next) in [(Stage::Scheduled, Some(Stage::Started)), (Stage::Bound, None), (Stage::Failed, None)] {
            let timeline = timeline(&[(Stage::Stamped, 1), (last, 2)]);
            assert_eq!((timeline.next(), timeline.has(last)), (next, true));
        }
    }

    #[test]
    fn the_second_of_the_creation_is_not_counted() {
        let mut soon = Timeline::new(1, 5_000);
        soon.reach(Stage::Stamped, 5_900);
        soon.reach(Stage::Bound, 6_100);
        assert_eq!(soon.line(), "stamped 0 ms, bound 200 ms");
        soon.reach(Stage::JobCreated, 5_000);
        assert!(soon.to_string().contains("\"job-created\":0"), "{soon}");
        let mut late = Timeline::new(1, 5_000);
        late.reach(Stage::Stamped, 6_000);
        late.reach(Stage::Bound, 6_100);
        assert_eq!(late.line(), "stamped 1000 ms, bound 100 ms");
    }

    #[test]
    fn a_claim_that_is_older_than_the_clock_says_has_no_negative_times() {
        let timeline = timeline(&[(Stage::Stamped, -900), (Stage::Bound, -100)]);
        assert!(timeline.stages().iter().all(|reached| reached.after == 0 && reached.took == 0));
    }

    #[test]
    fn the_annotation_is_short_and_read_again() {
        let all: Vec<_> = Stage::iter().zip([i64::MAX, 1, 2, 3, 4, 5, 6, 7]).collect();
        let text = timeline(&all).to_string();
        assert!(text.len() < 256, "{text}");
        assert_eq!(Timeline::read(&text), Some(timeline(&all)));
        assert_eq!(
            timeline(&[(Stage::Stamped, 3)]).to_string(),
            r#"{"attempt":2,"created":1000000,"ms":{"stamped":3}}"#
        );
        for forged in ["", "[]", r#"{"attempt":2}"#, r#"{"attempt":2,"created":1,"ms":{"x":1}}"#] {
            assert_eq!(Timeline::read(forged), None, "{forged}");
        }
        let extreme = Timeline { created: i64::MIN, ..timeline(&[(Stage::Bound, i64::MAX)]) };
        assert_eq!(extreme.stages().len(), 1);
    }
}
