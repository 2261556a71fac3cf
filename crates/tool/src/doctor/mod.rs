//! `doctor`: finds orphaned and stuck objects, and says what to do about each.

mod list;

use std::collections::HashSet;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::Context as _;
use clap::Args;
use flex_core::config::classes::Identity;
use flex_core::config::keys;
use flex_core::findings::backend::{Listing, compare, views};
use flex_core::findings::{Finding, Removal, Searched, Severity, find, sort};
use flex_core::object::is_dns_name;
use flex_core::volume::place::written;
use flex_provisioner::api::client::Connection;
use flex_provisioner::api::policies;
use flex_provisioner::api::writes::{Binding, Writes};
use flex_provisioner::clock::Clock;
use flex_provisioner::reconcile::findings::remove;
use flex_provisioner::state::index::Index;
use k8s_openapi::api::core::v1::ServiceAccount;
use kube::{Api, Client};
use serde_json::json;

use crate::cluster::Cluster;
use crate::collect;
use crate::each::each;
use crate::flags::Output;
use crate::leader;
use crate::name::told;
use crate::namespaces::UserNamespaces;
use crate::out::say;
use crate::places::places;

/// The exit code if there is no problem. Findings that are only information do not count.
const FOUND_NOTHING: u8 = 0;
/// The exit code if somebody must act.
const FOUND: u8 = 2;
/// The exit code if data is lost, or if no orchestrator leads.
const FOUND_ERRORS: u8 = 3;

#[derive(Debug, Args)]
pub(super) struct DoctorArgs {
    #[command(flatten)]
    cluster: Cluster,
    #[command(flatten)]
    namespaces: UserNamespaces,
    /// The form of the output.
    #[arg(short, long, value_enum, default_value = "table")]
    output: Output,
    /// Delete objects that are provably the orchestrator's and that nothing can need. Also vouch for restored volumes
    /// whose record agrees with their class.
    #[arg(long)]
    fix: bool,
    /// List the backends too: starts a Job for each class (and node) whose config has `capabilities: list`.
    #[arg(long)]
    backend: bool,
    /// Check each finding again after this time, and print it only if it remains.
    #[arg(long, default_value = "3s", value_parser = flex_core::config::values::duration)]
    confirm_after: Duration,
}

/// A finding, and the result of fixing it.
struct ReportedFinding {
    finding: Finding,
    removed: bool,
}

pub(super) fn doctor(args: DoctorArgs) -> anyhow::Result<ExitCode> {
    let DoctorArgs { cluster, namespaces, output, fix, backend, confirm_after } = args;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let (reported, failed, listings, now) = runtime.block_on(async {
        let (Connection { client, address: kube_api, clock, .. }, identity) = cluster.open().await?;
        let mut findings = confirmed(&client, &identity, &clock, confirm_after).await?;
        if namespaces.chosen().is_none() {
            findings.extend(missing_policies(&client).await?);
            findings.extend(missing_accounts(&client, &identity).await?);
        }
        let mut listings = Vec::new();
        if backend {
            let index = collect::index(&client, &identity, &clock).await?;
            let others = index.observe(&identity, clock.now(), true);
            let before = Searched { objects: &index, others: &others };
            listings =
                list::all(&client, &identity, &kube_api, &views(before), &collect::scripts(&client, &identity).await?)
                    .await?;
            let index = collect::index(&client, &identity, &clock).await?;
            let others = index.observe(&identity, clock.now(), true);
            let after = Searched { objects: &index, others: &others };
            let places = written(&places(&client).await?);
            findings.extend(compare(before, after, &listings, &places));
        }
        findings.retain(|finding| namespaces.has(&finding.object.name.namespace));
        // Without a leader, nobody works in any namespace.
        findings.extend(leader::read(&client, &identity, &clock).await?.missing);
        sort(&mut findings);
        let (reported, failed) = match fix {
            true => fixed(&client, &identity, findings).await?,
            false => (without_fixes(findings), Ok(())),
        };
        anyhow::Ok((reported, failed, listings, clock.now()))
    })?;
    match output.document(|| to_json(&reported, &listings))? {
        Some(document) => say!("{document}"),
        None => print(&reported, &listings, now),
    }
    failed?;
    let worst = reported.iter().filter(|reported| !reported.removed).map(|reported| reported.finding.severity).max();
    Ok(ExitCode::from(match worst {
        None | Some(Severity::Info) => FOUND_NOTHING,
        Some(Severity::Warning) => FOUND,
        Some(Severity::Error) => FOUND_ERRORS,
    }))
}

/// Returns what a search of the objects in an index finds. Work in progress may be among it.
///
/// # Errors
/// If the leader, the policies or the accounts cannot be read.
pub(super) async fn findings(
    index: &Index,
    client: &Client,
    identity: &Identity,
    clock: &Clock,
) -> anyhow::Result<Vec<Finding>> {
    let mut findings = find_in(index, identity, clock);
    findings.extend(leader::read(client, identity, clock).await?.missing);
    findings.extend(missing_policies(client).await?);
    findings.extend(missing_accounts(client, identity).await?);
    sort(&mut findings);
    Ok(findings)
}

fn find_in(index: &Index, identity: &Identity, clock: &Clock) -> Vec<Finding> {
    let others = index.observe(identity, clock.now(), true);
    find(Searched { objects: index, others: &others }, clock.now())
}

/// Returns the findings that remain after a while. Work that was in progress has ended by then.
async fn confirmed(
    client: &Client,
    identity: &Identity,
    clock: &Clock,
    after: Duration,
) -> anyhow::Result<Vec<Finding>> {
    let first = find_in(&collect::index(client, identity, clock).await?, identity, clock);
    if first.is_empty() {
        return Ok(first);
    }
    tokio::time::sleep(after).await;
    let before: HashSet<_> = first.into_iter().map(|finding| (finding.kind, finding.object)).collect();
    let mut second = find_in(&collect::index(client, identity, clock).await?, identity, clock);
    second.retain(|finding| before.contains(&(finding.kind, finding.object.clone())));
    Ok(second)
}

/// Returns configs whose ServiceAccount does not exist. Returns none if the accounts cannot be read.
async fn missing_accounts(client: &Client, identity: &Identity) -> anyhow::Result<Vec<Finding>> {
    let mut found = Vec::new();
    for config in collect::configs(client, identity).await?.into_iter().filter(|config| config.is_for(identity)) {
        let named = config.data.get(keys::SERVICE_ACCOUNT_NAME.name).map(|name| name.trim());
        let Some(account) = named.filter(|name| is_dns_name(name)) else { continue };
        let accounts: Api<ServiceAccount> = Api::namespaced(client.clone(), &config.name.namespace);
        match accounts.get_metadata_opt(account).await {
            Ok(None) => found.push(Finding::without_account(config.name.clone(), account)),
            Ok(Some(_)) => {}
            Err(kube::Error::Api(status)) if status.code == 403 => {}
            Err(error) => {
                return Err(error).with_context(|| format!("ServiceAccount {}/{account}", config.name.namespace));
            }
        }
    }
    Ok(found)
}

/// Returns admission policies that have no effect, and the features that are off without them.
async fn missing_policies(client: &Client) -> anyhow::Result<Vec<Finding>> {
    let live = policies::read(client).await.map_err(anyhow::Error::msg)?;
    let states = flex_core::policies::states(&live);
    Ok(states.iter().filter_map(|checked| Finding::of_policy(checked.policy, &checked.state)).collect())
}

fn without_fixes(findings: Vec<Finding>) -> Vec<ReportedFinding> {
    findings.into_iter().map(|finding| ReportedFinding { finding, removed: false }).collect()
}

/// Fixes the findings that have a safe fix. Each fix asks the API once more before. Returns also why fixes have failed.
async fn fixed(
    client: &Client,
    identity: &Identity,
    findings: Vec<Finding>,
) -> anyhow::Result<(Vec<ReportedFinding>, anyhow::Result<()>)> {
    let writes = Writes::new(client.clone(), identity.clone(), Binding::Direct);
    let claims = writes.claim_ids().await?;
    let mut reported = Vec::new();
    let failed = each(findings, async |finding| {
        let removed = remove(&writes, &finding, &claims).await;
        let what = format!("removing {}", finding.object);
        reported.push(ReportedFinding { finding, removed: matches!(removed, Ok(true)) });
        removed.map(drop).context(what)
    })
    .await;
    Ok((reported, failed))
}

fn print(reported: &[ReportedFinding], listings: &[Listing], now: i64) {
    for listing in listings {
        let on = listing.node.as_ref().map(|node| format!(" on node {node}")).unwrap_or_default();
        match &listing.entries {
            Ok(entries) => say!("class {}{on}: {} on the backend", listing.class, entries.len()),
            Err(_) => say!("class {}{on}: not listed", listing.class),
        }
    }
    for reported in reported {
        say!("{}", described(reported, now));
    }
    let count = |severity| reported.iter().filter(|reported| reported.finding.severity == severity).count();
    say!(
        "{} found: {} errors, {} warnings, {} worth knowing; {} removed or vouched for",
        reported.len(),
        count(Severity::Error),
        count(Severity::Warning),
        count(Severity::Info),
        reported.iter().filter(|reported| reported.removed).count()
    );
}

/// Returns the lines about a finding: the object, the problem, and what to do. Each text has names and handles that
/// others chose, and so no line ends of its own.
fn described(ReportedFinding { finding, removed }: &ReportedFinding, now: i64) -> String {
    let Finding { kind, severity, meaning, object, since, detail, remedy, removal } = finding;
    let severity = format!("{severity:?}").to_lowercase();
    let since = since.map(|since| format!(", for {} min", (now - since).max(0) / 60)).unwrap_or_default();
    let (object, detail, remedy) = (told(&object.to_string()), told(detail), told(remedy));
    let ending = match (removed, removal) {
        (true, Some(Removal::Vouch)) => "vouched for".to_owned(),
        (false, Some(Removal::Vouch)) => {
            format!("to confirm (--fix), unless another cluster uses its storage: {remedy}")
        }
        (true, _) => "removed".to_owned(),
        (false, Some(_)) => format!("safe to remove (--fix): {remedy}"),
        (false, None) => format!("what to do: {remedy}"),
    };
    format!("{severity}: {kind}: {object}{since}\n    {meaning}: {detail}\n    {ending}")
}

fn to_json(reported: &[ReportedFinding], listings: &[Listing]) -> serde_json::Value {
    let findings: Vec<_> = reported
        .iter()
        .map(|ReportedFinding { finding, removed }| {
            let mut value = json!(finding);
            value["removed"] = json!(removed);
            value
        })
        .collect();
    let listings: Vec<_> = listings
        .iter()
        .map(|listing| {
            let (entries, error) = (listing.entries.as_ref().ok(), listing.entries.as_ref().err());
            json!({ "class": listing.class, "node": listing.node, "entries": entries, "error": error })
        })
        .collect();
    json!({ "findings": findings, "listings": listings })
}

#[cfg(test)]
mod tests {
    use flex_core::findings::FindingKind;
    use flex_core::model::object_ref::ObjectRef;
    use flex_core::object::ObjectName;

    use super::*;

    #[test]
    fn no_text_in_a_finding_forges_a_line() {
        let forged = "a\nerror: all is lost\u{1b}[2J\u{202e}";
        for removal in [None, Some(Removal::Vouch), Some(Removal::OldJob)] {
            let name = ObjectName::new("", forged);
            let finding = Finding {
                kind: FindingKind::FinalizerLeft,
                severity: Severity::Warning,
                meaning: "",
                object: ObjectRef { kind: "PersistentVolume", name, uid: String::new() },
                since: Some(0),
                detail: forged.into(),
                remedy: forged.into(),
                removal,
            };
            let text = described(&ReportedFinding { finding, removed: false }, 60);
            assert_eq!(text.lines().count(), 3, "{text}");
            assert!(!text.contains(|c: char| (c.is_control() && c != '\n') || c == '\u{202e}'), "{text:?}");
        }
    }
}
