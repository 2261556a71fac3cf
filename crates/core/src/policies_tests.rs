//! Tests of the shipped admission policies, and of the comparison with those of a cluster.

use std::collections::{BTreeMap, BTreeSet};

use super::*;
use crate::config::common_mistakes::SECRETS;
use crate::config::keys;
use crate::config::spelling::{letters, near_key};

fn all(live: &[Value]) -> Vec<PolicyState> {
    states(live).into_iter().map(|checked| checked.state).collect()
}

fn object<'a>(live: &'a mut [Value], kind: &str, name: &str) -> &'a mut Value {
    let is = |object: &Value| object["metadata"]["labels"][names::LABEL_POLICY] == name && object["kind"] == kind;
    live.iter_mut().find(|object| is(object)).unwrap()
}

#[test]
fn the_shipped_policies_are_complete() {
    let shipped = shipped();
    assert_eq!(shipped.len(), POLICIES.len() * 2, "each policy has its binding, and each is described here");
    assert_eq!(all(&shipped), vec![PolicyState::Installed; POLICIES.len()]);
    assert_eq!(summary(&states(&shipped)), "the admission policies are installed");
}

/// Names of the contract that claims and volumes do not bear, and those that each user of a claim may write.
const ELSEWHERE: [&str; 30] = [
    "armed",
    "batch",
    "capacity",
    "capacity-fingerprint",
    "claim",
    "class",
    "clone-",
    "cluster",
    "deletion-policy",
    "first-job",
    "gone-",
    "kept",
    "log",
    "operation",
    "p",
    "policy",
    "requested-at",
    "retry",
    "revision-of",
    "script",
    "settled",
    "size",
    "snapshot",
    "snapshot-",
    "snapshot-content",
    "source-namespace",
    "start",
    "verdict",
    "version",
    "volume",
];

/// Reads the names in the lists of the policies.
fn listed() -> Vec<BTreeSet<&'static str>> {
    let lists = SHIPPED.split("['abandon',").skip(1).map(|rest| rest.split(']').next().unwrap());
    let names = |list: &'static str| list.split('\'').skip(1).step_by(2).chain(["abandon"]).collect();
    lists.map(names).collect()
}

#[test]
fn the_policies_know_every_name_on_claims_and_volumes() {
    let contract = include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/../contract/src/names.rs"));
    let names = contract.split("\"flex-provisioner.io/").skip(1).map(|rest| rest.split('"').next().unwrap());
    let (elsewhere, borne): (BTreeSet<&str>, BTreeSet<&str>) = names.partition(|name| ELSEWHERE.contains(name));
    assert_eq!(elsewhere, ELSEWHERE.into());
    let stamp: BTreeSet<_> = borne.iter().copied().filter(|name| !name.starts_with("created-by")).collect();
    let lists = listed();
    let (of_copies, of_all): (Vec<_>, Vec<_>) = lists.iter().partition(|list| list.len() == stamp.len());
    assert_eq!((of_copies.len(), of_all.len()), (2, 6), "{lists:?}");
    of_copies.iter().for_each(|list| assert_eq!(**list, stamp, "a name is missing in the policy copies"));
    of_all.iter().for_each(|list| assert_eq!(**list, borne, "a name is missing in a policy"));
}

#[test]
fn the_warnings_about_configs_know_every_key() {
    let map = SHIPPED.split("  - name: known\n").nth(1).unwrap().split('}').next().unwrap();
    let texts: Vec<_> = map.split('\'').skip(1).step_by(2).collect();
    let known: BTreeMap<_, _> = texts.chunks(2).map(|pair| (pair[0].to_owned(), pair[1])).collect();
    assert_eq!(texts.len(), known.len() * 2, "each once");
    for key in keys::ALL.iter().map(|key| key.name) {
        assert_eq!(known.get(&letters(key)), Some(&key), "{key} is missing in the policy configs");
    }
    for (word, key) in known {
        assert!(keys::is_key(key), "{word} leads to {key}, which is no key");
        assert!(letters(key) == word || near_key(&word) == Some(key), "{word}: the verdict does not say {key}");
    }
}

#[test]
fn the_warnings_about_configs_know_every_word_for_a_secret() {
    let lists: Vec<_> = SHIPPED.split(['(', ')']).filter(|part| part.to_lowercase().starts_with("password|")).collect();
    let [plain, camel] = lists[..] else { panic!("{lists:?}") };
    let texts = |list: &str| {
        list.to_lowercase().replace(['-', '?'], "").split('|').map(str::to_owned).collect::<BTreeSet<String>>()
    };
    let known: BTreeSet<String> =
        SECRETS.iter().map(|word| letters(word)).filter(|word| word != "credential").collect();
    assert_eq!([texts(plain), texts(camel)], [known.clone(), known]);
}

#[test]
fn no_policy_scans_a_whole_object_or_checks_rights_in_one_namespace() {
    for slow in ["annotations.orValue({}).", "labels.orValue({}).", "after.filter", "before.filter"] {
        assert!(!SHIPPED.contains(slow), "{slow}: a user can make this slow; look the names up that matter");
    }
    assert!(SHIPPED.matches("key.startsWith(").count() >= 5, "the policies look at keys in another way now");
    for (at, _) in SHIPPED.match_indices("key.startsWith(") {
        let before = &SHIPPED[at.saturating_sub(120)..at];
        assert!(before.contains(".size() > 16") || before.contains(".size() <= 16"), "{before}: of few keys only");
    }
    assert!(!SHIPPED.contains(".namespace("), "the owner of a namespace has every right in it, by `*`");
}

#[test]
fn only_defaults_of_the_api_server_are_no_difference() {
    let mut live = shipped();
    object(&mut live, "ValidatingAdmissionPolicy", "claims")["spec"]["matchConstraints"]["matchPolicy"] =
        json!("Equivalent");
    assert_eq!(all(&live), vec![PolicyState::Installed; POLICIES.len()]);
    object(&mut live, "ValidatingAdmissionPolicy", "claims")["spec"]["validations"][1]["expression"] = json!("true");
    object(&mut live, "MutatingAdmissionPolicy", "copies")["spec"]["mutations"].as_array_mut().unwrap().pop();
    assert_eq!(all(&live)[3], PolicyState::Differs("spec.validations[1].expression".into()));
    assert_eq!(all(&live)[2], PolicyState::Differs("spec.mutations".into()));
}

#[test]
fn an_addition_by_which_a_policy_applies_to_fewer_requests_is_a_difference() {
    let one = json!([{ "key": "a", "operator": "Exists" }]);
    for (path, added) in [
        ("matchConstraints.objectSelector", json!({ "matchLabels": { "a": "b" } })),
        ("matchConstraints.namespaceSelector", json!({ "matchExpressions": one })),
        ("matchConstraints.excludeResourceRules", json!([{ "apiGroups": ["*"] }])),
        ("matchConstraints.matchPolicy", json!("Exact")),
        ("matchConstraints.resourceRules[0].resourceNames", json!(["a"])),
        ("matchConstraints.resourceRules[0].scope", json!("Cluster")),
        ("paramKind", json!({ "apiVersion": "v1", "kind": "ConfigMap" })),
    ] {
        let mut live = shipped();
        let spec = &mut object(&mut live, "ValidatingAdmissionPolicy", "volumes")["spec"];
        let pointer = format!("/{}", path.replace("[0]", ".0").replace('.', "/"));
        let (parent, key) = pointer.rsplit_once('/').unwrap();
        spec.pointer_mut(parent).unwrap()[key] = added;
        assert_eq!(all(&live)[4], PolicyState::Differs(format!("spec.{path}")));
    }
    // The API server adds these.
    let mut live = shipped();
    for policy in POLICIES {
        let spec = &mut object(&mut live, policy.kind.policy(), policy.name)["spec"];
        let constraints = &mut spec["matchConstraints"];
        for (key, default) in
            [("objectSelector", json!({})), ("namespaceSelector", json!({})), ("matchPolicy", json!("Equivalent"))]
        {
            if constraints[key].is_null() {
                constraints[key] = default;
            }
        }
        constraints["resourceRules"][0]["scope"] = json!("*");
    }
    assert_eq!(all(&live), vec![PolicyState::Installed; POLICIES.len()]);
}

#[test]
fn each_policy_has_one_condition_and_one_validating_policy_looks_at_a_write() {
    let mut seen = BTreeSet::new();
    for policy in shipped().iter().filter(|object| !object["spec"]["matchConstraints"].is_null()) {
        let spec = &policy["spec"];
        let conditions = spec["matchConditions"].as_array().unwrap();
        let name = &policy["metadata"]["name"];
        assert_eq!(conditions.len(), 1, "{name}: the API server evaluates all of them, whatever the first one says");
        let expression = conditions[0]["expression"].as_str().unwrap();
        let cheap = expression.split("authorizer.").next().unwrap();
        assert!(cheap.contains("object") || cheap.contains("userInfo"), "{name}: RBAC is not asked first");
        if policy["kind"] == "ValidatingAdmissionPolicy" {
            for rule in spec["matchConstraints"]["resourceRules"].as_array().unwrap() {
                let texts = |key: &str| rule[key].as_array().unwrap().iter().map(Value::to_string);
                for operation in texts("operations") {
                    texts("resources").for_each(|resource| {
                        assert!(seen.insert((operation.clone(), resource.clone())), "{name}: {operation} {resource}");
                    });
                }
            }
        }
    }
    assert!(seen.len() >= 10, "{seen:?}");
}

#[test]
fn bindings_are_checked() {
    let mut live = shipped();
    object(&mut live, "ValidatingAdmissionPolicyBinding", "images")["spec"]["validationActions"] = json!(["Audit"]);
    object(&mut live, "MutatingAdmissionPolicyBinding", "creators")["spec"]["policyName"] = json!("other");
    object(&mut live, "ValidatingAdmissionPolicyBinding", "claims")["spec"]["matchResources"] =
        json!({ "objectSelector": {}, "namespaceSelector": { "matchLabels": { "team": "green" } } });
    let states = all(&live);
    assert_eq!(
        (&states[5], &states[0], &states[3]),
        (&PolicyState::Unbound, &PolicyState::Unbound, &PolicyState::Limited)
    );
    assert_eq!(states[6], PolicyState::Installed, "a warning is its purpose");
}

#[test]
fn without_policies_the_summary_names_all_missing_protection_and_the_remedy() {
    let states = states(&[]);
    let message = summary(&states);
    assert!(message.starts_with("9 of 9 admission policies do not act"), "{message}");
    for part in ["USERNAME", "taken by another claim", INSTALL] {
        assert!(message.contains(part), "{part}: {message}");
    }
    assert_eq!(to_json(&states)[0]["installed"], false);
}
