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
fn the_runs_of_a_volume_know_its_node_better_than_a_label() {
    let fqdn = [("node-2", "node-2.example.org"), ("node-1", "node-1")];
    let moved = [("a", "a"), ("b", "x")];
    // Each row has the volume's host, the nodes of its runs, the present nodes, and the node of its storage.
    type Row<'a> = (Option<&'a str>, &'a [&'a str], &'a [(&'a str, &'a str)], Result<&'a str, &'a str>);
    let table: &[Row<'_>] = &[
        (Some("node-2.example.org"), &["node-2"], &fqdn, Ok("node-2")),
        (Some("node-2.example.org"), &["node-2", "node-1"], &fqdn, Ok("node-2")),
        (Some("node-2.example.org"), &["node-2"], &[], Ok("node-2")),
        (Some("x"), &["a"], &moved, Ok("a")),
        (Some("x"), &["a", "c"], &moved, Err("runs were on a, c, and kubernetes.io/hostname=x now leads to b")),
        (Some("x"), &[], &moved, Err("runs were on no known node, and kubernetes.io/hostname=x now leads to b")),
        (Some("x"), &[], &[("a", "x"), ("x", "x")], Err("leads to a, x")),
        (Some("x"), &[], &[("x", "y")], Err("leads to no node")),
        (Some("x"), &[], &[("x", "x")], Ok("x")),
        (None, &[], &moved, Err("runs were on no known node, and its node affinity now leads to no node")),
        (None, &["a"], &moved, Ok("a")),
    ];
    for (host, runs, all, expected) in table {
        let (volume, all) = (on(*host), nodes(all));
        let found = origin_of_unadopted(&volume, &runs.iter().copied().collect(), all.iter());
        match (expected, &found) {
            (Ok(node), Ok(found)) => assert_eq!(found, node, "{host:?} {runs:?} {all:?}"),
            (Err(says), Err(why)) => assert!(why.contains(says), "{why}"),
            _ => panic!("{host:?} {runs:?} {all:?}: {found:?}"),
        }
    }
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
