//! ReferenceGrants.

use std::collections::BTreeMap;

use flex_core::model::claim::Claim;
use flex_core::model::data_source::DataSource;
use flex_core::model::grant::Grant;
use flex_core::object::ObjectName;

/// All ReferenceGrants.
#[derive(Debug, Default)]
pub struct Grants(BTreeMap<ObjectName, Grant>);

impl Grants {
    /// Checks whether a claim may use its data source: it is in the same namespace, or a grant allows it.
    pub fn permit(&self, claim: &Claim) -> bool {
        let Some(source) = &claim.data_source else { return true };
        let own = |source: &DataSource| source.named().is_none_or(|named| named.namespace == claim.name.namespace);
        own(source) || self.0.values().any(|grant| grant.permits(&claim.name.namespace, source))
    }

    /// Returns the names of all grants.
    pub fn names(&self) -> impl Iterator<Item = &ObjectName> {
        self.0.keys()
    }

    /// Adds a grant, or its new state. Returns whether anything changed.
    pub fn apply(&mut self, grant: Grant) -> bool {
        self.0.insert(grant.name.clone(), grant.clone()) != Some(grant)
    }

    /// Removes a grant. Returns whether it existed.
    pub fn remove(&mut self, name: &ObjectName) -> bool {
        self.0.remove(name).is_some()
    }
}
