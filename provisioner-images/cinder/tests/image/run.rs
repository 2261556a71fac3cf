//! Runs the image's program with `--dry-run` in place of a cluster.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, OnceLock};

use flex_contract::request::is_reserved;
use image_run::{Ended, Stage};
pub use image_run::{ONE, TWO};
use openstack::{Cinder, Options, Project};
use serde_json::Value;

/// Returns the Cinder without Keystone that all tests share.
pub fn cinder() -> &'static Cinder {
    static CINDER: OnceLock<Cinder> = OnceLock::new();
    CINDER.get_or_init(|| Cinder::start(Options::default()))
}

/// The printed objects of a successful run.
pub trait Printed {
    /// Returns the spec of the PersistentVolume, which is printed last.
    fn spec(&self) -> Value;
    /// Returns the Secret.
    fn secret(&self) -> Value;
}

impl Printed for Ended {
    #[track_caller]
    fn spec(&self) -> Value {
        assert_eq!(self.code, 0, "{self:?}");
        let volume = self.out.rsplit("---\n").next().unwrap();
        let volume: String = volume.lines().filter(|line| !line.starts_with('#')).collect::<Vec<_>>().join("\n");
        let volume: k8s_openapi::api::core::v1::PersistentVolume = serde_saphyr::from_str(&volume).unwrap();
        serde_json::to_value(volume.spec.unwrap()).unwrap()
    }

    #[track_caller]
    fn secret(&self) -> Value {
        let (secret, _) = self.out.split_once("---\n").unwrap_or_else(|| panic!("no Secret: {self:?}"));
        let secret: k8s_openapi::api::core::v1::Secret = serde_saphyr::from_str(secret).unwrap();
        serde_json::to_value(secret).unwrap()
    }
}

/// The environment of a run, and the program.
#[derive(Clone)]
pub struct Run(pub BTreeMap<String, String>, Arc<Stage>);

impl Run {
    /// Makes a run for a volume of a gibibyte in a project of the Cinder without Keystone.
    pub fn new(project: &Project<'_>, id: &str) -> Self {
        Self::at(cinder().port(), &project.id, id)
    }

    /// Makes the same run, for a Cinder at a port.
    pub fn at(port: u16, project: &str, id: &str) -> Self {
        Self::without_cloud(id)
            .with("OS_CINDER_ENDPOINT", &format!("http://127.0.0.1:{port}/v2"))
            .with("OS_USERNAME", "admin")
            .with("OS_TENANT_NAME", project)
    }

    /// Makes the same run, without the address of a Cinder.
    pub fn without_cloud(id: &str) -> Self {
        let stage = Stage::new(env!("CARGO_BIN_EXE_cinder-provisioner"));
        let secrets = stage.path("secrets").display().to_string();
        Self(image_run::claim(id, "cinder"), Arc::new(stage))
            .with("FLEX_SECRETS_DIRECTORY", &secrets)
            .with("TYPE", "iscsi")
    }

    /// Sets another variable.
    pub fn with(mut self, name: &str, value: &str) -> Self {
        self.0.insert(name.to_owned(), value.to_owned());
        self
    }

    /// Writes a file of a Secret.
    pub fn secret_file(&self, name: &str, text: &str) -> PathBuf {
        self.1.write(&format!("secrets/{name}"), text, 0o644)
    }

    /// Runs an operation.
    pub fn run(&self, operation: &str) -> Ended {
        self.1.end(&mut self.command(operation))
    }

    /// Runs a provision run.
    pub fn provision(&self) -> Ended {
        self.run("provision")
    }

    /// Runs a delete run for a volume without a PersistentVolume.
    pub fn delete(&self) -> Ended {
        self.run("delete")
    }

    /// Runs an operation for many volumes, in place of a run for each.
    pub fn batch(operation: &str, members: &[Run]) -> Ended {
        let own: Vec<_> = members.iter().map(|member| member.clone().with("OPERATION", operation).0).collect();
        let (env, lines) = image_run::batch(&own);
        let stage = &members[0].1;
        stage.end(stage.batch(&env, &lines).arg("--dry-run"))
    }

    /// Runs an operation without a volume.
    pub fn for_no_volume(&self, operation: &str) -> Ended {
        let mut run = self.clone();
        image_run::for_no_volume(&mut run.0);
        run.run(operation)
    }

    /// Starts a run without waiting for its end.
    pub fn begin(&self, operation: &str) -> Child {
        self.command(operation).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap()
    }

    /// Returns the termination message of the last run.
    pub fn termination_message(&self) -> String {
        self.1.termination_message()
    }

    /// Returns the names that the orchestrator would pass as parameters: all but the contract's own and those from
    /// Secrets.
    fn parameters(&self) -> String {
        let of_secret = |name: &str| ["PASSWORD", "USERNAME", "TOKEN", "SECRET"].iter().any(|word| name.contains(word));
        let names = self.0.keys().map(|name| name.to_string());
        let names = names.filter(|name| !is_reserved(name) && !name.starts_with("FLEX_") && !of_secret(name));
        names.map(|name| name.to_lowercase().replace('_', "-")).collect::<Vec<_>>().join(",")
    }

    fn command(&self, operation: &str) -> Command {
        let mut command = self.1.command(operation, &self.0);
        command.arg("--dry-run").env("PARAMETER_NAMES", self.parameters());
        command
    }
}
