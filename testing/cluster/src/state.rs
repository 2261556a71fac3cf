//! The description of a running cluster, in a file, so that another process can attach to it or take it down.

use std::collections::BTreeMap;
use std::fs;
use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};

use crate::component::{ClientLimits, Component};
use crate::network::Network;
use crate::nodes::Node;
use crate::process::{Identity, Invocation, Lifetime};
use crate::whole::tests_name;

/// All that is needed to use a cluster and to take it down.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct State {
    pub(crate) name: String,
    /// The directory of keys, configuration, data and logs.
    pub(crate) root: PathBuf,
    /// The directory of sockets and of this file. Its path is short, because the path of a socket is limited to 107
    /// bytes.
    pub(crate) run: PathBuf,
    /// The Kubernetes binary.
    pub(crate) kubernetes: PathBuf,
    /// The address and port of the API server.
    pub(crate) api: SocketAddr,
    /// The network, which only a whole cluster has.
    pub(crate) network: Option<Network>,
    /// The name of the first node, if the cluster has nodes.
    pub(crate) node: Option<String>,
    /// The number of further nodes.
    #[serde(default)]
    pub(crate) more_nodes: u8,
    pub(crate) lifetime: Lifetime,
    /// The client limits with which it was started.
    pub(crate) limits: ClientLimits,
    /// The directory of etcd's data, on a file system in memory where there is one.
    pub(crate) etcd_data: PathBuf,
    /// The components of the control plane and of the first node, in the order of their start.
    pub(crate) processes: BTreeMap<Component, Process>,
    /// The components of further nodes, by the node's number.
    #[serde(default)]
    pub(crate) others: BTreeMap<u8, BTreeMap<Component, Process>>,
}

/// A started component.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Process {
    pub(crate) identity: Identity,
    pub(crate) invocation: Invocation,
}

impl State {
    pub(crate) fn load(run: &Path) -> Result<Self> {
        let file = run.join("state.json");
        let text = fs::read(&file).with_context(|| format!("read {}", file.display()))?;
        serde_json::from_slice(&text).with_context(|| format!("parse {}", file.display()))
    }

    /// Writes the file beside its place and renames it, so that no reader gets half of it.
    pub(crate) fn save(&self) -> Result<()> {
        let file = self.run.join("state.json");
        let partial = self.run.join("state.json.partial");
        fs::write(&partial, serde_json::to_vec_pretty(self)?)
            .and_then(|()| fs::rename(&partial, &file))
            .with_context(|| format!("write {}", file.display()))
    }

    /// Starts a component of the control plane, or of the first node.
    pub(crate) fn start(&mut self, component: Component, program: &Path, args: Vec<String>) -> Result<()> {
        let invocation = Invocation {
            program: program.into(),
            args,
            log: self.log(component.name()),
            network: self.network.as_ref().map(|network| network.namespace.clone()),
            mounts: None,
            lavish: self.is_lavish(),
        };
        self.launch(component, 1, invocation)
    }

    /// Starts a component of a node, in the node's namespaces.
    pub(crate) fn start_on(
        &mut self,
        node: &Node,
        component: Component,
        program: &Path,
        args: Vec<String>,
    ) -> Result<()> {
        let invocation = Invocation {
            program: program.into(),
            args,
            log: self.log(&node.named(component.name())),
            network: Some(node.network.clone()),
            mounts: node.mounts(),
            lavish: self.is_lavish(),
        };
        self.launch(component, node.number, invocation)
    }

    /// Starts a component and records it at once: whatever fails later, it can be taken down.
    fn launch(&mut self, component: Component, node: u8, invocation: Invocation) -> Result<()> {
        let identity = invocation.start(self.lifetime).with_context(|| format!("start {component}"))?;
        self.processes_on(node).insert(component, Process { identity, invocation });
        self.save()
    }

    fn is_lavish(&self) -> bool {
        self.lifetime == Lifetime::Tied || self.name == tests_name()
    }

    /// Returns all nodes of a cluster, in the order of their numbers.
    pub(crate) fn nodes(&self) -> Vec<Node> {
        let (Some(name), Some(network)) = (&self.node, &self.network) else { return Vec::new() };
        let of_number = |number: u8| {
            let (name, root, run, namespace) = match number {
                1 => (name.clone(), self.root.clone(), self.run.clone(), network.namespace.clone()),
                _ => {
                    let run = self.run.join(format!("node-{number}"));
                    let namespace = run.join("netns");
                    (format!("{name}-{number}"), self.root.join(format!("node-{number}")), run, namespace)
                }
            };
            Node { number, name, root, run, address: network.node_address(number), network: namespace }
        };
        (1..=1 + self.more_nodes).map(of_number).collect()
    }

    /// Returns the processes of a node; those of the control plane are with the first one's.
    pub(crate) fn processes_on(&mut self, node: u8) -> &mut BTreeMap<Component, Process> {
        if node == 1 { &mut self.processes } else { self.others.entry(node).or_default() }
    }

    /// Returns all processes, with the number of their node.
    pub(crate) fn all_processes(&self) -> impl Iterator<Item = (u8, Component, &Process)> {
        let nodes = [(1, &self.processes)].into_iter().chain(self.others.iter().map(|(node, all)| (*node, all)));
        nodes.flat_map(|(node, all)| all.iter().map(move |(component, process)| (node, *component, process)))
    }

    /// Starts a program of Kubernetes; all of them are one binary.
    pub(crate) fn start_kubernetes(&mut self, component: Component, mut args: Vec<String>) -> Result<()> {
        args.insert(0, component.name().into());
        let kubernetes = self.kubernetes.clone();
        self.start(component, &kubernetes, args)
    }

    /// Does the same on a node.
    pub(crate) fn start_kubernetes_on(
        &mut self,
        node: &Node,
        component: Component,
        mut args: Vec<String>,
    ) -> Result<()> {
        args.insert(0, component.name().into());
        let kubernetes = self.kubernetes.clone();
        self.start_on(node, component, &kubernetes, args)
    }

    pub(crate) fn logs(&self) -> PathBuf {
        self.root.join("logs")
    }

    fn log(&self, name: &str) -> PathBuf {
        self.logs().join(format!("{name}.log"))
    }

    pub(crate) fn pki(&self) -> PathBuf {
        self.root.join("pki")
    }

    /// Returns the kubeconfig of the administrator.
    pub(crate) fn kubeconfig(&self) -> PathBuf {
        self.root.join("kubeconfig")
    }

    /// Returns the kubeconfig that a component uses.
    pub(crate) fn kubeconfig_of(&self, component: Component) -> PathBuf {
        self.root.join(format!("{component}.kubeconfig"))
    }

    /// Returns the kubeconfig of a node's kubelet.
    pub(crate) fn kubeconfig_of_kubelet(&self, node: &Node) -> PathBuf {
        self.root.join(format!("{}.kubeconfig", node.named(Component::Kubelet.name())))
    }

    /// Returns the addresses of the API server, all of which its certificate names.
    pub(crate) fn api_addresses(&self) -> Vec<IpAddr> {
        vec![self.api.ip(), IpAddr::from([127, 0, 0, 1]), self.service_address()]
    }

    /// Returns the range of service addresses.
    pub(crate) fn service_range(&self) -> String {
        match &self.network {
            Some(network) => network.services(),
            None => "10.0.0.0/24".into(),
        }
    }

    /// Returns the address of the service `kubernetes`: the first of its range.
    pub(crate) fn service_address(&self) -> IpAddr {
        match &self.network {
            Some(network) => network.kubernetes_service().into(),
            None => IpAddr::from([10, 0, 0, 1]),
        }
    }

    pub(crate) fn etcd_url(&self) -> String {
        // In a network namespace of its own the well-known port is free; elsewhere the two ports beside that of the API
        // server are.
        let port = if self.network.is_some() { 2379 } else { self.api.port() + 1 };
        format!("http://127.0.0.1:{port}")
    }

    pub(crate) fn etcd_peer_url(&self) -> String {
        let port = if self.network.is_some() { 2380 } else { self.api.port() + 2 };
        format!("http://127.0.0.1:{port}")
    }

    /// Returns the address on which a started component listens; etcd is checked through the API server.
    pub(crate) fn health_address(&self, component: Component) -> SocketAddr {
        let port = match component {
            Component::Etcd | Component::ApiServer | Component::Containerd => self.api.port(),
            // Beside the two ports of etcd, when the ports are shared with the machine.
            Component::ControllerManager if self.network.is_none() => self.api.port() + 3,
            Component::ControllerManager => 10257,
            Component::Scheduler => 10259,
            Component::Kubelet => 10250,
            Component::Proxy => 10256,
        };
        SocketAddr::new(self.api.ip(), port)
    }

    /// Returns the address on which a component of a node listens.
    pub(crate) fn health_address_on(&self, node: &Node, component: Component) -> SocketAddr {
        (node.address, self.health_address(component).port()).into()
    }
}
