//! The deletion of a volume, or of what an unfinished run left of it.

use flex_image_kit::Failure;
use k8s_openapi::api::core::v1::SecretReference;
use serde_json::Value;

use crate::names;
use crate::run::{Outcome, Run};

impl Run {
    /// Deletes all volumes with the id, then the Secret.
    ///
    /// # Errors
    /// If something remains. The message says what, and why.
    pub async fn delete(&self) -> Outcome<()> {
        let id = &self.request.volume_id;
        let volumes = self.volumes_of(id).await?;
        if volumes.is_empty() {
            self.unknown().await?;
        }
        for volume in volumes {
            self.remove(&volume.id, || self.volumes_of(id)).await?;
        }
        self.delete_secret().await?;
        Ok(())
    }

    /// Handles volumes with the right name and without metadata: such a volume is not deleted on a guess.
    async fn unknown(&self) -> Outcome<()> {
        let name = names::volume(&self.request);
        let named = self.cinder.volumes_named(&name).await?;
        match named.first() {
            None => Ok(()),
            Some(volume) => Err(Failure::never(format!(
                "Cinder has a volume {} called {name}, but its metadata does not say that it is this one ({} is missing): nothing \
                 is deleted; put the metadata back, or delete it there",
                volume.id,
                names::METADATA_VOLUME_ID
            ))
            .into()),
        }
    }

    async fn delete_secret(&self) -> Outcome<()> {
        let own = names::secret(&self.request);
        // The Secret is where the volume was made, whatever the config says now.
        let source: Value = serde_json::from_str(&self.request.volume_source).unwrap_or_default();
        let references =
            [&source["iscsi"]["secretRef"], &source["rbd"]["secretRef"], &source["csi"]["nodeStageSecretRef"]];
        let referred = references.into_iter().find(|reference| reference["name"] == own.as_str());
        let namespace = referred.and_then(|reference| reference["namespace"].as_str()).map(str::to_owned);
        if namespace.is_none() && !self.request.volume_source.is_empty() {
            return Ok(());
        }
        let is_there = namespace.is_some();
        let namespace = namespace.unwrap_or_else(|| self.parameters.secret_namespace.clone());
        let location = SecretReference { name: Some(own), namespace: Some(namespace) };
        self.cluster.delete_secret(&location, is_there).await?;
        Ok(())
    }
}
