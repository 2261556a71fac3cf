//! Tests of namespaces: their labels wake the claims that a class may serve now.

use flex_core::model::namespace::Namespace;

use super::*;

fn namespace(name: &str, labels: &[(&str, &str)]) -> WatchChange<Namespace> {
    let labels = labels.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect();
    WatchChange::Apply(Namespace { name: name.into(), labels })
}

#[test]
fn the_labels_of_a_namespace_wake_its_claims_without_a_volume_if_a_class_selects_by_labels() {
    let mut index = index();
    let pending = |namespace: &str, name: &str, stamped: bool| shared_claim(namespace, name, stamped);
    let bound = Claim { bind_completed: true, volume_name: Some("pvc".into()), ..pending("team", "bound", true) };
    let elsewhere = pending("other", "elsewhere", false);
    for claim in [pending("team", "failed", true), pending("team", "waits", false), bound, elsewhere] {
        index.change_claim(WatchChange::Apply(claim));
    }
    index.change_config(WatchChange::Apply(config(&[("namespaces", "a")])));
    assert_eq!(index.change_namespace(namespace("team", &[("tier", "gold")])), [], "no class asks for labels");
    index.change_config(WatchChange::Apply(config(&[("namespace-selector", "tier=gold")])));
    let woken = ["failed", "waits"].map(|claim| WorkItem::Claim(name(claim)));
    assert_eq!(index.change_namespace(namespace("team", &[])), woken);
    assert_eq!(index.change_namespace(namespace("team", &[])), [], "nothing changed");
    assert_eq!(index.change_namespace(namespace("third", &[("tier", "gold")])), [], "it has no claims");

    assert_eq!(index.change_namespace(WatchChange::Retain([ObjectName::new("", "third")].into_iter().collect())), []);
    assert!(index.namespaces().labels("team").is_none() && index.namespaces().labels("third").is_some());
    assert_eq!(index.change_namespace(namespace("team", &[])), woken, "it exists again");
}
