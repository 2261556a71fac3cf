//! Snapshots of claims.

use flex_core::model::snapshot::api::{VolumeSnapshot, VolumeSnapshotClass};
use kube::api::{DeleteParams, PostParams};
use kube::{Api, ResourceExt};
use serde_json::json;

use crate::site::{Site, provisioner};
use crate::world::Finding;

impl Site<'_> {
    /// Creates the VolumeSnapshotClass.
    pub async fn snapshot_class(&self) {
        let class =
            json!({ "metadata": { "name": self.name }, "driver": provisioner(&self.name), "deletionPolicy": "Delete" });
        let class = serde_json::from_value(class).unwrap();
        let classes: Api<VolumeSnapshotClass> = Api::all(self.world.client.clone());
        classes.create(&PostParams::default(), &class).await.expect("the VolumeSnapshotClass is created");
    }

    /// Creates a VolumeSnapshot of a claim.
    pub async fn snapshot(&self, name: &str, of: &str) {
        let source = json!({ "persistentVolumeClaimName": of });
        let spec = json!({ "volumeSnapshotClassName": self.name, "source": source });
        let snapshot = serde_json::from_value(json!({ "metadata": { "name": name }, "spec": spec })).unwrap();
        let snapshots = self.api::<VolumeSnapshot>();
        snapshots.create(&PostParams::default(), &snapshot).await.expect("the snapshot is created");
    }

    pub async fn delete_snapshot(&self, name: &str) {
        let snapshots = self.api::<VolumeSnapshot>();
        snapshots.delete(name, &DeleteParams::default()).await.expect("the snapshot is deleted");
    }

    /// Waits until a snapshot is ready. Returns its UID.
    pub async fn snapshot_ready(&self, name: &str) -> Result<String, Finding> {
        let snapshots = self.api::<VolumeSnapshot>();
        self.until(&format!("snapshot {name} is ready"), || async {
            let snapshot = snapshots.get(name).await.map_err(|error| error.to_string())?;
            let ready = snapshot.status.as_ref().is_some_and(|status| status.ready_to_use == Some(true));
            if ready { Ok(snapshot.uid().unwrap_or_default()) } else { Err(format!("{:?}", snapshot.status)) }
        })
        .await
    }

    pub async fn snapshot_gone(&self, name: &str) -> Result<(), Finding> {
        let snapshots = self.api::<VolumeSnapshot>();
        self.until(&format!("snapshot {name} is gone"), || async {
            match snapshots.get_opt(name).await.map_err(|error| error.to_string())? {
                None => Ok(()),
                Some(snapshot) => Err(format!("{:?} {:?}", snapshot.metadata, snapshot.status)),
            }
        })
        .await
    }
}
