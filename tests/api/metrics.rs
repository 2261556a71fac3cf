//! Tests of the metrics, as Prometheus scrapes them.

use cluster::Component;
use flex_contract::names;
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::ResourceQuota;
use kube::api::{DeleteParams, PostParams};
use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use orchestrator::ring::{ADMIN, Ring, annotation, uid};
use orchestrator::wait::{unexpected, until};

use crate::failures::refuses;

/// Returns the metrics of the orchestrator that runs.
pub async fn scraped(ring: &Ring) -> String {
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
pub async fn value(ring: &Ring, series: &str, passes: impl Fn(f64) -> bool) -> f64 {
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

/// Waits until the note of the last failed run for a claim that is gone has these texts.
async fn failed_when_gone(ring: &Ring, id: &str, texts: &[&str]) {
    let noted = until(format!("a record has the failure with {texts:?}"), || async {
        let failure = ring.noted(id, names::FAILURE).await.unwrap_or_default();
        if texts.iter().all(|text| failure.contains(*text)) { Ok(()) } else { unexpected(failure) }
    });
    ring.explained(noted).await;
}

/// Waits until the record of the last failed run of claim `a` has these texts.
async fn failed(ring: &Ring, texts: &[&str]) {
    ring.claim_when("a", &format!("has the record of a failure with {texts:?}"), |claim| {
        annotation(claim, names::FAILURE).is_some_and(|failure| texts.iter().all(|text| failure.contains(*text)))
    })
    .await;
}

#[tokio::test]
async fn a_clean_up_whose_job_is_refused_counts_as_a_deletion_and_follows_a_corrected_config() {
    const UNSTARTED: &str = r#""unstarted_attempts":1"#;
    let ring = Ring::start().await;
    // An attempt that cannot have left anything, and one that may have.
    let malformed = "spec: {volumes: [{name: a, hostPath: {path: /a, type: Directroy}}]}";
    ring.config("c", "c", &[("backoff", "1h..2h"), ("pod-template", malformed)]).await;
    let id = uid(&ring.claim("a", "c").await);
    failed(&ring, &[UNSTARTED]).await;
    ring.config("c", "c", &[("backoff", "1h..2h")]).await;
    let attempt = ring.job(ADMIN, "provision", &id, 2).await;
    ring.pod_ends(&attempt, 75, "busy").await;
    failed(&ring, &[r#""operation":"provision""#, r#""attempt":2"#, UNSTARTED]).await;

    let quota = json!({ "metadata": { "name": "jobs" }, "spec": { "hard": { "count/jobs.batch": "0" } } });
    let (quotas, jobs) = (ring.api::<ResourceQuota>(ADMIN), ring.api::<Job>(ADMIN));
    quotas.create(&PostParams::default(), &serde_json::from_value(quota).unwrap()).await.unwrap();
    let pod = json!({ "restartPolicy": "Never", "containers": [{ "name": "c", "image": "example/other" }] });
    let probe = json!({ "metadata": { "name": "probe" }, "spec": { "template": { "spec": pod } } });
    refuses(&jobs, probe.clone()).await;
    ring.delete_claim("a").await;
    let config = format!(r#""config":"{ADMIN}/c@"#);
    failed_when_gone(&ring, &id, &[r#""operation":"delete""#, r#""attempt":1"#, &config, UNSTARTED]).await;
    quotas.delete("jobs", &DeleteParams::default()).await.unwrap();
    let probe: Job = serde_json::from_value(probe).unwrap();
    let dry = PostParams { dry_run: true, ..PostParams::default() };
    until("the quota is gone", || async {
        jobs.create(&dry, &probe).await.map(drop).map_err(|error| error.to_string())
    })
    .await;

    ring.config("c", "c", &[("backoff", "1h..2h"), ("image", "example/corrected")]).await;
    let delete = ring.job(ADMIN, "delete", &id, 2).await;
    ring.pod_ends(&delete, 75, "busy").await;
    failed_when_gone(&ring, &id, &[r#""operation":"delete""#, r#""attempt":2"#, UNSTARTED]).await;
    let deletions = r#"controller_persistentvolume_delete_failed_total{orchestrator="default",class="c"}"#;
    value(&ring, deletions, |count| count == 2.0).await;
    let attempts = "controller_persistentvolumeclaim_provision_failed_total";
    let attempts = format!(r#"{attempts}{{orchestrator="default",class="c",source=""}}"#);
    value(&ring, &attempts, |count| count == 2.0).await;
}
