//! A node of a running cluster, as a test uses it.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use tokio::task::spawn_blocking;

use crate::cluster::Cluster;
use crate::component::Component;
use crate::nodes::Node;
use crate::readiness::{self, START};
use crate::state::{Process, State};

/// The answer of a containerd that has just started.
const NOT_YET: &str = "server is not initialized yet";

/// A node of a running whole cluster.
#[derive(Debug)]
pub struct ClusterNode {
    /// The directory of the cluster's state file.
    state: PathBuf,
    node: Node,
}

impl Cluster {
    /// Returns a node by its number, from 1.
    ///
    /// # Errors
    /// The cluster has fewer nodes.
    pub fn node(&self, number: u8) -> Result<ClusterNode> {
        let state = self.state()?;
        let node = state.nodes().into_iter().find(|node| node.number == number);
        let node = node.with_context(|| format!("cluster {} has no node {number}", state.name))?;
        Ok(ClusterNode { state: state.run, node })
    }
}

impl ClusterNode {
    /// Returns the name of the Node object.
    pub fn name(&self) -> &str {
        &self.node.name
    }

    /// Returns the place on the machine of a path of this node. A further node has its own `/var/lib`, `/var/log`,
    /// `/srv` and `/mnt`. File systems that are mounted there on the node are not seen at the returned place.
    pub fn on_machine(&self, path: impl AsRef<Path>) -> PathBuf {
        self.node.on_machine(path.as_ref())
    }

    /// Runs a command with the mounts and the network of the node, and returns its output.
    pub fn run(&self, program: &str, arguments: &[&str]) -> Result<String> {
        self.node.inside(program, arguments)
    }

    /// Kills the kubelet and containerd, which the API server takes for the end of the node. Its containers continue.
    pub async fn stop(&self) -> Result<()> {
        let state = State::load(&self.state)?;
        for component in [Component::Kubelet, Component::Containerd] {
            let identity = self.process(&state, component)?.identity;
            spawn_blocking(move || identity.kill()).await??;
        }
        Ok(())
    }

    /// Starts the kubelet and containerd again, and waits until the node is ready.
    pub async fn start(&self) -> Result<()> {
        let mut state = State::load(&self.state)?;
        self.start_again(&mut state, Component::Containerd)?;
        // The kubelet is still down.
        let mut without_kubelet = state.clone();
        without_kubelet.processes_on(self.node.number).remove(&Component::Kubelet);
        readiness::socket(&without_kubelet, "containerd", &self.node.containerd_socket()).await?;
        let mut attempts = 0;
        loop {
            attempts += 1;
            self.start_again(&mut state, Component::Kubelet)?;
            match readiness::node(&state, &self.node, START).await {
                // While containerd looks for the containers of before, it refuses a kubelet, which then ends.
                Err(error) if attempts < 20 && format!("{error:#}").contains(NOT_YET) => {}
                other => return other,
            }
        }
    }

    fn start_again(&self, state: &mut State, component: Component) -> Result<()> {
        let invocation = self.process(state, component)?.invocation;
        state.start_on(&self.node, component, &invocation.program, invocation.args)
    }

    fn process(&self, state: &State, component: Component) -> Result<Process> {
        let found = state.clone().processes_on(self.node.number).remove(&component);
        found.with_context(|| format!("node {} has no {component}", self.node.name))
    }
}
