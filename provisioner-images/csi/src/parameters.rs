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
        let mut reader = Reader { all, problems: Vec::new() };
        let r = &mut reader;
        let parameters = Parameters {
            extra_metadata: r.flag("csi-extra-create-metadata", false),
            strict_topology: r.flag("csi-strict-topology", false),
            immediate_topology: r.flag("csi-immediate-topology", true),
            topology_optional: r.flag("csi-topology-optional", false),
            publish_read_only: r.flag("csi-controller-publish-readonly", false),
            connect: r.time("csi-connect-timeout", 60),
            call: r.time("csi-timeout", 15),
            worker_threads: r.worker_threads(),
            endpoint: r.endpoint(),
            tls: r.text("csi-tls").map(str::to_owned),
            tls_name: r.text("csi-tls-server-name").map(str::to_owned),
            driver: r.text("csi-driver").map(str::to_owned),
            name_prefix: r.name_prefix(),
            limit: r.limit(),
            fs_type: r.fs_type(),
            all: all.clone(),
            driver_parameters: r.driver_parameters(),
        };
        r.check_names();
        match reader.problems.as_slice() {
            [] => Ok(parameters),
            problems => Err(Failure::config(problems.join("; "))),
        }
    }
}

/// A reader of parameters. It records a problem and continues.
struct Reader<'a> {
    all: &'a BTreeMap<String, String>,
    problems: Vec<String>,
}

impl<'a> Reader<'a> {
    fn text(&self, name: &str) -> Option<&'a str> {
        self.all.get(name).map(|value| value.trim()).filter(|value| !value.is_empty())
    }

    fn flag(&mut self, name: &str, default: bool) -> bool {
        match self.text(name) {
            None => default,
            Some("true") => true,
            Some("false") => false,
            Some(other) => {
                self.problems.push(format!("{name} is `{other}`: write \"true\" or \"false\""));
                default
            }
        }
    }

    /// Reads a time. The default is in seconds.
    fn time(&mut self, name: &str, default: u64) -> Duration {
        match self.text(name).map(|text| (text, seconds(text))) {
            None => Duration::from_secs(default),
            Some((_, Some(time))) => time,
            Some((text, None)) => {
                self.problems.push(format!("{name} is `{text}`: write a time such as 15s or 2m, up to 1h"));
                Duration::from_secs(default)
            }
        }
    }

    fn worker_threads(&mut self) -> usize {
        match self.text("csi-worker-threads").map(|text| (text, text.parse())) {
            None => WORKER_THREADS,
            Some((_, Ok(number @ 1..=MAX_MEMBERS))) => number,
            Some((text, _)) => {
                self.problems
                    .push(format!("csi-worker-threads is `{text}`: write a whole number from 1 to {MAX_MEMBERS}"));
                WORKER_THREADS
            }
        }
    }

    /// Reads the address of the driver. An address of a host needs certificates.
    fn endpoint(&mut self) -> Endpoint {
        let endpoint = match endpoint::parse(self.text("csi-endpoint").unwrap_or_default()) {
            Ok(endpoint) => endpoint,
            Err(problem) => {
                self.problems.push(problem);
                Endpoint::Socket(Default::default())
            }
        };
        if matches!(endpoint, Endpoint::Tcp(..)) && self.text("csi-tls").is_none() {
            self.problems.push(
                "csi-tls is missing: over TCP a driver is spoken to with TLS alone; name the directory of a Secret with ca.crt, \
                 tls.crt and tls.key, such as /etc/flex-secrets/csi-tls"
                    .into(),
            );
        }
        endpoint
    }

    fn name_prefix(&mut self) -> Option<String> {
        let prefix = self.text("csi-volume-name-prefix")?;
        let legal = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
        if prefix.len() > 60 || !prefix.chars().all(legal) {
            self.problems
                .push(format!("csi-volume-name-prefix is `{prefix}`: lower case letters, digits and `-`, up to 60"));
        }
        Some(prefix.to_owned())
    }

    fn limit(&mut self) -> Option<u64> {
        match flex_contract::quantity::bytes(self.text("csi-limit")?) {
            Ok(bytes) => Some(bytes),
            Err(error) => {
                self.problems.push(format!("csi-limit: {error}"));
                None
            }
        }
    }

    fn fs_type(&mut self) -> Option<String> {
        let given: Vec<_> = self.all.iter().filter(|(name, _)| is_fs_type(name)).collect();
        if given.len() > 1 {
            let names: Vec<_> = given.iter().map(|(name, _)| name.as_str()).collect();
            self.problems.push(format!("{} all name the file system: keep one", names.join(", ")));
        }
        given.first().map(|(_, value)| value.trim().to_owned()).filter(|value| !value.is_empty())
    }

    fn driver_parameters(&self) -> BTreeMap<String, String> {
        let for_driver = |name: &str| !name.starts_with(OWN) && !name.starts_with(PREFIX) && !secrets::names_one(name);
        let all = self.all.iter().filter(|(name, _)| for_driver(name));
        all.map(|(name, value)| (name.clone(), value.clone())).collect()
    }

    /// Reports parameters that are neither this image's nor the driver's.
    fn check_names(&mut self) {
        for name in self.all.keys() {
            if name.starts_with(OWN) && !KNOWN.contains(&name.as_str()) {
                self.problems.push(format!("{name} is no parameter of this image; those are {}", KNOWN.join(", ")));
            }
            if name.starts_with(PREFIX) && name != FS_TYPE && !secrets::names_one(name) {
                self.problems
                    .push(format!("{name} is not known, and all that begins with {PREFIX} is for provisioners"));
            }
        }
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
