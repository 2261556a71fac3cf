//! The storage that runs may have left.

use std::collections::{BTreeMap, BTreeSet};

use flex_contract::names::pv_name;
use flex_core::model::claim::Claim;
use k8s_openapi::api::core::v1::PersistentVolume;

use crate::order::{Made, Order};

/// The storage that runs may have left.
#[derive(Clone, Debug, Default)]
pub struct Leftovers {
    volumes: BTreeMap<String, Claim>,
    snapshots: BTreeMap<String, Made>,
    names: BTreeSet<String>,
    forgotten: BTreeMap<String, PersistentVolume>,
}

impl Leftovers {
    /// Notes that a run of an order begins.
    pub fn begins(&mut self, order: &Order) {
        match order {
            Order::Provision { claim, .. } => {
                self.names.insert(pv_name(&claim.volume_id()));
                self.volumes.insert(claim.volume_id(), claim.clone());
            }
            Order::Snapshot(made, id) => drop(self.snapshots.insert(id.clone(), made.clone())),
            _ => {}
        }
    }

    /// Notes that a run of an order has exited 0.
    pub fn succeeded(&mut self, order: &Order) {
        match order {
            Order::Delete(Made { claim, .. }) | Order::Undo { claim } => {
                self.volumes.remove(&claim.volume_id());
                self.forgotten.remove(&pv_name(&claim.volume_id()));
            }
            Order::DeleteSnapshot(_, id) => drop(self.snapshots.remove(id)),
            _ => {}
        }
    }

    /// Notes a PersistentVolume that a case removes. It says where the storage is.
    pub fn forgets(&mut self, volume: PersistentVolume) {
        let name = volume.metadata.name.clone().unwrap_or_default();
        self.forgotten.insert(name, volume);
    }

    /// Returns the PersistentVolume of a case whose storage may be left, though the case has removed the object.
    pub fn forgotten(&self, name: &str) -> Option<PersistentVolume> {
        self.forgotten.get(name).cloned()
    }

    /// Returns the orders that delete the snapshots. They come before those of the volumes.
    pub fn snapshots(&self) -> Vec<Order> {
        self.snapshots.iter().map(|(id, made)| Order::DeleteSnapshot(made.clone(), id.clone())).collect()
    }

    /// Returns the claims of volumes that may have storage.
    pub fn volumes(&self) -> Vec<Claim> {
        self.volumes.values().cloned().collect()
    }

    /// Returns the names of all PersistentVolumes that runs may have created.
    pub fn names(&self) -> BTreeSet<String> {
        self.names.clone()
    }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::PersistentVolumeClaim;

    use super::*;
    use crate::order::Content;

    fn made(claim: &Claim) -> Made {
        Made { claim: claim.clone(), volume: PersistentVolume::default() }
    }

    fn claim() -> Claim {
        Claim { uid: "u".into(), ..Claim::from(&PersistentVolumeClaim::default()) }
    }

    #[test]
    fn what_a_run_may_have_left_stays_noted_until_a_delete_run_succeeds() {
        let claim = claim();
        let provision = Order::Provision { claim: claim.clone(), content: Content::Empty };
        let snapshot = Order::Snapshot(made(&claim), "s".into());
        for (what, begun, succeeded, volumes, snapshots) in [
            ("nothing", vec![], vec![], 0, 0),
            ("a list leaves nothing", vec![Order::List, Order::Capacity], vec![Order::List], 0, 0),
            ("a provision run that failed", vec![provision.clone()], vec![], 1, 0),
            ("a provision run", vec![provision.clone()], vec![provision.clone()], 1, 0),
            ("deleted", vec![provision.clone()], vec![Order::Delete(made(&claim))], 0, 0),
            ("undone", vec![provision.clone()], vec![Order::Undo { claim: claim.clone() }], 0, 0),
            ("a deletion that began", vec![provision.clone(), Order::Delete(made(&claim))], vec![], 1, 0),
            ("a snapshot", vec![provision.clone(), snapshot.clone()], vec![], 1, 1),
            ("a deleted snapshot", vec![snapshot], vec![Order::DeleteSnapshot(made(&claim), "s".into())], 0, 0),
        ] {
            let mut left = Leftovers::default();
            begun.iter().for_each(|order| left.begins(order));
            succeeded.iter().for_each(|order| left.succeeded(order));
            assert_eq!((left.volumes().len(), left.snapshots().len()), (volumes, snapshots), "{what}");
        }
    }

    #[test]
    fn the_name_of_a_volume_stays_noted_after_its_storage_is_deleted() {
        let claim = claim();
        let mut left = Leftovers::default();
        left.begins(&Order::Provision { claim: claim.clone(), content: Content::Empty });
        left.succeeded(&Order::Undo { claim });
        assert_eq!(left.names(), BTreeSet::from(["pvc-u".to_owned()]));
    }

    #[test]
    fn a_removed_volume_stays_noted_until_its_storage_is_deleted() {
        let (claim, mut left, mut volume) = (claim(), Leftovers::default(), PersistentVolume::default());
        volume.metadata.name = Some("pvc-u".into());
        left.forgets(volume.clone());
        left.succeeded(&Order::List);
        assert_eq!(left.forgotten("pvc-u"), Some(volume));
        left.succeeded(&Order::Undo { claim });
        assert_eq!(left.forgotten("pvc-u"), None);
    }
}
