//! The topologies in which volumes of a class may be: `allowedTopologies` of its StorageClass.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{NodeSelectorRequirement, NodeSelectorTerm, TopologySelectorTerm};

/// The topologies that a class allows; all if the list is empty.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Topologies(Vec<BTreeMap<String, Vec<String>>>);

impl From<&[TopologySelectorTerm]> for Topologies {
    fn from(terms: &[TopologySelectorTerm]) -> Self {
        let term = |term: &TopologySelectorTerm| {
            let labels = term.match_label_expressions.iter().flatten();
            labels.map(|label| (label.key.clone(), label.values.clone())).collect()
        };
        Topologies(terms.iter().map(term).collect())
    }
}

impl Topologies {
    /// Allows only nodes with all these labels; all nodes if there are no labels.
    pub fn only(labels: &BTreeMap<String, String>) -> Self {
        let term = labels.iter().map(|(key, value)| (key.clone(), vec![value.clone()])).collect();
        Topologies(if labels.is_empty() { Vec::new() } else { vec![term] })
    }

    /// Checks whether all nodes are allowed.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Checks whether a node with these labels is allowed. As for the scheduler, a term without labels allows no node.
    pub fn allows(&self, labels: &BTreeMap<String, String>) -> bool {
        let holds =
            |(key, values): (&String, &Vec<String>)| labels.get(key).is_some_and(|label| values.contains(label));
        self.is_empty() || self.0.iter().any(|term| !term.is_empty() && term.iter().all(holds))
    }

    /// Returns the same for a pod: each term is an alternative.
    pub fn node_terms(&self) -> Vec<NodeSelectorTerm> {
        let requirement = |(key, values): (&String, &Vec<String>)| NodeSelectorRequirement {
            key: key.clone(),
            operator: "In".into(),
            values: Some(values.clone()),
        };
        let term = |labels: &BTreeMap<String, Vec<String>>| NodeSelectorTerm {
            match_expressions: Some(labels.iter().map(requirement).collect()),
            match_fields: None,
        };
        self.0.iter().map(term).collect()
    }

    /// Writes the topologies for an image, as a JSON list; empty if all are allowed. Each item is an object from a
    /// label to its values.
    pub fn json(&self) -> String {
        if self.is_empty() { String::new() } else { serde_json::json!(self.0).to_string() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_requirements_of_one_term_must_hold() {
        let terms = serde_json::json!([
            { "matchLabelExpressions": [{ "key": "zone", "values": ["a", "b"] }, { "key": "disk", "values": ["ssd"] }] },
            { "matchLabelExpressions": [{ "key": "zone", "values": ["c"] }] },
            {},
        ]);
        let terms: Vec<TopologySelectorTerm> = serde_json::from_value(terms).unwrap();
        let allowed = Topologies::from(terms.as_slice());
        let node = |labels: &[(&str, &str)]| labels.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect();
        assert!(allowed.allows(&node(&[("zone", "b"), ("disk", "ssd")])));
        assert!(allowed.allows(&node(&[("zone", "c")])));
        assert!(!allowed.allows(&node(&[("zone", "a")])) && !allowed.allows(&node(&[("zone", "d"), ("disk", "ssd")])));
        assert!(!allowed.allows(&node(&[])), "an empty term allows nothing");
        let only = Topologies::only(&node(&[("zone", "a")]));
        assert!(only.allows(&node(&[("zone", "a"), ("disk", "x")])) && !only.allows(&node(&[("zone", "b")])));
        assert!(Topologies::only(&node(&[])).is_empty());
        assert!(Topologies::default().allows(&node(&[])) && Topologies::default().json().is_empty());
        assert!(
            allowed.json().starts_with(r#"[{"disk":["ssd"],"zone":["a","b"]},{"zone":["c"]}"#),
            "{}",
            allowed.json()
        );
    }
}
