//! Keeps the scripts of configs, and removes those that nobody names any more.

use std::collections::HashSet;
use std::time::Duration;

use flex_contract::reason;
use flex_core::config::script::hash;
use flex_core::kept_script::{Decision, Step, decide};
use flex_core::model::object_ref::ObjectRef;
use flex_core::object::ObjectName;
use flex_core::rules::NewEvent;

use crate::api::writes::WriteError;
use crate::reconcile::context::Context;
use crate::state::index::{ObservedScript, UsedScript};

/// The scripts that could not be kept.
pub(super) struct UnstoredScripts {
    /// Their hashes.
    pub hashes: HashSet<String>,
    /// The last error.
    pub error: Option<WriteError>,
}

/// Keeps the scripts that classes use. Returns those that cannot be kept now.
pub(super) async fn store(context: &Context) -> UnstoredScripts {
    let mut unstored = UnstoredScripts { hashes: HashSet::new(), error: None };
    let new = context.cluster.index().scripts_to_store();
    for UsedScript { config, text } in new {
        if let Err(error) = context.writes.write_script(&text).await {
            emit_unkept(context, &config, &error);
            unstored.hashes.insert(hash(&text));
            unstored.error = Some(error);
        }
    }
    unstored
}

/// Emits an event that claims of the classes wait until the script is kept.
fn emit_unkept(context: &Context, name: &ObjectName, error: &WriteError) {
    let Some(uid) = context.cluster.index().config(name).map(|config| config.uid.clone()) else { return };
    let message =
        format!("the provisioner cannot keep the script, so it serves no claim with it: {error}; it keeps trying");
    let event = NewEvent { warning: true, reason: reason::CONFIG_REFUSED, message };
    context.emit(ObjectRef { kind: "ConfigMap", name: name.clone(), uid }, event);
}

/// Removes the scripts that nobody names any more. Returns the time until the next decision.
pub(super) async fn sweep(context: &Context) -> Result<Option<Duration>, WriteError> {
    let now = context.clock.now();
    let mut next = None;
    let observed = context.cluster.index().observe_scripts();
    for ObservedScript { script, observed } in observed {
        let Decision { rule, step, requeue_at, .. } = decide(&observed, now);
        context.decided(&script.hash, rule, &step);
        let note = |since| context.cluster.index_mut().note_unnamed_script(&script.hash, since);
        match step {
            // Somebody names it.
            Step::Keep if requeue_at.is_none() => note(None),
            Step::Keep => {}
            Step::Remember => note(Some(now)),
            Step::Delete if context.writes.is_script_named(&script.hash).await? => note(None),
            Step::Delete => context.writes.delete_script(&script).await?,
        }
        let remaining = requeue_at.map(|at| Duration::from_secs(at.saturating_sub(now).max(1).unsigned_abs()));
        next = next.into_iter().chain(remaining).min();
    }
    Ok(next)
}
