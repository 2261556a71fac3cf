//! The check whether a node reaches a volume: the node selector of a PersistentVolume against labels.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{NodeSelector, NodeSelectorRequirement, NodeSelectorTerm};

/// Checks whether labels satisfy a selector. Its terms are alternatives, and each must hold as a whole. As in
/// Kubernetes, volumes know no fields of nodes, so that a term with fields cannot be satisfied.
pub fn matches(selector: &NodeSelector, labels: &BTreeMap<String, String>) -> bool {
    selector.node_selector_terms.iter().any(|term| {
        let expressions = term.match_expressions.as_deref().unwrap_or_default();
        let fields = term.match_fields.as_deref().unwrap_or_default();
        !expressions.is_empty() && fields.is_empty() && expressions.iter().all(|expression| holds(expression, labels))
    })
}

/// Checks whether labels satisfy one requirement.
pub fn holds(requirement: &NodeSelectorRequirement, labels: &BTreeMap<String, String>) -> bool {
    let value = labels.get(&requirement.key);
    let values = requirement.values.as_deref().unwrap_or_default();
    let compared = |order: fn(&i64, &i64) -> bool| {
        let bound = values.first().and_then(|bound| bound.parse().ok());
        value.and_then(|value| value.parse().ok()).zip(bound).is_some_and(|(value, bound)| order(&value, &bound))
    };
    match requirement.operator.as_str() {
        "In" => value.is_some_and(|value| values.contains(value)),
        "NotIn" => value.is_none_or(|value| !values.contains(value)),
        "Exists" => value.is_some(),
        "DoesNotExist" => value.is_none(),
        "Gt" => compared(i64::gt),
        "Lt" => compared(i64::lt),
        _ => false,
    }
}

/// Returns the selector that binds a volume to where it was made: these labels of the node.
///
/// # Errors
/// If the node lacks a label. The error is the first such label.
pub fn of_node(keys: &[String], labels: &BTreeMap<String, String>) -> Result<NodeSelector, String> {
    let requirement = |key: &String| match labels.get(key) {
        Some(value) => {
            Ok(NodeSelectorRequirement { key: key.clone(), operator: "In".into(), values: Some(vec![value.clone()]) })
        }
        None => Err(key.clone()),
    };
    let expressions = keys.iter().map(requirement).collect::<Result<_, _>>()?;
    let term = NodeSelectorTerm { match_expressions: Some(expressions), match_fields: None };
    Ok(NodeSelector { node_selector_terms: vec![term] })
}

/// Writes a selector for an admin.
pub fn describe(selector: &NodeSelector) -> String {
    let requirement = |expression: &NodeSelectorRequirement| {
        let values = expression.values.iter().flatten().map(String::as_str).collect::<Vec<_>>().join("|");
        match (expression.operator.as_str(), values.as_str()) {
            ("In", _) => format!("{}={values}", expression.key),
            (operator, "") => format!("{} {operator}", expression.key),
            (operator, _) => format!("{} {operator} {values}", expression.key),
        }
    };
    let term = |term: &NodeSelectorTerm| {
        term.match_expressions.iter().flatten().map(requirement).collect::<Vec<_>>().join(", ")
    };
    selector.node_selector_terms.iter().map(term).collect::<Vec<_>>().join(" or ")
}

fn is_plain(label: &str) -> bool {
    label.chars().all(|c| c.is_ascii_alphanumeric() || "-._/=".contains(c))
}

/// Returns the labels that a selector requires, as `key=value` for a command; none if it leaves a choice, or if one of
/// them can be no label.
pub fn wanted_labels(selector: &NodeSelector) -> Vec<String> {
    let [term] = selector.node_selector_terms.as_slice() else { return Vec::new() };
    let label =
        |expression: &NodeSelectorRequirement| match (expression.operator.as_str(), expression.values.as_deref()) {
            ("In", Some([value])) => Some(format!("{}={value}", expression.key)).filter(|label| is_plain(label)),
            _ => None,
        };
    term.match_expressions.iter().flatten().map(label).collect::<Option<_>>().unwrap_or_default()
}

/// Returns the host name that a selector requires, if it requires exactly one.
pub fn only_host(selector: &NodeSelector) -> Option<&str> {
    let [term] = selector.node_selector_terms.as_slice() else { return None };
    let hosts = term
        .match_expressions
        .iter()
        .flatten()
        .find(|e| e.key == flex_contract::names::HOSTNAME && e.operator == "In")?;
    match hosts.values.as_deref()? {
        [host] => Some(host),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn selector(requirements: &[(&str, &str, &[&str])]) -> NodeSelector {
        let expressions = requirements
            .iter()
            .map(|(key, operator, values)| NodeSelectorRequirement {
                key: (*key).into(),
                operator: (*operator).into(),
                values: Some(values.iter().map(|v| (*v).into()).collect()),
            })
            .collect();
        NodeSelector {
            node_selector_terms: vec![NodeSelectorTerm { match_expressions: Some(expressions), match_fields: None }],
        }
    }

    #[test]
    fn each_operator_is_evaluated() {
        let labels = [("zone".to_owned(), "a".to_owned()), ("size".to_owned(), "7".to_owned())].into();
        for (key, operator, values, expected) in [
            ("zone", "In", &["a", "b"][..], true),
            ("zone", "In", &["b"], false),
            ("zone", "NotIn", &["b"], true),
            ("rack", "NotIn", &["b"], true),
            ("zone", "Exists", &[], true),
            ("rack", "DoesNotExist", &[], true),
            ("size", "Gt", &["6"], true),
            ("size", "Lt", &["6"], false),
            ("zone", "Gt", &["6"], false),
            ("zone", "Nonsense", &["a"], false),
        ] {
            assert_eq!(
                matches(&selector(&[(key, operator, values)]), &labels),
                expected,
                "{key} {operator} {values:?}"
            );
        }
        let made = of_node(&["zone".into(), "size".into()], &labels).unwrap();
        assert_eq!(made, {
            let mut both = selector(&[("zone", "In", &["a"]), ("size", "In", &["7"])]);
            both.node_selector_terms.truncate(1);
            both
        });
        assert_eq!(of_node(&["zone".into(), "rack".into()], &labels), Err("rack".to_owned()));
        assert!(!matches(&NodeSelector::default(), &labels));
        assert_eq!(only_host(&selector(&[("kubernetes.io/hostname", "In", &["n1"])])), Some("n1"));
    }
}
