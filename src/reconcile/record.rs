//! Reconciles the records of runs. Decides with [`flex_core::run::record::decide`].

use std::collections::BTreeSet;

use flex_core::model::claim::Claim;
use flex_core::run::record::{Decision, Step, decide};

use crate::api::writes::WriteError;
use crate::reconcile::context::{Context, Requeue};

/// Reconciles a record, by its name.
pub(super) async fn reconcile(context: &Context, name: &str) -> Result<Requeue, WriteError> {
    let Some((record, observed)) = context.cluster.index().observe_record(name) else { return Ok(Requeue::Done) };
    let Decision { rule, step, .. } = decide(&observed);
    context.decided(&name, rule, &step);
    match step {
        Step::Nothing => {}
        Step::Delete => context.writes.delete_record(&record).await?,
        Step::Settle(uids) => context.writes.settle(&record, &uids).await?,
    }
    Ok(Requeue::Done)
}

impl Context {
    /// Records that a claim needs its records no more: its volume says all, or what its attempts left is undone. The newest goes
    /// last, because it stands for the others. Returns whether that is written. If not, a record is settled for several claims at
    /// once, and its change requeues the claim.
    pub(super) async fn settle(&self, claim: &Claim) -> Result<bool, WriteError> {
        let records = self.cluster.index().unsettled_records_of(&claim.uid);
        for record in records {
            if !record.is_only(&claim.uid) {
                self.cluster.update(|index| [index.set_undone(&record.name.name, &claim.uid)]);
                return Ok(false);
            }
            self.writes.settle(&record, &BTreeSet::from([claim.uid.clone()])).await?;
        }
        Ok(true)
    }

    /// Records that nobody needs the records of an id any more: its volume ends, or somebody keeps it.
    pub(super) async fn settle_id(&self, id: &str) -> Result<(), WriteError> {
        let (uid, records) = {
            let index = self.cluster.index();
            let uid = index.claim_by_id(id).map_or_else(|| id.to_owned(), |claim| claim.uid.clone());
            let mut records = index.unsettled_records_of(&uid);
            // The claim may have a run for another volume.
            records.retain(|record| record.is_of(&uid, id));
            (uid, records)
        };
        for record in records {
            self.writes.settle(&record, &BTreeSet::from([uid.clone()])).await?;
        }
        Ok(())
    }
}
