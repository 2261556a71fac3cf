//! The provision run: makes a volume, and the PersistentVolume with which nodes use it.

use flex_contract::volume_mode::VolumeMode;
use std::collections::BTreeMap;

use csi_spec::csi::controller_service_capability::rpc::Type;
use csi_spec::csi::volume_content_source::{self, SnapshotSource, VolumeSource};
use csi_spec::csi::{CapacityRange, CreateVolumeRequest, TopologyRequirement, Volume, VolumeContentSource};
use flex_contract::exit::{self, Reaction};
use flex_contract::operation::Operation;
use flex_contract::request::RunRequest;
use flex_contract::volume::{Made, persistent_volume};
use flex_image_kit::Failure;
use k8s_openapi::api::core::v1::{CSIPersistentVolumeSource, PersistentVolume, PersistentVolumeSpec};
use tonic::Code;

use crate::answer::{Wrong, check};
use crate::capability::capabilities;
use crate::parameters::Parameters;
use crate::run::{Credentials, DELETION_SECRET, MODIFY_SECRET, Outcome, Run, Stop};
use crate::secrets::{Kind, PREFIX};
use crate::topology::{Node, affinity, requirement};
use crate::trouble::Trouble;

/// The volume attribute of PersistentVolumes that names their maker.
const IDENTITY: &str = "storage.kubernetes.io/csiProvisionerIdentity";

/// The number of tries to delete a wrong volume.
const TRIES: usize = 5;

/// A call of CreateVolume.
pub struct CreateCall {
    /// The request to the driver.
    pub message: CreateVolumeRequest,
    /// The selected node.
    pub selected: Option<Node>,
    /// The request is for the place that the run names.
    pub is_in_place: bool,
}

impl Run {
    /// Makes the volume, or finds the one that an earlier run made: the driver knows it by its name.
    ///
    /// # Errors
    /// If there is no volume. The message says why.
    pub async fn provision(&self) -> Outcome<()> {
        self.driver.must(Type::CreateDeleteVolume, "make volumes")?;
        // This comes before anything is made, so that problems of the class are reported first.
        let source = self.persistent_source()?;
        let CreateCall { message, selected, .. } = self.message().await?;
        let volume = match self.create(&message).await {
            Err(Stop::Trouble(trouble)) if is_lost_snapshot(&trouble, &message) => {
                return Err(Failure::never(format!(
                    "the driver has lost the snapshot, and no volume is made: {}",
                    trouble.failure(false)
                ))
                .into());
            }
            // Some drivers forget the data source of a volume, and take a repeated call for another request.
            Err(Stop::Trouble(trouble)) if is_taken(&trouble, &message) => match self.has_persistent_volume().await? {
                // An earlier run has checked the volume.
                true => return Ok(()),
                false => self.replace(&message).await?,
            },
            answer => answer?,
        };
        if let Err(wrong) = check(&volume, &message, selected.as_ref(), self.parameters.topology_optional) {
            return Err(self.take_back(&volume, message.secrets, wrong).await.into());
        }
        let pv = self.persistent_volume(source, volume);
        Ok(self.cluster.create_volume(&pv).await.map_err(not_refused)?)
    }

    /// Builds the request to the driver.
    ///
    /// # Errors
    /// If the driver cannot do it, or if data for the request are missing.
    pub async fn message(&self) -> Outcome<CreateCall> {
        let (request, parameters) = (&self.request, &self.parameters);
        let fs_type = self.fs_type();
        let volume_content_source = self.content_source().await?;
        // A delete run asks for what an attempt may have made, when the driver and the class still allowed it.
        let is_new = request.operation != Operation::Delete;
        if is_new && !request.attributes.is_empty() {
            self.driver.must(Type::ModifyVolume, "give a volume the parameters of a VolumeAttributesClass")?;
        }
        let (place, is_in_place) = match self.place(request).await {
            // The selected node says no more where it is, or is not allowed. A claim can be deleted all the same.
            Err(Stop::Failure(_)) if request.operation == Operation::Delete && request.node().is_some() => {
                (self.place(&RunRequest { node_name: String::new(), ..request.clone() }).await?, false)
            }
            place => (place?, true),
        };
        let Place { requirement: accessibility_requirements, nodes } = place;
        let tells_writers_apart = self.driver.can(Type::SingleNodeMultiWriter);
        let secrets = self.credentials(self.reference(Kind::Provisioner)?.as_ref()).await?;
        let bytes = |bytes: u64| i64::try_from(bytes).unwrap_or(i64::MAX);
        if is_new && parameters.limit.is_some_and(|limit| limit < request.size_bytes) {
            return Err(Failure::never(format!(
                "the claim asks for {} bytes, and the class allows {} (csi-limit)",
                request.size_bytes,
                parameters.limit.unwrap_or_default()
            ))
            .into());
        }
        let message = CreateVolumeRequest {
            name: name(request, parameters),
            capacity_range: Some(CapacityRange {
                required_bytes: bytes(request.size_bytes),
                limit_bytes: bytes(parameters.limit.unwrap_or_default()),
            }),
            volume_capabilities: capabilities(request, &fs_type, tells_writers_apart)?,
            parameters: for_driver(request, parameters),
            secrets,
            volume_content_source,
            accessibility_requirements,
            mutable_parameters: request.attributes.clone(),
        };
        let selected = nodes.into_iter().find(|node| node.name == request.node_name);
        Ok(CreateCall { message, selected, is_in_place })
    }

    /// Returns the place for a request.
    async fn place(&self, request: &RunRequest) -> Outcome<Place> {
        let nodes = match (self.driver.has_topology(), needed(request, &self.parameters)) {
            (false, _) | (true, Needed::None) => Vec::new(),
            (true, Needed::One) => self.cluster.nodes(Some(&request.node_name), &self.driver.name).await?,
            (true, Needed::All) => self.cluster.nodes(None, &self.driver.name).await?,
        };
        let requirement = match self.driver.has_topology() {
            true => requirement(request, &self.parameters, &nodes)?,
            false => None,
        };
        Ok(Place { requirement, nodes })
    }

    /// Deletes the volume with the name of this claim's, and makes a copy anew. The name is for this claim alone, so an
    /// earlier attempt made the volume. Without a PersistentVolume nobody has used it, and it may not be whole.
    async fn replace(&self, message: &CreateVolumeRequest) -> Outcome<Volume> {
        eprintln!("a volume {} of an earlier attempt is in the way: it is deleted", message.name);
        let other = self.create(&without_source(message)).await?;
        self.remove(&other.volume_id, message.secrets.clone()).await?;
        self.create(message).await
    }

    async fn has_persistent_volume(&self) -> Result<bool, Failure> {
        Ok(self.cluster.handle(&self.request.pv_name, &self.driver.name).await?.is_some())
    }

    /// Calls CreateVolume. A copy may take as long as the run: a driver that copies within the call would be asked again
    /// and again.
    ///
    /// # Errors
    /// Those of the driver.
    pub async fn create(&self, message: &CreateVolumeRequest) -> Outcome<Volume> {
        let limit = message.volume_content_source.is_none().then(|| self.driver.limit());
        let asked = self.driver.call_within(limit, "CreateVolume", &message.name, async {
            self.driver.controller().create_volume(self.driver.request_within(limit, message.clone())).await
        });
        let asked = asked.await.inspect_err(|trouble| self.note_under_way(trouble));
        let volume = asked?.volume.filter(|volume| !volume.volume_id.is_empty());
        Ok(volume.ok_or_else(|| Failure::retry("the CSI driver answers CreateVolume without a volume"))?)
    }

    /// Checks whether the driver can copy. A delete run asks without a data source if it cannot.
    fn can_copy(&self, call: Type, texts: &str) -> Result<bool, Failure> {
        match self.request.operation {
            Operation::Delete => Ok(self.driver.can(call)),
            _ => self.driver.must(call, texts).map(|()| true),
        }
    }

    async fn content_source(&self) -> Outcome<Option<VolumeContentSource>> {
        let kind = match (&self.request.clone_of, &self.request.snapshot) {
            (Some(original), _) => {
                if !self.can_copy(Type::CloneVolume, "clone volumes")? {
                    return Ok(None);
                }
                let source = self.csi(&original.source)?;
                let source = source.ok_or_else(|| Failure::usage("CLONE_OF_SOURCE is empty"))?;
                volume_content_source::Type::Volume(VolumeSource { volume_id: source.volume_handle })
            }
            (None, Some(_)) => {
                if !self.can_copy(Type::CreateDeleteSnapshot, "restore snapshots")? {
                    return Ok(None);
                }
                let Some(snapshot_id) = self.handle_of_snapshot() else {
                    return match self.request.operation {
                        // No attempt of the claim has had a data source to name.
                        Operation::Delete => Ok(None),
                        _ => Err(unknown_snapshot().into()),
                    };
                };
                volume_content_source::Type::Snapshot(SnapshotSource { snapshot_id })
            }
            (None, None) => return Ok(None),
        };
        Ok(Some(VolumeContentSource { r#type: Some(kind) }))
    }

    /// Returns the file system of the class, or else of the config.
    pub fn fs_type(&self) -> String {
        match (&self.request.volume_mode, &self.parameters.fs_type) {
            (VolumeMode::Block, _) => String::new(),
            (_, Some(fs_type)) => fs_type.clone(),
            (_, None) => self.request.fs_type.clone(),
        }
    }

    /// Deletes a volume that is not the requested one.
    async fn take_back(&self, volume: &Volume, secrets: Credentials, wrong: Wrong) -> Failure {
        let mut last: Option<Trouble> = None;
        for _ in 0..TRIES {
            match self.remove(&volume.volume_id, secrets.clone()).await {
                Ok(()) => {
                    last = None;
                    break;
                }
                Err(trouble) => last = Some(trouble),
            }
        }
        let id = &volume.volume_id;
        let (end, is_gone) = match last {
            None => ("It was deleted again".to_owned(), true),
            Some(trouble) => (format!("It could not be deleted again: {}", trouble.failure(false)), false),
        };
        let (Wrong::Volume(what) | Wrong::Location(what)) = &wrong;
        let message = format!("the CSI driver made a wrong volume {id}: {what}. {end}");
        match (wrong, is_gone) {
            (Wrong::Location(_), true) => Failure::no_capacity(message),
            (Wrong::Location(_), false) | (Wrong::Volume(_), _) => Failure::retry(message),
        }
    }

    /// Returns the source of the PersistentVolume, without the driver's data about the volume.
    fn persistent_source(&self) -> Result<CSIPersistentVolumeSource, Failure> {
        Ok(CSIPersistentVolumeSource {
            driver: self.driver.name.clone(),
            fs_type: Some(self.fs_type()).filter(|fs_type| !fs_type.is_empty()),
            read_only: (self.parameters.publish_read_only && self.request.access_modes == ["ReadOnlyMany"])
                .then_some(true),
            controller_publish_secret_ref: self.reference(Kind::ControllerPublish)?,
            node_stage_secret_ref: self.reference(Kind::NodeStage)?,
            node_publish_secret_ref: self.reference(Kind::NodePublish)?,
            controller_expand_secret_ref: self.reference(Kind::ControllerExpand)?,
            node_expand_secret_ref: self.reference(Kind::NodeExpand)?,
            ..CSIPersistentVolumeSource::default()
        })
    }

    fn persistent_volume(&self, source: CSIPersistentVolumeSource, volume: Volume) -> PersistentVolume {
        let identity = format!("flex-provisioner-{}", self.request.instance);
        let mut attributes: BTreeMap<String, String> = [(IDENTITY.to_owned(), identity)].into();
        attributes.extend(volume.volume_context);
        let node_affinity = match self.driver.has_topology() {
            true => affinity(&volume.accessible_topology),
            false => None,
        };
        let csi = CSIPersistentVolumeSource {
            volume_handle: volume.volume_id,
            volume_attributes: Some(attributes),
            ..source
        };
        // Both references could be resolved when the source was made.
        let of_deletion = self.reference(Kind::Provisioner).unwrap_or_default();
        let of_modification = self.reference(Kind::ControllerModify).unwrap_or_default();
        let mut annotations = BTreeMap::new();
        for (keys, location) in [(DELETION_SECRET, of_deletion), (MODIFY_SECRET, of_modification)] {
            if let Some(location) = location {
                annotations.insert(keys[0].to_owned(), location.name.unwrap_or_default());
                annotations.insert(keys[1].to_owned(), location.namespace.unwrap_or_default());
            }
        }
        let size = u64::try_from(volume.capacity_bytes).unwrap_or_default();
        let made = Made {
            source: PersistentVolumeSpec { csi: Some(csi), node_affinity, ..PersistentVolumeSpec::default() },
            size_bytes: Some(size).filter(|size| *size > 0),
            annotations,
            ..Made::default()
        };
        persistent_volume(&self.request, made)
    }
}

/// Checks whether the driver says that it does not have the snapshot to restore.
fn is_lost_snapshot(trouble: &Trouble, message: &CreateVolumeRequest) -> bool {
    let source = message.volume_content_source.as_ref().and_then(|source| source.r#type.as_ref());
    trouble.status.code() == Code::NotFound && matches!(source, Some(volume_content_source::Type::Snapshot(_)))
}

/// Checks whether the driver says that another volume has the name of a copy.
pub fn is_taken(trouble: &Trouble, message: &CreateVolumeRequest) -> bool {
    trouble.status.code() == Code::AlreadyExists && message.volume_content_source.is_some()
}

/// Returns the request for an empty volume in place of a copy.
pub fn without_source(message: &CreateVolumeRequest) -> CreateVolumeRequest {
    CreateVolumeRequest { volume_content_source: None, ..message.clone() }
}

fn unknown_snapshot() -> Failure {
    Failure::never(
        "the run that made the snapshot has not said how the driver calls it, so that it cannot be restored: create a \
         VolumeSnapshotContent with the driver's own id as `snapshotHandle`, and a VolumeSnapshot for it",
    )
}

/// Returns the failure of a run that has made a volume, or may have made one. Delete runs rely on the fact that a refused
/// run has made none.
pub fn not_refused(failure: Failure) -> Failure {
    match exit::reaction(failure.code) {
        Reaction::Retry => failure,
        Reaction::Never | Reaction::NoCapacity => Failure::retry(failure.message),
    }
}

/// The place of a volume.
struct Place {
    requirement: Option<TopologyRequirement>,
    nodes: Vec<Node>,
}

/// The nodes that must be known for the volume's topology.
enum Needed {
    None,
    One,
    All,
}

fn needed(request: &RunRequest, parameters: &Parameters) -> Needed {
    let allowed = !request.class_topologies.is_empty();
    match request.node_name.as_str() {
        "" if allowed || !parameters.immediate_topology => Needed::None,
        "" => Needed::All,
        _ if parameters.strict_topology || allowed => Needed::One,
        _ => Needed::All,
    }
}

/// Returns the driver's name of the volume, which is the same in all runs.
fn name(request: &RunRequest, parameters: &Parameters) -> String {
    match &parameters.name_prefix {
        Some(prefix) => format!("{prefix}-{}", request.volume_id),
        None => request.pv_name.clone(),
    }
}

/// Returns the parameters that the driver gets from the class. It gets those of a VolumeAttributesClass separately.
pub fn for_driver(request: &RunRequest, parameters: &Parameters) -> BTreeMap<String, String> {
    let mut all = parameters.driver_parameters.clone();
    all.retain(|name, _| !request.attributes.contains_key(name));
    if parameters.extra_metadata {
        all.extend([
            (format!("{PREFIX}pvc/name"), request.claim.name.clone()),
            (format!("{PREFIX}pvc/namespace"), request.claim.namespace.clone()),
            (format!("{PREFIX}pv/name"), request.pv_name.clone()),
        ]);
    }
    all
}
