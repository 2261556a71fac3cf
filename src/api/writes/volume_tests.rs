use std::convert::Infallible;

use http::{Request, Response};
use kube::Client;
use kube::client::Body;

use super::*;
use crate::api::writes::Binding;
use crate::state::testing::identity;

#[test]
fn only_an_adopted_volume_keeps_the_policy_retain() {
    let volume = |policy: &str, annotations: Value| {
        let volume = json!({
            "metadata": { "name": "pv", "annotations": annotations },
            "spec": { "persistentVolumeReclaimPolicy": policy },
        });
        Volume::from(&serde_json::from_value::<PersistentVolume>(volume).unwrap())
    };
    let adopted = json!({ names::PROVENANCE: "{}" });
    assert!(was_retained(&volume("Retain", adopted.clone())), "an admin has seen it bound");
    assert!(!was_retained(&volume("Retain", json!({}))), "the image has no say");
    assert!(!was_retained(&volume("Delete", adopted)));
}

/// If somebody has restored etcd, the claim of a released volume is back with its UID.
#[tokio::test]
async fn a_delete_run_begins_only_for_the_volume_as_it_was_or_as_kubernetes_has_released_it() {
    let object = |version: &str, phase: &str| {
        json!({
            "metadata": { "name": "pvc-a", "uid": "v", "resourceVersion": version },
            "spec": { "claimRef": { "namespace": "team", "name": "data", "uid": "a" } }, "status": { "phase": phase },
        })
    };
    let source = async |decided_on: Value, there: Value| {
        let decided_on = Volume::from(&serde_json::from_value::<PersistentVolume>(decided_on).unwrap());
        let answer = move |_: Request<Body>| {
            let response = Response::new(Body::from(there.to_string().into_bytes()));
            async move { Ok::<_, Infallible>(response) }
        };
        let client = Client::new(tower::service_fn(answer), "own");
        Writes::new(client, identity(), Binding::Direct).source_to_delete(&decided_on).await
    };
    for (decided_on, there, begins) in [
        (("7", "Bound"), ("7", "Bound"), true),
        (("7", "Bound"), ("8", "Released"), true),
        (("7", "Released"), ("8", "Released"), true),
        (("7", "Released"), ("3", "Bound"), false),
        (("7", "Bound"), ("8", "Bound"), false),
    ] {
        let result = source(object(decided_on.0, decided_on.1), object(there.0, there.1)).await;
        let is_conflict = matches!(result, Err(WriteError::Conflict(_)));
        assert!(result.is_ok() == begins && is_conflict != begins, "{decided_on:?} {there:?}: {result:?}");
    }
}
