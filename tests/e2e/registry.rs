//! A real registry of images for tests: the program of the Debian package `docker-registry`.

use std::fs::{self, File};
use std::net::{Ipv4Addr, TcpStream};
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

/// How long the registry may take to come up.
const START_TIMEOUT: Duration = Duration::from_secs(120);

/// A running registry, with its images in a temporary directory. It speaks plain HTTP, and ends when the value is
/// dropped.
pub struct Registry {
    process: Child,
    folder: tempfile::TempDir,
    host: String,
}

impl Registry {
    /// Starts a registry on an address of this machine, and waits until it answers.
    ///
    /// # Panics
    /// If the package is missing or the registry does not come up; its log is in the message.
    pub fn start(address: Ipv4Addr) -> Self {
        let folder = tempfile::Builder::new().prefix("registry.").tempdir().unwrap();
        let port = ganesha::free_port();
        let host = format!("{address}:{port}");
        let (config, images) = (folder.path().join("config.yml"), folder.path().join("images"));
        fs::create_dir(&images).unwrap();
        fs::write(&config, configuration(&host, &images.display().to_string())).unwrap();
        let log = File::create(folder.path().join("log")).unwrap();
        let mut command = Command::new("docker-registry");
        // Its own variables begin like this, and change its configuration.
        for (name, _) in std::env::vars_os().filter(|(name, _)| name.to_string_lossy().starts_with("REGISTRY")) {
            command.env_remove(name);
        }
        command.arg("serve").arg(&config).stdin(Stdio::null()).stdout(log.try_clone().unwrap()).stderr(log);
        let process =
            command.spawn().unwrap_or_else(|error| panic!("docker-registry: {error}; run scripts/setup.sh --test"));
        let mut registry = Self { process, folder, host };
        registry.wait_until_ready();
        registry
    }

    /// The host and port by which images are named.
    pub fn host(&self) -> &str {
        &self.host
    }

    fn wait_until_ready(&mut self) {
        let began = Instant::now();
        while TcpStream::connect(&self.host).is_err() {
            let log_text = || fs::read_to_string(self.folder.path().join("log")).unwrap_or_default();
            let ended = self.process.try_wait().unwrap();
            assert!(ended.is_none(), "docker-registry ended: {ended:?}\n{}", log_text());
            assert!(
                began.elapsed() < START_TIMEOUT,
                "docker-registry is not ready after {START_TIMEOUT:?}\n{}",
                log_text()
            );
            sleep(Duration::from_millis(50));
        }
    }
}

impl Drop for Registry {
    fn drop(&mut self) {
        // Its images go with it, so that it need not be asked.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

fn configuration(host: &str, images: &str) -> String {
    format!(
        r#"version: 0.1
log:
  level: warn
  accesslog:
    disabled: true
storage:
  filesystem:
    rootdirectory: {images}
http:
  addr: {host}
"#
    )
}
