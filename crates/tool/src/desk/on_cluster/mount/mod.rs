//! Pods that mount the volumes of runs: they write and read content, as the pods of a user would.
//!
//! A pod needs a claim. The claim of a run exists only in the variables of its Job, so that nobody acts on it. So the
//! command makes a second PersistentVolume with the same source, and a claim of its own.

mod objects;
mod progress;

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use flex_desk::conformance::mounts::{Mounts, Reading};
use flex_desk::conformance::pending::Pending;
use flex_desk::desk::DeskError;
use flex_provisioner::api::pages;
use k8s_openapi::api::core::v1::{Event, PersistentVolume, PersistentVolumeClaim, Pod};
use kube::api::{DeleteParams, ListParams, PostParams};
use kube::{Api, Client, Resource};
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::time::sleep;

use self::objects::Act;
pub(super) use self::objects::{LABEL_MOUNT, MountPods};
use self::progress::{Progress, progress, too_late};
use super::requests::{KILL_GRACE, POLL, broken, is_busy, is_transient, patiently, remove};

/// The time after which an image that does not start ends the command.
const STUCK: Duration = Duration::from_secs(30);
/// The time in which the PV controller must have bound a claim.
const BOUND: Duration = Duration::from_secs(60);

/// The mount pods of one call of the command.
pub(super) struct Mounter {
    client: Client,
    pods: MountPods,
    count: Cell<u32>,
    /// The names of mounts whose objects may exist.
    begun: RefCell<BTreeSet<String>>,
}

impl Mounter {
    pub fn new(client: Client, pods: MountPods) -> Self {
        Mounter { client, pods, count: Cell::new(0), begun: RefCell::default() }
    }

    fn pods(&self) -> Api<Pod> {
        Api::namespaced(self.client.clone(), &self.pods.namespace)
    }

    fn claims(&self) -> Api<PersistentVolumeClaim> {
        Api::namespaced(self.client.clone(), &self.pods.namespace)
    }

    fn volumes(&self) -> Api<PersistentVolume> {
        Api::all(self.client.clone())
    }

    /// Notes a mount whose objects may exist from now on.
    pub fn begins(&self, name: &str) {
        self.begun.borrow_mut().insert(name.to_owned());
    }

    /// Lets a pod mount a volume and act on its content. Removes the pod and its objects before the return, so that the
    /// storage is free again.
    async fn mount(&self, original: &PersistentVolume, act: Act<'_>) -> Result<Reading, DeskError> {
        self.count.set(self.count.get() + 1);
        let of = original.metadata.name.clone().unwrap_or_default();
        let id = of.strip_prefix("pvc-").unwrap_or(&of);
        let name = format!("mount-{id}-{}", self.count.get());
        self.begins(&name);
        let reading = self.followed(&name, id, original, act).await;
        // If both fail, the first error says more. The end of the command removes what is left, or names it.
        let removed = self.remove(&name).await;
        if reading.is_ok() && removed.is_ok() {
            // The API server has answered each creation, so that none of these objects can appear later.
            self.begun.borrow_mut().remove(&name);
        }
        reading.and_then(|reading| removed.map(|()| reading))
    }

    async fn followed(
        &self,
        name: &str,
        id: &str,
        original: &PersistentVolume,
        act: Act<'_>,
    ) -> Result<Reading, DeskError> {
        create(&self.volumes(), &self.pods.volume(name, id, original), "PersistentVolume").await?;
        create(&self.claims(), &self.pods.claim(name, id, original), "PersistentVolumeClaim").await?;
        self.bound(name).await?;
        create(&self.pods(), &self.pods.pod(name, id, original, act), "pod").await?;
        let volume = original.metadata.name.as_deref().unwrap_or_default();
        let (began, mut stuck_since) = (Instant::now(), None::<Instant>);
        loop {
            sleep(POLL).await;
            let pod = patiently(is_transient, || async { self.pods().get(name).await }).await;
            let pod = pod.map_err(|error| broken(&format!("the pod {name} cannot be read"), &error))?;
            match progress(&pod, act, volume) {
                Progress::Ended(reading) => return Ok(reading),
                Progress::Runs => stuck_since = None,
                Progress::NoImage(why) if stuck_since.get_or_insert_with(Instant::now).elapsed() > STUCK => {
                    return Err(DeskError::Machine(format!(
                        "the pod {}/{name}, which {} the volume {volume}, has not started within {} s: {why}; the pod needs \
                         an image with a shell, which --mount-image names, and a user, which --mount-user names",
                        self.pods.namespace,
                        act.verb(),
                        STUCK.as_secs(),
                    )));
                }
                Progress::NoImage(_) => {}
            }
            if began.elapsed().as_secs() > self.pods.timeout {
                let warnings = self.warnings(name).await;
                return Ok(Reading::Unusable(too_late(&pod, act, volume, self.pods.timeout, &warnings)));
            }
        }
    }

    async fn warnings(&self, name: &str) -> Vec<Event> {
        let events: Api<Event> = Api::namespaced(self.client.clone(), &self.pods.namespace);
        let about = ListParams::default().fields(&format!("involvedObject.name={name},type=Warning"));
        pages::all(&events, about, |event| event).await.unwrap_or_default()
    }

    /// Waits until the PV controller has bound a claim to its volume.
    async fn bound(&self, name: &str) -> Result<(), DeskError> {
        let began = Instant::now();
        loop {
            let claim = patiently(is_transient, || async { self.claims().get(name).await }).await;
            let claim = claim.map_err(|error| broken(&format!("the claim {name} cannot be read"), &error))?;
            let phase = claim.status.and_then(|status| status.phase).unwrap_or_default();
            if phase == "Bound" {
                return Ok(());
            }
            if began.elapsed() > BOUND {
                return Err(DeskError::Machine(format!(
                    "the PV controller has not bound the claim {}/{name} to its volume within {} s: its phase is {phase}",
                    self.pods.namespace,
                    BOUND.as_secs()
                )));
            }
            sleep(POLL).await;
        }
    }

    /// Removes the objects of a pod: the pod, and then what it uses.
    async fn remove(&self, name: &str) -> Result<(), DeskError> {
        let (namespace, kill) = (&self.pods.namespace, DeleteParams::default().grace_period(KILL_GRACE));
        remove(&self.pods(), name, &format!("the pod {namespace}/{name}"), &kill).await?;
        let usual = DeleteParams::default();
        remove(&self.claims(), name, &format!("the PersistentVolumeClaim {namespace}/{name}"), &usual).await?;
        // An attacher keeps the volume until no node has it any more.
        remove(&self.volumes(), name, &format!("the PersistentVolume {name}"), &usual).await
    }

    /// Removes the objects of all mounts whose end the command has not seen, without the mounts that are `stuck`. Returns
    /// what is left, by the name of the mount. The names stay: the API server may carry out a creation without an answer
    /// after this removal, so that the call repeats the removal at its end.
    pub async fn clean(&self, stuck: &BTreeMap<String, String>) -> BTreeMap<String, String> {
        let names: Vec<String> =
            self.begun.borrow().iter().filter(|name| !stuck.contains_key(*name)).cloned().collect();
        let mut left = BTreeMap::new();
        for name in names {
            let what = |error| {
                format!(
                    "the pod, the PersistentVolumeClaim and the PersistentVolume {name} of a mount, perhaps: {error}"
                )
            };
            if let Some(text) = self.remove(&name).await.err().map(what) {
                left.insert(name, text);
            }
        }
        left
    }
}

async fn create<K>(api: &Api<K>, object: &K, kind: &str) -> Result<(), DeskError>
where
    K: Resource + Clone + DeserializeOwned + Serialize + std::fmt::Debug,
{
    let created = patiently(is_busy, || async { api.create(&PostParams::default(), object).await }).await;
    let name = object.meta().name.as_deref().unwrap_or_default();
    created.map(drop).map_err(|error| broken(&format!("the {kind} {name} cannot be created"), &error))
}

impl Mounts for Mounter {
    fn write<'a>(&'a self, volume: &'a PersistentVolume, line: &'a str) -> Pending<'a, Reading> {
        Box::pin(self.mount(volume, Act::Write(line)))
    }

    fn read<'a>(&'a self, volume: &'a PersistentVolume) -> Pending<'a, Reading> {
        Box::pin(self.mount(volume, Act::Read))
    }
}
