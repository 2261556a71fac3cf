//! Asks the orchestrator that leads for the overview, over one connection.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::{Context as _, bail, ensure};
use flex_core::config::classes::{ClassLookup, Identity};
use flex_provisioner::clock::Clock;
use flex_provisioner::overview::{OVERVIEW_PATH, Overview};
use http::{Request, StatusCode, header};
use http_body_util::{BodyExt, Empty, Limited};
use hyper::body::Bytes;
use hyper::client::conn::http1::{SendRequest, handshake};
use hyper_util::rt::TokioIo;
use kube::Client;

use super::args::StatusArgs;
use crate::collect;
use crate::forward::{forward, leading_pod};

/// The longest time for one answer, with the way to the page.
const ANSWERS_WITHIN: Duration = Duration::from_secs(5);
/// The time for which the last overview is shown while the orchestrator does not answer: another one begins to lead.
const PATIENCE: Duration = Duration::from_secs(30);
/// The largest answer, in bytes. An answer has 100 claims, and one line for each class and each failed volume.
const MAX_ANSWER: usize = 64 << 20;
/// The longest message about an answer. Somebody else may have written a part of it.
pub(super) const MAX_MESSAGE: usize = 500;

/// A connection to the status page of the leader.
pub(super) struct Asked {
    client: Client,
    identity: Identity,
    clock: Clock,
    port: u16,
    class: Option<String>,
    requests: SendRequest<Empty<Bytes>>,
    /// The parameters of the class that is shown. The page does not tell them.
    parameters: BTreeMap<String, String>,
    /// The last answer.
    pub(super) last: Overview,
    /// The time of the last answer, or of the last vain search for another source.
    answered: Duration,
}

impl Asked {
    /// Finds the leader, and asks it for the first time.
    ///
    /// # Errors
    /// If nobody leads or answers, or if the user may not ask.
    pub(super) async fn open(
        client: &Client,
        identity: &Identity,
        clock: &Clock,
        args: &StatusArgs,
    ) -> anyhow::Result<Self> {
        let (client, identity, clock) = (client.clone(), identity.clone(), clock.clone());
        let (port, class) = (args.status_port.status_port, args.class.clone());
        let requests = within(connect(&client, &identity, port)).await?;
        let (parameters, last, answered) = (BTreeMap::new(), Overview::default(), clock.passed());
        let mut asked = Asked { client, identity, clock, port, class, requests, parameters, last, answered };
        asked.reread().await;
        let first = within(asked.ask()).await?;
        asked.take(first);
        Ok(asked)
    }

    /// Reads again what the page does not tell: the parameters of the class that is shown. An error leaves the former.
    pub(super) async fn reread(&mut self) {
        let Some(class) = self.class.as_deref() else { return };
        let classes = within(collect::classes(&self.client, &self.identity, &self.clock)).await;
        let Ok(classes) = classes.inspect_err(|error| tracing::debug!("{error:#}")) else { return };
        if let ClassLookup::Ours(class) = classes.lookup(class) {
            let parameters = class.recipe.as_ref().map(|recipe| recipe.parameters.clone());
            self.parameters = parameters.unwrap_or_default();
        }
    }

    /// Asks again. If there is no answer, perhaps another one leads now; until it answers, the last answer stays for a
    /// while.
    ///
    /// # Errors
    /// If nobody has answered for [`PATIENCE`].
    pub(super) async fn overview(&mut self) -> anyhow::Result<()> {
        let answer = match within(self.ask()).await {
            Ok(overview) => Ok(overview),
            Err(_) => self.ask_anew().await,
        };
        match answer {
            Ok(overview) => {
                self.take(overview);
                Ok(())
            }
            Err(_) if self.clock.since(self.answered) < PATIENCE => Ok(()),
            Err(why) => Err(why),
        }
    }

    /// Begins another time of patience, because there is no other source.
    pub(super) fn go_on(&mut self) {
        self.answered = self.clock.passed();
    }

    fn take(&mut self, mut overview: Overview) {
        let recipes = overview.classes.iter_mut().filter_map(|class| class.recipe.as_mut().ok());
        recipes.for_each(|recipe| recipe.parameters.clone_from(&self.parameters));
        (self.last, self.answered) = (overview, self.clock.passed());
    }

    /// Finds the leader again, and asks it.
    async fn ask_anew(&mut self) -> anyhow::Result<Overview> {
        self.requests = within(connect(&self.client, &self.identity, self.port)).await?;
        within(self.ask()).await
    }

    /// Returns the client, the orchestrator and the clock of the connection.
    pub(super) fn connection(&self) -> (Client, Identity, Clock) {
        (self.client.clone(), self.identity.clone(), self.clock.clone())
    }

    async fn ask(&mut self) -> anyhow::Result<Overview> {
        self.requests.ready().await.context("the connection has ended")?;
        let path = match &self.class {
            Some(class) => format!("{OVERVIEW_PATH}/{class}"),
            None => OVERVIEW_PATH.to_owned(),
        };
        let request = Request::get(&path).header(header::HOST, "localhost").body(Empty::new())?;
        let answer = self.requests.send_request(request).await.context("the connection has ended")?;
        match answer.status() {
            StatusCode::OK => {}
            StatusCode::NOT_FOUND => {
                bail!("the orchestrator does not serve the class, or is of a version without the overview")
            }
            status => bail!("the orchestrator does not tell the overview: {status}"),
        }
        let body = Limited::new(answer.into_body(), MAX_ANSWER).collect().await;
        let body = body.map_err(|error| anyhow::anyhow!("the answer cannot be read: {error}"))?.to_bytes();
        let overview: Overview = serde_json::from_slice(&body).context("the orchestrator is of another version")?;
        let is_asked_for = |name: &String| self.class.as_ref().is_none_or(|class| class == name);
        ensure!(overview.classes.iter().all(|class| is_asked_for(&class.name)), "the answer is about another class");
        Ok(overview)
    }
}

/// Connects with the status page of the leader.
async fn connect(client: &Client, identity: &Identity, port: u16) -> anyhow::Result<SendRequest<Empty<Bytes>>> {
    let Some(pod) = leading_pod(client, identity).await? else { bail!("nobody leads") };
    let mut forwarder = forward(client, identity, &pod, port).await?;
    let stream = forwarder.take_stream(port).context("the API server forwards no port")?;
    let (requests, connection) = handshake(TokioIo::new(stream)).await?;
    tokio::spawn(async move {
        // The forwarder lives as long as the connection. Its errors end the connection.
        let _ = connection.await;
        forwarder.abort();
    });
    Ok(requests)
}

/// Limits the time of a step.
async fn within<T>(step: impl Future<Output = anyhow::Result<T>>) -> anyhow::Result<T> {
    tokio::time::timeout(ANSWERS_WITHIN, step).await.context("no answer in time")?
}
