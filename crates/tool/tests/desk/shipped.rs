//! The shipped images and configs keep the contract. The page `docs/reference/conformance-of-images.md` has the results: each
//! test checks its own lines of the table there.
//!
//! `UPDATE_PAGES=1 cargo test --test desk shipped` rewrites the lines, and with `-- --ignored` those whose proof takes a minute.

mod fronted;

use std::fs;
use std::path::Path;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use conformance_report::{Outcomes, Row};
use ganesha::{Ganesha, Options};
use orchestrator::csi_driver::RealDriver;
use orchestrator::deployed::root;

use crate::{Answer, Files, built, call};

/// This file, as the page names it.
const SOURCE: &str = "crates/tool/tests/desk/shipped.rs";
/// Only one Cinder works at a time: its processes need both processors of a small machine.
static CINDER: Mutex<()> = Mutex::new(());
/// The arguments of a class whose directories have names by a pattern.
const NAMED: [&str; 4] = ["--set", "storage-mounts=", "--set", "path-pattern=${pvc.namespace}/${pvc.name}/${pv.name}"];

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
    outcomes(config, file, arguments).0.row(config, change)
}

/// Runs all cases on a file. Returns also the beginning of the ids of all volumes; empty for storage of the desk.
fn outcomes(config: &str, file: &str, arguments: &[&str]) -> (Outcomes, String) {
    let answer: Answer = call(&[&["conformance", "-o", "json", "--config", file], arguments].concat());
    let outcomes = Outcomes::read(&answer.out).unwrap_or_else(|why| panic!("{config}: {why}: {answer:?}"));
    assert_eq!(answer.code, Some(0), "{config}: {}", answer.err);
    let ids = answer.err.split("begin with ").nth(1).and_then(|rest| rest.split_whitespace().next());
    (outcomes, ids.unwrap_or_default().to_owned())
}

/// Writes a claim for a block volume of a class, and returns its path. The volume is small: a case makes eight of them.
fn block_claim(files: &Files, class: &str) -> String {
    let spec = format!(
        "{{storageClassName: {class}, volumeMode: Block, accessModes: [ReadWriteOnce], resources: {{requests: {{storage: 16Mi}}}}}}"
    );
    let kind = "apiVersion: v1, kind: PersistentVolumeClaim, metadata: {name: data, namespace: team}";
    files.write("claim.yaml", &format!("{{{kind}, spec: {spec}}}"))
}

fn check(rows: &[Row]) {
    conformance_report::check(SOURCE, rows, "cargo test --test desk shipped");
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
    let (outcomes, ids) = outcomes("hostpath-block.yaml", "configmaps/hostpath-block.yaml", &arguments);
    let attached = std::process::Command::new("losetup").args(["-n", "-O", "BACK-FILE"]).output().unwrap();
    let attached = String::from_utf8_lossy(&attached.stdout).into_owned();
    assert!(!ids.is_empty() && !attached.contains(&ids), "devices are left: {ids}: {attached}");
    check(&[outcomes.row("hostpath-block.yaml", " with `--on-node /dev=/dev` and a claim for a block volume")]);
}

/// Starts the CSI driver of the tests in a directory, and waits until it serves.
fn csi_driver(folder: &str) -> RealDriver {
    fs::create_dir(folder).unwrap();
    let driver = RealDriver::start(Path::new(folder));
    let began = Instant::now();
    while !Path::new(folder).join("csi.sock").exists() {
        assert!(began.elapsed() < Duration::from_secs(120), "the driver does not serve");
        std::thread::sleep(Duration::from_millis(20));
    }
    driver
}

/// Checks that the driver has nothing.
fn is_empty(driver: &RealDriver) {
    let listed = driver.list();
    for kind in ["volumes", "snapshots", "leftovers"] {
        assert_eq!(listed[kind].as_array().map(Vec::len), Some(0), "{listed}");
    }
}

#[test]
fn the_shipped_csi_passes_and_the_page_says_so() {
    let files = Files::new();
    let folder = files.path("driver");
    let driver = csi_driver(&folder);
    let name = "csi.test.flex-provisioner.io";
    let (own, sources) = (format!("csi-driver={name}"), format!("volume-sources=csi:{name}"));
    let on_node = format!("/var/lib/kubelet/plugins/csi-hostpath={folder}");
    let csi = built("csi-provisioner", "csi-provisioner");
    let csi = csi.to_str().expect("UTF-8");
    let class = |name: &str, iops: u32| {
        let kind = "apiVersion: storage.k8s.io/v1beta1, kind: VolumeAttributesClass";
        format!(
            "{{{kind}, metadata: {{name: {name}}}, driverName: csi.test.flex-provisioner.io, parameters: {{iops: \"{iops}\"}}}}\n"
        )
    };
    let classes = files.write("classes.yaml", &format!("{}---\n{}", class("silver", 100), class("gold", 200)));
    let classes = ["--claim", classes.as_str()];
    let own = ["--set", &own, "--set", &sources, "--on-node", &on_node, "--external-storage", csi];
    let arguments = [&classes[..], &own].concat();
    check(&[changed_row("csi.yaml", " with `--on-node` and `--external-storage`", &arguments)]);
    is_empty(&driver);
}

/// Writes a shipped config with values of the test in place of those of an example, and returns its path.
fn with_values(files: &Files, config: &str, replace: &[(&str, &str)]) -> String {
    let shipped = root().join("configmaps").join(config);
    let mut text = fs::read_to_string(shipped).unwrap();
    for (example, own) in replace {
        assert!(text.contains(example), "{config} has no {example}");
        text = text.replace(example, own);
    }
    files.write(config, &text)
}

/// Runs all cases on a shipped config of the image `cinder`, with values of the test in place of those of an example.
fn cinder_row(config: &str, cinder: &openstack::Cinder, project: &str, replace: &[(&str, &str)]) -> Row {
    let files = Files::new();
    let file = with_values(&files, config, replace);
    let program = built("cinder-provisioner", "cinder-provisioner");
    let program = program.to_str().expect("UTF-8");
    // The kubelet makes no file system on such a volume larger, so the image expands only block volumes.
    let claim = block_claim(&files, config.trim_end_matches(".yaml"));
    let change = " with `--external-storage` and a claim for a block volume";
    let row = row_of_file(config, &file, change, &["--claim", &claim, "--external-storage", program]);
    let project = cinder.project(project);
    assert_eq!((project.volumes().len(), project.snapshots().len()), (0, 0));
    row
}

#[test]
#[ignore = "takes a minute: a stage of its own runs it"]
fn the_shipped_cinder_passes_and_the_page_says_so() {
    let _one = CINDER.lock().unwrap_or_else(PoisonError::into_inner);
    let cinder = openstack::Cinder::start(openstack::Options::default());
    let own = format!("http://127.0.0.1:{}/v3", cinder.port());
    let replace = [("http://cinder.example:8776/v3", own.as_str())];
    check(&[cinder_row("cinder-standalone.yaml", &cinder, "kubernetes", &replace)]);
}

#[test]
#[ignore = "takes a minute: a stage of its own runs it"]
fn the_shipped_cinder_with_keystone_passes_and_the_page_says_so() {
    let _one = CINDER.lock().unwrap_or_else(PoisonError::into_inner);
    let keystone = openstack::Keystone::start();
    let options = openstack::Options { keystone: Some(&keystone), port: Some(keystone.cinder_port()) };
    let cinder = openstack::Cinder::start(options);
    let password = format!("password={}", openstack::Keystone::PASSWORD);
    let replace = [
        ("https://keystone.example:5000/v3", &*keystone.url()),
        ("username=kubernetes", "username=demo"),
        ("password=CHANGE-ME", &password),
        ("tenant-name=kubernetes", "tenant-name=demo"),
    ];
    check(&[cinder_row("cinder.yaml", &cinder, "demo", &replace)]);
}
