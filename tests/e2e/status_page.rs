//! The status page of a pod, through the API server.

use std::process::Stdio;

use orchestrator::deployed::users;
use orchestrator::programs::tool;
use orchestrator::ring::{OWN, Ring};
use orchestrator::wait::{GUARD, unexpected, until};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader, Lines};
use tokio::net::TcpStream;
use tokio::process::{Child, ChildStdout, Command};
use tokio::time::timeout;

/// Starts a command that asks the leader. The command lasts, so its output is read line by line.
fn started(ring: &Ring, arguments: &[&str]) -> (Child, Lines<BufReader<ChildStdout>>) {
    let mut child = Command::new(tool())
        .args(arguments)
        .args(["--flex-namespace", OWN])
        .env("KUBECONFIG", ring.cluster().kubeconfig())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .unwrap();
    let lines = BufReader::new(child.stdout.take().unwrap()).lines();
    (child, lines)
}

#[tokio::test]
async fn the_page_of_the_leader_comes_through_the_api_server() {
    let ring = users("status-page").await;
    // The command ends if a busy machine answers late.
    let (_ui, line) = until("ui prints an address", || async {
        let (ui, mut lines) = started(&ring, &["ui", "--no-browser"]);
        match timeout(GUARD, lines.next_line()).await.expect("ui prints an address, or ends").unwrap() {
            Some(line) => Ok((ui, line)),
            None => unexpected(ui.wait_with_output().await.unwrap()),
        }
    })
    .await;
    let address = line.trim_start_matches("http://").trim_end_matches('/');
    for path in ["/", "/claims", "/assets/style.css"] {
        let mut stream = TcpStream::connect(address).await.unwrap();
        let request = format!("GET {path} HTTP/1.1\r\nHost: {address}\r\n\r\n");
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut answer = String::new();
        let read = timeout(GUARD, stream.read_to_string(&mut answer));
        read.await.expect("the page ends its connection").unwrap();
        assert!(answer.starts_with("HTTP/1.1 200"), "{path}: {answer}");
        assert!(path != "/" || answer.contains(">Leads<"), "it is the page of the leader: {answer}");
    }
}
