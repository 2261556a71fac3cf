//! Tests of `flex-pv create` with an API that accepts, refuses, fails and forgets.

use std::time::Instant;

use serde_json::json;

use super::api::{Api, Reply, error, kubeconfig_folder, path_text};
use super::tool::{Ended, flex_pv};

const POST: &str = "POST /api/v1/persistentvolumes";
const GET: &str = "GET /api/v1/persistentvolumes/pvc-c0ffee00-0000-4000-8000-000000000001";

fn create(api: &Api) -> Ended {
    flex_pv(&["create", "--nfs", "nas:/a", "--timeout", "60"], &[("KUBECONFIG", &api.kubeconfig())], "")
}

fn existing(claim: &str, path: &str) -> Reply {
    Reply::Object(
        200,
        json!({
            "metadata": {"name": "pvc-x", "annotations": {"flex-provisioner.io/claim-uuid": claim}},
            "spec": {"nfs": {"server": "nas", "path": path}},
        }),
    )
}

#[test]
fn one_request_creates_the_volume() {
    let api = Api::start(vec![Reply::Echo]);
    let ended = create(&api);
    assert_eq!(ended.code, 0, "{ended:?}");
    assert_eq!(api.asked(), [POST], "one POST, no discovery");
    assert_eq!(api.posted()["spec"]["nfs"], json!({"server": "nas", "path": "/a"}));
    let reserved = &api.posted()["spec"]["claimRef"];
    assert_eq!(reserved["name"], "c0ffee00-0000-4000-8000-000000000001", "a placeholder, not the claim");
    assert_eq!(reserved["uid"], json!(null), "otherwise the PV controller would bind it unchecked");
}

#[test]
fn a_second_run_finds_the_volume_of_the_first() {
    let uuid = "c0ffee00-0000-4000-8000-000000000001";
    for (claim, path, code, says) in [
        (uuid, "/a", 0, ""),
        (uuid, "/b", 65, "other storage"),
        ("c0ffee00-0000-4000-8000-000000000002", "/a", 65, "another claim"),
    ] {
        let api = Api::start(vec![error(409, "AlreadyExists", "already exists"), existing(claim, path)]);
        let ended = create(&api);
        assert_eq!(ended.code, code, "{ended:?}");
        assert!(ended.termination_message.contains(says), "{ended:?}");
        assert_eq!(api.asked(), [POST, GET]);
    }
}

#[test]
fn a_volume_that_disappears_in_between_is_created() {
    let api = Api::start(vec![error(409, "AlreadyExists", "a"), error(404, "NotFound", "b"), Reply::Echo]);
    assert_eq!(create(&api).code, 0);
    assert_eq!(api.asked(), [POST, GET, POST]);
}

#[test]
fn passing_trouble_is_retried() {
    let api = Api::start(vec![
        error(503, "ServiceUnavailable", "starting"),
        Reply::Text(502, "<html>bad gateway</html>"),
        error(429, "TooManyRequests", "slow down"),
        Reply::Echo,
    ]);
    let ended = create(&api);
    assert_eq!(ended.code, 0, "{ended:?}");
    assert_eq!(api.asked(), [POST; 4]);
}

#[test]
fn a_refusal_is_final() {
    let account = "User \"system:serviceaccount:flex:maker\" cannot create resource \"persistentvolumes\"";
    for (reply, code, says) in [
        (error(403, "Forbidden", account), 77, "--serviceaccount=flex:maker"),
        (error(401, "Unauthorized", "Unauthorized"), 77, "token"),
        (error(422, "Invalid", "spec.capacity: Required value"), 65, "spec.capacity"),
    ] {
        let api = Api::start(vec![reply]);
        let ended = create(&api);
        assert_eq!(ended.code, code, "{ended:?}");
        assert!(ended.termination_message.contains(says), "{ended:?}");
        assert_eq!(api.asked(), [POST]);
    }
}

#[test]
fn an_unreachable_api_is_left_to_the_next_attempt() {
    // No program gets this port by chance, as might happen with a port that was free a moment ago.
    let closed = ([127, 0, 0, 1], 1).into();
    let folder = kubeconfig_folder(closed);
    let kubeconfig = path_text(folder.path().join("config"));
    let begin = Instant::now();
    let ended = flex_pv(&["create", "--nfs", "nas:/a", "--timeout", "1"], &[("KUBECONFIG", &kubeconfig)], "");
    assert_eq!(ended.code, 75, "{ended:?}");
    assert!(ended.termination_message.contains("onnection refused"), "{ended:?}");
    // Without the flag it would try for longer.
    assert!(begin.elapsed().as_secs() < 50);
}

#[test]
fn a_missing_cluster_is_reported() {
    let ended = flex_pv(&["create", "--nfs", "nas:/a"], &[("KUBECONFIG", "/nonexistent")], "");
    assert_eq!(ended.code, 64, "{ended:?}");
    assert!(ended.termination_message.contains("--dry-run"), "{ended:?}");
}
