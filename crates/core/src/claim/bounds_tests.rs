//! Claims whose users write more on them than the orchestrator can keep.

use std::collections::BTreeMap;

use flex_contract::names;
use flex_contract::operation::Operation;
use k8s_openapi::api::core::v1::PersistentVolumeClaim;

use crate::claim::admit::admit;
use crate::claim::request::{Attempt, request};
use crate::config::Recipe;
use crate::config::classes::Identity;
use crate::config::effective_config::EffectiveConfig;
use crate::limits;
use crate::model::claim::Claim;

fn recipe() -> Recipe {
    let data = [("image", "x"), ("claim-metadata", "a, b")].map(|(key, value)| (key.to_owned(), value.to_owned()));
    EffectiveConfig { class: "silver".into(), data: data.into(), ..EffectiveConfig::default() }.recipe().unwrap()
}

fn claim(annotations: &[(&str, &str)]) -> Claim {
    let claim = serde_json::json!({
        "metadata": { "name": "data", "namespace": "team", "uid": "u",
            "annotations": annotations.iter().copied().collect::<BTreeMap<_, _>>() },
        "spec": { "storageClassName": "silver", "accessModes": ["ReadWriteOnce", "ReadWriteOnce"],
            "resources": { "requests": { "storage": "1Gi" } } },
    });
    Claim::from(&serde_json::from_value::<PersistentVolumeClaim>(claim).unwrap())
}

#[test]
fn an_impossible_node_name_is_no_node() {
    for node in ["", "a b", "$(id)", "../a", "a,b", "A"] {
        assert_eq!(claim(&[(names::SELECTED_NODE, node)]).selected_node, None, "{node:?}");
    }
    assert_eq!(claim(&[(names::SELECTED_NODE, "n1.example")]).selected_node.as_deref(), Some("n1.example"));
    let nodes = |nodes: &str| claim(&[(names::CLAIM_UID, "u"), (names::NODES, nodes)]).nodes_with_storage;
    assert_eq!(nodes("a, $(id),b,a,,B"), ["a", "b"]);
    let many = (0..5000).map(|n| format!("n{n}")).collect::<Vec<_>>().join(",");
    assert_eq!(nodes(&many).len(), limits::NODES);
}

#[test]
fn a_stamp_is_bounded() {
    let long = "x".repeat(100_000);
    let stamped = claim(&[(names::CLAIM_UID, "u"), (names::PROVISION_TS, &long)]);
    assert_eq!(stamped.stamp.unwrap().ts, "");
    let failure = |message: &str| {
        serde_json::json!({ "operation": "provision", "attempt": 1, "at": 1, "kind": "retry", "reason": message, "message": message }).to_string()
    };
    let text = failure(&long);
    assert_eq!(claim(&[(names::FAILURE, &text)]).last_failure, None, "whoever made the claim wrote it");
    let failure = claim(&[(names::CLAIM_UID, "u"), (names::FAILURE, &text)]).last_failure.unwrap();
    assert!(failure.reason.len() <= limits::REASON && failure.message.len() <= limits::MESSAGE);
    assert_eq!(claim(&[]).access_modes, ["ReadWriteOnce"], "each once");
}

#[test]
fn annotations_too_long_for_a_pod_are_refused_before_an_attempt() {
    let long = "x".repeat(limits::CLAIM);
    assert_eq!(admit(&claim(&[("c", &long)]), &recipe(), false), Ok(()), "the annotation is not passed on");
    for key in ["a", names::CREATED_BY, names::CREATED_BY_GROUPS] {
        let why = admit(&claim(&[(key, &long)]), &recipe(), false).unwrap_err();
        assert!(why.contains("shorten them to 32768"), "{key}: {why}");
    }
    let why = admit(&claim(&[(names::CREATED_BY, "a\0")]), &recipe(), false).unwrap_err();
    assert!(why.contains("zero byte"), "{why}");
}

#[test]
fn a_claim_that_became_too_long_still_gets_its_delete_run() {
    let identity = Identity {
        provisioner: "p".into(),
        plugin: "p".into(),
        instance: "i".into(),
        config_namespaces: vec![],
        namespace: "n".into(),
        shell_image: None,
        cluster: String::new(),
    };
    let asked = |text: &str| {
        let claim = claim(&[("a", text), (names::CREATED_BY, "tom")]);
        request(Operation::Delete, &claim, &recipe(), &identity, "https://api", Attempt::default())
    };
    assert_eq!((asked("b").username.as_str(), asked("b").claim_metadata.len()), ("tom", 1));
    let long = asked(&"x".repeat(limits::CLAIM));
    assert_eq!((long.username.as_str(), long.claim_metadata.len(), long.volume_id.as_str()), ("", 0, "u"));
}

#[test]
fn a_claim_belongs_to_the_instance_that_stamped_it() {
    let stamped = [(names::CLAIM_UID, "u"), (names::ATTEMPT, "1")];
    let with = |instance: &'static str| {
        let more = [(names::LABEL_INSTANCE, instance)];
        claim(&stamped.into_iter().chain(more).collect::<Vec<_>>())
    };
    assert!(with("second").belongs_to_other_instance("first") && !with("first").belongs_to_other_instance("first"));
    assert!(!claim(&stamped).belongs_to_other_instance("first"), "a stamp without an instance belongs to any instance");
    assert!(
        !claim(&[(names::LABEL_INSTANCE, "second")]).belongs_to_other_instance("first"),
        "no attempt has begun for it"
    );
    let copied = [(names::CLAIM_UID, "another"), (names::ATTEMPT, "1"), (names::LABEL_INSTANCE, "second")];
    assert!(!claim(&copied).belongs_to_other_instance("first"), "the stamp was copied");
}

#[test]
fn a_copy_of_a_claim_has_no_nodes_of_the_claim_it_was_copied_from() {
    let nodes = |uid: &str| {
        claim(&[(names::CLAIM_UID, uid), (names::ATTEMPT, "1"), (names::NODES, "n1,n2")]).nodes_with_storage
    };
    assert_eq!(nodes("u"), ["n1", "n2"]);
    assert_eq!(nodes("another"), [""; 0]);
    assert_eq!(claim(&[(names::NODES, "n1")]).nodes_with_storage, [""; 0], "no attempt has begun for it");
}
