//! The snapshots of late runs that stay on purpose.

use std::collections::BTreeMap;

use flex_contract::names;
use serde_json::Value;

use super::snapshots;
use crate::store::{Change, Kind, Store, label, text, uid};
use crate::view::View;
use crate::world::{StorageKey, World};

/// Returns the snapshots of runs whose Jobs were created after the contents that they were for, with the policy Retain,
/// had gone. Nothing shows that nobody has had them, so the orchestrator keeps them and says so. A run for a claim has a
/// record, which shows that.
pub fn kept<'s>(store: &'s Store, world: &'s World) -> impl Iterator<Item = StorageKey> + use<'s> {
    let of_content = move |(id, _): &&StorageKey| {
        let owns = |content: &Value| snapshots::id(content) == id && text(content, "/spec/deletionPolicy") == "Retain";
        is_late(store, id, removed_at(store, Kind::Content, owns))
    };
    world.snapshots.keys().filter(of_content).cloned()
}

/// Returns the version of the store at which the last of these objects was removed.
fn removed_at(store: &Store, kind: Kind, owns: impl Fn(&Value) -> bool) -> Option<u64> {
    store.log(kind).iter().filter(|change| change.gone && owns(&change.object)).map(version).max()
}

/// Returns whether a Job of the id was created after its owner was removed.
fn is_late(store: &Store, id: &str, removed: Option<u64>) -> bool {
    let Some(removed) = removed else { return false };
    let is_of_id = |change: &Change| match change.view(Kind::Job) {
        Some(View::Job(job)) => job.members.iter().any(|member| member.id == id),
        _ => false,
    };
    let mut created: BTreeMap<&str, u64> = BTreeMap::new();
    for change in store.log(Kind::Job) {
        if label(&change.object, names::LABEL_VOLUME_ID) == id || is_of_id(change) {
            created.entry(uid(&change.object)).or_insert_with(|| version(change));
        }
    }
    created.values().any(|at| *at > removed)
}

fn version(change: &Change) -> u64 {
    text(&change.object, "/metadata/resourceVersion").parse().unwrap_or_default()
}
