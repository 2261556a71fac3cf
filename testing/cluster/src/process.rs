//! Processes that outlive a function: they end as intended, and get signals only while they belong to the cluster.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use nix::errno::Errno;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde::{Deserialize, Serialize};

/// The time limit of an end, on a machine with other work.
pub(crate) const END: Duration = Duration::from_secs(120);

/// A process id with the start time of its process. The pair never names another process, even if the id is reused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Identity {
    pid: i32,
    /// In clock ticks since boot: field 22 of `/proc/PID/stat`.
    start_time: u64,
}

/// The end of a process that nothing stops.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Lifetime {
    /// The kernel kills it when this process ends, however it ends.
    Tied,
    /// It runs in a session of its own until a command stops it.
    Detached,
}

/// A program with its arguments, complete enough to be started again.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Invocation {
    pub(crate) program: PathBuf,
    pub(crate) args: Vec<String>,
    /// The log file, to which standard output and standard error are appended.
    pub(crate) log: PathBuf,
    /// The file of the network namespace in which it runs.
    pub(crate) network: Option<PathBuf>,
    /// The file of the mount namespace in which it runs.
    #[serde(default)]
    pub(crate) mounts: Option<PathBuf>,
    /// Whether it runs for tests, which have memory to spare: it then collects garbage less often.
    #[serde(default)]
    pub(crate) lavish: bool,
}

impl Invocation {
    /// Starts the program and returns once it has a process.
    ///
    /// Each child has a thread that starts it and waits for it: the kernel sends the death signal when the *thread*
    /// that started a child ends, and a test's thread ends long before its process does.
    pub(crate) fn start(&self, lifetime: Lifetime) -> Result<Identity> {
        let mut command = self.command(lifetime)?;
        let (sender, receiver) = mpsc::channel();
        thread::Builder::new()
            .name("child".into())
            .spawn(move || match command.spawn() {
                Ok(mut child) => {
                    // The receiver waits for exactly this message; if sending fails, the receiver is gone with its
                    // process.
                    let _ = sender.send(Ok(child.id()));
                    let _ = child.wait();
                }
                Err(error) => {
                    let _ = sender.send(Err(error));
                }
            })
            .context("start a thread for a child process")?;
        let program = self.program.display();
        let pid = receiver
            .recv()
            .context("the thread of a child process ended")?
            .with_context(|| format!("start {program}"))?;
        let pid = i32::try_from(pid).context("a process number beyond i32")?;
        Identity::of(pid).with_context(|| format!("{program} ended at once; see {}", self.log.display()))
    }

    fn command(&self, lifetime: Lifetime) -> Result<Command> {
        let log = fs::File::options()
            .create(true)
            .append(true)
            .open(&self.log)
            .with_context(|| format!("open the log {}", self.log.display()))?;
        let mut texts: Vec<&OsStr> = match lifetime {
            Lifetime::Tied => ["setpriv", "--pdeathsig", "KILL", "--"].map(OsStr::new).to_vec(),
            Lifetime::Detached => vec![OsStr::new("setsid")],
        };
        let namespaces = [("net", &self.network), ("mount", &self.mounts)];
        let namespaces: Vec<String> = namespaces
            .into_iter()
            .filter_map(|(kind, file)| Some(format!("--{kind}={}", file.as_ref()?.display())))
            .collect();
        if !namespaces.is_empty() {
            texts.push(OsStr::new("nsenter"));
            texts.extend(namespaces.iter().map(OsStr::new));
            texts.push(OsStr::new("--"));
        }
        texts.push(self.program.as_os_str());
        texts.extend(self.args.iter().map(OsStr::new));
        let mut command = Command::new(texts[0]);
        command
            .args(&texts[1..])
            .current_dir("/")
            .stdin(Stdio::null())
            .stdout(log.try_clone().context("share a log between two streams")?)
            .stderr(log);
        if lifetime == Lifetime::Tied {
            // The child leaves the terminal's process group, so that an interrupt reaches the test first. setsid needs
            // the opposite: a group leader that calls it would fork, and the process id would be lost.
            command.process_group(0);
        }
        if self.lavish {
            // Garbage collection, and stacks that grow with each request, take less processor time.
            command.env("GOGC", "400").env("GODEBUG", "adaptivestackstart=1");
        }
        Ok(command)
    }
}

impl Identity {
    /// Returns the process that has this id now.
    pub(crate) fn of(pid: i32) -> Result<Self> {
        match stat(pid) {
            Some(found) => Ok(Self { pid, start_time: found.start_time }),
            None => bail!("there is no process {pid}"),
        }
    }

    pub(crate) fn pid(self) -> i32 {
        self.pid
    }

    /// Returns whether the process still runs; a dead process that was not waited for does not.
    pub(crate) fn is_alive(self) -> bool {
        stat(self.pid).is_some_and(|found| found.start_time == self.start_time && !found.is_dead())
    }

    /// Sends a signal, unless the process has ended.
    pub(crate) fn signal(self, signal: Signal) -> Result<()> {
        if !self.is_alive() {
            return Ok(());
        }
        match kill(Pid::from_raw(self.pid), signal) {
            Ok(()) | Err(Errno::ESRCH) => Ok(()),
            Err(error) => Err(error).with_context(|| format!("send {signal} to process {}", self.pid)),
        }
    }

    /// Kills the process and waits until it has ended.
    pub(crate) fn kill(self) -> Result<()> {
        self.signal(Signal::SIGKILL)?;
        self.wait(END)
    }

    fn wait(self, limit: Duration) -> Result<()> {
        let deadline = Instant::now() + limit;
        while self.is_alive() {
            if Instant::now() > deadline {
                bail!("process {} still runs after {} s", self.pid, limit.as_secs());
            }
            thread::sleep(Duration::from_millis(5));
        }
        Ok(())
    }
}

/// The fields of `/proc/PID/stat`.
struct Stat {
    state: char,
    threads: u32,
    start_time: u64,
}

impl Stat {
    /// Returns whether all threads have ended: others may still have sockets and files open after the first thread is
    /// dead.
    fn is_dead(&self) -> bool {
        matches!(self.state, 'Z' | 'X') && self.threads <= 1
    }
}

/// Reads the fields after the process's name, which may itself contain spaces and brackets.
fn stat(pid: i32) -> Option<Stat> {
    let text = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The state is field 3 of the file.
    let fields: Vec<&str> = text.rsplit_once(')')?.1.split_whitespace().collect();
    let field = |number: usize| fields.get(number - 3);
    Some(Stat {
        state: field(3)?.chars().next()?,
        threads: field(20)?.parse().ok()?,
        start_time: field(22)?.parse().ok()?,
    })
}

/// Returns the last lines of a log, for an error message.
pub(crate) fn tail(log: &Path, lines: usize) -> String {
    let text = fs::read(log).map(|bytes| String::from_utf8_lossy(&bytes).into_owned()).unwrap_or_default();
    let all: Vec<&str> = text.lines().collect();
    all[all.len().saturating_sub(lines)..].join("\n")
}

/// Runs a short command to its end; its error output becomes part of the error.
pub(crate) fn run<I, S>(program: &str, args: I) -> Result<String>
where
    I: IntoIterator<Item = S>,
    S: AsRef<OsStr>,
{
    let mut command = Command::new(program);
    command.args(args).stdin(Stdio::null());
    let output = command.output().with_context(|| format!("run {program}"))?;
    if !output.status.success() {
        bail!("{command:?} failed ({}): {}", output.status, String::from_utf8_lossy(&output.stderr).trim());
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sleeper(log: &Path) -> Invocation {
        let args = vec!["60".into()];
        Invocation { program: "sleep".into(), args, log: log.into(), network: None, mounts: None, lavish: false }
    }

    #[test]
    fn a_killed_process_is_not_alive() {
        let dir = tempfile::tempdir().unwrap();
        let process = sleeper(&dir.path().join("log")).start(Lifetime::Tied).unwrap();
        assert!(process.is_alive());
        process.kill().unwrap();
        assert!(!process.is_alive());
    }

    #[test]
    fn a_reused_process_id_is_another_process() {
        let own = Identity::of(i32::try_from(std::process::id()).unwrap()).unwrap();
        let stranger = Identity { start_time: own.start_time + 1, ..own };
        assert!(own.is_alive());
        assert!(!stranger.is_alive());
        stranger.signal(Signal::SIGKILL).unwrap();
    }

    #[test]
    fn the_tail_of_a_log_has_its_last_lines() {
        let dir = tempfile::tempdir().unwrap();
        let log = dir.path().join("log");
        fs::write(&log, "a\nb\nc\n").unwrap();
        assert_eq!(tail(&log, 2), "b\nc");
        assert_eq!(tail(&log, 9), "a\nb\nc");
    }
}
