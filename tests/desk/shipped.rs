//! The shipped images and configs keep the contract. The page `docs/reference/conformance-of-images.md` has the results: each
//! test checks its own lines of the table there.
//!
//! `UPDATE_PAGES=1 cargo test --test desk shipped` rewrites the lines, and with `-- --ignored` those whose proof takes a minute.

use std::fs;
use std::path::Path;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use ganesha::{Ganesha, Options};
use orchestrator::csi_driver::RealDriver;
use serde_json::Value;

use crate::{Answer, Files, built, call};

/// The page with the results.
const PAGE: &str = "docs/reference/conformance-of-images.md";
/// The line before which new rows go.
const END: &str = "\n<!-- printed from tests/desk/shipped.rs: end -->\n";
/// Only one test rewrites the page at a time.
static REWRITING: Mutex<()> = Mutex::new(());
/// The arguments of a class whose directories have names by a pattern.
const NAMED: [&str; 4] = ["--set", "storage-mounts=", "--set", "path-pattern=${pvc.namespace}/${pvc.name}/${pv.name}"];

/// A line of the table: the cell with the config, and the others.
struct Row {
    config: String,
    outcomes: String,
    /// The beginning of the ids of all volumes; empty for storage of the desk.
    call: String,
}

/// Runs all cases on a shipped config.
fn row(config: &str, arguments: &[&str]) -> Row {
    changed_row(config, "", arguments)
}

/// Runs all cases on a shipped config with a change, which the table names.
fn changed_row(config: &str, change: &str, arguments: &[&str]) -> Row {
    row_of_file(config, &format!("configmaps/{config}"), change, arguments)
}

/// Runs all cases on a file in place of a shipped config.
fn row_of_file(config: &str, file: &str, change: &str, arguments: &[&str]) -> Row {
    let answer: Answer = call(&[&["conformance", "-o", "json", "--config", file], arguments].concat());
    let document: Value = serde_json::from_str(&answer.out).unwrap_or_else(|error| panic!("{error}: {answer:?}"));
    let cases = document["cases"].as_array().expect("a list of cases");
    let of = |outcome: &'static str| cases.iter().filter(move |case| case["outcome"] == outcome);
    let failed: Vec<String> = of("failed").map(|case| format!("{}: {}", case["id"], case["why"])).collect();
    assert!(failed.is_empty() && answer.code == Some(0), "{config}: {}{}", failed.join("\n"), answer.err);
    // The words about a capability are the same for all its cases.
    let shown = |case: &Value| {
        let (id, why) = (case["id"].as_str().unwrap_or_default(), case["why"].as_str().unwrap_or_default());
        match why.contains("capability") {
            true => format!("`{id}`"),
            false => format!("`{id}` ({why})"),
        }
    };
    let list = |outcome| {
        let shown: Vec<String> = of(outcome).map(shown).collect();
        if shown.is_empty() { String::new() } else { format!(" {}", shown.join(", ")) }
    };
    let outcomes = format!(" {} |{} |{} |", of("passed").count(), list("skipped"), list("not-possible"));
    let call = answer.err.split("begin with ").nth(1).and_then(|rest| rest.split_whitespace().next());
    let call = call.unwrap_or_default().to_owned();
    Row { config: format!("| [{config}](../../configmaps/{config}){change} |"), outcomes, call }
}

/// Writes a claim for a block volume of a class, and returns its path. The volume is small: a case makes eight of them.
fn block_claim(files: &Files, class: &str) -> String {
    let spec = format!(
        "{{storageClassName: {class}, volumeMode: Block, accessModes: [ReadWriteOnce], resources: {{requests: {{storage: 16Mi}}}}}}"
    );
    let kind = "apiVersion: v1, kind: PersistentVolumeClaim, metadata: {name: data, namespace: team}";
    files.write("claim.yaml", &format!("{{{kind}, spec: {spec}}}"))
}

/// Checks that the page has the rows, or writes them into it.
fn check(rows: &[Row]) {
    let _one = REWRITING.lock().unwrap_or_else(PoisonError::into_inner);
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(PAGE);
    let text = fs::read_to_string(&path).unwrap();
    let renewed = rows.iter().fold(text.clone(), |text, row| with_row(&text, row));
    if std::env::var_os("UPDATE_PAGES").is_some() {
        fs::write(&path, &renewed).unwrap();
    } else {
        assert_eq!(text, renewed, "UPDATE_PAGES=1 cargo test --test desk shipped");
    }
}

/// Puts a row into the table of a page, in place of the one of the same config.
fn with_row(text: &str, Row { config, outcomes, .. }: &Row) -> String {
    let line = format!("{config}{outcomes}");
    let old = text.lines().find(|line| line.starts_with(config.as_str()));
    match old {
        Some(old) => text.replacen(old, &line, 1),
        None => text.replacen(END, &format!("{line}\n{END}"), 1),
    }
}

#[test]
fn a_row_takes_the_place_of_the_one_of_its_config_or_is_added() {
    let row = |config: &str| Row { config: format!("| {config} |"), outcomes: " 3 |".into(), call: String::new() };
    let text = format!("| a | 1 |\n| a with b | 2 |\n{END}");
    assert_eq!(with_row(&text, &row("a")), format!("| a | 3 |\n| a with b | 2 |\n{END}"));
    assert_eq!(with_row(&text, &row("a with b")), format!("| a | 1 |\n| a with b | 3 |\n{END}"));
    assert_eq!(with_row(&text, &row("c")), format!("| a | 1 |\n| a with b | 2 |\n| c | 3 |\n{END}"));
}

#[test]
fn the_shipped_directories_pass_and_the_page_says_so() {
    let script = "provisioner-images/hostpath/provision.sh";
    check(&[
        row("script.yaml", &[]),
        row("hostpath.yaml", &[script]),
        changed_row("hostpath.yaml", " with `path-pattern`", &[&NAMED[..], &[script]].concat()),
        row("hostpath-pure.yaml", &[script]),
    ]);
}

#[test]
fn the_shipped_nfs_passes_and_the_page_says_so() {
    let server = Ganesha::start(Options::default());
    let (port, nfs) = (format!("port={}", server.port()), built("nfs-provisioner", "nfs-provisioner"));
    let of_server = ["--set", "server=127.0.0.1", "--set", &port, "--set", "on-delete=delete"];
    let export = format!("export={}", Ganesha::EXPORT);
    let files = format!("--external-storage={}", server.directory().display());
    let nfs = nfs.to_str().expect("UTF-8");
    let change = " with `--external-storage` and the directory of the server";
    check(&[changed_row("nfs.yaml", change, &[&of_server[..], &["--set", &export, &files, nfs]].concat())]);
}

#[test]
#[ignore = "takes a minute: a stage of its own runs it"]
fn the_shipped_block_devices_pass_and_the_page_says_so() {
    if !Path::new("/dev/loop-control").exists() {
        eprintln!("NOT RUN: this machine has no loop devices");
        return;
    }
    let files = Files::new();
    let claim = block_claim(&files, "hostpath-block");
    let arguments = ["--claim", &claim, "--on-node", "/dev=/dev", "provisioner-images/hostpath/provision.sh"];
    let row =
        changed_row("hostpath-block.yaml", " with `--on-node /dev=/dev` and a claim for a block volume", &arguments);
    let attached = std::process::Command::new("losetup").args(["-n", "-O", "BACK-FILE"]).output().unwrap();
    let attached = String::from_utf8_lossy(&attached.stdout).into_owned();
    assert!(!row.call.is_empty() && !attached.contains(&row.call), "devices are left: {}: {attached}", row.call);
    check(&[row]);
}

#[test]
fn the_shipped_csi_passes_and_the_page_says_so() {
    let files = Files::new();
    let folder = files.path("driver");
    fs::create_dir(&folder).unwrap();
    let driver = RealDriver::start(Path::new(&folder));
    let began = Instant::now();
    while !Path::new(&folder).join("csi.sock").exists() {
        assert!(began.elapsed() < Duration::from_secs(30), "the driver does not serve");
        std::thread::sleep(Duration::from_millis(20));
    }
    let name = "csi.test.flex-provisioner.io";
    let (own, sources) = (format!("csi-driver={name}"), format!("volume-sources=csi:{name}"));
    let on_node = format!("/var/lib/kubelet/plugins/csi-hostpath={folder}");
    let csi = built("csi-provisioner", "csi-provisioner");
    let csi = csi.to_str().expect("UTF-8");
    let arguments = ["--set", &own, "--set", &sources, "--on-node", &on_node, "--external-storage", csi];
    check(&[changed_row("csi.yaml", " with `--on-node` and `--external-storage`", &arguments)]);
    let listed = driver.list();
    for kind in ["volumes", "snapshots", "leftovers"] {
        assert_eq!(listed[kind].as_array().map(Vec::len), Some(0), "{listed}");
    }
}

#[test]
#[ignore = "takes a minute: a stage of its own runs it"]
fn the_shipped_cinder_passes_and_the_page_says_so() {
    let cinder = openstack::Cinder::start(openstack::Options::default());
    let shipped = fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("configmaps/cinder-standalone.yaml"));
    let shipped = shipped.unwrap();
    let endpoint = "http://cinder.example:8776/v3";
    assert!(shipped.contains(endpoint));
    let files = Files::new();
    let own = format!("http://127.0.0.1:{}/v3", cinder.port());
    let file = files.write("cinder-standalone.yaml", &shipped.replace(endpoint, &own));
    let program = built("cinder-provisioner", "cinder-provisioner");
    let program = program.to_str().expect("UTF-8");
    // The kubelet makes no file system on such a volume larger, so the image expands only block volumes.
    let claim = block_claim(&files, "cinder-standalone");
    let change = " with `--external-storage` and a claim for a block volume";
    let arguments = ["--claim", &claim, "--external-storage", program];
    check(&[row_of_file("cinder-standalone.yaml", &file, change, &arguments)]);
    let project = cinder.project("kubernetes");
    assert_eq!((project.volumes().len(), project.snapshots().len()), (0, 0));
}
