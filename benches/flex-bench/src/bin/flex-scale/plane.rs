//! A control plane with a class of the orchestrator, for one measurement.

use std::collections::HashSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use cluster::{ClientLimits, Cluster, Component};
use flex_bench::audit::{self, Audit};
use flex_bench::machine::Process;
use flex_bench::many::{self, Times};
use flex_bench::objects;
use flex_bench::profile::{self, Watched};
use flex_contract::names;
use futures::{StreamExt, TryStreamExt, stream};
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::{ConfigMap, PersistentVolume, PersistentVolumeClaim, Pod, ServiceAccount};
use kube::api::{DeleteParams, ListParams};
use kube::{Api, Client, ResourceExt};
use serde::Serialize;
use serde_json::{Value, json};

use crate::orchestrator::Orchestrator;

/// The orchestrator's namespace.
pub const OWN: &str = "flex-provisioner";
/// The namespace of the config and the runs.
pub const ADMIN: &str = "admin";
/// The namespace of the claims.
pub const USER: &str = "team";
/// The number of this program's requests at one time.
const MAX_CONCURRENT: usize = many::WRITERS;
/// The time limit for one claim, and as much for each ten more.
const BIND_TIMEOUT: Duration = Duration::from_secs(60);

/// The way in which the claims of a class are served.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum How {
    /// A pod for each, 50 at one time.
    Each,
    /// The same, and 1,000 at one time.
    Wide,
    /// In batches of 250, and 1,000 at one time.
    Batches,
}

impl How {
    /// Returns the name of the way in tables.
    pub fn describe(self) -> &'static str {
        match self {
            How::Each => "a pod each",
            How::Wide => "a pod each, 1,000 at one time",
            How::Batches => "in batches",
        }
    }

    /// Returns the name of its class.
    pub fn class(self) -> &'static str {
        match self {
            How::Each => "bench",
            How::Wide => "bench-wide",
            How::Batches => "bench-batches",
        }
    }

    fn config(self) -> Value {
        let mut data = json!({
            "plugin-name": names::DEFAULT_PLUGIN, "image": "example/image", "placement": "any", "volume-sources": "nfs",
            "max-in-flight": if self == How::Each { "50" } else { "1000" }, "reclaim-policy": "Delete",
        });
        if self == How::Batches {
            data["batch-size"] = json!("250");
            data["batch-window"] = json!("1s");
        }
        data
    }
}

/// The control plane.
pub struct Plane {
    /// The cluster.
    pub cluster: Cluster,
    /// A client of an admin.
    pub client: Client,
    files: tempfile::TempDir,
}

impl Plane {
    /// Starts it. With `audited` the API server records the requests.
    ///
    /// # Errors
    /// The orchestrator does not start, or refuses the class.
    pub async fn start(audited: bool, controllers: bool) -> Result<Self> {
        let mut plane = Cluster::control_plane();
        if !audited {
            plane = plane.unaudited();
        }
        if controllers {
            plane = plane.with_controller_manager(ClientLimits::Raised);
        }
        let cluster = plane.await?;
        let plane = Plane { client: cluster.client().await?, cluster, files: tempfile::tempdir()? };
        for namespace in [OWN, ADMIN, USER] {
            let object = json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": namespace } });
            plane.create(&object).await?;
        }
        if controllers {
            plane.until_pods_may_be_made(OWN).await?;
            plane.until_pods_may_be_made(ADMIN).await?;
        }
        for how in [How::Each, How::Wide, How::Batches] {
            let class = how.class();
            let labels = json!({ names::LABEL_TYPE: names::LABEL_TYPE_CONFIG, names::LABEL_STORAGE_CLASS: class });
            plane
                .create(&json!({
                    "apiVersion": "v1", "kind": "ConfigMap", "data": how.config(),
                    "metadata": { "name": class, "namespace": ADMIN, "labels": labels },
                }))
                .await?;
            plane
                .create(&json!({
                    "apiVersion": "storage.k8s.io/v1", "kind": "StorageClass", "metadata": { "name": class },
                    "provisioner": names::DEFAULT_PROVISIONER,
                }))
                .await?;
        }
        Ok(plane)
    }

    /// Waits for the default account of a namespace: the API server refuses pods until then.
    async fn until_pods_may_be_made(&self, namespace: &str) -> Result<()> {
        let accounts: Api<ServiceAccount> = Api::namespaced(self.client.clone(), namespace);
        let began = Instant::now();
        while accounts.get_opt("default").await?.is_none() {
            ensure!(began.elapsed() < BIND_TIMEOUT, "namespace {namespace} got no default account");
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        Ok(())
    }

    /// Creates an object.
    ///
    /// # Errors
    /// The API server refuses it.
    pub async fn create(&self, object: &Value) -> Result<Value> {
        Ok(objects::create(&self.client, object).await?.1)
    }

    /// Starts an orchestrator on it, and waits until the classes are served.
    ///
    /// # Errors
    /// The classes are not served in time.
    pub async fn orchestrator(&self, program: &Path) -> Result<Orchestrator> {
        self.start_orchestrator(program, &self.kubeconfig(audit::ORCHESTRATOR, &["system:masters"])?).await
    }

    /// Does the same with the rights of an account.
    ///
    /// # Errors
    /// The orchestrator does not start, or refuses the class.
    pub async fn orchestrator_as(&self, program: &Path, account: &str) -> Result<Orchestrator> {
        self.start_orchestrator(program, &self.kubeconfig(account, &[])?).await
    }

    async fn start_orchestrator(&self, program: &Path, kubeconfig: &Path) -> Result<Orchestrator> {
        let log = self.files.path().join("orchestrator.log");
        let orchestrator = Orchestrator::start(program, kubeconfig, (OWN, ADMIN), log).await?;
        let configs: Api<ConfigMap> = Api::namespaced(self.client.clone(), ADMIN);
        let began = Instant::now();
        for how in [How::Each, How::Wide, How::Batches] {
            loop {
                let annotations = configs.get(how.class()).await?.metadata.annotations;
                match annotations.unwrap_or_default().remove(names::VERDICT) {
                    Some(verdict) if verdict.starts_with("ok") => break,
                    other => ensure!(began.elapsed() < BIND_TIMEOUT, "the config is not served: {other:?}"),
                }
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        }
        Ok(orchestrator)
    }

    /// Returns the processes for a profile.
    ///
    /// # Errors
    /// A component does not exist.
    pub fn watched(&self, orchestrator: &Orchestrator) -> Result<Watched> {
        let mut processes = vec![(profile::ORCHESTRATOR.to_owned(), orchestrator.process)];
        for component in [Component::Etcd, Component::ApiServer, Component::ControllerManager] {
            let pid = u32::try_from(self.cluster.pid(component)?)?;
            processes.push((component.name().to_owned(), Process { pid }));
        }
        Ok(Watched::new(processes, None))
    }

    /// Writes a kubeconfig with a user of its own, by which the requests are counted.
    fn kubeconfig(&self, user: &str, groups: &[&str]) -> Result<PathBuf> {
        let text = fs::read_to_string(self.cluster.kubeconfig())?;
        let mut config: Value = serde_saphyr::from_str(&text)?;
        for entry in config["users"].as_array_mut().context("a kubeconfig without users")? {
            entry["user"]["as"] = json!(user);
            if !groups.is_empty() {
                entry["user"]["as-groups"] = json!(groups);
            }
        }
        self.file("kubeconfig", &config.to_string())
    }

    /// Writes a file that goes with the control plane.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn file(&self, name: &str, text: &str) -> Result<PathBuf> {
        let path = self.files.path().join(name);
        fs::write(&path, text)?;
        Ok(path)
    }

    /// Runs kubectl as an admin, with a file as its last argument.
    ///
    /// # Errors
    /// kubectl fails; the message has its output.
    pub fn kubectl(&self, arguments: &[&str], file: &Path) -> Result<()> {
        let output = self.cluster.kubectl().args(arguments).arg(file).output()?;
        ensure!(output.status.success(), "kubectl: {}", String::from_utf8_lossy(&output.stderr));
        Ok(())
    }

    pub fn claims(&self) -> Api<PersistentVolumeClaim> {
        Api::namespaced(self.client.clone(), USER)
    }

    /// Creates claims as fast as the API server takes them, and waits until all are bound.
    ///
    /// # Errors
    /// The API server refuses a claim, or they are not bound in a long time.
    pub async fn burst(&self, how: How, size: usize) -> Result<Times> {
        self.burst_as(&self.client, how, size).await
    }

    /// Does the same by the client of a user.
    ///
    /// # Errors
    /// The API server refuses a claim, or they are not bound in a long time.
    pub async fn burst_as(&self, user: &Client, how: How, size: usize) -> Result<Times> {
        let claims = many::claims(USER, how.class(), size);
        let mut watch = many::watch(self.claims()).await?;
        many::made(user, &claims, &mut watch, many::is_bound, patience(size)?).await
    }

    /// Waits until no run is left.
    ///
    /// # Errors
    /// Runs are left after a long time.
    pub async fn no_runs(&self, size: usize) -> Result<()> {
        let jobs: Api<Job> = Api::namespaced(self.client.clone(), ADMIN);
        let pods: Api<Pod> = Api::namespaced(self.client.clone(), ADMIN);
        let all = ListParams::default();
        let leftovers =
            async || Ok(jobs.list_metadata(&all).await?.items.len() + pods.list_metadata(&all).await?.items.len());
        none_of(size, "Jobs and pods are left", leftovers).await
    }

    /// Deletes all claims, and waits until they and their volumes are gone.
    ///
    /// # Errors
    /// Objects are left after a long time.
    pub async fn clear(&self, size: usize) -> Result<()> {
        self.delete(size, |_| true).await
    }

    /// Deletes the claims whose names are `wanted`, and waits until they and their volumes are gone.
    ///
    /// # Errors
    /// Objects are left after a long time.
    pub async fn delete(&self, size: usize, wanted: impl Fn(&str) -> bool) -> Result<()> {
        // One request for all claims would end after a minute, whatever is left.
        let mut all = self.claims().list_metadata(&ListParams::default()).await?.items;
        all.retain(|claim| wanted(&claim.name_any()));
        let claims = self.claims();
        each(all.len(), async |number| {
            Ok(claims.delete(&all[number].name_any(), &DeleteParams::default()).await.map(drop)?)
        })
        .await?;
        let ids = all.iter().flat_map(|claim| [claim.name_any(), names::pv_name(&claim.uid().unwrap_or_default())]);
        let gone: HashSet<_> = ids.collect();
        let volumes: Api<PersistentVolume> = Api::all(self.client.clone());
        let leftovers = async || {
            let claims = self.claims().list_metadata(&ListParams::default()).await?.items;
            let volumes = volumes.list_metadata(&ListParams::default()).await?.items;
            let names = claims.iter().map(ResourceExt::name_any).chain(volumes.iter().map(ResourceExt::name_any));
            Ok(names.filter(|name| gone.contains(name)).count())
        };
        none_of(size, "claims and volumes are left", leftovers).await
    }

    /// Returns the audit log.
    pub fn audit(&self) -> Audit {
        Audit::of(self.cluster.audit_log())
    }
}

/// Runs a task for each of many, several at one time.
///
/// # Errors
/// The first task that failed.
pub async fn each<F: Future<Output = Result<()>>>(size: usize, work: impl FnMut(usize) -> F) -> Result<()> {
    stream::iter(0..size).map(work).buffer_unordered(MAX_CONCURRENT).try_for_each(|()| async { Ok(()) }).await
}

/// Waits until a count is zero, in a measurement of this many claims.
async fn none_of(size: usize, what: &str, count: impl AsyncFn() -> Result<usize>) -> Result<()> {
    let began = Instant::now();
    let patience = patience(size)?;
    loop {
        let remaining = count().await?;
        if remaining == 0 {
            return Ok(());
        }
        ensure!(began.elapsed() < patience, "{remaining} {what} after {patience:?}");
        // A list of many objects is work for the API server, too.
        tokio::time::sleep(Duration::from_millis(100 + size as u64 / 5)).await;
    }
}

/// Returns the time limit for this many claims.
fn patience(size: usize) -> Result<Duration> {
    Ok(BIND_TIMEOUT + BIND_TIMEOUT / 10 * u32::try_from(size / 10)?)
}
