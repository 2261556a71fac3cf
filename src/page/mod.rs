//! The status page: what a person asks first about an orchestrator, as HTML and as JSON.
//!
//! [`observe`] reads the cache and the ledgers of this process, [`model`] describes them, and [`html`] writes the page. The
//! page only reads. It listens on a loopback address unless a flag says otherwise, because it shows the names and
//! messages of all namespaces.

mod access;
pub mod html;
pub mod model;
mod observe;
mod overview;
mod sources;
#[cfg(test)]
mod testing;

use std::net::SocketAddr;
use std::sync::Arc;

use axum::Router;
use axum::body::Body;
use axum::extract::{Path, Request, State};
use axum::http::{HeaderMap, StatusCode, Uri, header};
use axum::middleware::{Next, from_fn_with_state};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use flex_core::object::ObjectName;
use serde::Serialize;
use tokio::net::TcpListener;

use self::model::Document;
pub use self::sources::{PolicyStates, Sources};
use crate::admin::{READERS, answer_all};

/// Serves the page until the process ends. Without the address, the orchestrator works on without a page: a container
/// beside it may have the port.
pub async fn serve(address: SocketAddr, sources: Sources) {
    let listener = match TcpListener::bind(address).await {
        Ok(listener) => listener,
        Err(error) => {
            tracing::warn!(
                %error,
                "cannot listen on {address} for the status page, and runs without it; choose another with --status-address"
            );
            return;
        }
    };
    let bound = listener.local_addr().unwrap_or(address);
    answer_all(listener, router(bound, Arc::new(sources)), READERS);
    tracing::info!(address = %bound, "the status page is served");
}

fn router(address: SocketAddr, sources: Arc<Sources>) -> Router {
    Router::new()
        .route("/", get(front))
        .route("/claims", get(claims))
        .route("/claims/{namespace}/{name}", get(claim))
        .route("/runs", get(runs))
        .route("/failures", get(failures))
        .route("/findings", get(findings))
        .route("/configs", get(configs))
        .merge(overview::routes())
        .route("/assets/style.css", get(|| asset("text/css; charset=utf-8", include_str!("assets/style.css"))))
        .route("/assets/refresh.js", get(|| asset("text/javascript; charset=utf-8", include_str!("assets/refresh.js"))))
        .route("/assets/icon.svg", get(|| asset("image/svg+xml", include_str!("assets/icon.svg"))))
        .fallback(missing)
        .with_state(sources)
        .layer(from_fn_with_state(address, guard))
}

/// Refuses foreign hosts, and protects each answer.
async fn guard(State(address): State<SocketAddr>, request: Request, next: Next) -> Response {
    let mut response = match access::check_host(&request, address) {
        Ok(()) => next.run(request).await,
        Err(refusal) => refusal.into_response(),
    };
    access::protect(response.headers_mut());
    response
}

async fn asset(kind: &'static str, text: &'static str) -> impl IntoResponse {
    ([(header::CONTENT_TYPE, kind)], text)
}

/// The form of an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Form {
    Html,
    Json,
}

/// Returns the form that a request asks for: JSON by `?format=json` or by its header `Accept`.
fn form(uri: &Uri, headers: &HeaderMap) -> Form {
    let by_query = uri.query().unwrap_or_default().split('&').any(|pair| pair == "format=json");
    let accepts = headers.get(header::ACCEPT).and_then(|accept| accept.to_str().ok()).unwrap_or_default();
    let first = accepts.split([',', ';']).next().unwrap_or_default().trim();
    if by_query || first == "application/json" { Form::Json } else { Form::Html }
}

/// Answers with a page in its form.
fn respond<B: Serialize>(
    (uri, headers): (Uri, HeaderMap),
    status: StatusCode,
    document: &Document<B>,
    html: impl Fn(&Document<B>) -> String,
) -> Response {
    let (kind, text) = match form(&uri, &headers) {
        Form::Html => ("text/html; charset=utf-8", html(document)),
        // A model has only texts, numbers and lists.
        Form::Json => ("application/json", serde_json::to_string(document).unwrap_or_default()),
    };
    (status, [(header::CONTENT_TYPE, kind)], Body::from(text)).into_response()
}

async fn front(State(sources): State<Arc<Sources>>, uri: Uri, headers: HeaderMap) -> Response {
    respond((uri, headers), StatusCode::OK, &observe::overview(&sources), html::overview::overview)
}

async fn claims(State(sources): State<Arc<Sources>>, uri: Uri, headers: HeaderMap) -> Response {
    respond((uri, headers), StatusCode::OK, &observe::claims(&sources), html::claims::claims)
}

async fn claim(
    State(sources): State<Arc<Sources>>,
    Path((namespace, name)): Path<(String, String)>,
    uri: Uri,
    headers: HeaderMap,
) -> Response {
    match observe::claim(&sources, &ObjectName::new(namespace, name)).await {
        Some(document) => respond((uri, headers), StatusCode::OK, &document, html::claims::claim),
        None => {
            let why = "The orchestrator knows no claim of this name. It may be gone.";
            refuse(&sources, uri, headers, StatusCode::NOT_FOUND, "No such claim", why)
        }
    }
}

async fn runs(State(sources): State<Arc<Sources>>, uri: Uri, headers: HeaderMap) -> Response {
    respond((uri, headers), StatusCode::OK, &observe::runs(&sources), html::runs::runs)
}

async fn failures(State(sources): State<Arc<Sources>>, uri: Uri, headers: HeaderMap) -> Response {
    respond((uri, headers), StatusCode::OK, &observe::failures(&sources), html::lists::failures)
}

async fn findings(State(sources): State<Arc<Sources>>, uri: Uri, headers: HeaderMap) -> Response {
    respond((uri, headers), StatusCode::OK, &observe::findings(&sources), html::lists::findings)
}

async fn configs(State(sources): State<Arc<Sources>>, uri: Uri, headers: HeaderMap) -> Response {
    respond((uri, headers), StatusCode::OK, &observe::configs(&sources), html::lists::configs)
}

async fn missing(State(sources): State<Arc<Sources>>, uri: Uri, headers: HeaderMap) -> Response {
    refuse(&sources, uri, headers, StatusCode::NOT_FOUND, "No such page", "There is no page at this address.")
}

fn refuse(
    sources: &Sources,
    uri: Uri,
    headers: HeaderMap,
    status: StatusCode,
    title: &'static str,
    why: &'static str,
) -> Response {
    let document = observe::nothing(sources);
    respond((uri, headers), status, &document, |document| html::problem(document, title, why))
}

#[cfg(test)]
mod tests;
