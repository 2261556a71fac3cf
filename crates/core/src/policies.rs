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
pub const POLICIES: [Policy; 9] = [
    Policy {
        name: "creators",
        kind: PolicyKind::Mutating,
        without: "who created a claim is not known: USERNAME and USER_GROUPS are empty",
    },
    Policy {
        name: "reservations",
        kind: PolicyKind::Mutating,
        without: "a plain script must write the claimRef that reserves its volume",
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
        without: "an image can make volumes of any name, claim and class, or one that is taken by another claim",
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
    Policy {
        name: "runs",
        kind: PolicyKind::Validating,
        without: "a backup tool that restores the pod of a run that had begun starts its image again",
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
#[path = "policies_tests.rs"]
mod tests;
