//! The external provisioners of CSI drivers: what is known of each that a config stands for.
//!
//! While one is at work, no class of its driver is served here, since two would provision each claim. One that runs with
//! `--leader-election` holds a Lease that is called after the driver, in the namespace where it runs.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use super::Problem;
use super::classes::{Config, Identity};
use crate::object::ObjectName;

/// The key of a config that names the CSI driver whose external provisioner it takes the place of.
pub const KEY: &str = "stands-for";

/// The driver that a config with this data stands for.
pub fn driver(data: &BTreeMap<String, String>) -> Option<&str> {
    data.get(KEY).map(|name| name.trim()).filter(|name| !name.is_empty())
}

/// A Lease that does not say how long a term is.
const TERM: Duration = Duration::from_secs(15);
/// No longer term is believed: a Lease of a program that is gone must not stand for ever.
const LONGEST_TERM: Duration = Duration::from_secs(15 * 60);

/// What is known of the external provisioner of a driver.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Sidecar {
    /// Nothing, and why where there is a reason beyond that nobody has looked yet.
    Unknown(Option<String>),
    /// Nobody renews its Lease.
    Gone,
    /// It is at work, or was a moment ago.
    Live {
        /// Its Lease.
        lease: ObjectName,
        /// Who holds it.
        holder: String,
    },
}

impl Sidecar {
    /// Why classes of its driver are not served, in words for their config; nothing while nobody has looked yet.
    pub fn keeps(&self, driver: &str, classes: &[&String]) -> Option<String> {
        let classes = classes.iter().map(|class| class.as_str()).collect::<Vec<_>>().join(", ");
        match self {
            Sidecar::Gone | Sidecar::Unknown(None) => None,
            Sidecar::Unknown(Some(why)) => Some(format!(
                "the StorageClasses of {driver} are not served ({classes}): whether its external provisioner is at work is not known: {why}"
            )),
            Sidecar::Live { lease, holder } => Some(format!(
                "the StorageClasses of {driver} are left to its external provisioner ({classes}), which is at work: {holder} holds the Lease {lease}; they are served here when that is not renewed any more"
            )),
        }
    }
}

/// The drivers whose external provisioners have to be known.
pub fn drivers_stood_for<'a>(identity: &Identity, configs: impl IntoIterator<Item = &'a Config>) -> BTreeSet<String> {
    let ours = configs.into_iter().filter(|config| config.is_for(identity));
    ours.filter_map(|config| config.stands_for().map(str::to_owned)).collect()
}

/// The configs without a label that stand for a driver, by its name: each serves all classes of its driver that no label
/// names. Of two for one driver the older does; what is wrong with the newer comes second.
pub fn stand_ins<'a>(by_age: &[&'a Config]) -> (BTreeMap<&'a str, &'a Config>, Vec<(&'a Config, Problem)>) {
    let (mut first, mut second) = (BTreeMap::<&str, &Config>::new(), Vec::new());
    for config in by_age.iter().copied().filter(|config| config.class.is_none()) {
        let Some(driver) = config.stands_for() else { continue };
        let Some(older) = first.get(driver) else {
            first.insert(driver, config);
            continue;
        };
        let why = format!(
            "the older ConfigMap {} stands for {driver} already and stays in use; remove one of the two, or give this one the label `storage-class` with one class of that driver",
            older.name
        );
        second.push((config, Problem::new(KEY, why)));
    }
    (first, second)
}

/// What is known of all of them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Sidecars {
    known: BTreeMap<String, Sidecar>,
    none: bool,
}

impl Sidecars {
    /// What was found out of each driver's.
    pub fn new(known: BTreeMap<String, Sidecar>) -> Self {
        Sidecars { known, none: false }
    }

    /// Where there is no cluster, there is none of them.
    pub fn none() -> Self {
        Sidecars { none: true, ..Sidecars::default() }
    }

    /// That of a driver.
    pub fn of(&self, driver: &str) -> &Sidecar {
        match self.known.get(driver) {
            Some(sidecar) => sidecar,
            None if self.none => &Sidecar::Gone,
            None => &Sidecar::Unknown(None),
        }
    }
}

/// The name of the Lease for which the external provisioners of a driver stand: theirs is made of the driver's in this way.
pub fn lease_name(driver: &str) -> String {
    let plain = |c: char| if c.is_ascii_alphanumeric() { c } else { '-' };
    let name: String = driver.chars().map(plain).collect();
    if name.ends_with('-') { name + "X" } else { name }
}

/// A Lease, as far as it matters.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lease {
    /// Its name.
    pub name: ObjectName,
    /// Who holds it; empty if it was given back.
    pub holder: String,
    /// Its version: it changes with every renewal.
    pub version: String,
    /// How long one renewal holds.
    pub term: Duration,
    /// When it was renewed by the holder's clock, in seconds since 1970.
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
            term: term.map_or(TERM, |seconds| Duration::from_secs(seconds).min(LONGEST_TERM)),
            renewed: spec.renew_time.map_or(0, |time| time.0.as_second()),
        }
    }
}

impl Lease {
    fn live(&self) -> Sidecar {
        Sidecar::Live { lease: self.name.clone(), holder: self.holder.clone() }
    }
}

/// The Leases of one driver, over the time for which they are looked at. Clocks of machines are never compared: a term is over
/// when it has passed here since the last renewal was seen.
#[derive(Clone, Debug, Default)]
pub struct Watched {
    /// The version of each, and when it was first seen.
    seen: BTreeMap<ObjectName, (String, Duration)>,
}

impl Watched {
    /// What follows from all Leases of the driver's name, at a time that never goes back.
    pub fn look(&mut self, leases: &[Lease], now: Duration) -> Sidecar {
        self.seen.retain(|name, _| leases.iter().any(|lease| lease.name == *name));
        let mut found = Sidecar::Gone;
        for lease in leases {
            let (version, since) = self.seen.entry(lease.name.clone()).or_insert_with(|| (lease.version.clone(), now));
            if *version != lease.version {
                (*version, *since) = (lease.version.clone(), now);
            }
            if !lease.holder.is_empty() && now.saturating_sub(*since) < lease.term {
                found = lease.live();
            }
        }
        found
    }
}

/// The same for who looks once, and has nothing but the clock on the wall, in seconds since 1970: with room for clocks that do
/// not agree.
pub fn look_once(leases: &[Lease], now: i64) -> Sidecar {
    let recent = |lease: &&Lease| {
        let term = i64::try_from(lease.term.as_secs()).unwrap_or(i64::MAX);
        !lease.holder.is_empty() && now.saturating_sub(lease.renewed) < term.saturating_mul(2)
    };
    leases.iter().find(recent).map_or(Sidecar::Gone, Lease::live)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lease(namespace: &str, holder: &str, version: &str) -> Lease {
        Lease {
            name: ObjectName::new(namespace, "ebs-csi-aws-com"),
            holder: holder.into(),
            version: version.into(),
            term: TERM,
            renewed: 1000,
        }
    }

    fn at(seconds: u64) -> Duration {
        Duration::from_secs(100 + seconds)
    }

    #[test]
    fn the_lease_is_called_after_the_driver() {
        for (driver, name) in [
            ("ebs.csi.aws.com", "ebs-csi-aws-com"),
            ("example.com/old_name", "example-com-old-name"),
            ("odd.", "odd-X"),
        ] {
            assert_eq!(lease_name(driver), name);
        }
    }

    #[test]
    fn a_lease_counts_for_one_term_after_its_last_renewal_was_seen() {
        let mut watched = Watched::default();
        assert_eq!(watched.look(&[], at(0)), Sidecar::Gone);
        let held = lease("kube-system", "a", "1");
        assert_eq!(watched.look(std::slice::from_ref(&held), at(0)), held.live());
        assert_eq!(watched.look(std::slice::from_ref(&held), at(14)), held.live());
        let renewed = lease("kube-system", "a", "2");
        assert_eq!(watched.look(std::slice::from_ref(&renewed), at(14)), renewed.live());
        assert_eq!(watched.look(std::slice::from_ref(&renewed), at(28)), renewed.live());
        assert_eq!(watched.look(std::slice::from_ref(&renewed), at(29)), Sidecar::Gone);
        // Another one takes it over.
        let other = lease("kube-system", "b", "3");
        assert_eq!(watched.look(std::slice::from_ref(&other), at(60)), other.live());
        // One that is given back is not waited for.
        assert_eq!(watched.look(&[lease("kube-system", "", "4")], at(61)), Sidecar::Gone);
        // That it goes and comes again makes it a new one.
        assert_eq!(watched.look(&[], at(62)), Sidecar::Gone);
        assert_eq!(watched.look(std::slice::from_ref(&other), at(90)), other.live());
    }

    #[test]
    fn a_stale_lease_of_another_namespace_hides_none() {
        let mut watched = Watched::default();
        let (stale, held) = (lease("old", "a", "1"), lease("new", "b", "1"));
        assert_eq!(watched.look(std::slice::from_ref(&stale), at(0)), stale.live());
        for leases in [[stale.clone(), held.clone()], [held.clone(), stale.clone()]] {
            assert_eq!(watched.look(&leases, at(20)), held.live());
        }
    }

    #[test]
    fn who_looks_once_goes_by_the_clock() {
        let held = lease("a", "x", "1");
        assert_eq!(look_once(std::slice::from_ref(&held), 1029), held.live());
        assert_eq!(look_once(std::slice::from_ref(&held), 900), held.live());
        assert_eq!(look_once(std::slice::from_ref(&held), 1030), Sidecar::Gone);
        assert_eq!(look_once(&[lease("a", "", "1")], 1000), Sidecar::Gone);
    }

    #[test]
    fn without_a_cluster_nobody_is_at_work_and_with_one_nobody_knows_at_first() {
        assert_eq!(Sidecars::none().of("d"), &Sidecar::Gone);
        assert_eq!(Sidecars::default().of("d"), &Sidecar::Unknown(None));
        let known = Sidecars::new([("d".to_owned(), Sidecar::Gone)].into());
        assert_eq!((known.of("d"), known.of("e")), (&Sidecar::Gone, &Sidecar::Unknown(None)));
    }
}
