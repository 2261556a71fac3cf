//! Directories that are removed with the process.

use std::fs;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

/// A directory that is removed when it is dropped, and also when this process ends without that: a static value is
/// never dropped, and a test may be killed.
///
/// A shell outside of this process holds the other end of a pipe: when the pipe closes, it removes the directory.
pub struct Refuge {
    directory: PathBuf,
    guard: Child,
}

impl Refuge {
    /// Makes a directory whose name begins with a text.
    ///
    /// # Panics
    /// If the machine does not allow it.
    pub fn new(prefix: &str) -> Self {
        let directory = tempfile::Builder::new().prefix(prefix).tempdir().expect("a temporary directory").keep();
        // Servers are killed at the same moment, and may still write during the first removal.
        let script = r#"read -r _; rm -rf -- "$1"; sleep 0.2; rm -rf -- "$1""#;
        let guard = Command::new("sh")
            .args(["-c", script, "openstack-guard"])
            .arg(&directory)
            // An interrupt of the terminal is for the test, and the shell cleans up after it.
            .process_group(0)
            .current_dir("/")
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("a shell");
        Self { directory, guard }
    }

    /// Returns its path.
    pub fn path(&self) -> &Path {
        &self.directory
    }
}

impl Drop for Refuge {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.directory);
        let _ = self.guard.kill();
        let _ = self.guard.wait();
    }
}
