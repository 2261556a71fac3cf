//! The status page of an orchestrator that is a process, and the way to it through the API server.

use std::net::SocketAddr;

use cluster::PortForward;
use serde_json::Value;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::ring::{OWN, REPLICA, Ring};
use crate::wait::until;

/// The flags of an orchestrator that serves its page on a free port.
pub const WITH_PAGE: [&str; 2] = ["--status-address", "127.0.0.1:0"];
/// The line in the log of an orchestrator that serves its page.
pub const SERVED: &str = "the status page is served";

impl Ring {
    /// Waits until the orchestrator serves its page, and returns the address of the page.
    pub async fn page(&self) -> SocketAddr {
        served_at(&self.logged(SERVED).await)
    }

    /// Makes a pod of the orchestrator's process: the API server forwards connections to port [`PortForward::PORT`] of the
    /// pod to the page, until the returned value is dropped.
    pub async fn forward_page(&self) -> PortForward {
        let page = self.page().await;
        PortForward::start(self.cluster(), OWN, REPLICA, page).await.expect("the API server takes node and pod")
    }
}

/// Returns the address in a line of the log.
pub fn served_at(line: &str) -> SocketAddr {
    line.rsplit_once("address=").unwrap_or_else(|| panic!("{line}")).1.trim().parse().unwrap()
}

/// Sends a request, and returns the whole answer.
pub async fn asked(address: SocketAddr, method: &str, path: &str, host: &str) -> String {
    let mut stream = TcpStream::connect(address).await.unwrap();
    let request = format!("{method} {path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.unwrap();
    answer
}

/// Returns the facts of a page as JSON.
pub async fn json_of(address: SocketAddr, path: &str) -> Value {
    let answer = asked(address, "GET", &format!("{path}?format=json"), "localhost").await;
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    assert!(head.starts_with("HTTP/1.1 200"), "{path}: {answer}");
    serde_json::from_str(body).unwrap_or_else(|error| panic!("{error}: {body}"))
}

/// Waits until the JSON of a page is as expected, and returns it.
pub async fn json_when(address: SocketAddr, path: &str, what: &str, is: impl Fn(&Value) -> bool) -> Value {
    until(format!("{path} shows {what}"), || async {
        let json = json_of(address, path).await;
        if is(&json) { Ok(json) } else { Err(json.to_string()) }
    })
    .await
}
