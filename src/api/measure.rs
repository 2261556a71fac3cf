//! Measures the requests to the API server, by their verb and the code of the answer.

use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Instant;

use futures::future::BoxFuture;
use http::{Method, Request, Response, StatusCode, Uri};
use tower::{Layer, Service};

use crate::metrics::{Metrics, RequestCode};

/// The layer of a client whose requests are measured.
#[derive(Clone)]
pub(super) struct MeasureLayer(Arc<Metrics>);

impl MeasureLayer {
    /// Makes a layer that counts in these metrics.
    pub fn new(metrics: &Metrics) -> Self {
        MeasureLayer(Arc::new(metrics.clone()))
    }
}

impl<S> Layer<S> for MeasureLayer {
    type Service = Measure<S>;

    fn layer(&self, inner: S) -> Measure<S> {
        Measure { inner, metrics: self.0.clone() }
    }
}

/// A service that measures the requests to another.
#[derive(Clone)]
pub(super) struct Measure<S> {
    inner: S,
    metrics: Arc<Metrics>,
}

impl<S, B, R> Service<Request<B>> for Measure<S>
where
    S: Service<Request<B>, Response = Response<R>>,
    S::Future: Send + 'static,
{
    type Response = S::Response;
    type Error = S::Error;
    type Future = BoxFuture<'static, Result<S::Response, S::Error>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(context)
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        let verb = verb(request.method(), request.uri());
        let mut measurement =
            Measurement { metrics: self.metrics.clone(), verb, began: Instant::now(), code: RequestCode::Error };
        let answer = self.inner.call(request);
        Box::pin(async move {
            let answer = answer.await;
            if let Ok(response) = &answer {
                measurement.answered(response.status());
            }
            answer
        })
    }
}

/// A request in progress. It counts when it is dropped: with its answer, or when nobody waits for the answer any more.
struct Measurement {
    metrics: Arc<Metrics>,
    verb: &'static str,
    began: Instant,
    code: RequestCode,
}

impl Measurement {
    /// Notes the answer.
    fn answered(&mut self, status: StatusCode) {
        self.code = RequestCode::Status(status.as_u16());
    }
}

impl Drop for Measurement {
    fn drop(&mut self) {
        self.metrics.requested(self.verb, self.code, self.began.elapsed());
    }
}

/// Returns the verb of a request, as RBAC and the audit log name it.
fn verb(method: &Method, uri: &Uri) -> &'static str {
    match method.as_str() {
        "POST" => "create",
        "PUT" => "update",
        "PATCH" => "patch",
        "DELETE" if is_collection(uri.path()) => "deletecollection",
        "DELETE" => "delete",
        "GET" if is_watch(uri) => "watch",
        "GET" if is_collection(uri.path()) => "list",
        "GET" => "get",
        _ => "other",
    }
}

fn is_watch(uri: &Uri) -> bool {
    uri.query().unwrap_or_default().split('&').any(|pair| matches!(pair, "watch=true" | "watch=1"))
}

/// Checks whether a path names all objects of a kind, in one namespace or in all.
fn is_collection(path: &str) -> bool {
    let mut parts = path.split('/').filter(|part| !part.is_empty());
    // Behind the prefix stands the version of the API, and before it the group.
    let mut rest = match parts.next() {
        Some("api") => parts.skip(1),
        Some("apis") => parts.skip(2),
        _ => return false,
    };
    match (rest.next(), rest.next(), rest.next(), rest.next()) {
        (Some("namespaces"), Some(_), Some("status" | "finalize"), None) => false,
        (Some("namespaces"), Some(_), Some(_), name) => name.is_none(),
        (kind, name, ..) => kind.is_some() && name.is_none(),
    }
}

#[cfg(test)]
mod tests {
    use std::future::pending;
    use std::io;
    use std::time::Duration;

    use k8s_openapi::api::core::v1::ConfigMap;
    use kube::Api;
    use kube::api::ListParams;
    use kube::client::{Body, ClientBuilder};

    use super::*;

    #[test]
    fn a_request_has_the_verb_of_kubernetes() {
        for (method, uri, expected) in [
            ("GET", "/api/v1/namespaces/n/pods/p", "get"),
            ("GET", "/api/v1/namespaces/n/pods/p/log", "get"),
            ("GET", "/api/v1/namespaces/n/pods", "list"),
            ("GET", "/api/v1/namespaces/n/pods?limit=500", "list"),
            ("GET", "/api/v1/namespaces/n/pods?&watch=true&timeoutSeconds=200", "watch"),
            ("GET", "/api/v1/persistentvolumes?watch=1", "watch"),
            ("GET", "/api/v1/persistentvolumes", "list"),
            ("GET", "/api/v1/persistentvolumes/pv", "get"),
            ("GET", "/api/v1/persistentvolumes/pv/status", "get"),
            ("GET", "/api/v1/namespaces", "list"),
            ("GET", "/api/v1/namespaces/n", "get"),
            ("GET", "/api/v1/namespaces/n/status", "get"),
            ("GET", "/apis/batch/v1/jobs", "list"),
            ("GET", "/apis/batch/v1/namespaces/n/jobs", "list"),
            ("GET", "/apis/batch/v1/namespaces/n/jobs/j", "get"),
            ("GET", "/apis/batch/v1", "get"),
            ("GET", "/version", "get"),
            ("GET", "/", "get"),
            ("POST", "/apis/batch/v1/namespaces/n/jobs", "create"),
            ("PUT", "/apis/coordination.k8s.io/v1/namespaces/n/leases/l", "update"),
            ("PATCH", "/api/v1/persistentvolumes/pv/status", "patch"),
            ("DELETE", "/api/v1/persistentvolumes/pv", "delete"),
            ("DELETE", "/api/v1/namespaces/n/events?labelSelector=a", "deletecollection"),
            ("OPTIONS", "/api/v1/namespaces", "other"),
        ] {
            let method = Method::from_bytes(method.as_bytes()).unwrap();
            assert_eq!(verb(&method, &uri.parse().unwrap()), expected, "{method} {uri}");
        }
    }

    /// Returns a client whose server answers as scripted by the name of the object, and its metrics.
    fn scripted() -> (Api<ConfigMap>, Metrics) {
        let metrics = Metrics::default();
        let answer = |request: Request<Body>| async move {
            let name = request.uri().path().rsplit('/').next().unwrap_or_default().to_owned();
            let (status, body) = match name.as_str() {
                "broken" => return Err(io::Error::other("the connection is closed")),
                "slow" => pending().await,
                "missing" => (404_u16, r#"{"kind":"Status","status":"Failure","reason":"NotFound","code":404}"#),
                "configmaps" => (200, r#"{"metadata":{},"items":[]}"#),
                _ => (200, r#"{"metadata":{"name":"a"}}"#),
            };
            let response = Response::builder().status(status).body(Body::from(body.as_bytes().to_vec()));
            Ok(response.expect("a status and a body are a response"))
        };
        let builder = ClientBuilder::new(tower::service_fn(answer), "n").with_layer(&MeasureLayer::new(&metrics));
        (Api::default_namespaced(builder.build()), metrics)
    }

    /// Returns the number of requests, by the labels of their series.
    fn counts(metrics: &Metrics) -> Vec<String> {
        let text = metrics.text();
        let of = |line: &str| line.strip_prefix("flex_api_request_duration_seconds_count").map(str::to_owned);
        let mut counts: Vec<String> = text.lines().filter_map(of).collect();
        counts.sort();
        counts
    }

    #[tokio::test]
    async fn each_request_is_counted_with_the_code_of_its_answer() {
        let (api, metrics) = scripted();
        api.get("a").await.unwrap();
        api.get("b").await.unwrap();
        assert!(api.get_opt("missing").await.unwrap().is_none());
        api.get("broken").await.unwrap_err();
        api.list(&ListParams::default()).await.unwrap();
        assert_eq!(
            counts(&metrics),
            [
                r#"{verb="get",code="200"} 2"#,
                r#"{verb="get",code="404"} 1"#,
                r#"{verb="get",code="error"} 1"#,
                r#"{verb="list",code="200"} 1"#,
            ]
        );
    }

    #[tokio::test]
    async fn a_request_whose_answer_is_not_awaited_is_an_error() {
        let (api, metrics) = scripted();
        let waited = tokio::time::timeout(Duration::from_millis(20), api.get("slow")).await;
        assert!(waited.is_err());
        assert_eq!(counts(&metrics), [r#"{verb="get",code="error"} 1"#]);
        let text = metrics.text();
        let sum = text.lines().find(|line| line.starts_with("flex_api_request_duration_seconds_sum")).unwrap();
        let seconds: f64 = sum.rsplit(' ').next().unwrap().parse().unwrap();
        assert!(seconds >= 0.01, "{seconds}");
    }
}
