//! Runs a provisioner image's program as the flex provisioner would: as the image's user, with only a claim in its
//! environment. Returns its last words.

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

/// Two volumes.
pub const ONE: &str = "c0ffee00-0000-4000-8000-000000000001";
/// The second of two volumes.
pub const TWO: &str = "c0ffee00-0000-4000-8000-000000000002";
/// The user and the group of the images.
const USER: u32 = 65532;
/// What is in the environment for one volume alone.
const OF_A_VOLUME: [&str; 6] = ["CLAIM_UUID", "PV_NAME", "PVC_UID", "PVC_NAMESPACE", "PVC_NAME", "SIZE_BYTES"];

/// How a run ended.
#[derive(Debug)]
pub struct Ended {
    /// The exit code.
    pub code: i32,
    /// Standard output.
    pub out: String,
    /// Standard error: what it tells of its work, and the last words again.
    pub log: String,
    /// The termination message.
    pub termination_message: String,
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
        assert!(self.termination_message.contains(says), "`{says}` in {self:?}");
        self
    }

    /// Which members of a batch failed, with exit code and words, by their number from 1. It told of all how they ended.
    #[track_caller]
    pub fn outcomes(&self) -> BTreeMap<usize, (i32, String)> {
        assert_eq!(self.code, 0, "{self:?}");
        let failed = match self.termination_message.as_str() {
            "" => Vec::new(),
            told => batch::read_outcomes(told).unwrap_or_else(|| panic!("{self:?}")),
        };
        failed.into_iter().map(|MemberFailure { member, code, message }| (member, (code, message))).collect()
    }
}

/// What the environment says of a claim for one gibibyte of a class.
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

/// The environment of a run for several claims, made of those that they would have by themselves, and the lines of its list.
///
/// # Panics
/// If one of them is not that of a run.
pub fn batch(members: &[BTreeMap<String, String>]) -> (BTreeMap<String, String>, Vec<String>) {
    let request = |env: &BTreeMap<String, String>| RunRequest::from_env(|name| env.get(name).cloned()).expect("a run");
    let requests: Vec<RunRequest> = members.iter().map(request).collect();
    let split = batch::split(&requests);
    // What is no property, such as what comes of Secrets, all have in common.
    let mut env = members[0].clone();
    requests[0].properties().iter().for_each(|property| drop(env.remove(&property.env())));
    env.extend(split.common.iter().map(|property| (property.env(), property.value.clone())));
    (env, split.lines)
}

/// Takes away what is of one volume: runs such as `list` are for none.
pub fn for_no_volume(env: &mut BTreeMap<String, String>) {
    OF_A_VOLUME.iter().for_each(|name| drop(env.remove(*name)));
}

/// Kills a run when the backend is at the call where that is to be, for which it is asked again and again; false if the
/// run ended before. What the backend gives for it is let go when the run is dead.
///
/// # Panics
/// If the process cannot be waited for.
pub fn killed_when<T>(mut process: Child, mut is_there: impl FnMut() -> Option<T>) -> bool {
    let killed = loop {
        if let Some(held) = is_there() {
            process.kill().expect("our own child");
            drop(held);
            break true;
        }
        if process.try_wait().expect("our own child").is_some() {
            break false;
        }
    };
    process.wait().expect("our own child");
    killed
}

/// A program, and a directory that it may use as the image's user, who has no rights elsewhere on this machine.
pub struct Stage {
    program: File,
    directory: TempDir,
}

impl Stage {
    /// Of the program at a path.
    ///
    /// # Panics
    /// If the program is not there, or there is no room.
    pub fn new(program: &str) -> Self {
        let everybody = fs::Permissions::from_mode(0o777);
        let stage = Self {
            program: File::open(program).expect("the program"),
            directory: tempfile::Builder::new().permissions(everybody).tempdir().expect("a temporary directory"),
        };
        stage.write("termination-log", "", 0o666);
        stage
    }

    /// The path of a name in the directory.
    pub fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    /// Writes a file there, with the directories above it, for everybody to read.
    ///
    /// # Panics
    /// If there is no room.
    pub fn write(&self, name: &str, text: &str, mode: u32) -> PathBuf {
        let path = self.path(name);
        fs::create_dir_all(path.parent().expect("it is in a directory")).expect("a directory");
        fs::write(&path, text).expect("a file");
        fs::set_permissions(&path, fs::Permissions::from_mode(mode)).expect("a file of ours");
        let above = Path::new(name).ancestors().skip(1).filter(|above| !above.as_os_str().is_empty());
        above.for_each(|above| {
            fs::set_permissions(self.directory.path().join(above), fs::Permissions::from_mode(0o755))
                .expect("a directory of ours");
        });
        path
    }

    /// A run for several claims by [`batch()`], not started yet.
    pub fn batch(&self, env: &BTreeMap<String, String>, lines: &[String]) -> Command {
        let list = self.write("batch", &lines.join("\n"), 0o644);
        let mut command = self.command(batch::OPERATION, env);
        command.env(batch::VARIABLE, list);
        command
    }

    /// A run of an operation with an environment, not started yet.
    pub fn command(&self, operation: &str, env: &BTreeMap<String, String>) -> Command {
        // By its open file: the user may not walk the path.
        let mut command = Command::new(format!("/proc/self/fd/{}", self.program.as_raw_fd()));
        command.env_clear().envs(env).env("OPERATION", operation).env("FLEX_TERMINATION_LOG", self.log());
        command.uid(USER).gid(USER).current_dir("/").stdin(Stdio::null());
        command
    }

    /// Runs it to its end. Of one stage, one run at a time has last words.
    ///
    /// # Panics
    /// If it cannot be started, is ended by a signal, or says what is no UTF-8.
    #[track_caller]
    pub fn end(&self, command: &mut Command) -> Ended {
        fs::write(self.log(), "").expect("the last words");
        let output = command.output().expect("the program starts");
        Ended {
            code: output.status.code().expect("ended by a signal"),
            out: String::from_utf8(output.stdout).expect("UTF-8"),
            log: String::from_utf8(output.stderr).expect("UTF-8"),
            termination_message: self.termination_message(),
        }
    }

    /// What the last run left as its last words.
    ///
    /// # Panics
    /// If they are no UTF-8.
    pub fn termination_message(&self) -> String {
        fs::read_to_string(self.log()).expect("the last words")
    }

    fn log(&self) -> PathBuf {
        self.path("termination-log")
    }
}
