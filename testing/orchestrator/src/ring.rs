//! The second ring: a control plane, and the orchestrator as a process that can be killed at any time.

use std::collections::BTreeMap;
use std::fs::File;
use std::path::PathBuf;
use std::process::Stdio;
use std::time::Duration;

use cluster::Cluster;
use flex_contract::names;
use k8s_openapi::api::core::v1::{
    ConfigMap, Event, Namespace, PersistentVolume, PersistentVolumeClaim, ServiceAccount,
};
use k8s_openapi::api::storage::v1::StorageClass;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams};
use kube::{Api, Client};
use serde_json::{Value, json};
use tokio::process::{Child, Command};

use crate::deployed::root;
use crate::programs::orchestrator;
use crate::wait::{unexpected, until};

/// The orchestrator's namespace in these tests.
pub const OWN: &str = "flex-provisioner";
/// The name of the orchestrator in its Lease.
pub const REPLICA: &str = "one";
/// The namespace of the configs.
pub const ADMIN: &str = "admin";
/// The namespace of the users.
pub const USER: &str = "team";

/// A control plane with an orchestrator.
pub struct Ring {
    pub client: Client,
    /// The namespace of this test's users.
    pub user: String,
    /// The namespace of the configs.
    pub admin: String,
    /// Declared before the cluster, so that it is dropped first.
    process: Option<Child>,
    cluster: Cluster,
    dir: tempfile::TempDir,
    program: PathBuf,
    flags: Vec<String>,
    kubeconfig: PathBuf,
    starts: usize,
}

impl Ring {
    /// Starts the control plane and the orchestrator.
    pub async fn start() -> Ring {
        Ring::start_with(&[]).await
    }

    /// Does the same, with further flags of the orchestrator.
    pub async fn start_with(flags: &[&str]) -> Ring {
        let mut ring = Ring::without_orchestrator(flags).await;
        ring.run().await;
        ring
    }

    /// Starts the control plane alone.
    pub async fn without_orchestrator(flags: &[&str]) -> Ring {
        Ring::on(Cluster::lent().await.expect("the control plane starts"), flags).await
    }

    /// Does the same on a control plane that was started before.
    pub async fn on(cluster: Cluster, flags: &[&str]) -> Ring {
        let client = cluster.client().await.expect("the API server answers");
        let ring = Ring {
            client,
            user: USER.into(),
            admin: ADMIN.into(),
            kubeconfig: cluster.kubeconfig(),
            cluster,
            dir: tempfile::tempdir().unwrap(),
            program: orchestrator(),
            flags: flags.iter().map(|flag| (*flag).to_owned()).collect(),
            process: None,
            starts: 0,
        };
        for namespace in [OWN, ADMIN, USER] {
            ring.namespace(namespace, &[]).await;
        }
        ring
    }

    /// Joins a whole cluster in which the orchestrator is deployed, with a namespace of its own.
    pub async fn on_whole(cluster: Cluster, user: &str) -> Ring {
        let ring = Ring {
            client: cluster.client().await.expect("the API server answers"),
            user: user.into(),
            admin: OWN.into(),
            kubeconfig: cluster.kubeconfig(),
            cluster,
            dir: tempfile::tempdir().unwrap(),
            program: orchestrator(),
            flags: Vec::new(),
            process: None,
            starts: 0,
        };
        ring.namespace(user, &[]).await;
        ring
    }

    /// Makes the orchestrator act as its ServiceAccount from its next start on, with the rights of `deploy/`.
    pub fn with_shipped_rights(&mut self) {
        let rbac = root().join("deploy/kustomize/rbac.yaml");
        for namespace in [OWN, ADMIN] {
            let applied = self.cluster.kubectl().args(["-n", namespace, "apply", "-f"]).arg(&rbac).output().unwrap();
            assert!(applied.status.success(), "{}", String::from_utf8_lossy(&applied.stderr));
        }
        let own = std::fs::read_to_string(self.cluster.kubeconfig()).unwrap();
        let mut config: Value = serde_saphyr::from_str(&own).unwrap();
        for user in config["users"].as_array_mut().unwrap() {
            user["user"]["as"] = json!(format!("system:serviceaccount:{OWN}:flex-provisioner"));
        }
        self.kubeconfig = self.dir.path().join("kubeconfig");
        std::fs::write(&self.kubeconfig, config.to_string()).unwrap();
    }

    /// Installs the kind ReferenceGrant, which is deleted with the cluster.
    pub fn install_grants(&self) {
        let kind = concat!(env!("CARGO_MANIFEST_DIR"), "/referencegrants.yaml");
        let named = "customresourcedefinition/referencegrants.gateway.networking.k8s.io";
        let established = ["wait", "--for=condition=Established", "--timeout=300s", named];
        for command in [["apply", "-f", kind].as_slice(), &established] {
            let output = self.cluster.kubectl().args(command).output().unwrap();
            assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        }
    }

    pub fn cluster(&self) -> &Cluster {
        &self.cluster
    }

    /// Starts the orchestrator.
    pub async fn run(&mut self) {
        self.starts += 1;
        let child = self.spawn(REPLICA).await;
        self.process = Some(child);
    }

    /// Returns the process id of the orchestrator.
    pub fn pid(&self) -> u32 {
        self.process.as_ref().and_then(Child::id).expect("the orchestrator runs")
    }

    /// Makes another program the orchestrator, from its next start on.
    pub fn use_program(&mut self, program: impl Into<PathBuf>) {
        self.program = program.into();
    }

    /// Starts another replica.
    pub async fn spawn(&self, replica: &str) -> Child {
        let log = File::create(self.log(self.starts, replica)).unwrap();
        Command::new(&self.program)
            // Before the orchestrator had a program of its own, it was a command of the tool.
            .args(self.program.ends_with("flex-provisioner").then_some("run"))
            .args(["--namespace", OWN, "--config-namespace", ADMIN, "--replica", replica])
            .args(["--admin-address", "127.0.0.1:0"])
            .args(["--log", "flex_provisioner=debug,info"])
            .args(&self.flags)
            .env("KUBECONFIG", &self.kubeconfig)
            // All rings have one network. A test of the page names another address by a flag.
            .env("FLEX_STATUS_ADDRESS", "off")
            .stdout(Stdio::null())
            .stderr(Stdio::from(log))
            .kill_on_drop(true)
            .spawn()
            .unwrap()
    }

    /// Waits for a line of the orchestrator's log that contains a text.
    pub async fn logged(&self, text: &str) -> String {
        until(format!("the log says `{text}`"), || async {
            let log = self.log_text();
            log.lines().find(|line| line.contains(text)).map(str::to_owned).ok_or(log)
        })
        .await
    }

    /// Returns the log of the running orchestrator.
    pub fn log_text(&self) -> String {
        std::fs::read_to_string(self.log(self.starts, REPLICA)).unwrap_or_default()
    }

    /// Returns the log of another replica.
    pub fn log_of_replica(&self, replica: &str) -> String {
        std::fs::read_to_string(self.log(self.starts, replica)).unwrap_or_default()
    }

    /// Writes a file that is deleted with the test.
    pub fn file(&self, name: &str, text: &str) -> PathBuf {
        let path = self.dir.path().join(name);
        std::fs::write(&path, text).unwrap();
        path
    }

    fn log(&self, start: usize, replica: &str) -> PathBuf {
        self.dir.path().join(format!("orchestrator-{start}-{replica}.log"))
    }

    /// Kills the orchestrator, as a crash does.
    pub async fn kill(&mut self) {
        self.process.take().expect("the orchestrator runs").kill().await.unwrap();
    }

    /// Stops it as Kubernetes does, and waits until it has ended.
    pub async fn stop(&mut self) {
        let mut child = self.process.take().expect("the orchestrator runs");
        let pid = child.id().expect("the orchestrator has not ended");
        assert!(std::process::Command::new("kill").arg(pid.to_string()).status().unwrap().success());
        let status = child.wait().await.unwrap();
        assert!(status.success(), "{status}");
    }

    /// Kills it and starts it again.
    pub async fn restart(&mut self) {
        self.kill().await;
        self.run().await;
    }

    /// Makes the orchestrator know all that has happened: its watches may be behind, and its first lists are not.
    pub async fn catch_up(&mut self) {
        self.restart().await;
    }

    pub fn api<K>(&self, namespace: &str) -> Api<K>
    where
        K: kube::Resource<Scope = k8s_openapi::NamespaceResourceScope, DynamicType = ()>,
    {
        Api::namespaced(self.client.clone(), namespace)
    }

    pub fn claims(&self) -> Api<PersistentVolumeClaim> {
        self.api(&self.user)
    }

    pub fn volumes(&self) -> Api<PersistentVolume> {
        Api::all(self.client.clone())
    }

    pub async fn namespace(&self, name: &str, labels: &[(&str, &str)]) {
        let labels: BTreeMap<_, _> = labels.iter().copied().collect();
        let namespace: Namespace =
            serde_json::from_value(json!({ "metadata": { "name": name, "labels": labels } })).unwrap();
        let namespaces: Api<Namespace> = Api::all(self.client.clone());
        let _ = namespaces.create(&PostParams::default(), &namespace).await;
        // The API server refuses pods until the namespace has its default account.
        until("the default account", || async {
            self.api::<ServiceAccount>(name).get("default").await.map(drop).map_err(|error| error.to_string())
        })
        .await;
    }

    /// Creates a ServiceAccount in the config namespace.
    pub async fn account(&self, name: &str) {
        let account: ServiceAccount = serde_json::from_value(json!({ "metadata": { "name": name } })).unwrap();
        self.api::<ServiceAccount>(&self.admin).create(&PostParams::default(), &account).await.unwrap();
    }

    /// Creates or replaces a provisioner config for a class.
    pub async fn config(&self, name: &str, class: &str, data: &[(&str, &str)]) -> ConfigMap {
        self.config_in(&self.admin, name, class, data).await
    }

    pub async fn config_in(&self, namespace: &str, name: &str, class: &str, data: &[(&str, &str)]) -> ConfigMap {
        // Tests of nodes set the placement themselves.
        let usual = [("plugin-name", names::DEFAULT_PLUGIN), ("image", "example/image"), ("placement", "any")];
        let mut all: BTreeMap<&str, &str> = usual.into();
        all.extend(data.iter().copied());
        all.retain(|_, value| *value != "-");
        let labels = json!({ names::LABEL_TYPE: names::LABEL_TYPE_CONFIG, names::LABEL_STORAGE_CLASS: class });
        let body = json!({
            "apiVersion": "v1", "kind": "ConfigMap",
            "metadata": { "name": name, "namespace": namespace, "labels": labels },
            "data": all,
        });
        let api = self.api::<ConfigMap>(namespace);
        let applied = api.patch(name, &PatchParams::apply("admin").force(), &Patch::Apply(body)).await;
        applied.unwrap()
    }

    pub async fn class(&self, name: &str, provisioner: &str, more: Value) -> StorageClass {
        let mut body = json!({ "metadata": { "name": name }, "provisioner": provisioner });
        body.as_object_mut().unwrap().extend(more.as_object().cloned().unwrap_or_default());
        let api: Api<StorageClass> = Api::all(self.client.clone());
        api.create(&PostParams::default(), &serde_json::from_value(body).unwrap()).await.unwrap()
    }

    /// Creates a claim of 1 GiB.
    pub async fn claim(&self, name: &str, class: &str) -> PersistentVolumeClaim {
        self.claim_with(name, class, json!({})).await
    }

    /// Creates a claim; `more` is merged over the usual one.
    pub async fn claim_with(&self, name: &str, class: &str, more: Value) -> PersistentVolumeClaim {
        self.claims().create(&PostParams::default(), &claim_of(class, name, more)).await.unwrap()
    }

    pub async fn get_claim(&self, name: &str) -> PersistentVolumeClaim {
        self.claims().get(name).await.unwrap()
    }

    /// Waits until a claim is in a state.
    pub async fn claim_when(
        &self,
        name: &str,
        what: &str,
        is: impl Fn(&PersistentVolumeClaim) -> bool,
    ) -> PersistentVolumeClaim {
        let found = until(format!("claim {name} {what}"), || async {
            let claim = self.claims().get(name).await.map_err(|error| error.to_string())?;
            if is(&claim) {
                Ok(claim)
            } else {
                unexpected((&claim.metadata.annotations, &claim.metadata.finalizers, &claim.status))
            }
        });
        self.explained(found).await
    }

    pub async fn bound(&self, name: &str) -> PersistentVolumeClaim {
        self.claim_when(name, "is Bound", |claim| phase(claim) == "Bound").await
    }

    pub async fn stamped(&self, name: &str) -> PersistentVolumeClaim {
        self.claim_when(name, "is stamped", |claim| annotation(claim, names::ATTEMPT).is_some()).await
    }

    /// Waits until a claim is gone, and what its runs have made is undone.
    pub async fn claim_gone(&self, name: &str) {
        self.claim_vanished(name).await;
        self.unrecorded(name).await;
    }

    /// Waits until a claim itself is gone.
    pub async fn claim_vanished(&self, name: &str) {
        let gone = until(format!("claim {name} is gone"), || async {
            match self.claims().get_opt(name).await.map_err(|error| error.to_string())? {
                None => Ok(()),
                Some(claim) => unexpected((&claim.metadata.finalizers, &claim.metadata.annotations)),
            }
        });
        self.explained(gone).await;
    }

    pub async fn volume_gone(&self, name: &str) {
        let gone = until(format!("volume {name} is gone"), || async {
            match self.volumes().get_opt(name).await.map_err(|error| error.to_string())? {
                None => Ok(()),
                Some(volume) => unexpected((&volume.metadata.finalizers, &volume.metadata.annotations, &volume.status)),
            }
        });
        self.explained(gone).await;
    }

    pub async fn delete_claim(&self, name: &str) {
        self.claims().delete(name, &DeleteParams::default()).await.unwrap();
    }

    /// Waits for an event about an object whose message contains a text; returns the message.
    pub async fn event(&self, namespace: &str, about: &str, reason: impl AsRef<str>, text: &str) -> String {
        let reason = reason.as_ref();
        let found = until(format!("event {reason} on {about} that says `{text}`"), || async {
            let list = ListParams::default().fields(&format!("involvedObject.name={about}"));
            let events = self.api::<Event>(namespace).list(&list).await.map_err(|error| error.to_string())?;
            let messages: Vec<_> = events
                .iter()
                .map(|e| (e.reason.clone().unwrap_or_default(), e.message.clone().unwrap_or_default()))
                .collect();
            match messages.iter().find(|(r, message)| r == reason && message.contains(text)) {
                Some((_, message)) => Ok(message.clone()),
                None => unexpected(messages),
            }
        });
        self.explained(found).await
    }

    /// Adds the orchestrator's log to a panic.
    pub async fn explained<T>(&self, waiting: impl Future<Output = T>) -> T {
        struct Dump(Option<PathBuf>);
        impl Drop for Dump {
            fn drop(&mut self) {
                if let Some(log) = self.0.take().filter(|_| std::thread::panicking()) {
                    let text = std::fs::read_to_string(log).unwrap_or_default();
                    let last: Vec<_> = text.lines().rev().take(40).collect();
                    eprintln!(
                        "--- the orchestrator's log ends:\n{}",
                        last.into_iter().rev().collect::<Vec<_>>().join("\n")
                    );
                }
            }
        }
        let mut dump = Dump(Some(self.log(self.starts, REPLICA)));
        let done = waiting.await;
        dump.0 = None;
        done
    }
}

pub fn merge(into: &mut Value, from: Value) {
    match (into, from) {
        (Value::Object(into), Value::Object(from)) => {
            from.into_iter().for_each(|(key, value)| merge(into.entry(key).or_insert(Value::Null), value))
        }
        (into, from) => *into = from,
    }
}

/// Builds a claim of a class; `more` is merged over the usual one.
pub fn claim_of(class: &str, name: &str, more: Value) -> PersistentVolumeClaim {
    let mut body = json!({
        "metadata": { "name": name },
        "spec": { "storageClassName": class, "accessModes": ["ReadWriteOnce"], "resources": { "requests": { "storage": "1Gi" } } },
    });
    merge(&mut body, more);
    serde_json::from_value(body).unwrap()
}

pub fn annotation(claim: &PersistentVolumeClaim, key: &str) -> Option<String> {
    claim.metadata.annotations.as_ref()?.get(key).cloned()
}

pub fn phase(claim: &PersistentVolumeClaim) -> String {
    claim.status.as_ref().and_then(|status| status.phase.clone()).unwrap_or_default()
}

pub fn uid(claim: &PersistentVolumeClaim) -> String {
    claim.metadata.uid.clone().unwrap()
}

/// Long enough to show that something does not happen.
pub const WHILE: Duration = Duration::from_secs(2);
