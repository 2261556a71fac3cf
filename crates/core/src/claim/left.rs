//! What attempts for claims that are gone may have left. While there is much of it, no first attempt begins for other claims of
//! the same namespace and class: else a user who creates and deletes claims while a backend is down would let it grow for ever.

use crate::model::claim::Claim;
use crate::object::ObjectName;

/// Checks whether what attempts for a claim that is gone may have left counts for its namespace and class. Nothing counts that waits
/// for a node or a config which is gone, perhaps with its namespace, or that an admin has abandoned: no user can change that.
pub fn counts(
    stand_in: &Claim,
    has_node: impl Fn(&String) -> bool,
    has_config: impl FnOnce(&ObjectName) -> bool,
) -> bool {
    let config = stand_in.own_stamp().and_then(|stamp| {
        let (config, _) = stamp.recipe_version.rsplit_once('@')?;
        let (namespace, name) = config.split_once('/')?;
        Some(ObjectName::new(namespace, name))
    });
    stand_in.is_stand_in()
        && !stand_in.abandoned
        && stand_in.nodes_with_storage.iter().all(has_node)
        && config.is_some_and(|config| has_config(&config))
}

/// Says why no first attempt begins for a claim, because attempts for `most` claims of its namespace and class that are gone, or
/// for more, may have left something.
pub fn refusal(claim: &Claim, most: usize) -> String {
    let (namespace, class) = (&claim.name.namespace, claim.class.as_deref().unwrap_or_default());
    format!(
        "what attempts for {most} deleted claims of namespace {namespace} and class {class} may have left is not deleted yet; the first attempt begins when there are fewer. If they do not become fewer, ask an admin, who finds the cause with `flex-provisioner doctor`"
    )
}

#[cfg(test)]
mod tests {
    use flex_contract::names;
    use k8s_openapi::api::core::v1::PersistentVolumeClaim;
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;
    use crate::model::claim::{Had, RecordRef};

    fn claim(nodes: &str, version: &str) -> Claim {
        let annotations = json!({
            names::CLAIM_UID: "u", names::ATTEMPT: "1", names::RECIPE_VERSION: version, names::NODES: nodes,
        });
        let metadata = json!({ "namespace": "team", "name": "data", "uid": "u", "annotations": annotations });
        let object = json!({ "metadata": metadata, "spec": { "storageClassName": "silver" } });
        Claim::from(&serde_json::from_value::<PersistentVolumeClaim>(object).unwrap())
    }

    fn stand_in(nodes: &str, version: &str) -> Claim {
        let name = ObjectName::new("own", "flex-record-a");
        claim(nodes, version).stand_in(RecordRef { name, uid: "r".into(), had: Had::Unknown }, "1")
    }

    #[test]
    fn what_only_an_admin_can_change_does_not_count() {
        let of = |claim: &Claim| counts(claim, |node| node != "gone", |config| config.namespace == "admin");
        assert!(of(&stand_in("", "admin/c@h")) && of(&stand_in("a,b", "admin/c@h")));
        assert!(!of(&claim("", "admin/c@h")), "the claim is there");
        assert!(!of(&stand_in("a,gone", "admin/c@h")), "it waits for a node");
        assert!(!of(&stand_in("a", "gone/c@h")), "its config is gone");
        assert!(!of(&stand_in("a", "")));
        assert!(!of(&Claim { abandoned: true, ..stand_in("", "admin/c@h") }));
    }

    #[test]
    fn the_text_says_what_to_do() {
        let text = refusal(&claim("", ""), 100);
        assert!(text.contains("100 deleted claims of namespace team and class silver") && text.contains("doctor"));
    }

    proptest! {
        /// A node or a config that goes, or an admin who abandons, never makes more count.
        #[test]
        fn the_less_is_there_the_less_counts(
            nodes in prop::collection::btree_set(0..6_u8, 0..4),
            there in prop::collection::btree_set(0..6_u8, 0..6),
            lost in 0..6_u8,
            has_config: bool,
            abandoned: bool,
        ) {
            let list = nodes.iter().map(|node| format!("n{node}")).collect::<Vec<_>>().join(",");
            let stand_in = Claim { abandoned, ..stand_in(&list, "admin/c@h") };
            let of = |lost: Option<u8>, has_config: bool| {
                let has_node = |node: &String| there.iter().any(|n| Some(*n) != lost && format!("n{n}") == *node);
                counts(&stand_in, has_node, |_| has_config)
            };
            prop_assert_eq!(of(None, has_config), !abandoned && has_config && nodes.is_subset(&there));
            prop_assert!(of(None, has_config) || !of(Some(lost), has_config));
            prop_assert!(!of(None, false));
        }
    }
}
