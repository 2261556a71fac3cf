//! How a claim stands, and what keeps its next attempt from beginning, as far as claim and class alone show it.

use super::admit::{admit, namespace_refusal};
use super::data_source::left_to_populator;
use super::decide::Rule;
use super::progress::{Progress, progress};
use crate::config::classes::Class;
use crate::model::claim::Claim;
use crate::model::namespace::Namespaces;
use crate::run::backoff::next_try_at;

/// A precondition of an attempt that claim and class alone show to be unmet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Obstacle {
    /// The rule that decides about the claim.
    pub rule: Rule,
    /// The reason, for the claim's user.
    pub why: String,
}

/// Returns the first precondition that claim and class alone show to be unmet. Without namespaces, it is not checked whether the
/// class serves that of the claim. Pool requests (`is_request`) wait for no pod.
pub fn obstacle(claim: &Claim, class: &Class, namespaces: Option<&Namespaces>, is_request: bool) -> Option<Obstacle> {
    let found = |rule, why| Some(Obstacle { rule, why });
    if let Some(who) = left_to_populator(claim) {
        return found(Rule::LeftToPopulator, who);
    }
    let recipe = match &class.recipe {
        Ok(recipe) => recipe,
        Err(why) => return found(Rule::ConfigUnusable, why.clone()),
    };
    let of_namespace = namespaces.and_then(|namespaces| namespace_refusal(claim, recipe, namespaces, is_request));
    if let Some(why) = of_namespace.or_else(|| admit(claim, recipe, is_request).err()) {
        return found(Rule::ClaimRefused, why);
    }
    match !is_request && class.awaits_node(claim.selected_node.as_deref()) {
        true => found(Rule::WaitForFirstConsumer, "waits for a pod that uses it".to_owned()),
        false => None,
    }
}

/// How a claim stands whose class the orchestrator serves.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Standing {
    /// How far the claim is.
    pub progress: Progress,
    /// The obstacle to the next attempt, if none is in progress.
    pub obstacle: Option<Obstacle>,
    /// The time of the next attempt after a failed one, in seconds since 1970. `None` if it depends on more than the time.
    pub next_try: Option<i64>,
}

impl Standing {
    /// Finds out how a claim stands at `now`, in seconds since 1970. The other arguments are those of [`obstacle`].
    pub fn of(claim: &Claim, class: &Class, namespaces: Option<&Namespaces>, is_request: bool, now: i64) -> Self {
        let own = progress(claim);
        let obstacle = match own {
            Progress::Waiting => obstacle(claim, class, namespaces, is_request),
            // The scheduler selects another node for a pod that uses the claim already.
            Progress::Failed => obstacle(claim, class, namespaces, is_request)
                .filter(|obstacle| obstacle.rule != Rule::WaitForFirstConsumer),
            _ => None,
        };
        let is_refused = obstacle.as_ref().is_some_and(|obstacle| obstacle.rule == Rule::ClaimRefused);
        let progress = if is_refused { Progress::Refused } else { own };
        let is_repeated = own == Progress::Failed && obstacle.is_none();
        let failure = claim.last_failure.as_ref().filter(|_| is_repeated).zip(class.recipe.as_deref().ok());
        let next_try = failure.map(|(failure, recipe)| {
            next_try_at(claim.retry, failure.reaction, failure.at, failure.attempt, recipe, now)
        });
        Standing { progress, obstacle, next_try }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use flex_contract::names;
    use k8s_openapi::api::core::v1::PersistentVolumeClaim;
    use serde_json::{Value, json};

    use super::*;
    use crate::config::classes::BindingMode;
    use crate::config::effective_config::EffectiveConfig;
    use crate::config::topology::Topologies;
    use crate::model::data_source::DataSource;
    use crate::object::ObjectName;

    const NOW: i64 = 1_800_000_000;

    fn class(keys: &[(&str, &str)]) -> Class {
        let data = [("image", "x")].iter().chain(keys).map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect();
        let config = ObjectName::new("admin", "gold");
        let config = EffectiveConfig { config, class: "gold".into(), data, ..EffectiveConfig::default() };
        Class {
            name: "gold".into(),
            has_object: true,
            uid: "class".into(),
            binding: BindingMode::WaitForFirstConsumer,
            recipe: Ok(Arc::new(config.recipe().unwrap())),
            last_good: false,
            allowed: Topologies::default(),
            provisioner: "p".into(),
        }
    }

    /// Returns a claim of 1 GiB with these annotations.
    fn claim(annotations: Value) -> Claim {
        let object = json!({
            "metadata": { "name": "data", "namespace": "team", "uid": "u", "annotations": annotations },
            "spec": { "storageClassName": "gold", "accessModes": ["ReadWriteOnce"],
                      "resources": { "requests": { "storage": "1Gi" } } },
        });
        Claim::from(&serde_json::from_value::<PersistentVolumeClaim>(object).unwrap())
    }

    #[test]
    fn the_first_obstacle_that_claim_and_class_show_is_told() {
        let (gold, small, elsewhere) = (class(&[]), class(&[("max-size", "1Mi")]), class(&[("namespaces", "other")]));
        let broken = Class { recipe: Err("image: is missing".into()), ..gold.clone() };
        let immediate = Class { binding: BindingMode::Immediate, ..gold.clone() };
        let new = claim(json!({}));
        let placed = Claim { selected_node: Some("n".into()), ..new.clone() };
        let source = Some(DataSource::Populated("Hello.example.com h".into()));
        let populated = Claim { data_source: source, ..new.clone() };
        let fills = "the populator for Hello.example.com h fills this claim and brings its volume";
        for (claim, class, rule, says) in [
            (&new, &gold, Rule::WaitForFirstConsumer, "waits for a pod that uses it"),
            (&placed, &broken, Rule::ConfigUnusable, "image: is missing"),
            (&new, &small, Rule::ClaimRefused, "asks for 1Gi, and class gold provides at most 1Mi; ask for less"),
            (&placed, &elsewhere, Rule::ClaimRefused, "class gold does not serve the namespace team"),
            (&populated, &small, Rule::LeftToPopulator, fills),
            (&populated, &broken, Rule::LeftToPopulator, fills),
        ] {
            let found = obstacle(claim, class, Some(&Namespaces::default()), false).unwrap();
            assert!(found.rule == rule && found.why.contains(says), "{found:?}");
        }
        for (claim, class) in [(&placed, &gold), (&new, &immediate)] {
            assert_eq!(obstacle(claim, class, Some(&Namespaces::default()), false), None);
        }
        assert_eq!(obstacle(&placed, &elsewhere, None, false), None, "the namespace is not known");
        assert_eq!(obstacle(&new, &gold, None, true), None, "no pod uses the request of a pool");
    }

    #[test]
    fn a_failed_claim_is_tried_again_unless_something_keeps_it() {
        let failure = json!({
            "operation": "provision", "attempt": 2, "at": NOW - 5, "kind": "retry", "reason": "ExitCode",
            "message": "busy",
        });
        let stamped = json!({ names::CLAIM_UID: "u", names::ATTEMPT: "2" });
        let mut failed = stamped.clone();
        failed[names::FAILURE] = json!(failure.to_string());
        let failed = claim(failed);
        let standing = |claim: &Claim, keys: &[(&str, &str)]| Standing::of(claim, &class(keys), None, false, NOW);
        let slow = [("backoff", "100s..1h")];
        assert_eq!(
            standing(&failed, &slow),
            Standing { progress: Progress::Failed, obstacle: None, next_try: Some(NOW + 195) }
        );
        let asked = Claim { retry: true, ..failed.clone() };
        assert_eq!(standing(&asked, &slow).next_try, Some(NOW + 5), "its user asks for the next try");
        let refused = standing(&failed, &[("max-size", "1Mi")]);
        assert_eq!((refused.progress, refused.next_try), (Progress::Refused, None));
        let broken = Class { recipe: Err("image: is missing".into()), ..class(&[]) };
        let waits = Standing::of(&failed, &broken, None, false, NOW);
        assert_eq!((waits.obstacle.map(|obstacle| obstacle.rule), waits.next_try), (Some(Rule::ConfigUnusable), None));
        let running = standing(&claim(stamped), &[("max-size", "1Mi")]);
        assert_eq!(running.progress, Progress::Running, "it may still succeed");
    }
}
