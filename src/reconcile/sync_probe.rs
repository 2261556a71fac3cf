//! Markers are created, and removed when they have told what they were for.

use contract::names::MARKER_PREFIX;

use crate::api::writes::WriteError;
use crate::claim::Binding;
use crate::marker::{PATIENCE, Step};
use crate::object::hash;
use crate::reconcile::context::{Context, Pass};

/// One pass over all markers.
pub(super) async fn pass(context: &Context) -> Result<Pass, WriteError> {
    if context.writes.binding() != Binding::Direct {
        return Ok(Pass::Done);
    }
    loop {
        let name = format!(
            "{MARKER_PREFIX}{}",
            hash(format!("{}/{}", context.identity.instance, context.timestamp()).as_bytes())
        );
        let step = context.shared.index().next_marker(&name);
        tracing::debug!(?step, "decided about markers");
        match step {
            Step::Nothing => return Ok(Pass::Done),
            Step::Wait(left) => return Ok(Pass::After(left)),
            Step::Create => match context.writes.create_marker(&name).await {
                Ok(()) => return Ok(Pass::After(PATIENCE)),
                Err(error) => {
                    // After any other error it may have been created all the same, and tell.
                    if matches!(error, WriteError::Refused { .. } | WriteError::NotFound { .. }) {
                        context.shared.index().marker_refused();
                    }
                    return Err(error);
                }
            },
            Step::Remove(name) => {
                let uid = context.shared.index().marker(&name).unwrap_or_default();
                context.writes.remove_marker(&name, &uid).await?;
                context.shared.index().marker_goes(&name);
            }
            Step::GiveUp => {
                tracing::warn!("the PV controller did not take up a volume in time; is the controller manager well?")
            }
        }
    }
}
