//! The storage of the images on the simulated nodes: a directory with a file for each volume.

use std::collections::{BTreeMap, HashMap};
use std::path::PathBuf;
use std::sync::{Mutex, MutexGuard};

use flex_contract::names;

/// The backend's records: its volumes, and violations of its rules.
pub struct Backend {
    dir: tempfile::TempDir,
    /// The process that works on a volume, by volume id.
    running: Mutex<HashMap<String, String>>,
    /// The sizes of volumes that have grown, in bytes.
    expanded_size: Mutex<HashMap<String, u64>>,
    /// The last VolumeAttributesClass of each modified volume.
    attributes_class: Mutex<HashMap<String, String>>,
    /// The source of each clone, and the process that reads it at the moment.
    copies: Mutex<HashMap<String, String>>,
    read: Mutex<Vec<String>>,
    /// Snapshots, each with its VolumeSnapshot as `namespace/name`.
    snapshots: Mutex<BTreeMap<String, String>>,
    /// The nodes of volumes that exist on one node only.
    homes: Mutex<HashMap<String, String>>,
    /// The leftovers of attempts without space, by volume id and node, each with its claim as `namespace/name`.
    leftovers: Mutex<BTreeMap<(String, String), String>>,
    violations: Mutex<Vec<String>>,
}

/// A process that works on a volume while this value lives.
pub struct Working<'a> {
    backend: &'a Backend,
    id: String,
}

impl Drop for Working<'_> {
    fn drop(&mut self) {
        lock(&self.backend.running).remove(&self.id);
    }
}

/// A process that reads a volume to copy it while this value lives.
pub struct Reading<'a> {
    backend: &'a Backend,
    id: String,
}

impl Drop for Reading<'_> {
    fn drop(&mut self) {
        let mut read = lock(&self.backend.read);
        if let Some(at) = read.iter().position(|id| *id == self.id) {
            read.swap_remove(at);
        }
    }
}

pub fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().expect("no code panics while it holds this")
}

impl Backend {
    pub fn new() -> Backend {
        Backend {
            dir: tempfile::tempdir().unwrap(),
            running: Mutex::default(),
            expanded_size: Mutex::default(),
            attributes_class: Mutex::default(),
            copies: Mutex::default(),
            read: Mutex::default(),
            snapshots: Mutex::default(),
            homes: Mutex::default(),
            leftovers: Mutex::default(),
            violations: Mutex::default(),
        }
    }

    fn path(&self, id: &str) -> PathBuf {
        self.dir.path().join(id)
    }

    /// Records a violation of the rules; its text names the namespace of the claim.
    pub fn record_violation(&self, what: String) {
        lock(&self.violations).push(what);
    }

    /// Begins to work on a volume. No other process may work on it meanwhile.
    pub fn work(&self, id: &str, pod: &str) -> Working<'_> {
        if let Some(other) = lock(&self.running).insert(id.to_owned(), pod.to_owned()) {
            self.record_violation(format!("{pod} and {other} work on volume {id} at one time"));
        }
        Working { backend: self, id: id.to_owned() }
    }

    /// Makes a volume for a claim, unless it exists. If a node is named, the volume is on that node.
    pub fn make(&self, id: &str, node: &str, claim: &str) {
        // A new pool request may have the name of an earlier one.
        let is_request = claim.split('/').nth(1).is_some_and(|name| name.starts_with(names::POOL_REQUEST_PREFIX));
        let mut volumes = self.volumes().into_iter().filter(|_| !is_request);
        let of_claim = volumes.find(|(other, owner)| owner == claim && other != id);
        if let Some((other, _)) = of_claim {
            self.record_violation(format!("claim {claim} has the volumes {other} and {id} at one time"));
        }
        std::fs::write(self.path(id), claim).expect("the backend's directory can be written");
        if !node.is_empty() {
            lock(&self.homes).insert(id.to_owned(), node.to_owned());
        }
    }

    /// Leaves something on a node, as an attempt without space does.
    pub fn add_leftover(&self, id: &str, node: &str, claim: &str) {
        lock(&self.leftovers).insert((id.to_owned(), node.to_owned()), claim.to_owned());
    }

    /// Removes the leftover of an attempt from a node. Returns whether there was one.
    pub fn remove_leftover(&self, id: &str, node: &str) -> bool {
        lock(&self.leftovers).remove(&(id.to_owned(), node.to_owned())).is_some()
    }

    /// Whether the volume is on another node than this.
    pub fn is_elsewhere(&self, id: &str, node: &str) -> bool {
        lock(&self.homes).get(id).is_some_and(|home| home != node)
    }

    pub fn expand(&self, id: &str, bytes: u64) {
        lock(&self.expanded_size).insert(id.to_owned(), bytes);
    }

    /// Gives a volume the attributes of a class.
    pub fn modify(&self, id: &str, class: &str) {
        lock(&self.attributes_class).insert(id.to_owned(), class.to_owned());
    }

    fn read(&self, id: &str) -> Reading<'_> {
        lock(&self.read).push(id.to_owned());
        Reading { backend: self, id: id.to_owned() }
    }

    /// Begins to copy a volume, which must exist and stay.
    pub fn copy(&self, of: &str, id: &str, claim: &str) -> Reading<'_> {
        if !self.volumes().contains_key(of) {
            self.record_violation(format!("claim {claim} is to be a copy of volume {of}, which does not exist"));
        }
        lock(&self.copies).insert(id.to_owned(), of.to_owned());
        self.read(of)
    }

    /// Begins to read a volume for a snapshot; the volume must exist and stay.
    pub fn snapshot(&self, of: &str, owner: &str) -> Reading<'_> {
        if !self.volumes().contains_key(of) {
            self.record_violation(format!("{owner} is to be a snapshot of volume {of}, which does not exist"));
        }
        self.read(of)
    }

    /// Stores the snapshot of a VolumeSnapshot, named as `namespace/name`.
    pub fn keep_snapshot(&self, id: &str, owner: &str) {
        lock(&self.snapshots).insert(id.to_owned(), owner.to_owned());
    }

    /// Begins to fill a volume from a snapshot, which must exist and stay.
    pub fn restore(&self, from: &str, id: &str, claim: &str) -> Reading<'_> {
        if !self.snapshots().contains_key(from) {
            self.record_violation(format!("claim {claim} is to be made from snapshot {from}, which does not exist"));
        }
        lock(&self.copies).insert(id.to_owned(), from.to_owned());
        self.read(from)
    }

    pub fn remove_snapshot(&self, id: &str) {
        if lock(&self.read).iter().any(|read| read == id) {
            let owner = self.snapshots().get(id).cloned().unwrap_or_default();
            self.record_violation(format!("snapshot {id} of {owner} is deleted while a volume is made from it"));
        }
        lock(&self.snapshots).remove(id);
    }

    /// Returns all snapshots, each with its VolumeSnapshot as `namespace/name`.
    pub fn snapshots(&self) -> BTreeMap<String, String> {
        lock(&self.snapshots).clone()
    }

    /// Returns the volume or snapshot of which a volume is a copy.
    pub fn source_of(&self, id: &str) -> Option<String> {
        lock(&self.copies).get(id).cloned()
    }

    pub fn remove(&self, id: &str) {
        if lock(&self.read).iter().any(|read| read == id) {
            let claim = self.volumes().get(id).cloned().unwrap_or_default();
            self.record_violation(format!("volume {id} of {claim} is deleted while it is copied"));
        }
        let _ = std::fs::remove_file(self.path(id));
    }

    /// Returns all volumes, each with its claim as `namespace/name`.
    pub fn volumes(&self) -> BTreeMap<String, String> {
        let files = std::fs::read_dir(self.dir.path()).expect("the backend's directory exists");
        let volume =
            |path: PathBuf| Some((path.file_name()?.to_str()?.to_owned(), std::fs::read_to_string(path).ok()?));
        files.filter_map(|file| volume(file.ok()?.path())).collect()
    }

    /// Lists the leftovers on nodes of attempts for claims of a namespace.
    pub fn leftovers(&self, namespace: &str) -> Vec<String> {
        let leftovers = lock(&self.leftovers);
        let of = leftovers.iter().filter(|(_, claim)| claim.split('/').next() == Some(namespace));
        of.map(|((id, node), _)| format!("{id} on {node}")).collect()
    }

    /// Returns the size in bytes to which a volume was expanded.
    pub fn expanded_size(&self, id: &str) -> Option<u64> {
        lock(&self.expanded_size).get(id).copied()
    }

    /// Returns the last VolumeAttributesClass of a volume.
    pub fn attributes_class(&self, id: &str) -> Option<String> {
        lock(&self.attributes_class).get(id).cloned()
    }

    /// Lists the violations about claims of a namespace.
    pub fn violations(&self, namespace: &str) -> Vec<String> {
        lock(&self.violations).iter().filter(|what| what.contains(namespace)).cloned().collect()
    }
}
