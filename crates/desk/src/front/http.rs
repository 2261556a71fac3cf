//! Connections of clients that speak HTTP/1: each request is passed on as a whole, and so is its answer.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use axum::http::{HeaderMap, Method, Request, Response, StatusCode, Version, header, request, response};
use futures::stream::{self, StreamExt};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Full, StreamBody};
use hyper::body::{Bytes, Frame, Incoming};
use hyper::service::service_fn;
use hyper::{client, server};
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;
use tokio::time::sleep;

use super::ledger::Exchange;
use super::plan::Fate;
use super::shared::Shared;

/// The headers that are about one connection.
const OF_CONNECTION: [&str; 6] =
    ["connection", "expect", "keep-alive", "proxy-connection", "transfer-encoding", "upgrade"];
/// The time after which a line is cut in the middle of an answer, whose first half has then reached the client.
const HALF: Duration = Duration::from_millis(50);

/// An answer, perhaps with an end that breaks off.
type Answer = Response<UnsyncBoxBody<Bytes, io::Error>>;

/// Serves the requests of a connection.
pub(super) async fn serve(client: TcpStream, shared: Arc<Shared>) {
    let service = service_fn(move |request| answer(shared.clone(), request));
    // Shell programs may compare the names of headers as the server has written them.
    let served = server::conn::http1::Builder::new()
        .preserve_header_case(true)
        .serve_connection(TokioIo::new(client), service)
        .await;
    // A line that is cut, and a client that is gone, end a connection with an error.
    drop(served);
}

/// Answers a request. After an error, the line is closed without an answer.
async fn answer(shared: Arc<Shared>, request: Request<Incoming>) -> io::Result<Answer> {
    let (head, body) = request.into_parts();
    let body = body.collect().await.map_err(io::Error::other)?.to_bytes();
    let (method, path) = (head.method.clone(), head.uri.to_string());
    let what = format!("{method} {}", head.uri.path());
    let fate = shared.state().fate(&what, &format!("{method} {path}"));
    if let Fate::Refuse(status) = fate {
        return refusal(status);
    }
    let asked = body.clone();
    let (head, body) = passed(&shared, head, body).await?;
    shared.state().note(&Exchange {
        method: method.as_str(),
        path: &path,
        asked: &asked,
        status: head.status.as_u16(),
        location: head.headers.get(header::LOCATION).and_then(|value| value.to_str().ok()),
        body: &body,
    });
    match fate {
        Fate::Pass | Fate::Refuse(_) => Ok(Response::from_parts(head, whole(body))),
        Fate::Wait(time) => {
            sleep(time).await;
            Ok(Response::from_parts(head, whole(body)))
        }
        Fate::Lose => Err(io::Error::other("the front loses this answer")),
        Fate::Hold => {
            shared.hold().await;
            Err(io::Error::other("the front has held this answer"))
        }
        Fate::Cut => cut(head, &body),
    }
}

fn whole(body: Bytes) -> UnsyncBoxBody<Bytes, io::Error> {
    Full::new(body).map_err(|never| match never {}).boxed_unsync()
}

/// Makes the answer of a server that fails.
fn refusal(status: u16) -> io::Result<Answer> {
    let status = StatusCode::from_u16(status).map_err(io::Error::other)?;
    let text = format!("{{\"error\":\"{status}\",\"message\":\"the server cannot do it now\"}}\n");
    let answer = Response::builder().status(status).header(header::CONTENT_TYPE, "application/json");
    answer.body(whole(text.into())).map_err(io::Error::other)
}

/// Makes an answer that breaks off after its first half.
fn cut(mut head: response::Parts, body: &Bytes) -> io::Result<Answer> {
    let cut = || io::Error::other("the front cuts the line here");
    let half = body.slice(..body.len() / 2);
    if half.is_empty() {
        return Err(cut());
    }
    head.headers.insert(header::CONTENT_LENGTH, body.len().into());
    let first = stream::once(async move { Ok::<_, io::Error>(Frame::data(half)) });
    let last = stream::once(async move {
        sleep(HALF).await;
        Err::<Frame<Bytes>, _>(cut())
    });
    Ok(Response::from_parts(head, StreamBody::new(first.chain(last)).boxed_unsync()))
}

/// Removes what a header says about its connection.
fn without_connection(headers: &mut HeaderMap) {
    for name in OF_CONNECTION {
        headers.remove(name);
    }
}

/// Passes a request on, over a connection of its own, and returns the whole answer.
async fn passed(shared: &Shared, mut head: request::Parts, body: Bytes) -> io::Result<(response::Parts, Bytes)> {
    let is_head = head.method == Method::HEAD;
    without_connection(&mut head.headers);
    head.version = Version::HTTP_11;
    let io = TokioIo::new(shared.connect().await?);
    let connected = client::conn::http1::Builder::new().preserve_header_case(true).handshake(io).await;
    let (mut sender, connection) = connected.map_err(io::Error::other)?;
    tokio::spawn(async move { drop(connection.await) });
    let sent = sender.send_request(Request::from_parts(head, Full::new(body)));
    let (mut head, body) = sent.await.map_err(io::Error::other)?.into_parts();
    let body = body.collect().await.map_err(io::Error::other)?.to_bytes();
    without_connection(&mut head.headers);
    if !is_head {
        head.headers.remove(header::CONTENT_LENGTH);
    }
    Ok((head, body))
}
