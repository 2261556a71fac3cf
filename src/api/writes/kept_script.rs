//! Writes of kept scripts.

use std::ops::ControlFlow;

use flex_contract::names;
use flex_core::config::classes::KeptScript;
use flex_core::config::script::{hash, kept_data, kept_name, kept_text};
use flex_core::model::snapshot::api::VolumeSnapshotContent;
use k8s_openapi::api::apps::v1::ControllerRevision;
use k8s_openapi::api::core::v1::PersistentVolume;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use k8s_openapi::apimachinery::pkg::runtime::RawExtension;
use kube::api::{ListParams, Patch};
use kube::core::PartialObjectMeta;
use kube::{Api, Resource};
use serde::de::DeserializeOwned;
use serde_json::json;

use super::{Result, WriteError, Writes, deleted, each_page, guarded, params, post};
use crate::api::discard_reply::DiscardReply;

impl Writes {
    /// Keeps a script. An existing object is accepted if it has the same text.
    pub async fn write_script(&self, text: &str) -> Result<()> {
        let name = kept_name(&self.identity.instance, &hash(text));
        let what = || format!("script {name}");
        let labels = json!({ names::LABEL_INSTANCE: self.identity.instance });
        let kept = ControllerRevision {
            metadata: ObjectMeta {
                name: Some(name.clone()),
                namespace: Some(self.identity.namespace.clone()),
                labels: Some([(names::LABEL_INSTANCE.to_owned(), self.identity.instance.clone())].into()),
                ..ObjectMeta::default()
            },
            data: Some(RawExtension(kept_data(text))),
            revision: 1,
        };
        let error = match DiscardReply(self.revisions()).create(&post(), &kept).await {
            Ok(()) => return Ok(()),
            Err(error) => WriteError::of(what())(error),
        };
        if !matches!(error, WriteError::Conflict(_)) {
            return Err(error);
        }
        // The data of a ControllerRevision never changes. The label brings the object back into the watch.
        let body = json!({ "metadata": { "labels": labels } });
        let there =
            self.revisions().patch(&name, &params(), &Patch::Merge(body)).await.map_err(WriteError::of(what()))?;
        match there.data.as_ref().and_then(|data| kept_text(&data.0)) == Some(text) {
            true => Ok(()),
            false => Err(WriteError::Foreign(what())),
        }
    }

    /// Checks by the API whether a volume or a VolumeSnapshotContent names a script in its provenance.
    pub async fn is_script_named(&self, hash: &str) -> Result<bool> {
        let volumes: Api<PartialObjectMeta<PersistentVolume>> = Api::all(self.client.clone());
        if names_it(volumes, hash).await.map_err(WriteError::of("all volumes"))? {
            return Ok(true);
        }
        let contents: Api<PartialObjectMeta<VolumeSnapshotContent>> = Api::all(self.client.clone());
        match names_it(contents, hash).await {
            // The cluster does not have the kind.
            Err(kube::Error::Api(status)) if status.code == 404 => Ok(false),
            named => named.map_err(WriteError::of("all VolumeSnapshotContents")),
        }
    }

    /// Deletes a kept script that nobody names.
    pub async fn delete_script(&self, script: &KeptScript) -> Result<()> {
        let name = kept_name(&self.identity.instance, &script.hash);
        let answer = DiscardReply(self.revisions()).delete(&name, &guarded(&script.uid, "")).await;
        deleted(answer, format!("script {name}"))
    }
}

/// Checks whether the provenance of an object contains a hash, page by page.
async fn names_it<K>(api: Api<PartialObjectMeta<K>>, hash: &str) -> kube::Result<bool>
where
    K: Resource<DynamicType = ()> + Clone + std::fmt::Debug + DeserializeOwned,
{
    let names_it = |meta: &ObjectMeta| {
        let provenance = meta.annotations.as_ref().and_then(|annotations| annotations.get(names::PROVENANCE));
        provenance.is_some_and(|provenance| provenance.contains(hash))
    };
    let mut found = false;
    let look = |page: Vec<ObjectMeta>| {
        found = page.iter().any(names_it);
        if found { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    };
    each_page(&api, ListParams::default(), look).await?;
    Ok(found)
}
