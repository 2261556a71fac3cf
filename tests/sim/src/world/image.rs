//! The containers of runs: the acts of the images' processes, one at a time. In a batch each member has its own
//! process, and the outcomes are reported together.

use std::collections::BTreeMap;

use flex_contract::batch::{self, MemberFailure, MemberVariables};
use flex_contract::exit;
use flex_contract::names;
use flex_contract::operation::Operation;
use flex_contract::request::RunRequest;
use flex_contract::volume::{Made, persistent_volume, placeholder};
use flex_core::object::ObjectName;
use k8s_openapi::api::core::v1::{LocalVolumeSource, NFSVolumeSource, PersistentVolumeSpec};
use serde_json::{Value, json};

use super::{StorageKey, VOLUME_PROTECTION, World, end_pod, snapshots};
use crate::check::batches::ended_for_others;
use crate::profile::Profile;
use crate::rng::Rng;
use crate::store::{Kind, Store, annotation, is_deleting, label, text, uid};
use crate::trace::{count, line};

/// The steps in which a slow run reads its source, for one of another run.
const SLOW_READS: usize = 20;

/// The next act of an image.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Act {
    /// Reads the source of a clone or a snapshot.
    Read,
    Make,
    Publish {
        wrong: bool,
    },
    Remove,
    Expand,
    /// Gives the volume its attributes, or leaves it half modified.
    Modify {
        whole: bool,
    },
    /// Stores a snapshot, or a part of it.
    Store {
        whole: bool,
    },
    /// Deletes a snapshot.
    Discard,
    Exit(i32),
    Hang,
}

/// The work for one volume.
#[derive(Clone, Debug)]
pub struct Process {
    pub(super) request: RunRequest,
    class: String,
    pub(super) storage_key: StorageKey,
    /// Its number in the batch, from 1.
    member: usize,
    script: bool,
    reserved: bool,
    acts: Vec<Act>,
}

impl Process {
    /// Returns whether it never ends by itself.
    fn hangs(&self) -> bool {
        self.acts == [Act::Hang]
    }
}

/// The processes in a pod.
#[derive(Clone, Debug, Default)]
pub struct Container {
    batch: bool,
    /// The processes that have not ended.
    pub(super) processes: Vec<Process>,
    /// The members that have failed.
    failed: Vec<MemberFailure>,
}

impl Container {
    /// Returns the output of a killed container: a batch leaves its lines, and the last line may be cut.
    pub(super) fn outcome_when_killed(&self, rng: &mut Rng, otherwise: &str) -> String {
        if !self.batch {
            return otherwise.to_owned();
        }
        let mut message = batch::write_outcomes(&self.failed);
        if rng.permille(300) {
            message.truncate(rng.below(message.len() + 1));
        }
        message
    }

    /// Returns a member that should have continued when the container's Job was removed.
    pub(super) fn ended_for_others(&self, store: &Store, job: &Value) -> Option<String> {
        let mut ids = self.processes.iter().map(|process| &process.request.volume_id);
        ids.find_map(|id| ended_for_others(store, job, id)).filter(|_| self.batch)
    }

    /// Returns the process that acts next: any of those that do not hang.
    fn next(&self, rng: &mut Rng) -> usize {
        if self.processes.len() == 1 {
            return 0;
        }
        let moving: Vec<usize> =
            (0..self.processes.len()).filter(|process| !self.processes[*process].hangs()).collect();
        match moving.is_empty() {
            true => 0,
            false => *rng.pick(&moving),
        }
    }
}

/// Returns the list of a batch as the pod finds it in the file that `BATCH` names.
fn list(job: &Value, pod_spec: &Value) -> Vec<MemberVariables> {
    let volumes = pod_spec["volumes"].as_array();
    let mut items = volumes.into_iter().flatten().flat_map(|volume| {
        let sources = volume["projected"]["sources"].as_array().into_iter().flatten();
        let downward = sources.map(|source| &source["downwardAPI"]).chain([&volume["downwardAPI"]]);
        downward.flat_map(|it| it["items"].as_array().into_iter().flatten()).collect::<Vec<_>>()
    });
    let item = items.find(|item| item["path"] == batch::FILE).expect("a batch has the file of its members");
    let path = text(item, "/fieldRef/fieldPath");
    let key = path.strip_prefix("metadata.annotations['").and_then(|key| key.strip_suffix("']")).unwrap_or_default();
    batch::read(annotation(&job["spec"]["template"], key)).expect("the list of a batch can be read")
}

/// A variable of a process's environment.
type Variable<'a> = dyn Fn(&str) -> Option<String> + 'a;

impl World {
    /// Starts the container of a pod, as the kubelet does.
    pub(super) fn start(
        &mut self,
        store: &mut Store,
        rng: &mut Rng,
        profile: &Profile,
        name: &ObjectName,
        pod: &Value,
        job: &Value,
    ) {
        let pod_spec = store.pod_spec(uid(job));
        let env = pod_spec["containers"][0]["env"].as_array();
        let get = |key: &str| -> Option<String> {
            let var = env?.iter().find(|var| var["name"] == key)?;
            Some(match key {
                "POD_NAMESPACE" => name.namespace.clone(),
                _ => var["value"].as_str()?.replace("$$", "$"),
            })
        };
        let batch = get("OPERATION").as_deref() == Some(batch::OPERATION);
        let members = if batch { list(job, pod_spec) } else { vec![MemberVariables::new()] };
        self.containers.insert(uid(pod).to_owned(), Container { batch, ..Container::default() });
        for (at, own) in members.iter().enumerate() {
            let get = |key: &str| own.get(key).cloned().or_else(|| get(key));
            let process = self.process(store, rng, profile, (name, pod, job), (at + 1, &get));
            self.containers.entry(uid(pod).to_owned()).or_default().processes.push(process);
        }
        if batch {
            count("batches begun");
            // Members that have begun are begun again.
            if rng.permille(profile.bad_image / 4) {
                let code = *rng.pick(&[1, 64, 75]);
                line(|| format!("image: the batch {name} ends with {code} before a member has begun"));
                self.containers.remove(uid(pod));
                return end_pod(store, name, code, "no member was begun");
            }
        }
        store.update(Kind::Pod, name, |pod| {
            pod["status"]["phase"] = json!("Running");
            pod["status"]["containerStatuses"] = json!([{ "name": "provisioner", "state": { "running": {} }, "image": "i", "imageID": "i", "ready": true, "restartCount": 0 }]);
        });
    }

    /// Plans the acts for one volume.
    fn process(
        &mut self,
        store: &Store,
        rng: &mut Rng,
        profile: &Profile,
        (name, pod, job): (&ObjectName, &Value, &Value),
        (member, get): (usize, &Variable<'_>),
    ) -> Process {
        let request = RunRequest::from_env(get).expect("a Job gives the contract's environment");
        let local = get("KIND").as_deref() == Some("local");
        // Other nodes can reach the storage of a deleted node if the config says so. They also can if the node came
        // back before the run that was begun on any node.
        let gone = store.get(Kind::Node, &ObjectName::new("", &request.node_name)).is_none();
        let deletes = matches!(request.operation, Operation::Delete | Operation::DeleteSnapshot);
        let reached = gone || profile.node_gone == "run-elsewhere";
        let on_any_node = deletes && !request.node_name.is_empty() && reached;
        let node = match (local, on_any_node) {
            (false, _) => String::new(),
            (true, true) => request.node_name.clone(),
            (true, false) => text(pod, "/spec/nodeName").to_owned(),
        };
        let storage_key = (snapshots::stored_as(&request).unwrap_or(&request.volume_id).to_owned(), node);
        if snapshots::is_empty(store, &request) {
            self.wrong.push(format!("the run for claim {} does not get its source", request.claim.name));
        }
        let bad = rng.permille(profile.bad_image);
        let code = *rng.pick(&[1, 64, 69, 75, 78]);
        let code = if profile.no_room { exit::UNAVAILABLE } else { code };
        let acts = match (request.operation, bad) {
            (Operation::Delete, false) => vec![Act::Remove, Act::Exit(0)],
            (Operation::Delete, true) => match rng.below(3) {
                0 => vec![Act::Exit(code)],
                1 => vec![Act::Remove, Act::Exit(1)],
                _ => vec![Act::Hang],
            },
            (Operation::Expand, false) => vec![Act::Expand, Act::Exit(0)],
            (Operation::Expand, true) => match rng.below(3) {
                0 => vec![Act::Exit(code)],
                1 => vec![Act::Expand, Act::Exit(1)],
                _ => vec![Act::Hang],
            },
            (Operation::Modify, false) => vec![Act::Modify { whole: true }, Act::Exit(0)],
            // A run that reports a permanent failure has begun nothing.
            (Operation::Modify, true) => match rng.below(5) {
                0 => vec![Act::Exit(64)],
                1 => vec![Act::Modify { whole: false }, Act::Exit(1)],
                2 => vec![Act::Modify { whole: true }, Act::Exit(75)],
                3 => vec![Act::Modify { whole: false }, Act::Hang],
                _ => vec![Act::Hang],
            },
            (Operation::Snapshot | Operation::DeleteSnapshot, _) => {
                snapshots::acts(request.operation, bad.then_some(code), rng)
            }
            (_, false) => vec![Act::Make, Act::Publish { wrong: false }, Act::Exit(0)],
            (_, true) => match rng.below(8) {
                0 => vec![Act::Exit(code)],
                1 => vec![Act::Make, Act::Exit(code)],
                2 => vec![Act::Make, Act::Exit(0)],
                3 => vec![Act::Make, Act::Publish { wrong: false }, Act::Exit(1)],
                4 => vec![Act::Make, Act::Hang],
                5 => vec![Act::Hang],
                6 => vec![Act::Make, Act::Publish { wrong: false }, Act::Hang],
                _ => vec![Act::Make, Act::Publish { wrong: true }, Act::Exit(0)],
            },
        };
        // A delete run names the data source and does not read it.
        let copies =
            request.operation == Operation::Provision && (request.clone_of.is_some() || request.snapshot.is_some());
        let reads = copies.then_some([Act::Read, Act::Read]).into_iter().flatten();
        let acts = if annotation(job, "idle").is_empty() { reads.chain(acts).collect() } else { vec![Act::Exit(0)] };
        let acts = if self.is_down { vec![Act::Exit(75)] } else { acts };
        let times = |act: &Act| if profile.slow_reads && *act == Act::Read { SLOW_READS } else { 1 };
        let acts: Vec<Act> = acts.into_iter().flat_map(|act| vec![act.clone(); times(&act)]).collect();
        if bad {
            count("bad runs");
        }
        line(|| {
            format!(
                "kubelet: {name} starts on {}: {} {:?} {acts:?}",
                text(pod, "/spec/nodeName"),
                request.operation,
                storage_key
            )
        });
        let meets = |other: &&Process| {
            let of_snapshot = |request: &RunRequest| snapshots::stored_as(request).is_some();
            if of_snapshot(&request) || of_snapshot(&other.request) {
                return of_snapshot(&request) == of_snapshot(&other.request)
                    && other.storage_key == storage_key
                    && !(profile.manual_removals && other.request.operation == request.operation);
            }
            let both_make = other.request.operation != Operation::Delete && request.operation != Operation::Delete;
            // Two attempts may overlap if a person removed a Job, and two expand runs if a watch is far behind. A
            // delete run must not overlap any other run of its storage.
            let makes = request.operation == Operation::Provision && other.request.operation == Operation::Provision;
            // Removing a Job removes the record of its attempt: the next attempt may have its number, and others
            // follow. A second deletion does no harm.
            let deletes = other.request.operation == Operation::Delete && request.operation == Operation::Delete;
            match both_make {
                false if deletes && profile.manual_removals => false,
                true => makes && other.request.volume_id == request.volume_id && !profile.manual_removals,
                false => other.storage_key == storage_key,
            }
        };
        let met = self.processes().find(meets).map(|other| other.request.operation);
        if let Some(other) = met {
            self.wrong.push(format!(
                "two processes for volume id {} at one time: {other} and {}",
                request.volume_id, request.operation
            ));
        }
        let (class, script) = (label(job, names::LABEL_CLASS).to_owned(), get("BY_HAND").is_some());
        Process { script, reserved: profile.policies, request, class, storage_key, member, acts }
    }

    /// Takes the next act of a container.
    pub(super) fn run(&mut self, store: &mut Store, rng: &mut Rng, name: &ObjectName, pod: &Value) -> bool {
        let id = uid(pod).to_owned();
        let Some(mut container) = self.containers.remove(&id).filter(|container| !container.processes.is_empty())
        else {
            end_pod(store, name, 137, "lost");
            return true;
        };
        let at = container.next(rng);
        let mut process = container.processes.remove(at);
        let act = process.acts.remove(0);
        if self.is_down && act == Act::Exit(75) && process.request.operation == Operation::Provision {
            let outage = self.outages.entry(process.class.clone()).or_default();
            outage.failed.insert(process.request.volume_id.clone());
        }
        match act {
            Act::Read => {
                count("reads of a source");
                self.read(&process);
            }
            Act::Make => {
                line(|| format!("backend: {:?} is made", process.storage_key));
                self.changed |= self.backend.insert(process.storage_key.clone());
            }
            Act::Remove => {
                line(|| format!("backend: {:?} is removed", process.storage_key));
                self.changed |= self.backend.remove(&process.storage_key);
            }
            Act::Expand => {
                if !self.backend.contains(&process.storage_key) {
                    process.acts = vec![Act::Exit(65)];
                }
            }
            Act::Modify { whole } => {
                let class = process.request.attributes_class.clone();
                line(|| format!("backend: {:?} gets `{class}`, whole: {whole}", process.storage_key));
                self.attributes.insert(process.storage_key.0.clone(), whole.then_some(class));
            }
            Act::Store { whole } => {
                line(|| format!("backend: snapshot {:?} is stored, whole: {whole}", process.storage_key));
                self.snapshots.insert(process.storage_key.clone(), whole);
                self.changed = true;
            }
            Act::Discard => {
                line(|| format!("backend: snapshot {:?} is removed", process.storage_key));
                self.changed |= self.snapshots.remove(&process.storage_key).is_some();
            }
            Act::Publish { wrong } => {
                if let Err(code) = self.publish(store, &process, wrong) {
                    process.acts = vec![Act::Exit(code)];
                }
            }
            Act::Exit(code) if container.batch => {
                line(|| format!("image: member {} of {name} ends with {code}", process.member));
                if code != 0 {
                    container.failed.push(MemberFailure {
                        member: process.member,
                        code,
                        message: "the termination message".into(),
                    });
                }
                if container.processes.is_empty() {
                    end_pod(store, name, 0, &batch::write_outcomes(&container.failed));
                } else {
                    self.containers.insert(id, container);
                }
                return true;
            }
            Act::Exit(code) => {
                end_pod(store, name, code, "the termination message");
                return true;
            }
            Act::Hang => {
                process.acts = vec![Act::Hang];
                container.processes.insert(at, process);
                self.containers.insert(id, container);
                return is_deleting(pod);
            }
        }
        container.processes.insert(at, process);
        self.containers.insert(id, container);
        true
    }

    /// Creates the PersistentVolume, as the image's last act.
    fn publish(&mut self, store: &mut Store, process: &Process, wrong: bool) -> Result<(), i32> {
        let (id, node) = &process.storage_key;
        let path = format!("/vol/{id}");
        let mut source = PersistentVolumeSpec::default();
        match node.is_empty() {
            true => source.nfs = Some(NFSVolumeSource { server: "s".into(), path, ..Default::default() }),
            false => source.local = Some(LocalVolumeSource { path, ..Default::default() }),
        }
        let reachable_from = if node.is_empty() {
            BTreeMap::new()
        } else {
            BTreeMap::from([(names::HOSTNAME.to_owned(), node.clone())])
        };
        let size_bytes = wrong.then_some(1 << 20);
        let pv = persistent_volume(&process.request, Made { source, reachable_from, size_bytes, ..Made::default() });
        let mut pv = json!(pv);
        if process.script {
            pv["metadata"] = json!({ "name": process.request.pv_name, "annotations": { names::CLAIM_UID: process.request.claim.uid } });
            match process.reserved {
                true => pv["spec"]["claimRef"] = json!(placeholder(&process.request)),
                false => pv["spec"]["claimRef"] = Value::Null,
            }
        }
        crate::api::add_finalizer(&mut pv, VOLUME_PROTECTION);
        pv["status"] = json!({ "phase": "Pending" });
        let name = ObjectName::new("", &process.request.pv_name);
        if let Some(there) = store.get(Kind::Volume, &name) {
            if is_deleting(there) {
                return Err(75);
            }
            let same = annotation(there, names::CLAIM_UID) == process.request.claim.uid
                && self.made.get(uid(there)) == Some(&process.storage_key);
            return if same { Ok(()) } else { Err(65) };
        }
        line(|| format!("image: creates volume {}{}", name.name, if wrong { ", which is too small" } else { "" }));
        if let Some(created) = store.create(Kind::Volume, pv) {
            self.made.insert(uid(&created).to_owned(), process.storage_key.clone());
        }
        Ok(())
    }
}
