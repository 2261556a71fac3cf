//! The leader, as its Lease shows it.

use anyhow::Context as _;
use flex_core::config::classes::Identity;
use flex_core::findings::Finding;
use flex_provisioner::clock::Clock;
use k8s_openapi::api::coordination::v1::Lease;
use kube::{Api, Client};

/// The time without a renewal after which a Lease has no leader, in seconds.
const NO_LEADER_AFTER: i64 = 60;

/// The replica that leads, or that nobody does.
pub(super) struct Leader {
    /// The replica in the Lease, if there is one.
    pub holder: Option<String>,
    /// The finding that no orchestrator leads.
    pub missing: Option<Finding>,
}

/// Reads the Lease.
///
/// # Errors
/// If the Lease cannot be read.
pub(super) async fn read(client: &Client, identity: &Identity, clock: &Clock) -> anyhow::Result<Leader> {
    let name = identity.lease();
    let leases: Api<Lease> = Api::namespaced(client.clone(), &name.namespace);
    let lease = leases.get_opt(&name.name).await.with_context(|| format!("Lease {name}"))?;
    let Some(spec) = lease.and_then(|lease| lease.spec) else {
        return Ok(Leader { holder: None, missing: Some(Finding::no_leader(name, None)) });
    };
    let idle = spec.renew_time.map_or(i64::MAX, |time| clock.now() - time.0.as_second());
    let gone = spec.holder_identity.as_ref().is_none_or(String::is_empty) || idle > NO_LEADER_AFTER;
    Ok(Leader { holder: spec.holder_identity, missing: gone.then(|| Finding::no_leader(name, Some(idle))) })
}
