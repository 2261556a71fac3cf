//! A test of the export of traces while claims are provisioned.

use std::sync::{Arc, Mutex};

use axum::Router;
use axum::body::Bytes;
use opentelemetry_proto::tonic::collector::trace::v1::{ExportTraceServiceRequest, ExportTraceServiceResponse};
use opentelemetry_proto::tonic::trace::v1::Span;
use orchestrator::kubelet::nfs_volume;
use orchestrator::ring::{ADMIN, Ring, uid};
use orchestrator::wait::until;
use prost::Message;

use crate::status::Watching;

/// Starts a collector. Returns its address, and the spans that it receives.
async fn collector() -> (String, Arc<Mutex<Vec<Span>>>) {
    let spans = Arc::new(Mutex::new(Vec::new()));
    let received = spans.clone();
    let handle = async move |body: Bytes| {
        let request = ExportTraceServiceRequest::decode(body).expect("the body is a request of OTLP");
        let scopes = request.resource_spans.into_iter().flat_map(|resource| resource.scope_spans);
        received.lock().expect("no request has failed").extend(scopes.flat_map(|scope| scope.spans));
        ExportTraceServiceResponse::default().encode_to_vec()
    };
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = format!("http://{}", listener.local_addr().unwrap());
    tokio::spawn(async move { axum::serve(listener, Router::new().fallback(handle)).await });
    (address, spans)
}

#[tokio::test]
async fn each_attempt_is_sent_once_when_it_has_ended() {
    let ring = Ring::start().await;
    let (address, spans) = collector().await;
    ring.config("c", "c", &[("backoff", "1s")]).await;
    let mut watching = Watching::start(&ring, &["export-traces", "-A", "--watch", "--otlp", &address]);
    ring.claim("a", "c").await;
    let claim = ring.stamped("a").await;
    let job = ring.job(ADMIN, "provision", &uid(&claim), 1).await;
    ring.pod_ends(&job, 75, "busy").await;
    watching.prints(&["sent 1 trace"]).await;
    let job = ring.job(ADMIN, "provision", &uid(&claim), 2).await;
    ring.create_volume(&nfs_volume(&job)).await;
    ring.bound("a").await;
    let sent = until("the span of the claim arrives", || async {
        let sent = spans.lock().unwrap().clone();
        if sent.iter().any(|span| span.name == "provision volume") { Ok(sent) } else { Err(format!("{sent:?}")) }
    })
    .await;
    let attempts: Vec<_> = sent.iter().filter(|span| span.name == "attempt").collect();
    let [failed, bound] = &attempts[..] else { panic!("each attempt is sent once: {attempts:?}") };
    let cause = failed.status.as_ref().map(|status| status.message.as_str());
    assert_eq!(cause, Some("ExitCode: exit code 75: try again later: busy"));
    assert_eq!(bound.status, None);
    let uid = uid(&claim).replace('-', "");
    let trace = |span: &Span| span.trace_id.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
    assert!(sent.iter().all(|span| trace(span) == uid), "{sent:?}");
}
