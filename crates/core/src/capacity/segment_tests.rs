use flex_contract::names;
use k8s_openapi::api::core::v1::Taint;
use serde_json::json;

use super::*;
use crate::config::effective_config::EffectiveConfig;
use crate::object::ObjectName;

pub(in crate::capacity) fn class(name: &str, data: &[(&str, &str)]) -> Class {
    let mut all: BTreeMap<String, String> = [("image".to_owned(), "x".to_owned())].into();
    all.extend(data.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())));
    let config = ObjectName::new("admin", format!("config-of-{}", name.trim_end_matches(char::is_numeric)));
    let record = EffectiveConfig { config, class: name.into(), data: all, ..EffectiveConfig::default() };
    Class {
        name: name.into(),
        has_object: true,
        uid: format!("uid-{name}"),
        binding: BindingMode::WaitForFirstConsumer,
        recipe: Ok(Arc::new(record.recipe().unwrap())),
        last_good: false,
        allowed: Topologies::default(),
        provisioner: String::new(),
    }
}

pub(in crate::capacity) fn node(name: &str, zone: &str) -> Arc<Node> {
    let labels = [(names::HOSTNAME, name), ("zone", zone)];
    let labels = labels.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect();
    Arc::new(Node { name: name.into(), labels, reachable: true, taints: Vec::new() })
}

const REPORTS: (&str, &str) = ("capabilities", "capacity");

fn shown(wanted: &[WantedSegment]) -> Vec<String> {
    let one = |wanted: &WantedSegment| {
        let source = match &wanted.source {
            None => " has capacity without end".to_owned(),
            Some(source) => {
                let on = source.node.as_ref().map(|node| format!(" on {node}")).unwrap_or_default();
                format!(" is asked{on}{}", if source.can_run { "" } else { ", not now" })
            }
        };
        format!("{}{source}", wanted.segment)
    };
    wanted.iter().map(one).collect()
}

#[test]
fn the_segments_follow_from_where_volumes_can_be() {
    let nodes = [node("a", "west"), node("b", "west"), node("c", "east")];
    for (data, expected) in [
        (
            vec![REPORTS],
            vec![
                "class c where kubernetes.io/hostname=a is asked on a",
                "class c where kubernetes.io/hostname=b is asked on b",
                "class c where kubernetes.io/hostname=c is asked on c",
            ],
        ),
        (
            vec![REPORTS, ("volume-affinity", "zone")],
            vec!["class c where zone=east is asked", "class c where zone=west is asked"],
        ),
        (vec![REPORTS, ("placement", "any")], vec!["class c is asked"]),
        (vec![REPORTS, ("node-selector", "zone=east")], vec!["class c where kubernetes.io/hostname=c is asked on c"]),
        (
            vec![REPORTS, ("pod-template", "spec: {nodeSelector: {zone: east}}")],
            vec!["class c where kubernetes.io/hostname=c is asked on c"],
        ),
        (vec![], vec![]),
    ] {
        assert_eq!(shown(&wanted("default", &[&class("c", &data)], &nodes, false)), expected, "{data:?}");
    }
}

#[test]
fn classes_without_a_report_have_capacity_as_soon_as_the_scheduler_checks() {
    let (asked, plain) = (class("asked", &[REPORTS, ("placement", "any")]), class("plain", &[]));
    let broken = Class { recipe: Err("no config".into()), ..class("broken", &[]) };
    let immediate = Class { binding: BindingMode::Immediate, ..class("immediate", &[REPORTS]) };
    let pure = Class { has_object: false, ..class("pure", &[REPORTS]) };
    let others = [&plain, &broken, &immediate, &pure];
    assert_eq!(shown(&wanted("default", &others, &[], false)), [""; 0], "nobody looks");
    let unasked = ["class plain has capacity without end", "class broken has capacity without end"];
    assert_eq!(shown(&wanted("default", &others, &[], true)), unasked, "somebody else has the scheduler look");
    let all = [&plain, &broken, &immediate, &pure, &asked];
    assert_eq!(shown(&wanted("default", &all, &[], false)), [unasked[0], unasked[1], "class asked is asked"]);
}

#[test]
fn nodes_that_take_no_run_get_no_capacity_run() {
    let tainted = |name: &str, node: Arc<Node>| {
        let taint = Taint { key: name.into(), effect: "NoSchedule".into(), ..Taint::default() };
        Arc::new(Node { taints: vec![taint], ..(*node).clone() })
    };
    let silent = Arc::new(Node { reachable: false, ..(*node("b", "west")).clone() });
    let nodes = [tainted("gpu", node("a", "west")), silent, node("c", "east"), tainted("x", node("d", "east"))];
    let of = |data: &[(&str, &str)]| {
        let found = wanted("default", &[&class("c", data)], &nodes, false);
        found.into_iter().map(|wanted| wanted.source.unwrap().can_run).collect::<Vec<_>>()
    };
    assert_eq!(of(&[REPORTS]), [false, false, true, false]);
    assert_eq!(of(&[REPORTS, ("tolerations", "[{key: gpu, operator: Exists}]")]), [true, false, true, false]);
    let template = json!({ "spec": { "tolerations": [{ "operator": "Exists" }] } }).to_string();
    assert_eq!(of(&[REPORTS, ("pod-template", &template)]), [true, false, true, true]);
    assert_eq!(of(&[REPORTS, ("volume-affinity", "zone")]), [true, false], "east by c, west by none");
}

#[test]
fn a_class_with_the_same_name_is_another_class() {
    let one = class("c", &[REPORTS, ("placement", "any")]);
    let again = Class { uid: "another".into(), ..one.clone() };
    let id = |instance, class: &Class| wanted(instance, &[class], &[], false)[0].segment.id.clone();
    assert_ne!(id("default", &one), id("default", &again));
    assert_ne!(id("default", &one), id("other", &one));
    assert_eq!(id("default", &one), id("default", &one.clone()));
}
