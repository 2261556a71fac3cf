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
    /// who repeats an interrupted command is asked for the cluster again.
    pub async fn vouch(&self, volume: &Volume) -> Result<Volume> {
        let mut kept = volume.clone();
        if kept.was_pooled() {
            // The annotation of the size stays: an admin who repeats an interrupted command is asked again.
            let metadata = json!({ "labels": { names::LABEL_POOL: null } });
            kept = self.patch_volume(&kept, metadata, json!({})).await?;
        }
        if kept.claim_ref.is_none() {
            kept = self.reserve(&kept, &kept.reservation(&self.identity.namespace), None).await?;
        }
        let Some(record) = kept.provenance.as_deref().and_then(|record| record_here(record, &self.identity)) else {
            return self.write_adoption_mark(&kept).await;
        };
        let marked = self.write_adoption_mark(&Volume { provenance: Some(record.clone()), ..kept }).await?;
        self.patch_volume(&marked, json!({ "annotations": { names::PROVENANCE: record } }), json!({})).await
    }
}

/// Returns a record with the UID of this cluster; `None` if the record has it, or if the UID is not known.
fn record_here(record: &str, identity: &Identity) -> Option<String> {
    let mut read: Value = serde_json::from_str(record).ok()?;
    let is_here = read["cluster"].as_str() == Some(&identity.cluster);
    if is_here || identity.cluster.is_empty() {
        return None;
    }
    read.as_object_mut()?.insert("cluster".to_owned(), json!(identity.cluster));
    Some(read.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_that_an_admin_confirms_is_of_this_cluster() {
        let here = Identity { cluster: "here".into(), ..crate::state::testing::default_identity() };
        let became =
            |record: &str| record_here(record, &here).map(|text| serde_json::from_str::<Value>(&text).unwrap());
        let ours = json!({ "class": "c", "later": 1, "cluster": "here" });
        assert_eq!(became(r#"{"class":"c","later":1}"#), Some(ours.clone()), "nothing else is lost");
        assert_eq!(became(r#"{"class":"c","later":1,"cluster":"there"}"#), Some(ours.clone()));
        assert_eq!(became(&ours.to_string()), None);
        let unknown = Identity { cluster: String::new(), ..here };
        assert_eq!(record_here(r#"{"cluster":"there"}"#, &unknown), None);
    }
}
