//! Runs a provisioner image's program as the flex provisioner would: as the image's user, with only a claim in its
//! environment. Returns its termination message.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::os::fd::AsRawFd;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use flex_contract::batch::{self, MemberFailure};
use flex_contract::request::RunRequest;
use tempfile::TempDir;

/// The id of the first of two volumes.
pub const ONE: &str = "c0ffee00-0000-4000-8000-000000000001";
/// The id of the second of two volumes.
pub const TWO: &str = "c0ffee00-0000-4000-8000-000000000002";
/// The user and the group of the images.
const USER: u32 = 65532;
/// The variables of a run for a single volume.
const OF_A_VOLUME: [&str; 6] = ["CLAIM_UUID", "PV_NAME", "PVC_UID", "PVC_NAMESPACE", "PVC_NAME", "SIZE_BYTES"];

/// The end of a run.
#[derive(Debug)]
pub struct Ended {
    /// The exit code.
    pub code: i32,
    /// Standard output.
    pub out: String,
    /// Standard error: the log of its work, and the termination message again.
    pub log: String,
    /// The termination message.
    pub termination_message: String,
}

impl Ended {
    /// Checks that the run succeeded.
    #[track_caller]
    pub fn well(self) -> Self {
        assert_eq!(self.code, 0, "{self:?}");
        self
    }

    /// Checks that the run failed with a code, and that its message contains a text.
    #[track_caller]
    pub fn failed(self, code: i32, says: &str) -> Self {
        assert_eq!(self.code, code, "{self:?}");
        assert!(self.termination_message.contains(says), "`{says}` in {self:?}");
        self
    }

    /// Returns the failed members of a batch, with exit code and message, by their number from 1. The output must have
    /// an outcome for each member.
    #[track_caller]
    pub fn outcomes(&self) -> BTreeMap<usize, (i32, String)> {
        assert_eq!(self.code, 0, "{self:?}");
        let failed = match self.termination_message.as_str() {
            "" => Vec::new(),
            lines => batch::read_outcomes(lines).unwrap_or_else(|| panic!("{self:?}")),
        };
        failed.into_iter().map(|MemberFailure { member, code, message }| (member, (code, message))).collect()
    }
}

/// Returns the environment of a claim for one gibibyte of a class.
pub fn claim(id: &str, class: &str) -> BTreeMap<String, String> {
    [
        ("CLAIM_UUID", id),
        ("PV_NAME", &format!("pvc-{id}")),
        ("PVC_UID", id),
        ("PVC_NAMESPACE", "team"),
        ("PVC_NAME", "data"),
        ("STORAGE_CLASS", class),
        ("SIZE_BYTES", "1073741824"),
        ("ACCESS_MODES", "ReadWriteOnce"),
        ("VOLUME_MODE", "Filesystem"),
        ("RECLAIM_POLICY", "Delete"),
        ("INSTANCE", "default"),
        ("PROVISIONER", "flex-provisioner.io"),
        ("POD_NAMESPACE", "flex-provisioner"),
    ]
    .map(|(name, value)| (name.to_owned(), value.to_owned()))
    .into()
}

/// Returns the environment of a run for several claims, made from the environments of single runs, and the lines of its
/// list.
///
/// # Panics
/// If a member's environment is not that of a run.
pub fn batch(members: &[BTreeMap<String, String>]) -> (BTreeMap<String, String>, Vec<String>) {
    let request = |env: &BTreeMap<String, String>| RunRequest::from_env(|name| env.get(name).cloned()).expect("a run");
    let requests: Vec<RunRequest> = members.iter().map(request).collect();
    let split = batch::split(&requests);
    // All members share the variables that are no property, such as those from Secrets.
    let mut env = members[0].clone();
    requests[0].properties().iter().for_each(|property| drop(env.remove(&property.env())));
    env.extend(split.common.iter().map(|property| (property.env(), property.value.clone())));
    (env, split.lines)
}

/// Removes the variables of a volume: runs such as `list` have none.
pub fn for_no_volume(env: &mut BTreeMap<String, String>) {
    OF_A_VOLUME.iter().for_each(|name| drop(env.remove(*name)));
}

/// Kills a run when the backend is at the expected call, for which this function polls. Returns false if the run ended
/// before. The call continues when the run is dead.
///
/// # Panics
/// If the process cannot be waited for.
pub fn killed_when<T>(mut process: Child, mut is_there: impl FnMut() -> Option<T>) -> bool {
    let killed = loop {
        if let Some(held) = is_there() {
            process.kill().expect("the test's own child");
            drop(held);
            break true;
        }
        if process.try_wait().expect("the test's own child").is_some() {
            break false;
        }
    };
    process.wait().expect("the test's own child");
    killed
}

/// A program, and a directory that it may use as the image's user. That user has no rights elsewhere on this machine.
pub struct Stage {
    program: File,
    directory: TempDir,
}

impl Stage {
    /// Makes a stage for the program at a path.
    ///
    /// # Panics
    /// If the program does not exist, or the disk is full.
    pub fn new(program: &str) -> Self {
        let everybody = fs::Permissions::from_mode(0o777);
        let stage = Self {
            program: File::open(program).expect("the program"),
            directory: tempfile::Builder::new().permissions(everybody).tempdir().expect("a temporary directory"),
        };
        stage.write("termination-log", "", 0o666);
        stage
    }

    /// Returns the path of a name in the directory.
    pub fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    /// Writes a file there, with the directories above it, which every user can read.
    ///
    /// # Panics
    /// If the disk is full.
    pub fn write(&self, name: &str, text: &str, mode: u32) -> PathBuf {
        let path = self.path(name);
        fs::create_dir_all(path.parent().expect("the file is in a directory")).expect("a directory");
        fs::write(&path, text).expect("a file");
        fs::set_permissions(&path, fs::Permissions::from_mode(mode)).expect("a file of the test");
        let above = Path::new(name).ancestors().skip(1).filter(|above| !above.as_os_str().is_empty());
        above.for_each(|above| {
            fs::set_permissions(self.directory.path().join(above), fs::Permissions::from_mode(0o755))
                .expect("a directory of the test");
        });
        path
    }

    /// Prepares a run for several claims by [`batch()`].
    pub fn batch(&self, env: &BTreeMap<String, String>, lines: &[String]) -> Command {
        let list = self.write("batch", &lines.join("\n"), 0o644);
        let mut command = self.command(batch::OPERATION, env);
        command.env(batch::VARIABLE, list);
        command
    }

    /// Prepares a run of an operation with an environment.
    pub fn command(&self, operation: &str, env: &BTreeMap<String, String>) -> Command {
        // The program is started by its open file: the user may not walk the path.
        let mut command = Command::new(format!("/proc/self/fd/{}", self.program.as_raw_fd()));
        command.env_clear().envs(env).env("OPERATION", operation).env("FLEX_TERMINATION_LOG", self.log());
        command.uid(USER).gid(USER).current_dir("/").stdin(Stdio::null());
        command
    }

    /// Runs the command to its end. A stage has one termination message, so only one run at a time may use it.
    ///
    /// # Panics
    /// If it cannot be started, is ended by a signal, or prints text that is not UTF-8.
    #[track_caller]
    pub fn end(&self, command: &mut Command) -> Ended {
        fs::write(self.log(), "").expect("the termination message");
        let output = command.output().expect("the program starts");
        Ended {
            code: output.status.code().expect("ended by a signal"),
            out: String::from_utf8(output.stdout).expect("UTF-8"),
            log: String::from_utf8(output.stderr).expect("UTF-8"),
            termination_message: self.termination_message(),
        }
    }

    /// Returns the termination message of the last run.
    ///
    /// # Panics
    /// If it is not UTF-8.
    pub fn termination_message(&self) -> String {
        fs::read_to_string(self.log()).expect("the termination message")
    }

    fn log(&self) -> PathBuf {
        self.path("termination-log")
    }
}
