//! Runs the image's program with a scripted driver and a small Kubernetes.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use image_run::{Ended, for_no_volume, killed_when};
pub use image_run::{ONE, TWO};
use scripted_csi::{Driver, Options};
use serde_json::Value;

use crate::api::Api;

/// The size of all claims here, in bytes.
pub const SIZE: i64 = 1 << 30;

/// A driver, a Kubernetes, and a directory for the program's files.
pub struct Stage {
    /// The driver.
    pub driver: Driver,
    /// Kubernetes.
    pub api: Api,
    stage: image_run::Stage,
}

impl Stage {
    /// Makes a stage with this kind of driver.
    pub fn new(options: Options) -> Self {
        let stage = image_run::Stage::new(env!("CARGO_BIN_EXE_csi-provisioner"));
        let driver = Driver::start(options, &stage.path("csi.sock"));
        let api = Api::start();
        stage.write("kubeconfig", &api.kubeconfig(), 0o644);
        Stage { driver, api, stage }
    }

    /// Returns the path of a file there.
    pub fn path(&self, name: &str) -> PathBuf {
        self.stage.path(name)
    }

    /// Makes a run for a claim.
    pub fn run(&self, id: &str) -> Run<'_> {
        Run { stage: self, env: image_run::claim(id, "csi"), parameters: BTreeMap::new() }
            .with("KUBECONFIG", self.path("kubeconfig").to_str().unwrap())
            .parameter("csi-endpoint", &format!("unix://{}", self.path("csi.sock").display()))
            .parameter("csi-connect-timeout", "5s")
    }

    /// Makes a run for many claims, in place of a run for each.
    pub fn batch(&self, operation: &str, members: &[Run<'_>]) -> Batch<'_> {
        let own: Vec<_> = members.iter().map(|member| member.whole(operation)).collect();
        let (env, lines) = image_run::batch(&own);
        Batch { stage: self, env, lines }
    }

    /// Checks that each volume of the driver has a PersistentVolume, and each of those a volume.
    #[track_caller]
    pub fn nothing_is_orphaned(&self) {
        let volumes: Vec<String> = self.driver.volumes().into_keys().collect();
        assert_eq!(volumes, self.api.volumes());
    }

    /// Returns the driver's volume of an id.
    #[track_caller]
    pub fn made(&self, id: &str) -> scripted_csi::Made {
        let volumes = self.driver.volumes();
        volumes.get(&format!("pvc-{id}")).unwrap_or_else(|| panic!("no volume of {id}: {volumes:?}")).clone()
    }

    /// Returns the PersistentVolume of an id.
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
}

impl Run<'_> {
    /// Sets another variable.
    pub fn with(mut self, name: &str, value: &str) -> Self {
        self.env.insert(name.to_owned(), value.to_owned());
        self
    }

    /// Sets another parameter.
    pub fn parameter(mut self, name: &str, value: &str) -> Self {
        self.parameters.insert(name.to_owned(), value.to_owned());
        self
    }

    /// Removes the variables of the volume.
    pub fn for_no_volume(mut self) -> Self {
        for_no_volume(&mut self.env);
        self
    }

    /// Adds the variables of the volume from its PersistentVolume.
    pub fn of_volume(self) -> Self {
        let pv = self.stage.pv(&self.env["CLAIM_UUID"].clone());
        self.with("VOLUME_SOURCE", &serde_json::json!({ "csi": pv["spec"]["csi"] }).to_string())
    }

    /// Runs an operation to its end.
    pub fn run(&self, operation: &str) -> Ended {
        self.stage.stage.end(&mut self.command(operation))
    }

    /// Runs a provision run.
    pub fn provision(&self) -> Ended {
        self.run("provision")
    }

    /// Starts a run without waiting for its end.
    pub fn begin(&self, operation: &str) -> Child {
        self.command(operation).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap()
    }

    /// Returns the termination message of the stage's last run.
    pub fn termination_message(&self) -> String {
        self.stage.stage.termination_message()
    }

    fn command(&self, operation: &str) -> Command {
        self.stage.stage.command(operation, &self.whole(operation))
    }

    fn whole(&self, operation: &str) -> BTreeMap<String, String> {
        let names: Vec<&str> = self.parameters.keys().map(String::as_str).collect();
        let mut env = self.env.clone();
        let parameters =
            self.parameters.iter().map(|(name, value)| (flex_contract::parameter::env_name(name), value.clone()));
        env.extend(parameters);
        env.insert("PARAMETER_NAMES".to_owned(), names.join(","));
        env.insert("OPERATION".to_owned(), operation.to_owned());
        env
    }
}

/// The words of a snapshot run.
pub trait HandedBack {
    /// Returns the handle that the run handed back.
    fn handle(&self) -> String;
}

impl HandedBack for Ended {
    #[track_caller]
    fn handle(&self) -> String {
        let handle = flex_contract::snapshot_handle::read(&self.termination_message);
        handle.unwrap_or_else(|| panic!("no handle: {self:?}"))
    }
}

/// A run for many claims.
pub struct Batch<'a> {
    stage: &'a Stage,
    env: BTreeMap<String, String>,
    /// The lines of its list.
    pub lines: Vec<String>,
}

impl Batch<'_> {
    /// Runs the batch to its end.
    pub fn run(&self) -> Ended {
        self.stage.stage.end(&mut self.command())
    }

    /// Starts the batch without waiting for its end.
    pub fn begin(&self) -> Child {
        self.command().stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap()
    }

    /// Returns the termination message of the stage's last run.
    pub fn termination_message(&self) -> String {
        self.stage.stage.termination_message()
    }

    fn command(&self) -> Command {
        self.stage.stage.batch(&self.env, &self.lines)
    }
}

/// Begins a run and kills it when the driver has finished the call of this number. Returns false if the run ended
/// before.
pub fn killed_at(driver: &Driver, begin: impl FnOnce() -> Child, number: usize) -> bool {
    driver.hold_answer(Some(number));
    let killed = killed_when(begin(), || driver.holds_answer(Duration::from_millis(20)).then_some(()));
    driver.hold_answer(None);
    killed
}
