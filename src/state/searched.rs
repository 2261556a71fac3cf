//! The claims and volumes of an index, as the search for findings asks for them.

use std::sync::Arc;

use flex_core::findings::ClaimsAndVolumes;
use flex_core::model::claim::Claim;
use flex_core::model::volume::Volume;
use flex_core::object::ObjectName;

use super::ClusterState;
use super::index::Index;

impl ClaimsAndVolumes for Index {
    fn claims(&self) -> Box<dyn Iterator<Item = Arc<Claim>> + '_> {
        Box::new(Index::claims(self))
    }

    fn volumes(&self) -> Box<dyn Iterator<Item = Arc<Volume>> + '_> {
        Box::new(Index::volumes(self))
    }

    fn claim(&self, name: &ObjectName) -> Option<Arc<Claim>> {
        Index::claim(self, name)
    }

    fn claim_by_id(&self, id: &str) -> Option<Arc<Claim>> {
        Index::claim_by_id(self, id)
    }

    fn volume(&self, name: &str) -> Option<Arc<Volume>> {
        Index::volume(self, name)
    }
}

/// Locks the index for one object at a time, so that watches and workers continue during a search. The objects may change
/// meanwhile: a finding counts when the next search confirms it.
impl ClaimsAndVolumes for ClusterState {
    fn claims(&self) -> Box<dyn Iterator<Item = Arc<Claim>> + '_> {
        let names = self.index().claim_names();
        Box::new(names.into_iter().filter_map(|name| self.index().claim(&name)))
    }

    fn volumes(&self) -> Box<dyn Iterator<Item = Arc<Volume>> + '_> {
        let names = self.index().volume_names();
        Box::new(names.into_iter().filter_map(|name| self.index().volume(&name)))
    }

    fn claim(&self, name: &ObjectName) -> Option<Arc<Claim>> {
        self.index().claim(name)
    }

    fn claim_by_id(&self, id: &str) -> Option<Arc<Claim>> {
        self.index().claim_by_id(id)
    }

    fn volume(&self, name: &str) -> Option<Arc<Volume>> {
        self.index().volume(name)
    }
}
