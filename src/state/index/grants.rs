//! ReferenceGrants, and who waits for one.

use super::{Change, Index, Key, within};
use crate::claim::Claim;
use crate::claim::grant::Grant;
use crate::claim::origin::DataSource;

impl Index {
    /// A claim may be filled from its data source: it is in its own namespace, or a grant says so.
    pub fn is_granted(&self, claim: &Claim) -> bool {
        let Some(source) = &claim.data_source else { return true };
        let own = |source: &DataSource| source.named().is_none_or(|named| named.namespace == claim.name.namespace);
        own(source) || self.grants.values().any(|grant| grant.permits(&claim.name.namespace, source))
    }

    /// A ReferenceGrant changed: claims that are to be filled from what is in its namespace may have waited for it.
    pub fn change_grant(&mut self, change: Change<Grant>) -> Vec<Key> {
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

    /// Claims of other namespaces that wait to be filled from what is in this one.
    fn copies_from(&self, namespace: &str) -> Vec<Key> {
        let mut sources: Vec<_> = self.copies.keys().filter(|source| source.namespace == namespace).collect();
        sources.sort();
        sources.into_iter().flat_map(|source| self.copy_keys(source)).collect()
    }
}
