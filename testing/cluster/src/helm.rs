//! helm, for tests of the chart.

use std::path::PathBuf;
use std::process::Command;

use anyhow::Result;

use crate::Cluster;
use crate::setup::made_by;

/// Returns where helm is. The script builds it once, which takes minutes; a second caller waits for the first.
pub fn helm() -> Result<PathBuf> {
    made_by("../../scripts/helm.sh", &[])
}

impl Cluster {
    /// Returns a helm command with this cluster's kubeconfig.
    pub fn helm(&self) -> Result<Command> {
        let mut command = Command::new(helm()?);
        command.env("KUBECONFIG", self.kubeconfig());
        Ok(command)
    }
}
