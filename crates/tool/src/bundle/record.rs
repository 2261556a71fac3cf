//! `support-bundle`: what a supporter needs, in one file.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;
use flex_contract::names;
use flex_core::config::classes::Identity;
use flex_core::limits;
use flex_core::text::printable;
use flex_provisioner::api::claim_events::last_occurrence;
use flex_provisioner::api::client::Connection;
use flex_provisioner::api::{pages, says};
use flex_provisioner::clock::Clock;
use flex_provisioner::state::index::Index;
use k8s_openapi::api::core::v1::{Event, Pod};
use kube::api::{ListParams, LogParams};
use kube::{Api, Client, ResourceExt};
use serde_json::json;

use super::decisions;
use crate::archive::{self, About};
use crate::cluster::{Cluster, SELECTORS};
use crate::out::say;
use crate::recording::Recording;
use crate::{collect, doctor, status, trace};

/// The number of lines of each log.
const LOG_LINES: i64 = 2000;
/// The largest number of claims whose trace can be shown from the bundle.
const TRACES: usize = 100;

/// Why an answer of the API server is not kept.
const TOO_MUCH: &str = "they are too long together";

/// The page for whoever opens the archive.
const README: &str = "\
A support bundle of the flex provisioner.

  status.txt      the classes, the claims in progress and the policies, as `status` shows them
  findings.json   what `doctor` finds
  decisions.txt   what would be decided about each object, and by which rule, as `replay` shows it
  events.txt      the events of the namespaces of configs and of the orchestrator
  logs/           with --logs: the last lines of the orchestrator's pods and of the runs
  about.json      when and where the bundle was made, and what could not be read
  answers.jsonl   the answers of the API server, from which the commands can work again:

      flex-provisioner status --bundle FILE
      flex-provisioner replay --bundle FILE

The bundle has the names of all claims, volumes and nodes, the labels of nodes and volumes, those of namespaces if a class
selects namespaces by labels, the messages of events, and the configs with their parameters and scripts: a password in a
parameter or in a script is in it. It has no Secrets, no service tokens, no values of environment variables, no commands,
probes and hooks of pods and pod templates, no properties of runs, and no labels and annotations of users on claims. Logs
have whatever an image printed.
";

#[derive(Debug, Args)]
pub(crate) struct SupportBundleArgs {
    /// The file to write [default: flex-bundle-TIME.tar.gz].
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
    /// Add the logs, whose texts come from images and may have secrets.
    #[arg(long)]
    logs: bool,
    #[command(flatten)]
    cluster: Cluster,
}

pub(crate) fn support_bundle(args: SupportBundleArgs) -> anyhow::Result<ExitCode> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let (about, path) = runtime.block_on(work(&args))?;
    for missing in &about.missing {
        say!("not in the bundle: {missing}");
    }
    say!("{} is written; read it before you send it: it has names and parameters, and no Secrets", path.display());
    Ok(ExitCode::SUCCESS)
}

async fn work(args: &SupportBundleArgs) -> anyhow::Result<(About, PathBuf)> {
    let (Connection { client, address, namespace, clock, .. }, identity) = args.cluster.open().await?;
    let recorded = clock.wall();
    let mut about = About::new(recorded, address.clone(), namespace, identity.clone());
    let recording = Recording::default();
    let client = recording.recording(&client);
    let mut pages = vec![("README.txt".to_owned(), README.to_owned())];
    let mut missing = Vec::new();
    let mut add = |name: &str, page: anyhow::Result<String>| match page {
        Ok(page) => pages.push((name.to_owned(), page)),
        Err(error) => missing.push(format!("{name}: {}", says::causes(&error))),
    };
    match status::page(&client, &identity, &clock).await {
        Ok((page, open)) => {
            add("status.txt", Ok(page));
            add("traces", Ok(open.iter().map(|claim| format!("{claim}\n")).collect()));
            for claim in open.iter().take(TRACES) {
                trace::record(&client, &identity, claim, &clock).await;
            }
        }
        Err(error) => add("status.txt", Err(error)),
    }
    match collect::whole(&client, &identity, &clock).await {
        Ok(index) => {
            add("findings.json", findings(&index, &client, &identity, &clock).await);
            add("decisions.txt", decided(index, &client, &identity, &address, &clock).await);
        }
        Err(error) => add("findings.json and decisions.txt", Err(error)),
    }
    if let Ok(version) = client.apiserver_version().await {
        add("kubernetes.txt", Ok(version.git_version));
    }
    let mut events = String::new();
    for namespace in identity.namespaces() {
        match events_of(&client, namespace).await {
            Ok(text) => events += &text,
            Err(error) => add(&format!("the events of namespace {namespace}"), Err(error.into())),
        }
    }
    add("events.txt", Ok(events));
    for namespace in identity.namespaces().into_iter().filter(|_| args.logs) {
        match logs_of(&client, namespace).await {
            Ok(logs) => logs.into_iter().for_each(|(name, log)| add(&name, log)),
            Err(error) => add(&format!("the logs of namespace {namespace}"), Err(error.into())),
        }
    }
    missing.extend(recording.left_out().into_iter().map(|request| format!("some answers to {request}: {TOO_MUCH}")));
    about.missing = missing;
    let path = args
        .output
        .clone()
        .unwrap_or_else(|| PathBuf::from(format!("flex-bundle-{}.tar.gz", recorded.strftime("%Y%m%dT%H%M%SZ"))));
    archive::write(&path, &mut about, &recording.answers(), &pages)?;
    Ok((about, path))
}

async fn findings(index: &Index, client: &Client, identity: &Identity, clock: &Clock) -> anyhow::Result<String> {
    let findings = doctor::findings(index, client, identity, clock).await?;
    Ok(serde_json::to_string_pretty(&json!(findings))?)
}

async fn decided(
    index: Index,
    client: &Client,
    identity: &Identity,
    address: &str,
    clock: &Clock,
) -> anyhow::Result<String> {
    let decided = decisions::decided(index, client, identity, address, clock).await?;
    Ok(decisions::text(&decided, decided.len(), clock.now()))
}

/// Returns the events of a namespace, the newest last.
async fn events_of(client: &Client, namespace: &str) -> kube::Result<String> {
    let events: Api<Event> = Api::namespaced(client.clone(), namespace);
    let line = |event: Event| {
        let event = &event;
        let about = &event.involved_object;
        let texts = [
            last_occurrence(event).map(|time| time.to_string()).unwrap_or_default(),
            event.type_.clone().unwrap_or_default(),
            event.reason.clone().unwrap_or_default(),
            format!("{}/{}", about.kind.as_deref().unwrap_or_default(), about.name.as_deref().unwrap_or_default()),
            event.message.clone().unwrap_or_default(),
        ];
        (last_occurrence(event), flex_core::text::line(&texts.join("  "), limits::MESSAGE) + "\n")
    };
    let mut events = pages::all(&events, ListParams::default(), line).await?;
    events.sort();
    Ok(events.into_iter().map(|(_, line)| line).collect())
}

/// Returns the last lines of the orchestrator's pods and of the runs in a namespace, each with the name of its page.
async fn logs_of(client: &Client, namespace: &str) -> kube::Result<Vec<(String, anyhow::Result<String>)>> {
    let api: Api<Pod> = Api::namespaced(client.clone(), namespace);
    let mut pods = BTreeSet::new();
    // The pods of others stay out of the bundle.
    for selector in [&[names::LABEL_INSTANCE][..], &SELECTORS].concat() {
        pods.extend(pages::all(&api, ListParams::default().labels(selector), |pod| pod.name_any()).await?);
    }
    let mut logs = Vec::new();
    for pod in pods {
        let params = LogParams { tail_lines: Some(LOG_LINES), timestamps: true, ..LogParams::default() };
        let log = api.logs(&pod, &params).await;
        let log = log.map(|log| printable(&log, usize::MAX)).map_err(anyhow::Error::from);
        logs.push((format!("logs/{namespace}-{pod}.txt"), log));
    }
    Ok(logs)
}
