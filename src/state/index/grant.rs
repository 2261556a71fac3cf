//! ReferenceGrants, and the claims that wait for them.

use super::{Change, Index, WorkItem, within};
use crate::model::claim::Claim;
use crate::model::data_source::DataSource;
use crate::model::grant::Grant;

impl Index {
    /// Checks whether a claim may use its data source: it is in the same namespace, or a grant allows it.
    pub fn is_granted(&self, claim: &Claim) -> bool {
        let Some(source) = &claim.data_source else { return true };
        let own = |source: &DataSource| source.named().is_none_or(|named| named.namespace == claim.name.namespace);
        own(source) || self.grants.values().any(|grant| grant.permits(&claim.name.namespace, source))
    }

    /// Applies a change of a ReferenceGrant. Claims whose data source is in its namespace may have waited for it.
    pub fn change_grant(&mut self, change: Change<Grant>) -> Vec<WorkItem> {
        match change {
            Change::Apply(grant) => {
                let (name, new) = (grant.name.clone(), grant.clone());
                match self.grants.insert(name, grant).as_ref() == Some(&new) {
                    true => Vec::new(),
                    false => self.copies_from(&new.name.namespace),
                }
            }
            Change::Delete(name) => match self.grants.remove(&name) {
                Some(_) => self.copies_from(&name.namespace),
                None => Vec::new(),
            },
            Change::Retain(all) => {
                self.retain(all, |index| index.grants.keys().cloned().collect(), Index::change_grant)
            }
            Change::RetainIn(namespace, all) => {
                self.retain(all, |index| within(index.grants.keys(), &namespace), Index::change_grant)
            }
        }
    }

    /// Returns the claims of other namespaces that wait for a data source in this namespace.
    fn copies_from(&self, namespace: &str) -> Vec<WorkItem> {
        let mut sources: Vec<_> = self.copies.keys().filter(|source| source.namespace == namespace).collect();
        sources.sort();
        sources.into_iter().flat_map(|source| self.copy_keys(source)).collect()
    }
}
