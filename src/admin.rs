//! The admin server: `/healthz`, `/readyz`, `/metrics`.
//!
//! Every pod of the cluster may be able to reach the port. So a peer may cost only a little memory for a short time. A
//! connection serves one request ([`SCRAPES`]), and has a deadline. If too many connections are open, the server closes the oldest. A
//! peer that sends a whole request at once is answered before that, even while others hold their connections open.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::sync::{Arc, OnceLock};
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

use crate::gauges;
use crate::reconcile::Context;

/// The limits of one peer, and of all peers together.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// The number of open connections.
    connections: usize,
    /// The time for a request's header to arrive.
    header: Duration,
    /// The lifetime of a connection. A peer that does not read its answer keeps the connection no longer.
    connection: Duration,
    /// The bytes of a request's header. hyper accepts no limit below 8192.
    header_bytes: usize,
    /// A connection serves further requests.
    keep_alive: bool,
}

/// The limits of health and metrics. A scrape takes milliseconds. The kubelet and Prometheus need two connections.
const SCRAPES: Limits = Limits {
    connections: 64,
    header: Duration::from_secs(2),
    connection: Duration::from_secs(10),
    header_bytes: 8192,
    keep_alive: false,
};

/// The limits of pages for people, who may watch for long, and ask again and again.
pub const READERS: Limits = Limits {
    connections: 1024,
    header: Duration::from_secs(10),
    connection: Duration::from_secs(600),
    keep_alive: true,
    ..SCRAPES
};

/// The delay after an error that would also hit the next `accept`, such as too many open files.
const AFTER_ERROR: Duration = Duration::from_millis(100);

/// Serves until the process ends, also before there is a context. Returns the address, with the port that the system
/// chose if the flag has none.
///
/// # Errors
/// If the server cannot listen on the address. The message names the flag.
pub async fn serve(address: SocketAddr, context: Arc<OnceLock<Arc<Context>>>) -> anyhow::Result<SocketAddr> {
    let listener = TcpListener::bind(address).await.with_context(|| {
        format!("cannot listen on {address} for health and metrics; choose another with --admin-address")
    })?;
    let address = listener.local_addr()?;
    answer_all(listener, router(context), SCRAPES);
    Ok(address)
}

/// Answers the connections of a listener until the process ends, within limits.
pub fn answer_all(listener: TcpListener, router: Router, limits: Limits) {
    tokio::spawn(answer(listener, router, limits));
}

fn router(context: Arc<OnceLock<Arc<Context>>>) -> Router {
    let ready = context.clone();
    Router::new()
        .route("/healthz", get(|| async { "ok\n" }))
        .route(
            "/readyz",
            get(move || async move {
                match ready.get().map(|context| context.cluster.is_ready()) {
                    Some(true) => (StatusCode::OK, "ready\n"),
                    Some(false) => (StatusCode::SERVICE_UNAVAILABLE, "the first lists are not complete\n"),
                    None => {
                        (StatusCode::SERVICE_UNAVAILABLE, "the API server has not said the UID of the cluster yet\n")
                    }
                }
            }),
        )
        .route(
            "/metrics",
            get(move || async move {
                (
                    [(header::CONTENT_TYPE, "application/openmetrics-text; version=1.0.0; charset=utf-8")],
                    context.get().map(|context| gauges::text(context)).unwrap_or_default(),
                )
            }),
        )
}

/// Accepts connections forever, and closes the oldest if there are too many.
async fn answer(listener: TcpListener, router: Router, limits: Limits) {
    let mut open: VecDeque<AbortHandle> = VecDeque::new();
    loop {
        let stream = match listener.accept().await {
            Ok((stream, _)) => stream,
            Err(error) => {
                tracing::debug!(%error, "a connection was not accepted");
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
        // The open connections run before the next is accepted, however many wait.
        tokio::task::yield_now().await;
    }
}

/// Answers the requests of one connection.
async fn connection(stream: TcpStream, router: Router, limits: Limits) {
    let served = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(limits.header)
        .max_buf_size(limits.header_bytes)
        .keep_alive(limits.keep_alive)
        .serve_connection(TokioIo::new(stream), TowerToHyperService::new(router));
    match tokio::time::timeout(limits.connection, served).await {
        Ok(Ok(())) => {}
        Ok(Err(error)) => tracing::debug!(%error, "a connection ended early"),
        Err(_) => tracing::debug!("a connection took too long and was closed"),
    }
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    use super::*;

    const PAGE: &str = "what is measured";
    /// No step takes longer, even on a busy machine.
    const GUARD: Duration = Duration::from_secs(120);
    /// Only the limit of the header ends a connection.
    const OF_HEADER: Limits =
        Limits { header: Duration::from_millis(300), connection: Duration::from_secs(3600), ..SCRAPES };

    async fn started(limits: Limits) -> SocketAddr {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        tokio::spawn(answer(listener, Router::new().route("/metrics", get(|| async { PAGE })), limits));
        address
    }

    /// Opens a connection and sends a part of a request.
    async fn began(address: SocketAddr, text: &str) -> TcpStream {
        let mut stream = TcpStream::connect(address).await.unwrap();
        stream.write_all(text.as_bytes()).await.unwrap();
        stream
    }

    /// Reads everything until the server closes the connection.
    async fn rest(mut stream: TcpStream) -> String {
        let mut text = Vec::new();
        // If unread bytes are left, the close resets the connection, which is an error here.
        let _ =
            tokio::time::timeout(GUARD, stream.read_to_end(&mut text)).await.expect("the server closes the connection");
        String::from_utf8(text).unwrap()
    }

    async fn scraped(address: SocketAddr) -> String {
        rest(began(address, "GET /metrics HTTP/1.1\r\nHost: here\r\n\r\n").await).await
    }

    #[tokio::test]
    async fn a_request_is_answered_and_its_connection_closed() {
        let address = started(SCRAPES).await;
        let answer = scraped(address).await;
        assert!(answer.starts_with("HTTP/1.1 200") && answer.ends_with(PAGE), "{answer}");
    }

    #[tokio::test]
    async fn a_connection_that_sends_half_a_header_is_closed() {
        let address = started(OF_HEADER).await;
        for text in ["", "GET /metr", "GET /metrics HTTP/1.1\r\nHost: here\r\nX-More: "] {
            let (stream, start) = (began(address, text).await, Instant::now());
            let answer = rest(stream).await;
            assert!(!answer.starts_with("HTTP/1.1 200"), "{answer}");
            let took = start.elapsed();
            assert!(took >= OF_HEADER.header / 2, "{text:?} took {took:?}");
        }
    }

    #[tokio::test]
    async fn a_slow_header_has_no_longer_timeout() {
        let address = started(OF_HEADER).await;
        let mut stream = began(address, "GET /metrics HTTP/1.1\r\nX: ").await;
        let start = Instant::now();
        while stream.write_all(b"x").await.is_ok() {
            tokio::time::sleep(Duration::from_millis(20)).await;
            assert!(start.elapsed() < GUARD, "the connection is still open");
        }
    }

    #[tokio::test]
    async fn a_header_that_does_not_end_is_refused() {
        let address = started(SCRAPES).await;
        let mut stream = began(address, "GET /metrics HTTP/1.1\r\nX: ").await;
        let mut sent = 0;
        // The sockets in between buffer some bytes.
        while stream.write_all(&[b'x'; 4096]).await.is_ok() {
            sent += 4096;
            assert!(sent < 64 << 20, "the server accepts everything");
        }
    }

    #[tokio::test]
    async fn a_scrape_is_answered_while_six_hundred_connections_stay_open() {
        let limits = Limits { header: Duration::from_secs(3600), connection: Duration::from_secs(3600), ..SCRAPES };
        let address = started(limits).await;
        let mut held = Vec::new();
        for _ in 0..600 {
            held.push(began(address, "GET /metrics HTTP/1.1\r\nHost: he").await);
        }
        let start = Instant::now();
        assert!(scraped(address).await.ends_with(PAGE));
        assert!(start.elapsed() < GUARD, "{:?}", start.elapsed());
        // The server closes all connections above its limit, so that peers cannot hold more.
        let mut open = held.len();
        while open > limits.connections {
            assert!(start.elapsed() < GUARD, "{open} are open");
            open = 0;
            for stream in &mut held {
                let read = tokio::time::timeout(Duration::from_millis(5), stream.read_u8()).await;
                open += usize::from(read.is_err());
            }
        }
        assert!(open > limits.connections / 2, "{open} are open: too few were accepted");
    }

    #[tokio::test]
    async fn a_reader_asks_again_over_the_same_connection_and_a_scraper_does_not() {
        for (limits, answers) in [(READERS, 2), (SCRAPES, 1)] {
            let limits = Limits { header: Duration::from_millis(300), ..limits };
            let request = "GET /metrics HTTP/1.1\r\nHost: a\r\n\r\n";
            let text = rest(began(started(limits).await, &request.repeat(2)).await).await;
            assert_eq!(text.matches(PAGE).count(), answers, "{text}");
        }
    }

    #[tokio::test]
    async fn two_hundred_readers_keep_their_connections() {
        // The test itself may leave a connection alone for a while.
        let address = started(Limits { header: Duration::from_secs(3600), ..READERS }).await;
        let request = "GET /metrics HTTP/1.1\r\nHost: a\r\n\r\n";
        let mut readers = Vec::new();
        for _ in 0..200 {
            readers.push(began(address, request).await);
        }
        for reader in &mut readers {
            reader.write_all(request.as_bytes()).await.unwrap();
            let mut text = String::new();
            while text.matches(PAGE).count() < 2 {
                let mut part = [0; 1024];
                let length = reader.read(&mut part).await.unwrap();
                assert!(length > 0, "the server has closed the connection: {text}");
                text += std::str::from_utf8(&part[..length]).unwrap();
            }
        }
    }
}
