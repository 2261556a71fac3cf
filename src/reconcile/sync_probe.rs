//! Reconciles sync probes: creates them, and deletes them after use.

use flex_contract::names::PROBE_PREFIX;
use flex_core::model::claim::Binding;
use flex_core::object::hash;
use flex_core::sync_probe::{Decision, PROBE_TIMEOUT, Step, decide};

use crate::api::writes::WriteError;
use crate::reconcile::context::{Context, Requeue};

/// Reconciles all sync probes.
pub(super) async fn reconcile(context: &Context) -> Result<Requeue, WriteError> {
    if context.writes.binding() != Binding::Direct {
        return Ok(Requeue::Done);
    }
    loop {
        let name = format!(
            "{PROBE_PREFIX}{}",
            hash(format!("{}/{}", context.identity.instance, context.timestamp()).as_bytes())
        );
        let Decision { rule, step, .. } = next_step(context, &name);
        context.decided(&name, rule, &step);
        match step {
            Step::Nothing => return Ok(Requeue::Done),
            Step::Wait(remaining) => return Ok(Requeue::After(remaining)),
            Step::Create => match context.writes.create_probe(&name).await {
                Ok(()) => return Ok(Requeue::After(PROBE_TIMEOUT)),
                Err(error) => {
                    // After any other error the probe may exist, and get its phase.
                    if matches!(error, WriteError::Refused { .. } | WriteError::NotFound { .. }) {
                        context.cluster.index_mut().give_up_probe();
                    }
                    return Err(error);
                }
            },
            Step::DeleteProbe(name) => {
                let uid = context.cluster.index_mut().sync_probe(&name).unwrap_or_default();
                context.writes.delete_probe(&name, &uid).await?;
                context.cluster.index_mut().probe_deleted(&name);
            }
            Step::GiveUpProbe => {
                tracing::warn!("the PV controller did not see a volume in time; does the controller manager run?")
            }
        }
    }
}

/// Decides the next step, and records it. The lock is held for both: a volume that arrives in between would count among
/// those that existed before the new probe.
fn next_step(context: &Context, name: &str) -> Decision {
    let mut index = context.cluster.index_mut();
    let decision = decide(&index.observe_probes());
    match decision.step {
        Step::Create => index.begin_probe(name),
        Step::GiveUpProbe => index.give_up_probe(),
        Step::Nothing | Step::Wait(_) | Step::DeleteProbe(_) => {}
    }
    decision
}
