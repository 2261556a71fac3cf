use flex_contract::names;
use serde_json::json;

use super::*;

/// Returns nodes, each with a name and a host name label.
fn nodes(all: &[(&str, &str)]) -> Vec<Node> {
    let node = |(name, host): &(&str, &str)| Node {
        name: (*name).into(),
        labels: [(names::HOSTNAME.to_owned(), (*host).to_owned())].into(),
        reachable: true,
        taints: vec![],
    };
    all.iter().map(node).collect()
}

fn on(host: Option<&str>) -> Volume {
    let affinity = host.map(|host| {
        json!({ "required": { "nodeSelectorTerms": [{ "matchExpressions": [
            { "key": names::HOSTNAME, "operator": "In", "values": [host] },
        ] }] } })
    });
    let volume = json!({ "metadata": { "name": "pvc-a" }, "spec": { "nodeAffinity": affinity } });
    Volume::from(&serde_json::from_value::<k8s_openapi::api::core::v1::PersistentVolume>(volume).unwrap())
}

#[test]
fn an_affinity_leads_elsewhere_only_if_it_excludes_the_node_of_the_record() {
    let all = nodes(&[("a", "a"), ("b", "x")]);
    let leads = |host: Option<&str>, origin: &str| {
        leads_elsewhere(&on(host), all.iter().find(|node| node.name == origin), all.iter()).map(str::to_owned)
    };
    assert_eq!(leads(Some("x"), "a").as_deref(), Some("b"));
    assert_eq!(leads(Some("x"), "gone").as_deref(), Some("b"));
    for (host, origin) in [(Some("x"), "b"), (Some("y"), "a"), (None, "a")] {
        assert_eq!(leads(host, origin), None, "{host:?} {origin:?}");
    }
    // If a node is gone, the other nodes of its zone prove nothing about it.
    let zone = json!({ "required": { "nodeSelectorTerms": [{ "matchExpressions": [
        { "key": names::HOSTNAME, "operator": "Exists" },
    ] }] } });
    let volume = json!({ "metadata": { "name": "pvc-a" }, "spec": { "nodeAffinity": zone } });
    let volume = Volume::from(&serde_json::from_value::<k8s_openapi::api::core::v1::PersistentVolume>(volume).unwrap());
    assert_eq!(leads_elsewhere(&volume, None, all.iter()), None);
    assert_eq!(leads_elsewhere(&volume, None, all[..1].iter()), Some("a"), "the only node that can have it");
}
