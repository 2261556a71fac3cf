//! Runs the image's program as the flex provisioner would, with `--dry-run` in place of a cluster.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use ganesha::Ganesha;

/// Two volumes.
pub const ONE: &str = "c0ffee00-0000-4000-8000-000000000001";
/// The second of two volumes.
pub const TWO: &str = "c0ffee00-0000-4000-8000-000000000002";

/// How a run ended.
#[derive(Debug)]
pub struct Ended {
    /// The exit code.
    pub code: i32,
    /// Standard output: the PersistentVolume.
    pub out: String,
    /// The termination message.
    pub last_words: String,
}

/// The environment of a run, and the program.
#[derive(Clone)]
pub struct Run(BTreeMap<String, String>, Arc<Stage>);

impl Run {
    /// A run for a volume on a server.
    pub fn new(server: &Ganesha, id: &str) -> Self {
        Self(BTreeMap::new(), Arc::new(Stage::new()))
            .with("CLAIM_UUID", id)
            .with("PV_NAME", &format!("pvc-{id}"))
            .with("PVC_UID", id)
            .with("PVC_NAMESPACE", "team")
            .with("PVC_NAME", "data")
            .with("STORAGE_CLASS", "nfs")
            .with("SIZE_BYTES", "1048576")
            .with("ACCESS_MODES", "ReadWriteMany")
            .with("SERVER", "127.0.0.1")
            .with("EXPORT", Ganesha::EXPORT)
            .with("PORT", &server.port().to_string())
    }

    /// The same with another variable.
    pub fn with(mut self, name: &str, value: &str) -> Self {
        self.0.insert(name.to_owned(), value.to_owned());
        self
    }

    /// The name of the volume's directory by the default pattern.
    pub fn directory(&self) -> String {
        format!("team-data-{}", self.0["PV_NAME"])
    }

    /// A provision run.
    pub fn provision(&self) -> Ended {
        self.clone().with("OPERATION", "provision").end()
    }

    /// A delete run.
    pub fn delete(&self) -> Ended {
        self.clone().with("OPERATION", "delete").end()
    }

    /// An expand run to twice the size.
    pub fn expand(&self) -> Ended {
        let run = self.clone().with("OPERATION", "expand").with("OLD_SIZE_BYTES", &self.0["SIZE_BYTES"]);
        run.with("SIZE_BYTES", "2097152").end()
    }

    /// A list run.
    pub fn list(&self) -> Ended {
        self.for_no_volume("list")
    }

    /// A capacity run.
    pub fn capacity(&self) -> Ended {
        self.for_no_volume("capacity")
    }

    fn for_no_volume(&self, operation: &str) -> Ended {
        let mut run = self.clone().with("OPERATION", operation);
        for name in ["CLAIM_UUID", "PV_NAME", "PVC_UID", "SIZE_BYTES"] {
            run.0.remove(name);
        }
        run.end()
    }

    /// Delete runs until one does not ask for another: the server may still remember what a test
    /// changed behind its back.
    pub fn delete_patiently(&self) -> Ended {
        let mut ended = self.delete();
        for _ in 0..20 {
            if ended.code != 75 {
                break;
            }
            std::thread::sleep(std::time::Duration::from_millis(200));
            ended = self.delete();
        }
        ended
    }

    /// A delete run for a volume that has a PersistentVolume.
    pub fn delete_bound(&self) -> Ended {
        let source = format!(
            r#"{{"nfs":{{"server":"{}","path":"{}/{}"}}}}"#,
            self.0["SERVER"],
            self.0["EXPORT"],
            self.directory()
        );
        self.clone().with("VOLUME_SOURCE", &source).delete()
    }

    /// A provision run that is killed after a while; false if it had ended by then.
    pub fn provision_killed_after(&self, time: Duration) -> bool {
        self.clone().with("OPERATION", "provision").killed_after(time)
    }

    /// A delete run that is killed after a while; false if it had ended by then.
    pub fn delete_killed_after(&self, time: Duration) -> bool {
        self.clone().with("OPERATION", "delete").killed_after(time)
    }

    fn killed_after(self, time: Duration) -> bool {
        let mut process = self.command().stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        std::thread::sleep(time);
        let alive = process.try_wait().unwrap().is_none();
        process.kill().unwrap();
        process.wait().unwrap();
        alive
    }

    fn end(self) -> Ended {
        fs::write(self.1.log(), "").unwrap();
        let output = self.command().output().unwrap();
        Ended {
            code: output.status.code().expect("ended by a signal"),
            out: String::from_utf8(output.stdout).unwrap(),
            last_words: fs::read_to_string(self.1.log()).unwrap(),
        }
    }

    fn command(&self) -> Command {
        let mut command = Command::new(self.1.program());
        command.arg("--dry-run").env_clear().envs(&self.0).env("FLEX_TERMINATION_LOG", self.1.log());
        command.uid(65532).gid(65532).current_dir("/").stdin(Stdio::null());
        command
    }
}

/// A copy of the program, and a place for its last words, that the image's own user can use: that
/// user has no rights on this machine's disk.
struct Stage(tempfile::TempDir);

impl Stage {
    fn new() -> Self {
        let stage = Self(tempfile::tempdir().unwrap());
        // By another process: a file that this one holds open for writing, even in a child that a
        // parallel test forks just now, could not be run.
        let copied =
            Command::new("cp").arg(env!("CARGO_BIN_EXE_nfs-provisioner")).arg(stage.program()).status().unwrap();
        assert!(copied.success());
        fs::write(stage.log(), "").unwrap();
        for path in [stage.0.path(), &stage.log(), &stage.program()] {
            fs::set_permissions(path, fs::Permissions::from_mode(0o777)).unwrap();
        }
        stage
    }

    fn program(&self) -> PathBuf {
        self.0.path().join("nfs-provisioner")
    }

    fn log(&self) -> PathBuf {
        self.0.path().join("log")
    }
}
