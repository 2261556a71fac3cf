use axum::http::Method;
use http_body_util::BodyExt;
use kube::Client;
use serde_json::json;
use tokio::sync::watch;
use tower::ServiceExt;

use super::*;
use crate::api::events::{EventRecorder, Reporter};
use crate::api::writes::{Binding, Writes};
use crate::clock::Clock;
use crate::metrics::Metrics;
use crate::overview::{OVERVIEW_PATH, Overview};
use crate::reconcile::Context;
use crate::state::ClusterState;
use crate::state::testing::identity;

/// Returns a client whose server answers each request with a refusal.
fn refused() -> Client {
    let service = tower::service_fn(|_: axum::http::Request<kube::client::Body>| async {
        let status =
            json!({ "kind": "Status", "status": "Failure", "code": 403, "message": "no", "reason": "Forbidden" });
        let body = kube::client::Body::from(status.to_string().into_bytes());
        Ok::<_, std::convert::Infallible>(axum::http::Response::builder().status(403).body(body).unwrap())
    });
    Client::new(service, "default")
}

fn served() -> Router {
    router("127.0.0.1:8081".parse().unwrap(), Arc::new(sources(false).0))
}

/// Returns the sources of a page whose replica leads, or does not.
fn sources(leads: bool) -> (Sources, ClusterState) {
    let identity = identity();
    let (client, clock) = (refused(), Clock::default());
    let cluster = ClusterState::new(identity.clone(), clock.clone());
    let (events, _) = EventRecorder::start(client.clone(), Reporter::new(&identity.provisioner, "me"), clock.clone());
    let writes = Writes::new(client.clone(), identity.clone(), Binding::Direct);
    let context = Context::new(identity, cluster.clone(), writes, events, Metrics::default(), String::new(), clock);
    let (leading, holder) = (watch::channel(leads).1, watch::channel("other".to_owned()).1);
    let policies = PolicyStates::default();
    (Sources { context, client, replica: "me".into(), leading, holder, policies }, cluster)
}

async fn asked(method: Method, path: &str, headers: &[(&str, &str)]) -> (StatusCode, HeaderMap, String) {
    let mut request = axum::http::Request::builder().method(method).uri(path);
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    let response = served().oneshot(request.body(Body::empty()).unwrap()).await.unwrap();
    let (parts, body) = response.into_parts();
    let body = body.collect().await.unwrap().to_bytes();
    (parts.status, parts.headers, String::from_utf8(body.to_vec()).unwrap())
}

const HOST: (&str, &str) = ("host", "localhost:40000");

#[tokio::test]
async fn each_page_is_html_and_json() {
    for path in ["/", "/claims", "/runs", "/failures", "/findings", "/configs"] {
        let (status, headers, html) = asked(Method::GET, path, &[HOST]).await;
        assert_eq!((status, &headers["content-type"]), (StatusCode::OK, &"text/html; charset=utf-8".parse().unwrap()));
        assert!(html.starts_with("<!DOCTYPE html>") && html.contains("<noscript>"), "{html}");
        assert!(html.contains("This replica does not lead") && html.contains("<bdi>other</bdi>"), "{html}");
        let by_query = asked(Method::GET, &format!("{path}?a=b&format=json"), &[HOST]).await;
        let by_header = asked(Method::GET, path, &[HOST, ("accept", "application/json")]).await;
        for (status, headers, text) in [by_query, by_header] {
            assert_eq!((status, &headers["content-type"]), (StatusCode::OK, &"application/json".parse().unwrap()));
            let json: serde_json::Value = serde_json::from_str(&text).unwrap();
            assert_eq!((&json["head"]["leads"], &json["head"]["leader"]), (&json!(false), &json!("other")), "{json}");
        }
    }
}

#[tokio::test]
async fn each_answer_is_protected() {
    for (method, path, host, expected) in [
        (Method::GET, "/", "localhost", StatusCode::OK),
        (Method::HEAD, "/", "127.0.0.1:8081", StatusCode::OK),
        (Method::GET, "/assets/style.css", "[::1]:8081", StatusCode::OK),
        (Method::GET, "/claims/team/absent", "localhost", StatusCode::NOT_FOUND),
        (Method::GET, "/absent", "localhost", StatusCode::NOT_FOUND),
        (Method::POST, "/", "localhost", StatusCode::METHOD_NOT_ALLOWED),
        (Method::DELETE, "/claims/team/a", "localhost", StatusCode::METHOD_NOT_ALLOWED),
        (Method::GET, "/", "evil.example", StatusCode::MISDIRECTED_REQUEST),
        (Method::GET, "/assets/style.css", "evil.example:8081", StatusCode::MISDIRECTED_REQUEST),
    ] {
        let (status, headers, body) = asked(method.clone(), path, &[("host", host)]).await;
        assert_eq!(status, expected, "{method} {path} of {host}: {body}");
        let policy = headers["content-security-policy"].to_str().unwrap();
        assert!(policy.starts_with("default-src 'none'; style-src 'self'; script-src 'self'; "), "{policy}");
        assert!(policy.contains("frame-ancestors 'none'") && !policy.contains("unsafe"), "{policy}");
        for (name, value) in
            [("x-content-type-options", "nosniff"), ("referrer-policy", "no-referrer"), ("cache-control", "no-store")]
        {
            assert_eq!(headers[name], value, "{method} {path}");
        }
        assert!(method != Method::HEAD || body.is_empty(), "{body}");
    }
    assert_eq!(asked(Method::GET, "/", &[]).await.0, StatusCode::BAD_REQUEST);
}

#[tokio::test]
async fn the_path_of_a_claim_is_only_ever_text() {
    let (_, _, html) = asked(Method::GET, "/claims/%3Cscript%3E/%22%3E%3Cscript%3E", &[HOST]).await;
    assert!(!html.contains("<script>"), "{html}");
    let (status, _, text) = asked(Method::GET, "/claims/a/b?format=json", &[HOST]).await;
    assert!(status == StatusCode::NOT_FOUND && text.starts_with(r#"{"head""#), "{text}");
}

#[test]
fn a_browser_gets_html() {
    for (query, accept, expected) in [
        ("/", None, Form::Html),
        ("/", Some("text/html,application/xhtml+xml,application/json"), Form::Html),
        ("/", Some("application/json"), Form::Json),
        ("/", Some("application/json;q=0.9, text/html"), Form::Json),
        ("/?format=json", Some("text/html"), Form::Json),
        ("/?format=html&format=json", None, Form::Json),
        ("/?xformat=json", None, Form::Html),
    ] {
        let mut headers = HeaderMap::new();
        accept.iter().for_each(|accept| drop(headers.insert(header::ACCEPT, accept.parse().unwrap())));
        assert_eq!(form(&query.parse().unwrap(), &headers), expected, "{query} {accept:?}");
    }
}

#[tokio::test]
async fn a_replica_that_still_reads_the_cluster_tells_no_overview() {
    let (status, _, text) = asked(Method::GET, OVERVIEW_PATH, &[HOST]).await;
    assert_eq!((status, text.as_str()), (StatusCode::SERVICE_UNAVAILABLE, "this replica still reads the cluster\n"));
}

/// Asks a replica that knows the cluster of the tests of overviews.
async fn told(leads: bool, path: &str) -> (StatusCode, String) {
    let (sources, cluster) = sources(leads);
    cluster.expect_sources(1);
    cluster.update(|index| {
        *index = crate::overview::testing::cluster();
        []
    });
    cluster.source_ready();
    let router = router("127.0.0.1:8081".parse().unwrap(), Arc::new(sources));
    let request = axum::http::Request::get(path).header("host", "localhost").body(Body::empty()).unwrap();
    let response = router.oneshot(request).await.unwrap();
    let (status, body) = (response.status(), response.into_body().collect().await.unwrap().to_bytes());
    (status, String::from_utf8(body.to_vec()).unwrap())
}

#[tokio::test]
async fn the_leader_tells_the_overview_without_parameters_of_classes() {
    let (status, text) = told(false, OVERVIEW_PATH).await;
    assert_eq!((status, text.as_str()), (StatusCode::SERVICE_UNAVAILABLE, "this replica does not lead\n"));
    let (status, all) = told(true, OVERVIEW_PATH).await;
    assert!(!all.contains("west"), "{all}");
    let all: Overview = serde_json::from_str(&all).unwrap();
    let names: Vec<_> = all.classes.iter().map(|class| class.name.as_str()).collect();
    assert_eq!((status, names), (StatusCode::OK, vec!["broken", "gold"]));
    let (_, one) = told(true, &format!("{OVERVIEW_PATH}/gold")).await;
    let one: Overview = serde_json::from_str(&one).unwrap();
    assert_eq!((one.classes.len(), one.claims.len()), (1, 3));
    assert_eq!(told(true, &format!("{OVERVIEW_PATH}/other")).await.0, StatusCode::NOT_FOUND);
}
