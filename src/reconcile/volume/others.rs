//! What attempts with other configs than that of a volume may have left. It is deleted after the volume's own storage: a config
//! with which no run succeeds must not keep that.

use std::sync::Arc;

use flex_core::config::{NodeGone, Recipe};
use flex_core::model::volume::{OtherAttempt, Volume};
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
    /// The name of the Job.
    pub job_name: String,
    node: Option<String>,
}

impl LeftByOther {
    /// Returns the same for the decision.
    pub(super) fn observed(&self) -> observed::LeftByOther<'_> {
        observed::LeftByOther { recipe: &self.recipe, node: self.node.as_deref() }
    }
}

/// The delete runs of a volume. Their Jobs stay until the volume is gone.
pub(super) struct Deletions<'a> {
    pub context: &'a Context,
    pub volume: &'a Volume,
    pub objects: RunObjects<'a>,
    pub states: &'a NodeStates,
    pub gone: NodeGone,
}

impl Deletions<'_> {
    /// Returns the run that is next for other configs; `None` if all have succeeded. `own` is the recipe of the volume's own run.
    ///
    /// # Errors
    /// If a config cannot be used. The text is for the admin.
    pub(super) fn next_left(
        &self,
        others: &[OtherAttempt],
        own: Option<&Recipe>,
    ) -> Result<Option<LeftByOther>, String> {
        for OtherAttempt { effective_config, nodes } in others {
            let version = effective_config.version();
            let recipe = recipe_with_program(effective_config, own)?;
            let mut places = nodes.iter().map(|node| Some(node.as_str())).chain(nodes.is_empty().then_some(None));
            if let Some(node) = places.find(|node| self.is_left(*node, Some(&version))) {
                let job_name = job_name(self.volume, self.volume.delete_attempt(), node, Some(&version));
                let node = node.map(str::to_owned);
                return Ok(Some(LeftByOther { recipe, version, job_name, node }));
            }
        }
        Ok(None)
    }

    /// Checks whether a run is still to succeed on a node. `other` is as in [`job_name`].
    pub(super) fn is_left(&self, node: Option<&str>, other: Option<&str>) -> bool {
        let is_gone = node.is_some_and(|node| self.states.state(node) == NodeState::NotFound);
        !(is_gone && self.gone == NodeGone::Forget) && self.succeeded(node, other).is_none()
    }

    /// Returns the name of the Job of the run that has succeeded on a node, whatever its number.
    pub(super) fn succeeded(&self, node: Option<&str>, other: Option<&str>) -> Option<String> {
        let RunObjects { jobs, pods } = self.objects;
        let is_of = |job: &&Arc<Job>| job.name.name == job_name(self.volume, job.run_labels.attempt, node, other);
        let mut names = jobs.iter().filter(is_of).map(|job| &job.name.name);
        names.find(|name| self.context.run_state(jobs, pods, name) == RunState::Succeeded).cloned()
    }
}

#[cfg(test)]
mod tests {
    use std::slice;

    use flex_contract::policy::ReclaimPolicy;
    use flex_core::model::volume::{Provenance, adoption_mark};
    use flex_core::object::ObjectName;
    use flex_core::run::failure::LastFailure;
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
            let deletions = Deletions { context: &context, volume: &volume, objects, states: &states, gone };
            let left = deletions.next_left(&others, Some(&own)).unwrap();
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
        let failure = LastFailure::of_delete_run(1, 0, &Cause::new("R", "m"), None);
        let failed = Volume { last_failure: Some(failure), ..volume.clone() };
        assert!(is_due(&failed, ClaimState::NotFound), "a run for another config has failed");
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
