//! Tests of records whose watch is late.

use std::convert::Infallible;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use flex_core::model::stored::Stored;
use http::{Request, Response};
use kube::Client;
use kube::client::Body;

use super::*;
use crate::api::writes::Binding;
use crate::clock::Clock;
use crate::state::index::WatchChange;
use crate::state::testing::{ManualClock, claim, identity};

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

/// The reads from an API server.
type Reads = Arc<Mutex<Vec<&'static str>>>;

/// The writes to an API server, and what they depend on.
struct Server {
    writes: Writes,
    cluster: ClusterState,
    there: There,
    clock: ManualClock,
    /// What was read: lists, whole records or their metadata.
    reads: Reads,
}

impl Server {
    /// Adds a record to the API server.
    fn has(&self, record: ControllerRevision) {
        self.there.lock().unwrap().push(record);
    }

    /// Adds a record to the cache.
    fn show(&self, record: &ControllerRevision) {
        self.cluster.update(|index| index.record_answered(record_of(record).unwrap()));
    }

    /// Returns the number of lists that were read.
    fn lists(&self) -> usize {
        self.reads.lock().unwrap().iter().filter(|read| **read == "list").count()
    }

    /// Checks whether the cache has the records of the API server, a second after the last look.
    async fn is_confirmed(&self) -> bool {
        self.clock.pass(Duration::from_secs(1));
        self.writes.confirm_records().await.unwrap()
    }
}

/// Returns the writes to an API server without any record.
fn server() -> Server {
    let (there, clock, reads) = (There::default(), ManualClock::default(), Reads::default());
    let answer = {
        let (there, reads) = (there.clone(), reads.clone());
        move |request: Request<Body>| {
            let is_write = request.method() != "GET";
            let (path, query) = (request.uri().path().to_owned(), request.uri().query().unwrap_or_default().to_owned());
            let form =
                request.headers().get("accept").map(|form| form.to_str().unwrap().to_owned()).unwrap_or_default();
            let there = there.lock().unwrap().clone();
            let name = path.rsplit('/').next().unwrap_or_default();
            let found = there.iter().find(|record| record.metadata.name.as_deref() == Some(name));
            let failed = |code: u16, reason: &str| {
                (code, json!({ "kind": "Status", "status": "Failure", "code": code, "reason": reason }))
            };
            let (code, body) = match (name, found) {
                ("controllerrevisions", _) if is_write => failed(409, "AlreadyExists"),
                ("controllerrevisions", _) => {
                    assert!(query.contains("labelSelector="), "those of another orchestrator are not in the cache");
                    reads.lock().unwrap().push("list");
                    let list = json!({ "apiVersion": "apps/v1", "kind": "ControllerRevisionList", "metadata": {},
                        "items": there });
                    (200_u16, list)
                }
                (_, Some(record)) if !is_write => {
                    let is_whole = !form.contains("as=PartialObjectMetadata;");
                    reads.lock().unwrap().push(if is_whole { "whole" } else { "metadata" });
                    (200, if is_whole { json!(record) } else { json!({ "metadata": record.metadata }) })
                }
                _ => failed(404, "NotFound"),
            };
            let response = Response::builder().status(code).body(Body::from(body.to_string().into_bytes()));
            async move { Ok::<_, Infallible>(response.unwrap()) }
        }
    };
    let cluster = ClusterState::new(identity(), Clock::new(clock.clone()));
    let client = Client::new(tower::service_fn(answer), "own");
    let writes = Writes::new(client, identity(), Binding::Direct).with_cache(&cluster);
    Server { writes, cluster, there, clock, reads }
}

/// A former leader has settled it, and somebody keeps the storage since.
#[tokio::test]
async fn a_record_that_is_gone_has_no_stand_in_whatever_the_cache_says() {
    let server = server();
    let name = stand_in();
    let read = || server.writes.read_claim(&name);
    server.show(&armed(5));
    server.has(armed(6));
    assert_eq!(read().await.unwrap().unwrap().resource_version, "6");
    server.there.lock().unwrap()[0].metadata.uid = Some("another".into());
    assert!(read().await.unwrap().is_none());
    server.show(&armed(5));
    assert!(server.cluster.index().claim(&stand_in()).is_some());
    server.there.lock().unwrap().clear();
    assert!(read().await.unwrap().is_none());
    assert!(server.cluster.index().claim(&stand_in()).is_none());
    assert!(!server.reads.lock().unwrap().contains(&"whole"), "what a record stores never changes");
}

#[tokio::test]
async fn a_term_begins_when_the_cache_has_the_records_of_the_api() {
    let server = server();
    server.has(armed(6));
    assert!(!server.is_confirmed().await, "the cache has none");
    assert!(matches!(server.writes.recorded_ids().await, Err(WriteError::Conflict(_))));
    server.show(&armed(5));
    assert!(!server.is_confirmed().await, "the cache has an older one");
    server.show(&armed(6));
    assert!(server.is_confirmed().await);
    // What this process has seen stays true in its term.
    server.there.lock().unwrap().clear();
    assert!(server.is_confirmed().await && server.cluster.index().claim(&stand_in()).is_some());
    server.cluster.begin_term();
    assert!(server.is_confirmed().await);
    assert!(server.cluster.index().claim(&stand_in()).is_none(), "a former leader has deleted it");
}

/// Many claims and volumes wait at one time.
#[tokio::test]
async fn while_the_cache_lacks_records_the_api_is_asked_once_a_second() {
    let server = server();
    server.has(armed(6));
    for _ in 0..3 {
        assert!(!server.writes.confirm_records().await.unwrap());
    }
    assert_eq!(server.lists(), 1);
    assert!(!server.is_confirmed().await);
    assert_eq!(server.lists(), 2);
    server.cluster.begin_term();
    assert!(!server.writes.confirm_records().await.unwrap());
    assert_eq!(server.lists(), 3, "another term asks at once");
}

/// Else nothing would be provisioned any more.
#[tokio::test]
async fn a_record_that_no_watch_shows_again_does_not_close_the_barrier_for_ever() {
    let server = server();
    let mut held = armed(6);
    held.metadata.deletion_timestamp = serde_json::from_value(json!("2026-11-01T00:00:00Z")).unwrap();
    server.has(held);
    assert!(server.is_confirmed().await, "somebody's finalizer holds it");
    server.cluster.begin_term();
    for data in [Some(json!({})), None] {
        let other_form = ControllerRevision { data: data.map(RawExtension), ..armed(7) };
        *server.there.lock().unwrap() = vec![other_form.clone()];
        let Some(Stored::Record(record)) = crate::api::watch::stored(other_form) else { panic!("it is a record") };
        assert_eq!(record.unreadable(), 1);
        server.cluster.update(|index| index.record_answered(record));
        assert!(server.is_confirmed().await, "the watch shows it");
        server.cluster.begin_term();
    }
}

/// A watch that was interrupted has shown neither the record nor its end.
#[tokio::test]
async fn a_record_that_somebody_has_deleted_keeps_nobody_waiting() {
    let server = server();
    let claims = ["a", "b"].map(|name| claim("team", name, true));
    let data = Record::data(claims.iter());
    let metadata = json!({ "name": record_name("provision-1", &data), "uid": "r", "resourceVersion": "5",
        "annotations": { names::ARMED: "r" } });
    let record = Record::read(&serde_json::from_value(metadata).unwrap(), &data).unwrap();
    server.cluster.update(|index| index.change_claim(WatchChange::Apply(claims[1].clone())));
    server.cluster.update(|index| index.record_answered(record.clone()));
    server.writes.settle(&record, &[claims[0].uid.clone()].into()).await.unwrap();
    let index = server.cluster.index();
    assert!(index.record(&record.name.name).is_none());
    assert!(index.has_lost_record(&claims[1].uid), "the claim that is there is recorded again");
}

/// It counts no more, and its name is taken.
#[tokio::test]
async fn a_record_that_a_finalizer_holds_is_not_armed_again() {
    let server = server();
    let mut held = armed(6);
    held.metadata.labels = Some([(names::LABEL_INSTANCE.to_owned(), identity().instance)].into());
    held.metadata.deletion_timestamp = serde_json::from_value(json!("2026-11-01T00:00:00Z")).unwrap();
    let data = held.data.clone().unwrap().0;
    server.has(held);
    let refused = server.writes.arm_record("provision-1", data, "now").await;
    assert!(matches!(&refused, Err(WriteError::Refused { invalid: false, .. })), "{refused:?}");
}
