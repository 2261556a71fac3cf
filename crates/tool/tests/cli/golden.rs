//! The whole output of commands, as files: each change of a text shows in a review.
//!
//! The commands read a support bundle of one scene. Its time is fixed, so that ages are the same in each run.

use std::path::PathBuf;
use std::sync::OnceLock;

use flate2::Compression;
use flate2::read::GzDecoder;
use flate2::write::GzEncoder;
use flex_core::model::volume::adoption_mark;
use serde_json::{Value, json};

use super::fake::{REVIEWS, Server, deployment, list, review};
use super::{Answer, run};

/// The time at which the bundle is read, in seconds since 1970.
const NOW: i64 = 1_790_000_000;
const NAMESPACE: &str = "flex-provisioner";

fn at(seconds: i64) -> String {
    jiff::Timestamp::from_second(NOW + seconds).unwrap().to_string()
}

fn config(name: &str, more: Value) -> Value {
    let mut data = json!({ "plugin-name": "kubernetes.io/flex-provisioner", "image": "example/image:1" });
    data.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    let labels = json!({ "type": "provisioner-config", "storage-class": name });
    json!({ "metadata": { "name": name, "namespace": NAMESPACE, "uid": name, "labels": labels }, "data": data })
}

fn own(name: &str) -> String {
    format!("flex-provisioner.io/{name}")
}

/// A claim of class gold, created some seconds ago.
fn claim(name: &str, class: &str, age: i64, annotations: &Value, volume: Option<&str>) -> Value {
    let mut all = serde_json::Map::new();
    for (key, value) in annotations.as_object().unwrap() {
        let text = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
        all.insert(if key.contains('/') { key.clone() } else { own(key) }, json!(text));
    }
    if volume.is_none() && all.len() > 1 {
        all.insert(own("held"), json!(name));
    }
    json!({
        "metadata": {
            "name": name, "namespace": "team", "uid": name, "resourceVersion": "1", "creationTimestamp": at(-age),
            "annotations": all,
        },
        "spec": {
            "storageClassName": class, "accessModes": ["ReadWriteOnce"], "volumeName": volume,
            "resources": { "requests": { "storage": "1Gi" } },
        },
        "status": {
            "phase": if volume.is_some() { "Bound" } else { "Pending" }, "accessModes": ["ReadWriteOnce"],
            "capacity": { "storage": "1Gi" },
        },
    })
}

fn stamp(name: &str, attempt: u32, began: i64) -> Value {
    json!({
        "claim-uuid": name, "attempt": attempt.to_string(), "provision-ts": at(began),
        "config": "flex-provisioner/gold@0123456789abcdef", "instance": "default",
    })
}

fn with(mut annotations: Value, more: Value) -> Value {
    annotations.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    annotations
}

fn failed_attempt(number: u32, created: i64, stamped: i64, message: &str) -> Value {
    let ms = json!({ "stamped": stamped, "job-created": stamped + 100, "started": stamped + 1000, "failed": stamped + 3000 });
    json!({ "attempt": number, "created": (NOW - created) * 1000, "ms": ms, "reason": "ExitCode", "message": message })
}

fn claims() -> Vec<Value> {
    let busy = "exit code 75: try again later: the array is busy";
    let bound = json!({
        "attempt": 2, "created": (NOW - 600) * 1000,
        "ms": { "stamped": 13_000, "job-created": 13_100, "scheduled": 13_100, "started": 14_000,
            "volume-created": 16_000, "adopted": 16_300, "bound": 16_340 },
    });
    let attempts = json!({ "attempts": [failed_attempt(1, 600, 0, busy)] });
    let data = with(
        stamp("data", 2, -587),
        json!({ "timeline": bound, "failed-attempts": attempts, "pv.kubernetes.io/bind-completed": "yes" }),
    );
    let failure = json!({
        "operation": "provision", "attempt": 3, "at": NOW - 20, "kind": "retry", "reason": "ExitCode", "message": busy,
    });
    let attempts: Vec<_> = (1..=3).map(|number| failed_attempt(number, 90, i64::from(number) * 20_000, busy)).collect();
    let timeline = json!({ "attempt": 3, "created": (NOW - 90) * 1000, "ms": { "stamped": 60_000, "failed": 63_000 } });
    let broken = with(
        stamp("broken", 3, -30),
        json!({ "last-failure": failure, "failed-attempts": { "attempts": attempts }, "timeline": timeline }),
    );
    vec![
        claim("data", "gold", 600, &data, Some("pvc-data")),
        claim("broken", "gold", 90, &broken, None),
        claim("new", "gold", 5, &stamp("new", 1, -4), None),
        claim("waits", "silver", 7, &json!({}), None),
        claim("lost", "unknown", 3600, &json!({}), None),
    ]
}

fn volume() -> Value {
    let provenance = json!({ "class": "gold", "data": {} }).to_string();
    let claim = json!({ "kind": "PersistentVolumeClaim", "namespace": "team", "name": "data", "uid": "data" });
    json!({
        "metadata": {
            "name": "pvc-data", "uid": "v", "resourceVersion": "1", "creationTimestamp": at(-584),
            "labels": { own("instance"): "default" }, "finalizers": [own("volume")],
            "annotations": { own("claim-uuid"): "data", own("volume-id"): "data", own("provenance"): provenance },
        },
        "spec": {
            "storageClassName": "gold", "accessModes": ["ReadWriteOnce"], "capacity": { "storage": "1Gi" },
            "persistentVolumeReclaimPolicy": "Delete", "claimRef": claim, "nfs": { "server": "nas", "path": "/data" },
        },
        "status": { "phase": "Bound", "reason": adoption_mark(&provenance, "v") },
    })
}

/// The objects of the scene.
fn cluster() -> Server {
    let lease = json!({
        "metadata": {
            "name": "flex-provisioner-default", "namespace": NAMESPACE,
            "annotations": { own("version"): format!("{} leader-1", env!("CARGO_PKG_VERSION")) },
        },
        "spec": { "holderIdentity": "leader-1", "leaseDurationSeconds": 15, "renewTime": at(-2).replace('Z', ".000000Z") },
    });
    let configs = [
        config("gold", json!({ "volume-sources": "nfs", "max-in-flight": "2", "max-volumes": "5", "zone": "west" })),
        config("silver", json!({ "volume-sources": "nfs", "max-volumes": "0" })),
        config("broken", json!({ "timeout": "soon", "colour": "blue" })),
    ];
    let event = json!({
        "metadata": { "name": "e", "namespace": "team" }, "type": "Warning", "reason": "ProvisioningFailed", "count": 3,
        "message": "attempt 3: ExitCode: exit code 75: the array is busy; next attempt in 40s",
        "source": { "component": "flex-provisioner.io" }, "lastTimestamp": at(-20),
        "involvedObject": { "kind": "PersistentVolumeClaim", "namespace": "team", "name": "broken", "uid": "broken" },
    });
    let version = json!({ "major": "1", "minor": "36", "gitVersion": "v1.36.0", "gitCommit": "", "gitTreeState": "",
        "buildDate": "", "goVersion": "", "compiler": "", "platform": "" });
    let empty = || list(&[]);
    let one = |name: &str| claims().iter().find(|claim| claim["metadata"]["name"] == name).unwrap().to_string();
    Server::start(vec![
        (REVIEWS, 201, review(true)),
        ("/version", 200, version.to_string()),
        ("/apis/apps/v1/deployments?", 200, list(&[deployment(NAMESPACE, &["--instance", "default"])])),
        (
            "/apis/coordination.k8s.io/v1/namespaces/flex-provisioner/leases/flex-provisioner-default",
            200,
            lease.to_string(),
        ),
        ("/apis/coordination.k8s.io/", 200, empty()),
        ("/api/v1/namespaces/flex-provisioner/configmaps", 200, list(&configs)),
        ("/api/v1/configmaps", 200, list(&configs)),
        ("/api/v1/namespaces/team/persistentvolumeclaims/data", 200, one("data")),
        ("/api/v1/namespaces/team/persistentvolumeclaims/broken", 200, one("broken")),
        ("/api/v1/namespaces/team/persistentvolumeclaims/waits", 200, one("waits")),
        ("/api/v1/namespaces/team/persistentvolumeclaims/new", 200, one("new")),
        ("/api/v1/namespaces/team/persistentvolumeclaims/lost", 200, one("lost")),
        ("/api/v1/persistentvolumeclaims", 200, list(&claims())),
        ("/api/v1/persistentvolumes?", 200, list(&[volume()])),
        ("/api/v1/namespaces/team/events?&fieldSelector=involvedObject.uid%3Dbroken", 200, list(&[event])),
        ("/api/v1/namespaces/team/events", 200, empty()),
        ("/api/v1/persistentvolumes/", 404, super::fake::status(404, "NotFound")),
        ("/api/v1/", 200, empty()),
        ("/apis/", 200, empty()),
    ])
}

/// Returns the bundle of the scene, recorded at [`NOW`].
fn bundle() -> &'static str {
    static BUNDLE: OnceLock<(tempfile::TempDir, String)> = OnceLock::new();
    &BUNDLE
        .get_or_init(|| {
            let folder = tempfile::tempdir().unwrap();
            let (recorded, fixed) = (folder.path().join("recorded.tar.gz"), folder.path().join("bundle.tar.gz"));
            let answer = cluster().run(&["support-bundle", "-o", &recorded.display().to_string()]);
            assert_eq!((answer.err.as_str(), answer.code), ("", Some(0)), "{}", answer.out);
            let mut from = tar::Archive::new(GzDecoder::new(std::fs::File::open(&recorded).unwrap()));
            let mut to = tar::Builder::new(GzEncoder::new(std::fs::File::create(&fixed).unwrap(), Compression::fast()));
            for entry in from.entries().unwrap() {
                let entry = entry.unwrap();
                let path: PathBuf = entry.path().unwrap().into_owned();
                let mut text = std::io::read_to_string(entry).unwrap();
                if path.ends_with("about.json") {
                    let mut about: Value = serde_json::from_str(&text).unwrap();
                    about["recorded"] = json!(at(0));
                    text = about.to_string();
                }
                let mut header = tar::Header::new_gnu();
                header.set_size(text.len() as u64);
                header.set_mode(0o600);
                to.append_data(&mut header, path, text.as_bytes()).unwrap();
            }
            to.into_inner().unwrap().finish().unwrap();
            (folder, fixed.display().to_string())
        })
        .1
}

/// Returns all that a command prints about the scene, and its exit code.
fn printed(args: &[&str]) -> String {
    text(args, run(&[args, &["--bundle", bundle()]].concat()))
}

/// Replaces the age of the Lease, which `check` takes from the clock of this machine.
fn without_age_of_lease(out: &str) -> String {
    let Some((before, after)) = out.split_once("renewed the Lease for ") else { return out.to_owned() };
    format!("{before}renewed the Lease for …{}", after.trim_start_matches(|c: char| c.is_ascii_digit()))
}

/// Writes a command and its answer.
fn text(args: &[&str], Answer { code, out, err }: Answer) -> String {
    let (out, err) = (without_age_of_lease(&out), err.replace(bundle(), "BUNDLE"));
    format!("$ flex-provisioner {}\n{out}{err}exit code {}\n", args.join(" "), code.unwrap_or(-1))
}

#[test]
fn each_form_of_each_output_is_as_recorded() {
    insta::with_settings!({ snapshot_path => "golden", prepend_module_to_snapshot => false, omit_expression => true }, {
        for args in [
            &["status"][..],
            &["status", "-o", "wide"],
            &["status", "-o", "json"],
            &["status", "-o", "yaml"],
            &["status", "-o", "name"],
            &["status", "gold"],
            &["status", "absent"],
            &["explain", "gold"],
            &["explain", "gold", "-o", "json"],
            &["explain", "gold", "-o", "yaml"],
            &["explain", "absent"],
            &["trace", "team/broken"],
            &["trace", "team/waits"],
            &["trace", "team/absent"],
            &["doctor"],
            &["doctor", "-o", "json"],
            &["doctor", "-o", "yaml"],
            &["check"],
            &["check", "-o", "json"],
            &["version"],
            &["version", "-o", "json"],
            &["version", "-o", "yaml"],
            &["replay"],
            &["replay", "-o", "json"],
            &["retry", "team/broken"],
            &["retry", "--class", "gold", "--dry-run"],
            &["logs", "team/broken"],
            &["logs", "team/waits"],
            &["uninstall"],
            &["vouch", "--all"],
            &["log-level", "debug"],
            &["ui", "--no-browser"],
        ] {
            insta::assert_snapshot!(args.join("_").replace(['/', ' '], "-").replace("_-", "_"), printed(args));
        }
    });
}

#[test]
fn colours_are_as_the_flag_says() {
    for (color, expected) in [("auto", false), ("never", false), ("always", true)] {
        let printed = printed(&["status", "--color", color]);
        assert_eq!(printed.contains("\u{1b}[31m"), expected, "{color}: {printed}");
    }
}

#[test]
fn a_namespace_limits_what_is_shown() {
    let names = |args: &[&str]| printed(&[&["status", "-o", "name"], args].concat());
    for args in [&["-n", "team"][..], &["--namespace", "team"], &["-A"], &["--all-namespaces"], &[]] {
        assert!(names(args).contains("persistentvolumeclaim/team/broken"), "{args:?}");
    }
    assert!(!names(&["-n", "other"]).contains("team/"));
    let both = printed(&["status", "-n", "team", "-A"]);
    assert!(both.contains("cannot be used with") && both.contains("exit code 2"), "{both}");
    let found = printed(&["doctor", "-n", "team", "--confirm-after", "1s"]);
    assert!(found.contains("\n0 found: ") && found.contains("exit code 0"), "{found}");
    let one = printed(&["retry", "broken", "-A"]);
    assert!(one.contains("broken is one claim: name its namespace (-n)"), "{one}");
    let by_kind = printed(&["trace", "-n", "team", "pvc/broken"]);
    assert!(by_kind.contains("Claim team/broken of class gold"), "{by_kind}");
    let all = printed(&["explain", "gold", "--all"]);
    assert!(all.contains("backoff") && !all.contains("--all prints"), "{all}");
}

/// A bundle has the traces of claims that are not bound. These documents have no ages, so that the cluster may be read.
#[test]
fn the_trace_of_a_bound_claim_has_its_failed_attempts() {
    let server = cluster();
    insta::with_settings!({ snapshot_path => "golden", prepend_module_to_snapshot => false, omit_expression => true }, {
        for form in ["json", "yaml"] {
            let args = ["trace", "team/data", "-o", form];
            insta::assert_snapshot!(format!("trace_team-data_o_{form}"), text(&args, server.run(&args)));
        }
    });
}

#[test]
fn the_help_of_each_command_says_its_exit_codes() {
    let orchestrator = flex_provisioner::orchestrate::command();
    for command in flex_tool::command().get_subcommands().chain([&orchestrator]) {
        let help = command.get_long_about().or(command.get_about()).map(ToString::to_string).unwrap_or_default();
        let says = help.contains("Exits 0") && (help.contains('1') || !help.contains("if"));
        assert!(says, "{}: {help}", command.get_name());
    }
}
