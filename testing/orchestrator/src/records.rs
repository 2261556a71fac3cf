//! The records of runs: a deleted claim is gone at once, and its record stays until what its runs have made is undone.

use flex_contract::names;
use flex_core::model::record::is_record;
use k8s_openapi::api::apps::v1::ControllerRevision;
use kube::api::{ListParams, Patch, PatchParams};
use kube::{Api, ResourceExt};
use serde_json::{Value, json};

use crate::ring::{OWN, Ring};
use crate::wait::{unexpected, until};

impl Ring {
    /// The revisions, kept scripts and records of the orchestrator.
    pub fn revisions(&self) -> Api<ControllerRevision> {
        self.api(OWN)
    }

    /// Lists the records of runs.
    pub async fn records(&self) -> Vec<ControllerRevision> {
        self.records_now().await.unwrap()
    }

    async fn records_now(&self) -> Result<Vec<ControllerRevision>, String> {
        let all = self.revisions().list(&ListParams::default()).await.map_err(|error| error.to_string())?;
        Ok(all.items.into_iter().filter(|revision| is_record(&revision.name_any())).collect())
    }

    /// Lists the records that a claim needs, by its name. They may be those of former claims of this name, too.
    pub async fn records_of(&self, claim: &str) -> Result<Vec<ControllerRevision>, String> {
        let name = (self.user.clone(), claim.to_owned());
        Ok(self.records_now().await?.into_iter().filter(|record| needed_by(record).contains(&name)).collect())
    }

    /// Waits until a record says that a run for a claim may have begun.
    pub async fn recorded(&self, claim: &str) -> ControllerRevision {
        let armed = |record: &ControllerRevision| record.annotations().get(names::ARMED) == record.uid().as_ref();
        let found = until(format!("claim {claim} has an armed record"), || async {
            let mut records = self.records_of(claim).await?;
            records.retain(armed);
            records.pop().ok_or_else(|| "none".to_owned())
        });
        self.explained(found).await
    }

    /// Waits until no claim of a name needs a record: it is bound, or what its runs have made is undone.
    pub async fn unrecorded(&self, claim: &str) {
        let gone = until(format!("claim {claim} needs no record"), || async {
            let records = self.records_of(claim).await?;
            let shown = |record: &ControllerRevision| (record.name_any(), record.annotations().clone());
            if records.is_empty() { Ok(()) } else { unexpected(records.iter().map(shown).collect::<Vec<_>>()) }
        });
        self.explained(gone).await;
    }

    /// Waits until no record is left.
    pub async fn no_records(&self) {
        self.none_recorded("no record is left", |_| true).await;
    }

    /// Waits until no claim of the test needs a record, also none that is gone.
    pub async fn all_settled(&self) {
        let is_own =
            |record: &ControllerRevision| needed_by(record).iter().any(|(namespace, _)| *namespace == self.user);
        self.none_recorded("no claim of the test needs a record", is_own).await;
    }

    async fn none_recorded(&self, what: &str, counts: impl Fn(&ControllerRevision) -> bool) {
        let gone = until(what, || async {
            let records = self.records_now().await?;
            let names: Vec<_> = records.iter().filter(|record| counts(record)).map(ResourceExt::name_any).collect();
            if names.is_empty() { Ok(()) } else { unexpected(names) }
        });
        self.explained(gone).await;
    }

    /// Returns what a record notes of a claim that is gone, by the claim's UID and the key of an annotation.
    pub async fn noted(&self, id: &str, key: &str) -> Option<String> {
        let notes = |record: ControllerRevision| {
            let note = record.annotations().get(&format!("{}{id}", names::GONE_CLAIM))?;
            Some(serde_json::from_str::<Value>(note).ok()?[key].as_str()?.to_owned())
        };
        self.records().await.into_iter().find_map(notes)
    }

    /// Abandons what the runs of a claim that is gone have made, as an admin does who has cleaned up by hand. Waits until no
    /// record of the claim is left.
    pub async fn abandon(&self, claim: &str) {
        let abandons = json!({ "metadata": { "annotations": { names::ABANDON: names::ABANDON_YES } } });
        let abandoned = until(format!("nothing of claim {claim} is left"), || async {
            let records = self.records_of(claim).await?;
            for record in &records {
                let patch = Patch::Merge(&abandons);
                match self.revisions().patch(&record.name_any(), &PatchParams::default(), &patch).await {
                    // Nothing was left.
                    Err(kube::Error::Api(status)) if status.is_not_found() => (),
                    patched => drop(patched.map_err(|error| error.to_string())?),
                }
            }
            let names: Vec<_> = records.iter().map(ResourceExt::name_any).collect();
            if names.is_empty() { Ok(()) } else { unexpected(names) }
        });
        self.explained(abandoned).await;
    }
}

/// Returns namespaces and names of the claims that need a record.
pub fn needed_by(record: &ControllerRevision) -> Vec<(String, String)> {
    let settled = record.annotations().get(names::SETTLED).cloned().unwrap_or_default();
    let settled: Vec<&str> = settled.split(',').collect();
    let claims = record.data.as_ref().and_then(|data| data.0["claims"].as_array());
    let text = |claim: &Value, key: &str| claim["metadata"][key].as_str().unwrap_or_default().to_owned();
    let needs = claims.into_iter().flatten().filter(|claim| !settled.contains(&text(claim, "uid").as_str()));
    needs.map(|claim| (text(claim, "namespace"), text(claim, "name"))).collect()
}
