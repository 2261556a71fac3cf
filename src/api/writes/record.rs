//! Writes and reads of the records of runs. Each write after the first is guarded by UID and resourceVersion, so that a late
//! one of a former leader fails once a later leader has written; only notes are not, which concern one claim each.

use std::collections::{BTreeSet, HashMap};
use std::ops::ControlFlow;

use flex_contract::names;
use flex_core::model::claim::{Claim, RecordRef};
use flex_core::model::record::{Record, is_record, record_name};
use flex_core::object::ObjectName;
use k8s_openapi::api::apps::v1::ControllerRevision;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use k8s_openapi::apimachinery::pkg::runtime::RawExtension;
use kube::Api;
use kube::api::ListParams;
use kube::core::PartialObjectMeta;
use serde_json::{Value, json};

use super::{Result, WriteError, Writes, deleted, each_page, guarded, params, patch, post};
use crate::api::discard_reply::DiscardReply;
use crate::api::pages;
use crate::state::ClusterState;

/// Reads a record; `None` for an object that is none.
fn record_of(object: &ControllerRevision) -> Option<Record> {
    Record::read(&object.metadata, object.data.as_ref().map_or(&Value::Null, |data| &data.0))
}

fn what(name: &str) -> String {
    format!("record {name}")
}

/// A record as a list shows it.
struct Listed {
    name: String,
    version: u64,
    terminating: bool,
}

/// Returns a record of a list, with its UID; `None` for an object that is none.
fn listed(meta: ObjectMeta) -> Option<(String, Listed)> {
    let name = meta.name.filter(|name| is_record(name))?;
    let version = meta.resource_version?.parse().ok()?;
    Some((meta.uid?, Listed { name, version, terminating: meta.deletion_timestamp.is_some() }))
}

/// A record that was armed.
#[derive(Debug)]
pub struct Armed {
    /// The record.
    pub record: Record,
    /// It did not exist before, and its claims had no other.
    pub is_new: bool,
}

impl Writes {
    /// Records what the run of a Job is for, and arms the record: the run may begin from now on. `data` is that of
    /// [`Record::data`]. A record that is there already says the same. It is armed again, for all its claims, so that a late
    /// write of a former leader fails.
    pub async fn arm_record(&self, job: &str, data: Value, now: &str) -> Result<Armed> {
        let name = record_name(job, &data);
        // Somebody keeps what an older state of a record would let the orchestrator delete.
        let labels = [
            (names::LABEL_INSTANCE, self.identity.instance.as_str()),
            (names::LABEL_MANAGED_BY, names::FIELD_MANAGER),
            (names::LABEL_NO_BACKUP, "true"),
        ];
        let record = ControllerRevision {
            metadata: ObjectMeta {
                name: Some(name.clone()),
                namespace: Some(self.identity.namespace.clone()),
                labels: Some(labels.map(|(key, value)| (key.to_owned(), value.to_owned())).into()),
                ..ObjectMeta::default()
            },
            data: Some(RawExtension(data)),
            revision: 1,
        };
        let mut is_new = true;
        let created = match DiscardReply(self.revisions()).create_with_metadata(&post(), &record).await {
            Ok(created) => created,
            Err(kube::Error::Api(status)) if status.code == 409 => {
                let there = self.revisions().get(&name).await.map_err(WriteError::of(what(&name)))?;
                let instance = there.metadata.labels.as_ref().and_then(|labels| labels.get(names::LABEL_INSTANCE));
                let is_alike = there.data == record.data && instance == Some(&self.identity.instance);
                if !is_alike {
                    return Err(WriteError::Foreign(what(&name)));
                }
                if there.metadata.deletion_timestamp.is_some() {
                    let message = "it is being deleted, and a finalizer of somebody else holds it".to_owned();
                    return Err(WriteError::Refused { what: what(&name), message, invalid: false });
                }
                is_new = false;
                there.metadata
            }
            Err(error) => return Err(WriteError::of(what(&name))(error)),
        };
        let uid = created.uid.unwrap_or_default();
        let version = created.resource_version.unwrap_or_default();
        let annotations = json!({ names::ARMED: uid, names::JOB_REQUESTED: now, names::SETTLED: null,
            names::KEPT: null });
        let body = patch(&uid, &version, json!({ "annotations": annotations }), json!({}));
        let armed = DiscardReply(self.revisions()).patch_with_metadata(&name, &params(), body).await;
        let armed = armed.map_err(WriteError::of(what(&name)))?;
        let data = record.data.unwrap_or_default();
        // A record that is being deleted counts for nothing. A finalizer of somebody may hold it.
        let record = Record::read(&armed, &data.0).filter(|record| record.armed);
        let record = record.ok_or_else(|| WriteError::Conflict(what(&name)))?;
        Ok(Armed { record, is_new })
    }

    /// Reads a record as the API has it now; `None` if it is gone. What it stores never changes, and is not read again.
    async fn read_again(&self, record: &Record) -> Result<Option<Record>> {
        let name = &record.name.name;
        let found = self.revisions().get_metadata_opt(name).await.map_err(WriteError::of(what(name)))?;
        let there = found.and_then(|found| record.with_metadata(&found.metadata));
        Ok(there.filter(|there| there.uid == record.uid))
    }

    /// Reads the stand-in of a claim that is gone from its records; `None` if the claim needs none any more. A watch may be late.
    pub(super) async fn read_stand_in(&self, name: &ObjectName) -> Result<Option<Claim>> {
        let Some(cluster) = &self.cluster else { return Ok(None) };
        let known = cluster.index().claim(name);
        let Some(known) = known.filter(|claim| claim.is_stand_in()) else { return Ok(None) };
        let records = cluster.index().unsettled_records_of(&known.uid);
        for record in records {
            match self.read_again(&record).await? {
                Some(there) => cluster.update(|index| index.record_answered(there)),
                None => cluster.update(|index| index.record_deleted(&record)),
            }
        }
        let stand_in = cluster.index().claim(name);
        Ok(stand_in.map(|claim| (*claim).clone()))
    }

    /// Notes changed annotations of a claim that is gone on its record. Nobody else writes the note of this claim.
    pub(super) async fn note_gone_claim(&self, claim: &Claim, of: &RecordRef, changes: &Value) -> Result<Claim> {
        let name = &of.name.name;
        let conflict = || WriteError::Conflict(what(name));
        let cluster = self.cluster.as_ref().ok_or_else(conflict)?;
        let record = cluster.index().record(name).filter(|record| record.uid == of.uid && record.needs(&claim.uid));
        let record = record.ok_or_else(conflict)?;
        let (key, note) = record.note(claim, changes);
        let body = json!({ "metadata": { "uid": of.uid, "annotations": { key: note } } });
        let noted = DiscardReply(self.revisions()).patch_with_metadata(name, &params(), body).await;
        let noted = match noted.map_err(WriteError::of(what(name))) {
            Err(WriteError::NotFound { .. }) => {
                self.vanished(&record);
                return Err(conflict());
            }
            noted => record.with_metadata(&noted?).ok_or_else(conflict)?,
        };
        cluster.update(|index| index.record_answered(noted));
        let stand_in = cluster.index().claim(&claim.name).filter(|now| now.is_stand_in());
        stand_in.map(|claim| (*claim).clone()).ok_or_else(conflict)
    }

    /// Records that these claims need a record no more, as it was observed. The last one takes the record with it.
    pub async fn settle(&self, record: &Record, uids: &BTreeSet<String>) -> Result<()> {
        match self.try_settle(record, uids).await {
            Err(WriteError::Conflict(_)) => match self.read_changed(record).await? {
                Some(newer) => self.try_settle(&newer, uids).await,
                None => {
                    self.vanished(record);
                    Ok(())
                }
            },
            settled => settled,
        }
    }

    /// Reads a record again that has changed; `None` if it is gone. A note of another claim may have changed it.
    async fn read_changed(&self, record: &Record) -> Result<Option<Record>> {
        let newer = self.read_again(record).await?;
        match newer.as_ref().is_none_or(|newer| newer.armed_at() == record.armed_at()) {
            true => Ok(newer),
            false => Err(WriteError::Conflict(what(&record.name.name))),
        }
    }

    async fn try_settle(&self, record: &Record, uids: &BTreeSet<String>) -> Result<()> {
        let Some(settled) = record.settled_with(uids) else { return self.delete_record(record).await };
        let mut annotations = json!({ names::SETTLED: settled });
        for uid in uids.iter().filter(|uid| record.has_note(uid)) {
            annotations[format!("{}{uid}", names::GONE_CLAIM)] = Value::Null;
        }
        self.annotate(record, &annotations).await
    }

    /// Records that somebody may keep what attempts for a claim have made, as it was observed.
    pub async fn keep(&self, record: &Record, uid: &str) -> Result<()> {
        let kept = |record: &Record| json!({ names::KEPT: record.kept_with(uid) });
        match self.annotate(record, &kept(record)).await {
            Err(WriteError::Conflict(_)) => match self.read_changed(record).await? {
                Some(newer) => self.annotate(&newer, &kept(&newer)).await,
                None => Ok(()),
            },
            written => written,
        }
    }

    /// Writes annotations on a record, as it was observed.
    async fn annotate(&self, record: &Record, annotations: &Value) -> Result<()> {
        let (name, uid, version) = (&record.name.name, &record.uid, &record.resource_version);
        let body = patch(uid, version, json!({ "annotations": annotations }), json!({}));
        let patched = DiscardReply(self.revisions()).patch_with_metadata(name, &params(), body).await;
        let patched = match patched.map_err(WriteError::of(what(name))) {
            Err(WriteError::NotFound { .. }) => {
                self.vanished(record);
                return Ok(());
            }
            patched => patched?,
        };
        if let (Some(cluster), Some(record)) = (&self.cluster, record.with_metadata(&patched)) {
            cluster.update(|index| index.record_answered(record));
        }
        Ok(())
    }

    /// Removes a record from the cache that somebody else has deleted. A watch may never have shown it.
    fn vanished(&self, record: &Record) {
        self.cluster.iter().for_each(|cluster| cluster.update(|index| index.record_vanished(record)));
    }

    /// Deletes a record that nobody needs, as it was observed.
    pub async fn delete_record(&self, record: &Record) -> Result<()> {
        let (name, guard) = (&record.name.name, guarded(&record.uid, &record.resource_version));
        deleted(DiscardReply(self.revisions()).delete(name, &guard).await, what(name))?;
        if let Some(cluster) = &self.cluster {
            cluster.update(|index| index.record_deleted(record));
        }
        Ok(())
    }

    /// Lists the records from the API until the cache has them, once in a term. Removes from the cache those that are gone: a
    /// former leader has settled them, and a watch may be late. Returns whether the cache has all others as they are.
    pub async fn confirm_records(&self) -> Result<bool> {
        let Some(cluster) = &self.cluster else { return Ok(true) };
        // Only one list at a time.
        let _guard = self.confirming.lock().await;
        let cached = {
            let index = cluster.index();
            if index.are_records_confirmed() {
                return Ok(true);
            }
            // Many wait, and each list reads all records.
            if index.has_just_missed_records() {
                return Ok(false);
            }
            index.records().cloned().collect::<Vec<_>>()
        };
        let there = self.list_records().await?;
        for gone in cached.iter().filter(|record| !there.contains_key(&record.uid)) {
            cluster.update(|index| index.record_deleted(gone));
        }
        let mut index = cluster.index_mut();
        let mut missing = {
            let known: HashMap<&str, u64> =
                index.records().map(|record| (record.uid.as_str(), record.version())).collect();
            let lacks = |(uid, listed): &(&String, &Listed)| match known.get(uid.as_str()) {
                Some(known) => *known < listed.version,
                // Somebody's finalizer holds a record that this process has deleted. No watch shows it again.
                None => !listed.terminating,
            };
            there.iter().filter(lacks).map(|(_, listed)| listed.name.clone()).collect::<Vec<_>>()
        };
        if missing.is_empty() {
            index.note_records_confirmed();
            return Ok(true);
        }
        missing.sort();
        if let Some(message) = index.note_missing_records(&missing) {
            tracing::warn!("{message}");
        }
        Ok(false)
    }

    /// Lists the records from the API, by their UIDs.
    async fn list_records(&self) -> Result<HashMap<String, Listed>> {
        let api: Api<PartialObjectMeta<ControllerRevision>> =
            Api::namespaced(self.client.clone(), &self.identity.namespace);
        let mut there = HashMap::new();
        let look = |page: Vec<ObjectMeta>| {
            there.extend(page.into_iter().filter_map(listed));
            ControlFlow::Continue(())
        };
        each_page(&api, self.own_revisions(), look).await.map_err(WriteError::of("all records"))?;
        Ok(there)
    }

    /// Selects the revisions that the watch shows, too: no other orchestrator's.
    fn own_revisions(&self) -> ListParams {
        ListParams::default().labels(&format!("{}={}", names::LABEL_INSTANCE, self.identity.instance))
    }

    /// Returns the cache, if there is one, as soon as it has the records of former leaders.
    pub(super) async fn cache_of_records(&self) -> Result<Option<&ClusterState>> {
        match self.confirm_records().await? {
            true => Ok(self.cluster.as_ref()),
            false => Err(WriteError::Conflict("the records of runs".to_owned())),
        }
    }

    /// Returns the UIDs of all claims that need a record: by the cache, which has all that this process wrote, or
    /// else by the API.
    pub(super) async fn recorded_ids(&self) -> Result<Vec<String>> {
        if let Some(cluster) = self.cache_of_records().await? {
            return Ok(cluster.index().records().flat_map(|record| record.unsettled()).cloned().collect());
        }
        let all = pages::all(&self.revisions(), self.own_revisions(), |object| record_of(&object)).await;
        let all = all.map_err(WriteError::of("all records"))?;
        Ok(all.iter().flatten().flat_map(Record::unsettled).cloned().collect())
    }
}

#[cfg(test)]
#[path = "record_tests.rs"]
mod tests;
