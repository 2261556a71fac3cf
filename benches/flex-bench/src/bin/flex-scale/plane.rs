//! A control plane with a class of ours on it, for one measurement.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use cluster::{ClientLimits, Cluster};
use contract::names;
use flex_bench::objects;
use futures::{StreamExt, TryStreamExt, stream};
use k8s_openapi::api::core::v1::{ConfigMap, PersistentVolume, PersistentVolumeClaim, ServiceAccount};
use kube::api::{DeleteParams, ListParams};
use kube::{Api, Client};
use serde_json::{Value, json};

use crate::orchestrator::Orchestrator;

/// Where the orchestrator lives.
pub const OWN: &str = "flex-provisioner";
/// Where the config is, and the runs are.
pub const ADMIN: &str = "admin";
/// Where the claims are.
pub const USER: &str = "team";
/// The class.
pub const CLASS: &str = "bench";
/// As whom the orchestrator speaks to the API server.
pub const ORCHESTRATOR: &str = "orchestrator";
/// Requests of this program that are under way at one time.
const AT_ONCE: usize = 32;
/// For one claim, and as much for each ten more.
const PATIENCE: Duration = Duration::from_secs(60);

/// The control plane.
pub struct Plane {
    /// It.
    pub cluster: Cluster,
    /// A client of an admin.
    pub client: Client,
    files: tempfile::TempDir,
}

impl Plane {
    /// Starts it. With `audited` the API server writes down who asks for what.
    ///
    /// # Errors
    /// It does not start, or does not take the class.
    pub async fn start(audited: bool, controllers: bool) -> Result<Self> {
        let mut plane = Cluster::control_plane();
        if !audited {
            plane = plane.api_server_flag("--audit-log-path=").api_server_flag("--audit-policy-file=");
        }
        if controllers {
            plane = plane.with_controller_manager(ClientLimits::Raised);
        }
        let cluster = plane.await?;
        let plane = Plane { client: cluster.client().await?, cluster, files: tempfile::tempdir()? };
        for namespace in [OWN, ADMIN, USER] {
            plane.create(json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": namespace } })).await?;
        }
        let accounts: Api<ServiceAccount> = Api::namespaced(plane.client.clone(), ADMIN);
        let began = Instant::now();
        // Pods are refused until the namespace has its default account.
        while controllers && accounts.get_opt("default").await?.is_none() {
            ensure!(began.elapsed() < PATIENCE, "namespace {ADMIN} got no default account");
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        let labels = json!({ names::LABEL_TYPE: names::LABEL_TYPE_CONFIG, names::LABEL_STORAGE_CLASS: CLASS });
        let data = json!({
            "plugin-name": names::DEFAULT_PLUGIN, "image": "example/image", "placement": "any", "volume-sources": "nfs",
            "max-in-flight": "50", "reclaim-policy": "Delete",
        });
        plane
            .create(json!({
                "apiVersion": "v1", "kind": "ConfigMap", "data": data,
                "metadata": { "name": CLASS, "namespace": ADMIN, "labels": labels },
            }))
            .await?;
        plane
            .create(json!({
                "apiVersion": "storage.k8s.io/v1", "kind": "StorageClass", "metadata": { "name": CLASS },
                "provisioner": names::DEFAULT_PROVISIONER,
            }))
            .await?;
        Ok(plane)
    }

    /// Creates an object.
    ///
    /// # Errors
    /// The API server refuses it.
    pub async fn create(&self, object: Value) -> Result<Value> {
        Ok(objects::create(&self.client, &object).await?.1)
    }

    /// Starts an orchestrator on it, and waits until it serves the class.
    ///
    /// # Errors
    /// It does not.
    pub async fn orchestrator(&self, program: &Path) -> Result<Orchestrator> {
        let log = self.files.path().join("orchestrator.log");
        let orchestrator = Orchestrator::start(program, &self.kubeconfig()?, (OWN, ADMIN), log).await?;
        let configs: Api<ConfigMap> = Api::namespaced(self.client.clone(), ADMIN);
        let began = Instant::now();
        loop {
            let verdict = configs.get(CLASS).await?.metadata.annotations.unwrap_or_default().remove(names::VERDICT);
            match verdict {
                Some(verdict) if verdict.starts_with("ok") => return Ok(orchestrator),
                other => ensure!(began.elapsed() < PATIENCE, "the config is not served: {other:?}"),
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }

    /// The orchestrator has a name of its own, by which its requests are known.
    fn kubeconfig(&self) -> Result<PathBuf> {
        let text = fs::read_to_string(self.cluster.kubeconfig())?;
        let mut config: Value = serde_saphyr::from_str(&text)?;
        for user in config["users"].as_array_mut().context("a kubeconfig without users")? {
            user["user"]["as"] = json!(ORCHESTRATOR);
            user["user"]["as-groups"] = json!(["system:masters"]);
        }
        let path = self.files.path().join("kubeconfig");
        fs::write(&path, config.to_string())?;
        Ok(path)
    }

    /// The claims.
    pub fn claims(&self) -> Api<PersistentVolumeClaim> {
        Api::namespaced(self.client.clone(), USER)
    }

    /// Creates claims as fast as they are taken.
    ///
    /// # Errors
    /// The API server refuses one.
    pub async fn burst(&self, size: usize) -> Result<()> {
        let claim = |number| {
            json!({
                "apiVersion": "v1", "kind": "PersistentVolumeClaim",
                "metadata": { "name": format!("c{number}"), "namespace": USER },
                "spec": {
                    "storageClassName": CLASS, "accessModes": ["ReadWriteOnce"],
                    "resources": { "requests": { "storage": "1Gi" } },
                },
            })
        };
        each(size, async |number| self.create(claim(number)).await.map(drop)).await
    }

    /// Waits until so many claims are bound.
    ///
    /// # Errors
    /// They are not in a long time.
    pub async fn all_bound(&self, size: usize) -> Result<()> {
        let phase = |claim: &PersistentVolumeClaim| claim.status.as_ref().and_then(|status| status.phase.clone());
        let unbound = async || {
            let claims = self.claims().list(&ListParams::default()).await?.items;
            Ok(size - claims.iter().filter(|claim| phase(claim).as_deref() == Some("Bound")).count())
        };
        none_of(size, "claims are not bound", unbound).await
    }

    /// Deletes all claims, and waits until they and their volumes are gone.
    ///
    /// # Errors
    /// They are not in a long time.
    pub async fn clear(&self, size: usize) -> Result<()> {
        self.claims().delete_collection(&DeleteParams::default(), &ListParams::default()).await?;
        let volumes: Api<PersistentVolume> = Api::all(self.client.clone());
        let left = async || {
            let volumes = volumes.list_metadata(&ListParams::default()).await?.items.len();
            Ok(volumes + self.claims().list_metadata(&ListParams::default()).await?.items.len())
        };
        none_of(size, "claims and volumes are left", left).await
    }

    /// How many requests each client has made so far, by the audit log.
    ///
    /// # Errors
    /// There is none.
    pub fn requests(&self) -> Result<BTreeMap<String, usize>> {
        let mut all = BTreeMap::new();
        for line in fs::read_to_string(self.cluster.audit_log()).context("read the audit log")?.lines() {
            let entry: Value = serde_json::from_str(line).context("a line of the audit log")?;
            let name = |user: &str| entry[user]["username"].as_str().map(str::to_owned);
            if let Some(who) = name("impersonatedUser").or_else(|| name("user")) {
                *all.entry(who).or_default() += 1;
            }
        }
        Ok(all)
    }
}

/// Does something for each of many, several at one time.
///
/// # Errors
/// The first that failed.
pub async fn each<F: Future<Output = Result<()>>>(size: usize, work: impl FnMut(usize) -> F) -> Result<()> {
    stream::iter(0..size).map(work).buffer_unordered(AT_ONCE).try_for_each(|()| async { Ok(()) }).await
}

/// Waits until a count is zero, in a run of so many claims.
async fn none_of(size: usize, what: &str, count: impl AsyncFn() -> Result<usize>) -> Result<()> {
    let began = Instant::now();
    let patience = PATIENCE + PATIENCE / 10 * u32::try_from(size / 10)?;
    loop {
        let left = count().await?;
        if left == 0 {
            return Ok(());
        }
        ensure!(began.elapsed() < patience, "{left} {what} after {patience:?}");
        // A list of many is work for the API server, too.
        tokio::time::sleep(Duration::from_millis(100 + size as u64 / 5)).await;
    }
}
