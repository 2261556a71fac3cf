//! What is beside the configs, as an admin may see it.

use k8s_openapi::api::core::v1::ServiceAccount;
use kube::api::ListParams;
use kube::{Api, Client};

use crate::config::accounts::{Account, Accounts};
use crate::config::classes::Identity;

/// The ServiceAccounts of the config namespaces, where they may be read.
pub(super) async fn accounts(client: &Client, identity: &Identity) -> Accounts {
    let mut accounts = Accounts::default();
    for namespace in &identity.config_namespaces {
        let api: Api<ServiceAccount> = Api::namespaced(client.clone(), namespace);
        let Ok(all) = api.list(&ListParams::default()).await else { continue };
        for account in all.items.iter().map(Account::from) {
            accounts.add(account);
        }
        accounts.retain(namespace, |_| true);
    }
    accounts
}
