//! The Job of each operation, built by the functions with which the orchestrator builds it.

use std::sync::PoisonError;

use flex_contract::names;
use flex_contract::operation::Operation;
use flex_contract::request::{CloneSource, RunRequest, Snapshot};
use flex_contract::snapshot_handle;
use flex_contract::volume::volume_source;
use flex_core::capacity::run::{CapacityRun, capacity};
use flex_core::capacity::segment::Segment;
use flex_core::claim::request::{Attempt, request};
use flex_core::config::Recipe;
use flex_core::config::classes::BindingMode;
use flex_core::config::modify::Attributes;
use flex_core::config::topology::Topologies;
use flex_core::model::claim::Claim;
use flex_core::model::volume::{Provenance, Volume, adoption_mark};
use flex_core::object::hash;
use flex_core::run::job::{RunTarget, job};
use flex_core::run::list::list;
use flex_core::run::request::AttemptStart;
use flex_core::run::script::{Texts, complete};
use flex_core::volume::request as of_volume;
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::{ObjectReference, PersistentVolume, PersistentVolumeStatus};

use crate::setting::{NODE, Setting};

/// A node that is never selected.
const OTHER_NODE: &str = "desk-other";

/// Returns the time when an attempt begins, as the orchestrator writes it.
fn now() -> String {
    format!("{:.6}", jiff::Timestamp::now())
}

/// A volume that exists: its claim, and its PersistentVolume after the adoption.
#[derive(Clone, Debug)]
pub struct Made {
    /// The claim.
    pub claim: Claim,
    /// The PersistentVolume.
    pub volume: PersistentVolume,
}

/// The work of a run.
#[derive(Clone, Debug)]
pub enum Order {
    /// Make a volume for the claim.
    Provision {
        /// The claim.
        claim: Claim,
        /// The source of its content.
        content: Content,
    },
    /// Delete what the attempts of a claim have left. There is no PersistentVolume.
    Undo {
        /// The claim.
        claim: Claim,
    },
    /// Delete a volume.
    Delete(Made),
    /// Expand a volume to a size, in bytes.
    Expand(Made, u64),
    /// Give a volume the attributes.
    Modify(Made, Attributes),
    /// Make a snapshot with this id.
    Snapshot(Made, String),
    /// Delete the snapshot with this id.
    DeleteSnapshot(Made, String),
    /// List the storage.
    List,
    /// Report the free bytes.
    Capacity,
}

/// The source of the content of a new volume.
#[derive(Clone, Debug, Default)]
pub enum Content {
    /// None: the volume is empty.
    #[default]
    Empty,
    /// A volume.
    CloneOf(Box<Made>),
    /// A snapshot with this id, of a volume.
    Snapshot(Box<Made>, String),
}

impl Order {
    /// Returns the operation of the run.
    pub fn operation(&self) -> Operation {
        match self {
            Order::Provision { .. } => Operation::Provision,
            Order::Undo { .. } | Order::Delete(_) => Operation::Delete,
            Order::Expand(..) => Operation::Expand,
            Order::Modify(..) => Operation::Modify,
            Order::Snapshot(..) => Operation::Snapshot,
            Order::DeleteSnapshot(..) => Operation::DeleteSnapshot,
            Order::List => Operation::List,
            Order::Capacity => Operation::Capacity,
        }
    }

    /// Returns the id of the volume or of the snapshot that the run is for; empty for none.
    pub fn id(&self) -> String {
        match self {
            Order::Provision { claim, .. } | Order::Undo { claim } => claim.volume_id(),
            Order::Delete(made) | Order::Expand(made, _) | Order::Modify(made, _) => made.claim.volume_id(),
            Order::Snapshot(_, id) | Order::DeleteSnapshot(_, id) => id.clone(),
            Order::List | Order::Capacity => String::new(),
        }
    }
}

impl Setting {
    /// Returns a claim like that of the setting, with another id.
    pub fn claim_with_id(&self, id: &str) -> Claim {
        Claim { uid: id.to_owned(), ..self.claim.clone() }
    }

    /// Builds the Job of a run. `attempt` is the number of the attempt, `kube_api` the address of the API.
    ///
    /// # Errors
    /// If the orchestrator would not create the Job. The text is for the admin.
    pub fn job(&self, order: &Order, attempt: u32, kube_api: &str) -> Result<Job, String> {
        let start = AttemptStart { attempt, ts: now() };
        let mut built = match order {
            Order::Provision { claim, content } => {
                let request = self.of_claim(Operation::Provision, claim, attempt, content, kube_api);
                self.of_request(&self.recipe, &request, None)
            }
            Order::Undo { claim } => {
                let request = self.of_claim(Operation::Delete, claim, attempt, &Content::Empty, kube_api);
                self.of_request(&self.recipe, &request, None)
            }
            Order::List => list(&self.recipe, self.node(), &self.identity, kube_api, &now()),
            Order::Capacity => self.capacity(attempt, kube_api),
            Order::Delete(made)
            | Order::Expand(made, _)
            | Order::Modify(made, _)
            | Order::Snapshot(made, _)
            | Order::DeleteSnapshot(made, _) => self.of_made(order, made, start, kube_api)?,
        };
        self.complete(&mut built)?;
        Ok(built)
    }

    /// Adds the text of the script to a Job.
    ///
    /// # Errors
    /// If the text is not known.
    pub fn complete(&self, job: &mut Job) -> Result<(), String> {
        let texts = Texts { script: self.script.as_deref(), shell_image: self.identity.shell_image.as_deref() };
        complete(job, &self.recipe, texts)
    }

    /// Returns the request of a provision run for a claim, with the number of its attempt.
    pub fn request(&self, claim: &Claim, attempt: u32, kube_api: &str) -> RunRequest {
        self.of_claim(Operation::Provision, claim, attempt, &Content::Empty, kube_api)
    }

    /// Returns the node of the storage, if that matters.
    pub fn node(&self) -> Option<&str> {
        let waits = self.class.binding == BindingMode::WaitForFirstConsumer;
        (waits || self.recipe.is_local()).then_some(self.site.node.as_str())
    }

    /// Returns the node of the pods on a desk. Where the scheduler selects a node, and a run may be on any, the pod is on
    /// another one.
    pub fn pod_node(&self) -> &'static str {
        let waits = self.class.binding == BindingMode::WaitForFirstConsumer;
        if waits && self.recipe.required_node(Some(NODE)).is_none() { OTHER_NODE } else { NODE }
    }

    fn of_request(&self, recipe: &Recipe, request: &RunRequest, volume: Option<String>) -> Job {
        job(recipe, request, &self.target(recipe, volume))
    }

    /// Returns where a run is, and the PersistentVolume that it is for.
    pub fn target(&self, recipe: &Recipe, volume: Option<String>) -> RunTarget {
        RunTarget {
            namespace: recipe.config.namespace.clone(),
            node: recipe.required_node(self.node()).map(str::to_owned),
            allowed: if recipe.is_local() { self.class.allowed.clone() } else { Topologies::default() },
            volume,
            ..RunTarget::default()
        }
    }

    fn of_claim(
        &self,
        operation: Operation,
        claim: &Claim,
        number: u32,
        content: &Content,
        kube_api: &str,
    ) -> RunRequest {
        let labels = self.recipe.volume_affinity.iter().filter(|_| self.node().is_some());
        let attempt = Attempt {
            number,
            ts: now(),
            node: self.node().map(str::to_owned),
            topology: labels.map(|label| (label.clone(), self.site.label(label))).collect(),
            class_topologies: self.class.allowed.json(),
            clone_of: match content {
                Content::CloneOf(made) => Some(self.clone_source(made)),
                Content::Empty | Content::Snapshot(..) => None,
            },
            snapshot: match content {
                Content::Snapshot(made, id) => Some(self.snapshot(made, id)),
                Content::Empty | Content::CloneOf(_) => None,
            },
            attributes: Attributes::default(),
            alike: operation == Operation::Delete,
        };
        request(operation, claim, &self.recipe, &self.identity, kube_api, attempt)
    }

    fn clone_source(&self, made: &Made) -> CloneSource {
        let volume = Volume::from(&made.volume);
        CloneSource {
            id: volume.volume_id().unwrap_or_default().to_owned(),
            pv_name: volume.name.clone(),
            source: volume_source(&made.volume),
            size_bytes: volume.size.clone().unwrap_or_default(),
            node: self.node().unwrap_or_default().to_owned(),
            moved_in_path: volume.moved_in_path(),
        }
    }

    /// Keeps what a run has handed back.
    pub fn keep_handle(&self, order: &Order, message: &str) {
        if let (Order::Snapshot(_, id), Some(handle)) = (order, snapshot_handle::read(message)) {
            self.handles.lock().unwrap_or_else(PoisonError::into_inner).insert(id.clone(), handle);
        }
    }

    /// Returns the snapshot as a run that restores it gets it.
    fn snapshot(&self, made: &Made, id: &str) -> Snapshot {
        let volume = Volume::from(&made.volume);
        let handles = self.handles.lock().unwrap_or_else(PoisonError::into_inner);
        Snapshot {
            id: id.to_owned(),
            handle: handles.get(id).cloned().unwrap_or_default(),
            of: volume.volume_id().unwrap_or_default().to_owned(),
            size_bytes: volume.size.clone().ok(),
            node: self.node().unwrap_or_default().to_owned(),
            ..Snapshot::default()
        }
    }

    fn of_made(&self, order: &Order, made: &Made, start: AttemptStart, kube_api: &str) -> Result<Job, String> {
        let volume = Volume::from(&made.volume);
        let record = volume.provenance.as_deref().unwrap_or_default();
        let record: Provenance = serde_json::from_str(record).map_err(|error| error.to_string())?;
        let problems = |problems: Vec<flex_core::config::Problem>| flex_core::config::joined(&problems);
        let recipe = record.effective_config.recipe().map_err(problems)?;
        let source = volume_source(&made.volume);
        let node = record.origin_node.as_deref();
        let identity = &self.identity;
        let request = of_volume::request(&volume, node, &recipe, identity, kube_api, start, source);
        let of_snapshot = |operation, id: &str| RunRequest {
            operation,
            snapshot: Some(Snapshot {
                namespace: made.claim.name.namespace.clone(),
                name: "desk".into(),
                ..self.snapshot(made, id)
            }),
            access_modes: Vec::new(),
            ..request.clone()
        };
        let request = match order {
            Order::Expand(_, size) => of_volume::expand(request, *size),
            Order::Modify(_, attributes) => of_volume::modify(request, &volume, &recipe, attributes),
            Order::Snapshot(_, id) => of_snapshot(Operation::Snapshot, id),
            Order::DeleteSnapshot(_, id) => of_snapshot(Operation::DeleteSnapshot, id),
            _ => request,
        };
        Ok(self.of_request(&recipe, &request, Some(volume.name)))
    }

    fn capacity(&self, attempt: u32, kube_api: &str) -> Job {
        let node = self.recipe.required_node(Some(&self.site.node)).map(str::to_owned);
        let segment = Segment {
            id: hash(self.site.node.as_bytes()),
            class: self.class.name.clone(),
            class_uid: self.class.uid.clone(),
            topology: Default::default(),
        };
        let ask = CapacityRun { attempt, node, fingerprint: String::new() };
        capacity(&self.recipe, &self.class.allowed, &segment, &ask, &self.identity, kube_api, &now())
    }

    /// Makes of a volume that the image has created an adopted one.
    pub fn adopted(&self, claim: &Claim, mut volume: PersistentVolume) -> Made {
        let provenance = Provenance {
            effective_config: self.recipe.effective_config.clone(),
            origin_node: self.recipe.required_node(self.node()).map(str::to_owned),
            moved_in: None,
            cluster: None,
            others: Vec::new(),
        };
        let record = serde_json::json!(provenance).to_string();
        let status = PersistentVolumeStatus {
            phase: Some("Bound".into()),
            reason: Some(adoption_mark(&record, volume.metadata.uid.as_deref().unwrap_or_default())),
            ..PersistentVolumeStatus::default()
        };
        let annotations = volume.metadata.annotations.get_or_insert_default();
        annotations.insert(names::PROVENANCE.into(), record);
        annotations.insert(names::VOLUME_ID.into(), claim.volume_id());
        volume.status = Some(status);
        volume.spec.get_or_insert_default().claim_ref = Some(ObjectReference {
            namespace: Some(claim.name.namespace.clone()),
            name: Some(claim.name.name.clone()),
            uid: Some(claim.uid.clone()),
            ..ObjectReference::default()
        });
        Made { claim: claim.clone(), volume }
    }
}
