//! Reconciles sync probes: creates them, and deletes them after use.

use flex_contract::names::PROBE_PREFIX;

use crate::api::writes::WriteError;
use crate::model::claim::Binding;
use crate::object::hash;
use crate::reconcile::context::{Context, Requeue};
use crate::sync_probe::{Decision, PROBE_TIMEOUT, Step};

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
        let Decision { rule, step, .. } = context.shared.index().next_probe(&name);
        context.decided(&name, rule, &step);
        match step {
            Step::Nothing => return Ok(Requeue::Done),
            Step::Wait(remaining) => return Ok(Requeue::After(remaining)),
            Step::Create => match context.writes.create_probe(&name).await {
                Ok(()) => return Ok(Requeue::After(PROBE_TIMEOUT)),
                Err(error) => {
                    // After any other error the probe may exist, and get its phase.
                    if matches!(error, WriteError::Refused { .. } | WriteError::NotFound { .. }) {
                        context.shared.index().probe_refused();
                    }
                    return Err(error);
                }
            },
            Step::DeleteProbe(name) => {
                let uid = context.shared.index().sync_probe(&name).unwrap_or_default();
                context.writes.delete_probe(&name, &uid).await?;
                context.shared.index().probe_deleted(&name);
            }
            Step::GiveUpProbe => {
                tracing::warn!("the PV controller did not see a volume in time; does the controller manager run?")
            }
        }
    }
}
