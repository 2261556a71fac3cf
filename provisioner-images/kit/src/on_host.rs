//! A program of a shell script that runs on another machine, such as a storage host, by ssh.
//!
//! - The host must show the host key that the config names.
//! - Values reach the host on standard input, as quoted words. No command line has them.
//! - The host runs one program at a time. It waits for a lock, and only then asks for the program. So a run that was
//!   killed while it waited does nothing later.
//! - The whole program arrives before its first command runs.
//! - A tool of the host may print a command line with a secret of the run. Standard error reaches the log without secrets.

use std::fs::{self, File, Permissions};
use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::fd::AsRawFd;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus, Stdio};

use flex_contract::parameter::{self, NameError};
use rustix::fs::{MemfdFlags, memfd_create};
use rustix::io::Errno;

use crate::Failure;
use crate::secrets::{self, Secrets};

/// The line by which the host says that it has the lock.
const READY: &str = "flex-ready";
/// The line before the last words of the program.
const LAST_WORDS: &str = "flex-last-words";
/// The command on the host. Its text is always the same.
const COMMAND: &str = r#"flock -o -w 60 -E 75 "$HOME/.flex-provisioner.lock" sh -c 'echo flex-ready && exec sh -s'"#;
/// The name of the host in the file of known hosts, whatever its address.
const ALIAS: &str = "storage-host";
/// The functions that a program on the host can use.
const FUNCTIONS: &str = r#"
fail() {
    case $1 in never) set -- 65 "$@" ;; no-room) set -- 69 "$@" ;; config) set -- 78 "$@" ;; *) set -- 75 "$@" ;; esac
    code=$1
    shift 2
    printf '%s\n' flex-last-words "$*" >&2
    exit "$code"
}
try() { why=$("$@" 2>&1) || fail retry "on ${HOSTNAME:-the storage host}: $*: $why"; }
"#;
/// The largest program.
const LARGEST: u64 = 1 << 20;
/// The number of bytes at the end of standard error that can become last words.
const TAIL: usize = 4096;

/// The machine, and how its identity is known.
#[derive(Debug, PartialEq, Eq)]
pub struct Host {
    name: String,
    port: u16,
    user: String,
    key: String,
}

impl Host {
    /// Reads the parameters `ssh-host`, `ssh-user` and `ssh-host-key` of the config.
    ///
    /// # Errors
    /// If one is missing or wrong.
    pub fn from_env(get: impl Fn(&str) -> Option<String>) -> Result<Self, Failure> {
        let of = |name: &str, example: &str| {
            let value = get(&parameter::env_name(name)).filter(|value| !value.is_empty());
            value.ok_or_else(|| Failure::config(format!("the config has no {name}: write one, such as {example}")))
        };
        let wrong = |what: &str| Failure::config(format!("ssh-host: `{what}` is no HOST or HOST:PORT"));
        let address = of("ssh-host", "nas.example:22")?;
        let (name, port) = match address.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
            Some((name, port)) => (name, port.strip_prefix(':').unwrap_or(port)),
            None => address.split_once(':').filter(|(_, port)| !port.contains(':')).unwrap_or((&address, "")),
        };
        let port = if port.is_empty() { Ok(22) } else { port.parse() }.map_err(|_| wrong(&address))?;
        if name.starts_with('-') || !is_plain(name, ".:-_") {
            return Err(wrong(&address));
        }
        let user = of("ssh-user", "root")?;
        if user.starts_with('-') || !is_plain(&user, "._-") {
            return Err(Failure::config(format!("ssh-user: `{user}` is no name of a user")));
        }
        let key = of("ssh-host-key", "ssh-ed25519 AAAA…")?;
        let words: Vec<&str> = key.split_whitespace().take(2).collect();
        if words.len() < 2 || !words.iter().all(|word| is_plain(word, "+/=.@-")) || key.trim().contains('\n') {
            return Err(Failure::config(format!(
                "ssh-host-key: `{key}` is no public key; it is the line in /etc/ssh/ssh_host_ed25519_key.pub of the host"
            )));
        }
        Ok(Self { name: name.to_owned(), port, user, key: words.join(" ") })
    }

    /// Returns the arguments of ssh. Nothing is read from other configurations, and no other host key is accepted.
    fn arguments(&self, key: &str, known_hosts: &str) -> Vec<String> {
        let options = [
            "BatchMode=yes",
            "StrictHostKeyChecking=yes",
            "GlobalKnownHostsFile=/dev/null",
            "IdentitiesOnly=yes",
            "PreferredAuthentications=publickey",
            "ClearAllForwardings=yes",
            "ForwardAgent=no",
            "ConnectTimeout=10",
            "ServerAliveInterval=5",
            "ServerAliveCountMax=3",
            "LogLevel=ERROR",
        ];
        let mut arguments = ["-F", "/dev/null", "-T", "-i", key].map(String::from).to_vec();
        let files = [format!("UserKnownHostsFile={known_hosts}"), format!("HostKeyAlias={ALIAS}")];
        for option in options.into_iter().map(String::from).chain(files) {
            arguments.extend(["-o".into(), option]);
        }
        arguments.extend(["-p".into(), self.port.to_string(), "-l".into(), self.user.clone()]);
        arguments.extend(["--".into(), self.name.clone(), COMMAND.into()]);
        arguments
    }
}

fn is_plain(text: &str, others: &str) -> bool {
    !text.is_empty() && text.chars().all(|one| one.is_ascii_alphanumeric() || others.contains(one))
}

/// Quotes a value as one word of a shell.
fn quoted(value: &str) -> String {
    format!("'{}'", value.replace('\'', r"'\''"))
}

/// Returns the text that the shell of the host reads: functions, values, and the program as a function, so that no
/// command runs before the text is complete.
fn whole_program(values: &[(String, String)], program: &str) -> String {
    let values: String = values.iter().map(|(name, value)| format!("{name}={}\n", quoted(value))).collect();
    format!("{FUNCTIONS}{values}flex_program() {{\n{program}\n}}\nflex_program </dev/null\n")
}

/// Returns the value of each name.
fn values(names: &[String], get: impl Fn(&str) -> Option<String>) -> Result<Vec<(String, String)>, Failure> {
    let value = |name: &String| {
        let is_name = is_plain(name, "_") && !name.starts_with(|first: char| first.is_ascii_digit());
        if !is_name || matches!(parameter::check_name(name, |_| false), Err(NameError::Interpreted { .. })) {
            return Err(Failure::usage(format!("`{name}` cannot be the name of a variable on the host")));
        }
        let value = get(name).ok_or_else(|| Failure::usage(format!("{name} is not set, or is no text")))?;
        Ok((name.clone(), value))
    };
    names.iter().map(value).collect()
}

/// Runs the program on standard input on the host, with these variables of the environment. Its output becomes that of
/// this process; its errors do, too, without the secrets of the run.
///
/// # Errors
/// If the host cannot be reached or is another one, and if the program fails: with its exit code and last words.
pub fn on_host(names: &[String], key: Option<PathBuf>) -> Result<(), Failure> {
    let get = |name: &str| std::env::var(name).ok();
    let host = Host::from_env(get)?;
    let values = values(names, get)?;
    let mut program = String::new();
    let read = io::stdin().take(LARGEST + 1).read_to_string(&mut program);
    read.map_err(|error| Failure::usage(format!("the program on standard input: {error}")))?;
    if program.trim().is_empty() || program.len() as u64 > LARGEST {
        return Err(Failure::usage("standard input has no program for the host, or one that is too long"));
    }
    let key = key.unwrap_or_else(|| secrets::directory().join("storage-host/ssh-privatekey"));
    let key = fs::read(&key).map_err(|error| {
        let key = key.display();
        Failure::retry(format!("the private key {key} cannot be read: {error}; the Secret must exist, with this name"))
    })?;
    let files = Files::new(&key, &host.key).map_err(|error| Failure::retry(format!("no file for the key: {error}")))?;
    let mut ssh = Command::new("ssh");
    ssh.args(host.arguments(&path(&files.key), &path(&files.known_hosts)))
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let ssh = ssh.spawn().map_err(|error| Failure::config(format!("ssh cannot be started in this image: {error}")))?;
    let talked = talk(ssh, &whole_program(&values, &program));
    let talked = talked.map_err(|error| Failure::retry(format!("the connection to {}: {error}", host.name)))?;
    outcome(&host.name, &talked)
}

/// The private key and the host's key, as files that no directory has. So a process that is killed leaves no key behind.
struct Files {
    key: File,
    known_hosts: File,
}

impl Files {
    fn new(key: &[u8], host_key: &str) -> io::Result<Self> {
        // A Secret that was made by hand may lack the last end of line, without which ssh reads no key.
        let key = in_memory("key", &[key.trim_ascii_end(), b"\n"].concat())?;
        let known_hosts = in_memory("known_hosts", format!("{ALIAS} {host_key}\n").as_bytes())?;
        Ok(Self { key, known_hosts })
    }
}

/// Makes a file in memory that only its owner may read: ssh refuses a private key that others may read.
fn in_memory(name: &str, text: &[u8]) -> io::Result<File> {
    let made = match memfd_create(name, MemfdFlags::CLOEXEC | MemfdFlags::NOEXEC_SEAL) {
        // A Linux before 6.3 does not know the second flag.
        Err(Errno::INVAL) => memfd_create(name, MemfdFlags::CLOEXEC),
        made => made,
    };
    let mut file = File::from(made?);
    file.set_permissions(Permissions::from_mode(0o600))?;
    file.write_all(text)?;
    Ok(file)
}

/// Returns the path by which a child of this process opens a file. The child has no open file of this process.
fn path(file: &File) -> String {
    format!("/proc/{}/fd/{}", std::process::id(), file.as_raw_fd())
}

/// The end of a conversation.
#[derive(Debug)]
struct Talked {
    /// The host has had the lock.
    ready: bool,
    code: Option<i32>,
    /// The end of what ssh and the program said.
    said: String,
}

/// Waits until the host is ready, sends the program, and hands its output on.
fn talk(mut ssh: Child, program: &str) -> io::Result<Talked> {
    let pipes = (ssh.stdin.take(), ssh.stdout.take(), ssh.stderr.take());
    let (Some(mut input), Some(output), Some(errors)) = pipes else { return Err(io::Error::other("no pipes")) };
    let said = std::thread::spawn(move || hand_on(errors, io::stderr(), &Secrets::of_this_run()));
    let mut output = BufReader::new(output);
    let ready = is_ready(&mut output)?;
    if ready {
        // A connection that has ended shows in the exit code.
        let _ = input.write_all(program.as_bytes());
        drop(input);
        io::copy(&mut output, &mut io::stdout().lock())?;
    }
    let status: ExitStatus = ssh.wait()?;
    let said = said.join().map_err(|_| io::Error::other("its messages cannot be read"))??;
    Ok(Talked { ready, code: status.code(), said })
}

/// Reads up to the line that says that the host is ready. What a login prints before is left out.
fn is_ready(output: &mut impl BufRead) -> io::Result<bool> {
    let mut line = Vec::new();
    loop {
        line.clear();
        if output.by_ref().take(TAIL as u64).read_until(b'\n', &mut line)? == 0 {
            return Ok(false);
        }
        if line == format!("{READY}\n").as_bytes() {
            return Ok(true);
        }
    }
}

/// Copies everything to the log without the secrets of the run, and returns the end of that.
fn hand_on(mut errors: impl Read, mut log: impl Write, secrets: &Secrets) -> io::Result<String> {
    let (mut masked, mut tail, mut part) = (secrets.in_parts(), Vec::new(), [0; TAIL]);
    let mut add = |text: &[u8]| {
        tail.extend_from_slice(text);
        tail.drain(..tail.len().saturating_sub(TAIL));
        log.write_all(text)
    };
    loop {
        match errors.read(&mut part)? {
            0 => break,
            count => add(&masked.part(&part[..count]))?,
        }
    }
    add(&masked.end())?;
    Ok(String::from_utf8_lossy(&tail).into_owned())
}

/// Turns the end of a conversation into the outcome of the command.
fn outcome(host: &str, talked: &Talked) -> Result<(), Failure> {
    let said = talked.said.trim();
    match (talked.code, talked.ready) {
        (Some(0), true) => Ok(()),
        (Some(255) | None, _) if said.contains("ost key") => Err(Failure::config(format!(
            "{host} has another host key than ssh-host-key names ({said}): somebody may be in between; if the host is \
             new, correct ssh-host-key"
        ))),
        (Some(255), _) if said.contains("Permission denied") => Err(Failure::permission(format!(
            "{host} does not let the key in ({said}): write its public key into authorized_keys of ssh-user"
        ))),
        (Some(255) | None, _) => {
            Err(Failure::retry(format!("{host} cannot be reached, or the connection ended: {said}")))
        }
        (Some(75), false) => Err(Failure::retry(format!(
            "an earlier run still works on {host}, and holds ~/.flex-provisioner.lock there"
        ))),
        (Some(code), false) => {
            Err(Failure::config(format!("{host} cannot run programs (code {code}): {said}; it needs sh and flock")))
        }
        (Some(code), true) => {
            let words = said.rsplit_once(LAST_WORDS).map_or(said, |(_, words)| words.trim());
            let words = if words.is_empty() { "the program said nothing" } else { words };
            Err(Failure { code: if code == 0 { 1 } else { code }, message: words.to_owned() })
        }
    }
}

#[cfg(test)]
#[path = "on_host_tests.rs"]
mod tests;
