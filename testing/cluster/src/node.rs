//! The programs of a node: containerd, the kubelet and kube-proxy.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result};
use nix::sys::statfs::{OVERLAYFS_SUPER_MAGIC, statfs};

use crate::authority::{Authority, write};
use crate::cgroup::Cgroup;
use crate::component::{ClientLimits, Component};
use crate::network::Network;
use crate::nodes::Node;
use crate::process::run;
use crate::setup::PAUSE_IMAGE;
use crate::state::State;

/// The directories where packages install the CNI plugins; Debian's first.
const CNI_DIRS: [&str; 2] = ["/usr/lib/cni", "/opt/cni/bin"];

/// Starts containerd.
pub(crate) fn start_containerd(state: &mut State, network: &Network, node: &Node) -> Result<()> {
    let root = node.root.join("containerd");
    let registry = node.root.join("registry");
    let cni = node.root.join("cni");
    network.write_cni(&cni, node, &state.name)?;
    // Pulls fail at once instead of waiting for name servers that no test may depend on.
    direct_pulls(&registry.join("_default"), "http://127.0.0.1:1")?;
    fs::create_dir_all(&root)?;
    // Overlays cannot be stacked: inside a container only the slower driver works.
    let stacked = statfs(&root).is_ok_and(|found| found.filesystem_type() == OVERLAYFS_SUPER_MAGIC);
    let snapshotter = if stacked { "native" } else { "overlayfs" };
    let plugins = CNI_DIRS.into_iter().find(|dir| Path::new(dir).join("bridge").exists()).unwrap_or(CNI_DIRS[0]);
    let config = node.root.join("containerd.toml");
    write(
        &config,
        &format!(
            r#"version = 2
root = "{root}"
state = "{run}/containerd"
disabled_plugins = ["io.containerd.snapshotter.v1.btrfs", "io.containerd.snapshotter.v1.devmapper", "io.containerd.snapshotter.v1.zfs", "io.containerd.snapshotter.v1.aufs", "io.containerd.tracing.processor.v1.otlp", "io.containerd.internal.v1.tracing"]
[grpc]
  address = "{socket}"
[plugins."io.containerd.internal.v1.opt"]
  path = "{root}/opt"
[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "{PAUSE_IMAGE}"
  restrict_oom_score_adj = true
  netns_mounts_under_state_dir = true
  tolerate_missing_hugetlb_controller = true
[plugins."io.containerd.grpc.v1.cri".cni]
  bin_dir = "{plugins}"
  conf_dir = "{cni}"
[plugins."io.containerd.grpc.v1.cri".registry]
  config_path = "{registry}"
[plugins."io.containerd.grpc.v1.cri".containerd]
  snapshotter = "{snapshotter}"
[plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
  runtime_type = "io.containerd.runc.v2"
[plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc.options]
  SystemdCgroup = false
  Root = "{run}/runc"
"#,
            root = root.display(),
            run = node.run.display(),
            socket = node.containerd_socket().display(),
            cni = cni.display(),
            registry = registry.display(),
        ),
    )?;
    state.start_on(node, Component::Containerd, Path::new("containerd"), vec![format!("--config={}", config.display())])
}

/// Lets the node pull from a registry that speaks plain HTTP. containerd reads these files at each pull.
pub(crate) fn allow_registry(node: &Node, host: &str) -> Result<()> {
    direct_pulls(&node.root.join("registry").join(host), &format!("http://{host}"))
}

/// Writes the directory that tells containerd which server answers for a host.
fn direct_pulls(directory: &Path, server: &str) -> Result<()> {
    fs::create_dir_all(directory).with_context(|| format!("create {}", directory.display()))?;
    let hosts = format!("server = \"{server}\"\n[host.\"{server}\"]\ncapabilities = [\"pull\", \"resolve\"]\n");
    write(&directory.join("hosts.toml"), &hosts)
}

/// Brings the images of an archive to the node.
pub(crate) fn import_image(node: &Node, archive: &Path) -> Result<()> {
    fs::metadata(archive).with_context(|| format!("read the image archive {}", archive.display()))?;
    let (socket, archive) = (node.containerd_socket(), archive.display().to_string());
    let arguments =
        ["-a", &socket.display().to_string(), "-n", "k8s.io", "images", "import", &archive].map(String::from);
    run("ctr", arguments).with_context(|| format!("import {archive}"))?;
    Ok(())
}

/// Starts the kubelet.
pub(crate) fn start_kubelet(
    state: &mut State,
    node: &Node,
    authority: &Authority,
    cgroup: &Cgroup,
    limits: ClientLimits,
) -> Result<()> {
    let (name, address) = (&node.name, node.address);
    let server = node.named("kubelet");
    authority.server_files(&server, &[name], &[address.into()])?;
    let root = node.root.join("kubelet");
    share_mounts(node, &root)?;
    let config = node.root.join("kubelet.yaml");
    let client_limits = match limits {
        ClientLimits::Default => "",
        ClientLimits::Raised => "kubeAPIQPS: 1000\nkubeAPIBurst: 1000\n",
    };
    write(
        &config,
        &format!(
            r#"apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
address: {address}
healthzBindAddress: 127.0.0.1
authentication:
  anonymous: {{enabled: false}}
  webhook: {{enabled: true}}
  x509: {{clientCAFile: "{pki}/ca.crt"}}
authorization: {{mode: Webhook}}
tlsCertFile: "{pki}/{server}.crt"
tlsPrivateKeyFile: "{pki}/{server}.key"
containerRuntimeEndpoint: "unix://{socket}"
cgroupDriver: cgroupfs
cgroupRoot: "{cgroup}"
failCgroupV1: false
failSwapOn: false
localStorageCapacityIsolation: false
evictionHard:
  memory.available: 50Mi
  nodefs.available: 1%
  nodefs.inodesFree: 1%
  imagefs.available: 1%
imageGCHighThresholdPercent: 100
maxPods: 250
featureGates: {{KubeletCrashLoopBackOffMax: true}}
crashLoopBackOff:
  maxContainerRestartPeriod: 1s
registryPullQPS: 0
podLogsDir: "{own}/pod-logs"
volumePluginDir: "{own}/volume-plugins"
{client_limits}"#,
            pki = state.pki().display(),
            socket = node.containerd_socket().display(),
            cgroup = cgroup.path(),
            own = node.root.display(),
        ),
    )?;
    let args = vec![
        format!("--config={}", config.display()),
        format!("--kubeconfig={}", state.kubeconfig_of_kubelet(node).display()),
        format!("--hostname-override={name}"),
        format!("--node-ip={address}"),
        format!("--root-dir={}", root.display()),
        format!("--cert-dir={}/kubelet-pki", node.root.display()),
    ];
    state.start_kubernetes_on(node, Component::Kubelet, args)
}

/// Makes mounts below a directory visible to pods and back, as `mountPropagation: Bidirectional` needs: a machine
/// without systemd has private mounts throughout.
fn share_mounts(node: &Node, dir: &Path) -> Result<()> {
    fs::create_dir_all(dir).with_context(|| format!("create {}", dir.display()))?;
    let place = dir.display().to_string();
    node.inside("mount", &["--bind", &place, &place])
        .and_then(|_| node.inside("mount", &["--make-rshared", &place]))
        .with_context(|| format!("make {place} a shared mount"))?;
    Ok(())
}

/// Starts kube-proxy.
pub(crate) fn start_proxy(state: &mut State, network: &Network, node: &Node) -> Result<()> {
    let args = vec![
        format!("--kubeconfig={}", state.kubeconfig_of(Component::Proxy).display()),
        format!("--hostname-override={}", node.name),
        format!("--cluster-cidr={}", network.pods()),
        "--proxy-mode=nftables".into(),
        // Answers between pods on the one bridge do not pass the node's rules, unless the machine filters bridges.
        "--masquerade-all=true".into(),
        // These settings concern the whole machine, and a namespace may not change them.
        "--conntrack-max-per-core=0".into(),
        "--conntrack-tcp-timeout-established=0s".into(),
        "--conntrack-tcp-timeout-close-wait=0s".into(),
        format!("--healthz-bind-address={}", state.health_address_on(node, Component::Proxy)),
    ];
    state.start_kubernetes_on(node, Component::Proxy, args)
}
