//! What attempts with other configs than that of a volume may have left. It is deleted before the volume's own storage.

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

/// Returns the delete run that is next; `None` if all have succeeded. Their Jobs stay until the volume is gone. `own` is the recipe of
/// the volume's own delete run.
///
/// # Errors
/// If a config cannot be used. The text is for the admin.
pub(super) fn next_left(
    context: &Context,
    volume: &Volume,
    others: &[OtherAttempt],
    own: Option<&Recipe>,
    objects: RunObjects<'_>,
    states: &NodeStates,
    gone: NodeGone,
) -> Result<Option<LeftByOther>, String> {
    for OtherAttempt { effective_config, nodes } in others {
        let version = effective_config.version();
        let recipe = recipe_with_program(effective_config, own)?;
        let is_left = |node: Option<&str>| {
            let is_gone = node.is_some_and(|node| states.state(node) == NodeState::NotFound);
            !(is_gone && gone == NodeGone::Forget) && !has_succeeded(context, volume, objects, node, &version)
        };
        let mut places = nodes.iter().map(|node| Some(node.as_str())).chain(nodes.is_empty().then_some(None));
        if let Some(node) = places.find(|node| is_left(*node)) {
            let job_name = job_name(volume, volume.delete_attempt(), node, Some(&version));
            let node = node.map(str::to_owned);
            return Ok(Some(LeftByOther { recipe, version, job_name, node }));
        }
    }
    Ok(None)
}

/// Checks whether a delete run for what attempts with another recipe left on a node has succeeded.
fn has_succeeded(
    context: &Context,
    volume: &Volume,
    RunObjects { jobs, pods }: RunObjects<'_>,
    node: Option<&str>,
    version: &str,
) -> bool {
    let is_of = |job: &&Arc<Job>| job.name.name == job_name(volume, job.run_labels.attempt, node, Some(version));
    jobs.iter().filter(is_of).any(|job| context.run_state(jobs, pods, &job.name.name) == RunState::Succeeded)
}

#[cfg(test)]
mod tests {
    use std::slice;

    use flex_contract::policy::ReclaimPolicy;
    use flex_core::model::volume::{Provenance, adoption_mark};
    use flex_core::object::ObjectName;
    use flex_core::volume::observed::ClaimState;
    use serde_json::json;

    use super::*;
    use crate::reconcile::delete_run::tests::context;
    use crate::reconcile::volume::confirmed::Confirmed;
    use crate::reconcile::volume::observe::observe;
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
            let left = next_left(&context, &volume, &others, Some(&own), objects, &states, gone).unwrap();
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
    async fn what_other_configs_left_is_deleted_only_with_the_volume() {
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
        assert!(is_due(&volume, ClaimState::NotFound) && is_due(&volume, ClaimState::BoundToOtherVolume));
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
