//! The common part of both servers: their installation, their ports, and waiting until they answer.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::OnceLock;
use std::sync::mpsc::{Sender, channel};
use std::thread::sleep;
use std::time::{Duration, Instant};

use crate::exchange::ask;
use crate::kept_log;

/// The time limit of a start.
const START_TIMEOUT: Duration = Duration::from_secs(180);

/// Returns the directory with the two virtual environments, and installs them if they are missing.
pub fn installed() -> &'static Path {
    static DIRECTORY: OnceLock<PathBuf> = OnceLock::new();
    DIRECTORY.get_or_init(|| {
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("setup.sh");
        let output = Command::new(&script).stdin(Stdio::null()).stderr(Stdio::inherit()).output();
        let output = output.unwrap_or_else(|error| panic!("{}: {error}", script.display()));
        assert!(output.status.success(), "{} failed: its output is above", script.display());
        let text = String::from_utf8(output.stdout).expect("a path in UTF-8");
        PathBuf::from(text.lines().last().expect("setup.sh prints where it has installed"))
    })
}

/// Returns the directory with the scripts.
pub fn lab() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("lab")
}

/// Returns a command for Python of one of the virtual environments, without warnings about deprecations in its
/// packages. The kernel kills the process when the thread that started it ends.
pub fn python(environment: &str) -> Command {
    let mut command = Command::new("setpriv");
    command.args(["--pdeathsig", "KILL", "--"]).arg(installed().join(environment).join("bin/python"));
    command.args(["-W", "ignore"]).stdin(Stdio::null());
    command
}

/// Runs a command that must succeed.
pub fn run(command: &mut Command) {
    let output = command.output().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    let text = [output.stdout, output.stderr].concat();
    assert!(output.status.success(), "{command:?}: {}", String::from_utf8_lossy(&text));
}

/// Puts a database with its tables into a directory. It is made once, and kept beside the installation.
pub fn cached_database(name: &str, folder: &Path, make: impl FnOnce()) {
    let (cached, own) = (installed().join(name), folder.join(name));
    if cached.exists() {
        fs::copy(&cached, &own).expect("the test's own directory");
        return;
    }
    make();
    // Written beside its place and renamed: another test may make its own at this moment.
    let half = installed().join(format!("{name}.{}", std::process::id()));
    fs::copy(&own, &half).expect("the cache can be written");
    fs::rename(&half, &cached).expect("the cache can be written");
}

/// Returns a port on which no process listens, and which no other test gets. Control planes have those below.
pub fn free_port() -> u16 {
    crate::port::free_port(20_000..29_000)
}

/// A server.
pub struct Server {
    process: Child,
    /// Ends the thread that started the server, when dropped. With the thread the server ends, as it does with this
    /// process.
    _thread: Sender<()>,
    log: PathBuf,
}

impl Server {
    /// Starts a server, and waits until a path on its port exists.
    ///
    /// # Panics
    /// If it does not start; its log is in the message.
    pub fn start(mut command: Command, log: &Path, port: u16, path: &str) -> Self {
        let file = fs::File::create(log).expect("the test's own directory");
        command.stdout(file.try_clone().expect("the test's own file")).stderr(file);
        let shown = format!("{command:?}");
        let (started, process) = channel();
        let (thread, end) = channel::<()>();
        std::thread::spawn(move || {
            if started.send(command.spawn()).is_ok() {
                let _ = end.recv();
            }
        });
        let process = process.recv().expect("the thread runs").unwrap_or_else(|error| panic!("{shown}: {error}"));
        let mut server = Self { process, _thread: thread, log: log.to_owned() };
        kept_log::keep_at_failure(log);
        let began = Instant::now();
        while ask(port, "GET", path, &[], None).is_none_or(|reply| reply.status != 200) {
            let ended = server.process.try_wait().expect("the test's own child");
            assert!(ended.is_none(), "{shown} ended: {ended:?}\n{}", server.log_end());
            assert!(
                began.elapsed() < START_TIMEOUT,
                "{shown} is not ready after {START_TIMEOUT:?}\n{}",
                server.log_end()
            );
            sleep(Duration::from_millis(50));
        }
        server
    }

    /// Returns the end of its log.
    pub fn log_end(&self) -> String {
        let log = fs::read_to_string(&self.log).unwrap_or_default();
        let lines: Vec<_> = log.lines().rev().take(60).collect();
        lines.into_iter().rev().collect::<Vec<_>>().join("\n")
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        kept_log::forget(&self.log);
        // Nothing of the server must remain, so it is killed.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

#[cfg(test)]
mod tests {
    use std::io::{BufRead, BufReader};

    use super::*;
    use crate::refuge::Refuge;

    /// Makes the test's copy the process that is going to be killed.
    const VICTIM: &str = "OPENSTACK_VICTIM";

    fn serve_and_wait() {
        let (folder, port) = (Refuge::new("openstack."), free_port());
        fs::write(folder.path().join("state"), "x").unwrap();
        let mut command = python("cinder");
        command.args(["-m", "http.server", "--bind", "127.0.0.1", "--directory"]).arg(folder.path());
        command.arg(port.to_string());
        // A thread starts the server and ends: the server must not end with the thread.
        let log = folder.path().join("log");
        let _server = std::thread::spawn(move || Server::start(command, &log, port, "/state")).join().unwrap();
        assert_eq!(ask(port, "GET", "/state", &[], None).unwrap().status, 200);
        println!("\nserves {port} {}", folder.path().display());
        std::thread::park();
    }

    #[test]
    fn servers_and_directories_of_a_killed_process_are_removed() {
        if std::env::var_os(VICTIM).is_some() {
            return serve_and_wait();
        }
        let mut victim = Command::new(std::env::current_exe().unwrap());
        victim.args([
            "--exact",
            "process::tests::servers_and_directories_of_a_killed_process_are_removed",
            "--nocapture",
        ]);
        let mut victim = victim.env(VICTIM, "1").stdout(Stdio::piped()).spawn().unwrap();
        let mut lines = BufReader::new(victim.stdout.take().unwrap()).lines();
        let line = lines.find_map(|line| line.unwrap().strip_prefix("serves ").map(str::to_owned));
        let line = line.expect("the process prints where it serves");
        let (port, folder) = line.split_once(' ').unwrap();
        let (port, folder): (u16, _) = (port.parse().unwrap(), Path::new(folder));
        assert!(folder.join("state").exists());
        victim.kill().unwrap();
        victim.wait().unwrap();
        let began = Instant::now();
        while folder.exists() || ask(port, "GET", "/state", &[], None).is_some() {
            assert!(began.elapsed() < START_TIMEOUT, "{line} still exists");
            sleep(Duration::from_millis(20));
        }
    }
}
