//! The store of an API server: objects with versions, and the history of each kind, which watches show.

use std::cell::OnceCell;
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

use flex_contract::names;
use flex_core::object::ObjectName;
use serde_json::{Map, Value, json};

use crate::time::SimTime;
use crate::view::View;

/// The kinds of the simulation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    /// PersistentVolumeClaim.
    Claim,
    /// PersistentVolume.
    Volume,
    /// Job.
    Job,
    /// Pod.
    Pod,
    /// ConfigMap.
    Config,
    /// StorageClass.
    Class,
    /// ControllerRevision.
    Revision,
    /// Node.
    Node,
    /// Event.
    Event,
    /// VolumeSnapshot.
    Snapshot,
    /// VolumeSnapshotContent.
    Content,
    /// Namespace: only those that an admin may delete.
    Namespace,
}

/// All kinds that can be watched, in the order of their numbers.
pub const KINDS: [Kind; 11] = [
    Kind::Claim,
    Kind::Volume,
    Kind::Job,
    Kind::Pod,
    Kind::Config,
    Kind::Class,
    Kind::Revision,
    Kind::Node,
    Kind::Event,
    Kind::Snapshot,
    Kind::Content,
];

/// One change of an object.
#[derive(Debug)]
pub struct Change {
    /// The name of the object.
    pub name: ObjectName,
    /// Whether it was removed.
    pub gone: bool,
    /// Its new state, or the last state of a removed object.
    pub object: Rc<Value>,
    view: OnceCell<Option<View>>,
}

impl Change {
    /// Returns the orchestrator's view of the object, or `None` if its watch does not select it.
    pub fn view(&self, kind: Kind) -> Option<&View> {
        self.view.get_or_init(|| View::of(kind, &self.object)).as_ref()
    }
}

/// The objects, and their history.
#[derive(Debug)]
pub struct Store {
    objects: [BTreeMap<ObjectName, Rc<Value>>; 12],
    log: [Vec<Change>; 12],
    version: u64,
    uids: u64,
    pod_specs: BTreeMap<String, Value>,
    /// The pods from which the orchestrator has removed its gate, by UID, with the UIDs of their Jobs.
    pub opened: BTreeMap<String, String>,
    /// The objects that `hide` has hidden, by UID.
    hidden: BTreeSet<String>,
    /// The objects changed since this was last taken.
    pub touched: BTreeSet<(Kind, ObjectName)>,
    /// The time.
    pub time: SimTime,
}

/// Returns a text at a path such as `/spec/volumeName`; empty if there is none.
pub fn text<'a>(object: &'a Value, at: &str) -> &'a str {
    find(object, at).and_then(Value::as_str).unwrap_or_default()
}

/// Returns a number at a path; 0 if there is none.
pub fn number(object: &Value, at: &str) -> i64 {
    find(object, at).and_then(Value::as_i64).unwrap_or_default()
}

/// Finds a value by a JSON pointer without escapes; an escape would copy each key.
fn find<'a>(object: &'a Value, at: &str) -> Option<&'a Value> {
    at.split('/').skip(1).try_fold(object, |within, key| match within {
        Value::Array(all) => all.get(key.parse::<usize>().ok()?),
        _ => within.get(key),
    })
}

/// Returns an annotation; empty if there is none.
pub fn annotation<'a>(object: &'a Value, key: &str) -> &'a str {
    object["metadata"]["annotations"][key].as_str().unwrap_or_default()
}

/// Reads the JSON document in an annotation; null if there is none.
///
/// # Panics
/// If the text is no JSON. Only the orchestrator writes such annotations, and the check of its requests ends the
/// history before a broken one is stored.
pub fn document(object: &Value, key: &str) -> Value {
    let (kind, name) = (text(object, "/kind"), text(object, "/metadata/name"));
    match annotation(object, key) {
        "" => Value::Null,
        text => serde_json::from_str(text)
            .unwrap_or_else(|error| panic!("{key} of {kind} {name} is no JSON document: {error}: {text}")),
    }
}

/// Returns a label; empty if there is none.
pub fn label<'a>(object: &'a Value, key: &str) -> &'a str {
    object["metadata"]["labels"][key].as_str().unwrap_or_default()
}

/// Returns the UID of an object.
pub fn uid(object: &Value) -> &str {
    object["metadata"]["uid"].as_str().unwrap_or_default()
}

/// Returns whether the object is terminating.
pub fn is_deleting(object: &Value) -> bool {
    !object["metadata"]["deletionTimestamp"].is_null()
}

/// Lists the finalizers of an object.
pub fn finalizers(object: &Value) -> impl Iterator<Item = &str> {
    object["metadata"]["finalizers"].as_array().into_iter().flatten().filter_map(Value::as_str)
}

/// Returns whether the object has a finalizer.
pub fn has_finalizer(object: &Value, name: &str) -> bool {
    finalizers(object).any(|finalizer| finalizer == name)
}

/// Removes a finalizer.
pub fn drop_finalizer(object: &mut Value, name: &str) {
    if let Some(finalizers) = object["metadata"]["finalizers"].as_array_mut() {
        finalizers.retain(|finalizer| finalizer != name);
    }
}

/// Returns namespace and name of an object.
pub fn name_of(object: &Value) -> ObjectName {
    ObjectName::new(text(object, "/metadata/namespace"), text(object, "/metadata/name"))
}

/// Removes the large and constant parts from a new Job, so that they are not in each of its states. The node and the
/// gates of its pods and the members of a batch stay, because they are read in all states.
fn without_pod_spec(job: &mut Value) -> Value {
    let spec = job.pointer_mut("/spec/template/spec").map(Value::take).unwrap_or_default();
    let template = &mut job["spec"]["template"];
    let kept = |key: &str| Some((key.to_owned(), spec.get(key)?.clone()));
    let kept: Map<String, Value> = ["affinity", "schedulingGates"].into_iter().filter_map(kept).collect();
    if !kept.is_empty() {
        template["spec"] = Value::Object(kept);
    }
    if annotation(template, names::BATCH).is_empty() {
        template["metadata"]["annotations"] = Value::Null;
    }
    spec
}

impl Store {
    /// Makes an empty store.
    pub fn new(time: SimTime) -> Self {
        Store {
            objects: Default::default(),
            log: Default::default(),
            version: 0,
            uids: 0,
            pod_specs: BTreeMap::new(),
            opened: BTreeMap::new(),
            hidden: BTreeSet::new(),
            touched: BTreeSet::new(),
            time,
        }
    }

    /// Returns the version of the last change.
    pub fn version(&self) -> u64 {
        self.version
    }

    /// Returns an object.
    pub fn get(&self, kind: Kind, name: &ObjectName) -> Option<&Rc<Value>> {
        self.objects[kind as usize].get(name)
    }

    /// Lists all objects of a kind, by name.
    pub fn all(&self, kind: Kind) -> impl Iterator<Item = (&ObjectName, &Rc<Value>)> {
        self.objects[kind as usize].iter()
    }

    /// Returns the objects of a kind as they were after so many changes.
    pub fn after(&self, kind: Kind, changes: usize) -> BTreeMap<&ObjectName, &Rc<Value>> {
        let mut all = BTreeMap::new();
        for change in &self.log(kind)[..changes] {
            match change.gone {
                true => all.remove(&change.name),
                false => all.insert(&change.name, &change.object),
            };
        }
        all
    }

    /// Returns the pod spec of the Job with this UID.
    pub fn pod_spec(&self, job: &str) -> &Value {
        self.pod_specs.get(job).unwrap_or(&Value::Null)
    }

    /// Returns the history of a kind.
    pub fn log(&self, kind: Kind) -> &[Change] {
        &self.log[kind as usize]
    }

    /// Makes a new UID.
    pub fn new_uid(&mut self, prefix: &str) -> String {
        self.uids += 1;
        format!("{prefix}{:04}", self.uids)
    }

    /// Creates an object; returns `None` if one of that name exists.
    pub fn create(&mut self, kind: Kind, mut object: Value) -> Option<Rc<Value>> {
        let name = name_of(&object);
        if self.get(kind, &name).is_some() {
            return None;
        }
        let uid = self.new_uid(match kind {
            Kind::Claim => "c",
            Kind::Volume => "v",
            Kind::Job => "j",
            Kind::Pod => "p",
            Kind::Snapshot => "s",
            Kind::Content => "k",
            _ => "x",
        });
        if kind == Kind::Job {
            self.pod_specs.insert(uid.clone(), without_pod_spec(&mut object));
        }
        object["metadata"]["uid"] = json!(uid);
        object["metadata"]["creationTimestamp"] = json!(self.time.text());
        Some(self.log_state(kind, name, object))
    }

    fn log_state(&mut self, kind: Kind, name: ObjectName, mut object: Value) -> Rc<Value> {
        self.version += 1;
        object["metadata"]["resourceVersion"] = json!(self.version.to_string());
        let gone = is_deleting(&object) && finalizers(&object).next().is_none() && kind != Kind::Pod;
        self.keep(kind, name, object, gone)
    }

    fn keep(&mut self, kind: Kind, name: ObjectName, object: Value, gone: bool) -> Rc<Value> {
        let object = Rc::new(object);
        self.touched.insert((kind, name.clone()));
        self.log[kind as usize].push(Change {
            name: name.clone(),
            gone: gone || self.hidden.contains(uid(&object)),
            object: object.clone(),
            view: OnceCell::new(),
        });
        match gone {
            true => self.objects[kind as usize].remove(&name),
            false => self.objects[kind as usize].insert(name, object.clone()),
        };
        object
    }

    /// Changes an existing object. A terminating object is removed with its last finalizer. A change without effect
    /// leaves no trace.
    pub fn update(&mut self, kind: Kind, name: &ObjectName, change: impl FnOnce(&mut Value)) -> Option<Rc<Value>> {
        let mut object = (**self.get(kind, name)?).clone();
        change(&mut object);
        self.replace(kind, name, object)
    }

    /// Replaces the object by its new state.
    pub fn replace(&mut self, kind: Kind, name: &ObjectName, object: Value) -> Option<Rc<Value>> {
        let before = self.get(kind, name)?;
        if object == **before {
            return Some(before.clone());
        }
        Some(self.log_state(kind, name.clone(), object))
    }

    /// Requests the deletion of an object. It is removed at once if it has no finalizer; a pod is removed when its
    /// kubelet reports its end.
    pub fn delete(&mut self, kind: Kind, name: &ObjectName) -> Option<Rc<Value>> {
        let object = self.get(kind, name)?.clone();
        if is_deleting(&object) {
            return Some(object);
        }
        let now = self.time.text();
        self.update(kind, name, |object| object["metadata"]["deletionTimestamp"] = json!(now))
    }

    /// Returns whether a namespace accepts no new objects.
    pub fn is_closed(&self, namespace: &str) -> bool {
        let namespace_object = self.get(Kind::Namespace, &ObjectName::new("", namespace));
        namespace == crate::VENDOR && namespace_object.is_none_or(|namespace| is_deleting(namespace))
    }

    /// Hides an object from the watches, which report that it is gone while it is there. Only a planted bug does this.
    pub fn hide(&mut self, kind: Kind, name: &ObjectName) {
        if let Some(object) = self.get(kind, name).cloned() {
            self.hidden.insert(uid(&object).to_owned());
            self.log_state(kind, name.clone(), (*object).clone());
        }
    }

    /// Removes an object, whatever its finalizers.
    pub fn remove(&mut self, kind: Kind, name: &ObjectName) {
        if let Some(object) = self.get(kind, name).cloned() {
            self.version += 1;
            let mut object = (*object).clone();
            object["metadata"]["resourceVersion"] = json!(self.version.to_string());
            self.keep(kind, name.clone(), object, true);
        }
    }
}
