//! Tests of the status page: its facts as JSON, and its look in a real browser.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use flex_contract::names;
use k8s_openapi::api::batch::v1::Job;
use orchestrator::browser::{Browser, Screen};
use orchestrator::deployed::root;
use orchestrator::kubelet::nfs_volume;
use orchestrator::page::{WITH_PAGE, asked, json_of, json_when};
use orchestrator::ring::{ADMIN, Ring, USER, uid};
use serde_json::{Value, json};
use tokio::time::sleep;

/// A message that would act on the page if it were markup.
const HOSTILE: &str =
    "</bdi><script>document.title='owned'</script><img src=x onerror=\"document.title='owned'\"> no such pool";
/// All pages with their paths, without those of single claims.
const PAGES: [(&str, &str); 5] = [
    ("overview", "/"),
    ("claims", "/claims"),
    ("failures", "/failures"),
    ("findings", "/findings"),
    ("configs", "/configs"),
];
/// The largest size of a picture in the manual, in bytes.
const MAX_PICTURE: usize = 150 << 10;

/// Starts an orchestrator with a page, and returns the address of the page.
async fn start() -> (Ring, SocketAddr) {
    let ring = Ring::start_with(&[WITH_PAGE.as_slice(), &["--sweep-interval", "5s"]].concat()).await;
    let address = ring.page().await;
    (ring, address)
}

fn row<'a>(rows: &'a Value, name: &str) -> &'a Value {
    rows.as_array().unwrap().iter().find(|row| row["name"] == name).unwrap_or_else(|| panic!("{name}: {rows}"))
}

async fn run_of(ring: &Ring, claim: &str) -> Job {
    let claim = ring.stamped(claim).await;
    ring.job(ADMIN, "provision", &uid(&claim), 1).await
}

async fn scheduled(ring: &Ring, job: &Job) {
    let condition = json!({ "type": "PodScheduled", "status": "True", "lastTransitionTime": jiff::Timestamp::now() });
    ring.pod_status(job, json!({ "phase": "Pending", "conditions": [condition] })).await;
}

/// Makes bound claims of a class, which take this time.
async fn make(ring: &Ring, class: &str, claims: &[&str], took: Duration) {
    for claim in claims {
        ring.claim(claim, class).await;
    }
    sleep(took).await;
    for claim in claims {
        let job = run_of(ring, claim).await;
        ring.create_volume(&nfs_volume(&job)).await;
        ring.pod_ends(&job, 0, "").await;
        ring.bound(claim).await;
    }
}

/// Makes classes and claims as a cluster at work has them: two bound, one in flight, one that waits for its pod, one that
/// failed, and a config that is refused. Each step takes this time.
async fn at_work(ring: &Ring, step: Duration) {
    let limits = [("max-in-flight", "8"), ("max-volumes", "200"), ("max-bytes", "2Ti"), ("backoff", "90s")];
    ring.config("ceph-fast", "ceph-fast", &limits).await;
    let limits = [("max-in-flight", "4"), ("max-volumes-per-namespace", "20"), ("backoff", "5m..10m")];
    ring.config("nfs-home", "nfs-home", &limits).await;
    ring.config("local-ssd", "local-ssd", &[("placement", "selected-node")]).await;
    ring.class("local-ssd", names::DEFAULT_PROVISIONER, json!({ "volumeBindingMode": "WaitForFirstConsumer" })).await;
    ring.config("archive", "archive", &[("timeout", "soon"), ("max-in-flight", "many"), ("retry", "5")]).await;
    make(ring, "ceph-fast", &["data-postgres-0", "data-postgres-1"], step * 3).await;
    make(ring, "nfs-home", &["home-anna"], step).await;
    ring.claim("home-ben", "nfs-home").await;
    ring.claim("scratch-0", "local-ssd").await;
    ring.claim("data-postgres-2", "ceph-fast").await;
    let (pulls, fails) = (run_of(ring, "data-postgres-2").await, run_of(ring, "home-ben").await);
    sleep(step).await;
    scheduled(ring, &pulls).await;
    ring.pod_ends(&fails, 75, "the server nfs-1 does not answer: connection timed out after 30 s").await;
    sleep(step).await;
}

/// Checks that the orchestrator has led all the time: it forgets the last hour when it cannot renew its Lease.
fn is_first_term(ring: &Ring) -> bool {
    ring.log_text().matches("leadership changed").count() == 1
}

#[tokio::test]
async fn the_page_says_what_is_so() {
    let (ring, address) = start().await;
    at_work(&ring, Duration::ZERO).await;
    let settled = |json: &Value| {
        let claims = json["claims"]["rows"].as_array().unwrap();
        claims.len() == 3 && claims.iter().any(|claim| claim["state"] == "Failed")
    };
    let claims = json_when(address, "/claims", "three claims", settled).await;
    let rows = &claims["claims"]["rows"];
    let running = row(rows, "data-postgres-2");
    assert_eq!((&running["namespace"], &running["state"]), (&json!(USER), &json!("Running")));
    assert_eq!((&running["class"], &running["attempt"]), (&json!("ceph-fast"), &json!(1)));
    let stages: Vec<_> = running["stages"].as_array().unwrap().iter().map(|stage| &stage["stage"]).collect();
    assert!(stages.contains(&&json!("job-created")), "{running}");
    let is_known = running["expectedEnd"].is_i64();
    assert!(is_known || !is_first_term(&ring), "two claims of the class were bound within the hour: {running}");
    assert_eq!(row(rows, "scratch-0")["waitsFor"], "waits for a pod that uses it");

    let failures = json_of(address, "/failures").await;
    let failed = row(&failures["failures"]["rows"], "home-ben");
    assert_eq!((&failed["operation"], &failed["attempt"]), (&json!("provision"), &json!(1)));
    assert!(failed["message"].as_str().unwrap().contains("the server nfs-1 does not answer"), "{failed}");
    assert!(failed["next"]["when"] == "at" && failed["next"]["at"].as_i64() > failed["at"].as_i64(), "{failed}");

    let configs = json_of(address, "/configs").await;
    let refused = row(&configs["configs"]["rows"], "archive");
    let keys: Vec<_> = refused["problems"].as_array().unwrap().iter().map(|problem| &problem["key"]).collect();
    assert!(refused["last_good"] == false && keys.contains(&&json!("timeout")), "{refused}");
    assert!(keys.contains(&&json!("max-in-flight")), "{refused}");
    assert_eq!(row(&configs["configs"]["rows"], "nfs-home")["classes"], json!(["nfs-home"]));

    let known = |json: &Value| json["policies"]["unknown"].is_null() && json["head"]["leads"] == true;
    let overview = json_when(address, "/", "the policies", known).await;
    let head = &overview["head"];
    assert_eq!((&head["leads"], &head["leader"], &head["replica"]), (&json!(true), &json!("one"), &json!("one")));
    assert_eq!((&head["counts"]["claims"], &head["counts"]["failures"]), (&json!(3), &json!(1)));
    assert_eq!((&head["counts"]["configs"], &head["counts"]["refused"]), (&json!(4), &json!(1)));
    let fast = row(&overview["classes"], "ceph-fast");
    assert_eq!(fast["recipe"]["Ok"]["max_in_flight"], json!(8));
    assert!(fast["hour"]["bound"] == 2 || !is_first_term(&ring), "{fast}");
    assert!(fast["hour"]["p95"].as_f64() >= fast["hour"]["p50"].as_f64(), "{fast}");
    let (used, most) = (&fast["used_volumes"], &fast["recipe"]["Ok"]["max_bytes"]);
    assert_eq!((used, most), (&json!(3), &json!(2_u64 << 40)), "two, and one in flight");

    // Events are written a little after what they tell.
    let told = |json: &Value| {
        let events = json["events"].as_array();
        events.is_some_and(|events| events.iter().any(|event| event["reason"] == "Provisioning"))
    };
    let one = json_when(address, &format!("/claims/{USER}/home-ben"), "the events", told).await;
    assert_eq!((&one["state"], &one["failure"]["attempt"]), (&json!("Failed"), &json!(1)), "{one}");
    assert!(one["unseen"].as_array().unwrap().is_empty(), "{one}");
    let bound = json_of(address, &format!("/claims/{USER}/data-postgres-0")).await;
    let last = bound["stages"].as_array().unwrap().last().unwrap()["stage"].clone();
    assert_eq!((&bound["state"], &last), (&json!("Bound"), &json!("bound")), "{bound}");

    let foreign = asked(address, "GET", "/", "evil.example").await;
    assert!(foreign.starts_with("HTTP/1.1 421") && !foreign.contains(USER), "{foreign}");
    let written = asked(address, "POST", "/", "localhost").await;
    assert!(written.starts_with("HTTP/1.1 405"), "{written}");

    // Readers cost little memory.
    let read = async || {
        for (name, path) in PAGES {
            let html = asked(address, "GET", path, "localhost").await;
            assert!(html.ends_with("</html>"), "{name}: {html}");
        }
    };
    // The first sweep and the first page of each kind cost memory once.
    json_when(address, "/findings", "the first sweep", |json| !json["sweptAt"].is_null()).await;
    read().await;
    let before = resident(ring.pid());
    for _ in 0..100 {
        read().await;
    }
    let more = resident(ring.pid()) - before;
    eprintln!("500 pages: {more} KiB more of {before} KiB");
    assert!(more <= 1024, "{more} KiB more of {before} KiB");
}

/// Returns the resident memory of a process, in KiB.
fn resident(pid: u32) -> i64 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    line.trim().trim_end_matches(" kB").parse().unwrap()
}

/// Returns what makes a page hard to read: overflow, text without contrast, and small text.
const UNREADABLE: &str = r#"(() => {
  const wide = document.documentElement.clientWidth, found = [];
  if (document.documentElement.scrollWidth > wide) found.push(`scrolls to ${document.documentElement.scrollWidth}`);
  const channels = (text) => text.match(/[\d.]+/g).map(Number);
  const light = ([r, g, b]) => {
    const [x, y, z] = [r, g, b].map((c) => (c /= 255) <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4);
    return 0.2126 * x + 0.7152 * y + 0.0722 * z;
  };
  const behind = (element) => {
    for (let at = element; at; at = at.parentElement) {
      const colour = channels(getComputedStyle(at).backgroundColor);
      if (colour.length < 4 || colour[3] === 1) return colour;
    }
    return [255, 255, 255];
  };
  for (const element of document.body.querySelectorAll("*")) {
    const box = element.getBoundingClientRect(), style = getComputedStyle(element);
    const isSeen = box.width > 1 && box.right > 0 && !element.closest("svg, thead, noscript, script");
    if (!isSeen) continue;
    const says = `${element.tagName} ${element.textContent.slice(0, 40)}`;
    if (box.right > wide + 1) found.push(`${says}: ends at ${box.right}`);
    if (![...element.childNodes].some((node) => node.nodeType === 3 && node.data.trim())) continue;
    const pair = [light(channels(style.color)), light(behind(element))].sort((a, b) => b - a);
    const contrast = (pair[0] + 0.05) / (pair[1] + 0.05);
    if (contrast < 4.5) found.push(`${says}: contrast ${contrast.toFixed(1)}`);
    if (parseFloat(style.fontSize) < 12) found.push(`${says}: ${style.fontSize}`);
  }
  return found;
})()"#;

/// Checks that a person can read the page that is open, and that it has no markup of a tenant.
async fn is_legible(browser: &mut Browser, page: &str, width: u32) {
    assert_eq!(browser.value("document.documentElement.clientWidth").await, width, "{page}");
    assert_eq!(browser.value(UNREADABLE).await, json!([]), "{page} at {width} pixels");
    let markup = "[document.title === 'owned', document.images.length, document.scripts.length]";
    assert_eq!(browser.value(markup).await, json!([false, 0, 1]), "{page}");
}

#[tokio::test]
async fn a_browser_shows_the_page_to_a_person() {
    let (ring, address) = start().await;
    let is_for_manual = std::env::var_os("UPDATE_PAGES").is_some();
    // In the pictures of the manual, each step has taken some time.
    at_work(&ring, Duration::from_secs(if is_for_manual { 3 } else { 0 })).await;
    json_when(address, "/failures", "a failure", |json| json["head"]["counts"]["failures"] == 1).await;
    let mut browser = Browser::start().await;
    let screen = Screen { width: 1100, scheme: "light", scripts: true };
    for (name, path) in [("overview", "/"), ("claims", "/claims")] {
        browser.open(&format!("http://{address}{path}"), screen).await;
        let png = browser.screenshot(false).await;
        assert!(png.len() < MAX_PICTURE, "{name} has {} bytes", png.len());
        if is_for_manual {
            std::fs::write(root().join(format!("docs/how-to/status-page-{name}.png")), png).unwrap();
        }
    }

    // The page refreshes itself. An image writes the message of a failure, and a user a long name.
    let long = "a-claim-with-a-very-long-name-".repeat(7) + "end";
    ring.claim(&long, "ceph-fast").await;
    let job = run_of(&ring, &long).await;
    ring.pod_ends(&job, 65, HOSTILE).await;
    json_when(address, "/failures", "two failures", |json| json["head"]["counts"]["failures"] == 2).await;
    let shows = format!("document.querySelector('main').innerText.includes('{long}')");
    browser.value_when("the page refreshes itself", &shows).await;

    let pictures = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("status-page");
    std::fs::create_dir_all(&pictures).unwrap();
    let claim = format!("/claims/{USER}/{long}");
    for (name, path) in PAGES.into_iter().chain([("claim", claim.as_str())]) {
        for (width, scheme) in [(400, "light"), (400, "dark"), (1400, "light"), (1400, "dark")] {
            browser.open(&format!("http://{address}{path}"), Screen { width, scheme, scripts: true }).await;
            let picture = pictures.join(format!("{name}-{width}-{scheme}.png"));
            std::fs::write(picture, browser.screenshot(true).await).unwrap();
            is_legible(&mut browser, name, width).await;
        }
    }
    eprintln!("screenshots: {}", pictures.display());
    for path in ["/failures", claim.as_str()] {
        browser.open(&format!("http://{address}{path}"), Screen { scripts: false, ..screen }).await;
        let text = browser.value("document.querySelector('main').innerText").await;
        let text = text.as_str().unwrap();
        assert!(text.contains("<script>document.title='owned'</script>"), "it is a text: {text}");
    }
}
