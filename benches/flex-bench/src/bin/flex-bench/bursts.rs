//! Bursts of claims on a real node, compared with the machine's own limits.

use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use cluster::{Cluster, Component};
use flex_bench::audit::{Asked, Audit, Each};
use flex_bench::histogram::Histogram;
use flex_bench::machine::Process;
use flex_bench::many::{self, Times, WRITERS, within};
use flex_bench::objects;
use flex_bench::profile::{self, Profile, Watched};
use flex_bench::statistics::Spread;
use flex_contract::names;
use futures::{StreamExt, TryStreamExt};
use jiff::Timestamp;
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::{ConfigMap, PersistentVolume, PersistentVolumeClaim, Pod};
use kube::api::{DeleteParams, ListParams};
use kube::{Api, Client, ResourceExt};
use serde::Serialize;
use serde_json::{Value, json};

use crate::run::{bare_job, bare_pod};

/// The class whose claims have a pod each.
const EACH: &str = "bench-each";
/// The class whose claims share runs.
const BATCHES: &str = "bench-batches";
/// The settings of a class with batches; its program makes one volume, and `flex-pv each` runs it for each claim.
pub const IN_BATCHES: &[(&str, &str)] = &[
    ("command", r#"["flex-pv", "each", "--jobs", "4", "--", "/provision.sh"]"#),
    ("batch-size", "250"),
    ("batch-window", "1s"),
    ("max-in-flight", "1000"),
    ("timeout", "10m"),
];
/// The namespace of orchestrator, configs and runs.
const NAMESPACE: &str = "flex-provisioner";
/// The number of writes that measure the API server's limit.
const WRITES: usize = 3_000;
/// The time limit of a burst.
const LIMIT: Duration = Duration::from_secs(900);
/// The time limit until nothing of a burst is left.
const EMPTY_TIMEOUT: Duration = Duration::from_secs(180);
/// The rest after that, for the background work that the burst caused.
const REST: Duration = Duration::from_secs(2);

/// The machine's limits without the orchestrator.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Limits {
    /// Bare pods that succeed, in a second.
    pub pods: f64,
    /// Jobs of such pods, in a second.
    pub jobs: f64,
    /// ConfigMaps that are created, in a second.
    pub writes: f64,
}

/// A burst of many objects.
#[derive(Debug, Serialize)]
pub struct Burst {
    /// A short name, for files.
    pub name: String,
    /// The description of the burst.
    pub what: String,
    /// The number of claims, or pods.
    pub count: usize,
    /// The time from the first creation until the last was done.
    pub seconds: f64,
    /// `count` by `seconds`.
    pub per_second: f64,
    /// The times from the creation of each until it was done, in milliseconds.
    pub latency: Spread,
    /// The cost of claims; pods have none.
    pub cost: Option<Cost>,
    /// The use of the processors until the last was done.
    pub profile: Profile,
    /// The deletion of all claims at once.
    pub deletion: Option<Deletion>,
    /// The times at which each was done, in seconds since the first creation.
    pub done: Vec<f64>,
}

/// The cost of each claim, until no run was left.
#[derive(Debug, Serialize)]
pub struct Cost {
    /// Processor time of the provisioner, in milliseconds.
    pub cpu_ms: f64,
    /// The most memory of the provisioner in the whole burst, in MiB.
    pub peak_mib: f64,
    /// Writes by all clients but this program.
    pub writes: f64,
    /// Requests by client.
    pub requests: Vec<Each>,
    /// The waits for the PV controller.
    pub pv_sync: PvSync,
}

/// How long adopted volumes waited until the PV controller knew them.
#[derive(Debug, Serialize)]
pub struct PvSync {
    /// The number of volumes.
    pub volumes: f64,
    /// Their median, in milliseconds.
    pub p50_ms: Option<f64>,
    /// Their 99th percentile, in milliseconds.
    pub p99_ms: Option<f64>,
}

/// The deletion of many claims.
#[derive(Debug, Serialize)]
pub struct Deletion {
    /// The time from the first deletion of a claim until the last volume was gone.
    pub seconds: f64,
    /// Volumes by `seconds`.
    pub per_second: f64,
    /// The cost of each deletion.
    pub cost: Cost,
    /// The use of the processors until the last volume was gone.
    pub profile: Profile,
    /// The times at which each volume was gone, in seconds since the first deletion.
    pub done: Vec<f64>,
}

/// The cluster, and the measured processes.
pub struct Bench<'a> {
    /// A client of an admin.
    pub client: Client,
    root: &'a Path,
    audit: Audit,
    /// The orchestrator's pod.
    pod: String,
    orchestrator: Process,
    watched: Watched,
}

impl<'a> Bench<'a> {
    /// Finds all processes.
    ///
    /// # Errors
    /// A process does not exist.
    pub async fn new(cluster: &Cluster, name: &str, root: &'a Path) -> Result<Self> {
        let client = cluster.client().await?;
        let (pod, orchestrator) = orchestrator(&client).await?;
        let mut processes = vec![(profile::ORCHESTRATOR.to_owned(), orchestrator)];
        for component in [
            Component::Etcd,
            Component::ApiServer,
            Component::ControllerManager,
            Component::Scheduler,
            Component::Containerd,
            Component::Kubelet,
            Component::Proxy,
        ] {
            let pid = u32::try_from(cluster.pid(component)?)?;
            processes.push((component.name().to_owned(), Process { pid }));
        }
        let (audit, watched) = (Audit::of(cluster.audit_log()), Watched::new(processes, Some(name)));
        Ok(Bench { client, root, audit, pod, orchestrator, watched })
    }

    /// Measures the machine's own limits with this many pods.
    ///
    /// # Errors
    /// They are not done in time.
    pub async fn limits(&self, count: usize) -> Result<(Limits, Vec<Burst>)> {
        self.quiet().await?;
        eprintln!("{WRITES} writes");
        let writes = self.writes().await?;
        eprintln!("{count} bare pods");
        let pods = self.pods(count).await?;
        eprintln!("{count} Jobs");
        let jobs = self.jobs(count).await?;
        Ok((Limits { pods: pods.per_second, jobs: jobs.per_second, writes }, vec![pods, jobs]))
    }

    /// Measures claims with a pod each.
    ///
    /// # Errors
    /// They are not done in time.
    pub async fn each(&self, count: usize) -> Result<Burst> {
        self.accepted(EACH, &[]).await?;
        self.claims(&format!("each-{count}"), "claims, a pod each", EACH, count).await
    }

    /// Measures claims in batches, a burst of each size.
    ///
    /// # Errors
    /// They are not done in time.
    pub async fn batches(&self, sizes: &[usize]) -> Result<Vec<Burst>> {
        self.accepted(BATCHES, IN_BATCHES).await?;
        let mut bursts = Vec::new();
        for size in sizes {
            bursts.push(self.claims(&format!("batches-{size}"), "claims, in batches", BATCHES, *size).await?);
        }
        Ok(bursts)
    }

    /// Does the same as [`Bench::class`], which must not refuse it.
    async fn accepted(&self, class: &str, settings: &[(&str, &str)]) -> Result<()> {
        match self.class(class, settings).await? {
            None => Ok(()),
            Some(refusal) => bail!("ConfigMap {class} is refused: {refusal}"),
        }
    }

    /// Creates a copy of the class `scratch` with other settings and a StorageClass, and returns the reason if it is
    /// refused. The image's account gets the right that batches need.
    ///
    /// Without a StorageClass the PV controller emits a warning on each claim, and the orchestrator an event that
    /// explains it. A peer's claims have neither.
    ///
    /// # Errors
    /// The API server refuses it, or no orchestrator checks it.
    pub async fn class(&self, class: &str, settings: &[(&str, &str)]) -> Result<Option<String>> {
        let mut config = objects::read(&self.root.join("configmaps/hostpath-pure.yaml"))?
            .into_iter()
            .find(|object| object["kind"] == "ConfigMap")
            .context("no ConfigMap in hostpath-pure.yaml")?;
        config["metadata"]["name"] = json!(class);
        config["metadata"]["labels"]["storage-class"] = json!(class);
        for (key, value) in settings {
            config["data"][key] = json!(value);
        }
        let role = json!({
            "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "metadata": { "name": class },
            "rules": [{
                "apiGroups": ["flex-provisioner.io"], "resources": ["classes"], "resourceNames": [class],
                "verbs": ["provision"],
            }],
        });
        let binding = json!({
            "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding", "metadata": { "name": class },
            "roleRef": { "apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": class },
            "subjects": [{ "kind": "ServiceAccount", "name": "hostpath-provisioner", "namespace": NAMESPACE }],
        });
        let storage_class = json!({
            "apiVersion": "storage.k8s.io/v1", "kind": "StorageClass", "metadata": { "name": class },
            "provisioner": names::DEFAULT_PROVISIONER, "reclaimPolicy": "Delete", "volumeBindingMode": "Immediate",
        });
        // An earlier verdict must not count for these settings: without it the orchestrator writes a new one.
        config["metadata"]["annotations"] = json!({ names::VERDICT: "none yet" });
        for object in [role, binding, storage_class, config] {
            objects::apply(&self.client, &object).await?;
        }
        let configs: Api<ConfigMap> = Api::namespaced(self.client.clone(), NAMESPACE);
        let looked = async {
            loop {
                let verdict = configs.get(class).await?.metadata.annotations.unwrap_or_default().remove(names::VERDICT);
                match verdict {
                    Some(verdict) if verdict.starts_with("ok") => return Ok(None),
                    Some(verdict) if verdict != "none yet" => return Ok(Some(verdict)),
                    _ => tokio::time::sleep(Duration::from_millis(100)).await,
                }
            }
        };
        within(Duration::from_secs(60), &format!("the verdict on ConfigMap {class}"), looked).await
    }

    /// Measures claims of a class until they are bound, and their deletion.
    ///
    /// # Errors
    /// They are not done in time.
    pub async fn claims(&self, name: &str, what: &str, class: &str, count: usize) -> Result<Burst> {
        self.claims_of(self.orchestrator, name, what, class, count).await
    }

    /// Does the same for claims that another process provisions. The cost is that of the process.
    ///
    /// # Errors
    /// They are not done in time.
    pub async fn claims_of(
        &self,
        provisioner: Process,
        name: &str,
        what: &str,
        class: &str,
        count: usize,
    ) -> Result<Burst> {
        self.quiet().await?;
        eprintln!("{count} {what}");
        let claims = many::claims("default", class, count);
        let api: Api<PersistentVolumeClaim> = Api::default_namespaced(self.client.clone());
        let mut watch = many::watch(api).await?;
        let begun = self.begin(provisioner).await?;
        let times = many::made(&self.client, &claims, &mut watch, many::is_bound, LIMIT).await?;
        let profile = self.watched.since(&begun.sample)?;
        self.quiet().await?;
        let mut burst = burst(name, what, &times, profile);
        burst.cost = Some(self.cost(begun, count).await?);
        eprintln!("  {:.1} a second; their deletion", burst.per_second);

        let volumes: Api<PersistentVolume> = Api::all(self.client.clone());
        let mut watch = many::watch(volumes).await?;
        let begun = self.begin(provisioner).await?;
        // Sync probes are created and deleted besides.
        let own_objects = |volume: &PersistentVolume| volume.name_any().starts_with(names::PV_PREFIX);
        let times = many::removed(&self.client, &claims, &mut watch, own_objects, LIMIT).await?;
        let profile = self.watched.since(&begun.sample)?;
        self.quiet().await?;
        let seconds = times.seconds();
        let (per_second, done) = (count as f64 / seconds, times.done());
        burst.deletion = Some(Deletion { seconds, per_second, cost: self.cost(begun, count).await?, profile, done });
        eprintln!("  {per_second:.1} a second");
        Ok(burst)
    }

    /// Measures the machine without the orchestrator: pods that end at once.
    async fn pods(&self, count: usize) -> Result<Burst> {
        let pods = named(count, bare_pod("true"));
        let phase = |pod: &Pod| pod.status.as_ref().and_then(|status| status.phase.clone());
        let api: Api<Pod> = Api::default_namespaced(self.client.clone());
        let mut watch = many::watch(api).await?;
        let before = self.watched.sample()?;
        let succeeded = |pod: &Pod| phase(pod).as_deref() == Some("Succeeded");
        let times = many::made(&self.client, &pods, &mut watch, succeeded, LIMIT).await?;
        let profile = self.watched.since(&before)?;
        many::removed(&self.client, &pods, &mut watch, |_| true, LIMIT).await?;
        Ok(burst("pods", "bare pods, no orchestrator", &times, profile))
    }

    /// Measures the same with Jobs, for which the controller manager makes the pods.
    async fn jobs(&self, count: usize) -> Result<Burst> {
        let jobs = named(count, bare_job("true"));
        let api: Api<Job> = Api::default_namespaced(self.client.clone());
        let mut watch = many::watch(api.clone()).await?;
        let before = self.watched.sample()?;
        let complete = |job: &Job| job.status.as_ref().and_then(|status| status.succeeded) == Some(1);
        let times = many::made(&self.client, &jobs, &mut watch, complete, LIMIT).await?;
        let profile = self.watched.since(&before)?;
        api.delete_collection(&DeleteParams::background(), &ListParams::default()).await?;
        Ok(burst("jobs", "Jobs of a bare pod, no orchestrator", &times, profile))
    }

    /// Measures how many objects the API server stores in a second, from as many connections as claims are created
    /// from.
    async fn writes(&self) -> Result<f64> {
        let object = |n| {
            let metadata = json!({ "name": format!("write-{n}"), "labels": { "bench": "write" } });
            json!({ "apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": { "key": "value" } })
        };
        let began = Timestamp::now();
        futures::stream::iter((0..WRITES).map(object))
            .map(|object| async move { objects::create(&self.client, &object).await.map(drop) })
            .buffer_unordered(WRITERS)
            .try_collect::<()>()
            .await?;
        let seconds = Timestamp::now().duration_since(began).as_secs_f64();
        let api: Api<ConfigMap> = Api::default_namespaced(self.client.clone());
        api.delete_collection(&DeleteParams::default(), &ListParams::default().labels("bench=write")).await?;
        Ok(WRITES as f64 / seconds)
    }

    /// Waits until no run is left, nor any measured pod, and the background work is done as well.
    ///
    /// # Errors
    /// Objects are left after minutes.
    pub async fn quiet(&self) -> Result<()> {
        let runs: Api<Job> = Api::namespaced(self.client.clone(), NAMESPACE);
        let run_pods: Api<Pod> = Api::namespaced(self.client.clone(), NAMESPACE);
        let (jobs, pods): (Api<Job>, Api<Pod>) =
            (Api::default_namespaced(self.client.clone()), Api::default_namespaced(self.client.clone()));
        let (all, of_runs) = (ListParams::default(), ListParams::default().labels(names::LABEL_OPERATION));
        let none = async {
            loop {
                let remaining = runs.list_metadata(&of_runs).await?.items.len()
                    + run_pods.list_metadata(&of_runs).await?.items.len()
                    + jobs.list_metadata(&all).await?.items.len()
                    + pods.list_metadata(&all).await?.items.len();
                if remaining == 0 {
                    return Ok(());
                }
                tokio::time::sleep(Duration::from_millis(500)).await;
            }
        };
        within(EMPTY_TIMEOUT, "no Job and no pod of the last measurement is left", none).await?;
        tokio::time::sleep(REST).await;
        Ok(())
    }

    async fn begin(&self, provisioner: Process) -> Result<Begun> {
        let pv_sync = self.pv_sync().await?;
        provisioner.forget_peak()?;
        let used = provisioner.processor_time()?;
        Ok(Begun { mark: self.audit.mark()?, provisioner, used, sample: self.watched.sample()?, pv_sync })
    }

    /// Reads from the orchestrator's metrics how long volumes have waited for the PV controller.
    async fn pv_sync(&self) -> Result<Histogram> {
        let path = format!("/api/v1/namespaces/{NAMESPACE}/pods/{}:8080/proxy/metrics", self.pod);
        let request = http::Request::get(path).body(Vec::new())?;
        let metrics = self.client.request_text(request).await.context("read the orchestrator's metrics")?;
        Ok(Histogram::of(&metrics, "flex_pv_sync_duration_seconds"))
    }

    async fn cost(&self, begun: Begun, count: usize) -> Result<Cost> {
        let mut asked = Asked::default();
        self.audit.since(begun.mark, &mut asked)?;
        let used = begun.provisioner.processor_time()? - begun.used;
        let waits = self.pv_sync().await?.since(&begun.pv_sync);
        let millis = |part| waits.quantile(part).map(|seconds| seconds * 1000.0);
        Ok(Cost {
            pv_sync: PvSync { volumes: waits.count(), p50_ms: millis(0.5), p99_ms: millis(0.99) },
            cpu_ms: used.as_secs_f64() * 1000.0 / count as f64,
            peak_mib: begun.provisioner.peak_memory()? as f64 / f64::from(1 << 20),
            writes: asked.writes() as f64 / count as f64,
            requests: asked.each(count),
        })
    }
}

/// The counters before a burst.
struct Begun {
    mark: flex_bench::audit::Mark,
    provisioner: Process,
    used: Duration,
    sample: profile::Sample,
    pv_sync: Histogram,
}

/// Finds the orchestrator's pod, and its process.
async fn orchestrator(client: &Client) -> Result<(String, Process)> {
    let pods: Api<Pod> = Api::namespaced(client.clone(), NAMESPACE);
    let own_objects = ListParams::default().labels("app.kubernetes.io/name=flex-provisioner");
    let id = |pod: &Pod| pod.status.as_ref()?.container_statuses.as_ref()?.first()?.container_id.clone();
    let found = pods.list(&own_objects).await?.items;
    let of_pod = found.iter().find_map(|pod| Some((pod.name_any(), id(pod)?)));
    let (pod, id) = of_pod.context("the orchestrator has no pod")?;
    Ok((pod, Process::of_container(id.trim_start_matches("containerd://"))?))
}

/// Returns this many copies of an object, named by number.
fn named(count: usize, object: Value) -> Vec<Value> {
    let named = |n| {
        let mut object = object.clone();
        object["metadata"]["name"] = json!(format!("burst-{n}"));
        object
    };
    (0..count).map(named).collect()
}

fn burst(name: &str, what: &str, times: &Times, profile: Profile) -> Burst {
    let (count, seconds) = (times.each.len(), times.seconds());
    Burst {
        name: name.to_owned(),
        what: what.to_owned(),
        count,
        seconds,
        per_second: count as f64 / seconds,
        latency: Spread::of(&times.millis()),
        cost: None,
        profile,
        deletion: None,
        done: times.done(),
    }
}
