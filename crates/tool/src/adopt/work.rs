//! The state of an `adopt` command, and its runs.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::Context as _;
use flex_contract::operation::Operation;
use flex_contract::request::RunRequest;
use flex_core::config::Recipe;
use flex_core::config::classes::Identity;
use flex_core::model::claim::Claim;
use flex_core::model::volume::{Provenance, Volume};
use flex_core::object::ObjectName;
use flex_core::run::move_in::move_in;
use flex_core::run::node::Node;
use flex_core::run::request::AttemptStart;
use flex_core::run::script::{Texts, complete};
use flex_core::volume::move_out::{Dependents, MovingOut};
use flex_core::volume::place::Places;
use flex_core::volume::request::request;
use flex_provisioner::api::writes::Writes;
use flex_provisioner::api::{lease, says};
use flex_provisioner::clock::Clock;
use flex_provisioner::state::index::Index;
use k8s_openapi::api::coordination::v1::Lease;
use kube::{Api, Client};

use crate::job::{RunFailure, finished};
use crate::places::{places, recipe, source};

/// The time that a replica takes to lead after the term of its predecessor.
const LEADER_START: Duration = Duration::from_secs(5);
/// The delay between two reads of the Lease while none leads.
const LEADER_POLL: Duration = Duration::from_secs(1);

/// The data of one call of the command.
pub(crate) struct Work {
    pub client: Client,
    pub identity: Identity,
    pub kube_api: String,
    pub index: Index,
    pub nodes: Vec<Arc<Node>>,
    pub places: Places,
    pub scripts: BTreeMap<String, Arc<str>>,
    pub writes: Writes,
    pub config: ObjectName,
    /// The namespace of the kubeconfig's context.
    pub of_context: String,
}

/// A volume and its surroundings, as the API has them at this moment.
pub(crate) struct Fresh {
    pub volume: Volume,
    pub claim: Option<Claim>,
    pub places: Places,
}

impl Work {
    /// Checks that the orchestrator that leads has the version of this command. If none leads, as during an upgrade, waits
    /// until the next one has had the time to begin.
    pub async fn verify_version(&self) -> anyhow::Result<()> {
        let name = self.identity.lease();
        let leases: Api<Lease> = Api::namespaced(self.client.clone(), &name.namespace);
        let deadline = Instant::now() + lease::TERM + LEADER_START;
        loop {
            let lease = leases.get_opt(&name.name).await.with_context(|| format!("Lease {name}"))?;
            if lease::leader(lease.as_ref()).is_none() && Instant::now() < deadline {
                tokio::time::sleep(LEADER_POLL).await;
                continue;
            }
            return lease::verify_version(lease.as_ref()).map_err(anyhow::Error::msg);
        }
    }

    /// Reads a volume, its claim and the places of all volumes again. A run took a while, and each write rests on what
    /// holds now.
    pub async fn fresh(&self, name: &str) -> Result<Fresh, String> {
        let volume = self.writes.read_volume(name).await.map_err(|error| error.to_string())?;
        let volume = volume.ok_or("it was deleted meanwhile")?;
        let claim = match &volume.claim_ref {
            Some(reference) => self.writes.read_claim(&reference.name).await.map_err(|error| error.to_string())?,
            None => None,
        };
        let places = places(&self.client).await.map_err(|error| says::causes(&error))?;
        Ok(Fresh { volume, claim, places })
    }

    /// Returns the claim that a volume names, as it was when the command began.
    pub fn claim_of(&self, volume: &Volume) -> Option<Arc<Claim>> {
        self.index.claim(&volume.claim_ref.as_ref()?.name)
    }

    /// Returns the result of a check for a volume that is to move out.
    pub fn moving_out(
        &self,
        volume: &Volume,
        claim: Option<&Claim>,
        check: impl FnOnce(&Dependents<'_>) -> Result<MovingOut, String>,
    ) -> Result<MovingOut, String> {
        let contents: Vec<_> = self.index.contents().map(AsRef::as_ref).collect();
        let jobs = self.index.jobs_of(volume.volume_id().unwrap_or_default());
        let jobs: Vec<_> = jobs.iter().map(AsRef::as_ref).collect();
        let classes = self.index.classes();
        check(&Dependents {
            claim,
            contents: &contents,
            jobs: &jobs,
            place: self.places.get(&volume.name),
            recipe: recipe(&classes, &self.config, &volume.class),
            nodes: &self.nodes,
            config: &self.config,
        })
    }

    /// Lets the image forget a volume that moves out. From then on the volume has no mark, and the orchestrator does
    /// nothing with it.
    pub async fn forget(&self, volume: &Volume, moving_out: &MovingOut) -> Result<Volume, String> {
        let unmarked = match moving_out.is_confirmed {
            true => self.writes.remove_adoption_mark(volume).await.map_err(|error| error.to_string())?,
            false => volume.clone(),
        };
        let Err(failure) = self.run(Operation::MoveOut, &unmarked, &moving_out.id, &moving_out.provenance).await else {
            return Ok(unmarked);
        };
        let why = failure.message;
        if failure.has_begun || !moving_out.is_confirmed {
            return Err(format!(
                "{why}; its record is there, its mark is not: run this command again, or the same without --undo"
            ));
        }
        match self.writes.confirm_move(&unmarked).await {
            Ok(_) => Err(format!("{why}; nothing has changed")),
            Err(error) => Err(format!(
                "{why}; its mark could not be written again ({error}): run this command again, or the same without --undo"
            )),
        }
    }

    /// Lets the image look at the storage of a volume, or forget it.
    ///
    /// # Errors
    /// If the run fails.
    pub async fn run(
        &self,
        operation: Operation,
        volume: &Volume,
        id: &str,
        of: &Provenance,
    ) -> Result<(), RunFailure> {
        let recipe =
            of.effective_config.recipe().map_err(|problems| RunFailure::early(flex_core::config::joined(&problems)))?;
        let source = source(&self.client, &volume.name).await;
        let source = source.map_err(|error| RunFailure::early(says::causes(&error)))?;
        let start = AttemptStart { attempt: 1, ts: Clock::default().wall().to_string() };
        let made = request(volume, of.origin_node.as_deref(), &recipe, &self.identity, &self.kube_api, start, source);
        let path = of.moved_in.as_ref().map(|moved_in| moved_in.path.clone()).unwrap_or_default();
        self.start(&recipe, RunRequest { operation, volume_id: id.to_owned(), moved_in_path: path, ..made }).await
    }

    /// Starts a run and follows it to its end.
    ///
    /// # Errors
    /// If the run fails.
    pub async fn start(&self, recipe: &Recipe, request: RunRequest) -> Result<(), RunFailure> {
        let mut job = move_in(recipe, &request);
        let script = recipe.script.as_ref().and_then(|hash| self.scripts.get(hash)).map(|text| &**text);
        let texts = Texts { script, shell_image: self.identity.shell_image.as_deref() };
        complete(&mut job, recipe, texts).map_err(RunFailure::early)?;
        finished(&self.client, recipe, job, async |_, _| Ok(())).await
    }
}
