//! The config and the node of the runs, from the cluster.

use std::collections::BTreeMap;

use anyhow::{Context as _, anyhow};
use flex_core::claim::nodes::matches_config;
use flex_core::object::ObjectName;
use flex_core::run::node::Node;
use flex_desk::setting::{Setting, Site};
use k8s_openapi::api::core::v1::ConfigMap;
use k8s_openapi::api::storage::v1::StorageClass;
use kube::{Api, Client};
use serde_json::json;

use crate::collect::all;

/// Returns a config and all StorageClasses of the cluster, as the text of a file.
pub(super) async fn config(client: &Client, name: &ObjectName) -> anyhow::Result<String> {
    let maps: Api<ConfigMap> = Api::namespaced(client.clone(), &name.namespace);
    let read = maps.get(&name.name).await;
    let mut map = read.with_context(|| format!("the ConfigMap {name} cannot be read"))?;
    map.metadata.managed_fields = None;
    let mut documents = vec![json!(map)];
    for mut class in all::<StorageClass>(Api::all(client.clone()), "").await? {
        class.metadata.managed_fields = None;
        documents.push(json!(class));
    }
    let texts: Result<Vec<String>, _> = documents.iter().map(flex_manifest::to_yaml).collect();
    Ok(texts.map_err(|error| anyhow!("{error}"))?.join("\n---\n"))
}

/// Checks whether the runs need a node: because the storage is on nodes, or because the user names one.
pub(super) fn needs_node(setting: &Setting, wanted: Option<&str>) -> bool {
    let is_placed = setting.recipe.required_node(Some(ANY)).is_some();
    wanted.is_some() || setting.node().is_some() || is_placed
}

/// A node, for the question whether a config places its runs on one.
const ANY: &str = "any";

/// Returns the node of the runs. Where the runs need none, the user may lack the right to list nodes.
pub(super) async fn site(client: &Client, setting: &Setting, wanted: Option<&str>) -> anyhow::Result<Site> {
    if !needs_node(setting, wanted) {
        return Ok(Site { node: String::new(), labels: BTreeMap::new() });
    }
    let nodes = all::<k8s_openapi::api::core::v1::Node>(Api::all(client.clone()), "").await?;
    let nodes: Vec<Node> = nodes.iter().map(Node::from).collect();
    let serves = |node: &Node| matches_config(node, &setting.recipe) && setting.class.allowed.allows(&node.labels);
    let node = chosen(&nodes, serves, wanted).map_err(|why| anyhow!(why))?;
    Ok(Site { node: node.name.clone(), labels: node.labels.clone() })
}

/// Chooses the node of the runs: the wanted one, or the first that answers and repels the fewest pods.
fn chosen<'a>(nodes: &'a [Node], serves: impl Fn(&Node) -> bool, wanted: Option<&str>) -> Result<&'a Node, String> {
    if let Some(wanted) = wanted {
        let found = nodes.iter().find(|node| node.name == wanted);
        return match found {
            None => Err(format!("the node {wanted} does not exist: name another with --node")),
            Some(node) if !serves(node) => Err(format!(
                "the class does not allow the node {wanted}, by its topologies or the `node-selector` of the config: name another with --node"
            )),
            Some(node) => Ok(node),
        };
    }
    let able = nodes.iter().filter(|node| node.reachable && serves(node));
    able.min_by_key(|node| (node.taints.len(), &node.name)).ok_or_else(|| {
        format!("none of the {} nodes answers and is allowed by the class: name one with --node", nodes.len())
    })
}

#[cfg(test)]
mod tests {
    use flex_contract::names;
    use flex_core::config::classes::Identity;
    use flex_desk::setting::Inputs;
    use k8s_openapi::api::core::v1::Taint;

    use super::*;

    fn setting(data: &str, more: &str) -> Setting {
        let identity = Identity {
            provisioner: names::DEFAULT_PROVISIONER.into(),
            plugin: names::DEFAULT_PLUGIN.into(),
            instance: names::DEFAULT_INSTANCE.into(),
            config_namespaces: vec!["admin".into()],
            namespace: "admin".into(),
            shell_image: None,
            cluster: String::new(),
        };
        let config = format!(
            "apiVersion: v1\nkind: ConfigMap\nmetadata: {{name: c, namespace: admin, labels: {{type: provisioner-config, storage-class: c}}}}\ndata: {{plugin-name: {}, image: i{data}}}\n---\n{more}",
            names::DEFAULT_PLUGIN
        );
        Setting::read(&identity, Inputs { config: Some(config), ..Inputs::default() }).unwrap()
    }

    /// The right to list nodes is asked for only where this is true.
    #[test]
    fn only_storage_of_a_node_or_the_user_needs_a_node() {
        let class = |mode: &str| {
            format!(
                "apiVersion: storage.k8s.io/v1\nkind: StorageClass\nmetadata: {{name: c}}\nprovisioner: {}\nvolumeBindingMode: {mode}\n",
                names::DEFAULT_PROVISIONER
            )
        };
        let (at_once, waits) = (class("Immediate"), class("WaitForFirstConsumer"));
        for (data, more, wanted, expected) in [
            (", placement: any", at_once.as_str(), None, false),
            (", placement: any", at_once.as_str(), Some("a"), true),
            (", placement: any", waits.as_str(), None, true),
            (", placement: selected-node", at_once.as_str(), None, true),
        ] {
            assert_eq!(needs_node(&setting(data, more), wanted), expected, "{data} {more} {wanted:?}");
        }
    }

    fn node(name: &str, reachable: bool, taints: usize) -> Node {
        Node { name: name.into(), labels: BTreeMap::new(), reachable, taints: vec![Taint::default(); taints] }
    }

    #[test]
    fn the_node_is_the_wanted_one_or_the_first_that_can_serve() {
        let nodes = [node("c", true, 0), node("b", true, 0), node("a", false, 0), node("control", true, 1)];
        let name = |serves: fn(&Node) -> bool, wanted| chosen(&nodes, serves, wanted).map(|node| node.name.clone());
        for (what, serves, wanted, expected) in [
            ("any", (|_| true) as fn(&Node) -> bool, None, Ok("b")),
            ("the class allows one", |node| node.name == "c", None, Ok("c")),
            ("only a tainted one serves", |node| node.name == "control", None, Ok("control")),
            ("none serves", |_| false, None, Err("none of the 4 nodes")),
            ("a wanted one", |_| true, Some("c"), Ok("c")),
            ("a wanted one that does not exist", |_| true, Some("x"), Err("does not exist")),
            ("a wanted one that the class refuses", |node| node.name != "c", Some("c"), Err("does not allow")),
        ] {
            match (name(serves, wanted), expected) {
                (Ok(is), Ok(expected)) => assert_eq!(is, expected, "{what}"),
                (Err(why), Err(part)) => assert!(why.contains(part), "{what}: {why}"),
                (is, _) => panic!("{what}: {is:?}"),
            }
        }
    }
}
