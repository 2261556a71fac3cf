//! ServiceAccounts of the config namespaces: a config is told when the one that it names is not there. Claims may wait for it.

use super::{Change, Index, Key};
use crate::config::accounts::Account;

impl Index {
    /// A ServiceAccount changed.
    pub fn change_account(&mut self, change: Change<Account>) -> Vec<Key> {
        let news = match change {
            Change::Apply(account) => self.accounts.add(account),
            Change::Delete(name) => self.accounts.remove(&name),
            // They are looked at in namespaces alone.
            Change::Retain(_) => false,
            Change::RetainIn(namespace, all) => self.accounts.retain(&namespace, |name| all.contains(name)),
        };
        if news { self.reclassify() } else { Vec::new() }
    }
}
