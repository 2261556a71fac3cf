//! `replay`: what the orchestrator would decide about each object, and by which rule.

use std::process::ExitCode;

use clap::Args;
use flex_core::config::classes::Identity;
use flex_core::text::line;
use flex_provisioner::age::age;
use flex_provisioner::api::client::Connection;
use flex_provisioner::api::events::{EventRecorder, Reporter};
use flex_provisioner::api::fence::Fence;
use flex_provisioner::api::writes::{Binding, Writes};
use flex_provisioner::clock::Clock;
use flex_provisioner::metrics::Metrics;
use flex_provisioner::reconcile::Context;
use flex_provisioner::reconcile::replay::{ReplayedDecision, decisions};
use flex_provisioner::state::ClusterState;
use flex_provisioner::state::index::Index;
use kube::Client;
use serde_json::{Value, json};

use crate::cluster::Cluster;
use crate::collect;
use crate::flags::Output;
use crate::name::told;
use crate::out::say;

#[derive(Debug, Args)]
pub(crate) struct ReplayArgs {
    /// Show only objects whose name contains this text.
    about: Option<String>,
    /// Show also the objects for which nothing is to be done.
    #[arg(long)]
    all: bool,
    /// The form of the output.
    #[arg(short, long, value_enum, default_value = "table")]
    output: Output,
    #[command(flatten)]
    cluster: Cluster,
}

pub(crate) fn replay(args: ReplayArgs) -> anyhow::Result<ExitCode> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let (decided, now) = runtime.block_on(async {
        let (Connection { client, address, clock, .. }, identity) = args.cluster.open().await?;
        let index = collect::whole(&client, &identity, &clock).await?;
        anyhow::Ok((decided(index, &client, &identity, &address, &clock).await?, clock.now()))
    })?;
    let total = decided.len();
    let shown: Vec<_> = decided.into_iter().filter(|one| is_shown(one, args.about.as_deref(), args.all)).collect();
    match args.output.document(|| to_json(&shown))? {
        Some(document) => say!("{document}"),
        None => say!("{}", text(&shown, total, now).trim_end()),
    }
    Ok(ExitCode::SUCCESS)
}

/// Returns the decisions about all objects of an index. Nothing is written.
///
/// # Errors
/// If the writer of events has failed. It has nothing to write.
pub(super) async fn decided(
    index: Index,
    client: &Client,
    identity: &Identity,
    address: &str,
    clock: &Clock,
) -> anyhow::Result<Vec<ReplayedDecision>> {
    let cluster = ClusterState::new(identity.clone(), clock.clone());
    *cluster.index_mut() = index;
    // A fence that nobody opens: even a fault could not write.
    let fenced = Fence::default().client(client);
    let (events, writer) =
        EventRecorder::start(fenced.clone(), Reporter::new(&identity.provisioner, "replay"), clock.clone());
    let writes = Writes::new(fenced, identity.clone(), Binding::Direct).with_cache(&cluster);
    let metrics = Metrics::default();
    let context = Context::new(identity.clone(), cluster, writes, events, metrics, address.to_owned(), clock.clone());
    let decided = decisions(&context);
    context.events.close();
    writer.await?;
    Ok(decided)
}

fn is_shown(decision: &ReplayedDecision, about: Option<&str>, all: bool) -> bool {
    let is_idle = decision.step.is_none() && decision.event.is_none() && decision.requeue_at.is_none();
    about.is_none_or(|text| decision.about.contains(text)) && (all || about.is_some() || !is_idle)
}

/// Returns the decisions as text, with times relative to `now`, in seconds since 1970. `total` is the number of all
/// decisions.
pub(super) fn text(decisions: &[ReplayedDecision], total: usize, now: i64) -> String {
    let mut lines = Vec::new();
    for ReplayedDecision { about, rule, run, documentation, step, event, requeue_at, .. } in decisions {
        let run = run.map(|run| format!(" ({run})")).unwrap_or_default();
        lines.push(format!("{}: {rule}{run}", line(about, usize::MAX)));
        lines.push(format!("    rule: {}", documentation.split_whitespace().collect::<Vec<_>>().join(" ")));
        lines.extend(step.as_ref().map(|step| format!("    step: {}", line(step, usize::MAX))));
        lines.extend(event.as_ref().map(|event| {
            let kind = if event.warning { "Warning" } else { "Normal" };
            format!("    event: {kind} {}: {}", event.reason.name, told(&event.message))
        }));
        lines.extend(requeue_at.map(|at| format!("    again: in {}", age(at - now))));
    }
    let rest = total - decisions.len();
    lines.push(format!("{} decisions shown; {rest} others not shown (--all)", decisions.len()));
    lines.join("\n") + "\n"
}

fn to_json(decisions: &[ReplayedDecision]) -> Value {
    let decisions = decisions.iter().map(|decision| {
        let event = decision.event.as_ref();
        json!({
            "object": decision.object,
            "about": decision.about,
            "rule": decision.rule,
            "run": decision.run,
            "documentation": decision.documentation,
            "step": decision.step,
            "event": event.map(|event| json!({
                "warning": event.warning, "reason": event.reason.name, "message": event.message,
            })),
            "againAt": decision.requeue_at,
        })
    });
    json!({ "decisions": decisions.collect::<Vec<_>>() })
}

#[cfg(test)]
mod tests {
    use flex_contract::reason;
    use flex_core::rules::NewEvent;

    use super::*;

    fn decision(about: &str, step: Option<&str>) -> ReplayedDecision {
        ReplayedDecision {
            object: "claim",
            about: about.into(),
            rule: "RunDue",
            run: Some("storage"),
            documentation: "An attempt\nis due. Starts it.",
            step: step.map(str::to_owned),
            event: None,
            requeue_at: None,
        }
    }

    #[test]
    fn idle_decisions_are_shown_only_when_asked_for() {
        let (busy, idle) = (decision("claim team/a", Some("StartRun")), decision("claim team/b", None));
        assert!(is_shown(&busy, None, false) && !is_shown(&idle, None, false));
        assert!(is_shown(&idle, None, true) && is_shown(&idle, Some("team/b"), false));
        assert!(!is_shown(&busy, Some("team/b"), true));
    }

    #[test]
    fn a_decision_is_told_with_its_rule_step_event_and_time() {
        let event = NewEvent { warning: true, reason: reason::PROVISIONING_FAILED, message: "no\nroom".into() };
        let told = ReplayedDecision {
            event: Some(event),
            requeue_at: Some(130),
            ..decision("claim team/a", Some("StartRun"))
        };
        let expected = "claim team/a: RunDue (storage)\n    rule: An attempt is due. Starts it.\n    step: StartRun\n    event: Warning ProvisioningFailed: no\\nroom\n    again: in 30s\n1 decisions shown; 2 others not shown (--all)\n";
        assert_eq!(text(&[told], 3, 100), expected);
    }
}
