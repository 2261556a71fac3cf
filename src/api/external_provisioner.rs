//! Looks for the external provisioners of the drivers that configs replace, by their Leases and Deployments.
//!
//! It does not watch them. The Leases of all nodes are renewed all the time, and a watch by name would begin again with
//! each config that names another driver.

use std::collections::BTreeMap;
use std::time::Duration;

use flex_core::config::external_provisioner::{
    self, Drivers, ExternalProvisioner, ExternalProvisioners, LeaseCheck, LeaseWatch, Whereabouts, by_deployments,
    lease_name,
};
use flex_core::config::former_deployment;
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::authorization::v1::ResourceAttributes;
use k8s_openapi::api::coordination::v1::Lease;
use kube::api::ListParams;
use kube::{Api, Client};

use super::pages;
use super::reviews::has_right;
use super::says;
use crate::clock::Clock;
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
        for (driver, whereabouts) in drivers.clone() {
            let both = async { Ok((leases(&client, &driver).await?, deployments(&client, &whereabouts).await?)) };
            match clock.within(LEASE_LIST_TIMEOUT, both).await {
                Some(Ok((leases, deployments))) => {
                    let watch = watched.entry(driver.clone()).or_default();
                    let found = watch.check(&leases, &whereabouts.of_leases(&deployments), clock.passed());
                    let found = found.and(by_deployments(&driver, &whereabouts.deployments, &deployments));
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
    for (driver, whereabouts) in drivers {
        let both = async { Ok((leases(client, &driver).await?, deployments(client, &whereabouts).await?)) };
        let found = match both.await {
            Ok((leases, deployments)) => {
                external_provisioner::check_once(&leases, &whereabouts.of_leases(&deployments), clock.now())
                    .and(by_deployments(&driver, &whereabouts.deployments, &deployments))
            }
            Err::<_, kube::Error>(error) => ExternalProvisioner::Unknown(Some(says::error(&error))).into(),
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

/// Returns the Deployments of a provisioner that exist and count: those whose account may create PersistentVolumes. If the
/// caller may not ask for that, each counts.
async fn deployments(client: &Client, whereabouts: &Whereabouts) -> kube::Result<Vec<former_deployment::Deployment>> {
    let mut found = Vec::new();
    for name in &whereabouts.deployments {
        let api: Api<Deployment> = Api::namespaced(client.clone(), &name.namespace);
        let Some(deployment) = api.get_opt(&name.name).await? else { continue };
        let deployment = former_deployment::Deployment::from(&deployment);
        let create = ResourceAttributes {
            group: Some(String::new()),
            resource: Some("persistentvolumes".into()),
            verb: Some("create".into()),
            ..ResourceAttributes::default()
        };
        match has_right(client, &deployment.account, create).await {
            Ok(true) => found.push(deployment),
            Ok(false) => {}
            Err(kube::Error::Api(status)) if status.code == 403 => found.push(deployment),
            Err(error) => return Err(error),
        }
    }
    Ok(found)
}

fn forbidden(message: &str) -> String {
    format!("the provisioner may not read Leases or Deployments; apply the rights of this version: {message}")
}
