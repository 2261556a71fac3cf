//! Tests of the commands that show classes: `status` and `explain`.

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};

use cluster::PortForward;
use flex_contract::names;
use orchestrator::kubelet::nfs_volume;
use orchestrator::page::{WITH_PAGE, json_when};
use orchestrator::programs::tool;
use orchestrator::ring::{ADMIN, OWN, Ring, USER, uid};
use orchestrator::wait::GUARD;
use serde_json::{Value, json};
use tokio::sync::mpsc;

/// The beginning of a picture of `status --watch`.
const PICTURE: &str = "Orchestrator default in namespace";

/// A command that watches, and its output line by line.
pub struct Watching {
    process: Child,
    lines: mpsc::UnboundedReceiver<String>,
    printed: String,
}

impl Watching {
    /// Starts a command for the orchestrator of a ring.
    pub fn start(ring: &Ring, arguments: &[&str]) -> Self {
        let mut command = Command::new(tool());
        command.args(arguments).args(["--flex-namespace", OWN, "--config-namespace", ADMIN]);
        command.env("KUBECONFIG", ring.cluster().kubeconfig()).stdout(Stdio::piped());
        let mut process = command.spawn().unwrap();
        let (sender, lines) = mpsc::unbounded_channel();
        let output = BufReader::new(process.stdout.take().unwrap());
        std::thread::spawn(move || {
            output.lines().map_while(Result::ok).for_each(|line| drop(sender.send(line)));
        });
        Watching { process, lines, printed: String::new() }
    }

    /// Waits for a line with all these texts, and returns it.
    pub async fn prints(&mut self, texts: &[&str]) -> String {
        let found = async {
            while let Some(line) = self.lines.recv().await {
                self.printed += &format!("{line}\n");
                if texts.iter().all(|text| line.contains(text)) {
                    return Some(line);
                }
            }
            None
        };
        let found = tokio::time::timeout(GUARD, found).await;
        found.ok().flatten().unwrap_or_else(|| panic!("no line has {texts:?}:\n{}", self.printed))
    }

    /// Returns how many pictures have begun.
    fn pictures(&self) -> usize {
        self.printed.matches(PICTURE).count()
    }
}

impl Drop for Watching {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// Waits until one connection has served several pictures. An answer that takes longer than five seconds costs another
/// one.
async fn one_connection(forward: &PortForward, watching: &mut Watching) {
    let serves_several = async {
        while forward.connections() == 0 || watching.pictures() <= forward.connections() {
            watching.prints(&[PICTURE]).await;
        }
    };
    tokio::time::timeout(GUARD, serves_several).await.expect("there is no connection for each picture");
}

#[tokio::test]
async fn a_person_who_watches_asks_the_leader_over_one_connection_and_goes_on_without_it() {
    let mut ring = Ring::start_with(&WITH_PAGE).await;
    ring.config("c", "c", &[("backoff", "1h..2h"), ("max-in-flight", "2"), ("zone", "west")]).await;
    json_when(ring.page().await, "/", "the class", |json| {
        json["head"]["leads"] == true && json["head"]["counts"]["configs"] == 1
    })
    .await;
    let forward = ring.forward_page().await;
    // The age of a claim makes another picture each second.
    ring.claim("a", "c").await;
    let mut of_class = Watching::start(&ring, &["status", "-A", "--watch", "c"]);
    one_connection(&forward, &mut of_class).await;
    of_class.prints(&["parameter zone", "west"]).await;
    drop(of_class);

    let mut watching = Watching::start(&ring, &["status", "-A", "--watch"]);
    watching.prints(&["one leads"]).await;
    watching.prints(&["team/a", "Running"]).await;
    let claim = uid(&ring.stamped("a").await);
    let job = ring.job(ADMIN, "provision", &claim, 1).await;
    ring.pod_ends(&job, 75, "busy").await;
    watching.prints(&["c ", "failing: 1 claim, last team/a: ExitCode: exit code 75"]).await;
    watching.prints(&["team/a", "Failed", "busy"]).await;
    one_connection(&forward, &mut watching).await;

    // Nobody answers any more, and the command follows the claim by watches of its own.
    drop(forward);
    ring.command(&["retry", "-n", USER, "a"]).await;
    let job = ring.job(ADMIN, "provision", &claim, 2).await;
    watching.prints(&["c ", "Running 1", "█████░░░░░ 1/2"]).await;
    ring.create_volume(&nfs_volume(&job)).await;
    ring.bound("a").await;
    watching.prints(&["c ", "Bound 1", "ok"]).await;
    // Nobody serves the next claim, and the watches show it.
    ring.kill().await;
    ring.claim("b", "c").await;
    watching.prints(&["team/b", "Waiting"]).await;
}

#[tokio::test]
async fn the_state_has_a_form_for_each_reader() {
    let ring = Ring::start().await;
    let keys = [("max-in-flight", "2"), ("max-volumes", "4"), ("capabilities", "expand"), ("zone", "west")];
    ring.config("c", "c", &keys).await;
    ring.class("c", names::DEFAULT_PROVISIONER, json!({})).await;
    ring.claim("a", "c").await;
    ring.job(ADMIN, "provision", &uid(&ring.stamped("a").await), 1).await;
    let (code, of_class) = ring.command(&["status", "c", "-n", USER]).await;
    for text in ["capabilities", "expand", "parameter zone", "west", "max-volumes", "██░░░░░░░░ 1", "team/a"]
    {
        assert!(code == 0 && of_class.contains(text), "{text}: {of_class}");
    }
    let (_, wide) = ring.command(&["status", "-o", "wide"]).await;
    assert!(wide.contains("OBJECT") && wide.contains(&format!("{ADMIN}/c@")), "{wide}");
    assert!(!wide.contains("team/a") && wide.contains("Claims of other namespaces that are not bound: 1 ("), "{wide}");
    let (_, listed) = ring.command(&["status", "-o", "name"]).await;
    assert_eq!(listed.trim(), "storageclass.storage.k8s.io/c", "the context is of another namespace");
    let (_, listed) = ring.command(&["status", "-A", "-o", "name"]).await;
    assert_eq!(listed.trim(), "storageclass.storage.k8s.io/c\npersistentvolumeclaim/team/a");
    let (_, yaml) = ring.command(&["status", "-o", "yaml"]).await;
    let yaml: Value = serde_saphyr::from_str(&yaml).unwrap();
    let class = &yaml["classes"][0];
    assert_eq!((&class["maxVolumes"], &class["usedVolumes"], &class["runs"]), (&json!(4), &json!(1), &json!(1)));
    assert!(yaml["leader"].as_str().is_some_and(|text| text.ends_with(" leads")), "{yaml}");
    let (code, unknown) = ring.command(&["status", "none"]).await;
    assert!(code == 1 && unknown.contains("its classes are c"), "{unknown}");
}

#[tokio::test]
async fn a_class_is_explained_with_the_origin_of_each_value() {
    let ring = Ring::start().await;
    ring.config("c", "c", &[("timeout", "90s"), ("max-size", "1Gi"), ("zone", "west")]).await;
    let parameters = json!({ "parameters": { "tier": "fast" }, "reclaimPolicy": "Retain" });
    ring.class("c", names::DEFAULT_PROVISIONER, parameters).await;
    ring.config("broken", "broken", &[("timeout", "soon")]).await;
    // The orchestrator knows all of them.
    ring.claim("a", "c").await;
    ring.stamped("a").await;

    let (code, explained) = ring.command(&["explain", "c", "-o", "json"]).await;
    let explained: Value = serde_json::from_str(&explained).unwrap_or_else(|error| panic!("{error}: {explained}"));
    let value = |name: &str| {
        let all = explained["values"].as_array().unwrap();
        let found = all.iter().find(|value| value["name"] == name).unwrap_or_else(|| panic!("{name}: {explained}"));
        (found["value"].as_str().unwrap().to_owned(), found["from"].as_str().unwrap().to_owned())
    };
    let of_config = format!("ConfigMap {ADMIN}/c");
    for (name, text, from) in [
        ("timeout", "90s", of_config.as_str()),
        ("zone", "west", of_config.as_str()),
        ("tier", "fast", "parameter of the StorageClass"),
        ("reclaim-policy", "Retain", "reclaimPolicy of the StorageClass"),
        ("batch-size", "`1`", "default"),
    ] {
        assert_eq!(value(name), (text.to_owned(), from.to_owned()), "{name}");
    }
    assert_eq!((code, &explained["operations"]), (0, &json!(["provision", "delete"])));

    let claim = |size: &str| {
        let spec = json!({
            "storageClassName": "c", "accessModes": ["ReadWriteOnce"], "resources": { "requests": { "storage": size } },
        });
        let claim = json!({
            "apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": { "name": size.to_lowercase() }, "spec": spec,
        });
        ring.file(&format!("{size}.json"), &claim.to_string()).display().to_string()
    };
    let (code, printed) = ring.command(&["explain", "c", "--claim", &claim("1Gi")]).await;
    assert!(code == 0 && printed.contains("/1gi would be served"), "{printed}");
    assert!(
        printed.contains("lacks rights that each image needs") && printed.contains("create clusterrolebinding"),
        "{printed}"
    );
    let (code, printed) = ring.command(&["explain", "c", "--claim", &claim("2Gi")]).await;
    assert!(
        code == 2 && printed.contains("would be refused: the claim asks for 2Gi, and class c provides"),
        "{printed}"
    );
    let (code, printed) = ring.command(&["explain", "broken"]).await;
    assert!(code == 2 && printed.contains("serves no claim now"), "{printed}");
    let (code, printed) = ring.command(&["explain", "none"]).await;
    assert!(code == 1 && printed.contains("class none does not exist"), "{printed}");
}
