//! A site, one for each cut point: a namespace, a class and an orchestrator.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::{Duration, Instant};

use flex_contract::names;
use flex_core::model::record::is_record;
use k8s_openapi::api::apps::v1::ControllerRevision;
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{ConfigMap, PersistentVolume, PersistentVolumeClaim, ServiceAccount};
use k8s_openapi::api::storage::v1::{CSIDriver, CSIStorageCapacity, StorageClass};
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams};
use kube::{Api, ResourceExt};
use serde_json::{Value, json};
use tokio::process::{Child, Command};

use crate::node::Stage;
use crate::world::{Finding, Trouble, World};
use orchestrator::programs::orchestrator;
use orchestrator::ring::{phase, uid};

/// No scenario takes longer than this to end, even on a busy machine.
pub const GUARD: Duration = Duration::from_secs(300);
/// The delay between the first two checks, and the base of later delays: many sites are checked at one time, and each
/// check is work for the API server.
const POLL: Duration = Duration::from_millis(300);

/// Returns the delay until the next check, by the time waited so far.
pub fn pause(waited: Duration) -> Duration {
    (waited / 4).clamp(POLL, 3 * POLL)
}

/// A site. Its name is that of the class, the instance, the config and the users' namespace, in which its orchestrator
/// runs too. Configs, and so Jobs, are in another namespace.
pub struct Site<'w> {
    pub world: &'w World,
    pub name: String,
    binding: &'static str,
}

/// The suffix of the provisioner names of all sites.
pub const PROVISIONERS: &str = ".example";

/// Returns the provisioner name of a site.
pub fn provisioner(site: &str) -> String {
    format!("{site}{PROVISIONERS}")
}

impl<'w> Site<'w> {
    /// Returns a site whose namespaces do not exist yet.
    pub fn on(world: &'w World, name: String, binding: &'static str) -> Site<'w> {
        Site { world, name, binding }
    }

    /// Returns the namespace of configs and Jobs.
    pub fn admin(&self) -> String {
        format!("{}-admin", self.name)
    }

    pub fn in_admin<K>(&self) -> Api<K>
    where
        K: kube::Resource<Scope = k8s_openapi::NamespaceResourceScope, DynamicType = ()>,
    {
        Api::namespaced(self.world.client.clone(), &self.admin())
    }

    pub fn api<K>(&self) -> Api<K>
    where
        K: kube::Resource<Scope = k8s_openapi::NamespaceResourceScope, DynamicType = ()>,
    {
        Api::namespaced(self.world.client.clone(), &self.name)
    }

    pub fn claims(&self) -> Api<PersistentVolumeClaim> {
        self.api()
    }

    fn classes(&self) -> Api<StorageClass> {
        Api::all(self.world.client.clone())
    }

    /// Waits for the default account of the namespace, without which pods are refused.
    pub async fn is_ready(&self) -> Result<(), Finding> {
        let accounts = self.in_admin::<ServiceAccount>();
        self.until("the default account", || async {
            accounts.get("default").await.map(drop).map_err(|error| error.to_string())
        })
        .await
    }

    /// Starts an orchestrator as a replica of this name. If an earlier one had the name, the new one finds its own
    /// Lease, as a container does that is restarted in its pod.
    pub fn run(&self, kubeconfig: &Path, replica: &str, start: &str) -> Child {
        let log = File::create(self.log(start)).unwrap();
        Command::new(orchestrator())
            .args(["--replica", replica, "--admin-address", "127.0.0.1:0"])
            .args(["--namespace", &self.name, "--instance", &self.name, "--provisioner-name", &provisioner(&self.name)])
            .args(["--config-namespace", &self.admin()])
            .args(["--binding", self.binding, "--log", "flex_provisioner=debug,info"])
            .env("KUBECONFIG", kubeconfig)
            .stderr(Stdio::from(log))
            .kill_on_drop(true)
            .spawn()
            .unwrap()
    }

    fn log(&self, start: &str) -> PathBuf {
        self.world.file(&format!("{}-{start}.log", self.name))
    }

    /// Returns how often the log of an orchestrator has a text.
    pub fn times_in_log(&self, start: &str, text: &str) -> usize {
        std::fs::read_to_string(self.log(start)).unwrap_or_default().matches(text).count()
    }

    /// Returns the end of the log of an orchestrator.
    pub fn log_end(&self, start: &str) -> String {
        let text = std::fs::read_to_string(self.log(start)).unwrap_or_default();
        let lines: Vec<_> = text.lines().collect();
        lines[lines.len().saturating_sub(30)..].join("\n")
    }

    /// Waits until a check finds something; after the time limit the item counts as stuck.
    pub async fn until<T, F: Future<Output = Result<T, String>>>(
        &self,
        what: &str,
        mut check: impl FnMut() -> F,
    ) -> Result<T, Finding> {
        let began = Instant::now();
        loop {
            match check().await {
                Ok(found) => return Ok(found),
                Err(observed) if began.elapsed() > GUARD => {
                    return Err(Finding { trouble: Trouble::Stuck, what: format!("{what}: {observed}") });
                }
                Err(_) => tokio::time::sleep(pause(began.elapsed())).await,
            }
        }
    }

    /// Writes the config.
    pub async fn config(&self, data: &[(&str, &str)]) {
        let mut all: BTreeMap<&str, &str> = [("plugin-name", names::DEFAULT_PLUGIN), ("image", "example/image")].into();
        all.extend(data.iter().copied());
        let labels = json!({ names::LABEL_TYPE: names::LABEL_TYPE_CONFIG, names::LABEL_STORAGE_CLASS: self.name });
        let body = json!({
            "apiVersion": "v1", "kind": "ConfigMap", "metadata": { "name": self.name, "labels": labels }, "data": all,
        });
        let apply = PatchParams::apply("admin").force();
        self.in_admin::<ConfigMap>()
            .patch(&self.name, &apply, &Patch::Apply(body))
            .await
            .expect("the config is written");
    }

    pub async fn delete_config(&self) {
        self.in_admin::<ConfigMap>().delete(&self.name, &DeleteParams::default()).await.expect("the config is deleted");
    }

    /// Creates the StorageClass.
    pub async fn class(&self, parameters: &[(&str, &str)]) {
        let parameters: BTreeMap<_, _> = parameters.iter().copied().collect();
        let class = json!({
            "metadata": { "name": self.name }, "provisioner": provisioner(&self.name), "parameters": parameters,
            "allowVolumeExpansion": true,
        });
        let class = serde_json::from_value(class).unwrap();
        self.classes().create(&PostParams::default(), &class).await.expect("the class is created");
    }

    /// Creates the StorageClass, with claims that wait for their first consumer.
    pub async fn delayed_class(&self) {
        let class = json!({
            "metadata": { "name": self.name }, "provisioner": provisioner(&self.name),
            "volumeBindingMode": "WaitForFirstConsumer",
        });
        let class = serde_json::from_value(class).unwrap();
        self.classes().create(&PostParams::default(), &class).await.expect("the class is created");
    }

    /// Waits until this capacity is published, or none is and the scheduler stops checking.
    pub async fn has_published(&self, bytes: Option<u64>) -> Result<(), Finding> {
        let drivers: Api<CSIDriver> = Api::all(self.world.client.clone());
        let capacities = self.api::<CSIStorageCapacity>();
        self.until("the capacity is published", || async {
            let driver = drivers.get_opt(&provisioner(&self.name)).await.map_err(|error| error.to_string())?;
            let all = capacities.list(&ListParams::default()).await.map_err(|error| error.to_string())?.items;
            let published: Vec<_> = all.iter().filter_map(|one| Some(one.capacity.as_ref()?.0.clone())).collect();
            let scheduler_checks = driver.is_some_and(|driver| driver.spec.storage_capacity == Some(true));
            let expected = bytes.map(|bytes| bytes.to_string()).into_iter().collect::<Vec<_>>();
            match scheduler_checks == bytes.is_some() && published == expected {
                true => Ok(()),
                false => Err(format!("{published:?}, scheduler checks: {scheduler_checks}")),
            }
        })
        .await
    }

    /// Waits until the published capacity is that of the newest version of the config.
    pub async fn has_published_with_last_config(&self) -> Result<(), Finding> {
        let revisions =
            self.api::<ControllerRevision>().list(&ListParams::default()).await.expect("revisions are listed");
        let newest = revisions
            .items
            .iter()
            .filter(|revision| !is_record(&revision.name_any()))
            .max_by_key(|revision| revision.revision)
            .expect("the config has a version")
            .name_any();
        let hash = newest.rsplit('-').next().unwrap_or_default().to_owned();
        let capacities = self.api::<CSIStorageCapacity>();
        self.until("the newest config has reported its capacity", || async {
            let all = capacities.list(&ListParams::default()).await.map_err(|error| error.to_string())?.items;
            let records: Vec<_> = all.iter().filter_map(|one| one.annotations().get(names::CAPACITY)).collect();
            match records.as_slice() {
                [record] if record.contains(&hash) => Ok(()),
                records => Err(format!("{records:?}, not {hash}")),
            }
        })
        .await
    }

    pub async fn delete_class(&self) {
        self.classes().delete(&self.name, &DeleteParams::default()).await.expect("the class is deleted");
    }

    /// Creates a claim of 1 GiB.
    pub async fn claim(&self, name: &str) {
        self.claim_from(name, json!(null)).await;
    }

    /// Creates a claim that clones another.
    pub async fn copy(&self, name: &str, of: &str) {
        self.claim_from(name, json!({ "kind": "PersistentVolumeClaim", "name": of })).await;
    }

    /// Creates a claim that is restored from a snapshot.
    pub async fn restore(&self, name: &str, from: &str) {
        let source = json!({ "apiGroup": "snapshot.storage.k8s.io", "kind": "VolumeSnapshot", "name": from });
        self.claim_from(name, source).await;
    }

    async fn claim_from(&self, name: &str, source: Value) {
        let claim = json!({
            "metadata": { "name": name },
            "spec": {
                "storageClassName": self.name, "accessModes": ["ReadWriteOnce"], "dataSource": source,
                "resources": { "requests": { "storage": "1Gi" } },
            },
        });
        let claim = serde_json::from_value(claim).unwrap();
        self.claims().create(&PostParams::default(), &claim).await.expect("the claim is created");
    }

    /// A user requests another size.
    pub async fn ask(&self, name: &str, size: &str) {
        let requested = json!({ "spec": { "resources": { "requests": { "storage": size } } } });
        self.claims()
            .patch(name, &PatchParams::default(), &Patch::Merge(requested))
            .await
            .expect("the API server accepts the request");
    }

    pub async fn delete_claim(&self, name: &str) {
        self.claims().delete(name, &DeleteParams::default()).await.expect("the claim is deleted");
    }

    /// Waits for a claim in a state.
    pub async fn claim_when(
        &self,
        name: &str,
        what: &str,
        is: impl Fn(&PersistentVolumeClaim) -> bool,
    ) -> Result<PersistentVolumeClaim, Finding> {
        let claims = self.claims();
        self.until(&format!("claim {name} {what}"), || async {
            let claim = claims.get(name).await.map_err(|error| error.to_string())?;
            let observed = format!("{:?} {:?}", claim.metadata.annotations, claim.status);
            if is(&claim) { Ok(claim) } else { Err(observed) }
        })
        .await
    }

    pub async fn bound(&self, name: &str) -> Result<PersistentVolumeClaim, Finding> {
        self.claim_when(name, "is Bound", |claim| phase(claim) == "Bound").await
    }

    /// Waits until one of two claims is Bound; returns the bound claim, and the other.
    pub async fn first_bound(
        &self,
        one: &'static str,
        other: &'static str,
    ) -> Result<(&'static str, &'static str), Finding> {
        let claims = self.claims();
        self.until("one of the claims is Bound", || async {
            for (is, is_not) in [(one, other), (other, one)] {
                if phase(&claims.get(is).await.map_err(|error| error.to_string())?) == "Bound" {
                    return Ok((is, is_not));
                }
            }
            Err("none is".to_owned())
        })
        .await
    }

    /// Checks for a while that no attempt begins for a claim.
    pub async fn stays_unstamped(&self, name: &str) -> Result<(), Finding> {
        let claims = self.claims();
        for _ in 0..5 {
            let claim = claims.get(name).await.expect("the claim exists");
            if claim.annotations().contains_key(names::ATTEMPT) {
                return Err(Finding {
                    trouble: Trouble::Duplicate,
                    what: format!("{name} has begun beyond the quota"),
                });
            }
            tokio::time::sleep(POLL).await;
        }
        Ok(())
    }

    pub async fn stamped(&self, name: &str) -> Result<PersistentVolumeClaim, Finding> {
        let stamp = |claim: &PersistentVolumeClaim| claim.annotations().contains_key(names::ATTEMPT);
        self.claim_when(name, "is stamped", stamp).await
    }

    /// Waits until an image of this site has reached a stage.
    pub async fn reached(&self, stage: Stage) -> Result<(), Finding> {
        let has = || self.world.node.has_reached(&self.admin(), stage);
        self.until("an image runs", || async { has().then_some(()).ok_or_else(|| format!("not {}", stage.as_str())) })
            .await
    }

    /// Waits until the storage of this many claims is made.
    pub async fn made(&self, count: usize) -> Result<(), Finding> {
        self.until(&format!("storage of {count} claims"), || async {
            let made = self.storage();
            if made.len() == count { Ok(()) } else { Err(format!("{made:?}")) }
        })
        .await
    }

    /// Waits until exactly this many volumes are pooled, and no pool request is left. Returns their names.
    pub async fn ready(&self, count: usize) -> Result<BTreeSet<String>, Finding> {
        let volumes: Api<PersistentVolume> = Api::all(self.world.client.clone());
        let labels = format!("{}={},{}", names::LABEL_INSTANCE, self.name, names::LABEL_POOL);
        let (of_pool, asked) = (ListParams::default().labels(&labels), ListParams::default().labels(names::LABEL_POOL));
        self.until(&format!("{count} volumes are pooled"), || async {
            let requests = self.claims().list(&asked).await.map_err(|error| error.to_string())?.items;
            let volumes = volumes.list(&of_pool).await.map_err(|error| error.to_string())?.items;
            let of = |volume: &PersistentVolume| volume.spec.as_ref()?.claim_ref.as_ref()?.uid.clone();
            let free =
                |volume: &&PersistentVolume| of(volume).is_none() && volume.metadata.deletion_timestamp.is_none();
            let ready: BTreeSet<_> = volumes.iter().filter(free).map(|volume| volume.name_any()).collect();
            let requests: Vec<_> = requests.iter().map(|request| request.name_any()).collect();
            let settled = ready.len() == count && requests.is_empty();
            if settled { Ok(ready) } else { Err(format!("{ready:?}, asked for {requests:?}")) }
        })
        .await
    }

    /// Waits until this many runs are in progress.
    pub async fn runs(&self, count: usize) -> Result<(), Finding> {
        self.until(&format!("{count} runs"), || async {
            let jobs =
                self.in_admin::<Job>().list(&ListParams::default()).await.map_err(|error| error.to_string())?.items;
            if jobs.len() >= count { Ok(()) } else { Err(jobs.len().to_string()) }
        })
        .await
    }

    /// Releases the images of this site.
    pub fn release_images(&self) {
        self.world.node.release_images(&self.admin());
    }

    /// Waits until the config is recorded as it is now. If the orchestrator observed it before its class, two versions
    /// are recorded.
    pub async fn config_recorded(&self) -> Result<(), Finding> {
        let revisions = self.api::<ControllerRevision>();
        self.until("the config is recorded", || async {
            let written = self.in_admin::<ConfigMap>().get(&self.name).await.map_err(|error| error.to_string())?;
            let mut written = written.data.unwrap_or_default();
            // This key says which provisioner the config belongs to, and is no part of a version.
            written.remove("plugin-name");
            let kept = revisions.list(&ListParams::default()).await.map_err(|error| error.to_string())?.items;
            let has_all = |revision: &ControllerRevision| {
                let data = revision.data.as_ref().map(|data| &data.0["data"]);
                data.is_some_and(|data| written.iter().all(|(key, value)| data[key] == json!(value)))
            };
            if kept.iter().any(has_all) { Ok(()) } else { Err(format!("{written:?} is not among {kept:?}")) }
        })
        .await
    }

    /// Waits until the leftovers on nodes without space are deleted.
    pub async fn cleared(&self) -> Result<(), Finding> {
        let backend = self.world.node.backend();
        self.until("the leftovers of attempts are deleted", || async {
            let leftovers = backend.leftovers(&self.name);
            if leftovers.is_empty() { Ok(()) } else { Err(leftovers.join(", ")) }
        })
        .await
    }

    /// Returns the provenance on the volume of a bound claim.
    pub async fn provenance(&self, claim: &PersistentVolumeClaim) -> String {
        let volumes: Api<PersistentVolume> = Api::all(self.world.client.clone());
        let volume = volumes.get(&names::pv_name(&uid(claim))).await.expect("the volume exists");
        volume.annotations().get(names::PROVENANCE).cloned().unwrap_or_default()
    }

    /// Returns the holder of the Lease.
    pub async fn leader(&self) -> Result<String, String> {
        let lease = self.leases().get(&self.lease()).await.map_err(|error| error.to_string())?;
        Ok(lease.spec.and_then(|spec| spec.holder_identity).unwrap_or_default())
    }

    pub fn leases(&self) -> Api<Lease> {
        self.api()
    }

    /// Returns the name of the site's Lease.
    pub fn lease(&self) -> String {
        format!("flex-provisioner-{}", self.name)
    }

    /// Waits until a replica leads.
    pub async fn led_by(&self, replica: &str) {
        let what = format!("{replica} leads");
        let led = self.until(&what, || async {
            let leader = self.leader().await?;
            if leader == replica { Ok(()) } else { Err(format!("{leader:?} leads")) }
        });
        led.await.unwrap_or_else(|finding| panic!("{finding}\n{}", self.log_end(replica)));
    }

    /// Returns the ids of the volumes on the backend.
    pub fn storage(&self) -> Vec<String> {
        let mine = |claim: &str| claim.split('/').next() == Some(self.name.as_str());
        let volumes = self.world.node.backend().volumes();
        volumes.into_iter().filter(|(_, claim)| mine(claim)).map(|(id, _)| id).collect()
    }
}
