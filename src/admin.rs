//! The admin page: `/healthz`, `/readyz`, `/metrics`.
//!
//! Every pod of the cluster may be able to reach the port, so that no peer may cost more than a little memory for a short
//! time. A connection serves one request, and has a deadline. Where too many are open, the oldest one is closed: whoever
//! asks a whole question is answered before that, also while others hold their connections open.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use axum::Router;
use axum::http::{StatusCode, header};
use axum::routing::get;
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::AbortHandle;

use crate::reconcile::Context;

/// What one peer, and all of them together, may take.
#[derive(Clone, Copy, Debug)]
struct Limits {
    /// Connections that are open at one time.
    connections: usize,
    /// How long a request's header may take to arrive.
    header: Duration,
    /// How long a connection may live: a peer that does not read its answer keeps it no longer.
    connection: Duration,
    /// The bytes of a request's header. hyper takes no fewer than 8192.
    header_bytes: usize,
}

/// A scrape takes milliseconds. The kubelet and Prometheus need two connections.
const LIMITS: Limits =
    Limits { connections: 64, header: Duration::from_secs(2), connection: Duration::from_secs(10), header_bytes: 8192 };

/// After an error that the next `accept` would have, too, such as too many open files.
const AFTER_ERROR: Duration = Duration::from_millis(100);

/// Serves until the process ends.
///
/// # Errors
/// If the address cannot be listened on; the message names the flag.
pub async fn serve(address: SocketAddr, context: Arc<Context>) -> anyhow::Result<()> {
    let listener = TcpListener::bind(address).await.with_context(|| {
        format!("cannot listen on {address} for health and metrics; choose another with --admin-address")
    })?;
    tokio::spawn(answer(listener, router(context), LIMITS));
    Ok(())
}

fn router(context: Arc<Context>) -> Router {
    let ready = context.clone();
    Router::new()
        .route("/healthz", get(|| async { "ok\n" }))
        .route(
            "/readyz",
            get(move || async move {
                match ready.shared.is_ready() {
                    true => (StatusCode::OK, "ready\n"),
                    false => (StatusCode::SERVICE_UNAVAILABLE, "the first lists are not complete\n"),
                }
            }),
        )
        .route(
            "/metrics",
            get(move || async move {
                (
                    [(header::CONTENT_TYPE, "application/openmetrics-text; version=1.0.0; charset=utf-8")],
                    context.metrics.text(),
                )
            }),
        )
}

/// Accepts connections for ever, and closes the oldest where one more would be too many.
async fn answer(listener: TcpListener, router: Router, limits: Limits) {
    let mut open: VecDeque<AbortHandle> = VecDeque::new();
    loop {
        let stream = match listener.accept().await {
            Ok((stream, _)) => stream,
            Err(error) => {
                tracing::debug!(%error, "a connection to the admin page was not accepted");
                tokio::time::sleep(AFTER_ERROR).await;
                continue;
            }
        };
        open.retain(|connection| !connection.is_finished());
        if open.len() >= limits.connections
            && let Some(oldest) = open.pop_front()
        {
            oldest.abort();
        }
        open.push_back(tokio::spawn(connection(stream, router.clone(), limits)).abort_handle());
        // The connections get their turn before the next one is accepted, however many wait to be.
        tokio::task::yield_now().await;
    }
}

/// Answers one request.
async fn connection(stream: TcpStream, router: Router, limits: Limits) {
    let served = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(limits.header)
        .max_buf_size(limits.header_bytes)
        .keep_alive(false)
        .serve_connection(TokioIo::new(stream), TowerToHyperService::new(router));
    match tokio::time::timeout(limits.connection, served).await {
        Ok(Ok(())) => {}
        Ok(Err(error)) => tracing::debug!(%error, "a connection to the admin page ended early"),
        Err(_) => tracing::debug!("a connection to the admin page took too long and was closed"),
    }
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    use super::*;

    const PAGE: &str = "what is measured";

    async fn started(limits: Limits) -> SocketAddr {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        tokio::spawn(answer(listener, Router::new().route("/metrics", get(|| async { PAGE })), limits));
        address
    }

    /// A connection that has sent a part of a request.
    async fn began(address: SocketAddr, text: &str) -> TcpStream {
        let mut stream = TcpStream::connect(address).await.unwrap();
        stream.write_all(text.as_bytes()).await.unwrap();
        stream
    }

    /// All that comes until the server closes the connection.
    async fn rest(mut stream: TcpStream) -> String {
        let mut text = Vec::new();
        // A connection that is closed with something unread is reset, which is an error here.
        let _ = tokio::time::timeout(Duration::from_secs(20), stream.read_to_end(&mut text))
            .await
            .expect("the server closes the connection");
        String::from_utf8(text).unwrap()
    }

    async fn scraped(address: SocketAddr) -> String {
        rest(began(address, "GET /metrics HTTP/1.1\r\nHost: here\r\n\r\n").await).await
    }

    #[tokio::test]
    async fn a_request_is_answered_and_its_connection_closed() {
        let address = started(LIMITS).await;
        let answer = scraped(address).await;
        assert!(answer.starts_with("HTTP/1.1 200") && answer.ends_with(PAGE), "{answer}");
    }

    #[tokio::test]
    async fn a_connection_that_sends_half_a_header_is_closed() {
        let limits = Limits { header: Duration::from_millis(300), ..LIMITS };
        let address = started(limits).await;
        for text in ["", "GET /metr", "GET /metrics HTTP/1.1\r\nHost: here\r\nX-More: "] {
            let (stream, start) = (began(address, text).await, Instant::now());
            let answer = rest(stream).await;
            assert!(!answer.starts_with("HTTP/1.1 200"), "{answer}");
            let took = start.elapsed();
            assert!(took >= limits.header / 2 && took < limits.connection / 2, "{text:?} took {took:?}");
        }
    }

    #[tokio::test]
    async fn a_header_that_comes_byte_by_byte_has_no_longer() {
        let limits = Limits { header: Duration::from_millis(300), ..LIMITS };
        let address = started(limits).await;
        let mut stream = began(address, "GET /metrics HTTP/1.1\r\nX: ").await;
        let start = Instant::now();
        while stream.write_all(b"x").await.is_ok() {
            tokio::time::sleep(Duration::from_millis(20)).await;
            assert!(start.elapsed() < limits.connection / 2, "it is still open");
        }
    }

    #[tokio::test]
    async fn a_header_that_does_not_end_is_refused() {
        let address = started(LIMITS).await;
        let mut stream = began(address, "GET /metrics HTTP/1.1\r\nX: ").await;
        let mut sent = 0;
        // The sockets between take some on their own.
        while stream.write_all(&[b'x'; 4096]).await.is_ok() {
            sent += 4096;
            assert!(sent < 64 << 20, "it takes everything");
        }
    }

    #[tokio::test]
    async fn while_six_hundred_hold_their_connections_a_scrape_is_answered() {
        let limits = Limits { header: Duration::from_secs(3600), connection: Duration::from_secs(3600), ..LIMITS };
        let address = started(limits).await;
        let mut held = Vec::new();
        for _ in 0..600 {
            held.push(began(address, "GET /metrics HTTP/1.1\r\nHost: he").await);
        }
        let start = Instant::now();
        assert!(scraped(address).await.ends_with(PAGE));
        assert!(start.elapsed() < Duration::from_secs(5), "{:?}", start.elapsed());
        // All but the allowed number were closed: what peers hold open is bounded.
        let mut open = 0;
        for mut stream in held {
            let read = tokio::time::timeout(Duration::from_millis(5), stream.read_u8()).await;
            open += usize::from(read.is_err());
        }
        assert!(open < limits.connections + 1, "{open} are open");
        assert!(open > limits.connections / 2, "{open} are open: too few were let in");
    }
}
