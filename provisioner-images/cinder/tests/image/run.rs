//! Runs the image's program as the flex provisioner would, with `--dry-run` in place of a cluster.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, OnceLock};

use openstack::{Cinder, Options, Project, Refuge};
use serde_json::Value;

/// Two volumes.
pub const ONE: &str = "c0ffee00-0000-4000-8000-000000000001";
/// The second of two volumes.
pub const TWO: &str = "c0ffee00-0000-4000-8000-000000000002";

/// The Cinder without Keystone that all tests share.
pub fn cinder() -> &'static Cinder {
    static CINDER: OnceLock<Cinder> = OnceLock::new();
    CINDER.get_or_init(|| Cinder::start(Options::default()))
}

/// How a run ended.
#[derive(Debug)]
pub struct Ended {
    /// The exit code.
    pub code: i32,
    /// Standard output: the Secret and the PersistentVolume.
    pub out: String,
    /// Standard error: the calls, and the last words again.
    pub log: String,
    /// The termination message.
    pub last_words: String,
}

impl Ended {
    /// The spec of the PersistentVolume, which is what the run printed last.
    #[track_caller]
    pub fn spec(&self) -> Value {
        assert_eq!(self.code, 0, "{self:?}");
        let volume = self.out.rsplit("---\n").next().unwrap();
        let volume: String = volume.lines().filter(|line| !line.starts_with('#')).collect::<Vec<_>>().join("\n");
        let volume: k8s_openapi::api::core::v1::PersistentVolume = serde_saphyr::from_str(&volume).unwrap();
        serde_json::to_value(volume.spec.unwrap()).unwrap()
    }

    /// The Secret that the run made.
    #[track_caller]
    pub fn secret(&self) -> Value {
        let (secret, _) = self.out.split_once("---\n").unwrap_or_else(|| panic!("no Secret: {self:?}"));
        let secret: k8s_openapi::api::core::v1::Secret = serde_saphyr::from_str(secret).unwrap();
        serde_json::to_value(secret).unwrap()
    }

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

/// The environment of a run, and the program.
#[derive(Clone)]
pub struct Run(pub BTreeMap<String, String>, Arc<Stage>);

impl Run {
    /// A run for a volume of a gibibyte in a project of the Cinder without Keystone.
    pub fn new(project: &Project<'_>, id: &str) -> Self {
        Self::at(cinder().port(), &project.id, id)
    }

    /// The same, at a port.
    pub fn at(port: u16, project: &str, id: &str) -> Self {
        Self::without_cloud(id)
            .with("OS_CINDER_ENDPOINT", &format!("http://127.0.0.1:{port}/v2"))
            .with("OS_USERNAME", "admin")
            .with("OS_TENANT_NAME", project)
    }

    /// The same, with nothing that says where Cinder is.
    pub fn without_cloud(id: &str) -> Self {
        let stage = Stage::new();
        let secrets = stage.0.path().join("secrets").display().to_string();
        Self(BTreeMap::new(), Arc::new(stage))
            .with("CLAIM_UUID", id)
            .with("PV_NAME", &format!("pvc-{id}"))
            .with("PVC_UID", id)
            .with("PVC_NAMESPACE", "team")
            .with("PVC_NAME", "data")
            .with("STORAGE_CLASS", "cinder")
            .with("SIZE_BYTES", "1073741824")
            .with("ACCESS_MODES", "ReadWriteOnce")
            .with("VOLUME_MODE", "Filesystem")
            .with("RECLAIM_POLICY", "Delete")
            .with("INSTANCE", "default")
            .with("PROVISIONER", "flex-provisioner.io")
            .with("POD_NAMESPACE", "flex-provisioner")
            .with("FLEX_SECRETS_DIRECTORY", &secrets)
            .with("TYPE", "iscsi")
    }

    /// The same with another variable.
    pub fn with(mut self, name: &str, value: &str) -> Self {
        self.0.insert(name.to_owned(), value.to_owned());
        self
    }

    /// A file of a Secret.
    pub fn secret_file(&self, name: &str, text: &str) -> PathBuf {
        let path = self.1.0.path().join("secrets").join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, text).unwrap();
        for part in [path.as_path(), path.parent().unwrap(), path.parent().unwrap().parent().unwrap()] {
            fs::set_permissions(part, fs::Permissions::from_mode(0o755)).unwrap();
        }
        path
    }

    /// A run of an operation.
    pub fn run(&self, operation: &str) -> Ended {
        let output = self.command(operation).output().unwrap();
        Ended {
            code: output.status.code().expect("ended by a signal"),
            out: String::from_utf8(output.stdout).unwrap(),
            log: String::from_utf8(output.stderr).unwrap(),
            last_words: fs::read_to_string(self.1.log()).unwrap(),
        }
    }

    /// A provision run.
    pub fn provision(&self) -> Ended {
        self.run("provision")
    }

    /// A delete run, for a volume that has no PersistentVolume.
    pub fn delete(&self) -> Ended {
        self.run("delete")
    }

    /// A run for no volume.
    pub fn for_no_volume(&self, operation: &str) -> Ended {
        let mut run = self.clone();
        run.0.retain(|name, _| !["CLAIM_UUID", "PV_NAME", "PVC_UID", "SIZE_BYTES"].contains(&name.as_str()));
        run.run(operation)
    }

    /// A run that goes on by itself.
    pub fn begin(&self, operation: &str) -> Child {
        self.command(operation).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap()
    }

    /// What the last run left as its last words.
    pub fn last_words(&self) -> String {
        fs::read_to_string(self.1.log()).unwrap()
    }

    fn command(&self, operation: &str) -> Command {
        fs::write(self.1.log(), "").unwrap();
        let mut command = Command::new(self.1.program());
        command.arg("--dry-run").env_clear().envs(&self.0).env("OPERATION", operation);
        command.env("FLEX_TERMINATION_LOG", self.1.log()).uid(65532).gid(65532).current_dir("/").stdin(Stdio::null());
        command
    }
}

/// Where all of them are; it goes with the process.
fn scratch() -> &'static Path {
    static SCRATCH: OnceLock<Refuge> = OnceLock::new();
    let made = SCRATCH.get_or_init(|| {
        let made = Refuge::new("cinder-image.");
        fs::set_permissions(made.path(), fs::Permissions::from_mode(0o755)).unwrap();
        made
    });
    made.path()
}

/// A copy of the program, and a place for its last words, that the image's own user can use: that user has no rights on
/// this machine's disk.
struct Stage(tempfile::TempDir);

impl Stage {
    fn new() -> Self {
        let stage = Self(tempfile::tempdir_in(scratch()).unwrap());
        fs::write(stage.log(), "").unwrap();
        for path in [stage.0.path(), &stage.log()] {
            fs::set_permissions(path, fs::Permissions::from_mode(0o777)).unwrap();
        }
        stage
    }

    fn program(&self) -> &'static Path {
        static PROGRAM: OnceLock<PathBuf> = OnceLock::new();
        PROGRAM.get_or_init(|| {
            let program = scratch().join("cinder-provisioner");
            // By another process: a file that this one holds open for writing, even in a child that a parallel test forks
            // just now, could not be run.
            let copied =
                Command::new("cp").arg(env!("CARGO_BIN_EXE_cinder-provisioner")).arg(&program).status().unwrap();
            assert!(copied.success());
            fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
            program
        })
    }

    fn log(&self) -> PathBuf {
        self.0.path().join("log")
    }
}
