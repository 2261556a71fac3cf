//! The parts of `status` beside the overview. They seldom change, and the command reads them itself.

use flex_contract::names;
use flex_core::capacity::Published;
use flex_core::config::classes::Identity;
use flex_core::object::ObjectName;
use flex_core::policies::{self, CheckedPolicy};
use flex_provisioner::api::{pages, policies as live, says};
use flex_provisioner::clock::Clock;
use flex_provisioner::overview::Overview;
use k8s_openapi::api::storage::v1::CSIStorageCapacity;
use kube::api::ListParams;
use kube::{Api, Client};

use crate::beside;
use crate::leader::{self, Leader};

/// The published capacities, or the reason why they are not known.
pub(super) type Capacities = Result<Vec<Published>, String>;
/// The admission policies, or the reason why they are not known.
pub(super) type Policies = Result<Vec<CheckedPolicy>, String>;

/// What `status` shows beside the overview.
pub(super) struct Surroundings {
    /// Who leads, in a sentence; or why nobody does, or why that is not known.
    pub(super) leader: Result<String, String>,
    pub(super) capacities: Capacities,
    pub(super) policies: Policies,
    /// Configs in namespaces where the orchestrator does not look.
    pub(super) unseen_configs: Vec<ObjectName>,
}

impl Surroundings {
    pub(super) async fn read(client: &Client, identity: &Identity, clock: &Clock) -> Self {
        let ours = ListParams::default().labels(&format!("{}={}", names::LABEL_INSTANCE, identity.instance));
        let api: Api<CSIStorageCapacity> = Api::namespaced(client.clone(), &identity.namespace);
        let capacities = pages::all(&api, ours, |capacity| Published::from(&capacity)).await;
        Surroundings {
            leader: leader(leader::read(client, identity, clock).await),
            capacities: capacities.map_err(|error| says::error(&error)),
            policies: live::read(client).await.map(|live| policies::states(&live)),
            unseen_configs: beside::unseen_configs(client, identity).await,
        }
    }
}

fn leader(found: anyhow::Result<Leader>) -> Result<String, String> {
    let leader = found.map_err(|error| format!("whether anybody leads is not known: {}", says::causes(&error)))?;
    match (leader.missing, leader.holder) {
        (Some(missing), _) => Err(format!("nobody leads: {}; {}", missing.detail, missing.remedy)),
        (None, holder) => Ok(format!("{} leads", holder.unwrap_or_default())),
    }
}

/// All that `status` shows.
#[derive(Clone, Copy)]
pub(super) struct Shown<'a> {
    pub(super) identity: &'a Identity,
    pub(super) surroundings: &'a Surroundings,
    pub(super) overview: &'a Overview,
    /// The claims that are not bound, and are in other namespaces than the usual one.
    pub(super) elsewhere: usize,
    /// Why the Jobs could not be listed.
    pub(super) without_jobs: Option<&'a str>,
    /// The class, if the overview is of one.
    pub(super) class: Option<&'a str>,
}
