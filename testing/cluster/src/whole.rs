//! Whole clusters by name: start, stop and status.

use std::fs::{self, File};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use nix::unistd::geteuid;
use tokio::task::spawn_blocking;

use crate::cgroup::Cgroup;
use crate::cluster::Cluster;
use crate::component::{ClientLimits, Component};
use crate::control_plane::fast_dir;
use crate::network::Network;
use crate::nodes::MOST_NODES;
use crate::process::Lifetime;
use crate::readiness::{self, READY_TIMEOUT, START};
use crate::setup::{Cache, Scope};
use crate::state::State;
use crate::{components, node, teardown};

/// The options of a whole cluster.
#[derive(Clone, Debug)]
pub struct Whole {
    name: String,
    dir: Option<PathBuf>,
    limits: ClientLimits,
    nodes: u8,
}

/// The health of a whole cluster.
#[derive(Debug)]
pub enum Health {
    /// No cluster of this name exists.
    Down,
    /// All of its components run and the API server answers.
    Up,
    /// It was started, and does not work; with the reason.
    Broken(anyhow::Error),
}

impl Whole {
    pub(crate) fn new(name: impl Into<String>) -> Self {
        Self { name: name.into(), dir: None, limits: ClientLimits::Default, nodes: 1 }
    }

    /// Sets the directory of keys, data and logs, in place of `/var/lib/flex-cluster/NAME`. It is removed with the
    /// cluster.
    pub fn dir(mut self, dir: impl Into<PathBuf>) -> Self {
        self.dir = Some(dir.into());
        self
    }

    /// Sets the client limits of controller manager, scheduler and kubelet.
    pub fn limits(mut self, limits: ClientLimits) -> Self {
        self.limits = limits;
        self
    }

    /// Sets the number of nodes, of which each has a containerd, a kubelet and a kube-proxy of its own.
    pub fn nodes(mut self, nodes: u8) -> Self {
        self.nodes = nodes;
        self
    }

    /// Starts the cluster unless it is up, and waits until it is ready. A broken one is taken down first.
    pub async fn up(self) -> Result<Cluster> {
        check_name(&self.name)?;
        require_root()?;
        if self.nodes > MOST_NODES {
            bail!("a cluster has at most {MOST_NODES} nodes, not {}", self.nodes);
        }
        let scope = if self.nodes > 0 { Scope::Whole } else { Scope::ControlPlane };
        let cache = spawn_blocking(move || Cache::ensure(scope)).await??;
        let _lock = lock().await?;
        match health(&self.name).await {
            Health::Up => return self.attach(),
            Health::Broken(_) => teardown::take_down(&self.name, false)?,
            Health::Down => {}
        }
        match self.start(&cache).await {
            Ok(cluster) => Ok(cluster),
            Err(error) => {
                let error = error.context(format!(
                    "cluster {} did not start; what was started is stopped, its logs stay until the next start",
                    self.name
                ));
                match teardown::take_down(&self.name, true) {
                    Ok(()) => Err(error),
                    Err(second) => Err(error.context(format!("and it could not be taken down: {second:#}"))),
                }
            }
        }
    }

    /// Attaches to a running cluster, if it has the requested options.
    fn attach(&self) -> Result<Cluster> {
        let cluster = Cluster::at(&run_dir(&self.name), false)?;
        let state = cluster.state()?;
        let retry = format!("take it down first: flex-cluster down --name {}", self.name);
        let nodes = state.nodes().len();
        if usize::from(self.nodes) != nodes {
            bail!("cluster {} is up with {nodes} nodes, not {}; {retry}", self.name, self.nodes);
        }
        if self.limits != state.limits {
            bail!("cluster {} is up with other client limits; {retry}", self.name);
        }
        Ok(cluster)
    }

    async fn start(&self, cache: &Cache) -> Result<Cluster> {
        let mut state = self.prepare(cache)?;
        let network = state.network.clone().context("a whole cluster has a network")?;
        network.create()?;
        let nodes = state.nodes();
        let program = cache.directory();
        for node in nodes.iter().filter(|node| !node.is_first()) {
            network.join(node)?;
            node.create_mounts(&[&state.root, program])?;
        }
        let authority = components::write_credentials(&state)?;
        components::start_etcd(&mut state)?;
        components::start_api_server(&mut state, &[])?;
        for node in &nodes {
            node::start_containerd(&mut state, &network, node)?;
        }
        for node in &nodes {
            readiness::socket(&state, "containerd", &node.containerd_socket()).await?;
            node::import_image(node, &cache.pause_image())?;
        }
        readiness::api_server(&state, START).await?;
        for node in &nodes {
            let cgroup = Cgroup::of_node(&self.name, node)?;
            cgroup.create()?;
            node::start_kubelet(&mut state, node, &authority, &cgroup, self.limits)?;
        }
        components::start_controller_manager(&mut state, self.limits, &[])?;
        components::start_scheduler(&mut state, self.limits)?;
        for node in &nodes {
            node::start_proxy(&mut state, &network, node)?;
        }
        readiness::controller_manager(&state).await?;
        for node in &nodes {
            readiness::node(&state, node, START).await?;
        }
        if self.nodes > 0 {
            let service = (state.service_address(), 443).into();
            readiness::port(&state, "the service address of the API server", service).await?;
        }
        Cluster::at(&state.run, true)
    }

    /// Makes the directories and records the programs, before any is started.
    fn prepare(&self, cache: &Cache) -> Result<State> {
        let run = run_dir(&self.name);
        fs::create_dir_all(&run).with_context(|| format!("create {}", run.display()))?;
        let root = match &self.dir {
            Some(dir) => std::path::absolute(dir)?,
            None => default_root(&self.name),
        };
        // `down` removes this directory with everything in it: this program must have made it.
        let taken = fs::read_dir(&root).is_ok_and(|mut entries| entries.next().is_some());
        if taken && !root.join(teardown::MARK).exists() {
            bail!("{} holds something else; give an empty or new directory with --dir", root.display());
        }
        teardown::remove_root(&root, false)?;
        let etcd_data = fast_dir().join(format!("flex-cluster-{}-etcd", self.name));
        teardown::remove_all(&etcd_data)?;
        fs::create_dir_all(root.join("logs")).with_context(|| format!("create {}", root.display()))?;
        fs::write(root.join(teardown::MARK), "A cluster of flex-cluster; removed by flex-cluster down.\n")?;
        let network = Network::choose(run.join("netns"))?;
        let state = State {
            name: self.name.clone(),
            root,
            kubernetes: cache.kubernetes(),
            api: (network.node(), 6443).into(),
            etcd_data,
            network: Some(network),
            node: (self.nodes > 0).then(|| format!("{}-node", self.name)),
            more_nodes: self.nodes.saturating_sub(1),
            limits: self.limits,
            lifetime: Lifetime::Detached,
            processes: Default::default(),
            others: Default::default(),
            run,
        };
        state.save()?;
        Ok(state)
    }
}

/// Returns the health of the whole cluster of this name.
pub async fn health(name: &str) -> Health {
    let run = run_dir(name);
    if !run.join("state.json").exists() {
        return Health::Down;
    }
    let check = async {
        let state = State::load(&run)?;
        readiness::fail_if_dead(&state)?;
        if state.processes.is_empty() {
            bail!("its start was interrupted");
        }
        readiness::api_server(&state, READY_TIMEOUT).await?;
        for node in state.nodes() {
            readiness::node(&state, &node, READY_TIMEOUT).await?;
        }
        Ok(())
    };
    match check.await {
        Ok(()) => Health::Up,
        Err(error) => Health::Broken(error),
    }
}

/// Stops a whole cluster and removes all that it left: pods, mounts, network, directories. A missing cluster is no
/// error. Returns whether there was one.
pub async fn down(name: &str) -> Result<bool> {
    check_name(name)?;
    require_root()?;
    let _lock = lock().await?;
    let there = run_dir(name).exists();
    let name = name.to_owned();
    spawn_blocking(move || teardown::take_down(&name, false)).await??;
    Ok(there)
}

/// Returns the name of the cluster that the tests of a checkout share: the value of `FLEX_TEST_CLUSTER`, or else a name
/// from the path of the checkout, so that the tests of two checkouts do not disturb each other.
pub fn tests_name() -> String {
    if let Some(name) = std::env::var("FLEX_TEST_CLUSTER").ok().filter(|name| !name.is_empty()) {
        return name;
    }
    let mut hasher = DefaultHasher::new();
    Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2).hash(&mut hasher);
    format!("test-{:06x}", hasher.finish() & 0xff_ffff)
}

/// Returns the directory of the sockets and the state file of a whole cluster.
pub(crate) fn run_dir(name: &str) -> PathBuf {
    Path::new("/run/flex-cluster").join(name)
}

/// Returns the directory of all other files, unless another one was requested.
pub(crate) fn default_root(name: &str) -> PathBuf {
    Path::new("/var/lib/flex-cluster").join(name)
}

/// Checks the name, which becomes part of paths, of the node's name and of a control group.
fn check_name(name: &str) -> Result<()> {
    let good = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
    if name.is_empty() || name.len() > 20 || !name.chars().all(good) || name.starts_with('-') || name.ends_with('-') {
        bail!("{name:?} cannot name a cluster: 1 to 20 of a-z, 0-9 and -, not - at the ends");
    }
    Ok(())
}

fn require_root() -> Result<()> {
    if !geteuid().is_root() {
        bail!("a whole cluster makes mounts, control groups and network namespaces: run this as root");
    }
    Ok(())
}

/// Allows one start or stop at a time on this machine, because free addresses are chosen. The lock ends when it is
/// dropped.
async fn lock() -> Result<File> {
    let path = "/run/lock/flex-cluster.lock";
    spawn_blocking(move || {
        fs::create_dir_all("/run/lock")?;
        let file = File::options().create(true).truncate(false).write(true).open(path)?;
        file.lock()?;
        Ok(file)
    })
    .await?
    .map_err(|error: std::io::Error| anyhow::Error::new(error).context(format!("lock {path}")))
}

/// Describes the running processes, for a person.
impl Cluster {
    /// Prints a line for each component: its name, process id and whether it runs.
    pub fn describe(&self) -> Result<String> {
        let state = self.state()?;
        let line = |(node, component, process): (u8, Component, &crate::state::Process)| {
            let state = if process.identity.is_alive() { "runs" } else { "is dead" };
            let of_node = if node == 1 { String::new() } else { format!(" of node {node}") };
            let component = format!("{component}{of_node}");
            format!("{component:<24} {:>8} {state}\n", process.identity.pid())
        };
        Ok(state.all_processes().map(line).collect())
    }
}
