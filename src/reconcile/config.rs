//! Reconciles provisioner configs: writes verdicts, and stores the recipes in use as revisions.

use std::time::Duration;

use flex_contract::reason;
use flex_core::config::classes::{NewRevision, Verdict};
use flex_core::config::effective_config::EffectiveConfig;
use flex_core::config::joined;
use flex_core::model::object_ref::ObjectRef;
use flex_core::object::ObjectName;
use flex_core::rules::NewEvent;

use crate::api::writes::WriteError;
use crate::reconcile::context::{Context, Requeue};
use crate::reconcile::kept_script::{self, UnstoredScripts};
use crate::state::index::{REVISION_TTL, Woken, WorkItem};

/// The time between two clean-ups of revisions to which nothing refers.
const CLEAN_UP_INTERVAL: Duration = Duration::from_secs(15 * 60);

/// Reconciles all configs.
pub async fn reconcile(context: &Context) -> Result<Requeue, WriteError> {
    let Woken { value: later, items } = context.cluster.index_mut().serve_without_deleted();
    context.cluster.queue.add_all(items);
    let classes = context.cluster.index().classes();
    // A failure of one config is reported on that config, and does not stop the others.
    let UnstoredScripts { hashes: unstored, error: mut failed } = kept_script::store(context).await;
    // No attempt begins with a version whose script is not kept.
    let is_whole = |effective_config: &EffectiveConfig| {
        effective_config.script.as_ref().is_none_or(|script| !unstored.contains(script))
    };
    for NewRevision { effective_config, number } in
        classes.revisions_to_write.iter().filter(|revision| is_whole(&revision.effective_config))
    {
        if let Err(error) = context.writes.write_revision(effective_config, *number).await {
            emit_unwritten_revisions(context, &effective_config.config, &error);
            failed = Some(error);
        }
    }
    for (name, verdict) in &classes.verdicts {
        if let Err(error) = emit_on_config(context, name, verdict).await {
            failed = Some(error);
        }
    }
    if let Some(error) = failed {
        return Err(error);
    }
    context.metrics.configs(classes.verdicts.iter());
    let mut again =
        later.unwrap_or(CLEAN_UP_INTERVAL).min(kept_script::sweep(context).await?.unwrap_or(CLEAN_UP_INTERVAL));
    let unused = context.cluster.index().unused_revisions(context.clock.now());
    for hash in unused {
        let Some(deletion) = RevisionDeletion::begin(context, &hash) else {
            again = again.min(REVISION_TTL);
            continue;
        };
        if context.writes.is_stamped_with(&hash).await? {
            continue;
        }
        match context.writes.delete_revision(&hash).await {
            Ok(()) | Err(WriteError::NotFound { .. }) => deletion.forget(),
            Err(error) => return Err(error),
        }
    }
    Ok(Requeue::After(again))
}

/// The deletion of a revision. No attempt begins with the revision, also before the watch shows that it is gone. If the reconcile fails or
/// takes too long, dropping this value cancels the deletion. No event would report a revision that existed all the
/// time.
struct RevisionDeletion<'a> {
    context: &'a Context,
    hash: &'a str,
}

impl<'a> RevisionDeletion<'a> {
    fn begin(context: &'a Context, hash: &'a str) -> Option<Self> {
        // The lock of the cache is released before the value exists, because dropping the value takes the lock.
        let has_begun = context.cluster.index_mut().begin_revision_deletion(hash);
        has_begun.then(|| RevisionDeletion { context, hash })
    }

    fn forget(self) {
        self.context.cluster.index_mut().forget_revision(self.hash);
    }
}

impl Drop for RevisionDeletion<'_> {
    fn drop(&mut self) {
        let items = self.context.cluster.index_mut().cancel_revision_deletion(self.hash);
        // These are the items that waited for the revision. The configs are being reconciled now.
        self.context.cluster.queue.add_all(items.into_iter().filter(|item| *item != WorkItem::Configs));
    }
}

/// Returns the text of a verdict in the annotation of a ConfigMap.
pub fn annotation(verdict: &Verdict) -> String {
    match (verdict.problems.is_empty(), verdict.last_good) {
        (true, _) if verdict.warnings.is_empty() => "ok".into(),
        (true, _) => format!("ok; {}", joined(&verdict.warnings)),
        (false, true) => format!("refused; the last good version stays in use: {}", joined(&verdict.problems)),
        (false, false) => format!("refused: {}", joined(&verdict.problems)),
    }
}

/// Emits an event that claims of the classes wait until the revision is stored.
fn emit_unwritten_revisions(context: &Context, name: &ObjectName, error: &WriteError) {
    let uid = match context.cluster.index().config(name) {
        Some(config) => config.uid.clone(),
        None => return,
    };
    let message =
        format!("the provisioner cannot store this version, so it serves no claim with it: {error}; it keeps trying");
    let event = NewEvent { warning: true, reason: reason::CONFIG_REFUSED, message };
    context.emit(ObjectRef { kind: "ConfigMap", name: name.clone(), uid }, event);
}

async fn emit_on_config(context: &Context, name: &ObjectName, verdict: &Verdict) -> Result<(), WriteError> {
    let text = annotation(verdict);
    let (before, uid) = {
        let index = context.cluster.index();
        let Some(config) = index.config(name) else { return Ok(()) };
        (config.verdict.clone(), config.uid.clone())
    };
    if before.as_ref() == Some(&text) {
        return Ok(());
    }
    let about = ObjectRef { kind: "ConfigMap", name: name.clone(), uid };
    let refused = !verdict.problems.is_empty();
    let message = match (refused, verdict.classes.is_empty()) {
        (true, _) => text.clone(),
        (false, true) => format!("{text}; no class uses it yet"),
        (false, false) => format!("{text}; serves {}", verdict.classes.join(", ")),
    };
    let reason = if refused { reason::CONFIG_REFUSED } else { reason::CONFIG_ACCEPTED };
    context.emit(about, NewEvent { warning: refused, reason, message });
    match context.writes.write_verdict(name, &text).await {
        Ok(()) | Err(WriteError::NotFound { .. }) => Ok(()),
        Err(error) => Err(error),
    }
}
