//! The writes by which an admin vouches for a restored volume, or for another node of a volume and its snapshots.

use flex_contract::names;
use flex_core::config::classes::Identity;
use flex_core::model::snapshot::Content;
use flex_core::model::snapshot::api::VolumeSnapshotContent;
use flex_core::model::volume::{Volume, adoption_mark};
use k8s_openapi::api::core::v1::PersistentVolume;
use kube::Api;
use kube::api::Patch;
use serde_json::{Value, json};

use super::{Result, WriteError, Writes, params, patch};
use crate::api::trimmed::Trimmed;
use crate::state::index::WorkItem;

impl Writes {
    /// Writes the adoption mark of a restored volume, by its provenance. A volume without a claimRef is reserved first:
    /// adopted, any claim could take it. A volume that was pooled when it was saved leaves the pool first, because a
    /// claim may have used it since. A record of another cluster becomes that of this cluster by the last write: an admin
    /// who repeats an interrupted command is asked for the cluster again. `node` is the node for the record, if it is
    /// another than that of the record: the list of nodes with storage gets it, too.
    pub async fn vouch(&self, volume: &Volume, node: Option<&str>) -> Result<Volume> {
        let mut kept = volume.clone();
        if kept.was_pooled() {
            // The annotation of the size stays: an admin who repeats an interrupted command is asked again.
            let metadata = json!({ "labels": { names::LABEL_POOL: null } });
            kept = self.patch_volume(&kept, metadata, json!({})).await?;
        }
        if kept.claim_ref.is_none() {
            kept = self.reserve(&kept, &kept.reservation(&self.identity.namespace), None).await?;
        }
        let Some(new) = kept.provenance.as_deref().and_then(|record| record_here(record, &self.identity, node)) else {
            return self.write_adoption_mark(&kept).await;
        };
        let nodes = node.and_then(|node| nodes_now(&kept.nodes_with_storage, new.former_node.as_deref(), node));
        let mut annotations = json!({ names::PROVENANCE: new.record });
        if let Some(nodes) = nodes {
            annotations[names::NODES] = json!(nodes.join(","));
        }
        self.write_record(&kept, &new.record, &json!({ "annotations": annotations })).await
    }

    /// Writes a new record of a volume together with its mark: the API server takes annotations with a status. With one of
    /// them alone, a volume in use would look as if a backup tool had restored it.
    async fn write_record(&self, volume: &Volume, record: &str, metadata: &Value) -> Result<Volume> {
        let status = json!({ "status": { "reason": adoption_mark(record, &volume.uid) } });
        let body = patch(&volume.uid, &volume.resource_version, metadata.clone(), status);
        let volumes: Api<Trimmed<PersistentVolume>> = Api::all(self.client.clone());
        let answer = volumes.patch_status(&volume.name, &params(), &Patch::Merge(body)).await;
        let item = WorkItem::Volume(volume.name.clone());
        self.written(item, format!("volume {}", volume.name), answer)
    }

    /// Writes into the record of a content that another node has the storage of its volume. All else in the record stays,
    /// also the UID of the content that got it: a content that a backup tool has restored still counts as such.
    pub async fn vouch_snapshot(&self, content: &Content, node: &str) -> Result<()> {
        let Some(record) = content.provenance.as_deref().and_then(|record| record_on(record, node)) else {
            return Ok(());
        };
        let metadata = json!({ "annotations": { names::PROVENANCE: record } });
        let body = patch(&content.uid, &content.resource_version, metadata, json!({}));
        let contents: Api<VolumeSnapshotContent> = Api::all(self.client.clone());
        let patched = contents.patch(&content.name, &params(), &Patch::Merge(body)).await;
        patched.map(drop).map_err(WriteError::of(format!("VolumeSnapshotContent {}", content.name)))
    }
}

/// Returns the record of a snapshot, with another node.
fn record_on(record: &str, node: &str) -> Option<String> {
    let mut read: Value = serde_json::from_str(record).ok()?;
    read.as_object_mut()?.insert("node".to_owned(), json!(node));
    Some(read.to_string())
}

/// A record that an admin has confirmed with changes.
#[derive(Debug, PartialEq)]
struct NewRecord {
    /// The text of the record.
    record: String,
    /// The node that the record had before.
    former_node: Option<String>,
}

/// Returns a record with the UID of this cluster, and with another node if the admin names one; `None` if nothing
/// changes. An unknown UID changes nothing.
fn record_here(record: &str, identity: &Identity, node: Option<&str>) -> Option<NewRecord> {
    let mut read: Value = serde_json::from_str(record).ok()?;
    let former_node = read["node"].as_str().filter(|node| !node.is_empty()).map(str::to_owned);
    let is_here = identity.cluster.is_empty() || read["cluster"].as_str() == Some(&identity.cluster);
    let is_there = node.is_none() || node == former_node.as_deref();
    if is_here && is_there {
        return None;
    }
    let fields = read.as_object_mut()?;
    if !is_here {
        fields.insert("cluster".to_owned(), json!(identity.cluster));
    }
    if !is_there {
        fields.insert("node".to_owned(), json!(node));
    }
    Some(NewRecord { record: read.to_string(), former_node })
}

/// Returns the nodes with storage of a volume whose own node was `former`, and is `now`. The own node is the last. A
/// volume without a list keeps none.
fn nodes_now(nodes: &[String], former: Option<&str>, now: &str) -> Option<Vec<String>> {
    let others = nodes.iter().filter(|node| Some(node.as_str()) != former && *node != now).cloned();
    (!nodes.is_empty()).then(|| others.chain([now.to_owned()]).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_that_an_admin_confirms_is_of_this_cluster() {
        let here = Identity { cluster: "here".into(), ..crate::state::testing::default_identity() };
        let became = |record: &str| {
            record_here(record, &here, None).map(|new| serde_json::from_str::<Value>(&new.record).unwrap())
        };
        let ours = json!({ "class": "c", "later": 1, "cluster": "here" });
        assert_eq!(became(r#"{"class":"c","later":1}"#), Some(ours.clone()), "nothing else is lost");
        assert_eq!(became(r#"{"class":"c","later":1,"cluster":"there"}"#), Some(ours.clone()));
        assert_eq!(became(&ours.to_string()), None);
        let unknown = Identity { cluster: String::new(), ..here };
        assert_eq!(record_here(r#"{"cluster":"there"}"#, &unknown, None), None);
    }

    #[test]
    fn the_record_of_a_snapshot_keeps_all_but_its_node() {
        let record = r#"{"class":"c","later":1,"node":"a","volume_id":"v","content_uid":"u"}"#;
        let new: Value = serde_json::from_str(&record_on(record, "b").unwrap()).unwrap();
        assert_eq!(new, json!({ "class": "c", "later": 1, "node": "b", "volume_id": "v", "content_uid": "u" }));
        assert_eq!(record_on("{", "b"), None);
    }

    #[test]
    fn the_node_that_an_admin_names_replaces_that_of_the_record_and_of_the_list() {
        let here = Identity { cluster: "here".into(), ..crate::state::testing::default_identity() };
        let record = r#"{"class":"c","cluster":"here","node":"a"}"#;
        let new = record_here(record, &here, Some("b")).unwrap();
        let read: Value = serde_json::from_str(&new.record).unwrap();
        assert_eq!(read, json!({ "class": "c", "cluster": "here", "node": "b" }));
        assert_eq!(new.former_node.as_deref(), Some("a"));
        assert_eq!(record_here(record, &here, Some("a")), None);
        let list = |nodes: &[&str]| nodes.iter().map(|node| (*node).to_owned()).collect::<Vec<_>>();
        assert_eq!(nodes_now(&list(&["c", "a"]), Some("a"), "b"), Some(list(&["c", "b"])));
        assert_eq!(nodes_now(&list(&["b", "a"]), Some("a"), "b"), Some(list(&["b"])), "an attempt was there before");
        assert_eq!(nodes_now(&[], Some("a"), "b"), None);
    }
}
