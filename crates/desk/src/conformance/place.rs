//! The place where the runs of cases happen: a desk, or a cluster.

use std::collections::{BTreeMap, BTreeSet};

use flex_contract::names::pv_name;
use flex_core::model::claim::Claim;
use futures::future::LocalBoxFuture;
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::PersistentVolume;

use super::on_desk::OnDesk;
use crate::desk::{DeskError, Ended, Stop};
use crate::order::{Made, Order};
use crate::setting::Setting;

/// The answer of a place, which takes a while.
pub type Pending<'a, T> = LocalBoxFuture<'a, Result<T, DeskError>>;

/// A place where runs happen.
pub trait Place {
    /// Returns the address of the API server, as runs get it.
    fn kube_api(&self) -> String;

    /// Returns the number of the next attempt. A number gives the Job of a run its name.
    fn attempt(&self) -> u32;

    /// Runs a Job to its end, or until something stops it.
    fn run<'a, 's: 'a>(&'a self, setting: &'a Setting, job: Job, stop: Stop<'s>) -> Pending<'a, Ended>;

    /// Notes that a run of an order begins.
    fn begins(&self, order: &Order);

    /// Notes that a run of an order has exited 0.
    fn succeeded(&self, order: &Order);

    /// Returns the PersistentVolume with this name.
    fn volume<'a>(&'a self, name: &'a str) -> Pending<'a, Option<PersistentVolume>>;

    /// Removes the PersistentVolume with this name.
    fn forget<'a>(&'a self, name: &'a str) -> Pending<'a, ()>;

    /// Removes the storage of all runs.
    fn clear(&self) -> Pending<'_, ()>;

    /// Returns the desk, if the place is one.
    fn desk(&self) -> Option<&OnDesk>;
}

/// The ids of the volumes and snapshots of a case.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ids(String);

impl Ids {
    /// Returns the ids on a desk, where each case begins with empty storage.
    pub fn of_desk() -> Self {
        Ids("c0ffee00-0000".into())
    }

    /// Returns the ids of a case on a cluster. `run` has eight hexadecimal digits, and differs for each call of the command.
    pub fn of_cluster(run: &str, case: usize) -> Self {
        Ids(format!("{run}-{:04x}", case + 1))
    }

    fn id(&self, last: &str) -> String {
        format!("{}-4000-8000-{last}", self.0)
    }

    /// Returns the id of the case's own volume.
    pub fn first(&self) -> String {
        self.id("000000000001")
    }

    /// Returns the id of a snapshot.
    pub fn snapshot(&self) -> String {
        self.id("00000000000e")
    }

    /// Returns one of many other ids.
    pub fn numbered(&self, n: u32) -> String {
        self.id(&format!("{:012}", 100 + n))
    }

    /// Returns the name of a batch.
    pub fn batch(&self) -> String {
        format!("provision-batch-{}", self.0)
    }
}

/// The storage that runs may have left.
#[derive(Clone, Debug, Default)]
pub struct Leftovers {
    volumes: BTreeMap<String, Claim>,
    snapshots: BTreeMap<String, Made>,
    names: BTreeSet<String>,
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
            Order::Delete(Made { claim, .. }) | Order::Undo { claim } => drop(self.volumes.remove(&claim.volume_id())),
            Order::DeleteSnapshot(_, id) => drop(self.snapshots.remove(id)),
            _ => {}
        }
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
    fn ids_of_cases_and_of_commands_differ_and_are_uuids() {
        let ids = |run, case| {
            let ids = Ids::of_cluster(run, case);
            [ids.first(), ids.snapshot(), ids.numbered(0), ids.numbered(7)]
        };
        let all: BTreeSet<String> =
            [ids("12345678", 0), ids("12345678", 1), ids("9abcdef0", 0)].into_iter().flatten().collect();
        assert_eq!(all.len(), 12);
        for id in all {
            let lengths: Vec<usize> = id.split('-').map(str::len).collect();
            assert_eq!(lengths, [8, 4, 4, 4, 12], "{id}");
        }
        assert_eq!(Ids::of_desk().first(), crate::setting::ID);
    }
}
