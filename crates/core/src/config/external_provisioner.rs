//! The external provisioners of the CSI drivers that configs replace, and whether they run.
//!
//! While an external provisioner runs, the orchestrator serves no class of its driver, because both would provision
//! each claim. With `--leader-election` it holds a Lease with a name derived from the driver, in its own namespace.
//! Everybody may create a Lease in a namespace of their own. So a Lease counts only in a namespace that an admin names,
//! or where only admins write.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use super::Problem;
use super::identity::Identity;
use super::input::Config;
use super::keys;
use super::values::list;
use crate::object::ObjectName;
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
}

impl ExternalProvisioner {
    /// Returns the reason why classes of the driver are not served, for the config's verdict. Returns `None` while
    /// nobody has listed the Leases yet.
    pub fn blocking_reason(&self, driver: &str, classes: &[&String]) -> Option<String> {
        let classes = classes.iter().map(|class| class.as_str()).collect::<Vec<_>>().join(", ");
        match self {
            ExternalProvisioner::Gone | ExternalProvisioner::Unknown(None) => None,
            ExternalProvisioner::Unknown(Some(why)) => Some(format!(
                "this provisioner does not serve the StorageClasses of {driver} ({classes}), because it does not know whether the external provisioner is at work: {why}"
            )),
            ExternalProvisioner::Live { lease, holder } => Some(format!(
                "this provisioner leaves the StorageClasses of {driver} ({classes}) to the external provisioner, which is at work: {holder} holds the Lease {lease}; it serves them once nobody renews the Lease"
            )),
        }
    }
}

/// Returns the drivers that the configs replace, each with all namespaces in which its external provisioner may run.
pub fn replaced_drivers<'a>(identity: &Identity, configs: impl IntoIterator<Item = &'a Config>) -> Drivers {
    let mut drivers = Drivers::new();
    for config in configs.into_iter().filter(|config| config.is_for(identity)) {
        let Some(driver) = config.replaces() else { continue };
        drivers.entry(driver.to_owned()).or_default().extend(namespaces(&config.name.namespace, &config.data));
    }
    drivers
}

/// Drivers, each with the namespaces in which its external provisioner may run.
pub type Drivers = BTreeMap<String, BTreeSet<String>>;

/// Returns the configs without a label that replace a driver, by the driver's name. Such a config serves all classes of
/// its driver that no label names. If two configs replace one driver, the older serves, and the second list has the
/// problem of the newer.
pub fn replacing_configs<'a>(by_age: &[&'a Config]) -> (BTreeMap<&'a str, &'a Config>, Vec<(&'a Config, Problem)>) {
    let (mut first, mut second) = (BTreeMap::<&str, &Config>::new(), Vec::new());
    for config in by_age.iter().copied().filter(|config| config.class.is_none()) {
        let Some(driver) = config.replaces() else { continue };
        let Some(older) = first.get(driver) else {
            first.insert(driver, config);
            continue;
        };
        let why = format!(
            "the older ConfigMap {} replaces the provisioner of {driver} already and stays in use; remove one of the two, or give this one the label `storage-class` with one class of that driver",
            older.name
        );
        second.push((config, Problem::new(keys::REPLACES_PROVISIONER.name, why)));
    }
    (first, second)
}

/// The states of all external provisioners.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ExternalProvisioners {
    known: BTreeMap<String, ExternalProvisioner>,
    elsewhere: BTreeMap<String, ObjectName>,
    none: bool,
}

/// The result of a check of the Leases of one driver.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LeaseCheck {
    /// The state of the external provisioner.
    pub provisioner: ExternalProvisioner,
    /// A held Lease with the driver's name in a namespace that does not count.
    pub elsewhere: Option<ObjectName>,
}

impl From<ExternalProvisioner> for LeaseCheck {
    fn from(provisioner: ExternalProvisioner) -> Self {
        LeaseCheck { provisioner, elsewhere: None }
    }
}

/// Says that a Lease does not count, for the config's verdict.
pub fn does_not_count(driver: &str, lease: &ObjectName) -> String {
    let key = keys::REPLACES_PROVISIONER_NAMESPACE.name;
    format!(
        "somebody holds the Lease {lease}, which does not count for {driver}, because anybody may create a Lease in a namespace of their own; if the driver's external provisioner runs there, write `{key}: {}`",
        lease.namespace
    )
}

impl ExternalProvisioners {
    /// Collects the results for each driver.
    pub fn new(found: impl IntoIterator<Item = (String, LeaseCheck)>) -> Self {
        let mut external_provisioners = ExternalProvisioners::default();
        for (driver, LeaseCheck { provisioner, elsewhere }) in found {
            external_provisioners.elsewhere.extend(elsewhere.map(|lease| (driver.clone(), lease)));
            external_provisioners.known.insert(driver, provisioner);
        }
        external_provisioners
    }

    /// Returns a held Lease with a driver's name in a namespace that does not count.
    pub fn elsewhere(&self, driver: &str) -> Option<&ObjectName> {
        self.elsewhere.get(driver)
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
pub fn lease_name(driver: &str) -> String {
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
    /// Returns the result of all Leases with the driver's name, of which those in `namespaces` count. `now` never goes
    /// back.
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
mod tests {
    use super::*;

    fn lease(namespace: &str, holder: &str, version: &str) -> Lease {
        Lease {
            name: ObjectName::new(namespace, "ebs-csi-aws-com"),
            holder: holder.into(),
            version: version.into(),
            term: LEASE_TERM,
            renewed: 1000,
        }
    }

    /// Returns the namespaces whose Leases count in these tests.
    fn all() -> BTreeSet<String> {
        ["kube-system", "old", "new", "a"].map(str::to_owned).into()
    }

    fn at(seconds: u64) -> Duration {
        Duration::from_secs(100 + seconds)
    }

    #[test]
    fn the_lease_has_the_name_of_the_driver() {
        for (driver, name) in [
            ("ebs.csi.aws.com", "ebs-csi-aws-com"),
            ("example.com/old_name", "example-com-old-name"),
            ("odd.", "odd-X"),
        ] {
            assert_eq!(lease_name(driver), name);
        }
    }

    #[test]
    fn a_lease_counts_for_one_term_after_its_last_observed_renewal() {
        let mut watched = LeaseWatch::default();
        assert_eq!(watched.check(&[], &all(), at(0)).provisioner, ExternalProvisioner::Gone);
        let held = lease("kube-system", "a", "1");
        assert_eq!(watched.check(std::slice::from_ref(&held), &all(), at(0)).provisioner, held.state());
        assert_eq!(watched.check(std::slice::from_ref(&held), &all(), at(14)).provisioner, held.state());
        let renewed = lease("kube-system", "a", "2");
        assert_eq!(watched.check(std::slice::from_ref(&renewed), &all(), at(14)).provisioner, renewed.state());
        assert_eq!(watched.check(std::slice::from_ref(&renewed), &all(), at(28)).provisioner, renewed.state());
        assert_eq!(
            watched.check(std::slice::from_ref(&renewed), &all(), at(29)).provisioner,
            ExternalProvisioner::Gone
        );
        // Another holder takes the Lease over.
        let other = lease("kube-system", "b", "3");
        assert_eq!(watched.check(std::slice::from_ref(&other), &all(), at(60)).provisioner, other.state());
        // A released Lease is not waited for.
        assert_eq!(
            watched.check(&[lease("kube-system", "", "4")], &all(), at(61)).provisioner,
            ExternalProvisioner::Gone
        );
        // A Lease that was deleted and created again counts as new.
        assert_eq!(watched.check(&[], &all(), at(62)).provisioner, ExternalProvisioner::Gone);
        assert_eq!(watched.check(std::slice::from_ref(&other), &all(), at(90)).provisioner, other.state());
    }

    #[test]
    fn a_stale_lease_of_another_namespace_hides_no_live_one() {
        let mut watched = LeaseWatch::default();
        let (stale, held) = (lease("old", "a", "1"), lease("new", "b", "1"));
        assert_eq!(watched.check(std::slice::from_ref(&stale), &all(), at(0)).provisioner, stale.state());
        for leases in [[stale.clone(), held.clone()], [held.clone(), stale.clone()]] {
            assert_eq!(watched.check(&leases, &all(), at(20)).provisioner, held.state());
        }
    }

    #[test]
    fn a_single_check_goes_by_the_clock() {
        let held = lease("a", "x", "1");
        assert_eq!(check_once(std::slice::from_ref(&held), &all(), 1029).provisioner, held.state());
        assert_eq!(check_once(std::slice::from_ref(&held), &all(), 900).provisioner, held.state());
        assert_eq!(check_once(std::slice::from_ref(&held), &all(), 1030).provisioner, ExternalProvisioner::Gone);
        assert_eq!(check_once(&[lease("a", "", "1")], &all(), 1000).provisioner, ExternalProvisioner::Gone);
    }

    #[test]
    fn without_a_cluster_no_provisioner_runs_and_with_one_it_is_unknown_at_first() {
        assert_eq!(ExternalProvisioners::none().of("d"), &ExternalProvisioner::Gone);
        assert_eq!(ExternalProvisioners::default().of("d"), &ExternalProvisioner::Unknown(None));
        let known = ExternalProvisioners::new([("d".to_owned(), ExternalProvisioner::Gone.into())]);
        assert_eq!((known.of("d"), known.of("e")), (&ExternalProvisioner::Gone, &ExternalProvisioner::Unknown(None)));
    }

    #[test]
    fn a_lease_counts_only_in_a_namespace_that_an_admin_names() {
        let identity = Identity {
            provisioner: "p".into(),
            plugin: "p".into(),
            instance: "i".into(),
            config_namespaces: vec!["admin".into()],
            namespace: "n".into(),
            shell_image: None,
        };
        let config = |keys: &[(&str, &str)]| Config {
            name: ObjectName::new("admin", "c"),
            data: keys.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect(),
            ..Config::default()
        };
        let counted = |configs: &[Config]| replaced_drivers(&identity, configs).remove("d").unwrap_or_default();
        let stands = (keys::REPLACES_PROVISIONER.name, "d");
        let set = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<BTreeSet<_>>();
        assert_eq!(counted(&[config(&[stands])]), set(&["admin", "kube-system"]), "without the key");
        let named = config(&[stands, (keys::REPLACES_PROVISIONER_NAMESPACE.name, "rook, ceph")]);
        assert_eq!(counted(std::slice::from_ref(&named)), set(&["ceph", "rook"]), "these alone");
        assert_eq!(counted(&[named, config(&[stands])]), set(&["admin", "ceph", "kube-system", "rook"]), "of all");

        let (own, theirs) = (lease("team", "tom", "1"), lease("kube-system", "a", "1"));
        let namespaces = set(&["kube-system"]);
        let elsewhere = LeaseCheck { provisioner: ExternalProvisioner::Gone, elsewhere: Some(own.name.clone()) };
        let mut watched = LeaseWatch::default();
        assert_eq!(watched.check(std::slice::from_ref(&own), &namespaces, at(0)), elsewhere, "a tenant stops no class");
        assert_eq!(check_once(std::slice::from_ref(&own), &namespaces, 1000), elsewhere);
        for both in [[own.clone(), theirs.clone()], [theirs.clone(), own.clone()]] {
            let found = LeaseCheck { provisioner: theirs.state(), elsewhere: Some(own.name.clone()) };
            assert_eq!(watched.check(&both, &namespaces, at(1)), found, "and hides no other Lease");
            assert_eq!(check_once(&both, &namespaces, 1000), found);
        }
        assert_eq!(
            watched.check(std::slice::from_ref(&own), &namespaces, at(30)).elsewhere,
            None,
            "the Lease is not renewed"
        );
        let long = lease("kube-system", &"x\n".repeat(1000), "1").state();
        let ExternalProvisioner::Live { holder, .. } = long else { panic!("{long:?}") };
        assert!(holder.len() <= HOLDER && !holder.contains('\n'), "{holder}");
    }
}
