//! The admin page: `/healthz`, `/readyz`, `/metrics`.

use std::net::SocketAddr;
use std::sync::Arc;

use anyhow::Context as _;
use axum::Router;
use axum::http::{StatusCode, header};
use axum::routing::get;

use crate::controller::Context;

/// Serves until the process ends.
///
/// # Errors
/// If the address cannot be listened on; the message names the flag.
pub async fn serve(address: SocketAddr, context: Arc<Context>) -> anyhow::Result<()> {
    let listener = tokio::net::TcpListener::bind(address).await.with_context(|| {
        format!("cannot listen on {address} for health and metrics; choose another with --admin-address")
    })?;
    let ready = context.clone();
    let router = Router::new()
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
        );
    tokio::spawn(async move {
        if let Err(error) = axum::serve(listener, router).await {
            tracing::error!(%error, "the admin page ended");
        }
    });
    Ok(())
}
