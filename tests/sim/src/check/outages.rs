//! The pace of runs while the backend is down.

use std::collections::BTreeSet;

use flex_contract::names;
use flex_core::object::ObjectName;
use flex_core::run::outage::OBJECTS;

use super::{Guarantee, Violation};
use crate::store::{Kind, label};
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
    failed: BTreeSet<String>,
    /// The time since when there are enough of them, in milliseconds.
    since: Option<u64>,
    /// The Jobs that were created since then.
    begun: BTreeSet<ObjectName>,
}

impl Outage {
    /// Records that the run for a volume id has failed.
    pub fn fail(&mut self, id: &str, now: u64) {
        self.failed.insert(id.to_owned());
        if self.failed.len() >= OBJECTS {
            self.since.get_or_insert(now);
        }
    }
}

/// Checks a request before it is carried out: few runs begin after several objects have failed.
pub fn request(world: &mut World, request: &Request, now: u64) -> Option<Violation> {
    let Request { verb: Verb::Create, kind: Kind::Job, name, body, .. } = request else { return None };
    if !world.is_down || label(body, names::LABEL_OPERATION) != "provision" {
        return None;
    }
    let class = label(body, names::LABEL_CLASS);
    let Outage { since: Some(since), begun, .. } = world.outages.get_mut(class)? else { return None };
    begun.insert(name.clone());
    let most = MORE + now.saturating_sub(*since) / PAUSE;
    let what = || format!("the backend is down, and {} runs of class {class} have begun, not {most}", begun.len());
    (begun.len() as u64 > most).then(|| Violation { guarantee: Guarantee::Duplicate, what: what() })
}
