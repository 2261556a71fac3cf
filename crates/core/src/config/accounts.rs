//! ServiceAccounts in the namespaces of configs. Kubernetes makes no pod for a config whose account does not exist.

use std::collections::BTreeSet;

use k8s_openapi::api::core::v1::ServiceAccount;

use super::Problem;
use super::input::Config;
use super::keys::SERVICE_ACCOUNT_NAME;
use crate::object::ObjectName;

/// The name of a ServiceAccount.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Account(pub ObjectName);

impl From<&ServiceAccount> for Account {
    fn from(account: &ServiceAccount) -> Self {
        Account(ObjectName::of(&account.metadata))
    }
}

/// The accounts that are known to exist.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Accounts {
    there: BTreeSet<ObjectName>,
    /// The namespaces whose accounts are all known.
    whole: BTreeSet<String>,
}

impl Accounts {
    /// Adds an account. Returns whether this is a change.
    pub fn add(&mut self, account: Account) -> bool {
        self.there.insert(account.0)
    }

    /// Removes an account. Returns whether this is a change.
    pub fn remove(&mut self, account: &ObjectName) -> bool {
        self.there.remove(account)
    }

    /// Replaces the accounts of a namespace by those of a list. Returns whether this is a change. Each namespace has
    /// the account `default`: an empty list means that the orchestrator may not read the accounts, so that they count
    /// as unknown.
    pub fn retain(&mut self, namespace: &str, all: impl Fn(&ObjectName) -> bool) -> bool {
        let before = self.clone();
        self.there.retain(|account| account.namespace != namespace || all(account));
        match self.there.iter().any(|account| account.namespace == namespace) {
            true => self.whole.insert(namespace.to_owned()),
            false => self.whole.remove(namespace),
        };
        *self != before
    }

    /// Returns the warning about a config whose account does not exist.
    pub fn missing(&self, config: &Config) -> Option<Problem> {
        let named =
            config.data.get(SERVICE_ACCOUNT_NAME.name).map(|name| name.trim()).filter(|name| !name.is_empty())?;
        let namespace = &config.name.namespace;
        if !self.whole.contains(namespace) || self.there.contains(&ObjectName::new(namespace, named)) {
            return None;
        }
        let message = format!(
            "there is no ServiceAccount {named} in the namespace {namespace}, and no run starts without it: kubectl -n {namespace} create serviceaccount {named}, and let it create volumes: kubectl create clusterrolebinding flex-provisioner-image-{namespace}-{named} --clusterrole=flex-provisioner-image --serviceaccount={namespace}:{named}"
        );
        Some(Problem::new(SERVICE_ACCOUNT_NAME.name, message))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(name: &str) -> ObjectName {
        ObjectName::new("admin", name)
    }

    #[test]
    fn an_account_is_missing_only_where_all_accounts_are_known() {
        let named = |account: &str| Config {
            name: name("c"),
            data: [(SERVICE_ACCOUNT_NAME.name.to_owned(), account.to_owned())].into(),
            ..Config::default()
        };
        let mut accounts = Accounts::default();
        assert_eq!(accounts.missing(&named("maker")), None, "no account was listed yet");
        assert!(!accounts.retain("admin", |_| true), "an empty list means that the right is missing");
        assert_eq!(accounts.missing(&named("maker")), None);
        assert!(accounts.add(Account(name("default"))) && accounts.retain("admin", |_| true));
        let message = accounts.missing(&named(" maker\n")).unwrap().to_string();
        assert!(
            message.starts_with("service-account-name: there is no ServiceAccount maker in the namespace admin"),
            "{message}"
        );
        assert!(
            message.contains("create serviceaccount maker,") && message.contains("--serviceaccount=admin:maker"),
            "{message}"
        );
        assert_eq!(
            accounts.missing(&Config { name: ObjectName::new("team", "c"), ..named("maker") }),
            None,
            "elsewhere"
        );
        for without in [named(""), Config::default()] {
            assert_eq!(accounts.missing(&without), None);
        }
        assert!(accounts.add(Account(name("maker"))) && !accounts.add(Account(name("maker"))));
        assert_eq!(accounts.missing(&named("maker")), None);
        assert!(accounts.remove(&name("maker")) && accounts.missing(&named("maker")).is_some());
        assert!(accounts.retain("admin", |_| false), "without the right no account is known");
        assert_eq!(accounts.missing(&named("maker")), None);
    }
}
