//! A running cluster, as a test uses it.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Mutex;

use anyhow::{Context, Result, bail};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use kube::Client;
use nix::sys::signal::Signal;
use tokio::task::spawn_blocking;

use crate::component::{ClientLimits, Component};
use crate::control_plane::{ControlPlane, Refuge};
use crate::lent::{self, Lent};
use crate::node;
use crate::nodes::Node;
use crate::process::Identity;
use crate::readiness::{self, READY_TIMEOUT, START};
use crate::state::State;
use crate::whole::{self, Whole};

/// A running cluster: a control plane of the test's own, or a whole cluster shared by name.
#[derive(Debug)]
pub struct Cluster {
    /// The directory of its state file. Each use reads the file again: another process may have restarted a component.
    run: PathBuf,
    facts: State,
    started_now: bool,
    /// The directory of a control plane of the test's own: only such a control plane ends with this value.
    refuge: Mutex<Option<Refuge>>,
    /// Its contents at its start, if another test may get it afterwards.
    lent: Mutex<Option<Lent>>,
}

impl Cluster {
    /// Describes a control plane without nodes, of the caller's own: etcd and the API server on ports of their own in a
    /// temporary directory. It is killed when the value is dropped, and also when this process dies.
    ///
    /// ```no_run
    /// # async fn test() -> anyhow::Result<()> {
    /// use cluster::{ClientLimits, Cluster};
    ///
    /// let plain = Cluster::control_plane().await?;
    /// let more = Cluster::control_plane()
    ///     .api_server_flag("--feature-gates=CrossNamespaceVolumeDataSource=true")
    ///     .with_controller_manager(ClientLimits::Default)
    ///     .await?;
    /// # Ok(()) }
    /// ```
    pub fn control_plane() -> ControlPlane {
        ControlPlane::default()
    }

    /// Describes a whole cluster of this name; see [`Whole`] for its options and its start.
    pub fn whole(name: impl Into<String>) -> Whole {
        Whole::new(name)
    }

    /// Returns the whole cluster of this name, which must be up.
    pub async fn attach(name: &str) -> Result<Self> {
        let cluster = Self::at(&whole::run_dir(name), false)
            .with_context(|| format!("there is no cluster {name}; start it by: flex-cluster up --name {name}"))?;
        let retry = || format!("cluster {name} is broken; start it again by: flex-cluster up --name {name}");
        readiness::fail_if_dead(&cluster.facts).with_context(retry)?;
        readiness::api_server(&cluster.facts, READY_TIMEOUT).await.with_context(retry)?;
        Ok(cluster)
    }

    /// Returns the whole cluster of this name, and starts it if it is not up. It stays up until `flex-cluster down
    /// --name NAME`, so that several test binaries can use it one after another or at once.
    pub async fn shared(name: &str) -> Result<Self> {
        Whole::new(name).up().await
    }

    pub(crate) fn at(run: &Path, started_now: bool) -> Result<Self> {
        Ok(Self {
            run: run.into(),
            facts: State::load(run)?,
            started_now,
            refuge: Mutex::new(None),
            lent: Mutex::new(None),
        })
    }

    pub(crate) fn owning(facts: State, refuge: Refuge) -> Self {
        let (refuge, lent) = (Mutex::new(Some(refuge)), Mutex::new(None));
        Self { run: facts.run.clone(), facts, started_now: true, refuge, lent }
    }

    pub(crate) fn lend(&mut self, lent: Lent) {
        self.lent = Mutex::new(Some(lent));
    }

    pub(crate) fn as_lent(&self) -> Option<Lent> {
        self.lent.lock().ok()?.clone()
    }

    /// Keeps the control plane from other tests: deleting objects cannot undo the changes of this test.
    pub fn end_with_test(&self) {
        if let Ok(mut lent) = self.lent.lock() {
            *lent = None;
        }
    }

    /// Returns whether the call that returned this value started the cluster, or found it up.
    pub fn was_started_now(&self) -> bool {
        self.started_now
    }

    /// Returns the client limits with which it was started.
    pub fn limits(&self) -> ClientLimits {
        self.facts.limits
    }

    /// Returns the kubeconfig of the administrator.
    pub fn kubeconfig(&self) -> PathBuf {
        self.facts.kubeconfig()
    }

    /// Returns a client with the administrator's rights.
    pub async fn client(&self) -> Result<Client> {
        readiness::admin_client(&self.facts).await
    }

    /// Returns the kubeconfig of a component that is a client of the API server: a test may write another one, and
    /// restart the component.
    pub fn kubeconfig_of(&self, component: Component) -> PathBuf {
        self.facts.kubeconfig_of(component)
    }

    /// Returns a client that acts as this user in these groups, by impersonation: the API server decides and audits as
    /// for the user's own requests.
    pub async fn client_as(&self, user: &str, groups: &[&str]) -> Result<Client> {
        let mut config = readiness::admin_config(&self.facts).await?;
        let who = [("impersonate-user", user)].into_iter();
        for (name, value) in who.chain(groups.iter().map(|group| ("impersonate-group", *group))) {
            let value = value.parse().with_context(|| format!("{value:?} cannot be in a header"))?;
            config.headers.push((name.parse().context("a header's name")?, value));
        }
        Ok(Client::try_from(config)?)
    }

    /// Returns the directory of the components' logs, `NAME.log` each.
    pub fn log_dir(&self) -> PathBuf {
        self.facts.logs()
    }

    /// Returns the API server's audit log: each line is a JSON object, at level Metadata.
    pub fn audit_log(&self) -> PathBuf {
        self.facts.logs().join("audit.log")
    }

    /// Writes an object into etcd past the API server: for fields that the API server lets no client write, such as the
    /// creation time. `key` is that of etcd, such as `/registry/configmaps/default/name`.
    pub async fn write_to_etcd(&self, key: &str, object: &serde_json::Value) -> Result<()> {
        let encode = |text: &str| STANDARD.encode(text);
        let body = serde_json::json!({ "key": encode(key), "value": encode(&object.to_string()) });
        let request = http::Request::post("/v3/kv/put").body(body.to_string().into_bytes())?;
        let etcd = Client::try_from(kube::Config::new(self.facts.etcd_url().parse()?))?;
        let _: serde_json::Value = etcd.request(request).await.with_context(|| format!("write {key} to etcd"))?;
        Ok(())
    }

    /// Returns the name of the first node; an error if the cluster has none.
    pub fn node_name(&self) -> Result<&str> {
        self.facts.node.as_deref().with_context(|| format!("cluster {} has no node", self.facts.name))
    }

    /// Returns an address of this machine that pods reach, for a server that a test runs outside of the cluster.
    pub fn host_address(&self) -> Result<std::net::Ipv4Addr> {
        let network = self.facts.network.as_ref();
        Ok(network.with_context(|| format!("cluster {} has no network of its own", self.facts.name))?.host())
    }

    /// Lets the nodes pull from a registry that speaks plain HTTP, by its host and port. Pulls from other registries fail.
    pub fn allow_registry(&self, host: &str) -> Result<()> {
        self.nodes()?.iter().try_for_each(|node| node::allow_registry(node, host))
    }

    /// Makes the images of an archive (docker or OCI format) available to pods on all nodes. Use `imagePullPolicy: Never` or
    /// `IfNotPresent`: no registry has them.
    pub async fn import_image(&self, archive: &Path) -> Result<()> {
        let (nodes, archive) = (self.nodes()?, archive.to_owned());
        spawn_blocking(move || nodes.iter().try_for_each(|node| node::import_image(node, &archive))).await?
    }

    fn first_node(&self) -> Result<Node> {
        self.nodes()?.into_iter().next().context("a cluster with nodes has a first one")
    }

    /// Returns all nodes; an error if the cluster has none.
    fn nodes(&self) -> Result<Vec<Node>> {
        self.node_name()?;
        Ok(self.facts.nodes())
    }

    /// Returns the process of a component of the control plane or the first node, for a test that measures or disturbs it.
    pub fn pid(&self, component: Component) -> Result<i32> {
        Ok(self.identity(component)?.pid())
    }

    /// Pauses a component (SIGSTOP): its connections stay open, and it answers nothing.
    pub fn pause(&self, component: Component) -> Result<()> {
        self.end_with_test();
        self.identity(component)?.signal(Signal::SIGSTOP)
    }

    /// Resumes a paused component.
    pub fn resume(&self, component: Component) -> Result<()> {
        self.identity(component)?.signal(Signal::SIGCONT)
    }

    /// Kills a component (SIGKILL) and waits until it has ended. It stays down until [`Cluster::restart`].
    pub async fn kill(&self, component: Component) -> Result<()> {
        self.end_with_test();
        let identity = self.identity(component)?;
        spawn_blocking(move || identity.kill()).await?
    }

    /// Starts a component again, with the same arguments; kills it first if it still runs. Returns when it is ready.
    pub async fn restart(&self, component: Component) -> Result<()> {
        self.kill(component).await?;
        let mut state = State::load(&self.run)?;
        let invocation = self.invocation(&state, component)?;
        state.start(component, &invocation.program, invocation.args)?;
        match component {
            Component::Etcd | Component::ApiServer => readiness::api_server(&state, START).await,
            Component::ControllerManager => readiness::controller_manager(&state).await,
            Component::Containerd => {
                readiness::socket(&state, "containerd", &self.first_node()?.containerd_socket()).await
            }
            Component::Kubelet => readiness::node(&state, &self.first_node()?, START).await,
            Component::Scheduler | Component::Proxy => {
                readiness::port(&state, component.name(), state.health_address(component)).await
            }
        }
    }

    /// Ends a control plane of the test's own now; dropping it does the same but cannot report an error. A shared
    /// cluster keeps running.
    pub async fn stop(self) -> Result<()> {
        spawn_blocking(move || self.end()).await?
    }

    fn end(&self) -> Result<()> {
        let refuge = self.refuge.lock().ok().and_then(|mut refuge| refuge.take());
        let Some(mut refuge) = refuge else { return Ok(()) };
        // A start that failed early has no state file, and no process either.
        let state = State::load(&self.run).ok();
        let killed: Result<()> =
            state.iter().flat_map(State::all_processes).try_for_each(|(_, _, process)| process.identity.kill());
        let removed = refuge.remove();
        killed.and(removed)
    }

    /// Returns a kubectl command with this cluster's kubeconfig.
    pub fn kubectl(&self) -> Command {
        let mut command = Command::new(&self.facts.kubernetes);
        command.arg("kubectl").env("KUBECONFIG", self.kubeconfig());
        command
    }

    pub(crate) fn state(&self) -> Result<State> {
        State::load(&self.run)
    }

    fn identity(&self, component: Component) -> Result<Identity> {
        let state = State::load(&self.run)?;
        match state.processes.get(&component) {
            Some(process) => Ok(process.identity),
            None => bail!("cluster {} has no {component}", state.name),
        }
    }

    fn invocation(&self, state: &State, component: Component) -> Result<crate::process::Invocation> {
        let process = state.processes.get(&component);
        Ok(process.with_context(|| format!("cluster {} has no {component}", state.name))?.invocation.clone())
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        if let (Some(as_lent), false) = (self.as_lent(), std::thread::panicking())
            && let Some(refuge) = self.refuge.lock().ok().and_then(|mut refuge| refuge.take())
        {
            let mut again = Self::owning(self.facts.clone(), refuge);
            again.lend(as_lent);
            return lent::give_back(again);
        }
        if let Err(error) = self.end() {
            eprintln!("cluster {}: {error:#}", self.facts.name);
        }
    }
}
