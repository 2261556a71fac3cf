//! A real NFS server for tests: nfs-ganesha from the Debian packages `nfs-ganesha` and `nfs-ganesha-vfs`. It serves a
//! temporary directory on a free port, and ends when the value is dropped.
//!
//! It listens on all addresses, so that pods reach it by the node's. It speaks only NFSv4: version 3 would need a
//! portmapper, of which a machine has only one.

mod front;
mod port;
mod wire;
mod xattrs;

use std::fs;
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

pub use front::{Answer, Front, Operation};
pub use xattrs::Xattrs;

/// The time limit of a start.
const START_TIMEOUT: Duration = Duration::from_secs(120);

/// The options of an export.
#[derive(Clone, Copy, Debug, Default)]
pub struct Options {
    /// Whether clients may only read.
    pub read_only: bool,
    /// Whether root on a client is nobody on the server.
    pub root_squash: bool,
    /// Whether the server names owners by numbers alone, and not by the names of its machine.
    pub numeric_owners: bool,
}

/// A running server.
pub struct Ganesha {
    process: Child,
    folder: tempfile::TempDir,
    address: Ipv4Addr,
    port: u16,
}

impl Ganesha {
    /// The path under which the directory is exported.
    pub const EXPORT: &'static str = "/exports/data";

    /// Starts a server and waits until it answers.
    ///
    /// # Panics
    /// If the packages are missing or the server does not come up; its log is in the message.
    pub fn start(options: Options) -> Self {
        Self::start_at(Ipv4Addr::LOCALHOST, None, options)
    }

    /// Starts a server for clients that use this address, and waits until it answers. On any address but the usual one, it
    /// listens on this address alone, so that several servers can have one port.
    ///
    /// # Panics
    /// As [`Ganesha::start`].
    pub fn start_at(address: Ipv4Addr, port: Option<u16>, options: Options) -> Self {
        let folder = tempfile::Builder::new().prefix("ganesha.").tempdir().expect("a temporary directory");
        for (name, mode) in [("export", 0o777), ("recovery", 0o700)] {
            let path = folder.path().join(name);
            fs::create_dir(&path).expect("a directory in a fresh temporary directory");
            fs::set_permissions(&path, fs::Permissions::from_mode(mode)).expect("the test's own directory");
        }
        let port = port.unwrap_or_else(free_port);
        let config = folder.path().join("ganesha.conf");
        fs::write(&config, configuration(folder.path(), address, port, options)).expect("the test's own directory");
        let process = process(folder.path());
        let mut server = Self { process, folder, address, port };
        server.wait_until_ready();
        server
    }

    /// Ends the server. Its files stay.
    ///
    /// # Panics
    /// If the process cannot be ended.
    pub fn stop(&mut self) {
        self.process.kill().expect("the test's own child");
        self.process.wait().expect("the test's own child");
    }

    /// Starts the server again with the same files.
    ///
    /// # Panics
    /// As [`Ganesha::start`].
    pub fn start_again(&mut self) {
        fs::remove_file(self.folder.path().join("log")).expect("the test's own directory");
        self.process = process(self.folder.path());
        self.wait_until_ready();
    }

    /// Returns the names at the top of the exported directory on this machine, sorted, without hidden ones.
    ///
    /// # Panics
    /// If the directory cannot be read.
    pub fn names(&self) -> Vec<String> {
        let entries = fs::read_dir(self.directory()).expect("the test's own directory");
        let names = entries.map(|entry| entry.expect("an entry").file_name().to_string_lossy().into_owned());
        let mut names: Vec<String> = names.filter(|name| !name.starts_with('.')).collect();
        names.sort();
        names
    }

    /// Returns the port on which it listens.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Returns the directory that it exports, on this machine.
    pub fn directory(&self) -> PathBuf {
        self.folder.path().join("export")
    }

    /// Lists the names at the top of the export as a client gets them (with `nfs-ls` of libnfs-utils), sorted.
    pub fn list(&self, path: &str) -> Vec<String> {
        let output = self.client("nfs-ls", path, &[]);
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(output.status.success(), "nfs-ls {path}: {text}{}", String::from_utf8_lossy(&output.stderr));
        let mut names: Vec<String> =
            text.lines().filter_map(|line| line.split_whitespace().last()).map(str::to_owned).collect();
        names.retain(|name| !name.starts_with('.'));
        names.sort();
        names
    }

    /// Runs a program of libnfs-utils on a path within the export; the URL is its first argument.
    pub fn client(&self, program: &str, path: &str, more: &[&str]) -> Output {
        let url = format!("nfs://127.0.0.1{}/{path}?version=4&nfsport={}", Self::EXPORT, self.port);
        Command::new(program)
            .arg(url)
            .args(more)
            .stdin(Stdio::null())
            .output()
            .unwrap_or_else(|error| panic!("{program}: {error}; install libnfs-utils"))
    }

    fn wait_until_ready(&mut self) {
        let begin = Instant::now();
        let log = self.folder.path().join("log");
        loop {
            let log_text = fs::read_to_string(&log).unwrap_or_default();
            let address = SocketAddr::from((self.address, self.port));
            if log_text.contains("NFS SERVER INITIALIZED") && TcpStream::connect(address).is_ok() {
                return;
            }
            let ended = self.process.try_wait().expect("the test's own child");
            assert!(ended.is_none(), "ganesha.nfsd ended: {ended:?}\n{log_text}");
            assert!(begin.elapsed() < START_TIMEOUT, "ganesha.nfsd is not ready after {START_TIMEOUT:?}\n{log_text}");
            sleep(Duration::from_millis(50));
        }
    }
}

impl Drop for Ganesha {
    fn drop(&mut self) {
        // Nothing of the server must remain, so it is killed.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// Starts the program with the configuration in its directory.
fn process(folder: &Path) -> Child {
    let mut command = Command::new("ganesha.nfsd");
    for (flag, file) in [("-f", "ganesha.conf"), ("-L", "log"), ("-p", "pid")] {
        command.arg(flag).arg(folder.join(file));
    }
    command.arg("-F").stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    command.spawn().unwrap_or_else(|error| panic!("ganesha.nfsd: {error}; install nfs-ganesha and nfs-ganesha-vfs"))
}

/// Returns a port on which no process listens, and which no other test gets.
pub fn free_port() -> u16 {
    port::free_port(30_000..32_700)
}

fn configuration(folder: &Path, address: Ipv4Addr, port: u16, options: Options) -> String {
    let folder = folder.display();
    let access = if options.read_only { "RO" } else { "RW" };
    let squash = if options.root_squash { "Root_Squash" } else { "No_Root_Squash" };
    let numeric = options.numeric_owners;
    let bind = match address {
        Ipv4Addr::LOCALHOST => String::new(),
        other => format!("Bind_addr = {other}; "),
    };
    format!(
        "NFS_CORE_PARAM {{ {bind}Protocols = 4; NFS_Port = {port}; Enable_NLM = false; Enable_RQUOTA = false; \
         Enable_UDP = none; }}\n\
         NFSv4 {{ Graceless = true; Only_Numeric_Owners = {numeric}; RecoveryBackend = fs; RecoveryRoot = {folder}/recovery; }}\n\
         NFS_KRB5 {{ Active_krb5 = false; }}\n\
         EXPORT {{ Export_Id = 1; Path = {folder}/export; Pseudo = {}; Protocols = 4; Access_Type = {access}; \
         Squash = {squash}; SecType = sys; FSAL {{ Name = VFS; }} }}\n",
        Ganesha::EXPORT
    )
}
