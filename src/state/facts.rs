//! The facts on which ledgers rest, and which no ledger can change.

use std::time::Duration;

use flex_contract::names;
use flex_core::config::classes::Identity;
use flex_core::model::claim::Claim;
use flex_core::object::ObjectName;

use crate::clock::Clock;
use crate::state::cache::Cache;
use crate::state::configs::Configs;

/// The names of this process, its time, the cached objects, and the classes that follow from them.
#[derive(Debug)]
pub struct Facts {
    /// The names of the orchestrator.
    pub identity: Identity,
    /// The clock.
    pub clock: Clock,
    /// The cached objects.
    pub cache: Cache,
    /// The configs and classes.
    pub configs: Configs,
}

impl Facts {
    /// Makes facts without any object.
    pub fn new(identity: Identity, clock: Clock) -> Self {
        Facts { identity, clock, cache: Cache::default(), configs: Configs::default() }
    }

    /// Returns the time that has passed since some moment.
    pub fn now(&self) -> Duration {
        self.clock.passed()
    }

    /// Checks whether a claim is a pool request.
    pub fn is_pool_request(&self, claim: &Claim) -> bool {
        claim.is_pool_request(&self.identity.namespace)
    }

    /// Checks whether a claim is a pool request by its name alone, because the claim may be gone.
    pub fn is_pool_request_name(&self, name: &ObjectName) -> bool {
        name.namespace == self.identity.namespace && name.name.starts_with(names::POOL_REQUEST_PREFIX)
    }

    /// Checks whether capacities are published, or must be.
    pub fn has_capacities(&self) -> bool {
        self.configs.has_capacity_class() || !self.cache.capacities.is_empty()
    }
}
