//! Candidates that the cluster knows: classes, claims and namespaces.

use std::cell::RefCell;
use std::ffi::OsStr;
use std::time::Duration;

use clap_complete::CompletionCandidate;
use flex_provisioner::api::client::Connection;
use flex_provisioner::api::pages;
use k8s_openapi::api::core::v1::{Namespace, PersistentVolume, PersistentVolumeClaim};
use kube::Api;
use kube::ResourceExt as _;
use kube::api::ListParams;

use super::line::Line;
use crate::contexts::matching;
use crate::kind::Kind;
use crate::{beside, collect};

/// The longest time for candidates. Nobody waits longer for the answer to a key.
const TIMEOUT: Duration = Duration::from_secs(3);

thread_local! {
    /// The words before the unfinished one. The library that asks for candidates does not pass them on.
    static LINE: RefCell<Line> = RefCell::default();
}

/// Takes the words before the unfinished one.
pub(super) fn complete_for(line: Line) {
    LINE.set(line);
}

/// Returns the classes of the orchestrator.
pub(crate) fn classes(begun: &OsStr) -> Vec<CompletionCandidate> {
    answered(begun, async |line| {
        let (Connection { client, .. }, identity) = line.cluster.unwrap_or_default().open().await?;
        let classes = beside::classes(&client, &identity).await?;
        Ok(classes.iter().map(|class| class.name.clone()).collect())
    })
}

/// Returns the claims of the chosen namespace, or of the namespace that the word begins with; or the volumes, if it
/// begins with their kind.
pub(crate) fn claims(begun: &OsStr) -> Vec<CompletionCandidate> {
    let named = begun.to_str().and_then(|begun| begun.split_once('/')).map(|(namespace, _)| namespace.to_owned());
    answered(begun, async move |line| {
        let Connection { client, namespace, .. } = line.cluster.unwrap_or_default().connect().await?;
        let chosen = line.namespace.unwrap_or(namespace);
        let prefix = named.as_ref().map(|named| format!("{named}/")).unwrap_or_default();
        let namespace = match named {
            Some(word) => match Kind::read(&word) {
                Some(Kind::Volume) => {
                    let all = pages::names(&Api::<PersistentVolume>::all(client), ListParams::default()).await?;
                    return Ok(all.iter().map(|volume| format!("{prefix}{volume}")).collect());
                }
                Some(Kind::Claim) => chosen,
                None => word,
            },
            None => chosen,
        };
        let api: Api<PersistentVolumeClaim> = Api::namespaced(client, &namespace);
        let all = pages::names(&api, ListParams::default()).await?;
        Ok(all.iter().map(|claim| format!("{prefix}{claim}")).collect())
    })
}

/// Returns the namespaces of the cluster.
pub(crate) fn namespaces(begun: &OsStr) -> Vec<CompletionCandidate> {
    answered(begun, async |line| {
        let Connection { client, .. } = line.cluster.unwrap_or_default().connect().await?;
        let all = collect::all::<Namespace>(Api::all(client), "").await?;
        Ok(all.iter().map(|namespace| namespace.name_any()).collect())
    })
}

/// Asks the cluster for names. Without an answer in time, there are no candidates: nobody reads an error at this moment.
fn answered(begun: &OsStr, ask: impl AsyncFnOnce(Line) -> anyhow::Result<Vec<String>>) -> Vec<CompletionCandidate> {
    let Ok(runtime) = tokio::runtime::Builder::new_current_thread().enable_all().build() else { return Vec::new() };
    let line = LINE.with_borrow(Clone::clone);
    let names = runtime.block_on(async { tokio::time::timeout(TIMEOUT, ask(line)).await });
    matching(begun, names.ok().and_then(Result::ok).unwrap_or_default())
}
