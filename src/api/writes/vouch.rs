//! The writes by which an admin vouches for a restored volume.

use flex_contract::names;
use serde_json::{Value, json};

use super::{Result, Writes};
use crate::config::classes::Identity;
use crate::model::volume::Volume;

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
        let marked = self.write_adoption_mark(&Volume { provenance: Some(new.record), ..kept }).await?;
        self.patch_volume(&marked, json!({ "annotations": annotations }), json!({})).await
    }
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
