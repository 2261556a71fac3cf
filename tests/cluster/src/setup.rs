//! What `setup.sh` brings: packages, the Kubernetes binary, the sandbox image.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};

/// How much of it is needed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Scope {
    /// etcd and the Kubernetes binary.
    ControlPlane,
    /// And all that a node needs.
    Whole,
}

/// The directory with what was built.
pub(crate) struct Cache(PathBuf);

impl Cache {
    /// Runs `setup.sh`, which is quick when nothing is missing. Its progress goes to our standard error.
    pub(crate) fn ensure(scope: Scope) -> Result<Self> {
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("setup.sh");
        let mut command = Command::new(&script);
        if scope == Scope::ControlPlane {
            command.arg("--control-plane");
        }
        let output = command
            .stdin(Stdio::null())
            .stderr(Stdio::inherit())
            .output()
            .with_context(|| format!("run {}: is it there and executable?", script.display()))?;
        if !output.status.success() {
            bail!("{} failed ({}); what to do is in its output above", script.display(), output.status);
        }
        let text = String::from_utf8(output.stdout).context("the output of setup.sh is not text")?;
        let last = text.lines().last().with_context(|| format!("{} printed no directory", script.display()))?;
        Ok(Self(last.into()))
    }

    /// The Kubernetes binary.
    pub(crate) fn kubernetes(&self) -> PathBuf {
        self.0.join("kubernetes")
    }

    /// The archive of the sandbox image.
    pub(crate) fn pause_image(&self) -> PathBuf {
        self.0.join("pause.tar")
    }
}

/// The sandbox image's name; `setup.sh` builds it under this one.
pub(crate) const PAUSE_IMAGE: &str = "localhost/flex-provisioner/pause:1";
