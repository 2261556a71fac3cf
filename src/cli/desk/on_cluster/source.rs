//! The config and the node of the runs, from the cluster.

use std::collections::BTreeMap;

use anyhow::{Context as _, anyhow};
use flex_desk::setting::{Setting, Site};
use k8s_openapi::api::core::v1::ConfigMap;
use k8s_openapi::api::storage::v1::StorageClass;
use kube::{Api, Client};
use serde_json::json;

use crate::cli::doctor::collect::all;
use crate::object::ObjectName;
use crate::run::node::Node;

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

/// Returns the node of the runs.
pub(super) async fn site(client: &Client, setting: &Setting, wanted: Option<&str>) -> anyhow::Result<Site> {
    let nodes = all::<k8s_openapi::api::core::v1::Node>(Api::all(client.clone()), "").await?;
    let nodes: Vec<Node> = nodes.iter().map(Node::from).collect();
    let serves = |node: &Node| {
        let selected = setting.recipe.node_selector.iter().all(|(key, value)| node.labels.get(key) == Some(value));
        selected && setting.class.allowed.allows(&node.labels)
    };
    match chosen(&nodes, serves, wanted) {
        Ok(node) => Ok(Site { node: node.name.clone(), labels: node.labels.clone() }),
        // The node matters only to classes whose volumes are on nodes.
        Err(_) if setting.node().is_none() && wanted.is_none() => {
            Ok(Site { node: String::new(), labels: BTreeMap::new() })
        }
        Err(why) => Err(anyhow!(why)),
    }
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
    use k8s_openapi::api::core::v1::Taint;

    use super::*;

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
