//! The conversion of objects by the orchestrator's own code, as its watches do it.

use flex_contract::names;
use flex_core::config::classes::{ClassObject, Config};
use flex_core::model::claim::Claim;
use flex_core::model::snapshot::{Content, Snapshot};
use flex_core::model::stored::Stored;
use flex_core::model::volume::Volume;
use flex_core::object::ObjectName;
use flex_core::run::node::Node;
use flex_core::run::view::{Job, Pod};
use flex_provisioner::api::read;
use flex_provisioner::state::index::{Index, WatchChange, WorkItem};
use serde_json::Value;

use crate::INSTANCE;
use crate::store::{self, Kind};

/// An object as the index keeps it.
#[derive(Clone, Debug)]
pub enum View {
    /// A claim.
    Claim(Box<Claim>),
    /// A volume.
    Volume(Box<Volume>),
    /// A Job.
    Job(Box<Job>),
    /// A pod.
    Pod(Box<Pod>),
    /// A config.
    Config(Config),
    /// A class.
    Class(ClassObject),
    /// A revision, or a kept script.
    Stored(Stored),
    /// A node.
    Node(Node),
    /// A VolumeSnapshot.
    Snapshot(Box<Snapshot>),
    /// Its content.
    Content(Box<Content>),
}

impl View {
    /// Returns the view of an object by the watch of its kind, or `None` if the watch does not select it.
    pub fn of(kind: Kind, object: &Value) -> Option<View> {
        View::read(kind, object).expect("the simulation writes what the API would accept")
    }

    fn read(kind: Kind, object: &Value) -> serde_json::Result<Option<View>> {
        let has_instance = || store::label(object, names::LABEL_INSTANCE) == INSTANCE;
        let whole = || serde_json::to_string(object).expect("an object is JSON");
        Ok(Some(match kind {
            Kind::Claim => View::Claim(read::claim(&whole())?.into()),
            Kind::Volume => View::Volume(read::volume(&whole())?.into()),
            Kind::Job if has_instance() => View::Job(read::job(&whole())?.into()),
            Kind::Pod if has_instance() => View::Pod(read::pod(&whole())?.into()),
            Kind::Config if store::label(object, names::LABEL_TYPE) == names::LABEL_TYPE_CONFIG => {
                View::Config(read::config(&whole())?)
            }
            Kind::Class => View::Class(read::class(&whole())?),
            Kind::Revision if has_instance() => {
                return Ok(read::stored(&whole())?.map(View::Stored));
            }
            Kind::Node => View::Node(read::node(&whole())?),
            Kind::Snapshot => View::Snapshot(read::snapshot(&whole())?.into()),
            Kind::Content => View::Content(read::content(&whole())?.into()),
            Kind::Job | Kind::Pod | Kind::Config | Kind::Revision | Kind::Event | Kind::Namespace => return Ok(None),
        }))
    }

    /// Applies the view to the index.
    pub fn apply(self, index: &mut Index) -> Vec<WorkItem> {
        match self {
            View::Claim(claim) => index.change_claim(WatchChange::Apply(*claim)),
            View::Volume(volume) => index.change_volume(WatchChange::Apply(*volume)),
            View::Job(job) => index.change_job(WatchChange::Apply(*job)),
            View::Pod(pod) => index.change_pod(WatchChange::Apply(*pod)),
            View::Config(config) => index.change_config(WatchChange::Apply(config)),
            View::Class(class) => index.change_class(WatchChange::Apply(class)),
            View::Stored(stored) => index.change_stored(WatchChange::Apply(stored)),
            View::Node(node) => index.change_node(WatchChange::Apply(node)),
            View::Snapshot(snapshot) => index.change_snapshot(WatchChange::Apply(*snapshot)),
            View::Content(content) => index.change_content(WatchChange::Apply(*content)),
        }
    }
}

/// Deletes an object of a kind from the index.
pub fn delete(index: &mut Index, kind: Kind, name: ObjectName) -> Vec<WorkItem> {
    change(index, kind, Gone::One(name))
}

/// Applies a new list of a kind: only these objects exist.
pub fn retain(index: &mut Index, kind: Kind, all: impl Iterator<Item = ObjectName>) -> Vec<WorkItem> {
    change(index, kind, Gone::AllBut(all.collect()))
}

/// The same for a kind with a watch for each namespace.
pub fn retain_in(
    index: &mut Index,
    kind: Kind,
    namespace: &str,
    all: impl Iterator<Item = ObjectName>,
) -> Vec<WorkItem> {
    change(index, kind, Gone::AllOfBut(namespace.to_owned(), all.collect()))
}

enum Gone {
    One(ObjectName),
    AllOfBut(String, std::collections::HashSet<ObjectName>),
    AllBut(std::collections::HashSet<ObjectName>),
}

impl<V> From<Gone> for WatchChange<V> {
    fn from(gone: Gone) -> Self {
        match gone {
            Gone::One(name) => WatchChange::Delete(name),
            Gone::AllBut(all) => WatchChange::Retain(all.into_iter().collect()),
            Gone::AllOfBut(namespace, all) => WatchChange::RetainIn(namespace, all.into_iter().collect()),
        }
    }
}

fn change(index: &mut Index, kind: Kind, gone: Gone) -> Vec<WorkItem> {
    match kind {
        Kind::Claim => index.change_claim(gone.into()),
        Kind::Volume => index.change_volume(gone.into()),
        Kind::Job => index.change_job(gone.into()),
        Kind::Pod => index.change_pod(gone.into()),
        Kind::Config => index.change_config(gone.into()),
        Kind::Class => index.change_class(gone.into()),
        Kind::Revision => index.change_stored(gone.into()),
        Kind::Node => index.change_node(gone.into()),
        Kind::Snapshot => index.change_snapshot(gone.into()),
        Kind::Content => index.change_content(gone.into()),
        Kind::Event | Kind::Namespace => Vec::new(),
    }
}
