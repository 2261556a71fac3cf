//! The driver's answers.

use std::sync::Arc;

use csi_spec::csi::controller_server::Controller;
use csi_spec::csi::identity_server::Identity;
use csi_spec::csi::volume_content_source::Type as Origin;
use csi_spec::csi::*;
use tonic::{Request, Response, Status};

use crate::{Act, Made, Shared, State};

#[derive(Clone)]
pub(crate) struct Service(pub Arc<Shared>);

type Answer<T> = Result<Response<T>, Status>;

fn none<T>(call: &str) -> Answer<T> {
    Err(Status::unimplemented(format!("this driver of tests has no {call}")))
}

#[tonic::async_trait]
impl Identity for Service {
    async fn get_plugin_info(&self, _: Request<GetPluginInfoRequest>) -> Answer<GetPluginInfoResponse> {
        let name = self.0.options.name.clone();
        let work = |_: &mut State| {
            Ok(GetPluginInfoResponse { name, vendor_version: "1".into(), ..GetPluginInfoResponse::default() })
        };
        self.0.call("GetPluginInfo", "", work).await.map(Response::new)
    }

    async fn get_plugin_capabilities(
        &self,
        _: Request<GetPluginCapabilitiesRequest>,
    ) -> Answer<GetPluginCapabilitiesResponse> {
        use plugin_capability::{Service, Type, VolumeExpansion, volume_expansion};
        let services = self.0.options.services.iter().map(|it| Type::Service(Service { r#type: *it as i32 }));
        let online = Type::VolumeExpansion(VolumeExpansion { r#type: volume_expansion::Type::Online as i32 });
        let all = services.chain(self.0.options.expands.then_some(online));
        let capabilities = all.map(|it| PluginCapability { r#type: Some(it) }).collect();
        let work = |_: &mut State| Ok(GetPluginCapabilitiesResponse { capabilities });
        self.0.call("GetPluginCapabilities", "", work).await.map(Response::new)
    }

    async fn probe(&self, _: Request<ProbeRequest>) -> Answer<ProbeResponse> {
        let not_ready = {
            let mut state = self.0.state();
            let acts = state.acts.entry("Probe").or_default();
            let is_unready = matches!(acts.front(), Some(Act::NotReady));
            if is_unready {
                acts.pop_front();
            }
            is_unready
        };
        let ready = not_ready.then_some(false);
        self.0.call("Probe", "", |_| Ok(ProbeResponse { ready })).await.map(Response::new)
    }
}

impl State {
    fn create(&mut self, request: CreateVolumeRequest) -> Result<CreateVolumeResponse, Status> {
        self.secrets.push(("CreateVolume", request.secrets.clone()));
        let place = request.accessibility_requirements.as_ref().and_then(|asked| asked.preferred.first().cloned());
        let place = place.filter(|_| self.zonal);
        let key = match &place {
            Some(place) => format!("{} in {:?}", request.name, place.segments),
            None => request.name.clone(),
        };
        if let Some(made) = self.volumes.get(&key) {
            let same = made.request.capacity_range == request.capacity_range
                && made.request.volume_capabilities == request.volume_capabilities
                && made.request.parameters == request.parameters
                && made.request.volume_content_source == request.volume_content_source;
            return match same {
                true => Ok(CreateVolumeResponse { volume: Some(made.volume.clone()) }),
                false => Err(Status::already_exists("a volume of this name was made for another request")),
            };
        }
        match request.volume_content_source.as_ref().and_then(|source| source.r#type.as_ref()) {
            Some(Origin::Volume(it)) if !self.volumes.values().any(|made| made.volume.volume_id == it.volume_id) => {
                return Err(Status::not_found("there is no such volume to copy"));
            }
            Some(Origin::Snapshot(it))
                if !self.snapshots.values().any(|(made, _)| made.snapshot_id == it.snapshot_id) =>
            {
                return Err(Status::not_found("there is no such snapshot to restore"));
            }
            _ => {}
        }
        self.number += 1;
        let volume = Volume {
            volume_id: format!("vol-{}", self.number),
            capacity_bytes: request.capacity_range.unwrap_or_default().required_bytes,
            volume_context: [("of".to_owned(), request.name.clone())].into(),
            content_source: request.volume_content_source.clone(),
            accessible_topology: place.map_or_else(|| self.location.clone(), |place| vec![place]),
        };
        let volume_content_source = request.volume_content_source.clone().filter(|_| !self.forgets_sources);
        let request = CreateVolumeRequest { volume_content_source, ..request };
        self.volumes.insert(key, Made { volume: volume.clone(), request });
        Ok(CreateVolumeResponse { volume: Some(volume) })
    }

    fn of_id(&mut self, id: &str) -> Result<&mut Made, Status> {
        self.volumes
            .values_mut()
            .find(|made| made.volume.volume_id == id)
            .ok_or_else(|| Status::not_found(format!("there is no volume {id}")))
    }
}

#[tonic::async_trait]
impl Controller for Service {
    async fn create_volume(&self, request: Request<CreateVolumeRequest>) -> Answer<CreateVolumeResponse> {
        let request = request.into_inner();
        let twist = match self.0.state().acts.get("CreateVolume").and_then(|acts| acts.front()) {
            Some(Act::Twist(twist)) => Some(*twist),
            _ => None,
        };
        let name = request.name.clone();
        let mut answer = self.0.call_at_work("CreateVolume", &name, |state| state.create(request)).await?;
        if let (Some(twist), Some(volume)) = (twist, &mut answer.volume) {
            twist(volume);
        }
        Ok(Response::new(answer))
    }

    async fn delete_volume(&self, request: Request<DeleteVolumeRequest>) -> Answer<DeleteVolumeResponse> {
        let DeleteVolumeRequest { volume_id, secrets } = request.into_inner();
        let work = |state: &mut State| {
            state.secrets.push(("DeleteVolume", secrets));
            state.volumes.retain(|_, made| made.volume.volume_id != volume_id);
            Ok(DeleteVolumeResponse {})
        };
        self.0.call_at_work("DeleteVolume", &volume_id.clone(), work).await.map(Response::new)
    }

    async fn controller_publish_volume(
        &self,
        _: Request<ControllerPublishVolumeRequest>,
    ) -> Answer<ControllerPublishVolumeResponse> {
        none("ControllerPublishVolume")
    }

    async fn controller_unpublish_volume(
        &self,
        _: Request<ControllerUnpublishVolumeRequest>,
    ) -> Answer<ControllerUnpublishVolumeResponse> {
        none("ControllerUnpublishVolume")
    }

    async fn validate_volume_capabilities(
        &self,
        _: Request<ValidateVolumeCapabilitiesRequest>,
    ) -> Answer<ValidateVolumeCapabilitiesResponse> {
        none("ValidateVolumeCapabilities")
    }

    async fn list_volumes(&self, request: Request<ListVolumesRequest>) -> Answer<ListVolumesResponse> {
        let ListVolumesRequest { starting_token, .. } = request.into_inner();
        let work = |state: &mut State| {
            let from = match starting_token.as_str() {
                "" => 0,
                token => token.parse::<usize>().map_err(|_| Status::aborted("no such token"))?,
            };
            let page = state.page.min(state.volumes.len().max(1));
            let entry =
                |made: &Made| list_volumes_response::Entry { volume: Some(made.volume.clone()), ..Default::default() };
            let entries = state.volumes.values().skip(from).take(page).map(entry).collect();
            let next = (from + page < state.volumes.len()).then(|| (from + page).to_string());
            Ok(ListVolumesResponse { entries, next_token: next.unwrap_or_default() })
        };
        self.0.call("ListVolumes", &starting_token.clone(), work).await.map(Response::new)
    }

    async fn get_capacity(&self, request: Request<GetCapacityRequest>) -> Answer<GetCapacityResponse> {
        let segments = request.into_inner().accessible_topology.unwrap_or_default().segments;
        let location: Vec<String> = segments.iter().map(|(key, value)| format!("{key}={value}")).collect();
        let work = |state: &mut State| {
            Ok(GetCapacityResponse {
                available_capacity: state.capacity,
                maximum_volume_size: state.largest,
                ..Default::default()
            })
        };
        self.0.call("GetCapacity", &location.join(","), work).await.map(Response::new)
    }

    async fn controller_get_capabilities(
        &self,
        _: Request<ControllerGetCapabilitiesRequest>,
    ) -> Answer<ControllerGetCapabilitiesResponse> {
        use controller_service_capability::{Rpc, Type};
        let one = |it: &controller_service_capability::rpc::Type| ControllerServiceCapability {
            r#type: Some(Type::Rpc(Rpc { r#type: *it as i32 })),
        };
        let capabilities = self.0.options.calls.iter().map(one).collect();
        let work = |_: &mut State| Ok(ControllerGetCapabilitiesResponse { capabilities });
        self.0.call("ControllerGetCapabilities", "", work).await.map(Response::new)
    }

    async fn create_snapshot(&self, request: Request<CreateSnapshotRequest>) -> Answer<CreateSnapshotResponse> {
        let request = request.into_inner();
        let name = request.name.clone();
        let work = |state: &mut State| {
            if let Some((made, by)) = state.snapshots.get(&request.name) {
                return match by.source_volume_id == request.source_volume_id {
                    true => Ok(CreateSnapshotResponse { snapshot: Some(made.clone()) }),
                    false => Err(Status::already_exists("a snapshot of this name is of another volume")),
                };
            }
            let size_bytes = state.of_id(&request.source_volume_id)?.volume.capacity_bytes;
            state.number += 1;
            let snapshot = Snapshot {
                size_bytes,
                snapshot_id: state.snapshot_id.clone().unwrap_or_else(|| format!("snap-{}", state.number)),
                source_volume_id: request.source_volume_id.clone(),
                ready_to_use: true,
                ..Snapshot::default()
            };
            state.snapshots.insert(request.name.clone(), (snapshot.clone(), request));
            Ok(CreateSnapshotResponse { snapshot: Some(snapshot) })
        };
        self.0.call("CreateSnapshot", &name, work).await.map(Response::new)
    }

    async fn delete_snapshot(&self, request: Request<DeleteSnapshotRequest>) -> Answer<DeleteSnapshotResponse> {
        let DeleteSnapshotRequest { snapshot_id, .. } = request.into_inner();
        let work = |state: &mut State| {
            state.snapshots.retain(|_, (made, _)| made.snapshot_id != snapshot_id);
            Ok(DeleteSnapshotResponse {})
        };
        self.0.call("DeleteSnapshot", &snapshot_id.clone(), work).await.map(Response::new)
    }

    async fn list_snapshots(&self, _: Request<ListSnapshotsRequest>) -> Answer<ListSnapshotsResponse> {
        none("ListSnapshots")
    }

    async fn get_snapshot(&self, _: Request<GetSnapshotRequest>) -> Answer<GetSnapshotResponse> {
        none("GetSnapshot")
    }

    async fn controller_expand_volume(
        &self,
        request: Request<ControllerExpandVolumeRequest>,
    ) -> Answer<ControllerExpandVolumeResponse> {
        let request = request.into_inner();
        let id = request.volume_id.clone();
        let work = |state: &mut State| {
            state.secrets.push(("ControllerExpandVolume", request.secrets));
            let volume = &mut state.of_id(&request.volume_id)?.volume;
            volume.capacity_bytes =
                volume.capacity_bytes.max(request.capacity_range.unwrap_or_default().required_bytes);
            let capacity_bytes = volume.capacity_bytes;
            Ok(ControllerExpandVolumeResponse { capacity_bytes, node_expansion_required: false })
        };
        self.0.call("ControllerExpandVolume", &id, work).await.map(Response::new)
    }

    async fn controller_get_volume(
        &self,
        _: Request<ControllerGetVolumeRequest>,
    ) -> Answer<ControllerGetVolumeResponse> {
        none("ControllerGetVolume")
    }

    async fn controller_modify_volume(
        &self,
        request: Request<ControllerModifyVolumeRequest>,
    ) -> Answer<ControllerModifyVolumeResponse> {
        let request = request.into_inner();
        let id = request.volume_id.clone();
        let work = |state: &mut State| {
            state.of_id(&request.volume_id)?.request.mutable_parameters = request.mutable_parameters;
            Ok(ControllerModifyVolumeResponse {})
        };
        self.0.call("ControllerModifyVolume", &id, work).await.map(Response::new)
    }
}
