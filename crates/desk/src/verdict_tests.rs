use std::time::Duration;

use flex_contract::names::{self, pv_name};
use flex_contract::volume::{Made, persistent_volume};
use k8s_openapi::api::core::v1::{NFSVolumeSource, PersistentVolumeSpec};
use serde_json::json;

use super::*;
use crate::setting::tests::{config, read};

fn ended(code: i32, message: &str) -> Ended {
    let message = message.to_owned();
    Ended { code, message, took: Duration::from_millis(1), not_started: None, ..Ended::not_started(String::new()) }
}

fn judged(setting: &Setting, volume: Option<&PersistentVolume>, ended: &Ended) -> (bool, Vec<String>) {
    let verdict = verdict(setting, Operation::Provision, &setting.claim, volume, ended);
    (verdict.is_good(), verdict.events.iter().map(|event| format!("{}: {}", event.reason, event.message)).collect())
}

fn volume(setting: &Setting) -> PersistentVolume {
    let nfs = NFSVolumeSource { server: "s".into(), path: "/p".into(), read_only: None };
    let source = PersistentVolumeSpec { nfs: Some(nfs), ..PersistentVolumeSpec::default() };
    persistent_volume(&setting.request(&setting.claim, 1, ""), Made { source, ..Made::default() })
}

#[test]
fn a_volume_that_fits_is_bound_and_another_is_refused() {
    let setting = read(&config("a", "image: i, service-account-name: s"), None).unwrap();
    let mut volume = volume(&setting);
    let (good, events) = judged(&setting, Some(&volume), &ended(0, ""));
    assert!(good && events[0].starts_with("ProvisioningSucceeded"), "{events:?}");
    volume.spec.as_mut().unwrap().storage_class_name = Some("b".into());
    let (good, events) = judged(&setting, Some(&volume), &ended(0, ""));
    let name = pv_name(&setting.claim.volume_id());
    let refused = format!(
        "VolumeRefused: volume {name} does not fit the claim and is not bound: its class is `b`, the claim's is `a`"
    );
    assert_eq!((good, events), (false, vec![refused]));
}

/// The cluster judges a volume by the node that the scheduler selected, wherever the run was.
#[test]
fn a_volume_for_another_node_is_refused_where_the_scheduler_selects_one() {
    let says = |binding: &str, keys: &str| {
        let class = format!(
            "apiVersion: storage.k8s.io/v1\nkind: StorageClass\nmetadata: {{name: a}}\nprovisioner: {}\nvolumeBindingMode: {binding}\n",
            names::DEFAULT_PROVISIONER
        );
        let text = config("a", &format!("image: i, service-account-name: s, {keys}")) + &class;
        let setting = read(&text, None).unwrap();
        let is_elsewhere = setting.node().is_some_and(|node| node != setting.pod_node());
        assert_eq!(is_elsewhere, binding == "WaitForFirstConsumer" && keys == "placement: any", "{binding}, {keys}");
        let mut volume = volume(&setting);
        let affinity = json!({ "required": { "nodeSelectorTerms": [{ "matchExpressions": [
            { "key": names::HOSTNAME, "operator": "In", "values": ["elsewhere"] },
        ] }] } });
        volume.spec.as_mut().unwrap().node_affinity = serde_json::from_value(affinity).unwrap();
        judged(&setting, Some(&volume), &ended(0, "")).1.remove(0)
    };
    let excluded = "its node affinity excludes the selected node";
    for (binding, keys, judged) in [
        ("WaitForFirstConsumer", "placement: any", true),
        ("WaitForFirstConsumer", "placement: selected-node", true),
        ("Immediate", "placement: any", false),
        ("Immediate", "placement: selected-node", true),
    ] {
        let said = says(binding, keys);
        assert_eq!(said.contains(excluded), judged, "{binding}, {keys}: {said}");
    }
}

#[test]
fn a_volume_in_the_zone_of_the_selected_node_fits() {
    let zone = "topology.kubernetes.io/zone";
    let class = format!(
        "apiVersion: storage.k8s.io/v1\nkind: StorageClass\nmetadata: {{name: a}}\nprovisioner: {}\nvolumeBindingMode: WaitForFirstConsumer\nallowedTopologies: [{{matchLabelExpressions: [{{key: {zone}, values: [b, c]}}]}}]\n",
        names::DEFAULT_PROVISIONER
    );
    let keys = format!("image: i, service-account-name: s, placement: any, volume-affinity: {zone}");
    let setting = read(&(config("a", &keys) + &class), None).unwrap();
    let asked = setting.request(&setting.claim, 1, "");
    assert_eq!(asked.topology.get(zone).map(String::as_str), Some("b"));
    for (value, fits) in [("b", true), ("c", false)] {
        let mut volume = volume(&setting);
        let affinity = json!({ "required": { "nodeSelectorTerms": [{ "matchExpressions": [
            { "key": zone, "operator": "In", "values": [value] },
        ] }] } });
        volume.spec.as_mut().unwrap().node_affinity = serde_json::from_value(affinity).unwrap();
        let (good, events) = judged(&setting, Some(&volume), &ended(0, ""));
        assert_eq!(good, fits, "{value}: {events:?}");
    }
}

#[test]
fn a_failure_is_an_event_with_the_next_step() {
    let text = |data: &str, run: &Ended| judged(&read(&config("a", data), None).unwrap(), None, run).1.remove(0);
    let local = "image: i, placement: selected-node";
    assert!(text(local, &ended(75, "later")).ends_with("try again later: later; next try in 2 s"));
    assert!(text(local, &ended(65, "no")).contains("the provisioner config or the class changes"));
    assert!(
        text(local, &ended(69, "full")).ends_with("no room here: full; next try in 2 s"),
        "an immediate class has no other node"
    );
    let none = text(local, &ended(0, ""));
    assert!(
        none.contains("without creating the PersistentVolume") && none.contains("no `service-account-name`"),
        "{none}"
    );
    let late = Ended { timed_out: true, ..ended(137, "stopping") };
    assert!(text(local, &late).contains("did not end within `timeout`; its last words: stopping"));
    let refused = text(local, &Ended::not_started("no such file".into()));
    assert!(refused.contains("the container could not start: no such file"), "{refused}");
}

#[test]
fn a_run_that_must_answer_fails_without_its_answer() {
    let setting = read(&config("a", "image: i, capabilities: 'list, capacity'"), None).unwrap();
    let of = |operation, run: &Ended| verdict(&setting, operation, &setting.claim, None, run).is_good();
    assert!(!of(Operation::List, &ended(0, "")) && !of(Operation::Capacity, &ended(0, "flex-capacity")));
    assert!(of(Operation::Capacity, &ended(0, "flex-capacity 1 10")) && of(Operation::Delete, &ended(0, "")));
    let list = Ended { log: flex_contract::listing::write(&[]), ..ended(0, "") };
    assert!(of(Operation::List, &list));
}
