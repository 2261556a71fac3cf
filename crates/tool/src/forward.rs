//! The way to the status page of the leader: a port of its pod, forwarded by the API server.

use clap::Args;
use flex_core::config::classes::Identity;
use flex_core::limits::NAME;
use flex_core::text::line;
use flex_provisioner::clock::Clock;
use k8s_openapi::api::core::v1::Pod;
use kube::api::Portforwarder;
use kube::client::UpgradeConnectionError;
use kube::{Api, Client};

use crate::leader;

/// Where the leader serves its page.
#[derive(Clone, Copy, Debug, Args)]
pub(super) struct StatusPort {
    /// The port of the status page in the leader's pod, as the orchestrator's --status-address has it.
    #[arg(long, default_value_t = 8081)]
    pub(super) status_port: u16,
}

/// Returns the pod that leads, if one does.
///
/// # Errors
/// If the Lease cannot be read.
pub(super) async fn leading_pod(client: &Client, identity: &Identity) -> anyhow::Result<Option<String>> {
    let leader = leader::read(client, identity, &Clock::default()).await?;
    Ok(leader.holder.filter(|_| leader.missing.is_none()))
}

/// Opens a connection to a port of a pod.
///
/// # Errors
/// If the API server refuses. The message says what to ask for.
pub(super) async fn forward(
    client: &Client,
    identity: &Identity,
    pod: &str,
    port: u16,
) -> anyhow::Result<Portforwarder> {
    let (namespace, shown) = (&identity.namespace, line(pod, NAME));
    let pods: Api<Pod> = Api::namespaced(client.clone(), namespace);
    pods.portforward(pod, &[port]).await.map_err(|error| {
        let why = if is_refused(&error) {
            format!("you may not forward ports: ask for the verbs get and create of pods/portforward in namespace {namespace}")
        } else if matches!(&error, kube::Error::Api(status) if status.code == 404) {
            format!("pod {shown}, which the Lease names as the leader, is gone: try again when another one leads")
        } else {
            format!("the API server forwards no port of pod {shown}")
        };
        match error {
            // As a text, it would also have all empty fields.
            kube::Error::Api(status) => anyhow::Error::msg(line(&status.message, 500)),
            other => anyhow::Error::new(other),
        }
        .context(why)
    })
}

/// Checks whether RBAC refuses the forwarding.
fn is_refused(error: &kube::Error) -> bool {
    match error {
        kube::Error::Api(status) => status.code == 403,
        kube::Error::UpgradeConnection(UpgradeConnectionError::ProtocolSwitch(status)) => status.as_u16() == 403,
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_right_is_told_from_other_errors() {
        let switch = |code: u16| {
            kube::Error::UpgradeConnection(UpgradeConnectionError::ProtocolSwitch(code.try_into().unwrap()))
        };
        assert!(is_refused(&switch(403)));
        assert!(!is_refused(&switch(404)));
        assert!(!is_refused(&kube::Error::LinesCodecMaxLineLengthExceeded));
    }
}
