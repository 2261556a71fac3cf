//! The variables of the contract, each with its documentation.
//!
//! The tables of `docs/contract.md` are printed from here.

/// A variable in the environment of a run.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct Variable {
    /// The name in the environment.
    pub name: &'static str,
    /// The part of the documentation that lists the variable.
    pub group: Group,
    /// The way by which the pod gets the variable.
    pub source: Source,
    /// The value, as lines of Markdown.
    pub doc: &'static [&'static str],
}

/// The parts of the documentation that list variables.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Group {
    /// The operation of the run.
    Operation,
    /// The claim that the run is for.
    Claim,
    /// The volume.
    Volume,
    /// The source of a copy, and snapshots.
    DataSource,
    /// VolumeAttributesClasses.
    Attributes,
    /// The place of the run, and the places of the volume.
    Place,
    /// The values of the config.
    Config,
}

/// The way by which a pod gets a variable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source {
    /// A [`Property`](crate::request::Property) of the request, which is also a file.
    Property,
    /// Another source.
    Pod,
}

impl Variable {
    /// Returns the name of the file under `/etc/flex/` with the same value.
    pub fn file(&self) -> String {
        self.name.to_ascii_lowercase().replace('_', "-")
    }
}

/// Returns the variables that are properties of a request.
pub fn properties() -> impl Iterator<Item = &'static Variable> {
    ALL.iter().copied().filter(|variable| variable.source == Source::Property)
}

/// Declares a constant for each variable, with its comment as documentation, and the list of all.
macro_rules! variables {
    ($($group:ident { $($(#[doc = $doc:literal])+ $variable:ident: $source:ident;)* })*) => {
        $($($(#[doc = $doc])+ pub const $variable: &Variable = &Variable {
            name: stringify!($variable),
            group: Group::$group,
            source: Source::$source,
            doc: &[$($doc),+],
        };)*)*

        /// All variables, in the order of their documentation.
        pub const ALL: &[&Variable] = &[$($($variable),*),*];
    };
}

variables! {
    Operation {
        /// The operation: see [below](#operations).
        OPERATION: Property;
        /// The [number of the contract](#the-number-of-the-contract) that the orchestrator keeps: `1`.
        CONTRACT: Property;
        /// The volume id. It is the same in all runs of the volume: name your storage by it.
        CLAIM_UUID: Property;
        /// The number of the attempt, from 1. Delete and expand runs are counted apart.
        ATTEMPT: Property;
        /// The time when this attempt began, RFC 3339 with microseconds. It differs with every attempt.
        PROVISION_TS: Property;
        /// `true` if all attempts are known to have asked for the same as this run.
        /// Only in [delete runs without a PersistentVolume](#a-delete-run-without-a-persistentvolume); else empty.
        ATTEMPTS_ALIKE: Property;
        /// In a run for several claims the path of [the list of them](#batch); else not set.
        BATCH: Pod;
        /// The provisioner name of the orchestrator, or the name of the driver that it replaces.
        PROVISIONER: Property;
        /// The instance id of the orchestrator.
        INSTANCE: Property;
    }
    Claim {
        /// The name of the claim, which [a later claim may have, too](#a-delete-run-without-a-persistentvolume).
        PVC_NAME: Property;
        /// The namespace of the claim.
        PVC_NAMESPACE: Property;
        /// The UID of the claim. It can differ from the `CLAIM_UUID`: see [pools](#pool).
        PVC_UID: Property;
        /// The class.
        STORAGE_CLASS: Property;
        /// The size that the claim requests, as Kubernetes writes it (`3Gi`). In a delete run the size of the volume.
        SIZE: Property;
        /// The same in bytes.
        SIZE_BYTES: Property;
        /// In an [expand](#expand) run the size that the volume has; else empty.
        OLD_SIZE_BYTES: Property;
        /// The access modes, comma-separated: `ReadWriteOnce,ReadOnlyMany`.
        ACCESS_MODES: Property;
        /// `Filesystem` or `Block`.
        VOLUME_MODE: Property;
        /// The mount options, comma-separated.
        MOUNT_OPTIONS: Property;
        /// `Delete` or `Retain`.
        RECLAIM_POLICY: Property;
        /// The file system that the class names; may be empty.
        FS_TYPE: Property;
        /// Labels and annotations of the claim that the config lets through (`claim-metadata`), as a JSON object.
        /// Empty in delete and expand runs of volumes.
        CLAIM_METADATA: Property;
        /// The user who created the claim: see [below](#the-user).
        USERNAME: Property;
        /// The groups of the user who created the claim: see [below](#the-user).
        USER_GROUPS: Property;
    }
    Volume {
        /// The name that the PersistentVolume must have.
        PV_NAME: Property;
        /// In delete and expand runs the volume source in the PersistentVolume, as JSON: `{"nfs":{"server":"…","path":"…"}}`.
        /// Empty in provision runs, and in [delete runs without a PersistentVolume](#a-delete-run-without-a-persistentvolume).
        VOLUME_SOURCE: Property;
        /// The path in `VOLUME_SOURCE` of [storage that has moved in](#storage-that-has-moved-in), as the record names it.
        /// The storage has this place, whatever the `CLAIM_UUID`. Empty for storage that the image made.
        MOVED_IN_PATH: Property;
    }
    DataSource {
        /// In a provision run [for a clone](#clone) the `CLAIM_UUID` of the volume to copy.
        CLONE_OF: Property;
        /// The name of that volume's PersistentVolume.
        CLONE_OF_PV_NAME: Property;
        /// Its volume source as JSON, like `VOLUME_SOURCE`.
        CLONE_OF_SOURCE: Property;
        /// Its size.
        CLONE_OF_SIZE_BYTES: Property;
        /// The node where it was made, if that matters.
        CLONE_OF_NODE: Property;
        /// Its `MOVED_IN_PATH`.
        CLONE_OF_MOVED_IN_PATH: Property;
        /// The id of [the snapshot](#snapshot) to make or to delete. In a provision run the snapshot to make the volume from.
        SNAPSHOT_ID: Property;
        /// The id that the storage gave to the snapshot, as the [snapshot run](#snapshot) reported it; else empty.
        SNAPSHOT_HANDLE: Property;
        /// The `CLAIM_UUID` of the volume that the snapshot is of. Empty where it is not known.
        SNAPSHOT_OF: Property;
        /// The size of that volume. Empty where it is not known.
        SNAPSHOT_SIZE_BYTES: Property;
        /// The node where the snapshot is, if that matters.
        SNAPSHOT_NODE: Property;
        /// The namespace of the VolumeSnapshot. Empty in provision runs.
        SNAPSHOT_NAMESPACE: Property;
        /// The name of the VolumeSnapshot. Empty in provision runs.
        SNAPSHOT_NAME: Property;
    }
    Attributes {
        /// The VolumeAttributesClass that the volume has; empty for none. In provision and [modify](#modify) runs the class that it must get.
        ATTRIBUTES_CLASS: Property;
        /// The parameters of that class alone, as a JSON object; empty for none. The parameters of the run contain them too.
        ATTRIBUTES: Property;
        /// In a modify run the class that the volume has; else empty.
        OLD_ATTRIBUTES_CLASS: Property;
        /// The parameters of that class, as a JSON object.
        OLD_ATTRIBUTES: Property;
    }
    Place {
        /// The node: see [below](#the-node).
        NODE_NAME: Property;
        /// Labels of that node that say where it is, as a JSON object. Empty in delete and expand runs of volumes.
        TOPOLOGY: Property;
        /// The `allowedTopologies` of the StorageClass, as JSON: see [below](#the-node).
        CLASS_TOPOLOGIES: Property;
        /// The name of the run's pod.
        POD_NAME: Pod;
        /// The namespace of the pod.
        POD_NAMESPACE: Pod;
        /// The node of the pod.
        POD_NODE: Pod;
        /// The ServiceAccount of the pod.
        SERVICE_ACCOUNT: Property;
        /// The address of the Kubernetes API.
        KUBE_API: Property;
    }
    Config {
        /// The names of all parameters as they were written, comma-separated, for images that hand parameters on.
        PARAMETER_NAMES: Property;
        /// The config's `service-token`, where it has one.
        SERVICE_TOKEN: Pod;
        /// With `storage-mounts` in the config [its paths](#a-run-that-sees-its-own-volume-alone), comma-separated; else not set.
        STORAGE_MOUNTS: Pod;
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::parameter::env_name;

    #[test]
    fn each_variable_exists_once_and_is_documented() {
        let names: BTreeSet<&str> = ALL.iter().map(|variable| variable.name).collect();
        assert_eq!(names.len(), ALL.len(), "a variable exists twice");
        for variable in ALL {
            assert_eq!(env_name(&variable.file()), variable.name, "its file has its name");
            assert!(variable.doc[0].ends_with(['.', ',']), "{}", variable.name);
        }
    }
}
