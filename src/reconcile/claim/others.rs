//! The attempts for a claim with other recipes than that of its volume.

use std::sync::Arc;

use flex_core::config::Recipe;
use flex_core::config::current_program::with_current_program;
use flex_core::model::claim::Claim;
use flex_core::model::record::Record;
use flex_core::model::volume::OtherAttempt;

use crate::state::index::Index;

/// Returns what records of a claim say of attempts that may have left what no delete run with the recipe `own` deletes. An admin has
/// cleaned up after a claim that is abandoned.
pub(super) fn others(claim: &Claim, records: &[Arc<Record>], own: &Recipe, index: &Index) -> Vec<OtherAttempt> {
    let unstarted = claim.last_failure.as_ref().map_or(0, |failure| failure.unstarted_attempts);
    let (program, made_by) = (Some(&own.effective_config), own.effective_config.pool_hash());
    let mut others: Vec<OtherAttempt> = Vec::new();
    for attempt in records.iter().filter(|_| !claim.abandoned).filter_map(|record| record.recorded(&claim.uid)) {
        let stamp = attempt.own_stamp().filter(|stamp| stamp.attempt > unstarted);
        // Users can write a stamp. It may name a version of the claim's own class, and no other.
        let recipe = stamp.and_then(|stamp| index.recipe(&stamp.recipe_version));
        let recipe = recipe.filter(|recipe| recipe.class == own.class);
        // The delete run of the volume deletes all that the program would make with the same data.
        let is_other =
            |recipe: &Arc<Recipe>| with_current_program(&recipe.effective_config, program).pool_hash() != made_by;
        let Some(recipe) = recipe.filter(is_other) else { continue };
        let nodes = attempt.nodes_with_storage.iter().filter(|node| recipe.required_node(Some(node)).is_some());
        match others.iter_mut().find(|other| other.effective_config == recipe.effective_config) {
            // A claim lists the nodes of all its attempts, unless somebody has taken some off.
            Some(OtherAttempt { nodes: known, .. }) => {
                let new: Vec<_> = nodes.filter(|node| !known.contains(node)).cloned().collect();
                known.extend(new);
            }
            None => {
                let effective_config = recipe.effective_config.clone();
                others.push(OtherAttempt { effective_config, nodes: nodes.cloned().collect() });
            }
        }
    }
    others
}

#[cfg(test)]
mod tests {
    use flex_contract::exit::Reaction;
    use flex_core::config::classes::Revision;
    use flex_core::model::claim::Stamp;
    use flex_core::model::stored::Stored;
    use flex_core::run::failure::LastFailure;

    use super::*;
    use crate::clock::Clock;
    use crate::state::index::WatchChange;
    use crate::state::testing;

    #[test]
    fn only_attempts_that_may_have_left_other_storage_count() {
        let recipes = [
            testing::recipe(&[("zone", "a"), ("placement", "any")]),
            testing::recipe(&[("zone", "b")]),
            testing::recipe(&[("zone", "c")]),
            testing::recipe(&[("zone", "c"), ("timeout", "90s"), ("image", "y")]),
        ];
        let mut index = Index::new(testing::default_identity(), Clock::default());
        for recipe in &recipes {
            let effective_config = recipe.effective_config.clone();
            let stored = Stored::Recipe(effective_config.hash(), Revision { number: 1, effective_config, created: 0 });
            index.change_stored(WatchChange::Apply(stored));
        }
        let of = |attempt: u32, recipe: &Recipe, nodes: &[&str]| {
            let claim = testing::claim("team", "a", true);
            let stamp = claim.stamp.clone().map(|stamp| Stamp { attempt, recipe_version: recipe.version(), ..stamp });
            let nodes_with_storage = nodes.iter().map(|node| (*node).to_owned()).collect();
            Claim { stamp, nodes_with_storage, ..claim }
        };
        let all = [
            of(1, &recipes[0], &["n"]),
            of(2, &recipes[1], &["n"]),
            of(3, &recipes[1], &["m"]),
            of(4, &recipes[2], &["n", "m"]),
            of(5, &recipes[3], &["n", "m"]),
        ];
        let records = all.each_ref().map(|claim| Arc::new(testing::record(claim)));
        let found = |claim: &Claim| {
            let others = others(claim, &records, &recipes[3], &index).into_iter();
            others.map(|other| (other.effective_config.data["zone"].clone(), other.nodes.join(","))).collect::<Vec<_>>()
        };
        let [a, b] = [("a".to_owned(), String::new()), ("b".to_owned(), "n,m".to_owned())];
        assert_eq!(found(&all[4]), [a, b.clone()], "neither image nor time limit make another storage");
        let failure = testing::failed_claim("a", Reaction::Retry, 0).last_failure;
        let last_failure = failure.map(|failure| LastFailure { unstarted_attempts: 1, ..failure });
        assert_eq!(found(&Claim { last_failure, ..all[4].clone() }), [b], "the first never started");
        assert!(found(&Claim { abandoned: true, ..all[4].clone() }).is_empty());
    }
}
