//! The node affinity of volumes whose storage is on one node.

use std::collections::BTreeMap;

use flex_contract::names::HOSTNAME;
use flex_contract::request::RunRequest;

use crate::Failure;

/// Returns the label that selects the node on which this pod runs.
///
/// The `kubernetes.io/hostname` label may differ from the node's name. It is known if the scheduler selected this very
/// node. Else the node's name is the best guess.
pub fn this_node(request: &RunRequest, pod_node: Option<&str>) -> Result<BTreeMap<String, String>, Failure> {
    let pod_node = pod_node.filter(|node| !node.is_empty());
    let node = match (pod_node, request.node_name.as_str()) {
        (Some(node), _) => node,
        (None, "") => {
            return Err(Failure::usage(
                "the volume stands on this node, but neither POD_NODE nor NODE_NAME says which that is; \
                 set POD_NODE from the pod's spec.nodeName, or name the nodes with --affinity",
            ));
        }
        (None, selected) => selected,
    };
    let label = request.topology.get(HOSTNAME).filter(|_| node == request.node_name);
    Ok([(HOSTNAME.to_owned(), label.map_or(node, String::as_str).to_owned())].into())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(node: &str, hostname: Option<&str>) -> RunRequest {
        let topology = hostname.map(|hostname| serde_json::json!({ HOSTNAME: hostname }).to_string());
        RunRequest::from_env(|name| match name {
            "OPERATION" => Some("provision".into()),
            "SIZE_BYTES" => Some("1".into()),
            "NODE_NAME" => Some(node.into()),
            "TOPOLOGY" => topology.clone(),
            _ => Some("x".into()).filter(|_| matches!(name, "CLAIM_UUID" | "PV_NAME" | "STORAGE_CLASS")),
        })
        .unwrap()
    }

    #[test]
    fn the_affinity_is_the_label_of_the_pod_s_node() {
        for (selected, hostname, pod_node, expected) in [
            ("node-1", Some("host-1"), Some("node-1"), Some("host-1")),
            ("node-1", Some("host-1"), Some("node-2"), Some("node-2")),
            ("node-1", None, Some("node-1"), Some("node-1")),
            ("", None, Some("node-2"), Some("node-2")),
            ("node-1", Some("host-1"), None, Some("host-1")),
            ("node-1", Some("host-1"), Some(""), Some("host-1")),
            ("", None, None, None),
        ] {
            let found = this_node(&request(selected, hostname), pod_node).ok();
            let expected = expected.map(|value| [(HOSTNAME.to_owned(), value.to_owned())].into());
            assert_eq!(found, expected, "selected {selected}, label {hostname:?}, pod on {pod_node:?}");
        }
    }
}
