//! Size limits, in bytes unless said otherwise. They keep each object that the orchestrator writes below the API's
//! limit of 256 KiB of annotations.
//!
//! | where | holds |
//! |---|---|
//! | a pod's annotations | the recipe's values, and the data of the claim or the volume |
//! | a volume's annotations | the recipe, the nodes, the last failure, and what the image wrote |
//! | a claim's annotations | the nodes, the last failure, and what the user wrote |

/// The annotations of a batch's pod. The rest of the API's limit is left for annotations of others.
pub const POD: usize = 252 * 1024;
/// The claims in the record of a run, about: one more may exceed it. The API's limit for an object is three times as much.
pub const RECORD: usize = 512 * 1024;
/// The number of keys of a config with its StorageClass, parameters included.
pub const KEYS: usize = 300;
/// One value of a config.
pub const VALUE: usize = 64 * 1024;
/// The parameters of a VolumeAttributesClass, as JSON. They are stored beside the recipe.
pub const ATTRIBUTES: usize = 16 * 1024;
/// A config with its StorageClass, as JSON. It is stored on each volume for the deletion, with those of other attempts that fit.
pub const RECIPE: usize = 160 * 1024;
/// The words of a claim's user that an image gets: metadata, creator, access modes.
pub const CLAIM: usize = 32 * 1024;
/// The fields that an image may write on its volume: labels, annotations, finalizers, source.
pub const VOLUME: usize = 32 * 1024;
/// The number of nodes on which attempts for one claim may have left storage.
pub const NODES: usize = 100;
/// The number of claims of one namespace and class that are gone while what their attempts may have left is not deleted. With so
/// many, no first attempt begins for others.
pub const LEFT: usize = 100;
/// One problem with a config.
pub const PROBLEM: usize = 1024;
/// All problems with a config.
pub const VERDICT: usize = 16 * 1024;
/// One reason why a volume cannot be bound.
pub const MISMATCH: usize = 400;
/// The reason of a failure.
pub const REASON: usize = 64;
/// The message of a failure. It contains at most 600 characters of an image's last words.
pub const MESSAGE: usize = 4096;
/// The failed attempts of a claim, as JSON.
pub const FAILED_ATTEMPTS: usize = 6 * 1024;
/// The labels, annotations and finalizers of a claim that is served, each with [`ENTRY`]. There is room for as many
/// annotations as Kubernetes allows, and for the rest.
pub const METADATA: usize = 320 * 1024;
/// The memory that holds one label, annotation or finalizer, beside its text.
pub const ENTRY: usize = 64;
/// The finalizers of an object if all of them are kept, each with [`ENTRY`].
pub const FINALIZERS: usize = 16 * 1024;
/// The labels, annotations and creator of a claim that the cache keeps as long as the claim exists. Longer ones are
/// read when they are needed.
pub const CLAIM_METADATA: usize = 2048;
/// The name of an object, with its namespace. No existing object has a longer name.
pub const NAME: usize = 330;
/// The handle of a snapshot. No run hands back a longer one, and none gets one.
pub const HANDLE: usize = flex_contract::snapshot_handle::LONGEST;
/// A note of the orchestrator on a volume, as JSON, in which a character of a message may take six bytes.
pub const NOTE: usize = 2 * ATTRIBUTES;
/// A time as the orchestrator writes it.
pub const TIME: usize = 40;
