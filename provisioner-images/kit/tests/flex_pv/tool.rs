//! Runs `flex-pv` in the environment of a provision run and nothing else.

use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

/// No step takes longer, even on a busy machine.
pub const GUARD: Duration = Duration::from_secs(120);

/// Tells a story with little time again until the machine was quick enough for it, or has been too slow several times.
pub fn until_quick<T>(story: impl Fn() -> T, was_quick: impl Fn(&T) -> bool) -> T {
    (0..10).map(|_| story()).find(was_quick).unwrap_or_else(&story)
}

/// The variables that the flex provisioner gives to a pod, with the pod's node.
pub const ENVIRONMENT: &[(&str, &str)] = &[
    ("OPERATION", "provision"),
    ("CLAIM_UUID", "c0ffee00-0000-4000-8000-000000000001"),
    ("PV_NAME", "pvc-c0ffee00-0000-4000-8000-000000000001"),
    ("PVC_NAME", "data"),
    ("PVC_NAMESPACE", "team"),
    ("PVC_UID", "c0ffee00-0000-4000-8000-000000000001"),
    ("STORAGE_CLASS", "silver"),
    ("SIZE_BYTES", "3221225472"),
    ("ACCESS_MODES", "ReadWriteOnce,ReadOnlyMany"),
    ("MOUNT_OPTIONS", "noatime"),
    ("RECLAIM_POLICY", "Delete"),
    ("FS_TYPE", "ext4"),
    ("NODE_NAME", "node-1"),
    ("POD_NODE", "node-1"),
    ("TOPOLOGY", r#"{"kubernetes.io/hostname":"host-1","topology.kubernetes.io/zone":"west"}"#),
];

/// The result of a run of the tool.
#[derive(Debug)]
pub struct Ended {
    /// The exit code.
    pub code: i32,
    /// Standard output.
    pub out: String,
    /// Standard error.
    pub err: String,
    /// The content of the termination message's file.
    pub termination_message: String,
}

impl Ended {
    /// Checks whether at most one member of a batch was stopped because of its time.
    pub fn is_alone_in_its_delay(&self) -> bool {
        self.termination_message.matches("it took longer than").count() < 2
    }
}

/// Runs the tool with the standard environment, `extra` variables (an empty value removes one) and
/// `stdin`.
pub fn flex_pv(args: &[&str], extra: &[(&str, &str)], stdin: &str) -> Ended {
    let folder = tempfile::tempdir().unwrap();
    let log = folder.path().join("termination-log");
    let mut command = Command::new(env!("CARGO_BIN_EXE_flex-pv"));
    command.args(args).env_clear().envs(ENVIRONMENT.iter().copied()).env("FLEX_TERMINATION_LOG", &log);
    for (name, value) in extra {
        if value.is_empty() {
            command.env_remove(name)
        } else {
            command.env(name, value)
        };
    }
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    // A tool that does not read may be gone by now.
    let _ = child.stdin.take().unwrap().write_all(stdin.as_bytes());
    let output = child.wait_with_output().unwrap();
    Ended {
        code: output.status.code().expect("ended by a signal"),
        out: String::from_utf8(output.stdout).unwrap(),
        err: String::from_utf8(output.stderr).unwrap(),
        termination_message: std::fs::read_to_string(&log).unwrap_or_default(),
    }
}

/// Compares a text with a golden file; `UPDATE_GOLDEN=1` writes the file.
pub fn golden(name: &str, found: &str) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden").join(name);
    if std::env::var_os("UPDATE_GOLDEN").is_some() {
        std::fs::write(&path, found).unwrap();
    }
    let expected = std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    assert_eq!(found, expected, "{} differs; UPDATE_GOLDEN=1 writes it again", path.display());
}

/// A script may run `flex-pv --help | head -1`.
#[test]
fn nobody_has_to_read_the_help() {
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    let mut command = Command::new(env!("CARGO_BIN_EXE_flex-pv"));
    let output = command.arg("--help").stdout(writer).stderr(Stdio::piped()).output().unwrap();
    assert!(output.status.success() && output.stderr.is_empty(), "{output:?}");
}
