//! The external provisioners of the CSI drivers that configs replace, and whether they run.
//!
//! While an external provisioner runs, the orchestrator serves no class of its driver, because both would provision
//! each claim. With `--leader-election` it holds a Lease with a name derived from the driver, in its own namespace.
//! Everybody may create a Lease in a namespace of their own. So a Lease counts only in a namespace that an admin names,
//! or where only admins write.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use super::Problem;
use super::former_deployment::{self, Deployment};
use super::identity::Identity;
use super::input::Config;
use super::keys;
use super::problem::ConfigProblem;
use super::values::list;
use crate::object::{ObjectName, is_provisioner_name};
use crate::text::line;

/// The namespace of external provisioners in most clusters. No tenant writes there.
const USUAL_NAMESPACE: &str = "kube-system";

/// Returns the namespaces whose Leases count for a config with this data. These are the namespaces that the config
/// names, else its own and that of Kubernetes.
pub fn namespaces(own: &str, data: &BTreeMap<String, String>) -> BTreeSet<String> {
    let named = data
        .get(keys::REPLACES_PROVISIONER_NAMESPACE.name)
        .and_then(|text| list(text).ok())
        .filter(|names| !names.is_empty());
    named.unwrap_or_else(|| vec![own.to_owned(), USUAL_NAMESPACE.to_owned()]).into_iter().collect()
}

/// The term of a Lease that states none.
const LEASE_TERM: Duration = Duration::from_secs(15);
/// The longest term that is believed. A Lease of a program that is gone must not block forever.
const LONGEST_LEASE_TERM: Duration = Duration::from_secs(15 * 60);

/// The state of a driver's external provisioner.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ExternalProvisioner {
    /// The state is unknown, with the reason. Without a reason, nobody has listed the Leases yet.
    Unknown(Option<String>),
    /// Nobody renews the Lease.
    Gone,
    /// The external provisioner is running, or was a moment ago.
    Live {
        /// The Lease of the external provisioner.
        lease: ObjectName,
        /// The holder of the Lease.
        holder: String,
    },
    /// The Deployment of a provisioner that is no CSI driver has replicas, or wants some.
    Deployed {
        /// The Deployment.
        deployment: ObjectName,
        /// The number of replicas that it asks for.
        wanted: i32,
        /// The number of replicas that exist.
        present: i32,
    },
}

impl ExternalProvisioner {
    /// Returns the reason why classes of the driver are not served, for the config's verdict. Returns `None` while
    /// nobody has listed the Leases yet.
    pub fn blocking_reason(&self, driver: &str, classes: &[&String]) -> Option<String> {
        let classes = classes.iter().map(|class| class.as_str()).collect::<Vec<_>>().join(", ");
        let classes = if classes.is_empty() { "all" } else { &classes };
        match self {
            ExternalProvisioner::Gone | ExternalProvisioner::Unknown(None) => None,
            ExternalProvisioner::Unknown(Some(why)) => Some(format!(
                "this provisioner does not serve the StorageClasses of {driver} ({classes}), because it does not know whether the external provisioner is at work: {why}"
            )),
            ExternalProvisioner::Live { lease, holder } => Some(format!(
                "this provisioner leaves the StorageClasses of {driver} ({classes}) to the external provisioner, which is at work: {holder} holds the Lease {lease}; it serves them once nobody renews the Lease"
            )),
            ExternalProvisioner::Deployed { deployment: ObjectName { namespace, name }, wanted, present } => {
                Some(format!(
                    "this provisioner leaves the StorageClasses of {driver} ({classes}) to the Deployment {namespace}/{name}, which has {present} replicas and asks for {wanted}; it serves them once there is none: `kubectl -n {namespace} scale deployment {name} --replicas=0`"
                ))
            }
        }
    }
}

/// Returns the drivers that the configs replace, each with all namespaces in which its external provisioner may run.
pub fn replaced_drivers<'a>(identity: &Identity, configs: impl IntoIterator<Item = &'a Config>) -> Drivers {
    let mut drivers = Drivers::new();
    for config in configs.into_iter().filter(|config| config.is_for(identity)) {
        // The verdict on the config refuses other names, which the API server would refuse too.
        let Some(driver) = config.replaces().filter(|driver| is_provisioner_name(driver)) else { continue };
        drivers.entry(driver.to_owned()).or_default().add(driver, &config.name.namespace, &config.data);
    }
    drivers
}

/// Returns where a provisioner may run, for a command. A config that replaces it says more.
pub fn drivers_of(provisioner: &str, config: Option<&Config>) -> Drivers {
    let mut whereabouts = Whereabouts::default();
    let replacing = config.filter(|config| config.replaces() == Some(provisioner));
    match replacing {
        Some(config) => whereabouts.add(provisioner, &config.name.namespace, &config.data),
        None => whereabouts.add(provisioner, USUAL_NAMESPACE, &BTreeMap::new()),
    }
    [(provisioner.to_owned(), whereabouts)].into()
}

/// The word of a provisioner's Deployments on whether it is at work.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ByDeployment {
    /// The provisioner may be at work.
    Blocking(ExternalProvisioner),
    /// A Deployment exists, and none has or wants a replica. The same holds for CSI drivers without a Deployment.
    Stopped,
    /// None of these Deployments exists.
    Missing(BTreeSet<ObjectName>),
}

/// Returns whether a provisioner may be at work, by its Deployments that count.
pub fn by_deployments(provisioner: &str, named: &BTreeSet<ObjectName>, found: &[Deployment]) -> ByDeployment {
    if named.is_empty() {
        let key = keys::REPLACES_DEPLOYMENT.name;
        let why = format!("write its Deployment into the provisioner config, `{key}: NAMESPACE/NAME`");
        return match former_deployment::is_no_driver(provisioner) {
            true => ByDeployment::Blocking(ExternalProvisioner::Unknown(Some(why))),
            false => ByDeployment::Stopped,
        };
    }
    match found.iter().find(|deployment| deployment.wanted > 0 || deployment.present > 0) {
        Some(live) => ByDeployment::Blocking(ExternalProvisioner::Deployed {
            deployment: live.name.clone(),
            wanted: live.wanted,
            present: live.present,
        }),
        None if found.is_empty() => ByDeployment::Missing(named.clone()),
        None => ByDeployment::Stopped,
    }
}

/// Drivers, and provisioners that are none, each with the places where it may run.
pub type Drivers = BTreeMap<String, Whereabouts>;

/// The places where a provisioner may run.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Whereabouts {
    /// The namespaces in which its Leases count, beside those of its Deployments that count.
    pub namespaces: BTreeSet<String>,
    /// Its Deployments.
    pub deployments: BTreeSet<ObjectName>,
}

impl Whereabouts {
    fn add(&mut self, provisioner: &str, own: &str, data: &BTreeMap<String, String>) {
        self.namespaces.extend(namespaces(own, data));
        self.deployments.extend(former_deployment::deployments(provisioner, data));
    }

    /// Returns the namespaces in which its Leases count, with these Deployments that count.
    pub fn of_leases(&self, found: &[Deployment]) -> BTreeSet<String> {
        let of_deployments = found.iter().map(|deployment| &deployment.name.namespace);
        self.namespaces.iter().chain(of_deployments).cloned().collect()
    }
}

/// The configs without a label that replace a driver.
#[derive(Debug)]
pub(super) struct ReplacingConfigs<'a> {
    /// The config that serves each driver, by the driver's name.
    pub serving: BTreeMap<&'a str, &'a Config>,
    /// The problems of the others.
    pub refused: Vec<ConfigProblem>,
}

/// Returns the configs without a label that replace a driver. Such a config serves all classes of its driver that no
/// label names. If two configs replace one driver, the one that has served a class of it serves, else the older.
pub(super) fn replacing_configs<'a>(
    by_age: &[&'a Config],
    has_served: impl Fn(&Config, &str) -> bool,
) -> ReplacingConfigs<'a> {
    let (mut serving, mut refused) = (BTreeMap::<&str, &Config>::new(), Vec::new());
    let general = by_age.iter().copied().filter(|config| config.class.is_none());
    let mut general: Vec<_> = general.filter_map(|config| Some((config, config.replaces()?))).collect();
    general.sort_by_key(|(config, driver)| !has_served(config, driver));
    for (config, driver) in general {
        let Some(other) = serving.get(driver) else {
            serving.insert(driver, config);
            continue;
        };
        let why = format!(
            "the ConfigMap {} replaces the provisioner of {driver} already and stays in use; remove one of the two, or give this one the label `storage-class` with one class of that driver",
            other.name
        );
        let problem = Problem::new(keys::REPLACES_PROVISIONER.name, why);
        refused.push(ConfigProblem { config: config.name.clone(), problem });
    }
    ReplacingConfigs { serving, refused }
}

/// The states of all external provisioners.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ExternalProvisioners {
    known: BTreeMap<String, ExternalProvisioner>,
    elsewhere: BTreeMap<String, ObjectName>,
    missing: BTreeMap<String, BTreeSet<ObjectName>>,
    none: bool,
}

/// The result of a check of the Leases of one driver.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LeaseCheck {
    /// The state of the external provisioner.
    pub provisioner: ExternalProvisioner,
    /// A held Lease with the driver's name in a namespace that does not count.
    pub elsewhere: Option<ObjectName>,
    /// The Deployments of a provisioner that is no CSI driver, if the cluster has none of them. Then nothing shows that
    /// the provisioner is stopped.
    pub missing: BTreeSet<ObjectName>,
}

impl LeaseCheck {
    /// Adds what the Deployments say, if no Lease shows the provisioner at work.
    pub fn and(mut self, by_deployment: ByDeployment) -> Self {
        if self.provisioner == ExternalProvisioner::Gone {
            match by_deployment {
                ByDeployment::Blocking(state) => self.provisioner = state,
                ByDeployment::Missing(names) => self.missing = names,
                ByDeployment::Stopped => {}
            }
        }
        self
    }
}

impl From<ExternalProvisioner> for LeaseCheck {
    fn from(provisioner: ExternalProvisioner) -> Self {
        LeaseCheck { provisioner, elsewhere: None, missing: BTreeSet::new() }
    }
}

/// Says that a Lease does not count, for the config's verdict.
fn does_not_count(driver: &str, lease: &ObjectName) -> String {
    let key = keys::REPLACES_PROVISIONER_NAMESPACE.name;
    format!(
        "somebody holds the Lease {lease}, which does not count for {driver}, because anybody may create a Lease in a namespace of their own; if the driver's external provisioner runs there, write `{key}: {}`",
        lease.namespace
    )
}

/// Says that no Deployment of a provisioner exists, for the config's verdict.
pub fn is_missing(provisioner: &str, names: &BTreeSet<ObjectName>) -> String {
    let names = names.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ");
    let key = keys::REPLACES_DEPLOYMENT.name;
    format!(
        "no Deployment of {provisioner} was found ({names}) whose account may create PersistentVolumes, so nothing shows whether it runs; if its Deployment has another name, write `{key}: NAMESPACE/NAME`"
    )
}

impl ExternalProvisioners {
    /// Collects the results for each driver.
    pub fn new(found: impl IntoIterator<Item = (String, LeaseCheck)>) -> Self {
        let mut external_provisioners = ExternalProvisioners::default();
        for (driver, LeaseCheck { provisioner, elsewhere, missing }) in found {
            if !missing.is_empty() {
                external_provisioners.missing.insert(driver.clone(), missing);
            }
            external_provisioners.elsewhere.extend(elsewhere.map(|lease| (driver.clone(), lease)));
            external_provisioners.known.insert(driver, provisioner);
        }
        external_provisioners
    }

    /// Returns what may be wrong with the knowledge about a driver, for the config's verdict, each with its key.
    pub fn doubts(&self, driver: &str) -> impl Iterator<Item = (&'static str, String)> {
        let lease = self.elsewhere.get(driver).map(|lease| does_not_count(driver, lease));
        let missing = self.missing.get(driver).map(|names| is_missing(driver, names));
        let lease = lease.map(|why| (keys::REPLACES_PROVISIONER_NAMESPACE.name, why));
        lease.into_iter().chain(missing.map(|why| (keys::REPLACES_DEPLOYMENT.name, why)))
    }

    /// Returns the Deployments in which a provisioner was looked for, if the cluster has none of these.
    pub fn missing(&self, driver: &str) -> Option<&BTreeSet<ObjectName>> {
        self.missing.get(driver)
    }

    /// Returns the state without a cluster, where no external provisioner runs.
    pub fn none() -> Self {
        ExternalProvisioners { none: true, ..ExternalProvisioners::default() }
    }

    /// Returns the state of a driver's external provisioner.
    pub fn of(&self, driver: &str) -> &ExternalProvisioner {
        match self.known.get(driver) {
            Some(provisioner) => provisioner,
            None if self.none => &ExternalProvisioner::Gone,
            None => &ExternalProvisioner::Unknown(None),
        }
    }
}

/// Returns the name of the Lease of a driver's external provisioners, derived from the driver's name as they do it.
/// Provisioners that are no CSI drivers replace only the slash.
pub fn lease_name(driver: &str) -> String {
    if former_deployment::is_no_driver(driver) {
        return driver.replace('/', "-");
    }
    let plain = |c: char| if c.is_ascii_alphanumeric() { c } else { '-' };
    let name: String = driver.chars().map(plain).collect();
    if name.ends_with('-') { name + "X" } else { name }
}

/// A Lease, with the fields that matter here.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lease {
    /// The name of the Lease.
    pub name: ObjectName,
    /// The holder; empty if the holder has released the Lease.
    pub holder: String,
    /// The resourceVersion, which changes with each renewal.
    pub version: String,
    /// The duration of a term.
    pub term: Duration,
    /// The time of the last renewal by the holder's clock, in seconds since 1970.
    pub renewed: i64,
}

impl From<&k8s_openapi::api::coordination::v1::Lease> for Lease {
    fn from(lease: &k8s_openapi::api::coordination::v1::Lease) -> Self {
        let spec = lease.spec.clone().unwrap_or_default();
        let term = spec.lease_duration_seconds.and_then(|seconds| u64::try_from(seconds).ok());
        Lease {
            name: ObjectName::of(&lease.metadata),
            holder: spec.holder_identity.unwrap_or_default(),
            version: lease.metadata.resource_version.clone().unwrap_or_default(),
            term: term.map_or(LEASE_TERM, |seconds| Duration::from_secs(seconds).min(LONGEST_LEASE_TERM)),
            renewed: spec.renew_time.map_or(0, |time| time.0.as_second()),
        }
    }
}

/// The largest length of a holder's name in a text.
const HOLDER: usize = 200;

impl Lease {
    fn state(&self) -> ExternalProvisioner {
        ExternalProvisioner::Live { lease: self.name.clone(), holder: line(&self.holder, HOLDER) }
    }

    /// Adds a held Lease to the result. Returns whether the Lease counts.
    fn counts_in(&self, namespaces: &BTreeSet<String>, found: &mut LeaseCheck) {
        match namespaces.contains(&self.name.namespace) {
            true => found.provisioner = self.state(),
            // The first by name is kept, so that the result is always the same.
            false if found.elsewhere.as_ref().is_none_or(|before| self.name < *before) => {
                found.elsewhere = Some(self.name.clone());
            }
            false => {}
        }
    }
}

/// The Leases of one driver, observed over time. The clocks of two machines are never compared: a term ends when its
/// duration has passed here since the last renewal was observed.
#[derive(Clone, Debug, Default)]
pub struct LeaseWatch {
    /// The resourceVersion of each Lease, and the time at which it was first observed.
    leases: BTreeMap<ObjectName, (String, Duration)>,
}

impl LeaseWatch {
    /// Returns the result of all Leases with the driver's name. Only Leases in `namespaces` count. `now` never
    /// decreases.
    pub fn check(&mut self, leases: &[Lease], namespaces: &BTreeSet<String>, now: Duration) -> LeaseCheck {
        self.leases.retain(|name, _| leases.iter().any(|lease| lease.name == *name));
        let mut found = LeaseCheck::from(ExternalProvisioner::Gone);
        for lease in leases {
            let (version, since) =
                self.leases.entry(lease.name.clone()).or_insert_with(|| (lease.version.clone(), now));
            if *version != lease.version {
                (*version, *since) = (lease.version.clone(), now);
            }
            if !lease.holder.is_empty() && now.saturating_sub(*since) < lease.term {
                lease.counts_in(namespaces, &mut found);
            }
        }
        found
    }
}

/// Returns the result for a program that checks only once, by its clock, in seconds since 1970. Allows for clocks that
/// differ.
pub fn check_once(leases: &[Lease], namespaces: &BTreeSet<String>, now: i64) -> LeaseCheck {
    let recent = |lease: &&Lease| {
        let term = i64::try_from(lease.term.as_secs()).unwrap_or(i64::MAX);
        !lease.holder.is_empty() && now.saturating_sub(lease.renewed) < term.saturating_mul(2)
    };
    let mut found = LeaseCheck::from(ExternalProvisioner::Gone);
    leases.iter().filter(recent).for_each(|lease| lease.counts_in(namespaces, &mut found));
    found
}

#[cfg(test)]
#[path = "external_provisioner_tests.rs"]
mod tests;
