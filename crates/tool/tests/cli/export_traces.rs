//! Tests of `export-traces` with a collector that decodes what it receives.

use std::net::TcpListener;
use std::sync::{Arc, Mutex};

use axum::Router;
use axum::body::Bytes;
use axum::http::{HeaderMap, Method, StatusCode, Uri};
use opentelemetry_proto::tonic::collector::trace::v1::{
    ExportTracePartialSuccess, ExportTraceServiceRequest, ExportTraceServiceResponse,
};
use opentelemetry_proto::tonic::trace::v1::Span;
use prost::Message;
use serde_json::{Value, json};

use super::fake::{Server, list, status};
use super::run;

const UID: &str = "0f8fad5b-d9cb-469f-a165-70867728950e";

/// A request to the collector.
struct Received {
    method: Method,
    path: String,
    headers: HeaderMap,
    spans: ExportTraceServiceRequest,
}

/// A collector, which gives the same answer to each request.
struct Collector {
    address: String,
    received: Arc<Mutex<Vec<Received>>>,
}

impl Collector {
    fn start(code: u16, answer: Vec<u8>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port is free");
        listener.set_nonblocking(true).expect("a listener can be polled");
        let address = format!("http://{}", listener.local_addr().expect("it is bound"));
        let received = Arc::new(Mutex::new(Vec::new()));
        let seen = received.clone();
        let handle = async move |method: Method, uri: Uri, headers: HeaderMap, body: Bytes| {
            let spans = ExportTraceServiceRequest::decode(body).expect("the body is a request of OTLP");
            let path = uri.path().to_owned();
            seen.lock().expect("no request has failed").push(Received { method, path, headers, spans });
            (StatusCode::from_u16(code).expect("a status"), answer.clone())
        };
        std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
            runtime.block_on(async {
                let listener = tokio::net::TcpListener::from_std(listener).expect("it can be polled");
                axum::serve(listener, Router::new().fallback(handle)).await
            })
        });
        Collector { address, received }
    }

    fn accepting() -> Self {
        Collector::start(200, ExportTraceServiceResponse::default().encode_to_vec())
    }

    fn spans(&self) -> Vec<Span> {
        let received = self.received.lock().expect("no request has failed");
        let resources = received.iter().flat_map(|request| &request.spans.resource_spans);
        resources.flat_map(|resource| &resource.scope_spans).flat_map(|scope| scope.spans.clone()).collect()
    }
}

/// A claim that was bound by its second attempt.
fn claim(name: &str) -> Value {
    let created = 1_790_000_000_000i64;
    let failed = json!({
        "attempt": 1, "created": created, "ms": { "stamped": 0, "job-created": 5, "failed": 2000 },
        "reason": "ExitCode", "message": "exit code 75: the array is switched off",
    });
    let bound =
        json!({ "attempt": 2, "created": created, "ms": { "stamped": 4000, "job-created": 4005, "bound": 5000 } });
    json!({
        "metadata": {
            "name": name, "namespace": "team", "uid": UID, "creationTimestamp": "2026-09-21T14:13:20Z",
            "annotations": {
                "flex-provisioner.io/claim-uuid": UID, "flex-provisioner.io/attempt": "2",
                "flex-provisioner.io/timeline": bound.to_string(),
                "flex-provisioner.io/failed-attempts": json!({ "attempts": [failed] }).to_string(),
                "pv.kubernetes.io/bind-completed": "yes",
            },
        },
        "spec": { "storageClassName": "gold", "volumeName": "pvc-u" },
        "status": { "phase": "Bound" },
    })
}

fn cluster() -> Server {
    Server::start(vec![
        ("/apis/apps/v1/deployments?", 200, list(&[])),
        (
            "/api/v1/persistentvolumeclaims?",
            200,
            list(&[claim("a"), json!({ "metadata": { "name": "new" }, "spec": {} })]),
        ),
        ("/api/v1/namespaces/team/persistentvolumeclaims/a", 200, claim("a").to_string()),
        ("/api/v1/namespaces/team/persistentvolumeclaims?", 200, list(&[claim("a")])),
        ("/api/v1/namespaces/other/persistentvolumeclaims?", 200, list(&[])),
        ("/api/v1/namespaces/secret/persistentvolumeclaims", 403, status(403, "Forbidden")),
    ])
}

#[test]
fn the_attempts_of_all_claims_are_sent_as_spans() {
    let (cluster, collector) = (cluster(), Collector::accepting());
    let address = &collector.address;
    let answer = cluster.run(&[
        "export-traces",
        "-A",
        "--otlp",
        address,
        "--otlp-header",
        "x-team=storage,authorization=Bearer%20x",
    ]);
    let says = format!("sent 1 trace with 9 spans to {address}/v1/traces\n");
    assert_eq!((answer.out.as_str(), answer.err.as_str(), answer.code), (says.as_str(), "", Some(0)));
    let spans = collector.spans();
    let names: Vec<_> = spans.iter().map(|span| span.name.as_str()).collect();
    let attempt = ["stamped", "attempt", "job-created"];
    assert_eq!(names, [&attempt[..], &["failed"], &attempt, &["bound", "provision volume"]].concat());
    let failed = spans[1].status.clone().unwrap();
    assert_eq!((failed.code, failed.message.as_str()), (2, "ExitCode: exit code 75: the array is switched off"));
    assert!(spans.iter().all(|span| span.trace_id == spans[0].trace_id && span.trace_id.len() == 16));
    let whole = spans.last().unwrap();
    assert_eq!(whole.end_time_unix_nano - whole.start_time_unix_nano, 5_000_000_000);
    let received = collector.received.lock().unwrap();
    let [Received { method, path, headers, spans }] = &received[..] else { panic!("one request") };
    assert_eq!((method, path.as_str()), (&Method::POST, "/v1/traces"));
    for (name, value) in
        [("content-type", "application/x-protobuf"), ("x-team", "storage"), ("authorization", "Bearer x")]
    {
        assert_eq!(headers[name], value);
    }
    let resource = spans.resource_spans[0].resource.clone().unwrap();
    assert!(resource.attributes.iter().any(|pair| pair.key == "service.name"), "{resource:?}");
}

#[test]
fn one_claim_or_those_of_a_namespace_can_be_sent() {
    let (cluster, collector) = (cluster(), Collector::accepting());
    let export = |args: &[&str]| cluster.run(&[&["export-traces", "--otlp", &collector.address], args].concat());
    for args in [&["team/a"][..], &["a"], &["a", "-n", "team"], &[]] {
        let answer = export(args);
        assert!(answer.code == Some(0) && answer.out.starts_with("sent 1 trace "), "{args:?}: {}", answer.err);
    }
    let answer = export(&["-n", "other"]);
    assert_eq!((answer.out.as_str(), answer.code), ("nothing to send: no attempt of a claim has ended\n", Some(0)));
    for (args, why) in [
        (&["none"][..], "claim team/none does not exist"),
        (&["team/a", "-n", "other"], "team/a is not in namespace other: write the namespace once"),
        (&["-n", "secret"], "persistentvolumeclaims cannot be listed in secret: "),
    ] {
        let answer = export(args);
        assert!(answer.code == Some(1) && answer.err.contains(why), "{args:?}: {}", answer.err);
    }
    assert_eq!(collector.spans().len(), 36, "a repeated export sends the same spans again");
}

#[test]
fn a_collector_that_cannot_be_used_is_an_error_that_says_what_to_do() {
    let cluster = cluster();
    let export = |url: &str, more: &[&str]| cluster.run(&[&["export-traces", "--otlp", url], more].concat());
    let absent = export("http://127.0.0.1:1", &[]);
    let says = "flex-provisioner: no collector answers at http://127.0.0.1:1/v1/traces: check the address, and that the collector receives OTLP over HTTP there: ";
    assert!(absent.code == Some(1) && absent.err.starts_with(says), "{}", absent.err);
    let wrong = export("collector:4317", &[]);
    assert!(
        wrong.err.contains("--otlp collector:4317 is no address of a collector: write http://HOST:4318"),
        "{}",
        wrong.err
    );
    let header = export("http://127.0.0.1:1", &["--otlp-header", "password"]);
    assert!(header.err.contains("write NAME=VALUE") && !header.err.contains("password"), "{}", header.err);
    let file = export("https://127.0.0.1:1", &["--otlp-ca", "Cargo.toml"]);
    assert!(file.err.contains("Cargo.toml has no certificates: name a file with certificates as PEM"), "{}", file.err);
    assert_eq!(run(&["export-traces"]).code, Some(2), "no address");

    let refuses = Collector::start(401, b"who are you?\n\x1b[2J".to_vec());
    let answer = export(&refuses.address, &[]);
    let says = format!(
        "flex-provisioner: the collector at {}/v1/traces refuses the spans: HTTP 401 Unauthorized: who are you?\\n\\u{{1b}}[2J\n",
        refuses.address
    );
    assert_eq!((answer.err, answer.code), (says, Some(1)));
    let other = Collector::start(200, b"<html>welcome</html>".to_vec());
    let answer = export(&other.address, &[]);
    assert!(answer.code == Some(1) && answer.err.contains("does not answer as a collector does"), "{}", answer.err);
    let partial = ExportTracePartialSuccess { rejected_spans: 3, error_message: "too old".into() };
    let some = ExportTraceServiceResponse { partial_success: Some(partial) };
    let answer = export(&Collector::start(200, some.encode_to_vec()).address, &[]);
    assert_eq!((answer.err.as_str(), answer.code), ("the collector refused 3 spans: too old\n", Some(2)));
}
