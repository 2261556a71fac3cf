//! The rights of an image beside those of each image, from the Roles in the file of its config.

use std::collections::BTreeSet;

use serde_json::Value;

/// Rights on resources.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Rights(BTreeSet<[String; 3]>);

impl Rights {
    /// Returns the rights of the ClusterRoles and Roles among some objects. Bindings are not read: the file is that of one
    /// config.
    pub fn read(objects: &[Value]) -> Self {
        let is_role = |object: &&Value| matches!(object["kind"].as_str(), Some("ClusterRole" | "Role"));
        let rules = objects.iter().filter(is_role).flat_map(|role| role["rules"].as_array().into_iter().flatten());
        // A rule about one object by its name is no right on all of them.
        let rules = rules.filter(|rule| rule["resourceNames"].as_array().is_none_or(Vec::is_empty));
        let mut all = BTreeSet::new();
        for rule in rules {
            let texts = |key: &str| rule[key].as_array().cloned().unwrap_or_default().into_iter().filter_map(text);
            for group in texts("apiGroups") {
                for resource in texts("resources") {
                    all.extend(texts("verbs").map(|verb| [group.clone(), resource.clone(), verb]));
                }
            }
        }
        Rights(all)
    }

    /// Adds other rights.
    pub fn add(&mut self, other: Rights) {
        self.0.extend(other.0);
    }

    /// Checks whether a verb on a resource of a group is permitted.
    pub fn permit(&self, group: &str, resource: &str, verb: &str) -> bool {
        let matches = |[of_group, of_resource, of_verb]: &[String; 3]| {
            let is = |text: &String, wanted: &str| text == "*" || text == wanted;
            is(of_group, group) && is(of_resource, resource) && is(of_verb, verb)
        };
        self.0.iter().any(matches)
    }
}

fn text(value: Value) -> Option<String> {
    value.as_str().map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn only_roles_give_rights_and_a_star_stands_for_all() {
        let role = |kind: &str, rule: Value| json!({ "kind": kind, "rules": [rule] });
        let nodes = json!({ "apiGroups": [""], "resources": ["nodes", "pods"], "verbs": ["get", "list"] });
        let named = json!({
            "apiGroups": [""], "resources": ["secrets"], "verbs": ["get"], "resourceNames": ["one"],
        });
        let all = json!({ "apiGroups": ["storage.k8s.io"], "resources": ["*"], "verbs": ["*"] });
        let rights = Rights::read(&[
            role("ClusterRole", nodes),
            role("Role", all),
            role("ClusterRole", named),
            role("ConfigMap", json!({ "apiGroups": ["*"], "resources": ["*"], "verbs": ["*"] })),
            json!({ "kind": "ClusterRole" }),
        ]);
        for (group, resource, verb, expected) in [
            ("", "nodes", "list", true),
            ("", "pods", "get", true),
            ("", "nodes", "delete", false),
            ("apps", "nodes", "list", false),
            ("", "secrets", "get", false),
            ("storage.k8s.io", "csinodes", "patch", true),
        ] {
            assert_eq!(rights.permit(group, resource, verb), expected, "{verb} {group}/{resource}");
        }
    }
}
