//! The images' work on snapshots, and the snapshot-controller.

use flex_contract::names;
use flex_contract::operation::Operation;
use flex_contract::request::RunRequest;
use flex_core::object::ObjectName;
use serde_json::json;

use super::image::{Act, Process};
use super::{StorageKey, World};
use crate::rng::Rng;
use crate::store::{Kind, Store, is_deleting, text, uid};
use crate::trace::count;

/// Returns the id of the snapshot that a run makes or deletes.
pub(super) fn stored_as(request: &RunRequest) -> Option<&str> {
    let of_snapshot = matches!(request.operation, Operation::Snapshot | Operation::DeleteSnapshot);
    request.snapshot.as_ref().filter(|_| of_snapshot).map(|snapshot| snapshot.id.as_str())
}

/// Returns whether the run's claim has a data source that its request does not name.
pub(super) fn is_empty(store: &Store, request: &RunRequest) -> bool {
    let mut claims = store.all(Kind::Claim);
    let claim = claims.find(|(_, claim)| request.operation == Operation::Provision && uid(claim) == request.claim.uid);
    claim.is_some_and(|(_, claim)| match text(claim, "/spec/dataSource/kind") {
        "VolumeSnapshot" => request.snapshot.is_none(),
        "PersistentVolumeClaim" => request.clone_of.is_none(),
        _ => false,
    })
}

/// Returns the acts of a run; with an exit code it fails.
pub(super) fn acts(operation: Operation, bad: Option<i32>, rng: &mut Rng) -> Vec<Act> {
    let stores = |whole| Act::Store { whole };
    match (operation, bad) {
        (Operation::Snapshot, None) => vec![stores(false), Act::Read, Act::Read, stores(true), Act::Exit(0)],
        (Operation::Snapshot, Some(code)) => match rng.below(4) {
            0 => vec![Act::Exit(code)],
            1 => vec![stores(false), Act::Read, Act::Exit(code)],
            2 => vec![stores(false), Act::Read, stores(true), Act::Exit(1)],
            _ => vec![stores(false), Act::Hang],
        },
        (_, None) => vec![Act::Discard, Act::Exit(0)],
        (_, Some(code)) => match rng.below(3) {
            0 => vec![Act::Exit(code)],
            1 => vec![Act::Discard, Act::Exit(1)],
            _ => vec![Act::Hang],
        },
    }
}

impl World {
    /// Lists all storage, of volumes and of snapshots.
    pub fn storage_keys(&self) -> impl Iterator<Item = &StorageKey> {
        self.backend.iter().chain(self.snapshots.keys())
    }

    /// Checks that the source of a clone or a snapshot exists, is complete, and is on the process's node.
    pub(super) fn read(&mut self, process: &Process) {
        let Process { request, storage_key, .. } = process;
        let on = |node: &str| if storage_key.1.is_empty() { String::new() } else { node.to_owned() };
        let (from, there) = match (&request.clone_of, &request.snapshot) {
            (Some(source), _) => {
                let from = (source.id.clone(), on(&source.node));
                let there = self.backend.contains(&from);
                (from, there)
            }
            (None, Some(snapshot)) if request.operation == Operation::Provision => {
                count("reads of a snapshot");
                let from = (snapshot.id.clone(), on(&snapshot.node));
                let there = self.snapshots.get(&from) == Some(&true);
                (from, there)
            }
            _ => {
                let from = (request.volume_id.clone(), on(&request.node_name));
                let there = self.backend.contains(&from);
                (from, there)
            }
        };
        if !there || from.1 != storage_key.1 {
            self.wrong.push(format!("{storage_key:?} is made as a copy of {from:?}, which does not exist"));
        }
    }
}

/// Refuses a snapshot of a volume that is not CSI, as the snapshot-controller does unless it finds a content.
pub(super) fn refuse(store: &mut Store, name: &ObjectName) -> bool {
    const MESSAGE: &str = "cannot find CSI PersistentVolumeSource for volume";
    let Some(snapshot) = store.get(Kind::Snapshot, name).cloned() else { return false };
    let of_claim = !text(&snapshot, "/spec/source/persistentVolumeClaimName").is_empty();
    let bound = store.get(Kind::Content, &ObjectName::new("", names::content_name(uid(&snapshot)))).is_some();
    if of_claim && !bound && !is_deleting(&snapshot) && text(&snapshot, "/status/error/message") != MESSAGE {
        count("errors of the snapshot-controller");
        store.update(Kind::Snapshot, name, |snapshot| {
            snapshot["status"]["readyToUse"] = json!(false);
            snapshot["status"]["error"] = json!({ "message": MESSAGE });
        });
    }
    false
}
