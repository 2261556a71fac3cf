//! The snapshot-controller of kubernetes-csi, and the custom resources of snapshots.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};

use crate::Cluster;
use crate::setup::made_by;

/// The files that `snapshotter.sh` built.
pub struct Snapshotter(PathBuf);

impl Snapshotter {
    /// Builds what is missing, which takes minutes once.
    pub fn ensure() -> Result<Self> {
        made_by("snapshotter.sh", &[]).map(Self)
    }

    /// Installs the custom resources in a cluster, and waits until they are served.
    pub fn install(&self, cluster: &Cluster) -> Result<()> {
        // Clients that watch all kinds work long on a deleted kind.
        cluster.end_with_test();
        run(cluster.kubectl().args(["apply", "--server-side", "-f"]).arg(self.0.join("crds")))?;
        let established =
            ["wait", "--for=condition=Established", "--timeout=60s", "customresourcedefinitions", "--all"];
        run(cluster.kubectl().args(established))
    }

    /// Starts the controller on a cluster, with intervals for tests. It ends with the value.
    pub fn start(&self, kubeconfig: &Path, log: &Path) -> Result<tokio::process::Child> {
        let file = std::fs::File::create(log).with_context(|| format!("create {}", log.display()))?;
        let mut command = tokio::process::Command::new(self.0.join("snapshot-controller"));
        command.arg(format!("--kubeconfig={}", kubeconfig.display()));
        command.args(["--kube-api-qps=100", "--kube-api-burst=100", "--v=5"]);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(file).kill_on_drop(true);
        command.spawn().context("start the snapshot-controller")
    }
}

fn run(command: &mut Command) -> Result<()> {
    let output = command.output().context("run kubectl")?;
    match output.status.success() {
        true => Ok(()),
        false => bail!("kubectl: {}", String::from_utf8_lossy(&output.stderr)),
    }
}
