//! The types of the settings in a recipe.

use std::time::Duration;

/// The place of a run's pod when the scheduler has selected a node for the claim.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Placement {
    /// The selected node: the storage is local to the node.
    #[default]
    SelectedNode,
    /// Any node that `node-selector` allows: the network reaches the storage.
    Any,
}

/// The user of the container of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RunAsUser {
    /// The user with this id; 0 is root.
    Id(i64),
    /// A user that the platform assigns, or that of the image: never root.
    Any,
}

/// The treatment of storage on a node that does not exist any more.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum NodeGone {
    /// The orchestrator keeps the volume and emits an event. The node may return, or an admin abandons the volume.
    #[default]
    Hold,
    /// The storage is lost with the node, and nothing is deleted there.
    Forget,
    /// A delete run on any node can delete the storage.
    RunElsewhere,
}

/// A kind of volume source that a class allows, with its limits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SourceRule {
    /// The source's name in the API, such as `nfs`.
    pub kind: String,
    /// For `hostPath` and `local`: the directory under which the path must lie.
    pub prefix: Option<String>,
    /// For `csi` and `flexVolume`: the driver; for `fc`: the target WWN; `None` for any.
    pub driver: Option<String>,
}

/// The delays between failed attempts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Backoff {
    /// The delay before the second attempt.
    pub initial: Duration,
    /// The longest delay.
    pub max: Duration,
}

/// A quota.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Quota {
    /// The largest number of volumes.
    pub volumes: Option<u64>,
    /// The largest sum of the sizes of the volumes, in bytes.
    pub bytes: Option<u64>,
}

/// The times at which a backend is asked for its capacity.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Refresh {
    /// The minimum time between an answer and the next run, after a change.
    pub min_delay: Duration,
    /// The time between an answer and the next run, without a change.
    pub interval: Duration,
}
