//! Tests of records whose watch is late.

use std::convert::Infallible;
use std::sync::{Arc, Mutex};

use http::{Request, Response};
use kube::Client;
use kube::client::Body;

use super::*;
use crate::api::writes::Binding;
use crate::clock::Clock;
use crate::state::testing::{claim, identity};

/// The records that an API server has.
type There = Arc<Mutex<Vec<ControllerRevision>>>;

/// Returns the armed record of a run for a claim.
fn armed(version: u32) -> ControllerRevision {
    let data = Record::data([claim("team", "data", true)].iter());
    let metadata = json!({
        "namespace": "own", "name": record_name("provision-1", &data), "uid": "r", "resourceVersion": version.to_string(),
        "annotations": { names::ARMED: "r" },
    });
    ControllerRevision {
        metadata: serde_json::from_value(metadata).unwrap(),
        data: Some(RawExtension(data)),
        revision: 1,
    }
}

/// Returns the name of the stand-in for the claim of the record.
fn stand_in() -> ObjectName {
    ObjectName::new("team", "data#uid-team-data")
}

/// Returns the writes to an API server that has these records.
fn writes() -> (Writes, ClusterState, There) {
    let there = There::default();
    let answer = {
        let there = there.clone();
        move |request: Request<Body>| {
            assert_eq!(request.method(), "GET");
            let (path, query) = (request.uri().path().to_owned(), request.uri().query().unwrap_or_default().to_owned());
            let there = there.lock().unwrap().clone();
            let name = path.rsplit('/').next().unwrap_or_default();
            let found = there.iter().find(|record| record.metadata.name.as_deref() == Some(name));
            let (code, body) = match (name, found) {
                ("controllerrevisions", _) => {
                    assert!(query.contains("labelSelector="), "those of another orchestrator are not in the cache");
                    let list = json!({ "apiVersion": "apps/v1", "kind": "ControllerRevisionList", "metadata": {},
                        "items": there });
                    (200_u16, list)
                }
                (_, Some(record)) => (200, json!(record)),
                (_, None) => (404, json!({ "kind": "Status", "status": "Failure", "code": 404, "reason": "NotFound" })),
            };
            let response = Response::builder().status(code).body(Body::from(body.to_string().into_bytes()));
            async move { Ok::<_, Infallible>(response.unwrap()) }
        }
    };
    let cluster = ClusterState::new(identity(), Clock::default());
    let client = Client::new(tower::service_fn(answer), "own");
    (Writes::new(client, identity(), Binding::Direct).with_cache(&cluster), cluster, there)
}

fn show(cluster: &ClusterState, record: &ControllerRevision) {
    cluster.update(|index| index.record_answered(record_of(record).unwrap()));
}

/// A former leader has settled it, and somebody keeps the storage since.
#[tokio::test]
async fn a_record_that_is_gone_has_no_stand_in_whatever_the_cache_says() {
    let (writes, cluster, there) = writes();
    show(&cluster, &armed(5));
    there.lock().unwrap().push(armed(6));
    let read = writes.read_claim(&stand_in()).await.unwrap().unwrap();
    assert_eq!(read.resource_version, "6");
    there.lock().unwrap()[0].metadata.uid = Some("another".into());
    assert!(writes.read_claim(&stand_in()).await.unwrap().is_none());
    show(&cluster, &armed(5));
    assert!(cluster.index().claim(&stand_in()).is_some());
    there.lock().unwrap().clear();
    assert!(writes.read_claim(&stand_in()).await.unwrap().is_none());
    assert!(cluster.index().claim(&stand_in()).is_none());
}

#[tokio::test]
async fn a_term_begins_when_the_cache_has_the_records_of_the_api() {
    let (writes, cluster, there) = writes();
    there.lock().unwrap().push(armed(6));
    assert!(!writes.confirm_records().await.unwrap(), "the cache has none");
    assert!(matches!(writes.recorded_ids().await, Err(WriteError::Conflict(_))));
    show(&cluster, &armed(5));
    assert!(!writes.confirm_records().await.unwrap(), "the cache has an older one");
    show(&cluster, &armed(6));
    assert!(writes.confirm_records().await.unwrap());
    // What this process has seen stays true in its term.
    there.lock().unwrap().clear();
    assert!(writes.confirm_records().await.unwrap() && cluster.index().claim(&stand_in()).is_some());
    cluster.begin_term();
    assert!(writes.confirm_records().await.unwrap());
    assert!(cluster.index().claim(&stand_in()).is_none(), "a former leader has deleted it");
}
