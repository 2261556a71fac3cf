//! The place where the runs of cases happen: a desk, or a cluster.

use std::cell::RefCell;

use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::PersistentVolume;

use super::leftovers::Leftovers;
use super::mounts::Mounts;
use super::on_desk::OnDesk;
use super::patience::Repeats;
use super::pending::Pending;
use crate::desk::{Ended, Stop};
use crate::order::Order;
use crate::setting::Setting;

/// A place where runs happen.
pub trait Place {
    /// Returns the address of the API server, as runs get it.
    fn kube_api(&self) -> String;

    /// Returns the number of the next attempt of an order, at least `attempt`. It rises with each run for the same volume,
    /// also with one that repeats a success.
    fn attempt(&self, order: &Order, attempt: u32) -> u32;

    /// Runs a Job to its end, or until something stops it.
    fn run<'a, 's: 'a>(&'a self, setting: &'a Setting, job: Job, stop: Stop<'s>) -> Pending<'a, Ended>;

    /// Returns the notes about storage that runs may have left.
    fn leftovers(&self) -> &RefCell<Leftovers>;

    /// Returns the notes about runs that were repeated.
    fn repeats(&self) -> &Repeats;

    /// Notes that a run of an order begins.
    fn begins(&self, order: &Order) {
        self.leftovers().borrow_mut().begins(order);
    }

    /// Notes that a run of an order has exited 0.
    fn succeeded(&self, order: &Order) {
        self.leftovers().borrow_mut().succeeded(order);
    }

    /// Returns the PersistentVolume with this name.
    fn volume<'a>(&'a self, name: &'a str) -> Pending<'a, Option<PersistentVolume>>;

    /// Removes the PersistentVolume with this name.
    fn forget<'a>(&'a self, name: &'a str) -> Pending<'a, ()>;

    /// Removes the storage of all runs.
    fn clear(&self) -> Pending<'_, ()>;

    /// Returns the desk, if the place is one.
    fn desk(&self) -> Option<&OnDesk>;

    /// Returns the pods that mount volumes, if the place has such pods.
    fn mounts(&self) -> Option<&dyn Mounts>;
}

/// The ids of the volumes and snapshots of a case.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ids {
    first_digits: String,
    snapshot: u64,
}

impl Ids {
    /// Returns the ids on a desk where each case begins with empty storage.
    pub fn of_desk() -> Self {
        Ids { first_digits: "c0ffee00-0000".into(), snapshot: 0xe }
    }

    /// Takes another id for the snapshot. A cluster uses the id of a deleted snapshot never again, and an image may know
    /// that the snapshot of an earlier call was deleted.
    #[must_use]
    pub fn with_snapshot(self, number: u64) -> Self {
        Ids { snapshot: number & 0xffff_ffff_ffff, ..self }
    }

    /// Returns the ids of a case on storage that it shares with others. `call` has eight hexadecimal digits, and differs for
    /// each call of the command.
    pub fn of_call(call: &str, case: usize) -> Self {
        Ids { first_digits: format!("{call}-{:04x}", case + 1), snapshot: 0xe }
    }

    /// Returns the beginning of all of these ids.
    pub fn prefix(&self) -> &str {
        &self.first_digits
    }

    fn id(&self, last: &str) -> String {
        format!("{}-4000-8000-{last}", self.first_digits)
    }

    /// Returns the id of the case's own volume.
    pub fn first(&self) -> String {
        self.id("000000000001")
    }

    /// Returns the id of a snapshot.
    pub fn snapshot(&self) -> String {
        self.id(&format!("{:012x}", self.snapshot))
    }

    /// Returns one of many other ids.
    pub fn numbered(&self, n: u32) -> String {
        self.id(&format!("{:012}", 100 + n))
    }

    /// Returns the name of a batch.
    pub fn batch(&self) -> String {
        format!("provision-batch-{}", self.first_digits)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn ids_of_cases_and_of_commands_differ_and_are_uuids() {
        let ids = |call, case| {
            let ids = Ids::of_call(call, case);
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
        let [one, other] = [1, u64::MAX].map(|number| Ids::of_desk().with_snapshot(number).snapshot());
        assert!(one != other && one.len() == crate::setting::ID.len() && other.len() == one.len(), "{one} {other}");
    }
}
