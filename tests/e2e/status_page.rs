//! The status page of a pod, through the API server.

use std::process::Stdio;
use std::time::Duration;

use orchestrator::deployed::{PROCESS, users};
use orchestrator::ring::{OWN, program};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::TcpStream;
use tokio::process::Command;

#[tokio::test]
async fn the_page_of_the_leader_comes_through_the_api_server() {
    let ring = users("status-page").await;
    let _lives = PROCESS.read().await;
    let mut ui = Command::new(program())
        .args(["ui", "--no-browser", "--namespace", OWN])
        .env("KUBECONFIG", ring.cluster().kubeconfig())
        .stdout(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(ui.stdout.take().unwrap()).lines();
    let first = tokio::time::timeout(Duration::from_secs(60), lines.next_line()).await;
    let line = first.expect("ui prints an address").unwrap().expect("ui has not ended");
    let address = line.trim_start_matches("http://").trim_end_matches('/');
    for path in ["/", "/claims", "/assets/style.css"] {
        let mut stream = TcpStream::connect(address).await.unwrap();
        let request = format!("GET {path} HTTP/1.1\r\nHost: {address}\r\n\r\n");
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut answer = String::new();
        let read = tokio::time::timeout(Duration::from_secs(60), stream.read_to_string(&mut answer));
        read.await.expect("the page ends its connection").unwrap();
        assert!(answer.starts_with("HTTP/1.1 200"), "{path}: {answer}");
        assert!(path != "/" || answer.contains(">Leads<"), "it is the page of the leader: {answer}");
    }
}

#[tokio::test]
async fn a_person_who_watches_asks_the_leader() {
    let ring = users("status-watch").await;
    let _lives = PROCESS.read().await;
    let mut watching = Command::new(program())
        .args(["status", "--watch", "--namespace", OWN])
        .env("KUBECONFIG", ring.cluster().kubeconfig())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(watching.stdout.take().unwrap()).lines();
    let has_classes = async {
        while let Some(line) = lines.next_line().await.unwrap() {
            if line.starts_with("CLASS ") {
                return true;
            }
        }
        false
    };
    let has_classes = tokio::time::timeout(Duration::from_secs(60), has_classes).await;
    watching.kill().await.unwrap();
    let mut said = String::new();
    watching.stderr.take().unwrap().read_to_string(&mut said).await.unwrap();
    assert_eq!((has_classes, said.as_str()), (Ok(true), ""), "it needs no watches");
}
