//! Looks for the external provisioners of the drivers that configs replace, by their Leases and Deployments.
//!
//! It does not watch them. The Leases of all nodes are renewed all the time, and a watch by name would begin again with
//! each config that names another driver.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::coordination::v1::Lease;
use kube::api::ListParams;
use kube::{Api, Client};

use super::pages;
use crate::clock::Clock;
use crate::config::external_provisioner::{
    self, ByDeployment, Drivers, ExternalProvisioner, ExternalProvisioners, LeaseCheck, LeaseWatch, Whereabouts,
    lease_name,
};
use crate::config::former_deployment;
use crate::object::ObjectName;
use crate::state::ClusterState;

/// The time between two lists of the Leases.
const LEASE_LIST_INTERVAL: Duration = Duration::from_secs(2);
/// The longest time for one list.
const LEASE_LIST_TIMEOUT: Duration = Duration::from_secs(10);

/// Lists the Leases again and again, until the process ends. If no config replaces a driver, it reads nothing. The first
/// lists follow the configs, and count for readiness: until then the classes of all these drivers seem to be others'.
pub async fn follow(client: Client, cluster: ClusterState, clock: Clock) {
    let mut watched: BTreeMap<String, LeaseWatch> = BTreeMap::new();
    let mut known: BTreeMap<String, LeaseCheck> = BTreeMap::new();
    let mut first = true;
    cluster.until_others_are_ready().await;
    loop {
        let drivers = cluster.index().replaced_drivers();
        watched.retain(|driver, _| drivers.contains_key(driver));
        known.retain(|driver, _| drivers.contains_key(driver));
        for (driver, Whereabouts { namespaces, deployments }) in drivers.clone() {
            let both = async {
                let leases = leases(&client, &driver).await?;
                Ok((leases, by_deployment(&client, &driver, &deployments).await?))
            };
            match clock.within(LEASE_LIST_TIMEOUT, both).await {
                Some(Ok((leases, by_deployment))) => {
                    let watch = watched.entry(driver.clone()).or_default();
                    let found = watch.check(&leases, &namespaces, clock.passed()).and(by_deployment);
                    if known.get(&driver) != Some(&found) {
                        let LeaseCheck { provisioner, elsewhere, missing } = &found;
                        tracing::info!(
                            driver,
                            ?provisioner,
                            ?elsewhere,
                            ?missing,
                            "the external provisioner of a driver"
                        );
                    }
                    known.insert(driver, found);
                }
                Some(Err(kube::Error::Api(status))) if status.code == 403 || !known.contains_key(&driver) => {
                    let why = match status.code {
                        403 => forbidden(&status.message),
                        _ => format!("the API server does not list its Leases or Deployments: {}", status.message),
                    };
                    known.insert(driver, ExternalProvisioner::Unknown(Some(why)).into());
                }
                // While the API server does not answer, it accepts no writes either.
                Some(Err(error)) => {
                    tracing::warn!(driver, %error, "the Lease of an external provisioner cannot be read")
                }
                None => tracing::warn!(driver, "the Lease of an external provisioner was not read in time"),
            }
        }
        cluster.update(|index| index.change_external_provisioners(ExternalProvisioners::new(known.clone())));
        if first && drivers.keys().all(|driver| known.contains_key(driver)) {
            first = false;
            cluster.source_ready();
        }
        clock.sleep(LEASE_LIST_INTERVAL).await;
    }
}

/// Lists the Leases once, for drivers by name.
pub async fn once(client: &Client, drivers: Drivers, clock: &Clock) -> ExternalProvisioners {
    let mut known = BTreeMap::new();
    for (driver, Whereabouts { namespaces, deployments }) in drivers {
        let both = async {
            let leases = leases(client, &driver).await?;
            kube::Result::Ok((leases, by_deployment(client, &driver, &deployments).await?))
        };
        let found = match both.await {
            Ok((leases, by_deployment)) => {
                external_provisioner::check_once(&leases, &namespaces, clock.now()).and(by_deployment)
            }
            Err::<_, kube::Error>(error) => ExternalProvisioner::Unknown(Some(error.to_string())).into(),
        };
        known.insert(driver, found);
    }
    ExternalProvisioners::new(known)
}

async fn leases(client: &Client, driver: &str) -> kube::Result<Vec<external_provisioner::Lease>> {
    let api: Api<Lease> = Api::all(client.clone());
    let named = ListParams::default().fields(&format!("metadata.name={}", lease_name(driver)));
    pages::all(&api, named, |lease| (&lease).into()).await
}

/// Returns whether a provisioner may be at work, by its Deployments.
async fn by_deployment(client: &Client, driver: &str, names: &BTreeSet<ObjectName>) -> kube::Result<ByDeployment> {
    let mut found = Vec::new();
    for name in names {
        let api: Api<Deployment> = Api::namespaced(client.clone(), &name.namespace);
        found.extend(api.get_opt(&name.name).await?.as_ref().map(former_deployment::Deployment::from));
    }
    Ok(external_provisioner::by_deployments(driver, names, &found))
}

fn forbidden(message: &str) -> String {
    format!("the provisioner may not read Leases or Deployments; apply the rights of this version: {message}")
}
