//! The rates of other provisioners, for comparison.

/// Another provisioner.
#[derive(Clone, Copy, Debug)]
pub struct Peer {
    /// Its name, and how it was set up.
    pub name: &'static str,
    /// The claims that it binds in a second.
    pub per_second: f64,
}

/// The rates, measured on clusters of the same kind by bursts of claims.
pub const PEERS: [Peer; 3] = [
    Peer { name: "external-provisioner, raised limits", per_second: 64.0 },
    Peer { name: "external-provisioner, default limits", per_second: 4.0 },
    Peer { name: "local-path-provisioner", per_second: 3.4 },
];
