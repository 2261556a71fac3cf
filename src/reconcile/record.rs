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

#[cfg(test)]
mod tests {
    use flex_contract::names;
    use flex_core::model::claim::Stamp;
    use flex_core::model::record::{Record, record_name};
    use serde_json::json;

    use super::*;
    use crate::reconcile::delete_run::tests::context;
    use crate::state::index::WatchChange;
    use crate::state::testing;

    /// Returns the armed record of an attempt for a claim.
    fn armed(claim: &Claim) -> Record {
        let attempt = claim.own_stamp().map_or(0, |stamp| stamp.attempt);
        let data = Record::data(std::iter::once(claim));
        let name = record_name(&format!("provision-{attempt}"), &data);
        let metadata = json!({
            "namespace": "own", "name": name, "uid": name, "resourceVersion": "1", "annotations": { names::ARMED: name },
        });
        Record::read(&serde_json::from_value(metadata).unwrap(), &data).unwrap()
    }

    fn stamped(change: impl FnOnce(Stamp) -> Stamp) -> Claim {
        let claim = testing::claim("team", "a", true);
        Claim { stamp: claim.stamp.clone().map(change), held: true, ..claim }
    }

    /// Its claim may have a run for another volume.
    #[tokio::test]
    async fn the_end_of_a_volume_settles_only_the_records_of_its_own_id() {
        let (context, asked) = context(String::new());
        let claim = stamped(|stamp| Stamp { volume_generation: 1, ..stamp });
        let record = armed(&claim);
        context.cluster.update(|index| index.change_claim(WatchChange::Apply(claim.clone())));
        context.cluster.update(|index| index.record_answered(record.clone()));
        context.settle_id(&claim.uid).await.unwrap();
        assert!(asked.lock().unwrap().is_empty(), "another claim has taken that volume");
        context.settle_id(&claim.volume_id()).await.unwrap();
        let path = format!("/apis/apps/v1/namespaces/own/controllerrevisions/{}", record.name.name);
        assert_eq!(*asked.lock().unwrap(), [format!("DELETE {path}")]);
    }
}
