//! The check whether the admission policies are installed as shipped: a pure comparison with those of the cluster.

use flex_contract::names;
use serde_json::{Value, json};

/// The instruction to install the policies, at the end of each message about a missing one.
pub const INSTALL: &str =
    "kubectl apply -k deploy/kustomize, or helm upgrade with policies.mutating=true and policies.validating=true";

const SHIPPED: &str = include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/../../deploy/kustomize/policies.yaml"));

/// The effect that a policy has on requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PolicyKind {
    /// The policy changes them.
    Mutating,
    /// The policy refuses some.
    Validating,
    /// The policy lets them pass, and warns the sender.
    Warning,
}

impl PolicyKind {
    /// Returns the kind of such policies in the API.
    pub fn policy(self) -> &'static str {
        match self {
            PolicyKind::Mutating => "MutatingAdmissionPolicy",
            PolicyKind::Validating | PolicyKind::Warning => "ValidatingAdmissionPolicy",
        }
    }
}

/// One of the shipped policies.
#[derive(Debug)]
pub struct Policy {
    /// The value of its label [`names::LABEL_POLICY`].
    pub name: &'static str,
    /// The effect of the policy.
    pub kind: PolicyKind,
    /// The feature that is off without the policy.
    pub without: &'static str,
}

/// All shipped policies.
pub const POLICIES: [Policy; 8] = [
    Policy {
        name: "creators",
        kind: PolicyKind::Mutating,
        without: "who created a claim is not known: USERNAME and USER_GROUPS are empty",
    },
    Policy {
        name: "reservations",
        kind: PolicyKind::Mutating,
        without: "a volume that a plain script makes can be taken by another claim, or bound before it is checked",
    },
    Policy {
        name: "copies",
        kind: PolicyKind::Mutating,
        without: "copied claims have the stamp of the original until the orchestrator replaces it",
    },
    Policy {
        name: "claims",
        kind: PolicyKind::Validating,
        without: "users can change and remove what the provisioner wrote on their claims, and forge the creator",
    },
    Policy {
        name: "volumes",
        kind: PolicyKind::Validating,
        without: "anybody who may change volumes can change what the provisioner wrote on them, and images can do so too",
    },
    Policy {
        name: "images",
        kind: PolicyKind::Validating,
        without: "an image can make volumes of any name, claim and class",
    },
    Policy {
        name: "configs",
        kind: PolicyKind::Warning,
        without: "a person who applies a provisioner config with a slip in its labels or keys gets no message at once",
    },
    Policy {
        name: "provisioners",
        kind: PolicyKind::Mutating,
        without: "claims can get the warning `Error saving claim` of the PV controller, which is harmless",
    },
];

/// The state of a policy in the cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PolicyState {
    /// The policy is as shipped.
    Installed,
    /// The binding selects only some objects.
    Limited,
    /// The policy does not exist.
    Missing,
    /// The policy exists without an effective binding.
    Unbound,
    /// The policy differs from the shipped one, first at this path.
    Differs(String),
}

impl PolicyState {
    /// Checks whether the policy works as shipped.
    pub fn is_installed(&self) -> bool {
        matches!(self, PolicyState::Installed | PolicyState::Limited)
    }

    /// Describes the state.
    pub fn describe(&self) -> String {
        match self {
            PolicyState::Installed => "installed".into(),
            PolicyState::Limited => "installed, its binding selects some objects only".into(),
            PolicyState::Missing => "not installed".into(),
            PolicyState::Unbound => "without a binding that acts".into(),
            PolicyState::Differs(at) => format!("not as shipped with this version, at {at}"),
        }
    }
}

/// A shipped policy, with its state in the cluster.
#[derive(Clone, Debug)]
pub struct CheckedPolicy {
    /// The policy.
    pub policy: &'static Policy,
    /// The state of the policy in the cluster.
    pub state: PolicyState,
}

/// Returns the state of each shipped policy, from all policies and bindings of the cluster.
pub fn states(live: &[Value]) -> Vec<CheckedPolicy> {
    let shipped: Vec<Value> = shipped();
    POLICIES
        .iter()
        .map(|policy| {
            let spec = shipped.iter().find(|object| is_policy(object, policy)).map(|object| &object["spec"]);
            let spec = spec.expect("each policy is shipped: a test sees to it");
            let there = live.iter().filter(|object| is_policy(object, policy));
            // A second instance in the cluster may have installed its own copy.
            let best = there.map(|object| state(policy, spec, object, live)).min_by_key(rank);
            CheckedPolicy { policy, state: best.unwrap_or(PolicyState::Missing) }
        })
        .collect()
}

/// Summarises the states in one line, for the log and the end of `status`.
pub fn summary(states: &[CheckedPolicy]) -> String {
    let off: Vec<_> = states.iter().filter(|checked| !checked.state.is_installed()).collect();
    if off.is_empty() {
        return "the admission policies are installed".into();
    }
    let each: Vec<_> = off
        .iter()
        .map(|CheckedPolicy { policy, state }| format!("{} ({}): {}", policy.name, state.describe(), policy.without))
        .collect();
    format!(
        "{} of {} admission policies do not act: {}; install them: {INSTALL}",
        off.len(),
        states.len(),
        each.join("; ")
    )
}

/// Writes the states as JSON, for scripts.
pub fn to_json(states: &[CheckedPolicy]) -> Value {
    let each: Vec<_> = states
        .iter()
        .map(|CheckedPolicy { policy, state }| {
            let without = (!state.is_installed()).then_some(policy.without);
            json!({ "policy": policy.name, "kind": policy.kind.policy(), "installed": state.is_installed(), "state": state.describe(), "without": without })
        })
        .collect();
    json!(each)
}

fn shipped() -> Vec<Value> {
    let documents = SHIPPED.split("\n---\n").filter(|document| document.contains("\nkind: "));
    documents
        .map(|document| serde_saphyr::from_str(document).expect("the shipped file is YAML: a test sees to it"))
        .collect()
}

fn is_policy(object: &Value, policy: &Policy) -> bool {
    object["kind"] == policy.kind.policy() && object["metadata"]["labels"][names::LABEL_POLICY] == policy.name
}

fn rank(state: &PolicyState) -> usize {
    match state {
        PolicyState::Installed => 0,
        PolicyState::Limited => 1,
        PolicyState::Differs(_) => 2,
        PolicyState::Unbound => 3,
        PolicyState::Missing => 4,
    }
}

fn state(policy: &Policy, spec: &Value, object: &Value, live: &[Value]) -> PolicyState {
    let changed = difference(spec, &object["spec"], "spec");
    if let Some(at) = changed.or_else(|| loosened(spec, &object["spec"])) {
        return PolicyState::Differs(at);
    }
    let binding = format!("{}Binding", policy.kind.policy());
    let acts = |object: &&Value| {
        let wanted: &[&str] = match policy.kind {
            PolicyKind::Mutating => return true,
            PolicyKind::Validating => &["Deny"],
            PolicyKind::Warning => &["Deny", "Warn"],
        };
        let actions = object["spec"]["validationActions"].as_array();
        actions.is_some_and(|actions| actions.iter().any(|action| wanted.iter().any(|wanted| action == wanted)))
    };
    let bound = live.iter().filter(|candidate| {
        candidate["kind"] == binding && candidate["spec"]["policyName"] == object["metadata"]["name"]
    });
    match bound.filter(acts).map(|binding| is_limited(&binding["spec"]["matchResources"])).min() {
        None => PolicyState::Unbound,
        Some(true) => PolicyState::Limited,
        Some(false) => PolicyState::Installed,
    }
}

/// Checks whether the resources of a binding leave something out.
fn is_limited(resources: &Value) -> bool {
    let selects = |key: &str| resources[key].as_object().is_some_and(|selector| !selector.is_empty());
    let lists = |key: &str| resources[key].as_array().is_some_and(|rules| !rules.is_empty());
    selects("namespaceSelector") || selects("objectSelector") || lists("resourceRules") || lists("excludeResourceRules")
}

/// Returns the path of the first difference from the shipped policy. Defaults that the API server adds are no
/// difference.
fn difference(shipped: &Value, live: &Value, at: &str) -> Option<String> {
    match (shipped, live) {
        (Value::Object(shipped), Value::Object(live)) => shipped
            .iter()
            .find_map(|(key, value)| difference(value, live.get(key).unwrap_or(&Value::Null), &format!("{at}.{key}"))),
        (Value::Array(shipped), Value::Array(live)) if shipped.len() == live.len() => {
            shipped.iter().zip(live).enumerate().find_map(|(n, (s, l))| difference(s, l, &format!("{at}[{n}]")))
        }
        (shipped, live) => (shipped != live).then(|| at.to_owned()),
    }
}

/// Returns the path of an addition to a shipped policy that makes the policy apply to fewer requests. This is a
/// selector, names of objects, an excluded resource, or a parameter that can be missing.
fn loosened(shipped: &Value, live: &Value) -> Option<String> {
    let parameter = live.get("paramKind").filter(|kind| shipped.get("paramKind").is_none() && !is_default("", kind));
    parameter
        .map(|_| "spec.paramKind".to_owned())
        .or_else(|| addition(&shipped["matchConstraints"], &live["matchConstraints"], "spec.matchConstraints"))
}

/// Returns the path of the first field that only the live value has, and that has no default.
fn addition(shipped: &Value, live: &Value, at: &str) -> Option<String> {
    match (shipped, live) {
        (Value::Object(shipped), Value::Object(live)) => live.iter().find_map(|(key, value)| {
            let at = format!("{at}.{key}");
            match shipped.get(key) {
                Some(shipped) => addition(shipped, value, &at),
                None => (!is_default(key, value)).then_some(at),
            }
        }),
        (Value::Array(shipped), Value::Array(live)) => {
            shipped.iter().zip(live).enumerate().find_map(|(n, (s, l))| addition(s, l, &format!("{at}[{n}]")))
        }
        _ => None,
    }
}

/// Checks whether a field of `matchConstraints` has the default of the API server.
fn is_default(key: &str, value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Array(items) => items.is_empty(),
        Value::Object(fields) => fields.is_empty(),
        value => matches!((key, value.as_str()), ("matchPolicy", Some("Equivalent")) | ("scope", Some("*"))),
    }
}

#[cfg(test)]
mod tests {
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
    const ELSEWHERE: [&str; 25] = [
        "capacity",
        "capacity-fingerprint",
        "claim",
        "class",
        "clone-",
        "cluster",
        "deletion-policy",
        "first-job",
        "log",
        "operation",
        "p",
        "policy",
        "requested-at",
        "retry",
        "revision-of",
        "script",
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
        let lists: Vec<_> =
            SHIPPED.split(['(', ')']).filter(|part| part.to_lowercase().starts_with("password|")).collect();
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
        object(&mut live, "ValidatingAdmissionPolicy", "claims")["spec"]["validations"][1]["expression"] =
            json!("true");
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
                constraints[key] = default;
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
            assert_eq!(
                conditions.len(),
                1,
                "{name}: the API server evaluates all of them, whatever the first one says"
            );
            let expression = conditions[0]["expression"].as_str().unwrap();
            let cheap = expression.split("authorizer.").next().unwrap();
            assert!(cheap.contains("object") || cheap.contains("userInfo"), "{name}: RBAC is not asked first");
            if policy["kind"] == "ValidatingAdmissionPolicy" {
                for rule in spec["matchConstraints"]["resourceRules"].as_array().unwrap() {
                    let texts = |key: &str| rule[key].as_array().unwrap().iter().map(Value::to_string);
                    for operation in texts("operations") {
                        texts("resources").for_each(|resource| {
                            assert!(
                                seen.insert((operation.clone(), resource.clone())),
                                "{name}: {operation} {resource}"
                            );
                        });
                    }
                }
            }
        }
        assert!(seen.len() >= 9, "{seen:?}");
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
        assert!(message.starts_with("8 of 8 admission policies do not act"), "{message}");
        for part in ["USERNAME", "taken by another claim", INSTALL] {
            assert!(message.contains(part), "{part}: {message}");
        }
        assert_eq!(to_json(&states)[0]["installed"], false);
    }
}
