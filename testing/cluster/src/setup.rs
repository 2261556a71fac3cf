//! The results of `setup.sh`: packages, the Kubernetes binary, the sandbox image.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};

/// The parts of the installation that are needed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Scope {
    /// etcd and the Kubernetes binary.
    ControlPlane,
    /// And all that a node needs.
    Whole,
}

/// The directory of the built files.
pub(crate) struct Cache(PathBuf);

/// Runs a script, by its path from this crate, with its progress on standard error. Returns the path that it prints last.
///
/// # Errors
/// The script cannot be run, fails, or prints no path.
pub(crate) fn made_by(script: &str, arguments: &[&str]) -> Result<PathBuf> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(script);
    let output = Command::new(&path)
        .args(arguments)
        .stdin(Stdio::null())
        .stderr(Stdio::inherit())
        .output()
        .with_context(|| format!("run {}: is it there and executable?", path.display()))?;
    if !output.status.success() {
        bail!("{} failed ({}); what to do is in its output above", path.display(), output.status);
    }
    let text = String::from_utf8(output.stdout).with_context(|| format!("the output of {script} is not text"))?;
    let last = text.lines().last().with_context(|| format!("{} printed no path", path.display()))?;
    Ok(last.into())
}

impl Cache {
    /// Runs `setup.sh`, which is quick when nothing is missing. Its progress is on standard error.
    pub(crate) fn ensure(scope: Scope) -> Result<Self> {
        let arguments: &[&str] = if scope == Scope::ControlPlane { &["--control-plane"] } else { &[] };
        made_by("setup.sh", arguments).map(Self)
    }

    /// Returns the directory of all built files.
    pub(crate) fn directory(&self) -> &Path {
        &self.0
    }

    /// Returns the Kubernetes binary.
    pub(crate) fn kubernetes(&self) -> PathBuf {
        self.0.join("kubernetes")
    }

    /// Returns the archive of the sandbox image.
    pub(crate) fn pause_image(&self) -> PathBuf {
        self.0.join("pause.tar")
    }
}

/// The sandbox image's name, under which `setup.sh` builds it.
pub(crate) const PAUSE_IMAGE: &str = "localhost/flex-provisioner/pause:1";
