//! The parameters, sorted by their use. Some belong to this image, some name Secrets or the file system, and the others
//! are for the driver. The functions are pure.

use std::collections::BTreeMap;
use std::time::Duration;

use flex_contract::batch::MAX_MEMBERS;
use flex_image_kit::Failure;

use crate::endpoint::{self, Endpoint};
use crate::secrets::{self, PREFIX};

/// The prefix of all parameters of this image itself.
const OWN: &str = "csi-";
const FS_TYPE: &str = "csi.storage.k8s.io/fstype";
/// The default number of members of a batch at one time.
const WORKER_THREADS: usize = 10;

/// The checked parameters.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Parameters {
    /// The address of the driver.
    pub endpoint: Endpoint,
    /// The time for the driver to become ready.
    pub connect: Duration,
    /// The time for one call.
    pub call: Duration,
    /// The number of members of a batch at one time.
    pub worker_threads: usize,
    /// The directory with `ca.crt`, `tls.crt` and `tls.key`, for TCP.
    pub tls: Option<String>,
    /// The name in the driver's certificate, if it differs from the host.
    pub tls_name: Option<String>,
    /// The name that the driver must have.
    pub driver: Option<String>,
    /// Whether the driver gets the names of claim and volume.
    pub extra_metadata: bool,
    /// With a selected node: whether to name only that node's topology.
    pub strict_topology: bool,
    /// Without a selected node: whether to name all topologies of the cluster.
    pub immediate_topology: bool,
    /// Whether a volume without a topology is reachable from everywhere.
    pub topology_optional: bool,
    /// Whether volumes only for ReadOnlyMany are attached read-only.
    pub publish_read_only: bool,
    /// The prefix of the driver's volume names, in place of that of the PersistentVolume.
    pub name_prefix: Option<String>,
    /// The largest size of a volume, in bytes.
    pub limit: Option<u64>,
    /// The file system, if the class names one.
    pub fs_type: Option<String>,
    /// All parameters of class and config, by which Secrets are found.
    pub all: BTreeMap<String, String>,
    /// The parameters for the driver.
    pub driver_parameters: BTreeMap<String, String>,
}

impl Parameters {
    /// Sorts and checks the parameters of class and config.
    ///
    /// # Errors
    /// All problems at once.
    pub fn of(all: &BTreeMap<String, String>) -> Result<Self, Failure> {
        let mut problems = Vec::new();
        let own = |name: &str| all.get(name).map(|value| value.trim()).filter(|value| !value.is_empty());
        let mut flag = |name: &str, default: bool| match own(name) {
            None => default,
            Some("true") => true,
            Some("false") => false,
            Some(other) => {
                problems.push(format!("{name} is `{other}`: write \"true\" or \"false\""));
                default
            }
        };
        let (extra_metadata, strict_topology) =
            (flag("csi-extra-create-metadata", false), flag("csi-strict-topology", false));
        let (immediate_topology, topology_optional) =
            (flag("csi-immediate-topology", true), flag("csi-topology-optional", false));
        let publish_read_only = flag("csi-controller-publish-readonly", false);
        let mut time = |name: &str, default: u64| match own(name).map(|text| (text, seconds(text))) {
            None => Duration::from_secs(default),
            Some((_, Some(time))) => time,
            Some((text, None)) => {
                problems.push(format!("{name} is `{text}`: write a time such as 15s or 2m, up to 1h"));
                Duration::from_secs(default)
            }
        };
        let (connect, call) = (time("csi-connect-timeout", 60), time("csi-timeout", 15));
        let worker_threads = match own("csi-worker-threads").map(|text| (text, text.parse())) {
            None => WORKER_THREADS,
            Some((_, Ok(number @ 1..=MAX_MEMBERS))) => number,
            Some((text, _)) => {
                problems.push(format!("csi-worker-threads is `{text}`: write a whole number from 1 to {MAX_MEMBERS}"));
                WORKER_THREADS
            }
        };
        let endpoint = match endpoint::parse(own("csi-endpoint").unwrap_or_default()) {
            Ok(endpoint) => endpoint,
            Err(problem) => {
                problems.push(problem);
                Endpoint::Socket(Default::default())
            }
        };
        let tls = own("csi-tls").map(str::to_owned);
        if matches!(endpoint, Endpoint::Tcp(..)) && tls.is_none() {
            problems.push(
                "csi-tls is missing: over TCP a driver is spoken to with TLS alone; name the directory of a Secret with ca.crt, \
                 tls.crt and tls.key, such as /etc/flex-secrets/csi-tls"
                    .into(),
            );
        }
        let name_prefix = own("csi-volume-name-prefix").map(str::to_owned);
        let legal = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
        if let Some(prefix) = name_prefix.as_deref().filter(|prefix| prefix.len() > 60 || !prefix.chars().all(legal)) {
            problems
                .push(format!("csi-volume-name-prefix is `{prefix}`: lower case letters, digits and `-`, up to 60"));
        }
        let limit = own("csi-limit").and_then(|text| match flex_contract::quantity::bytes(text) {
            Ok(bytes) => Some(bytes),
            Err(error) => {
                problems.push(format!("csi-limit: {error}"));
                None
            }
        });
        let fs_types: Vec<_> = all.iter().filter(|(name, _)| is_fs_type(name)).collect();
        if fs_types.len() > 1 {
            let names: Vec<_> = fs_types.iter().map(|(name, _)| name.as_str()).collect();
            problems.push(format!("{} all name the file system: keep one", names.join(", ")));
        }
        let fs_type = fs_types.first().map(|(_, value)| value.trim().to_owned()).filter(|value| !value.is_empty());
        for name in all.keys() {
            if name.starts_with(OWN) && !KNOWN.contains(&name.as_str()) {
                problems.push(format!("{name} is no parameter of this image; those are {}", KNOWN.join(", ")));
            }
            if name.starts_with(PREFIX) && name != FS_TYPE && !secrets::names_one(name) {
                problems.push(format!("{name} is not known, and all that begins with {PREFIX} is for provisioners"));
            }
        }
        if !problems.is_empty() {
            return Err(Failure::config(problems.join("; ")));
        }
        let for_driver = |name: &str| !name.starts_with(OWN) && !name.starts_with(PREFIX) && !secrets::names_one(name);
        let driver_parameters = all.iter().filter(|(name, _)| for_driver(name));
        Ok(Parameters {
            endpoint,
            connect,
            call,
            worker_threads,
            tls,
            tls_name: own("csi-tls-server-name").map(str::to_owned),
            driver: own("csi-driver").map(str::to_owned),
            extra_metadata,
            strict_topology,
            immediate_topology,
            topology_optional,
            publish_read_only,
            name_prefix,
            limit,
            fs_type,
            all: all.clone(),
            driver_parameters: driver_parameters.map(|(name, value)| (name.clone(), value.clone())).collect(),
        })
    }
}

impl Parameters {
    /// Checks whether both have the same driver and the same connection to it.
    pub fn same_driver(&self, other: &Self) -> bool {
        let of = |it: &Self| {
            let Self { endpoint, connect, call, tls, tls_name, driver, .. } = it.clone();
            (endpoint, connect, call, tls, tls_name, driver)
        };
        of(self) == of(other)
    }
}

const KNOWN: &[&str] = &[
    "csi-endpoint",
    "csi-connect-timeout",
    "csi-timeout",
    "csi-worker-threads",
    "csi-tls",
    "csi-tls-server-name",
    "csi-driver",
    "csi-extra-create-metadata",
    "csi-strict-topology",
    "csi-immediate-topology",
    "csi-topology-optional",
    "csi-controller-publish-readonly",
    "csi-volume-name-prefix",
    "csi-limit",
];

/// Checks for the present name or the older one, in any case.
fn is_fs_type(name: &str) -> bool {
    name == FS_TYPE || name.eq_ignore_ascii_case("fstype")
}

/// Reads `15s`, `2m` or a number of seconds, up to an hour.
fn seconds(text: &str) -> Option<Duration> {
    let (number, unit) = match text.strip_suffix('m') {
        Some(minutes) => (minutes, 60),
        None => (text.strip_suffix('s').unwrap_or(text), 1),
    };
    let seconds = number.parse::<u64>().ok()?.checked_mul(unit)?;
    (1..=3600).contains(&seconds).then(|| Duration::from_secs(seconds))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(pairs: &[(&str, &str)]) -> Result<Parameters, Failure> {
        let socket = [("csi-endpoint", "unix:///csi/csi.sock")];
        let own = |(key, value): &(&str, &str)| ((*key).to_owned(), (*value).to_owned());
        Parameters::of(&socket.iter().chain(pairs).map(own).collect())
    }

    #[test]
    fn only_the_driver_s_parameters_reach_it() {
        let found = of(&[
            ("type", "pd-ssd"),
            ("csiDriverMode", "x"),
            ("example.com/pool", "gold"),
            ("csi-timeout", "90s"),
            ("csi-extra-create-metadata", "true"),
            ("csiProvisionerSecretName", "a"),
            ("csiProvisionerSecretNamespace", "b"),
            ("csi.storage.k8s.io/node-stage-secret-name", "a"),
            ("csi.storage.k8s.io/node-stage-secret-namespace", "b"),
            ("csi.storage.k8s.io/fstype", "xfs"),
        ])
        .unwrap();
        let names: Vec<_> = found.driver_parameters.keys().map(String::as_str).collect();
        assert_eq!(names, ["csiDriverMode", "example.com/pool", "type"]);
        assert_eq!((found.call, found.extra_metadata), (Duration::from_secs(90), true));
        assert_eq!(found.fs_type.as_deref(), Some("xfs"));
    }

    /// The driver still gets the older names of the file system.
    #[test]
    fn the_file_system_has_one_name() {
        for name in ["fsType", "fstype", "FSTYPE"] {
            let found = of(&[(name, "ext4")]).unwrap();
            assert_eq!(found.fs_type.as_deref(), Some("ext4"));
            assert_eq!(found.driver_parameters[name], "ext4");
        }
        assert_eq!(of(&[]).unwrap().fs_type, None);
        let twice = of(&[("fsType", "ext4"), ("csi.storage.k8s.io/fstype", "ext4")]).unwrap_err();
        assert!(twice.message.contains("keep one"), "{twice}");
    }

    #[test]
    fn all_errors_are_reported_at_once() {
        let failure = of(&[
            ("csi-timeout", "soon"),
            ("csi-connect-timeout", "2h"),
            ("csi-worker-threads", "0"),
            ("csi-strict-topology", "yes"),
            ("csi-volume-name-prefix", "A b"),
            ("csi-limit", "much"),
            ("csi-endpont", "x"),
            ("csi.storage.k8s.io/pvc/name", "x"),
            ("csi.storage.k8s.io/node-state-secret-name", "x"),
        ])
        .unwrap_err();
        assert_eq!(failure.code, 78);
        for says in [
            "csi-timeout is `soon`",
            "csi-connect-timeout is `2h`",
            "csi-worker-threads is `0`",
            "csi-strict-topology is `yes`",
            "csi-volume-name-prefix is `A b`",
            "csi-limit",
            "csi-endpont is no parameter",
            "csi.storage.k8s.io/pvc/name is not known",
            "csi.storage.k8s.io/node-state-secret-name is not known",
        ] {
            assert!(failure.message.contains(says), "{says}: {failure}");
        }
        let tcp = Parameters::of(&[("csi-endpoint".to_owned(), "tcp://a:1".to_owned())].into()).unwrap_err();
        assert!(tcp.message.contains("csi-tls is missing"), "{tcp}");
        assert!(Parameters::of(&BTreeMap::new()).unwrap_err().message.contains("csi-endpoint"));
    }
}
