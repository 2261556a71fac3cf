//! Tests of `ui`: the way to the status page through the API server.

use std::net::SocketAddr;

use k8s_openapi::api::core::v1::Pod;
use kube::api::DeleteParams;
use orchestrator::page::{WITH_PAGE, asked, json_of, json_when};
use orchestrator::ring::{OWN, REPLICA, Ring};
use serde_json::json;

use crate::status::Watching;

/// The arguments of a command that shows no page of these tests to anybody.
const UI: [&str; 2] = ["ui", "--no-browser"];

#[tokio::test]
async fn a_person_reaches_the_page_of_the_leader_or_learns_why_not() {
    let mut ring = Ring::without_orchestrator(&WITH_PAGE).await;
    let (code, printed) = ring.command(&UI).await;
    assert!(code == 2 && printed.contains("No orchestrator leads in namespace flex-provisioner"), "{printed}");
    ring.run().await;
    let page = ring.page().await;
    json_when(page, "/", "a leader", |json| json["head"]["leads"] == true).await;
    // The leader is a process still, and no pod.
    let gone = "pod one, which the Lease names as the leader, is gone";
    let (code, printed) = ring.command(&UI).await;
    assert!(code == 2 && printed.contains(gone) && !printed.contains("Status {"), "{printed}");
    let (code, printed) = ring.command(&[&UI[..], &["--as", "somebody"]].concat()).await;
    assert!(code != 0 && printed.contains("forbidden"), "{printed}");

    let forward = ring.forward_page().await;
    let (code, printed) = ring.command(&[&UI[..], &["--status-port", "9000"]].concat()).await;
    let says = ["pod one serves no status page on port 9000", "--status-port", "Connection refused"];
    assert!(code == 2 && says.iter().all(|text| printed.contains(text)), "{printed}");
    assert_eq!(forward.connections(), 0);

    ring.config("ceph-fast", "ceph-fast", &[]).await;
    json_when(page, "/", "the class", |json| json["head"]["counts"]["configs"] == 1).await;
    let mut ui = Watching::start(&ring, &UI);
    let printed = ui.prints(&["http://127.0.0.1:"]).await;
    let address = printed.trim().trim_start_matches("http://").trim_end_matches('/');
    let address: SocketAddr = address.parse().unwrap();
    assert_ne!(address, page);
    // Both at one time, as browsers ask.
    let host = format!("localhost:{}", address.port());
    let (html, json) = tokio::join!(asked(address, "GET", "/", &host), json_of(address, "/"));
    assert!(html.starts_with("HTTP/1.1 200") && html.contains("ceph-fast") && html.ends_with("</html>"), "{html}");
    assert_eq!((&json["head"]["replica"], &json["head"]["leads"]), (&json!(REPLICA), &json!(true)));
    assert_eq!(forward.connections(), 3, "that of `ui` itself, and one for each request");
    drop(ui);

    // The Lease names the process that was killed until another one leads.
    ring.kill().await;
    let (code, printed) = ring.command(&UI).await;
    let says = ["serves no status page on port 8081: the orchestrator has ended", "Connection refused"];
    assert!(code == 2 && says.iter().all(|text| printed.contains(text)), "{printed}");
    assert_eq!(forward.connections(), 3);
    // The kubelet does not answer any more.
    drop(forward);
    let (code, printed) = ring.command(&UI).await;
    let says = "the API server forwards no port of pod one: error dialing backend";
    assert!(code == 2 && printed.contains(says) && !printed.contains("Status {"), "{printed}");
    ring.api::<Pod>(OWN).delete(REPLICA, &DeleteParams::default().grace_period(0)).await.unwrap();
    let (code, printed) = ring.command(&UI).await;
    assert!(code == 2 && printed.contains(gone) && !printed.contains("Status {"), "{printed}");
}
