//! The pace of runs while the backend is down.

use std::collections::BTreeSet;

use flex_contract::names;
use flex_core::object::ObjectName;
use flex_core::run::outage::OBJECTS;

use super::{Guarantee, Violation};
use crate::records;
use crate::store::{Kind, Store, is_deleting, label};
use crate::wire::{Request, Verb};
use crate::world::World;

/// The runs that may begin beyond the pace: those that have their slots already, and one for each new leader.
const MORE: u64 = 16;
/// The shortest time between two runs, in milliseconds.
const PAUSE: u64 = 5000;

/// The provision runs of a class while the backend is down.
#[derive(Clone, Debug, Default)]
pub struct Outage {
    /// The volume ids whose runs have failed.
    pub failed: BTreeSet<String>,
    /// The time since when there are enough of them, in milliseconds.
    since: Option<u64>,
    /// The Jobs that were created since then.
    begun: BTreeSet<ObjectName>,
}

/// Checks a request before it is carried out: few runs begin after several objects have failed. Claims that are deleted do not
/// count, so fewer may be left than make an outage.
pub fn request(store: &Store, world: &mut World, request: &Request) -> Option<Violation> {
    let Request { verb: Verb::Create, kind: Kind::Job, name, body, .. } = request else { return None };
    if !world.is_down || label(body, names::LABEL_OPERATION) != "provision" {
        return None;
    }
    let class = label(body, names::LABEL_CLASS);
    let Outage { failed, since, begun } = world.outages.get_mut(class)?;
    failed.retain(|id| records::claim(store, id).is_some_and(|(_, claim)| !is_deleting(claim)));
    if failed.len() < OBJECTS {
        (*since, *begun) = (None, BTreeSet::new());
        return None;
    }
    let now = store.time.millis();
    begun.insert(name.clone());
    let most = MORE + now.saturating_sub(*since.get_or_insert(now)) / PAUSE;
    let what = || format!("the backend is down, and {} runs of class {class} have begun, not {most}", begun.len());
    (begun.len() as u64 > most).then(|| Violation { guarantee: Guarantee::Duplicate, what: what() })
}
