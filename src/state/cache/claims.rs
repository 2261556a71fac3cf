//! Claims, and the copies that are made of them.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use flex_core::model::claim::Claim;
use flex_core::model::data_source::DataSource;
use flex_core::object::ObjectName;

use crate::state::compact::CompactMap;
use crate::state::id::Id;
use crate::state::watch_change::{Changed, drop_from};

/// All claims.
#[derive(Debug, Default)]
pub struct ClaimCache {
    by_name: CompactMap<Claim>,
    by_id: HashMap<Id, Arc<ObjectName>>,
    /// The claims whose data source is the claim or VolumeSnapshot of this name.
    copies: HashMap<ObjectName, BTreeSet<ObjectName>>,
}

impl ClaimCache {
    /// Returns a claim by its name.
    pub fn get(&self, name: &ObjectName) -> Option<Arc<Claim>> {
        self.by_name.get(name)
    }

    /// Returns the name of a claim by its UID, which is the volume id of its runs.
    pub fn name_of(&self, id: &str) -> Option<&ObjectName> {
        self.by_id.get(&Id::from(id)).map(AsRef::as_ref)
    }

    /// Returns a claim by its UID, which is the volume id of its runs.
    pub fn by_id(&self, id: &str) -> Option<Arc<Claim>> {
        self.get(self.name_of(id)?)
    }

    /// Returns all claims.
    pub fn all(&self) -> impl Iterator<Item = Arc<Claim>> + Clone {
        self.by_name.values()
    }

    /// Returns all claims that are not settled, and perhaps others. Each claim that is unbound, terminating or held by
    /// the finalizer is among them.
    pub fn unsettled(&self) -> impl Iterator<Item = &Arc<Claim>> + Clone {
        self.by_name.whole()
    }

    /// Returns the names of all other claims, without copies of their texts.
    pub fn settled_names(&self) -> Vec<Arc<ObjectName>> {
        self.by_name.settled_keys().cloned().collect()
    }

    /// Returns the names of all claims.
    pub fn names(&self) -> impl Iterator<Item = &ObjectName> {
        self.by_name.keys().map(AsRef::as_ref)
    }

    /// Returns the names of all claims, without copies of their texts.
    pub fn shared_names(&self) -> Vec<Arc<ObjectName>> {
        self.by_name.keys().cloned().collect()
    }

    /// Returns the unbound claims whose data source is the claim or VolumeSnapshot of this name.
    pub fn unbound_copies_of(&self, source: &ObjectName) -> impl Iterator<Item = &ObjectName> {
        let copies = self.copies.get(source).into_iter().flatten();
        copies.filter(|copy| self.get(copy).is_some_and(|copy| !copy.is_bound()))
    }

    /// Returns the data sources in a namespace that claims name, in their order.
    pub fn sources_in(&self, namespace: &str) -> Vec<&ObjectName> {
        let mut sources: Vec<_> = self.copies.keys().filter(|source| source.namespace == namespace).collect();
        sources.sort();
        sources
    }

    /// Adds a claim, or its new state.
    pub fn apply(&mut self, claim: Claim) -> Changed<Claim> {
        let claim = Arc::new(claim);
        let (name, before) = self.by_name.insert(Arc::new(claim.name.clone()), &claim);
        if let Some(before) = &before {
            self.forget(before);
        }
        self.by_id.insert(Id::from(claim.uid.as_str()), name);
        if let Some(source) = claim.data_source.as_ref().and_then(DataSource::named) {
            self.copies.entry(source.clone()).or_default().insert(claim.name.clone());
        }
        Changed { before, now: Some(claim) }
    }

    /// Removes a claim.
    pub fn remove(&mut self, name: &ObjectName) -> Option<Changed<Claim>> {
        let claim = self.by_name.remove(name)?;
        self.forget(&claim);
        Some(Changed::gone(claim))
    }

    fn forget(&mut self, claim: &Claim) {
        self.by_id.remove(&Id::from(claim.uid.as_str()));
        if let Some(source) = claim.data_source.as_ref().and_then(DataSource::named) {
            drop_from(&mut self.copies, source, &claim.name);
        }
    }
}
