//! Tests of the script in `configmaps/script.yaml`, run by busybox as in the image `shell`, with the real `flex-pv`.

#[path = "flex_pv/api.rs"]
#[allow(dead_code)]
mod api;

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use api::{Api, Reply, path_text};

const ID: &str = "c0ffee00-0000-4000-8000-000000000001";
/// The directory that the config names.
const BASE: &str = "/var/lib/flex-script";

/// A node's directory, the script with that directory, and a PATH with busybox and flex-pv.
struct Node(tempfile::TempDir);

impl Node {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let (bin, base) = (folder.path().join("bin"), folder.path().join("base"));
        fs::create_dir(&bin).unwrap();
        fs::create_dir(&base).unwrap();
        let busybox = ["/bin/busybox", "/usr/bin/busybox"].into_iter().find(|path| Path::new(path).exists());
        let busybox = busybox.expect("busybox is missing: install busybox-static");
        for name in ["sh", "mkdir", "chmod"] {
            symlink(busybox, bin.join(name)).unwrap();
        }
        symlink(env!("CARGO_BIN_EXE_flex-pv"), bin.join("flex-pv")).unwrap();
        let config = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../configmaps/script.yaml");
        let config = fs::read_to_string(config).unwrap();
        let (_, script) = config.split_once("  script: |\n").expect("the config has a script");
        let script = script.lines().map(|line| format!("{}\n", line.strip_prefix("    ").unwrap_or(line)));
        let script = script.collect::<String>().replace(BASE, &path_text(base));
        fs::write(folder.path().join("script"), script).unwrap();
        Node(folder)
    }

    fn volume(&self) -> PathBuf {
        self.0.path().join("base").join(ID)
    }

    /// Runs the script as the pod of a run does, and returns the exit code.
    fn run(&self, operation: &str, kubeconfig: &str) -> i32 {
        let bin = self.0.path().join("bin");
        let status = Command::new(bin.join("sh"))
            .arg(self.0.path().join("script"))
            .env_clear()
            .env("PATH", bin)
            .env("FLEX_TERMINATION_LOG", self.0.path().join("log"))
            .env("KUBECONFIG", kubeconfig)
            .envs([("OPERATION", operation), ("CLAIM_UUID", ID), ("PV_NAME", "pvc-1"), ("POD_NODE", "node-1")])
            .envs([("STORAGE_CLASS", "script"), ("SIZE_BYTES", "1048576"), ("PVC_UID", ID)])
            .stdin(Stdio::null())
            .stderr(Stdio::null())
            .status();
        status.unwrap().code().unwrap()
    }
}

#[test]
fn each_run_of_the_example_can_be_repeated() {
    let (node, api) = (Node::new(), Api::start(vec![Reply::Echo, Reply::Echo]));
    // A run that died after its first step leaves a directory with other rights.
    fs::create_dir(node.volume()).unwrap();
    fs::set_permissions(node.volume(), fs::Permissions::from_mode(0o750)).unwrap();
    for _ in 0..2 {
        assert_eq!(node.run("provision", &api.kubeconfig()), 0);
        assert_eq!(fs::metadata(node.volume()).unwrap().permissions().mode() & 0o7777, 0o777);
        assert_eq!(api.posted()["spec"]["local"]["path"], path_text(node.volume()));
        fs::write(node.volume().join("kept"), "x").unwrap();
    }
    for _ in 0..2 {
        assert_eq!(node.run("delete", ""), 0);
        assert!(!node.volume().exists());
    }
}

#[test]
fn a_provision_run_fails_where_no_directory_can_be_made() {
    let (node, api) = (Node::new(), Api::start(Vec::new()));
    fs::write(node.volume(), "a file").unwrap();
    assert_ne!(node.run("provision", &api.kubeconfig()), 0);
    assert_eq!(api.asked(), [""; 0], "no volume was created");
}
