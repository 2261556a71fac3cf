//! The measurements.

use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result};
use cluster::{ClientLimits, Cluster};
use flex_bench::machine::{self, Machine};
use flex_bench::objects;
use flex_bench::record::{Kind, Record, Recorder};
use flex_bench::statistics::Spread;
use flex_bench::timeline::{Observed, Step, container_id, first, millis, of_claim, of_pod};
use flex_contract::names;
use jiff::Timestamp;
use kube::Client;
use serde::Serialize;
use serde_json::{Value, json};

use crate::bursts::{self, Burst, Limits};
use crate::peer;
use crate::pools::{self, Hits};

const LIMIT: Duration = Duration::from_secs(60);
/// The rest after a measurement, for the background work that it caused.
const REST: Duration = Duration::from_millis(700);

/// All measurements.
#[derive(Debug, Serialize)]
pub struct Results {
    /// The date.
    pub date: String,
    /// The state of the project: the commit, and whether there were changes beside it.
    pub commit: String,
    /// The machine.
    pub machine: Machine,
    /// The version of Kubernetes.
    pub kubernetes: String,
    /// The client limits of controller manager, scheduler and kubelet.
    pub limits: ClientLimits,
    /// The single claims and pods.
    pub cases: Vec<Case>,
    /// The machine's limits without the orchestrator.
    pub machine_limits: Limits,
    /// Claims that get a pooled volume, one at a time.
    pub hits: Option<Hits>,
    /// The bursts.
    pub bursts: Vec<Burst>,
}

/// A case that was measured several times.
#[derive(Debug, Serialize)]
pub struct Case {
    /// A short name.
    pub name: &'static str,
    /// The description of the case.
    pub what: &'static str,
    /// The first and the last step, in words.
    pub measured: &'static str,
    /// The spread of `total`.
    #[serde(flatten)]
    pub latency: Spread,
    /// The measured times, in milliseconds.
    pub total: Vec<f64>,
    /// All steps of each, in milliseconds since the creation.
    pub runs: Vec<Vec<(Step, f64)>>,
}

/// The plan of the measurements.
pub struct Plan<'a> {
    /// The cluster's name.
    pub name: &'a str,
    /// The project's root.
    pub root: &'a Path,
    /// How often single claims are measured.
    pub runs: usize,
    /// The size of the burst with a pod each.
    pub each: usize,
    /// The bursts in batches.
    pub batches: Vec<usize>,
    /// How many claims get a pooled volume, one at a time and then at one time; 0 leaves this out.
    pub pool: usize,
    /// Another provisioner, for the same bursts as those in batches.
    pub peer: Option<peer::Programs>,
}

struct Singles {
    client: Client,
    recorder: Recorder,
    immediate: Value,
    waiting: Value,
    consumer: Value,
}

/// Measures everything: single claims several times, alternating with pods without the orchestrator, so that all share
/// the conditions of the machine; then bursts, each once.
pub async fn measure(cluster: &Cluster, plan: &Plan<'_>) -> Result<Results> {
    let machine = Machine::this();
    let client = cluster.client().await?;
    let version: Value = client.request(http::Request::get("/version").body(Vec::new())?).await?;
    let cases = singles(cluster, plan).await?;
    let bench = bursts::Bench::new(cluster, plan.name, plan.root).await?;
    let (machine_limits, mut bursts) = bench.limits(plan.each).await?;
    bursts.push(bench.each(plan.each).await?);
    bursts.extend(bench.batches(&plan.batches).await?);
    if let Some(programs) = &plan.peer {
        for count in &plan.batches {
            bursts.push(peer::measure(&bench, cluster, programs, *count).await?);
        }
    }
    let mut hits = None;
    if plan.pool > 0
        && let Some((single, burst)) = pools::measure(&bench, plan.pool, plan.pool).await?
    {
        hits = Some(single);
        bursts.push(burst);
    }
    Ok(Results {
        date: Timestamp::now().to_string(),
        commit: machine::commit(),
        machine,
        kubernetes: version["gitVersion"].as_str().unwrap_or("unknown").to_owned(),
        limits: cluster.limits(),
        cases,
        machine_limits,
        hits,
        bursts,
    })
}

/// Measures single claims and pods.
async fn singles(cluster: &Cluster, plan: &Plan<'_>) -> Result<Vec<Case>> {
    let (client, root, runs) = (cluster.client().await?, plan.root, plan.runs);
    let recorder = Recorder::start(&client, &machine::containerd_socket(plan.name)).await?;
    for file in ["configmaps/hostpath.yaml", "configmaps/hostpath-pure.yaml", "examples/hostpath/storageclass.yaml"] {
        for object in objects::read(&root.join(file))? {
            objects::apply(&client, &object).await?;
        }
    }
    for name in ["hostpath", "scratch"] {
        let accepted = |r: &Record| r.name() == name && r.annotation(names::VERDICT).starts_with("ok");
        let what = format!("the verdict on ConfigMap {name}");
        recorder.until(LIMIT, &what, |records| first(records, Kind::ConfigMap, accepted).map(drop)).await?;
    }
    let of_kind = |file: &str, kind: &str| -> Result<Value> {
        let objects = objects::read(&root.join("examples/hostpath").join(file))?;
        objects.into_iter().find(|object| object["kind"] == kind).with_context(|| format!("no {kind} in {file}"))
    };
    let bench = Singles {
        immediate: of_kind("pure.yaml", "PersistentVolumeClaim")?,
        waiting: of_kind("claim.yaml", "PersistentVolumeClaim")?,
        consumer: of_kind("writer.yaml", "Pod")?,
        client,
        recorder,
    };
    let mut cases = cases();
    // The first of each does not count, because the machine's caches are empty.
    for run in 0..=runs {
        let mut measured =
            vec![bench.claim(&bench.immediate, None).await?, bench.claim(&bench.waiting, Some(&bench.consumer)).await?];
        // The cases for comparison need no tail: they are measured every other time.
        if run % 2 == 1 || run == 0 {
            measured.extend([
                bench.job().await?,
                bench.pod("sleep 3600", "Running").await?,
                bench.pod("true", "Succeeded").await?,
            ]);
        }
        let times: Vec<String> = measured.iter().map(|(total, _)| format!("{total:.0} ms")).collect();
        eprintln!("{run} of {runs}: {}", times.join(", "));
        if run > 0 {
            for (case, (total, steps)) in cases.iter_mut().zip(measured) {
                case.total.push(total);
                case.runs.push(steps);
            }
        }
    }
    for case in &mut cases {
        case.latency = Spread::of(&case.total);
    }
    Ok(cases)
}

fn cases() -> Vec<Case> {
    [
        (
            "claim-immediate",
            "a claim of class `scratch`: no StorageClass object, bound as soon as possible",
            "claim created → Bound",
        ),
        (
            "claim-first-consumer",
            "a claim of class `hostpath` and its pod: the volume is made where the scheduler puts the pod",
            "claim created → Bound",
        ),
        (
            "bare-job",
            "a Job of the same image with the command `true`, without the orchestrator",
            "Job created → container runs",
        ),
        (
            "bare-pod-running",
            "a pod of the same image that sleeps, without the orchestrator",
            "pod created → reported Running",
        ),
        (
            "bare-pod-succeeded",
            "a pod of the same image with the command `true`, without the orchestrator",
            "pod created → reported Succeeded",
        ),
    ]
    .map(|(name, what, measured)| Case {
        name,
        what,
        measured,
        latency: Spread::default(),
        total: Vec::new(),
        runs: Vec::new(),
    })
    .into()
}

type Measured = (f64, Vec<(Step, f64)>);

impl Singles {
    /// Measures a claim until it is Bound, with its pod if it has one, and deletes all of it again.
    async fn claim(&self, claim: &Value, consumer: Option<&Value>) -> Result<Measured> {
        self.recorder.forget();
        let (began, created) = objects::create(&self.client, claim).await?;
        if let Some(pod) = consumer {
            objects::create(&self.client, pod).await?;
        }
        let uid = created["metadata"]["uid"].as_str().context("a claim without UID")?.to_owned();
        // The pod's report follows long after the claim is Bound; it names the container of the pod.
        let observed = self
            .until("all steps of a claim", |records| {
                let observed = of_claim(records, &uid);
                (observed.len() == Step::ALL.len()).then_some(observed)
            })
            .await?;
        if let Some(pod) = consumer {
            self.remove(pod, Kind::Pod).await?;
        }
        self.remove(claim, Kind::Claim).await?;
        let volume = names::pv_name(&uid);
        self.until("the end of a volume", |r| first(r, Kind::Volume, |r| r.gone && r.name() == volume).map(drop))
            .await?;
        let rest = |r: &Record| r.label(names::LABEL_VOLUME_ID) == uid;
        self.until("the end of the Jobs of a claim", |records| {
            records.iter().rfind(|r| r.kind == Kind::Pod && rest(r))?.gone.then_some(())
        })
        .await?;
        tokio::time::sleep(REST).await;
        let bound = observed.iter().find(|observed| observed.step == Step::Bound).context("not Bound")?.at;
        Ok((millis(began, bound), since(began, &observed)))
    }

    /// Measures a Job of the same image that does nothing, until its container runs.
    async fn job(&self) -> Result<Measured> {
        self.recorder.forget();
        let job = bare_job("true");
        let (began, _) = objects::create(&self.client, &job).await?;
        let (observed, pod) = self
            .until("all steps of a Job", |records| {
                let pod = first(records, Kind::Pod, |r| r.label("batch.kubernetes.io/job-name") == "bare")?;
                let observed = of_pod(records, pod.uid());
                (observed.len() == of_pod_complete()).then(|| (observed, pod.name().to_owned()))
            })
            .await?;
        objects::delete(&self.client, &job, false).await?;
        let pod = json!({ "apiVersion": "v1", "kind": "Pod", "metadata": { "name": pod } });
        self.remove(&pod, Kind::Pod).await?;
        self.until("the end of a Job", |r| first(r, Kind::Job, |r| r.gone && r.name() == "bare").map(drop)).await?;
        tokio::time::sleep(REST).await;
        let runs =
            observed.iter().find(|observed| observed.step == Step::Container).context("the container did not run")?.at;
        Ok((millis(began, runs), since(began, &observed)))
    }

    /// Measures a bare pod, until the API has it in `phase`.
    async fn pod(&self, command: &str, phase: &str) -> Result<Measured> {
        self.recorder.forget();
        let pod = bare_pod(command);
        let (began, created) = objects::create(&self.client, &pod).await?;
        let uid = created["metadata"]["uid"].as_str().context("a pod without UID")?.to_owned();
        let (at, observed) = self
            .until("the phase of a pod", |records| {
                let at = first(records, Kind::Pod, |r| r.uid() == uid && r.text("/status/phase") == phase)?.at;
                container_id(records, &uid)?;
                Some((at, of_pod(records, &uid)))
            })
            .await?;
        self.remove(&pod, Kind::Pod).await?;
        tokio::time::sleep(REST).await;
        Ok((millis(began, at), since(began, &observed)))
    }

    async fn until<T>(&self, what: &str, check: impl FnMut(&[Record]) -> Option<T>) -> Result<T> {
        self.recorder.until(LIMIT, what, check).await
    }

    async fn remove(&self, object: &Value, kind: Kind) -> Result<()> {
        objects::delete(&self.client, object, kind == Kind::Pod).await?;
        let name = object["metadata"]["name"].as_str().unwrap_or_default();
        let what = format!("the end of {}", objects::name(object));
        self.until(&what, |records| first(records, kind, |r| r.gone && r.name() == name).map(drop)).await
    }
}

fn since(began: Timestamp, observed: &[Observed]) -> Vec<(Step, f64)> {
    observed.iter().map(|observed| (observed.step, millis(began, observed.at))).collect()
}

/// Returns the number of steps of a pod, without those of a claim.
fn of_pod_complete() -> usize {
    Step::ALL.len() - [Step::Stamped, Step::Job, Step::Volume, Step::Bound].len()
}

/// Builds a Job of such a pod.
pub fn bare_job(command: &str) -> Value {
    let spec = bare_pod(command)["spec"].take();
    json!({
        "apiVersion": "batch/v1", "kind": "Job", "metadata": { "name": "bare" },
        "spec": { "backoffLimit": 0, "template": { "spec": spec } },
    })
}

/// Builds a pod of the image hostpath that runs a command.
pub fn bare_pod(command: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": { "name": "bare" },
        "spec": {
            "restartPolicy": "Never",
            "terminationGracePeriodSeconds": 0,
            "containers": [{
                "name": "main", "image": "localhost/flex-provisioner/hostpath:0.1.0", "command": ["sh", "-c", command],
            }],
        },
    })
}
