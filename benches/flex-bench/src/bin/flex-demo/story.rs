//! The steps of the demo.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use cluster::Cluster;
use flex_bench::machine::{self, Process};
use flex_bench::objects;
use flex_bench::record::{Kind, Record, Recorder};
use flex_bench::timeline::{Step, container_id, first, millis, of_claim};
use flex_contract::names;
use flex_contract::reason;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Pod;
use kube::api::LogParams;
use kube::{Api, Client};
use serde_json::Value;

/// The time limit of a step.
const LIMIT: Duration = Duration::from_secs(30);
/// The directories of the two classes of the demo on the node, which is this machine.
const DIRECTORIES: [&str; 2] = ["/var/lib/flex-hostpath", "/var/lib/flex-scratch"];
const NAMESPACE: &str = "flex-provisioner";

struct Story<'a> {
    cluster: &'a Cluster,
    client: Client,
    recorder: Recorder,
    root: &'a Path,
    chapter: u32,
}

/// Shows all steps.
pub async fn show(cluster: &Cluster, name: &str, root: &Path) -> Result<()> {
    let client = cluster.client().await?;
    let recorder = Recorder::start(&client, &machine::containerd_socket(name)).await?;
    let mut story = Story { cluster, client, recorder, root, chapter: 0 };
    story.clear().await?;
    story.configs().await?;
    let before = volumes();
    println!("     directories of volumes on the node: {}", count(&before));

    let hostpath = story.with_a_storage_class().await?;
    story.restart(&hostpath).await?;
    let scratch = story.without_a_storage_class().await?;
    story.failure().await?;
    story.deletion(&[hostpath, scratch], &before).await?;
    story.orchestrator().await?;
    story.look_around(name)?;
    Ok(())
}

/// A claim of the demo, with the directory of its volume.
struct Shown {
    claim: Value,
    uid: String,
    directory: PathBuf,
}

impl Story<'_> {
    fn chapter(&mut self, title: &str) {
        self.chapter += 1;
        println!("\n{}. {title}", self.chapter);
    }

    fn example(&self, file: &str) -> Result<Vec<Value>> {
        objects::read(&self.root.join(file))
    }

    /// Deletes the objects of an interrupted demo.
    async fn clear(&mut self) -> Result<()> {
        let mut all = objects::parse(include_str!("broken.yaml"))?.split_off(1);
        for file in ["reader", "writer", "pure", "claim"] {
            all.extend(self.example(&format!("examples/hostpath/{file}.yaml"))?);
        }
        // A claim is deleted once no pod uses it any more.
        all.sort_by_key(|object| object["kind"] != "Pod");
        let mut left = false;
        for object in &all {
            left |= self.remove(object).await?;
        }
        if left {
            println!("removing the objects of an earlier demo");
            let gone = |records: &[Record]| alive(records, Kind::Volume).is_empty().then_some(());
            self.recorder.until(LIMIT, "the end of the volumes of an earlier demo", gone).await?;
        }
        self.recorder.records().retain(|record| matches!(record.kind, Kind::Pod | Kind::ConfigMap));
        Ok(())
    }

    /// Deletes a claim or pod and waits until it is gone.
    async fn remove(&self, object: &Value) -> Result<bool> {
        let (_, was_there) = objects::delete(&self.client, object, object["kind"] == "Pod").await?;
        if was_there {
            self.gone(object).await?;
        }
        Ok(was_there)
    }

    async fn gone(&self, object: &Value) -> Result<Timestamp> {
        let kind = if object["kind"] == "Pod" { Kind::Pod } else { Kind::Claim };
        let name = object["metadata"]["name"].as_str().unwrap_or_default();
        let what = format!("the end of {}", objects::name(object));
        self.recorder
            .until(LIMIT, &what, |records| {
                let last = records.iter().rfind(|record| record.kind == kind && record.name() == name)?;
                last.gone.then_some(last.at)
            })
            .await
    }

    async fn configs(&mut self) -> Result<()> {
        self.chapter("An admin writes two provisioner configs: `hostpath` with a StorageClass, `scratch` without");
        let files =
            ["configmaps/hostpath.yaml", "configmaps/hostpath-pure.yaml", "examples/hostpath/storageclass.yaml"];
        println!("     $ kubectl apply -f {}", files.join(" -f "));
        let began = Timestamp::now();
        for file in files {
            for object in self.example(file)? {
                objects::apply(&self.client, &object).await?;
            }
        }
        for name in ["hostpath", "scratch"] {
            let at = self.verdict(name).await?;
            // Applied unchanged, the config keeps its verdict.
            line(began, at.max(began), &format!("ConfigMap {name}: the orchestrator's verdict is ok"));
        }
        Ok(())
    }

    async fn verdict(&self, name: &str) -> Result<Timestamp> {
        let what = format!("the verdict `ok` on ConfigMap {name}, in its annotation {}", names::VERDICT);
        self.recorder
            .until(LIMIT, &what, |records| {
                first(records, Kind::ConfigMap, |r| r.name() == name && r.annotation(names::VERDICT).starts_with("ok"))
                    .map(|record| record.at)
            })
            .await
    }

    async fn with_a_storage_class(&mut self) -> Result<Shown> {
        self.chapter("A user's claim of class `hostpath`: the volume is made where the claim's first pod will run");
        println!("     $ kubectl apply -f examples/hostpath/claim.yaml -f examples/hostpath/writer.yaml");
        let mut objects = self.example("examples/hostpath/claim.yaml")?;
        objects.extend(self.example("examples/hostpath/writer.yaml")?);
        let shown = self.claim(&objects, "/var/lib/flex-hostpath").await?;
        self.succeeded("hostpath-writer").await?;
        Ok(shown)
    }

    async fn restart(&mut self, shown: &Shown) -> Result<()> {
        self.chapter("The pod that wrote is deleted, another one reads");
        println!(
            "     $ kubectl delete -f examples/hostpath/writer.yaml; kubectl apply -f examples/hostpath/reader.yaml"
        );
        for writer in self.example("examples/hostpath/writer.yaml")? {
            self.remove(&writer).await?;
        }
        println!("     pod hostpath-writer is gone; on the node: {}", greeting(&shown.directory)?);
        for reader in self.example("examples/hostpath/reader.yaml")? {
            objects::create(&self.client, &reader).await?;
        }
        self.succeeded("hostpath-reader").await?;
        self.log_contains("hostpath-reader", "hello from the writer").await
    }

    async fn without_a_storage_class(&mut self) -> Result<Shown> {
        self.chapter("A claim of class `scratch`, which is nothing but a label on a ConfigMap");
        println!("     $ kubectl apply -f examples/hostpath/pure.yaml");
        let objects = self.example("examples/hostpath/pure.yaml")?;
        let shown = self.claim(&objects, "/var/lib/flex-scratch").await?;
        self.succeeded("scratch-example").await?;
        self.log_contains("scratch-example", "hello from scratch").await?;
        Ok(shown)
    }

    /// Creates a claim and its pod, and follows the claim until it is Bound.
    async fn claim(&self, objects: &[Value], base: &str) -> Result<Shown> {
        let claim =
            objects.iter().find(|object| object["kind"] == "PersistentVolumeClaim").context("no claim")?.clone();
        let (began, created) = objects::create(&self.client, &claim).await?;
        let uid = created["metadata"]["uid"].as_str().context("a claim without UID")?.to_owned();
        let phase = created["status"]["phase"].as_str().unwrap_or("without a phase").to_owned();
        ensure!(phase == "Pending", "the new claim is {phase}");
        line(began, Timestamp::now(), &format!("claim created, {phase}; its UID is {uid}"));
        for object in objects.iter().filter(|object| object["kind"] == "Pod") {
            objects::create(&self.client, object).await?;
            line(began, Timestamp::now(), &format!("pod {} created", text(object, "/metadata/name")));
        }
        let wanted = [Step::Stamped, Step::Job, Step::Pod, Step::Scheduled, Step::Container, Step::Volume, Step::Bound];
        let all = self
            .recorder
            .until(LIMIT, &format!("all steps of claim {}", text(&claim, "/metadata/name")), |records| {
                let observed = of_claim(records, &uid);
                wanted.iter().all(|step| observed.iter().any(|observed| observed.step == *step)).then_some(observed)
            })
            .await;
        let mut observed = match &all {
            Ok(observed) => observed.clone(),
            Err(_) => of_claim(&self.recorder.records(), &uid),
        };
        observed.retain(|observed| wanted.contains(&observed.step));
        observed.sort_by_key(|observed| observed.at);
        for observed in &observed {
            let detail = if observed.step == Step::Bound { String::new() } else { format!("  {}", observed.detail) };
            line(began, observed.at, &format!("{}{detail}", observed.step.describe()));
        }
        all?;
        let directory = Path::new(base).join(&uid);
        ensure!(directory.is_dir(), "the claim is Bound, but {} does not exist", directory.display());
        println!("     on the node: {}", directory.display());
        Ok(Shown { claim, uid, directory })
    }

    async fn succeeded(&self, pod: &str) -> Result<()> {
        let (at, began) = self
            .recorder
            .until(LIMIT, &format!("pod {pod} Succeeded"), |records| {
                let uid = records.iter().rfind(|r| r.kind == Kind::Pod && r.name() == pod)?.uid().to_owned();
                let of_it = |r: &Record| r.kind == Kind::Pod && r.uid() == uid;
                let began = records.iter().find(|r| of_it(r))?.at;
                records.iter().find(|r| of_it(r) && r.text("/status/phase") == "Succeeded").map(|r| (r.at, began))
            })
            .await?;
        println!("     pod {pod} Succeeded, {:.1} s after its creation", millis(began, at) / 1000.0);
        Ok(())
    }

    async fn log_contains(&self, pod: &str, wanted: &str) -> Result<()> {
        let pods: Api<Pod> = Api::namespaced(self.client.clone(), "default");
        let log = pods.logs(pod, &LogParams::default()).await.with_context(|| format!("the log of pod {pod}"))?;
        ensure!(log.trim() == wanted, "pod {pod} printed `{}`, expected was `{wanted}`", log.trim());
        println!("     $ kubectl logs {pod}\n     {}", log.trim());
        Ok(())
    }

    async fn failure(&mut self) -> Result<()> {
        self.chapter("A provisioner that fails, and says why on the claim");
        let objects = objects::parse(include_str!("broken.yaml"))?;
        println!("     ConfigMap broken: its command prints why and exits with 75, which means `try again later`");
        objects::apply(&self.client, &objects[0]).await?;
        self.verdict("broken").await?;
        let claim = &objects[1];
        let (began, created) = objects::create(&self.client, claim).await?;
        let uid = text(&created, "/metadata/uid").to_owned();
        let texts = "the pool is full until Monday";
        let what = format!("an event {} with `{texts}` on claim broken-example", reason::PROVISIONING_FAILED);
        let (event, message) = self
            .recorder
            .until(LIMIT, &what, |records| {
                let record = first(records, Kind::Event, |r| {
                    r.text("/involvedObject/uid") == uid
                        && r.text("/reason") == reason::PROVISIONING_FAILED.name
                        && r.text("/message").contains(texts)
                })?;
                Some((record.at, record.text("/message").to_owned()))
            })
            .await?;
        let exit = self
            .recorder
            .until(LIMIT, "the end of the failed container", |records| {
                of_claim(records, &uid).into_iter().find(|observed| observed.step == Step::Exit)
            })
            .await?;
        line(began, exit.at, "the container ended with exit code 75");
        line(began, event, &format!("event on the claim, {:.1} s after that:", millis(exit.at, event) / 1000.0));
        println!("       {}: {message}", reason::PROVISIONING_FAILED);
        let (deleted, _) = objects::delete(&self.client, claim, false).await?;
        line(deleted, self.gone(claim).await?, "after its deletion, the claim is gone");
        let gone = |records: &[Record]| {
            (!alive(records, Kind::Job).iter().any(|name| name.contains(&uid))).then(Timestamp::now)
        };
        let at = self.recorder.until(LIMIT, "the end of the Jobs of broken-example", gone).await?;
        line(deleted, at, "its Jobs are gone, too");
        objects::delete(&self.client, &objects[0], false).await?;
        Ok(())
    }

    async fn deletion(&mut self, shown: &[Shown], before: &[BTreeSet<String>]) -> Result<()> {
        self.chapter("The claims are deleted, and their data with them");
        println!(
            "     $ kubectl delete -f examples/hostpath/reader.yaml -f examples/hostpath/claim.yaml -f examples/hostpath/pure.yaml"
        );
        for file in ["reader", "pure"] {
            for pod in self.example(&format!("examples/hostpath/{file}.yaml"))?.iter().filter(|o| o["kind"] == "Pod") {
                self.remove(pod).await?;
            }
        }
        for shown in shown {
            ensure!(shown.directory.is_dir(), "{} is gone before its claim", shown.directory.display());
            let (began, _) = objects::delete(&self.client, &shown.claim, false).await?;
            let volume = names::pv_name(&shown.uid);
            println!("     claim {}:", text(&shown.claim, "/metadata/name"));
            line(began, self.gone(&shown.claim).await?, "claim gone");
            let gone = self
                .recorder
                .until(LIMIT, &format!("the end of {volume}"), |records| {
                    first(records, Kind::Volume, |r| r.gone && r.name() == volume).map(|record| record.at)
                })
                .await;
            let run = {
                let records = self.recorder.records();
                let delete = |r: &Record| r.label(names::LABEL_OPERATION) == "delete" && r.name().contains(&shown.uid);
                first(&records, Kind::Job, delete).map(|record| (record.at, record.name().to_owned()))
            };
            if let Some((at, job)) = &run {
                line(began, *at, &format!("Job {job}"));
            }
            line(began, gone?, "PersistentVolume gone");
            run.context("no delete run was observed")?;
            let name = shown.directory.file_name().and_then(|name| name.to_str()).unwrap_or_default();
            let exists = volumes().iter().any(|names| names.contains(name));
            ensure!(!exists, "{} still exists", shown.directory.display());
            println!("     {} is empty, and belongs to no volume", shown.directory.display());
        }
        let after = volumes();
        println!("     directories of volumes on the node: {}, before: {}", count(&after), count(before));
        // Another cluster of this machine may have the same directories.
        let alone = machine::names_in(Path::new("/run/flex-cluster"))?.len() == 1;
        let uids: BTreeSet<_> = self.recorder.records().iter().map(|record| record.uid().to_owned()).collect();
        let of_demo = |name: &str| alone || uids.iter().any(|uid| !uid.is_empty() && name.contains(uid.as_str()));
        for ((before, after), base) in before.iter().zip(&after).zip(DIRECTORIES) {
            let (leftovers, other): (Vec<_>, Vec<_>) = after.difference(before).partition(|name| of_demo(name));
            ensure!(leftovers.is_empty(), "left behind in {base}: {leftovers:?}");
            if !other.is_empty() {
                println!("     new in {base}, but of another cluster: {other:?}");
            }
        }
        Ok(())
    }

    async fn orchestrator(&mut self) -> Result<()> {
        self.chapter("The orchestrator itself");
        let (name, container, restarts) = {
            let records = self.recorder.records();
            let pod = records
                .iter()
                .rfind(|r| {
                    r.kind == Kind::Pod
                        && r.label("app.kubernetes.io/name") == NAMESPACE
                        && !r.gone
                        && r.text("/metadata/deletionTimestamp").is_empty()
                })
                .context("no pod of the orchestrator")?;
            let restarts = pod.object["status"]["containerStatuses"][0]["restartCount"].as_u64();
            (pod.name().to_owned(), container_id(&records, pod.uid()).context("its pod runs nothing")?, restarts)
        };
        ensure!(restarts == Some(0), "the orchestrator was restarted: {restarts:?}");
        let process = Process::of_container(&container)?;
        let peak = process.peak_memory()? as f64 / 1024.0 / 1024.0;
        println!("     its peak memory: {peak:.1} MiB (VmHWM of process {})", process.pid);

        let pods: Api<Pod> = Api::namespaced(self.client.clone(), NAMESPACE);
        let log = plain(&pods.logs(&name, &LogParams::default()).await?);
        let ready = log.lines().find(|line| line.contains(" ready ")).context("its log has no line `ready`")?;
        let at: Timestamp =
            ready.split_whitespace().next().unwrap_or_default().parse().context("a line of its log has no time")?;
        let took = millis(process.began()?, at);
        println!("     from the start of its process until it was ready: {took:.0} ms, of which by its log:");
        println!("       {}", ready.trim());
        Ok(())
    }

    fn look_around(&self, cluster: &str) -> Result<()> {
        let status = std::env::current_exe()?.with_file_name("flex-provisioner");
        ensure!(status.exists(), "the program for people is missing beside this one: {}", status.display());
        let arguments = if cluster == "demo" { String::new() } else { format!(" CLUSTER={cluster}") };
        println!(
            "\nLook around; the cluster stays up until `make cluster-down{arguments}`:\n
     export KUBECONFIG={}
     alias kubectl='{} kubectl'
     kubectl -n {NAMESPACE} get configmaps -l type=provisioner-config
     kubectl apply -f examples/hostpath/pure.yaml; kubectl get persistentvolumeclaims --watch
     kubectl describe persistentvolumeclaim scratch-example
     kubectl -n {NAMESPACE} logs deployment/flex-provisioner --follow
     {} status -A
     ls {}        # all components' logs, and the audit log of the API",
            self.cluster.kubeconfig().display(),
            self.cluster.kubectl().get_program().to_string_lossy(),
            status.display(),
            self.cluster.log_dir().display(),
        );
        Ok(())
    }
}

fn line(began: Timestamp, at: Timestamp, what: &str) {
    println!("     {:>6.0} ms  {what}", millis(began, at));
}

fn text<'v>(value: &'v Value, pointer: &str) -> &'v str {
    value.pointer(pointer).and_then(Value::as_str).unwrap_or_default()
}

/// Returns the names of the existing objects of a kind.
fn alive(records: &[Record], kind: Kind) -> BTreeSet<String> {
    let mut names = BTreeSet::new();
    for record in records.iter().filter(|record| record.kind == kind) {
        match record.gone {
            true => names.remove(record.name()),
            false => names.insert(record.name().to_owned()),
        };
    }
    names
}

/// Returns the volumes on the node, for each of the classes.
fn volumes() -> Vec<BTreeSet<String>> {
    DIRECTORIES.iter().map(|directory| cluster::volumes_in(directory)).collect()
}

fn count(directories: &[BTreeSet<String>]) -> usize {
    directories.iter().map(BTreeSet::len).sum()
}

fn greeting(directory: &Path) -> Result<String> {
    let file = directory.join("greeting");
    let text = std::fs::read_to_string(&file).with_context(|| format!("read {}", file.display()))?;
    Ok(format!("{} says `{}`", file.display(), text.trim()))
}

/// Removes the colours of terminals.
fn plain(text: &str) -> String {
    let mut plain = String::new();
    let mut characters = text.chars();
    while let Some(character) = characters.next() {
        match character {
            '\u{1b}' => {
                let _ = characters.find(char::is_ascii_alphabetic);
            }
            other => plain.push(other),
        }
    }
    plain
}
