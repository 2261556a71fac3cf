//! A storage host: an ssh server of this machine, with programs that are counted and killed as those of the desk.

use std::fs;
use std::net::TcpStream;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use super::api::path_text;
use super::desk::{Desk, POINT, system, write_program};

/// A program on the host in place of the real one. It kills the shell that calls it, before the real program runs.
const COUNTED: &str = "#!/bin/dash
PATH=TOOLS:/usr/sbin:/usr/bin:/sbin:/bin
read at <FOLDER/kill-at
POINT
[ $at = 0 ] || point before
[ \"${n:-none}\" != \"$at\" ] || { kill -9 $PPID; exit 137; }
exec ${0##*/} \"$@\"
";

/// The server. It ends with the test.
pub struct Host {
    sshd: Child,
}

/// Returns a port on which no process listens, and which no other test gets.
pub fn free_port() -> u16 {
    super::port::free_port(30_000..32_700)
}

/// No step of a backend takes longer, even on a busy machine.
const GUARD: Duration = Duration::from_secs(120);

/// Waits until a check succeeds; the check returns what it has observed instead.
#[track_caller]
pub fn until(what: &str, mut check: impl FnMut() -> Result<(), String>) {
    let begun = Instant::now();
    while let Err(observed) = check() {
        assert!(begun.elapsed() < GUARD, "{what}: {observed}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Waits until a server of the test accepts connections.
#[track_caller]
pub fn answers(port: u16, server: &mut Child) {
    until(&format!("a server answers at port {port}"), || {
        let connected = TcpStream::connect(("127.0.0.1", port)).map(drop).map_err(|error| error.to_string());
        assert_eq!(server.try_wait().unwrap(), None, "the server of port {port} has ended");
        connected
    });
}

/// Returns the directory with programs that play those of a backend which this machine cannot have.
pub fn scripted() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/recipes/scripted")
}

impl Host {
    /// Starts a host for a desk, and gives the desk its parameters and its Secret. The programs with these names are
    /// counted. `tools` has programs that only the host has, and `env` variables of its sessions.
    pub fn start(desk: &mut Desk, counted: &[&str], tools: &Path, env: &[(&str, &str)]) -> Self {
        let folder = path_text(desk.path("host"));
        fs::create_dir(&folder).unwrap();
        fs::create_dir_all(desk.path("secrets/storage-host")).unwrap();
        let bin = desk.path("host/bin");
        fs::create_dir(&bin).unwrap();
        let text = COUNTED
            .replace("POINT", POINT)
            .replace("FOLDER", &path_text(desk.path("")))
            .replace("TOOLS", &path_text(tools.into()));
        write_program(&desk.path("host/counted.sh"), &text);
        for name in counted {
            symlink(desk.path("host/counted.sh"), bin.join(name)).unwrap();
        }
        let key = path_text(desk.path("secrets/storage-host/ssh-privatekey"));
        system(&format!(
            "cd {folder}; ssh-keygen -q -t ed25519 -N '' -f host-key; ssh-keygen -q -t ed25519 -N '' -f user-key
            mkdir -p /run/sshd; cp user-key.pub authorized; cp user-key {key}"
        ));
        let port = free_port();
        let env = env.iter().map(|(name, value)| format!(" {name}={value}")).collect::<String>();
        let config = format!(
            "Port {port}\nListenAddress 127.0.0.1\nHostKey {folder}/host-key\nAuthorizedKeysFile {folder}/authorized\n\
             PidFile none\nStrictModes no\nUsePAM no\nPasswordAuthentication no\nPermitRootLogin prohibit-password\n\
             MaxStartups 100\nKexAlgorithms curve25519-sha256\nSetEnv HOME={folder} PATH={}:{}:/usr/sbin:/usr/bin:/sbin:/bin{env}\n",
            path_text(bin),
            path_text(tools.into()),
        );
        fs::write(desk.path("host/config"), config).unwrap();
        let log = fs::File::create(desk.path("host/log")).unwrap();
        let mut sshd = Command::new("/usr/sbin/sshd")
            .args(["-D", "-e", "-f"])
            .arg(desk.path("host/config"))
            .stdin(Stdio::null())
            .stderr(log)
            .spawn()
            .expect("sshd is missing: see scripts/setup.sh");
        answers(port, &mut sshd);
        let key = fs::read_to_string(desk.path("host/host-key.pub")).unwrap().trim().to_owned();
        for (name, value) in [("SSH_HOST", format!("127.0.0.1:{port}")), ("SSH_HOST_KEY", key)] {
            desk.set(name, &value);
        }
        desk.set("SSH_USER", "root");
        Host { sshd }
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        let _ = self.sshd.kill();
        let _ = self.sshd.wait();
    }
}
