//! Runs the image's program as the flex provisioner would, with `--dry-run` in place of a cluster.

use std::collections::BTreeMap;
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};

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

/// The environment of a run.
#[derive(Clone)]
pub struct Run(BTreeMap<String, String>);

impl Run {
    /// A run for a volume on a server.
    pub fn new(server: &Ganesha, id: &str) -> Self {
        Self(BTreeMap::new())
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

    fn end(self) -> Ended {
        let folder = tempfile::tempdir().unwrap();
        // The program runs as the image's own user, who has no rights on this machine's disk.
        let log = folder.path().join("log");
        let program = folder.path().join("nfs-provisioner");
        // By another process: a file that this one holds open for writing, even in a child that a
        // parallel test forks just now, could not be run.
        let copied = Command::new("cp").arg(env!("CARGO_BIN_EXE_nfs-provisioner")).arg(&program).status().unwrap();
        assert!(copied.success());
        std::fs::write(&log, "").unwrap();
        let everyone = std::os::unix::fs::PermissionsExt::from_mode(0o777);
        for path in [folder.path(), log.as_path(), program.as_path()] {
            std::fs::set_permissions(path, std::clone::Clone::clone(&everyone)).unwrap();
        }
        let output = Command::new(&program)
            .arg("--dry-run")
            .env_clear()
            .envs(&self.0)
            .env("FLEX_TERMINATION_LOG", &log)
            .uid(65532)
            .gid(65532)
            .current_dir("/")
            .stdin(Stdio::null())
            .output()
            .unwrap();
        Ended {
            code: output.status.code().expect("ended by a signal"),
            out: String::from_utf8(output.stdout).unwrap(),
            last_words: std::fs::read_to_string(&log).unwrap(),
        }
    }
}
