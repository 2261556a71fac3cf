//! What attempts with other configs than that of a volume may have left. It is deleted after the volume's own storage: a config
//! with which no run succeeds must not keep that.

use std::sync::Arc;

use flex_contract::operation::Operation;
use flex_core::config::{NodeGone, Recipe};
use flex_core::model::volume::{OtherAttempt, Volume};
use flex_core::run::failure::LastFailure;
use flex_core::run::node::{NodeState, NodeStates};
use flex_core::run::state::RunState;
use flex_core::run::view::Job;
use flex_core::volume::observed;
use flex_core::volume::undeletable::recipe_with_program;

use super::delete::job_name;
use crate::reconcile::context::{Context, RunObjects};

/// A delete run for what attempts with another config may have left.
pub(super) struct LeftByOther {
    /// The recipe of the run: that of the attempts, with the program of the volume's own delete run.
    pub recipe: Arc<Recipe>,
    /// The version of the recipe of the attempts.
    pub version: String,
    job_name: String,
    node: Option<String>,
}

impl LeftByOther {
    /// Returns the same for the decision.
    pub(super) fn observed(&self) -> observed::LeftByOther<'_> {
        observed::LeftByOther { recipe: &self.recipe, node: self.node.as_deref() }
    }
}

/// The delete runs of a volume. Their Jobs stay for an hour, unless the volume is gone before.
pub(super) struct Deletions<'a> {
    pub context: &'a Context,
    pub volume: &'a Volume,
    /// The recipe of the volume's own run.
    pub own: Option<&'a Recipe>,
    pub others: &'a [OtherAttempt],
    pub objects: RunObjects<'a>,
    pub states: &'a NodeStates,
    pub gone: NodeGone,
}

/// The delete run that is next.
pub(super) struct NextDeletion {
    /// What it deletes of attempts with other configs; `None` if it deletes the volume's own storage. Or the reason why one of these
    /// configs cannot be used, for the admin.
    pub left: Result<Option<LeftByOther>, String>,
    /// The name of the Job.
    pub job_name: String,
    pub state: RunState,
}

impl Deletions<'_> {
    /// Observes the next run. That for the volume's own storage on `node` comes first; `is_last` says that no other node has any.
    pub(super) fn observe(&self, node: Option<&str>, is_last: bool) -> NextDeletion {
        let is_own_deleted = is_last && !self.others.is_empty() && self.is_own_deleted(node);
        let left = match is_own_deleted || is_last && self.is_forgotten(node) {
            true => self.next_left(),
            false => Ok(None),
        };
        let other = left.as_ref().ok().and_then(Option::as_ref);
        let own_job = || job_name(self.volume, self.volume.delete_attempt(), node, None);
        let job_name = other.map_or_else(own_job, |left| left.job_name.clone());
        let id = self.volume.volume_id().unwrap_or_default();
        let state = match other {
            None if is_own_deleted => RunState::Succeeded,
            _ => self.context.delete_state(Operation::Delete, id, self.objects, &job_name),
        };
        NextDeletion { left, job_name, state }
    }

    /// Checks whether the volume's own storage is deleted on its last node. A failure for another config since the volume was released
    /// proves it, because such runs begin afterwards: nothing is deleted again that may have been made since.
    fn is_own_deleted(&self, node: Option<&str>) -> bool {
        let released = self.volume.unneeded_since;
        let is_since = |failure: &&LastFailure| released.is_some_and(|released| failure.at >= released);
        let failure = self.volume.last_failure.as_ref().filter(is_since);
        let failure = failure.filter(|failure| failure.operation == Operation::Delete);
        let is_for = |other: &OtherAttempt, version: &str| {
            recipe_with_program(&other.effective_config, self.own).is_ok_and(|recipe| recipe.version() == version)
        };
        let is_for_any = |failure: &LastFailure| self.others.iter().any(|other| is_for(other, &failure.recipe_version));
        failure.is_some_and(is_for_any) || self.has_succeeded(node, None)
    }

    /// Returns the run that is next for other configs; `None` if all have succeeded. An error is as in [`NextDeletion`].
    fn next_left(&self) -> Result<Option<LeftByOther>, String> {
        for OtherAttempt { effective_config, nodes } in self.others {
            let version = effective_config.version();
            let recipe = recipe_with_program(effective_config, self.own)?;
            let mut places = nodes.iter().map(|node| Some(node.as_str())).chain(nodes.is_empty().then_some(None));
            let next = places.find(|node| !self.is_forgotten(*node) && !self.has_succeeded(*node, Some(&version)));
            if let Some(node) = next {
                let job_name = job_name(self.volume, self.volume.delete_attempt(), node, Some(&version));
                let node = node.map(str::to_owned);
                return Ok(Some(LeftByOther { recipe, version, job_name, node }));
            }
        }
        Ok(None)
    }

    /// Checks whether what is on a node counts as gone with it.
    fn is_forgotten(&self, node: Option<&str>) -> bool {
        self.gone == NodeGone::Forget && node.is_some_and(|node| self.states.state(node) == NodeState::NotFound)
    }

    /// Checks whether a run has succeeded on a node, whatever its number. `other` is as in [`job_name`].
    fn has_succeeded(&self, node: Option<&str>, other: Option<&str>) -> bool {
        let RunObjects { jobs, pods } = self.objects;
        let is_of = |job: &&Arc<Job>| job.name.name == job_name(self.volume, job.run_labels.attempt, node, other);
        jobs.iter().filter(is_of).any(|job| self.context.run_state(jobs, pods, &job.name.name) == RunState::Succeeded)
    }
}

#[cfg(test)]
mod tests {
    use std::slice;

    use flex_contract::policy::ReclaimPolicy;
    use flex_core::model::volume::{Provenance, adoption_mark};
    use flex_core::object::ObjectName;
    use flex_core::run::state::Cause;
    use flex_core::volume::observed::ClaimState;
    use serde_json::json;

    use super::*;
    use crate::reconcile::delete_run::tests::context;
    use crate::reconcile::volume::confirmed::Confirmed;
    use crate::reconcile::volume::observe::observe;
    use crate::state::index::WatchChange;
    use crate::state::testing;

    fn other(zone: &str, nodes: &[&str]) -> OtherAttempt {
        let effective_config = testing::recipe(&[("zone", zone)]).effective_config.clone();
        OtherAttempt { effective_config, nodes: nodes.iter().map(|node| (*node).to_owned()).collect() }
    }

    #[tokio::test]
    async fn each_other_config_has_its_runs_until_they_have_succeeded() {
        let (context, _) = context(String::new());
        let volume = testing::volume(&testing::claim("team", "a", true), "1Gi");
        let own = testing::recipe(&[("zone", "b"), ("image", "mended")]);
        let others = [other("a", &[]), other("c", &["n", "m"])];
        let states = NodeStates([("n".to_owned(), NodeState::NotFound)].into());
        let due = |jobs: &[Arc<Job>], gone| {
            let objects = RunObjects { jobs, pods: &[] };
            let (volume, own, others, states) = (&volume, Some(&*own), &others, &states);
            let deletions = Deletions { context: &context, volume, own, others, objects, states, gone };
            let left = deletions.next_left().unwrap();
            left.map(|left| {
                assert_eq!(left.recipe.image, "mended", "it runs the program of the volume's class");
                (left.recipe.effective_config.data["zone"].clone(), left.node.unwrap_or_default())
            })
        };
        let ended = |zone: &str, node: Option<&str>, complete| {
            let version = other(zone, &[]).effective_config.version();
            let name = ObjectName::new("own", job_name(&volume, 1, node, Some(&version)));
            Arc::new(Job { name, complete, is_over: true, ..testing::job("delete", "a") })
        };
        let left = |zone: &str, node: &str| Some((zone.to_owned(), node.to_owned()));
        assert_eq!(due(&[], NodeGone::Hold), left("a", ""));
        assert_eq!(due(&[ended("a", None, false)], NodeGone::Hold), left("a", ""), "it has failed");
        let first = ended("a", None, true);
        assert_eq!(due(slice::from_ref(&first), NodeGone::Hold), left("c", "n"));
        assert_eq!(due(slice::from_ref(&first), NodeGone::Forget), left("c", "m"));
        let all = [first, ended("c", Some("n"), true), ended("c", Some("m"), true)];
        assert_eq!(due(&all, NodeGone::Hold), None);
    }

    #[tokio::test]
    async fn what_other_configs_left_is_deleted_only_with_the_volume_and_after_it() {
        let (context, _) = context(String::new());
        let made = testing::volume(&testing::claim("team", "a", true), "1Gi");
        let provenance = Provenance {
            effective_config: testing::recipe(&[("zone", "b")]).effective_config.clone(),
            origin_node: None,
            moved_in: None,
            cluster: None,
            others: vec![other("a", &[])],
        };
        let text = json!(provenance).to_string();
        let adoption_mark = Some(adoption_mark(&text, &made.uid));
        let volume = Volume { adoption_mark, provenance: Some(text), reclaim_policy: ReclaimPolicy::Delete, ..made };
        let is_due = |volume: &Volume, claim_state| {
            let confirmed = Confirmed { claim_state: Some(claim_state), ..Confirmed::default() };
            observe(&context, volume, &confirmed).left_by_other.is_some()
        };
        let name = ObjectName::new("own", job_name(&volume, 1, None, None));
        let id = volume.volume_id().unwrap();
        for complete in [false, true] {
            assert!(!is_due(&volume, ClaimState::NotFound), "its own storage is left");
            let job = Job { name: name.clone(), complete, is_over: true, ..testing::job("delete", id) };
            context.cluster.update(|index| index.change_job(WatchChange::Apply(job)));
        }
        assert!(is_due(&volume, ClaimState::NotFound) && is_due(&volume, ClaimState::BoundToOtherVolume));
        context.cluster.update(|index| index.change_job(WatchChange::Delete(name)));
        let failed = |zone: &str, released| {
            let failure = LastFailure::of_delete_run(1, 0, &Cause::new("R", "m"), None);
            let failure = failure.with_recipe(&testing::recipe(&[("zone", zone)]));
            Volume { last_failure: Some(failure), unneeded_since: Some(released), ..volume.clone() }
        };
        for (zone, released, expected) in [("a", 0, true), ("a", 1, false), ("b", 0, false)] {
            let is = is_due(&failed(zone, released), ClaimState::NotFound);
            assert_eq!(is, expected, "its Job is gone, {zone} {released}");
        }
        let volume = failed("a", 0);
        for claim_state in [ClaimState::Alive, ClaimState::Awaited, ClaimState::NotCached, ClaimState::NoReference] {
            assert!(!is_due(&volume, claim_state), "{claim_state:?}");
        }
        for kept in [
            Volume { reclaim_policy: ReclaimPolicy::Retain, ..volume.clone() },
            Volume { abandoned: true, ..volume.clone() },
            Volume { adoption_mark: None, ..volume },
        ] {
            assert!(!is_due(&kept, ClaimState::NotFound), "{kept:?}");
        }
    }
}
