//! ServiceAccounts of the config namespaces. A config gets a warning if its account does not exist, and claims may wait
//! for the account.

use super::{Change, Index, WorkItem};
use crate::config::accounts::Account;

impl Index {
    /// Applies a change of a ServiceAccount.
    pub fn change_account(&mut self, change: Change<Account>) -> Vec<WorkItem> {
        let news = match change {
            Change::Apply(account) => self.accounts.add(account),
            Change::Delete(name) => self.accounts.remove(&name),
            // ServiceAccounts are watched in single namespaces only.
            Change::Retain(_) => false,
            Change::RetainIn(namespace, all) => self.accounts.retain(&namespace, |name| all.contains(name)),
        };
        if news { self.reclassify() } else { Vec::new() }
    }
}
