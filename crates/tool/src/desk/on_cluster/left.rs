//! The decision about the PersistentVolumes at the end of a call, and the texts about those that stay.

use std::collections::BTreeSet;

use flex_contract::names::{CLAIM_UID, VOLUME_FINALIZER, pv_name};
use flex_desk::conformance::leftovers::Leftovers;
use k8s_openapi::api::core::v1::PersistentVolume;

/// The PersistentVolumes of a call.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Volumes {
    /// The names of those whose storage is deleted.
    pub remove: BTreeSet<String>,
    /// The names of those whose storage may exist. Only they say where the storage is.
    pub keep: BTreeSet<String>,
}

/// Decides about the PersistentVolumes with the label of the call, and about those that its runs may have created without
/// the label. `runs_ended` says that no run of the call can make storage any more.
pub(super) fn sort(labelled: &[PersistentVolume], left: &Leftovers, runs_ended: bool) -> Volumes {
    let noted = left.names();
    let undeleted: BTreeSet<String> = left.volumes().iter().map(|claim| pv_name(&claim.volume_id())).collect();
    let has_storage = |volume: &str| {
        let nothing_left = undeleted.is_empty();
        !runs_ended || if noted.contains(volume) { undeleted.contains(volume) } else { !nothing_left }
    };
    let mut sorted = Volumes::default();
    for name in &noted {
        let list = if has_storage(name) { &mut sorted.keep } else { &mut sorted.remove };
        list.insert(name.clone());
    }
    for volume in labelled {
        let Some(name) = volume.metadata.name.clone().filter(|name| !noted.contains(name)) else { continue };
        // An image may have given its volume another name, and no delete run may have been for it.
        let annotations = volume.metadata.annotations.as_ref();
        let of = annotations.and_then(|annotations| annotations.get(CLAIM_UID)).map(|uid| pv_name(uid));
        let list = if has_storage(of.as_deref().unwrap_or(&name)) { &mut sorted.keep } else { &mut sorted.remove };
        list.insert(name);
    }
    sorted
}

/// Says what to do with a PersistentVolume that is kept.
pub(super) fn kept(name: &str) -> String {
    format!(
        "the PersistentVolume {name}: its storage may exist, and the volume says where; delete the storage, then remove the \
         finalizer {VOLUME_FINALIZER} of the volume if it has it, and the volume: kubectl delete persistentvolume {name}"
    )
}

#[cfg(test)]
mod tests {
    use flex_core::model::claim::Claim;
    use flex_desk::order::{Content, Order};
    use k8s_openapi::api::core::v1::PersistentVolumeClaim;
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

    use super::*;

    fn claim(uid: &str) -> Claim {
        Claim { uid: uid.into(), ..Claim::from(&PersistentVolumeClaim::default()) }
    }

    fn volume(name: &str, of: Option<&str>) -> PersistentVolume {
        let annotations = of.map(|uid| [(CLAIM_UID.to_owned(), uid.to_owned())].into());
        let metadata = ObjectMeta { name: Some(name.into()), annotations, ..ObjectMeta::default() };
        PersistentVolume { metadata, ..PersistentVolume::default() }
    }

    #[test]
    fn only_volumes_whose_storage_is_deleted_are_removed() {
        for (what, deleted, labelled, runs_ended, keep) in [
            ("all storage is deleted", vec!["a", "b"], vec![], true, vec![]),
            ("one deletion has failed", vec!["b"], vec![], true, vec!["pvc-a"]),
            ("all deletions have failed", vec![], vec![], true, vec!["pvc-a", "pvc-b"]),
            ("a run may still make storage", vec!["a", "b"], vec![], false, vec!["pvc-a", "pvc-b"]),
            ("a labelled volume is noted", vec!["a"], vec![("pvc-a", Some("a"))], true, vec!["pvc-b"]),
            ("the annotation of another name counts", vec!["a"], vec![("x", Some("a"))], true, vec!["pvc-b"]),
            ("and leads to storage", vec!["a"], vec![("x", Some("b"))], true, vec!["pvc-b", "x"]),
            ("nothing says whose it is", vec!["a"], vec![("x", None)], true, vec!["pvc-b", "x"]),
            ("no storage is left", vec!["a", "b"], vec![("x", None), ("y", Some("other"))], true, vec![]),
        ] {
            let mut left = Leftovers::default();
            for uid in ["a", "b"] {
                left.begins(&Order::Provision { claim: claim(uid), content: Content::Empty });
            }
            deleted.iter().for_each(|uid| left.succeeded(&Order::Undo { claim: claim(uid) }));
            let labelled: Vec<PersistentVolume> = labelled.into_iter().map(|(name, of)| volume(name, of)).collect();
            let sorted = sort(&labelled, &left, runs_ended);
            assert_eq!(sorted.keep, keep.iter().map(|name| (*name).to_owned()).collect(), "{what}");
            let all = labelled.iter().filter_map(|volume| volume.metadata.name.clone()).chain(left.names());
            let all: BTreeSet<String> = all.collect();
            assert_eq!(sorted.remove, &all - &sorted.keep, "{what}");
        }
    }
}
