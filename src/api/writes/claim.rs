//! Writes and reads of claims.

use std::collections::HashSet;
use std::ops::ControlFlow;

use flex_contract::names;
use flex_core::claim::failed_attempts::FailedAttempts;
use flex_core::claim::timeline::Timeline;
use flex_core::config::effective_config::hash_of;
use flex_core::model::claim::{Claim, Stamp, is_stand_in_name};
use flex_core::model::expand_update::ExpandUpdate;
use flex_core::model::modify_update::ModifyUpdate;
use flex_core::model::volume::Volume;
use flex_core::object::ObjectName;
use flex_core::run::failure::LastFailure;
use k8s_openapi::api::core::v1::PersistentVolumeClaim;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::Api;
use kube::api::{ListParams, Patch};
use kube::core::PartialObjectMeta;
use serde_json::{Value, json};

use super::{Result, WriteError, Writes, each_page, merge, params, patch};
use crate::api::trimmed::Trimmed;
use crate::state::index::WorkItem;

impl Writes {
    pub(super) fn claims(&self, namespace: &str) -> Api<Trimmed<PersistentVolumeClaim>> {
        Api::namespaced(self.client.clone(), namespace)
    }

    async fn patch_claim(&self, claim: &Claim, metadata: Value, rest: Value) -> Result<Claim> {
        if let Some(record) = &claim.record {
            return self.note_gone_claim(claim, record, &metadata["annotations"]).await;
        }
        let body = patch(&claim.uid, &claim.resource_version, metadata, rest);
        let patched = self.claims(&claim.name.namespace).patch(&claim.name.name, &params(), &Patch::Merge(body)).await;
        self.written_claim(claim, patched)
    }

    fn written_claim(&self, claim: &Claim, answer: kube::Result<Trimmed<PersistentVolumeClaim>>) -> Result<Claim> {
        self.written(WorkItem::Claim(claim.name.clone()), format!("claim {}", claim.name), answer)
    }

    /// Reads the claim from the API; `None` if it is gone. A stand-in is read from its record.
    pub async fn read_claim(&self, name: &ObjectName) -> Result<Option<Claim>> {
        if is_stand_in_name(name) {
            return self.read_stand_in(name).await;
        }
        let claim =
            self.claims(&name.namespace).get_opt(&name.name).await.map_err(WriteError::of(format!("claim {name}")))?;
        Ok(claim.map(|claim| Claim::from(&claim.0)))
    }

    /// Checks by the API whether any claim has a UID.
    pub async fn has_claim(&self, uid: &str) -> Result<bool> {
        Ok(self.claim_ids().await?.contains(uid))
    }

    /// Returns the UIDs of all claims, by the API, also of those that are gone and still need a record.
    pub async fn claim_ids(&self) -> Result<HashSet<String>> {
        let mut all: HashSet<String> = self.all_claims(|meta| meta.uid.clone()).await?.into_iter().collect();
        all.extend(self.recorded_ids().await?);
        Ok(all)
    }

    /// Checks whether the stamp of any claim names a version of a config, by the API, or that in a record.
    pub async fn is_stamped_with(&self, hash: &str) -> Result<bool> {
        // Records are in the cache before a run begins.
        let recorded = self.cache_of_records().await?;
        if recorded.is_some_and(|cluster| cluster.index().is_recorded_with(hash)) {
            return Ok(true);
        }
        let is =
            |meta: &ObjectMeta| hash_of(meta.annotations.as_ref()?.get(names::RECIPE_VERSION)?)?.eq(hash).then_some(());
        Ok(!self.all_claims(is).await?.is_empty())
    }

    /// Collects some data of all claims, page by page.
    async fn all_claims<T, I: IntoIterator<Item = T>>(&self, of: impl Fn(&ObjectMeta) -> I) -> Result<Vec<T>> {
        let api: Api<PartialObjectMeta<PersistentVolumeClaim>> = Api::all(self.client.clone());
        let mut all = Vec::new();
        let look = |page: Vec<ObjectMeta>| {
            all.extend(page.iter().flat_map(&of));
            ControlFlow::Continue(())
        };
        each_page(&api, ListParams::default(), look).await.map_err(WriteError::of("all claims"))?;
        Ok(all)
    }

    /// Returns all finalizers of a claim. If there are very many, the cache does not have all.
    async fn all_finalizers(&self, claim: &Claim) -> Result<Vec<String>> {
        if claim.finalizers_whole {
            return Ok(claim.finalizers.clone());
        }
        let what = || format!("claim {}", claim.name);
        let api: Api<PartialObjectMeta<PersistentVolumeClaim>> =
            Api::namespaced(self.client.clone(), &claim.name.namespace);
        let fresh = api.get(&claim.name.name).await.map_err(WriteError::of(what()))?.metadata;
        match fresh.uid.as_ref() == Some(&claim.uid) && fresh.resource_version.as_ref() == Some(&claim.resource_version)
        {
            true => Ok(fresh.finalizers.unwrap_or_default()),
            false => Err(WriteError::Conflict(what())),
        }
    }

    /// Writes the stamp, and holds the claim. `storage_provisioner` is the provisioner, for a class with an object. The PV
    /// controller would write the provisioner otherwise, later and in a write of its own.
    pub async fn stamp(
        &self,
        claim: &Claim,
        stamp: &Stamp,
        nodes: &[String],
        storage_provisioner: Option<&str>,
    ) -> Result<Claim> {
        let mut annotations = self.stamp_annotations(stamp);
        annotations[names::HELD] = json!(claim.uid);
        annotations[names::NODES] = json!((!nodes.is_empty()).then(|| nodes.join(",")));
        // The creator of the claim may have written these annotations, so that the deletion overlooks storage.
        if claim.own_stamp().is_none() {
            merge(
                &mut annotations,
                json!({ names::FAILURE: null, names::TIMELINE: null, names::FAILED_ATTEMPTS: null }),
            );
        }
        // Nobody has cleaned up after an attempt that begins.
        if claim.abandoned {
            annotations[names::ABANDON] = Value::Null;
        }
        if let Some(provisioner) = storage_provisioner {
            annotations[names::STORAGE_PROVISIONER] = json!(provisioner);
            annotations[names::STORAGE_PROVISIONER_BETA] = json!(provisioner);
        }
        self.patch_claim(claim, json!({ "annotations": annotations }), json!({})).await
    }

    /// Writes only the stamp, for a claim that needs no run.
    pub async fn backfill_stamp(&self, claim: &Claim, stamp: &Stamp) -> Result<Claim> {
        let mut annotations = json!({ names::FAILURE: null, names::NODES: null });
        merge(&mut annotations, self.stamp_annotations(stamp));
        self.patch_claim(claim, json!({ "annotations": annotations }), json!({})).await
    }

    fn stamp_annotations(&self, stamp: &Stamp) -> Value {
        json!({
            names::LABEL_INSTANCE: self.identity.instance,
            names::CLAIM_UID: stamp.claim_uid,
            names::PROVISION_TS: stamp.ts,
            names::ATTEMPT: stamp.attempt.to_string(),
            names::RECIPE_VERSION: stamp.recipe_version,
        })
    }

    /// Records the last failed run. `attempts` has the attempts that failed, up to this one; `None` for a deletion.
    pub async fn record_claim_failure(
        &self,
        claim: &Claim,
        failure: &LastFailure,
        attempts: Option<&FailedAttempts>,
    ) -> Result<Claim> {
        self.patch_claim(claim, json!({ "annotations": failure_annotations(failure, attempts) }), json!({})).await
    }

    /// Records the nodes where storage may be left.
    pub async fn set_claim_nodes(&self, claim: &Claim, nodes: &[String]) -> Result<Claim> {
        let nodes = json!({ names::NODES: (!nodes.is_empty()).then(|| nodes.join(",")) });
        self.patch_claim(claim, json!({ "annotations": nodes }), json!({})).await
    }

    /// Removes the selected node, and records the failure of the attempt there.
    pub async fn reschedule(
        &self,
        claim: &Claim,
        failure: Option<&LastFailure>,
        attempts: Option<&FailedAttempts>,
    ) -> Result<Claim> {
        let mut annotations = json!({ names::SELECTED_NODE: null });
        if let Some(failure) = failure {
            merge(&mut annotations, failure_annotations(failure, attempts));
        }
        self.patch_claim(claim, json!({ "annotations": annotations }), json!({})).await
    }

    /// Holds the claim no more: it is bound, or nothing is left of its attempts.
    ///
    /// A bound claim gets its timeline.
    pub async fn release_claim(&self, claim: &Claim, timeline: Option<&Timeline>) -> Result<Claim> {
        let mut annotations =
            json!({ names::HELD: null, names::FAILURE: null, names::RETRY: null, names::NODES: null });
        if let Some(timeline) = timeline {
            annotations[names::TIMELINE] = json!(timeline.to_string());
        }
        let mut metadata = json!({ "annotations": annotations });
        // No pod can use a pool request.
        if claim.is_pool_request(&self.identity.namespace) {
            let finalizers = self.all_finalizers(claim).await?;
            let rest: Vec<_> = finalizers.iter().filter(|finalizer| *finalizer != names::CLAIM_PROTECTION).collect();
            metadata["finalizers"] = json!(rest);
        }
        self.patch_claim(claim, metadata, json!({})).await
    }

    /// Adds a finalizer to a claim while its volume is cloned.
    pub async fn protect_clone_source(&self, source: &Claim, copy: &str) -> Result<Claim> {
        let mut finalizers = self.all_finalizers(source).await?;
        finalizers.push(names::clone_finalizer(copy));
        self.patch_claim(source, json!({ "finalizers": finalizers }), json!({})).await
    }

    /// Adds a finalizer to a claim while a snapshot of its volume is made.
    pub async fn protect_snapshot_source(&self, source: &Claim, snapshot: &str) -> Result<Claim> {
        let mut finalizers = self.all_finalizers(source).await?;
        finalizers.push(names::source_finalizer(snapshot));
        self.patch_claim(source, json!({ "finalizers": finalizers }), json!({})).await
    }

    /// Removes the finalizers of these copies and snapshots from a claim.
    pub async fn unprotect_source(&self, source: &Claim, copies: &[String]) -> Result<Claim> {
        let gone: Vec<_> =
            copies.iter().flat_map(|copy| [names::clone_finalizer(copy), names::source_finalizer(copy)]).collect();
        let finalizers = self.all_finalizers(source).await?;
        let rest: Vec<_> = finalizers.iter().filter(|finalizer| !gone.contains(finalizer)).collect();
        self.patch_claim(source, json!({ "finalizers": rest }), json!({})).await
    }

    /// Completes the claim's half of a binding, and holds it no more, in one write. The PV controller must have seen the volume
    /// with the claim before: it calls a complete claim Lost if it does not know the volume.
    ///
    /// A claim with an assigned pooled volume gets its stamp in the same write.
    pub async fn bind(
        &self,
        claim: &Claim,
        volume: &Volume,
        stamp: Option<&Stamp>,
        timeline: &Timeline,
    ) -> Result<Claim> {
        let mut annotations = json!({
            names::HELD: null,
            names::FAILURE: null,
            names::RETRY: null,
            names::NODES: null,
            names::BIND_COMPLETED: "yes",
            names::BOUND_BY_CONTROLLER: "yes",
            names::TIMELINE: timeline.to_string(),
        });
        if let Some(stamp) = stamp {
            merge(&mut annotations, self.stamp_annotations(stamp));
        }
        let metadata = json!({ "annotations": annotations });
        let bound = self.patch_claim(claim, metadata, json!({ "spec": { "volumeName": volume.name } })).await?;
        // If this write is lost, the PV controller completes the status: the binding itself is done.
        if let Err(error) = self.claim_is_bound(&bound, volume).await {
            tracing::debug!(%error, "the PV controller completes the status");
        }
        Ok(bound)
    }

    /// Writes the volume's name on a claim, for a volume that the PV controller would not choose by itself.
    pub async fn set_volume_name(&self, claim: &Claim, volume: &Volume) -> Result<Claim> {
        self.patch_claim(claim, json!({}), json!({ "spec": { "volumeName": volume.name } })).await
    }

    async fn claim_is_bound(&self, claim: &Claim, volume: &Volume) -> Result<()> {
        let size = volume.size.as_ref().copied().unwrap_or_default();
        let status = json!({ "status": {
            "phase": "Bound",
            "accessModes": volume.access_modes,
            "capacity": { "storage": flex_contract::quantity::quantity(size) },
            "currentVolumeAttributesClassName": &volume.attributes().class,
        }});
        let body = patch(&claim.uid, &claim.resource_version, json!({}), status);
        let written =
            self.claims(&claim.name.namespace).patch_status(&claim.name.name, &params(), &Patch::Merge(body)).await;
        self.written_claim(claim, written).map(drop)
    }

    /// Writes the state of an expand run into the claim's status.
    pub async fn report_expand(&self, claim: &Claim, report: &ExpandUpdate, now: &str) -> Result<Claim> {
        self.report(claim, report.status(now)).await
    }

    /// Writes the state of the volume's attributes into the claim's status.
    pub async fn report_modify(&self, claim: &Claim, report: &ModifyUpdate, now: &str) -> Result<Claim> {
        self.report(claim, report.status(now)).await
    }

    async fn report(&self, claim: &Claim, status: Value) -> Result<Claim> {
        let body = patch(&claim.uid, &claim.resource_version, json!({}), json!({ "status": status }));
        let claims = self.claims(&claim.name.namespace);
        let written = claims.patch_status(&claim.name.name, &params(), &Patch::Strategic(body)).await;
        self.written_claim(claim, written)
    }
}

/// Returns the annotations for a failed run: the run, and the attempts that failed.
fn failure_annotations(failure: &LastFailure, attempts: Option<&FailedAttempts>) -> Value {
    let mut annotations = json!({ names::FAILURE: json!(failure).to_string(), names::RETRY: null });
    if let Some(attempts) = attempts {
        annotations[names::FAILED_ATTEMPTS] = json!(attempts.to_string());
        annotations[names::TIMELINE] = json!(attempts.kept().last().map(|last| last.timeline.to_string()));
    }
    annotations
}
