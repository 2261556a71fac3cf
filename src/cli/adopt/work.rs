//! What `adopt` knows while it works, and its runs.

use std::collections::BTreeMap;
use std::sync::Arc;

use flex_contract::request::{Operation, RunRequest};
use kube::Client;

use super::places::{self, Places};
use crate::api::writes::Writes;
use crate::cli::job::finished;
use crate::clock::Clock;
use crate::config::Recipe;
use crate::config::classes::Identity;
use crate::model::volume::{Provenance, Volume};
use crate::object::ObjectName;
use crate::run::move_in::move_in;
use crate::run::script::{Texts, complete};
use crate::state::index::Index;
use crate::volume::request::request;

/// The data of one call of the command.
pub(in crate::cli) struct Work {
    pub client: Client,
    pub identity: Identity,
    pub kube_api: String,
    pub index: Index,
    pub places: Places,
    pub scripts: BTreeMap<String, Arc<str>>,
    pub writes: Writes,
    pub config: ObjectName,
}

impl Work {
    /// Lets the image look at the storage of a volume, or forget it.
    ///
    /// # Errors
    /// If the run fails. The text says why.
    pub async fn run(&self, operation: Operation, volume: &Volume, id: &str, of: &Provenance) -> Result<(), String> {
        let recipe = of.record.recipe().map_err(|problems| crate::config::joined(&problems))?;
        let source = places::source(&self.client, &volume.name).await.map_err(|error| format!("{error:#}"))?;
        let ts = Clock::default().wall().to_string();
        let made = request(volume, &of.node, &recipe, &self.identity, &self.kube_api, (1, ts), source);
        let path = of.moved_in.as_ref().map(|moved_in| moved_in.path.clone()).unwrap_or_default();
        self.start(&recipe, RunRequest { operation, claim_uuid: id.to_owned(), moved_in_path: path, ..made }).await
    }

    /// Starts a run and follows it to its end.
    ///
    /// # Errors
    /// If the run fails. The text says why.
    pub async fn start(&self, recipe: &Recipe, request: RunRequest) -> Result<(), String> {
        let mut job = move_in(recipe, &request);
        let script = recipe.script.as_ref().and_then(|hash| self.scripts.get(hash)).map(|text| &**text);
        complete(&mut job, recipe, Texts { script, shell_image: self.identity.shell_image.as_deref() })?;
        finished(&self.client, recipe, job, async |_, _| Ok(())).await
    }
}
