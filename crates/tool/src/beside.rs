//! Objects beside the configs, as far as an admin may read them.

use std::collections::BTreeMap;

use flex_contract::names;
use flex_core::config::accounts::{Account, Accounts};
use flex_core::config::classes::{ClassObject, Classes, Config, Identity};
use flex_core::config::external_provisioner::replaced_drivers;
use flex_core::config::{self, keys};
use flex_core::model::stored::Stored;
use flex_core::object::ObjectName;
use flex_provisioner::api::{external_provisioner, pages};
use flex_provisioner::clock::Clock;
use k8s_openapi::api::apps::v1::ControllerRevision;
use k8s_openapi::api::core::v1::{ConfigMap, ServiceAccount};
use k8s_openapi::api::storage::v1::StorageClass;
use kube::api::ListParams;
use kube::{Api, Client};

/// Returns the ServiceAccounts of the config namespaces, as far as they can be read.
pub(super) async fn accounts(client: &Client, identity: &Identity) -> Accounts {
    let mut accounts = Accounts::default();
    for namespace in &identity.config_namespaces {
        let api: Api<ServiceAccount> = Api::namespaced(client.clone(), namespace);
        let all = pages::all(&api, ListParams::default(), |account| Account::from(&account)).await;
        let Ok(all) = all else { continue };
        for account in all {
            accounts.add(account);
        }
        accounts.retain(namespace, |_| true);
    }
    accounts
}

/// Returns the classes and the verdicts on the configs, as the orchestrator sees them now.
///
/// # Errors
/// If configs, StorageClasses or revisions of configs cannot be read.
pub(super) async fn classes(client: &Client, identity: &Identity) -> anyhow::Result<Classes> {
    let configs = crate::collect::configs(client, identity).await?;
    let objects = Api::<StorageClass>::all(client.clone());
    let objects = pages::all(&objects, ListParams::default(), |class| ClassObject::from(&class)).await?;
    let ours = ListParams::default().labels(&format!("{}={}", names::LABEL_INSTANCE, identity.instance));
    let kept: Api<ControllerRevision> = Api::namespaced(client.clone(), &identity.namespace);
    let stored = pages::all(&kept, ours, flex_provisioner::api::watch::stored).await?.into_iter().flatten();
    let recipe = |stored| if let Stored::Recipe(hash, revision) = stored { Some((hash, revision)) } else { None };
    let revisions: BTreeMap<_, _> = stored.filter_map(recipe).collect();
    let drivers = replaced_drivers(identity, &configs);
    let external_provisioners = external_provisioner::once(client, drivers, &Clock::default()).await;
    let mut classes = config::classes::classes(identity, &configs, &objects, &revisions, &external_provisioners);
    classes.warn_of_accounts(configs.iter(), &accounts(client, identity).await);
    Ok(classes)
}

/// Returns configs for this orchestrator in namespaces where it does not look. The orchestrator never sees them, so
/// that only a command can tell the admin. Returns none if not all namespaces can be read.
pub(super) async fn unseen_configs(client: &Client, identity: &Identity) -> Vec<ObjectName> {
    let marked = ListParams::default().labels(&format!("{}={}", names::LABEL_TYPE, names::LABEL_TYPE_CONFIG));
    let all = pages::all(&Api::<ConfigMap>::all(client.clone()), marked, |config| Config::from(&config)).await;
    all.map(|all| unseen(identity, all.into_iter())).unwrap_or_default()
}

/// Selects the configs with the orchestrator's plugin name. Without it a config may belong to another orchestrator.
fn unseen(identity: &Identity, configs: impl Iterator<Item = Config>) -> Vec<ObjectName> {
    let is_meant =
        |config: &Config| config.data.get(keys::PLUGIN_NAME.name).is_some_and(|name| identity.is_plugin(name.trim()));
    let elsewhere = configs.filter(|config| !identity.config_namespaces.contains(&config.name.namespace));
    elsewhere.filter(is_meant).map(|config| config.name).collect()
}

#[cfg(test)]
mod tests {
    use flex_provisioner::state::testing::default_identity;

    use super::*;

    #[test]
    fn configs_outside_the_config_namespaces_are_found() {
        let config = |namespace: &str, plugin: &str| Config {
            name: ObjectName::new(namespace, "nfs"),
            data: [("plugin-name".to_owned(), plugin.to_owned())].into(),
            ..Config::default()
        };
        let plugin = names::DEFAULT_PLUGIN;
        let all = [config("admin", plugin), config("team", plugin), config("team", "example.com/other")];
        assert_eq!(unseen(&default_identity(), all.into_iter()), [ObjectName::new("team", "nfs")]);
        let by_provisioner = config("team", names::DEFAULT_PROVISIONER);
        assert_eq!(unseen(&default_identity(), [by_provisioner].into_iter()).len(), 1);
        let without = Config { name: ObjectName::new("team", "nfs"), ..Config::default() };
        assert!(unseen(&default_identity(), [without].into_iter()).is_empty());
    }
}
