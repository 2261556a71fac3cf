//! Tests of the commands that run a program on this machine, with the real `flex-pv`. They need no cluster.

#![cfg(target_os = "linux")]

mod array;
mod attempt;
mod confined;
mod conformance;
mod elsewhere;
mod front;
mod helpers;
mod scaffold;
mod shipped;
mod wrong;

use std::fs;
use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process::{Command, Output, Stdio};
use std::sync::LazyLock;

use flex_desk::conformance::Case;
use orchestrator::deployed::root;
use orchestrator::programs;
use serde_json::Value;

/// The directory with `flex-pv`: that of the command, where a build of the whole workspace leaves it.
static PROGRAMS: LazyLock<PathBuf> = LazyLock::new(|| {
    let program = built("flex-image-kit", "flex-pv");
    program.parent().expect("the program is in a directory").to_path_buf()
});

/// Returns the command that `FLEX_PROVISIONER` names, as it is shipped, or the one that was built with the tests.
fn flex_provisioner() -> PathBuf {
    std::env::var_os("FLEX_PROVISIONER").unwrap_or_else(|| env!("CARGO_BIN_EXE_flex-provisioner").into()).into()
}

/// Returns a program of the workspace, from beside the command.
fn built(package: &str, program: &str) -> PathBuf {
    programs::built(flex_provisioner().parent().expect("the command is in a directory"), package, program)
}

/// Returns the cases that need no front before a server.
fn without_front() -> Vec<Case> {
    Case::ALL.iter().filter(|case| !case.needs_front()).copied().collect()
}

/// A directory with the files of a test.
struct Files(tempfile::TempDir);

impl Files {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o755)).unwrap();
        Files(folder)
    }

    /// Writes a file that can be executed, and returns its path. Another process does it, so that no child that a parallel
    /// test forks just now holds the file open for writing.
    fn write(&self, name: &str, text: &str) -> String {
        let path = self.path(name);
        let mut writer = Command::new("sh");
        writer.args(["-c", "cat >\"$0\" && chmod 755 \"$0\"", &path]).stdin(Stdio::piped());
        let mut writer = writer.spawn().unwrap();
        writer.stdin.take().unwrap().write_all(text.as_bytes()).unwrap();
        assert!(writer.wait().unwrap().success(), "{path} cannot be written");
        path
    }

    /// Builds programs in Go here, by this command.
    fn build_go(&self, command: &str) {
        let mut build = Command::new("sh");
        let path = format!("{}:/usr/local/go/bin", std::env::var("PATH").unwrap_or_default());
        build.args(["-c", command]).current_dir(self.path("")).env("PATH", path);
        build.env("CGO_ENABLED", "0").env("GOFLAGS", "-mod=mod").env("GOWORK", "off");
        let answer: Answer = build.output().expect("the shell starts").into();
        assert_eq!(answer.code, Some(0), "{answer:?}");
    }

    fn path(&self, name: &str) -> String {
        self.0.path().join(name).to_str().expect("UTF-8").to_owned()
    }
}

/// Prepares a call of the command.
fn command(arguments: &[&str]) -> Command {
    let mut command = Command::new(flex_provisioner());
    let path = format!("{}:/usr/bin:/bin:/usr/sbin:/sbin", PROGRAMS.display());
    command.args(arguments).env_clear().env("PATH", path).current_dir(root());
    command.envs(std::env::var_os("TMPDIR").map(|memory| ("TMPDIR", memory)));
    command
}

/// The end of a command.
#[derive(Debug)]
struct Answer {
    code: Option<i32>,
    out: String,
    err: String,
}

impl From<Output> for Answer {
    fn from(output: Output) -> Self {
        let text = |bytes: Vec<u8>| String::from_utf8(bytes).expect("the command prints UTF-8");
        Answer { code: output.status.code(), out: text(output.stdout), err: text(output.stderr) }
    }
}

fn call(arguments: &[&str]) -> Answer {
    command(arguments).output().expect("the command starts").into()
}

/// Runs cases on a program, with further arguments. Returns the answer, and the id of each case with its outcome and reason.
fn judged(config: &str, program: &str, cases: &[Case], more: &[&str]) -> (Answer, Vec<[String; 3]>) {
    let only = cases.iter().flat_map(|case| ["--only", case.id()]);
    let words = ["conformance", "-o", "json", "--config", config].into_iter().chain(more.iter().copied()).chain(only);
    let answer = call(&words.chain([program]).collect::<Vec<_>>());
    let document: Value =
        serde_json::from_str(&answer.out).unwrap_or_else(|error| panic!("{program}: {error}: {answer:?}"));
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let all = document["cases"].as_array().expect("cases");
    let all = all.iter().map(|case| [&case["id"], &case["outcome"], &case["why"]].map(text)).collect();
    (answer, all)
}
