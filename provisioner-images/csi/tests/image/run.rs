//! Runs the image's program as the flex provisioner would, as its own user.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

use scripted_csi::{Driver, Options};
use serde_json::Value;

use crate::api::Api;

/// Two volumes.
pub const ONE: &str = "c0ffee00-0000-4000-8000-000000000001";
/// The second of two volumes.
pub const TWO: &str = "c0ffee00-0000-4000-8000-000000000002";
/// The size of all claims here, in bytes.
pub const SIZE: i64 = 1 << 30;

/// How a run ended.
#[derive(Debug)]
#[allow(dead_code, reason = "what went wrong is printed whole")]
pub struct Ended {
    /// The exit code.
    pub code: i32,
    /// Standard output.
    pub out: String,
    /// Standard error: the calls, and the last words again.
    pub log: String,
    /// The termination message.
    pub last_words: String,
}

impl Ended {
    /// It went well.
    #[track_caller]
    pub fn well(self) -> Self {
        assert_eq!(self.code, 0, "{self:?}");
        self
    }

    /// It failed with a code, and said something.
    #[track_caller]
    pub fn failed(self, code: i32, says: &str) -> Self {
        assert_eq!(self.code, code, "{self:?}");
        assert!(self.last_words.contains(says), "`{says}` in {self:?}");
        self
    }
}

/// A driver, a Kubernetes, and a place for the program's files that its own user can use.
pub struct Stage {
    /// The driver.
    pub driver: Driver,
    /// Kubernetes.
    pub api: Api,
    directory: tempfile::TempDir,
}

impl Stage {
    /// With a driver of that kind.
    pub fn new(options: Options) -> Self {
        let directory = tempfile::Builder::new().permissions(fs::Permissions::from_mode(0o755)).tempdir().unwrap();
        let driver = Driver::start(options, &directory.path().join("csi.sock"));
        let api = Api::start();
        fs::write(directory.path().join("kubeconfig"), api.kubeconfig()).unwrap();
        // Copied by another process: a file that this one holds open for writing, even in a child that a parallel test forks
        // just now, could not be run.
        let program = directory.path().join("csi-provisioner");
        let copied = Command::new("cp").arg(env!("CARGO_BIN_EXE_csi-provisioner")).arg(&program).status().unwrap();
        assert!(copied.success());
        for (name, mode) in [("csi-provisioner", 0o755), ("kubeconfig", 0o644)] {
            fs::set_permissions(directory.path().join(name), fs::Permissions::from_mode(mode)).unwrap();
        }
        Stage { driver, api, directory }
    }

    /// A file there.
    pub fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    /// A run for a claim.
    pub fn run(&self, id: &str) -> Run<'_> {
        Run { stage: self, env: BTreeMap::new(), parameters: BTreeMap::new(), unset: Vec::new() }
            .with("CLAIM_UUID", id)
            .with("PV_NAME", &format!("pvc-{id}"))
            .with("PVC_UID", id)
            .with("PVC_NAMESPACE", "team")
            .with("PVC_NAME", "data")
            .with("STORAGE_CLASS", "csi")
            .with("SIZE_BYTES", &SIZE.to_string())
            .with("ACCESS_MODES", "ReadWriteOnce")
            .with("VOLUME_MODE", "Filesystem")
            .with("RECLAIM_POLICY", "Delete")
            .with("INSTANCE", "default")
            .with("PROVISIONER", "flex-provisioner.io")
            .with("POD_NAMESPACE", "flex-provisioner")
            .with("KUBECONFIG", self.path("kubeconfig").to_str().unwrap())
            .parameter("csi-endpoint", &format!("unix://{}", self.path("csi.sock").display()))
            .parameter("csi-connect-timeout", "5s")
    }

    /// The driver's volume of an id.
    #[track_caller]
    pub fn made(&self, id: &str) -> scripted_csi::Made {
        let volumes = self.driver.volumes();
        volumes.get(&format!("pvc-{id}")).unwrap_or_else(|| panic!("no volume of {id}: {volumes:?}")).clone()
    }

    /// The PersistentVolume of an id.
    #[track_caller]
    pub fn pv(&self, id: &str) -> Value {
        self.api.volume(id).unwrap_or_else(|| panic!("no PersistentVolume of {id}"))
    }
}

/// The environment of a run.
#[derive(Clone)]
pub struct Run<'a> {
    stage: &'a Stage,
    env: BTreeMap<String, String>,
    parameters: BTreeMap<String, String>,
    unset: Vec<&'static str>,
}

impl Run<'_> {
    /// The same with another variable.
    pub fn with(mut self, name: &str, value: &str) -> Self {
        self.env.insert(name.to_owned(), value.to_owned());
        self
    }

    /// The same with another parameter.
    pub fn parameter(mut self, name: &str, value: &str) -> Self {
        self.parameters.insert(name.to_owned(), value.to_owned());
        self
    }

    /// The same for no volume.
    pub fn for_no_volume(mut self) -> Self {
        self.unset = vec!["CLAIM_UUID", "PV_NAME", "PVC_UID", "PVC_NAME", "PVC_NAMESPACE", "SIZE_BYTES"];
        self
    }

    /// A run of an operation about the volume as its PersistentVolume says.
    pub fn of_volume(self) -> Self {
        let pv = self.stage.pv(&self.env["CLAIM_UUID"].clone());
        self.with("VOLUME_SOURCE", &serde_json::json!({ "csi": pv["spec"]["csi"] }).to_string())
    }

    /// A whole run of an operation.
    pub fn run(&self, operation: &str) -> Ended {
        let words = tempfile::NamedTempFile::new_in(self.stage.directory.path()).unwrap();
        fs::set_permissions(words.path(), fs::Permissions::from_mode(0o666)).unwrap();
        let output = self.command(operation).env("FLEX_TERMINATION_LOG", words.path()).output().unwrap();
        Ended {
            code: output.status.code().expect("ended by a signal"),
            out: String::from_utf8(output.stdout).unwrap(),
            log: String::from_utf8(output.stderr).unwrap(),
            last_words: fs::read_to_string(words.path()).unwrap(),
        }
    }

    /// A provision run.
    pub fn provision(&self) -> Ended {
        self.run("provision")
    }

    /// A run that goes on by itself.
    pub fn begin(&self, operation: &str) -> Child {
        self.command(operation).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap()
    }

    fn command(&self, operation: &str) -> Command {
        let names: Vec<&str> = self.parameters.keys().map(String::as_str).collect();
        let mut command = Command::new(self.stage.path("csi-provisioner"));
        command.env_clear().envs(&self.env).env("OPERATION", operation).env("PARAMETER_NAMES", names.join(","));
        command.envs(self.parameters.iter().map(|(name, value)| (contract::parameter::env_name(name), value)));
        self.unset.iter().for_each(|name| {
            command.env_remove(name);
        });
        command.uid(65532).gid(65532).current_dir("/").stdin(Stdio::null());
        command
    }
}
