//! Tests of expansion, attributes, capacity and lists.

use csi_spec::csi::controller_service_capability::rpc::Type;
use scripted_csi::{Act, Options};
use serde_json::json;
use tonic::Code;

use crate::run::{ONE, SIZE, Stage, TWO};

#[test]
fn a_volume_is_expanded_with_the_secret_that_it_names() {
    let stage = Stage::new(Options::default());
    stage.api.put_secret("vault", "grow", json!({ "a": "Yg==" }));
    let run = stage
        .run(ONE)
        .parameter("csi.storage.k8s.io/controller-expand-secret-name", "grow")
        .parameter("csi.storage.k8s.io/controller-expand-secret-namespace", "vault");
    run.provision().well();
    stage.driver.secrets();
    // The class names no secret any more.
    let grow = stage.run(ONE).of_volume().with("SIZE_BYTES", "3221225472").with("OLD_SIZE_BYTES", &SIZE.to_string());
    grow.run("expand").well();
    grow.run("expand").well();
    assert_eq!(stage.made(ONE).volume.capacity_bytes, 3 << 30);
    let secret = [("a".to_owned(), "b".to_owned())].into();
    assert_eq!(stage.driver.secrets()[0], ("ControllerExpandVolume", secret));
    for (code, exit) in
        [(Code::OutOfRange, 65), (Code::FailedPrecondition, 75), (Code::InvalidArgument, 65), (Code::NotFound, 75)]
    {
        stage.driver.acts("ControllerExpandVolume", [Act::Fail(code)]);
        grow.run("expand").failed(exit, "as scripted");
    }
    stage.driver.acts("ControllerExpandVolume", [Act::Lose(Code::Aborted)]);
    grow.run("expand").well();
}

#[test]
fn a_driver_that_expands_only_on_nodes_gets_no_call() {
    let stage = Stage::new(Options::default().without(Type::ExpandVolume));
    stage.run(ONE).provision().well();
    stage.run(ONE).of_volume().run("expand").well();
    let none = Stage::new(Options { expands: false, ..Options::default().without(Type::ExpandVolume) });
    none.run(ONE).provision().well();
    none.run(ONE).of_volume().run("expand").failed(78, "EXPAND_VOLUME");
}

#[test]
fn attributes_are_set_at_creation_and_later() {
    let stage = Stage::new(Options::default());
    // The parameters of a run contain those of the VolumeAttributesClass; the driver gets them apart.
    let run = stage.run(ONE).parameter("type", "x").parameter("iops", "100").with("ATTRIBUTES", r#"{"iops":"100"}"#);
    run.provision().well();
    let made = stage.made(ONE).request;
    assert_eq!(made.parameters, [("type".to_owned(), "x".to_owned())].into());
    assert_eq!(made.mutable_parameters, [("iops".to_owned(), "100".to_owned())].into());
    let modify = run.of_volume().parameter("iops", "900").with("ATTRIBUTES", r#"{"iops":"900"}"#);
    modify.run("modify").well();
    assert_eq!(stage.made(ONE).request.mutable_parameters["iops"], "900");
    stage.driver.acts("ControllerModifyVolume", [Act::Fail(Code::InvalidArgument)]);
    modify.run("modify").failed(65, "INVALID_ARGUMENT");
    // Drivers refuse a call without parameters, as a class without any would ask for.
    stage.driver.calls();
    for none in ["", "{}"] {
        modify.clone().with("ATTRIBUTES", none).run("modify").well();
    }
    assert!(stage.driver.calls().iter().all(|(call, _)| *call != "ControllerModifyVolume"));
}

#[test]
fn the_driver_reports_its_capacity() {
    let stage = Stage::new(Options::default());
    let ask = stage.run(ONE).for_no_volume();
    assert_eq!(ask.run("capacity").well().termination_message, "flex-capacity 1 107374182400\n");
    stage.driver.has_capacity(-5, Some(7));
    assert_eq!(ask.run("capacity").well().termination_message, "flex-capacity 1 0 7\n");

    let stage = Stage::new(Options::default().with_topology());
    stage.api.put_node("n1", json!({ "zone": "a", "rack": "1" }), "csi.test", json!(["zone"]));
    let ask = stage.run(ONE).for_no_volume();
    let asked = || stage.driver.calls().into_iter().find(|(call, _)| *call == "GetCapacity").unwrap().1;
    ask.run("capacity").well();
    assert_eq!(asked(), "");
    ask.clone().with("NODE_NAME", "n1").run("capacity").well();
    assert_eq!(asked(), "zone=a");
    ask.clone().with("TOPOLOGY", r#"{"zone":"b"}"#).run("capacity").well();
    assert_eq!(asked(), "zone=b");
    ask.with("NODE_NAME", "n2").run("capacity").failed(75, "no topology on the node n2");
}

#[test]
fn a_list_names_the_claim_of_each_volume() {
    let stage = Stage::new(Options::default());
    stage.run(ONE).provision().well();
    stage.run(TWO).provision().well();
    let third = "c0ffee00-0000-4000-8000-000000000003";
    stage.run(third).provision().well();
    // One volume lost its PersistentVolume, another belongs to another client.
    stage.api.remove_volume(ONE);
    let mut other = stage.pv(TWO);
    other["metadata"]["annotations"] = json!({});
    stage.api.put(&format!("/api/v1/persistentvolumes/pvc-{TWO}"), other);
    for page in [usize::MAX, 2, 1] {
        stage.driver.in_pages_of(page);
        let list = stage.run(ONE).for_no_volume().run("list").well();
        let expected = format!(
            "flex-list 1\nflex-list volume {third} 1073741824 CSI volume vol-3\nflex-list volume vol-1 1073741824 CSI volume vol-1\nflex-list end 2\n"
        );
        assert_eq!(list.out, expected);
    }
    stage.driver.acts("ListVolumes", [Act::Fail(Code::Internal)]);
    assert_eq!(stage.run(ONE).for_no_volume().run("list").failed(75, "INTERNAL").out, "");
}
