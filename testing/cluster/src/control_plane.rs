//! A control plane without nodes, for one test: etcd and the API server.

use std::fs;
use std::future::{Future, IntoFuture};
use std::hash::{BuildHasher, Hasher, RandomState};
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::process::{Child, Command, Stdio};

use anyhow::{Context, Result, bail};
use nix::sys::statfs::{TMPFS_MAGIC, statfs};
use tokio::task::spawn_blocking;

use crate::cluster::Cluster;
use crate::component::ClientLimits;
use crate::process::Lifetime;
use crate::setup::{Cache, Scope};
use crate::state::State;
use crate::{components, readiness};

/// The options of a control plane; awaiting it starts it.
#[derive(Clone, Debug, Default)]
pub struct ControlPlane {
    api_server_flags: Vec<String>,
    controller_manager: Option<ClientLimits>,
    controller_manager_flags: Vec<String>,
}

impl ControlPlane {
    /// Adds a flag of `kube-apiserver`, such as `--feature-gates=VolumeAttributesClass=true`.
    pub fn api_server_flag(mut self, flag: impl Into<String>) -> Self {
        self.api_server_flags.push(flag.into());
        self
    }

    /// Switches the audit log off if nothing reads it: writing it takes a fiftieth of the API server's time.
    pub fn unaudited(self) -> Self {
        self.api_server_flag("--audit-log-path=").api_server_flag("--audit-policy-file=")
    }

    /// Switches fairness between clients off, for tests with few clients: weighing each request takes a ninth of the
    /// API server's time.
    pub fn unweighed(self) -> Self {
        self.api_server_flag("--enable-priority-and-fairness=false")
    }

    /// Starts `kube-controller-manager` as well: binding of volumes, Jobs, service accounts, garbage collection.
    pub fn with_controller_manager(mut self, limits: ClientLimits) -> Self {
        self.controller_manager = Some(limits);
        self
    }

    /// Starts only those controllers that have work in a test of claims, Jobs and volumes.
    pub fn with_few_controllers(mut self) -> Self {
        self.controller_manager_flags.push(format!("--controllers={}", components::FEW_CONTROLLERS.join(",")));
        self
    }

    async fn start(self) -> Result<Cluster> {
        let cache = spawn_blocking(|| Cache::ensure(Scope::ControlPlane)).await??;
        let mut attempts = 0;
        loop {
            attempts += 1;
            match self.start_once(&cache).await {
                // Another program may take a port between this check and its use.
                Err(error) if attempts < 3 && format!("{error:#}").contains("address already in use") => {}
                other => return other,
            }
        }
    }

    async fn start_once(&self, cache: &Cache) -> Result<Cluster> {
        let refuge = Refuge::create()?;
        let dir = refuge.dir.clone();
        let mut state = State {
            name: "control-plane".into(),
            etcd_data: dir.join("etcd"),
            root: dir.clone(),
            run: dir,
            kubernetes: cache.kubernetes(),
            api: free_ports()?,
            network: None,
            node: None,
            more_nodes: 0,
            lifetime: Lifetime::Tied,
            limits: self.controller_manager.unwrap_or_default(),
            processes: Default::default(),
            others: Default::default(),
        };
        fs::create_dir_all(state.logs()).context("create the log directory")?;
        // From here on dropping the cluster stops all that was started.
        let cluster = Cluster::owning(state.clone(), refuge);
        components::write_credentials(&state)?;
        components::start_etcd(&mut state)?;
        components::start_api_server(&mut state, &self.api_server_flags)?;
        readiness::api_server(&state, readiness::START).await?;
        if let Some(limits) = self.controller_manager {
            components::start_controller_manager(&mut state, limits, &self.controller_manager_flags)?;
            readiness::controller_manager(&state).await?;
        }
        Ok(cluster)
    }
}

impl IntoFuture for ControlPlane {
    type Output = Result<Cluster>;
    type IntoFuture = Pin<Box<dyn Future<Output = Self::Output> + Send>>;

    fn into_future(self) -> Self::IntoFuture {
        Box::pin(self.start())
    }
}

/// A directory that is removed when this process ends, however it ends.
///
/// A shell outside of this process holds the other end of a pipe: when the pipe closes, it removes the directory.
#[derive(Debug)]
pub(crate) struct Refuge {
    pub(crate) dir: PathBuf,
    guard: Child,
}

impl Refuge {
    fn create() -> Result<Self> {
        let dir = tempfile::Builder::new().prefix("flex-cluster-").tempdir_in(fast_dir())?.keep();
        // The kernel kills the components at the same moment; etcd may still write during the first removal.
        let script = r#"read -r _; rm -rf -- "$1"; sleep 0.2; rm -rf -- "$1""#;
        let guard = Command::new("setsid")
            .args(["sh", "-c", script, "flex-cluster-guard"])
            .arg(&dir)
            .current_dir("/")
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .context("start the shell that cleans up after a killed test")?;
        Ok(Self { dir, guard })
    }

    /// Removes the directory and ends the shell. No process may use the directory any more.
    pub(crate) fn remove(&mut self) -> Result<()> {
        let removed = fs::remove_dir_all(&self.dir).with_context(|| format!("remove {}", self.dir.display()));
        drop(self.guard.stdin.take());
        self.guard.kill().context("end the shell that cleans up")?;
        self.guard.wait().context("wait for the shell that cleans up")?;
        removed
    }
}

/// Returns a directory in memory if there is one: etcd waits for the disk with every write, and nobody keeps data here.
pub(crate) fn fast_dir() -> PathBuf {
    let memory = Path::new("/dev/shm");
    let usable = statfs(memory).is_ok_and(|found| {
        found.filesystem_type() == TMPFS_MAGIC
            && found.blocks_available() * u64::try_from(found.block_size()).unwrap_or(0) > 1 << 30
    });
    if usable && tempfile::tempfile_in(memory).is_ok() { memory.into() } else { std::env::temp_dir() }
}

/// Returns an address whose port and the next three are free, below the ports of other servers of tests, and below the
/// range from which connections take their ports.
fn free_ports() -> Result<SocketAddr> {
    let localhost = Ipv4Addr::LOCALHOST;
    for _ in 0..200 {
        let random = RandomState::new().build_hasher().finish();
        let port = 10_000 + u16::try_from(random % 2_500)? * 4;
        let held: Result<Vec<_>, _> = (port..port + 4).map(|port| TcpListener::bind((localhost, port))).collect();
        if held.is_ok() {
            return Ok((localhost, port).into());
        }
    }
    bail!("found no four free ports between 10000 and 20000 on {localhost}")
}
