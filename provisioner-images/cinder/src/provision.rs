//! The provision run: makes a volume, and the PersistentVolume with which nodes attach it.

use flex_contract::volume_mode::VolumeMode;
use std::collections::BTreeMap;

use flex_contract::volume::{Made, persistent_volume};
use flex_image_kit::Failure;
use k8s_openapi::api::core::v1::SecretReference;
use serde_json::{Value, json};

use crate::api::{Connection, GIB, Volume};
use crate::data_source::{DataSource, WantedSource, wanted_source};
use crate::mapper::{self, Target};
use crate::names::{self, ZONE};
use crate::parameters::RbdForm;
use crate::run::{Outcome, PollDelay, Run};
use crate::step::{Step, provide};
use crate::trouble::{Kind, Trouble};

impl Run {
    /// Makes the volume, or continues where an earlier run stopped.
    ///
    /// # Errors
    /// If there is no volume. The message says why.
    pub async fn provision(&self) -> Outcome<()> {
        self.check().await?;
        let requested = wanted_source(&self.request, &self.parameters)?;
        let mut delay = PollDelay::new();
        let mut made: Option<String> = None;
        loop {
            let volumes = self.volumes_of(&self.request.volume_id).await?;
            match provide(&volumes) {
                Step::Stop(failure) => return Err(failure.into()),
                Step::Create => {
                    let volume = self.create(&requested).await?;
                    made = Some(volume.id);
                    delay = PollDelay::new();
                }
                Step::Wait(volume) => {
                    self.waiting_for(&volume.id, &volume.status);
                    delay.wait().await;
                }
                Step::Remove(volume) => self.discard(volume, &requested).await?,
                Step::Remake(volume) => {
                    let messages = match made.as_deref() == Some(volume.id.as_str()) {
                        true => Some(self.cinder.messages(&volume.id).await),
                        false => None,
                    };
                    self.discard(volume, &requested).await?;
                    if let Some(messages) = messages {
                        return Err(self.not_made("volume", &volume.id, messages));
                    }
                }
                Step::Reserve(volume) => {
                    self.restore_source_reservation(&requested).await?;
                    match self.cinder.reserve(&volume.id).await {
                        // An earlier call of the image may have succeeded without an answer.
                        Err(trouble) if trouble.kind == Kind::Refused => delay.wait().await,
                        other => other?,
                    }
                }
                Step::Connect(volume) => return self.finish(volume, &requested).await,
            }
        }
    }

    /// Finds what is impossible whatever Cinder says, before anything is made.
    async fn check(&self) -> Result<(), Failure> {
        if self.parameters.rbd_form == RbdForm::InTree {
            self.cluster.check_in_tree_rbd().await?;
        }
        let many = self.request.access_modes.iter().any(|mode| mode == "ReadWriteMany");
        if many && self.request.volume_mode != VolumeMode::Block {
            return Err(Failure::never(
                "ReadWriteMany is possible with volumeMode Block alone: a file system on a block device is for one node; ask for \
                 ReadWriteOnce, and have `access-modes: ReadWriteOnce, ReadOnlyMany` put into the config",
            ));
        }
        Ok(())
    }

    async fn create(&self, requested: &WantedSource) -> Outcome<Volume> {
        let data_source = self.data_source(requested).await?;
        if let DataSource::Volume(source) = &data_source {
            self.unreserve_for_copy(source).await?;
        }
        let body = self.body(&data_source)?;
        let created = self.cinder.create(body).await;
        // To request the copy is enough: Cinder checks the source's state before it accepts the copy, and not
        // afterwards. A run that fails, or is stopped while Cinder copies, may be the last one.
        if let DataSource::Volume(source) = &data_source {
            let reserved = self.restore_reservation(source).await;
            if created.is_ok() {
                reserved?;
            }
        }
        created.map_err(|trouble| match trouble.kind {
            // Another run has reserved the source again, or its state is about to change.
            Kind::Refused if matches!(data_source, DataSource::Volume(_)) && trouble.message.contains("status") => {
                Trouble::new(Kind::Passing, trouble.message).into()
            }
            // The volume type is missing, because the data source existed a moment ago.
            Kind::Missing => Trouble::new(
                Kind::Config,
                format!("{}; correct the parameter `type` of the class or config", trouble.message),
            )
            .into(),
            Kind::Refused if trouble.message.contains("vailability zone") => {
                Failure::config(format!("{}; correct the parameter `availability-zone`", trouble.message)).into()
            }
            _ => trouble.into(),
        })
    }

    /// Builds the request to Cinder. Leaves out empty texts, which Cinder refuses.
    fn body(&self, data_source: &DataSource) -> Result<Value, Failure> {
        let mut volume = json!({
            "size": self.request.size_bytes.div_ceil(GIB).max(1),
            "name": names::volume(&self.request),
            "description": format!("Kubernetes claim {}/{}", self.request.claim.namespace, self.request.claim.name),
            "metadata": names::metadata(&self.request, &self.parameters),
        });
        if let Some(kind) = &self.parameters.volume_type {
            volume["volume_type"] = json!(kind);
        }
        if let Some(zone) = self.zone()? {
            volume["availability_zone"] = json!(zone);
        }
        match data_source {
            DataSource::Nothing => {}
            DataSource::Snapshot(snapshot) => volume["snapshot_id"] = json!(snapshot.id),
            DataSource::Volume(source) => volume["source_volid"] = json!(source.id),
        }
        let mut body = json!({ "volume": volume });
        if let Some(hints) = &self.parameters.hints {
            body["OS-SCH-HNT:scheduler_hints"] = hints.clone();
        }
        Ok(body)
    }

    fn zone(&self) -> Result<Option<String>, Failure> {
        if !self.parameters.zone_from_topology {
            return Ok(self.parameters.zone.clone());
        }
        match self.request.topology.get(ZONE) {
            Some(zone) => Ok(Some(zone.clone())),
            None => Err(Failure::config(format!(
                "`zone-from-topology` needs a selected node with the label {ZONE}: use a StorageClass with \
                 volumeBindingMode: WaitForFirstConsumer, or name the zone in `availability-zone`"
            ))),
        }
    }

    /// Deletes a volume of the id, whose run may have died before it reserved the source again.
    async fn discard(&self, volume: &Volume, requested: &WantedSource) -> Outcome<()> {
        self.remove(&volume.id, || self.volumes_of(&self.request.volume_id)).await?;
        self.restore_source_reservation(requested).await
    }

    /// Reserves the source again if an earlier run unreserved it for a copy and then died.
    async fn restore_source_reservation(&self, requested: &WantedSource) -> Outcome<()> {
        if !matches!(requested, WantedSource::Volume(_) | WantedSource::Claim { .. }) {
            return Ok(());
        }
        // If the source is gone, nothing is left to reserve.
        match self.data_source(requested).await {
            Ok(DataSource::Volume(source)) if source.status == "available" => self.restore_reservation(&source).await,
            _ => Ok(()),
        }
    }

    async fn finish(&self, volume: &Volume, requested: &WantedSource) -> Outcome<()> {
        if volume.bytes() < self.request.size_bytes {
            return Err(Failure::never(format!(
                "Cinder's volume {} has {}Gi, less than the claim asks for: it was made for another request; delete it there",
                volume.id, volume.size
            ))
            .into());
        }
        let connection = self.cinder.connect(&volume.id, &self.connector()).await.map_err(connector_refused)?;
        let mapped = self.map(&connection)?;
        let location = self.secret_place();
        if let Some(credentials) = &mapped.secret {
            self.cluster.write_secret(&location, credentials, &self.request).await?;
        }
        if let WantedSource::Claim { namespace, name } = requested {
            let claim = &self.request.claim;
            let of = format!("{namespace}/{name}");
            self.cluster.annotate_claim(&claim.namespace, &claim.name, names::CLONE_OF, &of).await?;
        }
        let made = Made {
            source: mapped.source,
            size_bytes: Some(volume.bytes()),
            reachable_from: self.reachable_from(),
            annotations: [(names::CINDER_VOLUME_ID.to_owned(), volume.id.clone())].into(),
        };
        let pv = persistent_volume(&self.request, made);
        self.cluster.create_volume(&pv, mapped.secret.as_ref().map(|_| &location)).await?;
        Ok(())
    }

    /// Returns the source of the PersistentVolume for a connection.
    ///
    /// # Errors
    /// If there is none.
    pub fn map(&self, connection: &Connection) -> Result<mapper::Mapped, Failure> {
        let fs_type = if self.request.volume_mode == VolumeMode::Block { "" } else { self.request.fs_type.as_str() };
        let target = Target { parameters: &self.parameters, fs_type, secret: self.secret_place() };
        mapper::map(connection, &target)
    }

    /// Returns the place of the volume's Secret: a namespace of admins, where users cannot read it.
    pub fn secret_place(&self) -> SecretReference {
        SecretReference {
            name: Some(names::secret(&self.request)),
            namespace: Some(self.parameters.secret_namespace.clone()),
        }
    }

    fn reachable_from(&self) -> BTreeMap<String, String> {
        let zone = self.request.topology.get(ZONE).filter(|_| self.parameters.zone_from_topology);
        zone.map(|zone| (ZONE.to_owned(), zone.clone())).into_iter().collect()
    }
}

/// Handles a storage system that needs more data about the nodes.
fn connector_refused(trouble: Trouble) -> Trouble {
    match trouble.kind {
        Kind::Refused => Trouble::new(
            Kind::Config,
            format!(
                "{}; what the backend is told about the nodes stands in initiator-name (iSCSI), wwpns and wwnns (Fibre Channel), \
                 connector-host and connector-ip",
                trouble.message
            ),
        ),
        _ => trouble,
    }
}
