//! Reconciles the records of runs. Decides with [`flex_core::run::record::decide`].

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use flex_core::model::claim::{Claim, Stamp};
use flex_core::model::record::Record;
use flex_core::run::record::{Decision, Rule, Step, decide};

use crate::api::writes::WriteError;
use crate::reconcile::context::{Context, Requeue};

/// The time until the next look whether the cache has the records, when a term begins.
pub(super) const RECORDS_SOON: Duration = Duration::from_secs(1);

/// Reconciles a record, by its name.
pub(super) async fn reconcile(context: &Context, name: &str) -> Result<Requeue, WriteError> {
    let Some((record, observed)) = context.cluster.index().observe_record(name) else { return Ok(Requeue::Done) };
    let Decision { rule, step, .. } = decide(&observed);
    context.decided(&name, rule, &step);
    match step {
        Step::Nothing if rule == Rule::RecordPartlySettled => {
            context.cluster.index_mut().begin_collecting(name);
            return Ok(observed.collecting.map_or(Requeue::Done, Requeue::After));
        }
        Step::Nothing => {}
        Step::Delete => context.writes.delete_record(&record).await?,
        Step::Settle(uids) => {
            context.writes.settle(&record, &uids).await?;
            context.cluster.index_mut().end_collecting(name);
        }
    }
    Ok(Requeue::Done)
}

impl Context {
    /// Records that a claim needs its records no more: its volume says all, or nothing is left. Returns whether that is written.
    pub(super) async fn settle(&self, claim: &Claim) -> Result<bool, WriteError> {
        let records = self.cluster.index().unsettled_records_of(&claim.uid);
        self.settle_these(claim, &records).await
    }

    /// Records that delete runs have undone what attempts of a claim left. Those for a claim that is gone have had the recipe of the
    /// record that stands for it: the records of other recipes stay. The newest of them stands for the claim then, and gets delete
    /// runs of its own. Returns whether that is written.
    pub(super) async fn settle_undone(&self, claim: &Claim) -> Result<bool, WriteError> {
        let mut records = self.cluster.index().unsettled_records_of(&claim.uid);
        if let Some(of) = &claim.record {
            let undone = records.iter().find(|record| record.uid == of.uid).cloned();
            records
                .retain(|record| undone.as_ref().is_some_and(|undone| !is_of_other_recipe(record, undone, &claim.uid)));
        }
        self.settle_these(claim, &records).await
    }

    /// Settles records for a claim, the newest last, because it stands for the others. Returns whether that is written. If not, a
    /// record is settled for several claims at once, and its change requeues the claim.
    async fn settle_these(&self, claim: &Claim, records: &[Arc<Record>]) -> Result<bool, WriteError> {
        for record in records {
            if !record.is_only(&claim.uid) {
                self.cluster.update(|index| [index.set_undone(&record.name.name, &claim.uid)]);
                return Ok(false);
            }
            self.writes.settle(record, &BTreeSet::from([claim.uid.clone()])).await?;
        }
        Ok(true)
    }

    /// Marks the records of a claim that is gone, because somebody may keep what its attempts have made. Settles those that newer
    /// ones replace.
    pub(super) async fn keep(&self, claim: &Claim) -> Result<(), WriteError> {
        let (uid, records) = (&claim.uid, self.cluster.index().unsettled_records_of(&claim.uid));
        for (at, record) in records.iter().enumerate() {
            let mut newer = records.iter().skip(at + 1);
            match newer.any(|newer| newer.replaces(record, uid)) {
                true => self.writes.settle(record, &BTreeSet::from([uid.clone()])).await?,
                false => self.writes.keep(record, uid).await?,
            }
        }
        Ok(())
    }

    /// Records that nobody needs the records of an id any more: its volume ends, or somebody keeps it.
    pub(super) async fn settle_id(&self, id: &str) -> Result<(), WriteError> {
        let records = self.cluster.index().unsettled_records_of(id);
        for record in records {
            self.writes.settle(&record, &BTreeSet::from([id.to_owned()])).await?;
        }
        Ok(())
    }
}

/// Checks whether the run of a record had another recipe than that of another one.
fn is_of_other_recipe(record: &Record, other: &Record, uid: &str) -> bool {
    fn stamp<'r>(record: &'r Record, uid: &str) -> Option<&'r Stamp> {
        record.recorded(uid)?.own_stamp()
    }
    let stamps = stamp(record, uid).zip(stamp(other, uid));
    stamps.is_some_and(|(own, other)| own.recipe_version != other.recipe_version)
}

#[cfg(test)]
mod tests {
    use flex_contract::names;
    use flex_core::model::record::record_name;
    use serde_json::json;

    use super::*;
    use crate::reconcile::delete_run::tests::context;
    use crate::state::testing;

    fn stamped(change: impl FnOnce(Stamp) -> Stamp) -> Claim {
        let claim = testing::claim("team", "a", true);
        Claim { stamp: claim.stamp.clone().map(change), held: true, ..claim }
    }

    /// Each write of a part sends the whole record to all watches.
    #[tokio::test]
    async fn a_record_is_settled_for_a_part_of_its_claims_after_a_moment_and_for_all_at_once() {
        let (context, asked) = context(String::new());
        let claims = ["a", "b"].map(|name| testing::claim("team", name, true));
        let data = Record::data(claims.iter());
        let name = record_name("provision-batch", &data);
        let metadata = json!({ "namespace": "own", "name": name, "uid": "r", "annotations": { names::ARMED: "r" } });
        let record = Record::read(&serde_json::from_value(metadata).unwrap(), &data).unwrap();
        context.cluster.update(|index| index.record_answered(record));
        context.cluster.update(|index| [index.set_undone(&name, &claims[0].uid)]);
        let waits = reconcile(&context, &name).await.unwrap();
        assert!(matches!(waits, Requeue::After(rest) if rest <= Duration::from_millis(250)), "{waits:?}");
        assert!(asked.lock().unwrap().is_empty());
        context.cluster.update(|index| [index.set_undone(&name, &claims[1].uid)]);
        reconcile(&context, &name).await.unwrap();
        assert_eq!(asked.lock().unwrap().len(), 1);
    }

    #[tokio::test]
    async fn each_recipe_of_a_claim_that_is_gone_is_undone_by_itself() {
        let (context, asked) = context(String::new());
        let of = |attempt, recipe: &str| {
            testing::record(&stamped(|stamp| Stamp { attempt, recipe_version: recipe.into(), ..stamp }))
        };
        let all = [of(1, "own/c@a"), of(2, "own/c@b"), of(3, "own/c@b")];
        for record in &all {
            context.cluster.update(|index| index.record_answered(record.clone()));
        }
        let stand_in = || context.cluster.index().claim_by_id("uid-team-a").unwrap();
        assert!(context.settle_undone(&stand_in()).await.unwrap());
        let deleted =
            |record: &Record| format!("DELETE /apis/apps/v1/namespaces/own/controllerrevisions/{}", record.name.name);
        assert_eq!(*asked.lock().unwrap(), [deleted(&all[1]), deleted(&all[2])]);
        for record in &all[1..] {
            context.cluster.update(|index| index.record_deleted(record));
        }
        assert_eq!(stand_in().own_stamp().unwrap().recipe_version, "own/c@a");
        assert!(context.settle_undone(&stand_in()).await.unwrap());
        assert_eq!(asked.lock().unwrap().last(), Some(&deleted(&all[0])));
    }

    /// A finding names the records that are left.
    #[tokio::test]
    async fn only_the_records_that_say_more_than_newer_ones_are_marked() {
        let (context, asked) = context(String::new());
        let of = |attempt| testing::record(&stamped(|stamp| Stamp { attempt, ..stamp }));
        let all = [of(1), of(2)];
        for record in &all {
            context.cluster.update(|index| index.record_answered(record.clone()));
        }
        let stand_in = context.cluster.index().claim_by_id("uid-team-a").unwrap();
        context.keep(&stand_in).await.unwrap();
        let asks = |verb, record: &Record| {
            format!("{verb} /apis/apps/v1/namespaces/own/controllerrevisions/{}", record.name.name)
        };
        assert_eq!(*asked.lock().unwrap(), [asks("DELETE", &all[0]), asks("PATCH", &all[1])]);
    }
}
