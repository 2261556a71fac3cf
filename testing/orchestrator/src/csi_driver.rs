//! A CSI driver that makes real volumes, as a process.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use serde_json::Value;

use crate::deployed::root;

/// The driver with real volumes, as a process that ends with the test.
pub struct RealDriver {
    process: Child,
    program: PathBuf,
    data: PathBuf,
}

impl Drop for RealDriver {
    /// Asks the process to end: it then removes its sockets, by which a kubelet knows that it is gone.
    fn drop(&mut self) {
        let asked = Command::new("kill").arg(self.process.id().to_string()).status();
        if !asked.is_ok_and(|status| status.success()) {
            let _ = self.process.kill();
        }
        let _ = self.process.wait();
    }
}

impl RealDriver {
    /// Starts the driver alone, for a control plane, with its data and its socket in a directory.
    pub fn start(directory: &Path) -> Self {
        let mut command = Command::new(built());
        let data = directory.join("data");
        let endpoint = format!("unix://{}", directory.join("csi.sock").display());
        command.args(["serve", "--node-id", "node-1", "--endpoint", &endpoint, "--data"]).arg(&data);
        command.args(["--capacity", &(20_u64 << 30).to_string()]).stderr(Stdio::null());
        Self::of(command, data)
    }

    /// Wraps the process of a command that keeps its data in a directory.
    pub fn of(mut command: Command, data: PathBuf) -> Self {
        RealDriver { program: built(), process: command.spawn().unwrap(), data }
    }

    /// Returns the volumes, snapshots and leftovers of the driver.
    pub fn list(&self) -> Value {
        let listed = Command::new(&self.program).args(["list", "--data"]).arg(&self.data).output().unwrap();
        assert!(listed.status.success(), "{}", String::from_utf8_lossy(&listed.stderr));
        serde_json::from_slice(&listed.stdout).unwrap()
    }
}

/// Returns the path of its program, built if it is missing.
fn built() -> PathBuf {
    let built = Command::new(root().join("testing/csi-driver/build.sh")).output().unwrap();
    assert!(built.status.success(), "{}", String::from_utf8_lossy(&built.stderr));
    let directory = String::from_utf8(built.stdout).unwrap();
    PathBuf::from(directory.lines().last().unwrap()).join("csi-driver")
}
