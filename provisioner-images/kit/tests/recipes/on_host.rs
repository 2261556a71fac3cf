//! `flex-pv on-host` with a real ssh server.

use std::fs;
use std::path::Path;
use std::process::{Child, Stdio};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process_group};

use super::api::path_text;
use super::desk::{Desk, Ended, system};
use super::host::{self, Host};

struct Pair {
    desk: Desk,
    _host: Host,
}

impl Pair {
    fn new() -> Self {
        let mut desk = Desk::new("iscsi", &[], &[Path::new("/usr/bin/ssh")]);
        let host = Host::start(&mut desk, &[], Path::new("/nonexistent"), &[]);
        fs::create_dir(desk.path("tmp")).unwrap();
        desk.set("TMPDIR", &path_text(desk.path("tmp")));
        Pair { desk, _host: host }
    }

    /// Lets the script run a program on the host, with the variable VALUE and the path LOG.
    fn program(&self, program: &str) {
        self.desk.replace_script(&format!("flex-pv on-host VALUE LOG <<'HOST'\n{program}\nHOST\n"));
    }

    fn env<'a>(&self, value: &'a str, log: &'a str) -> [(&'static str, &'a str); 2] {
        [("VALUE", value), ("LOG", log)]
    }

    fn log(&self) -> String {
        path_text(self.desk.path("host/out"))
    }

    fn run(&self, value: &str, program: &str) -> Ended {
        self.program(program);
        self.desk.run("provision", "a", &self.env(value, &self.log()))
    }

    /// Starts a run that does not end soon.
    fn start(&self, program: &str) -> Child {
        self.program(program);
        let mut command = self.desk.command("provision", "a", &self.env("", &self.log()));
        command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap()
    }

    fn said(&self) -> String {
        fs::read_to_string(self.log()).unwrap_or_default()
    }

    #[track_caller]
    fn wait_for(&self, text: &str) {
        host::until(&format!("the host says {text}"), || {
            let said = self.said();
            if said.contains(text) { Ok(()) } else { Err(said) }
        });
    }

    /// Lets the programs go on that wait by [`WAITS`].
    fn go_on(&self) {
        fs::write(format!("{}.go", self.log()), "").unwrap();
    }
}

/// The part of a program that waits until the test lets it go on, and not for ever.
const WAITS: &str =
    r#"n=0; until [ -e "$LOG.go" ] || [ ! -e "$LOG" ] || [ $((n += 1)) -gt 2400 ]; do sleep 0.05; done"#;

fn kill(mut run: Child) {
    kill_process_group(Pid::from_child(&run), Signal::KILL).unwrap();
    run.wait().unwrap();
}

#[test]
fn a_program_on_the_host_has_its_values_its_output_and_its_end() {
    let pair = Pair::new();
    let strange = "it's $(touch /tmp/x) `id` \\ \"two\"\nlines";
    let ended = pair.run(strange, "printf '%s' \"$VALUE\"; echo aside >&2");
    assert_eq!((ended.code, ended.output.as_str()), (Some(0), format!("{strange}aside\n").as_str()));
    for (program, code, words) in [
        ("fail never no such pool", 65, "no such pool"),
        ("fail no-room full", 69, "full"),
        ("fail config wrong", 78, "wrong"),
        ("echo noise >&2; fail retry 'the array is off'", 75, "the array is off"),
        ("try ls /nonexistent/x; echo never", 75, "ls /nonexistent/x: ls: cannot access"),
        ("set -u; echo \"$ABSENT\"", 2, "ABSENT"),
        ("exit 7", 7, "said nothing"),
        ("{ unfinished", 2, "yntax error"),
    ] {
        let ended = pair.run("", program);
        assert!(ended.code == Some(code) && ended.last_words.contains(words), "{program}: {ended:?}");
        assert!(!ended.last_words.contains("noise"), "{ended:?}");
    }
    let ended = pair.run("", "read line && echo \"took $line\"");
    assert!(ended.code == Some(1) && !ended.output.contains("took"), "the program is not its own input: {ended:?}");
}

#[test]
fn only_the_host_of_the_config_is_spoken_to_and_only_with_its_key() {
    let pair = Pair::new();
    let touches = "echo here >>\"$LOG\"";
    let other = fs::read_to_string(pair.desk.path("host/user-key.pub")).unwrap();
    pair.program(touches);
    let log = pair.log();
    let run = |name: &'static str, value: &str| {
        pair.desk.run("provision", "a", &[&pair.env("", &log)[..], &[(name, value)]].concat())
    };
    for (name, value, code, words) in [
        ("SSH_HOST_KEY", other.trim(), 78, "another host key"),
        ("SSH_HOST_KEY", "", 78, "no ssh-host-key"),
        ("SSH_HOST", "-oProxyCommand=sh", 78, "ssh-host"),
        ("SSH_HOST", "127.0.0.1:1", 75, "refused"),
        ("SSH_USER", "nobody-of-this-host", 77, "authorized_keys"),
    ] {
        let ended = run(name, value);
        assert!(ended.code == Some(code) && ended.last_words.contains(words), "{name}={value}: {ended:?}");
    }
    let key = path_text(pair.desk.path("secrets/storage-host/ssh-privatekey"));
    system(&format!("rm {key}; ssh-keygen -q -t ed25519 -N '' -f {key}"));
    let ended = run("X", "");
    assert!(ended.code == Some(77) && ended.last_words.contains("authorized_keys"), "{ended:?}");
    fs::remove_file(key).unwrap();
    let ended = run("X", "");
    assert!(ended.code == Some(75) && ended.last_words.contains("Secret"), "{ended:?}");
    assert_eq!(pair.said(), "");
}

#[test]
fn no_command_line_has_a_value() {
    let pair = Pair::new();
    let run = {
        pair.program(&format!("echo begun >>\"$LOG\"; {WAITS}"));
        let log = pair.log();
        let mut command = pair.desk.command("provision", "a", &pair.env("a-secret-4711", &log));
        command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap()
    };
    pair.wait_for("begun");
    let mut seen = 0;
    for process in fs::read_dir("/proc").unwrap() {
        let line = fs::read(process.unwrap().path().join("cmdline")).unwrap_or_default();
        let line = String::from_utf8_lossy(&line).replace('\0', " ");
        assert!(!line.contains("a-secret-4711"), "{line}");
        seen += usize::from(line.contains("flex-ready"));
    }
    assert!(seen > 0, "the processes of the run were looked at");
    kill(run);
    pair.go_on();
}

/// `tgt-admin` prints the command line that has failed, with the password in it.
#[test]
fn a_secret_in_the_words_of_a_tool_reaches_neither_the_log_nor_the_claim() {
    let pair = Pair::new();
    let secret = "a-secret-4711";
    let tool = "tool() { echo \"Command: tgtadm --password=$VALUE\"; return 107; }";
    for program in [format!("{tool}; try tool"), format!("{tool}; tool >&2")] {
        let ended = pair.run(secret, &program);
        assert!(!matches!(ended.code, Some(0) | None), "{ended:?}");
        assert!(ended.output.contains("tgtadm --password=***"), "{ended:?}");
        assert!(!ended.output.contains(secret) && !ended.last_words.contains(secret), "{ended:?}");
    }
    let ended = pair.run(secret, "printf %s \"$VALUE\"");
    assert_eq!(ended.output, secret, "a script gets what it asks for");
}

/// The host ends a program whose run was killed, before it begins the next. A killed run that waited does nothing.
#[test]
fn programs_of_a_host_never_overlap_and_none_begins_after_its_run() {
    let pair = Pair::new();
    let first = pair.start(&format!("echo 1 begins >>\"$LOG\"; {WAITS}; echo 1 ends >>\"$LOG\""));
    pair.wait_for("1 begins");
    let second = pair.start("echo 2 begins >>\"$LOG\"");
    // Long enough for the connection. The lock is held until the first may go on.
    std::thread::sleep(Duration::from_millis(800));
    kill(second);
    kill(first);
    assert_eq!(pair.said(), "1 begins\n", "the first still works");
    pair.go_on();
    let ended = pair.run("", "echo 3 begins >>\"$LOG\"");
    assert_eq!((ended.code, pair.said().as_str()), (Some(0), "1 begins\n1 ends\n3 begins\n"));
    std::thread::sleep(Duration::from_millis(500));
    assert!(!pair.said().contains("2 begins"));
    host::until("no private key of a killed run is left", || {
        let left: Vec<_> = fs::read_dir(pair.desk.path("tmp")).unwrap().collect();
        if left.is_empty() { Ok(()) } else { Err(format!("{left:?}")) }
    });
}
