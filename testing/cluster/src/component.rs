//! The components of a cluster.

use std::fmt;

use serde::{Deserialize, Serialize};

/// A program of the cluster, by the name of its process and log file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Component {
    /// The store of the API server.
    Etcd,
    /// `kube-apiserver`.
    ApiServer,
    /// `kube-controller-manager`: binding of volumes, Jobs, service accounts, garbage collection.
    ControllerManager,
    /// `kube-scheduler`.
    Scheduler,
    /// The container runtime of the node.
    Containerd,
    /// The node's agent.
    Kubelet,
    /// `kube-proxy`: makes service addresses reachable from pods.
    Proxy,
}

impl Component {
    /// Returns the program's name, as used for log files.
    pub fn name(self) -> &'static str {
        match self {
            Self::Etcd => "etcd",
            Self::ApiServer => "kube-apiserver",
            Self::ControllerManager => "kube-controller-manager",
            Self::Scheduler => "kube-scheduler",
            Self::Containerd => "containerd",
            Self::Kubelet => "kubelet",
            Self::Proxy => "kube-proxy",
        }
    }
}

impl fmt::Display for Component {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// The number of requests a second that the controller manager, scheduler and kubelet may send.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub enum ClientLimits {
    /// The default of Kubernetes; 20 a second for each controller of the controller manager.
    #[default]
    Default,
    /// 1,000 a second: the client limit does not bound a measurement any more.
    Raised,
}

impl ClientLimits {
    /// Returns the flags for a program that takes its limits as flags.
    pub(crate) fn flags(self) -> Vec<String> {
        match self {
            Self::Default => Vec::new(),
            Self::Raised => vec!["--kube-api-qps=1000".into(), "--kube-api-burst=1000".into()],
        }
    }
}
