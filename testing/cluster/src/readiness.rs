//! Waits until a cluster is ready, or reports why it does not become ready.

use std::net::SocketAddr;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use k8s_openapi::api::core::v1::{ConfigMap, Namespace, Node, ServiceAccount};
use kube::api::ListParams;
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Api, Client, Config, ResourceExt};
use tokio::net::{TcpStream, UnixStream};
use tokio::time::{sleep, timeout};

use crate::component::Component;
use crate::nodes;
use crate::process::tail;
use crate::state::State;

/// The time limit of a start, on a machine with other work.
pub(crate) const START: Duration = Duration::from_secs(300);
/// The time limit for a component that should be ready already.
pub(crate) const READY_TIMEOUT: Duration = Duration::from_secs(60);
/// The time limit for one answer.
const ANSWER: Duration = Duration::from_secs(10);

const INTERVAL: Duration = Duration::from_millis(50);

/// Returns a client with the administrator's rights.
pub(crate) async fn admin_client(state: &State) -> Result<Client> {
    Ok(Client::try_from(admin_config(state).await?)?)
}

/// Returns the configuration of [`admin_client`].
pub(crate) async fn admin_config(state: &State) -> Result<Config> {
    // The first provider wins; with several providers in the program, rustls would panic without a choice.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let file = state.kubeconfig();
    let kubeconfig = Kubeconfig::read_from(&file).with_context(|| format!("read {}", file.display()))?;
    let options = KubeConfigOptions::default();
    Config::from_custom_kubeconfig(kubeconfig, &options).await.with_context(|| format!("use {}", file.display()))
}

/// Waits until the API server answers and has made the objects of every cluster.
pub(crate) async fn api_server(state: &State, limit: Duration) -> Result<()> {
    let client = admin_client(state).await?;
    wait(state, "the API server", limit, || api_server_answers(client.clone())).await
}

async fn api_server_answers(client: Client) -> Result<()> {
    let request = http::Request::get("/readyz").body(Vec::new())?;
    client.request_text(request).await?;
    Api::<Namespace>::all(client).get("default").await?;
    Ok(())
}

/// Waits until the controller manager works, and each namespace has the objects that pods need.
pub(crate) async fn controller_manager(state: &State) -> Result<()> {
    let client = admin_client(state).await?;
    // After a restart the account already exists; only the port shows that the new process runs.
    let address = state.health_address(Component::ControllerManager);
    wait(state, "the controller manager", START, || controller_manager_works(client.clone(), address)).await
}

async fn controller_manager_works(client: Client, address: SocketAddr) -> Result<()> {
    TcpStream::connect(address).await?;
    for namespace in Api::<Namespace>::all(client.clone()).list(&ListParams::default()).await?.items {
        let namespace = namespace.name_any();
        Api::<ServiceAccount>::namespaced(client.clone(), &namespace).get("default").await?;
        Api::<ConfigMap>::namespaced(client.clone(), &namespace).get("kube-root-ca.crt").await?;
    }
    Ok(())
}

/// Waits until the node takes pods.
pub(crate) async fn node(state: &State, node: &nodes::Node, limit: Duration) -> Result<()> {
    let nodes = Api::<Node>::all(admin_client(state).await?);
    // A node stays ready for a while after its kubelet died; only the port shows that the new process runs.
    let address = state.health_address_on(node, Component::Kubelet);
    wait(state, "the node", limit, || node_takes_pods(nodes.clone(), &node.name, address)).await
}

async fn node_takes_pods(nodes: Api<Node>, name: &str, kubelet: SocketAddr) -> Result<()> {
    TcpStream::connect(kubelet).await?;
    let node = nodes.get(name).await?;
    let conditions = node.status.and_then(|status| status.conditions).unwrap_or_default();
    let ready = conditions.iter().find(|condition| condition.type_ == "Ready").context("no condition yet")?;
    if ready.status != "True" {
        bail!("{}", ready.message.as_deref().unwrap_or("not ready"));
    }
    if node.spec.and_then(|spec| spec.taints).is_some_and(|taints| !taints.is_empty()) {
        bail!("the node is still tainted");
    }
    Ok(())
}

/// Waits until a process listens on a port.
pub(crate) async fn port(state: &State, what: &str, address: SocketAddr) -> Result<()> {
    wait(state, what, START, || async move { TcpStream::connect(address).await.map(drop).map_err(Into::into) }).await
}

/// Waits until a connection to a socket file succeeds.
pub(crate) async fn socket(state: &State, what: &str, path: &Path) -> Result<()> {
    wait(state, what, START, || async move { UnixStream::connect(path).await.map(drop).map_err(Into::into) }).await
}

/// Repeats `check` until it succeeds, a component dies, or the time is over.
async fn wait<F>(state: &State, what: &str, limit: Duration, check: impl Fn() -> F) -> Result<()>
where
    F: Future<Output = Result<()>>,
{
    let started = Instant::now();
    loop {
        // A starting component may take a request without answering it.
        let error = match timeout(ANSWER, check()).await {
            Ok(Ok(())) => return Ok(()),
            Ok(Err(error)) => error,
            Err(_) => anyhow::anyhow!("no answer within {ANSWER:?}"),
        };
        fail_if_dead(state)?;
        if started.elapsed() > limit {
            return Err(error.context(format!(
                "{what} was not ready after {} s; logs are in {}",
                limit.as_secs(),
                state.logs().display()
            )));
        }
        sleep(INTERVAL).await;
    }
}

/// Returns an error that names the first dead component, with the end of its log.
pub(crate) fn fail_if_dead(state: &State) -> Result<()> {
    for (_, component, process) in state.all_processes() {
        if !process.identity.is_alive() {
            let log = &process.invocation.log;
            bail!(
                "{component} of cluster {} died. The end of its log {}:\n{}",
                state.name,
                log.display(),
                tail(log, 20)
            );
        }
    }
    Ok(())
}
