use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim};
use serde_json::json;

use super::*;
use crate::capacity::segment::tests::{class, node};
use crate::capacity::segment::wanted;
use crate::config::classes::Class;

fn volume(name: &str, class: &str, at: Option<(&str, &str)>) -> Arc<Volume> {
    let affinity = at.map(|(key, value)| {
        json!({ "required": { "nodeSelectorTerms": [{ "matchExpressions": [{ "key": key, "operator": "In", "values": [value] }] }] } })
    });
    let volume = json!({
        "metadata": { "name": name },
        "spec": { "capacity": { "storage": "1Gi" }, "storageClassName": class, "nodeAffinity": affinity },
    });
    Arc::new(Volume::from(&serde_json::from_value::<PersistentVolume>(volume).unwrap()))
}

/// Returns the fingerprints by the segment's labels, with these volumes and claims.
fn fingerprints(classes: &[&Class], volumes: &[Arc<Volume>], claims: &[Arc<Claim>]) -> BTreeMap<String, String> {
    let nodes = [node("a", "west"), node("b", "west"), node("c", "east")];
    let wanted = wanted("default", classes, &nodes, false);
    let configs = classes.iter().map(|class| (class.name.clone(), class.recipe.as_ref().unwrap().config.clone()));
    let observed = fingerprint(&wanted, &nodes, volumes.iter().cloned(), claims.iter().cloned(), &configs.collect());
    wanted.iter().map(|wanted| (wanted.segment.to_string(), observed[&wanted.segment.id].clone())).collect()
}

/// Returns the segments whose fingerprint these volumes and claims change.
fn changed(classes: &[&Class], volumes: &[Arc<Volume>], claims: &[Arc<Claim>]) -> Vec<String> {
    let (before, after) = (fingerprints(classes, &[], &[]), fingerprints(classes, volumes, claims));
    after.into_iter().filter(|(segment, observed)| before[segment] != *observed).map(|(segment, _)| segment).collect()
}

const REPORTS: (&str, &str) = ("capabilities", "capacity");

#[test]
fn a_volume_counts_in_its_segment() {
    let (by_node, by_zone) = (class("c", &[REPORTS]), class("c", &[REPORTS, ("volume-affinity", "zone")]));
    let anywhere = class("c", &[REPORTS, ("placement", "any")]);
    let host = |name: &str| [volume("v", "c", Some((names::HOSTNAME, name)))];
    let zone = [volume("v", "c", Some(("zone", "west")))];
    let nowhere = [volume("v", "c", None)];
    assert_eq!(changed(&[&by_node], &host("b"), &[]), ["class c where kubernetes.io/hostname=b"]);
    assert_eq!(changed(&[&by_node], &nowhere, &[]).len(), 3, "it may be on any");
    assert_eq!(changed(&[&by_zone], &zone, &[]), ["class c where zone=west"]);
    assert_eq!(changed(&[&by_zone], &host("c"), &[]), ["class c where zone=east"]);
    for volumes in [&host("b"), &zone, &nowhere] {
        assert_eq!(changed(&[&anywhere], volumes, &[]), ["class c"]);
    }
}

#[test]
fn classes_of_one_config_share_its_storage() {
    let (one, two, other) = (class("c1", &[REPORTS]), class("c2", &[REPORTS]), class("d", &[REPORTS]));
    let volumes = [volume("v", "c1", Some((names::HOSTNAME, "a")))];
    let expected = ["class c1 where kubernetes.io/hostname=a", "class c2 where kubernetes.io/hostname=a"];
    assert_eq!(changed(&[&one, &two, &other], &volumes, &[]), expected);
}

#[test]
fn sizes_and_names_count_and_their_order_does_not() {
    let class = class("c", &[REPORTS, ("placement", "any")]);
    let of = |volumes: &[Arc<Volume>]| fingerprints(&[&class], volumes, &[])["class c"].clone();
    let (a, b) = (volume("a", "c", None), volume("b", "c", None));
    let larger = Arc::new(Volume { size: Ok(2 << 30), ..(*a).clone() });
    assert_eq!(of(&[a.clone(), b.clone()]), of(&[b.clone(), a.clone()]));
    let different = [of(&[]), of(std::slice::from_ref(&a)), of(std::slice::from_ref(&b)), of(&[larger]), of(&[a, b])];
    assert_eq!(different.iter().collect::<std::collections::BTreeSet<_>>().len(), different.len(), "{different:?}");
    assert_eq!(of(&[volume("a", "c", None)]), "1-1073741824-eb9da32e772e8ecc".to_owned(), "it stands in the API");
}

#[test]
fn a_claim_without_space_disproves_the_answer() {
    let class = class("c", &[REPORTS]);
    let claim_of = |stamped: &str, kind: &str, nodes: &str, phase: &str| {
        let failure =
            json!({ "operation": "provision", "attempt": 1, "at": 0, "kind": kind, "reason": "r", "message": "m" });
        let claim = json!({
            "metadata": { "name": "c", "namespace": "team", "uid": "u", "annotations": {
                names::CLAIM_UID: stamped, names::ATTEMPT: "1",
                names::FAILURE: failure.to_string(), names::NODES: nodes } },
            "spec": { "storageClassName": "c", "volumeName": if phase == "Bound" { "v" } else { "" } },
            "status": { "phase": phase },
        });
        [Arc::new(Claim::from(&serde_json::from_value::<PersistentVolumeClaim>(claim).unwrap()))]
    };
    let claim = |kind: &str, nodes: &str, phase: &str| claim_of("u", kind, nodes, phase);
    let without_space = |claims: &[Arc<Claim>]| changed(&[&class], &[], claims);
    assert_eq!(without_space(&claim("no-capacity", "a", "Pending")), ["class c where kubernetes.io/hostname=a"]);
    assert_eq!(without_space(&claim("no-capacity", "a,c", "Pending")).len(), 2);
    assert_eq!(without_space(&claim("no-capacity", "", "Pending")).len(), 3);
    assert_eq!(without_space(&claim("retry", "a", "Pending")), [""; 0]);
    assert_eq!(without_space(&claim_of("another", "no-capacity", "a", "Pending")), [""; 0], "a copy of a claim");
    assert_eq!(without_space(&claim("no-capacity", "a", "Bound")), [""; 0]);
}
