//! Tests of the metrics, as Prometheus scrapes them.

use cluster::Component;
use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use orchestrator::ring::{ADMIN, Ring, uid};
use orchestrator::wait::until;

/// Returns the metrics of the orchestrator that runs.
async fn scraped(ring: &Ring) -> String {
    let line = ring.logged("admin_address=").await;
    let address = line.split("admin_address=").nth(1).and_then(|rest| rest.split_whitespace().next()).unwrap();
    let mut stream = TcpStream::connect(address).await.unwrap();
    stream.write_all(b"GET /metrics HTTP/1.1\r\nHost: orchestrator\r\n\r\n").await.unwrap();
    let mut text = String::new();
    stream.read_to_string(&mut text).await.unwrap();
    text
}

/// Returns the lines of the metric of a series.
fn lines_of(text: &str, series: &str) -> String {
    let name = series.split('{').next().unwrap_or_default();
    text.lines().filter(|line| line.starts_with(name)).collect::<Vec<_>>().join("\n")
}

/// Waits until a series, by the beginning of its line, has a value that passes, and returns the value.
async fn value(ring: &Ring, series: &str, passes: impl Fn(f64) -> bool) -> f64 {
    until(format!("{series} has the value"), || async {
        let text = scraped(ring).await;
        let value = text.lines().find_map(|line| line.strip_prefix(series)?.trim().parse::<f64>().ok());
        value.filter(|value| passes(*value)).ok_or_else(|| lines_of(&text, series))
    })
    .await
}

#[tokio::test]
async fn a_scrape_has_the_metrics_of_claims_configs_lease_and_requests() {
    let ring = Ring::start().await;
    ring.config("c", "c", &[("capabilities", "clone")]).await;
    ring.config("wrong", "wrong", &[("timeout", "soon")]).await;
    ring.claim("a", "c").await;
    ring.provision("a").await;
    let source = json!({ "spec": { "dataSource": { "kind": "PersistentVolumeClaim", "name": "a" } } });
    ring.claim_with("b", "c", source).await;
    let (_, volume) = ring.provision("b").await;

    const BOUND: &str = "controller_persistentvolumeclaim_provision";
    const OF: &str = r#"{orchestrator="default","#;
    value(&ring, &format!(r#"{BOUND}_total{OF}class="c",source=""}}"#), |count| count == 1.0).await;
    let copied = format!(r#"{OF}class="c",source="PersistentVolumeClaim"}}"#);
    value(&ring, &format!("{BOUND}_total{copied}"), |count| count == 1.0).await;
    value(&ring, &format!("{BOUND}_duration_seconds_count{copied}"), |count| count == 1.0).await;

    let state = |name: &str, state: &str| format!(r#"flex_config_state{OF}config="{ADMIN}/{name}",state="{state}"}}"#);
    // The verdict on it has a warning.
    value(&ring, &state("c", "warnings"), |value| value == 1.0).await;
    value(&ring, &state("wrong", "refused"), |value| value == 1.0).await;

    // The volume is deleted, by a run that takes some time.
    let id = uid(&ring.get_claim("b").await);
    ring.delete_claim("b").await;
    let job = ring.job(ADMIN, "delete", &id, 1).await;
    ring.pod_ends(&job, 0, "").await;
    ring.volume_gone(volume.metadata.name.as_deref().unwrap()).await;
    let deletions = format!(r#"controller_persistentvolume_delete_duration_seconds_count{OF}class="c"}}"#);
    value(&ring, &deletions, |count| count == 1.0).await;

    let requests =
        |verb: &str, code: &str| format!(r#"flex_api_request_duration_seconds_count{OF}verb="{verb}",code="{code}"}}"#);
    for (verb, code) in [("list", "200"), ("watch", "200"), ("create", "201"), ("patch", "200"), ("update", "200")] {
        value(&ring, &requests(verb, code), |count| count > 0.0).await;
    }
    let restarts = r#"flex_watch_restarts_total{orchestrator="default",kind="PersistentVolumeClaim"}"#;
    value(&ring, restarts, |count| count == 0.0).await;
    let age = r#"flex_lease_age_seconds{orchestrator="default"}"#;
    value(&ring, age, |age| age < 5.0).await;

    // The API server does not answer, and then ends all connections.
    ring.cluster().pause(Component::ApiServer).unwrap();
    value(&ring, age, |age| age > 6.0).await;
    ring.cluster().restart(Component::ApiServer).await.unwrap();
    value(&ring, restarts, |count| count > 0.0).await;
    value(&ring, age, |age| age < 5.0).await;
}
