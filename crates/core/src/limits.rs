//! How large things may be, so that no object that the orchestrator writes is larger than the API takes:
//! 256 KiB of annotations on one object, in all.
//!
//! | where | holds |
//! |---|---|
//! | a pod's annotations | the recipe's values, and what comes from the claim or the volume |
//! | a volume's annotations | the recipe, the nodes, the last failure, and what its image wrote |
//! | a claim's annotations | the nodes, the last failure, and what its user wrote |

/// The annotations of a pod of a batch: some room is left for those that others write.
pub const POD: usize = 252 * 1024;
/// Keys of a config with those of its StorageClass, parameters included.
pub const KEYS: usize = 300;
/// One value of a config.
pub const VALUE: usize = 64 * 1024;
/// The parameters of a VolumeAttributesClass, as JSON: they are kept beside the recipe.
pub const ATTRIBUTES: usize = 16 * 1024;
/// A config with its StorageClass, as JSON: it is kept on each volume for its deletion.
pub const RECIPE: usize = 160 * 1024;
/// What an image is told in the words of a claim's user: metadata, creator, access modes.
pub const CLAIM: usize = 32 * 1024;
/// What an image may write on its volume: labels, annotations, finalizers, source.
pub const VOLUME: usize = 32 * 1024;
/// Nodes on which attempts for one claim may have left something.
pub const NODES: usize = 100;
/// One problem with a config.
pub const PROBLEM: usize = 1024;
/// All problems with a config.
pub const VERDICT: usize = 16 * 1024;
/// One thing that keeps a volume from being bound.
pub const MISFIT: usize = 400;
/// The reason of a failure.
pub const REASON: usize = 64;
/// The words of a failure. The last words of an image are 600 characters of it.
pub const MESSAGE: usize = 4096;
/// Labels, annotations and finalizers of a claim that is served, each with [`ENTRY`]: the annotations that Kubernetes
/// allows, and room for the rest.
pub const METADATA: usize = 320 * 1024;
/// What holds one label, annotation or finalizer in memory.
pub const ENTRY: usize = 64;
/// Finalizers of an object that are all kept, each with [`ENTRY`].
pub const FINALIZERS: usize = 16 * 1024;
/// What is kept of a claim's labels, annotations and creator for as long as it is there. More is read when it is needed.
pub const WORDS: usize = 2048;
/// A name of an object, or of one in a namespace: nothing that there is has a longer one.
pub const NAME: usize = 330;
/// A time as the orchestrator writes it.
pub const TIME: usize = 40;
