//! Tests of drivers whose volumes some nodes do not reach.

use scripted_csi::{Act, Options};
use serde_json::{Value, json};
use tonic::Code;

use crate::run::{ONE, Stage, TWO};

fn stage() -> Stage {
    let stage = Stage::new(Options::default().with_topology());
    for (name, zone) in [("n1", "a"), ("n2", "b")] {
        stage.api.put_node(name, json!({ "zone": zone }), "csi.test", json!(["zone"]));
    }
    stage.api.put_node("n3", json!({ "zone": "c" }), "csi.other", json!(["zone"]));
    stage
}

#[test]
fn a_volume_is_made_where_its_pod_runs() {
    let stage = stage();
    stage.driver.is_at(&[&[("zone", "b")]]);
    let run = stage.run(ONE).with("NODE_NAME", "n2");
    run.provision().well();
    let asked = stage.made(ONE).request.accessibility_requirements.unwrap();
    assert_eq!(asked.preferred[0].segments["zone"], "b");
    assert_eq!(asked.requisite.len(), 3);
    let terms = |pv: Value| pv["spec"]["nodeAffinity"]["required"]["nodeSelectorTerms"].clone();
    let zone = |zone: &str| json!({ "matchExpressions": [{ "key": "zone", "operator": "In", "values": [zone] }] });
    assert_eq!(terms(stage.pv(ONE)), json!([zone("b")]));
    run.of_volume().run("delete").well();

    stage.driver.is_at(&[&[("zone", "a")], &[("zone", "b")]]);
    let strict = stage.run(TWO).with("NODE_NAME", "n1").parameter("csi-strict-topology", "true");
    strict.provision().well();
    assert_eq!(stage.made(TWO).request.accessibility_requirements.unwrap().requisite.len(), 1);
    assert_eq!(terms(stage.pv(TWO)), json!([zone("a"), zone("b")]));
}

#[test]
fn a_volume_in_the_wrong_topology_is_deleted_and_another_node_is_tried() {
    let stage = stage();
    let run = stage.run(ONE).with("NODE_NAME", "n2");
    stage.driver.is_at(&[&[("zone", "a")]]);
    // A run that leaves a volume has not been refused.
    stage.driver.acts("DeleteVolume", vec![Act::Fail(Code::Internal); 5]);
    run.provision().failed(75, "It could not be deleted again");
    run.provision().failed(69, "and not from n2. It was deleted again");
    stage.driver.is_at(&[]);
    run.provision().failed(75, "csi-topology-optional");
    assert_eq!(stage.driver.volumes().len(), 0);
    run.clone().parameter("csi-topology-optional", "true").provision().well();
    assert_eq!(stage.pv(ONE)["spec"]["nodeAffinity"], json!(null));
    run.of_volume().run("delete").well();
}

#[test]
fn without_capacity_another_node_is_tried() {
    let stage = stage();
    stage.driver.is_at(&[&[("zone", "a")]]);
    stage.driver.acts("CreateVolume", [Act::Fail(Code::ResourceExhausted), Act::Fail(Code::ResourceExhausted)]);
    stage.run(ONE).with("NODE_NAME", "n1").provision().failed(69, "RESOURCE_EXHAUSTED");
    stage.run(ONE).provision().failed(75, "RESOURCE_EXHAUSTED");
    stage.run(ONE).with("NODE_NAME", "n3").provision().failed(69, "does not run there");
    stage.run(ONE).with("NODE_NAME", "n9").provision().failed(69, "is gone");
    // The topologies of the class need no list of nodes.
    let nodes = "/apis/storage.k8s.io/v1/csinodes";
    stage.api.put(nodes, Value::Null);
    stage.run(ONE).provision().failed(77, "ClusterRole flex-csi");
    stage.run(ONE).with("CLASS_TOPOLOGIES", r#"[{"zone":["a","c"]}]"#).provision().well();
    assert_eq!(stage.made(ONE).request.accessibility_requirements.unwrap().requisite.len(), 2);
    stage.run(TWO).parameter("csi-immediate-topology", "false").provision().well();
    assert!(stage.made(TWO).request.accessibility_requirements.is_none());
}
