//! The network of a whole cluster: a network namespace, which one pair of interfaces joins to the machine.
//!
//! In a namespace, all ports and nftables rules of the cluster are separate from the machine's, whatever network the
//! machine has. All of them disappear with the namespace.
//!
//! ```text
//! machine  10.X.255.1 --- 10.X.255.2  node: API server, kubelet, nftables of kube-proxy
//!                         10.X.0.0/20   pods, behind a bridge
//!                         10.X.128.0/18 services
//!
//! node     10.X.255.5 --- 10.X.255.6  second node: kubelet, nftables of a kube-proxy of its own
//!                         10.X.16.0/20  its pods, behind a bridge of its own
//! ```
//!
//! Each further node has a network namespace, too, which a pair of interfaces joins to the first node.

use std::fs;
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use nix::mount::{MntFlags, umount2};
use serde::{Deserialize, Serialize};

use crate::nodes::Node;
use crate::process::run;

/// The network of one whole cluster.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Network {
    /// The file that keeps the namespace.
    pub(crate) namespace: PathBuf,
    /// The X in 10.X.0.0/16.
    block: u8,
}

impl Network {
    /// Chooses a range of addresses that the machine does not use yet.
    pub(crate) fn choose(namespace: PathBuf) -> Result<Self> {
        let used = run("ip", ["-4", "-o", "route", "show", "table", "all"])?;
        let block = (200..250)
            .find(|block| !used.split_whitespace().any(|word| word.starts_with(&format!("10.{block}."))))
            .context("the machine has routes to all of 10.200.0.0 to 10.249.0.0; a cluster needs one such /16 free")?;
        Ok(Self { namespace, block })
    }

    /// Returns the machine's address, as the cluster has it.
    pub(crate) fn host(&self) -> Ipv4Addr {
        Ipv4Addr::new(10, self.block, 255, 1)
    }

    /// Returns the first node's address, where the API server and the kubelet listen.
    pub(crate) fn node(&self) -> Ipv4Addr {
        self.node_address(1)
    }

    /// Returns the address of a node, by its number.
    pub(crate) fn node_address(&self, number: u8) -> Ipv4Addr {
        Ipv4Addr::new(10, self.block, 255, 4 * (number - 1) + 2)
    }

    /// Returns the other end's address of the pair of interfaces that joins a further node to the first one.
    fn gateway_of(&self, node: &Node) -> Ipv4Addr {
        Ipv4Addr::new(10, self.block, 255, 4 * (node.number - 1) + 1)
    }

    /// Returns the address of the service `kubernetes`.
    pub(crate) fn kubernetes_service(&self) -> Ipv4Addr {
        Ipv4Addr::new(10, self.block, 128, 1)
    }

    /// Returns the range of service addresses.
    pub(crate) fn services(&self) -> String {
        format!("10.{}.128.0/18", self.block)
    }

    /// Returns the range of pod addresses of all nodes.
    pub(crate) fn pods(&self) -> String {
        format!("10.{}.0.0/17", self.block)
    }

    /// Returns the range of pod addresses of one node.
    fn pods_of(&self, node: &Node) -> String {
        format!("10.{}.{}.0/20", self.block, 16 * (node.number - 1))
    }

    /// Returns the interface on the machine's side.
    fn interface(&self) -> String {
        format!("flex{}", self.block)
    }

    /// Makes the namespace and joins it to the machine.
    pub(crate) fn create(&self) -> Result<()> {
        let namespace = self.namespace.to_str().context("the run directory is not text")?;
        let (interface, host, node) = (self.interface(), self.host(), self.node());
        fs::write(namespace, "").with_context(|| format!("create {namespace}"))?;
        run("unshare", [&format!("--net={namespace}"), "true"])?;
        ip(&format!("link add {interface} type veth peer name eth0 netns {namespace}"))?;
        ip(&format!("addr add {host}/30 dev {interface}"))?;
        ip(&format!("link set {interface} up"))?;
        self.inside("ip link set lo up")?;
        self.inside(&format!("ip addr add {node}/30 dev eth0"))?;
        self.inside("ip link set eth0 up")?;
        self.inside(&format!("ip route add default via {host}"))?;
        self.inside(FORWARD)?;
        ip(&format!("route add 10.{}.0.0/16 via {node}", self.block))?;
        Ok(())
    }

    /// Makes the namespace of a further node, and joins it to the first one.
    pub(crate) fn join(&self, node: &Node) -> Result<()> {
        let namespace = node.network.to_str().context("the run directory is not text")?;
        let (gateway, address, pods) = (self.gateway_of(node), node.address, self.pods_of(node));
        let interface = format!("node{}", node.number);
        fs::create_dir_all(&node.run).with_context(|| format!("create {}", node.run.display()))?;
        fs::write(namespace, "").with_context(|| format!("create {namespace}"))?;
        run("unshare", [&format!("--net={namespace}"), "true"])?;
        self.inside(&format!("ip link add {interface} type veth peer name eth0 netns {namespace}"))?;
        self.inside(&format!("ip addr add {gateway}/30 dev {interface}"))?;
        self.inside(&format!("ip link set {interface} up"))?;
        inside(&node.network, "ip link set lo up")?;
        inside(&node.network, &format!("ip addr add {address}/30 dev eth0"))?;
        inside(&node.network, "ip link set eth0 up")?;
        inside(&node.network, &format!("ip route add default via {gateway}"))?;
        inside(&node.network, FORWARD)?;
        self.inside(&format!("ip route add {pods} via {address}"))?;
        Ok(())
    }

    /// Removes the namespace and with it interfaces, bridge and rules. It is no error if any of these is missing.
    pub(crate) fn remove(&self) {
        let _ = ip(&format!("link del {}", self.interface()));
        let _ = umount2(&self.namespace, MntFlags::MNT_DETACH);
        let _ = fs::remove_file(&self.namespace);
    }

    /// Runs a command in the namespace.
    fn inside(&self, command: &str) -> Result<String> {
        inside(&self.namespace, command)
    }

    /// Writes the configuration of a node's container network into `dir`.
    pub(crate) fn write_cni(&self, dir: &Path, node: &Node, name: &str) -> Result<()> {
        let data = node.root.join("cni-addresses");
        fs::create_dir_all(dir).with_context(|| format!("create {}", dir.display()))?;
        let bridge = serde_json::json!({
            "type": "bridge", "bridge": "cni0", "isGateway": true, "ipMasq": false, "hairpinMode": true,
            "ipam": {
                "type": "host-local", "dataDir": data, "ranges": [[{"subnet": self.pods_of(node)}]],
                "routes": [{"dst": "0.0.0.0/0"}],
            },
        });
        let portmap = serde_json::json!({"type": "portmap", "capabilities": {"portMappings": true}});
        let list = serde_json::json!({"cniVersion": "0.4.0", "name": name, "plugins": [bridge, portmap]});
        let file = dir.join("10-flex.conflist");
        fs::write(&file, serde_json::to_vec_pretty(&list)?).with_context(|| format!("write {}", file.display()))
    }
}

/// Makes a namespace forward packets.
const FORWARD: &str = "sh -c echo${IFS}1>/proc/sys/net/ipv4/ip_forward";

/// Runs a command in the network namespace of a file.
fn inside(namespace: &Path, command: &str) -> Result<String> {
    let namespace = format!("--net={}", namespace.display());
    run("nsenter", [namespace.as_str(), "--"].into_iter().chain(command.split(' ')))
}

fn ip(arguments: &str) -> Result<String> {
    run("ip", arguments.split(' '))
}
