package main

import (
	"context"
	"errors"
	"os"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"golang.org/x/sys/unix"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// NodeGetInfo names the node and where it is: in the first segment.
func (d *Driver) NodeGetInfo(context.Context, *csi.NodeGetInfoRequest) (*csi.NodeGetInfoResponse, error) {
	response := &csi.NodeGetInfoResponse{NodeId: d.options.NodeID}
	if len(d.options.Segments) > 0 {
		response.AccessibleTopology = &csi.Topology{Segments: d.options.Segments[0]}
	}
	return response, nil
}

// NodeGetCapabilities returns staging, statistics and expansion.
func (d *Driver) NodeGetCapabilities(context.Context, *csi.NodeGetCapabilitiesRequest) (*csi.NodeGetCapabilitiesResponse, error) {
	kinds := []csi.NodeServiceCapability_RPC_Type{
		csi.NodeServiceCapability_RPC_STAGE_UNSTAGE_VOLUME,
		csi.NodeServiceCapability_RPC_GET_VOLUME_STATS,
		csi.NodeServiceCapability_RPC_SINGLE_NODE_MULTI_WRITER,
	}
	if !d.options.Without["expand"] {
		kinds = append(kinds, csi.NodeServiceCapability_RPC_EXPAND_VOLUME)
	}
	response := &csi.NodeGetCapabilitiesResponse{}
	for _, kind := range kinds {
		response.Capabilities = append(response.Capabilities, &csi.NodeServiceCapability{
			Type: &csi.NodeServiceCapability_Rpc{Rpc: &csi.NodeServiceCapability_RPC{Type: kind}},
		})
	}
	return response, nil
}

// held finds a volume for a call on this node and holds it.
func (d *Driver) held(id string) (Volume, func(), error) {
	end, err := d.store.Begin(id)
	if err != nil {
		return Volume{}, nil, err
	}
	v, found := d.store.Volume(id)
	if !found {
		end()
		return Volume{}, nil, status.Errorf(codes.NotFound, "there is no volume %s", id)
	}
	return v, end, nil
}

// suits says why a volume cannot be used as a capability wants it.
func suits(v Volume, capability *csi.VolumeCapability) error {
	shape, err := shapeOf([]*csi.VolumeCapability{capability})
	if err != nil {
		return err
	}
	_, err = shape.as(Shape{v.Kind, v.Block, v.FSType})
	return err
}

// NodeStageVolume attaches an image, gives it its file system the first time, and mounts it at the staging path.
func (d *Driver) NodeStageVolume(_ context.Context, request *csi.NodeStageVolumeRequest) (*csi.NodeStageVolumeResponse, error) {
	staging := request.GetStagingTargetPath()
	if request.GetVolumeId() == "" || staging == "" || request.GetVolumeCapability() == nil {
		return nil, status.Error(codes.InvalidArgument, "staging needs a volume id, a staging path and a volume capability")
	}
	v, end, err := d.held(request.GetVolumeId())
	if err != nil {
		return nil, err
	}
	defer end()
	if err := suits(v, request.GetVolumeCapability()); err != nil {
		return nil, err
	}
	if v.Kind == image && !d.loops {
		return nil, status.Error(codes.FailedPrecondition, "this machine has no loop devices for images: only volumes that are directories can be used")
	}
	flags, err := mountOptions(request.GetVolumeCapability().GetMount().GetMountFlags())
	if err != nil {
		return nil, err
	}
	if err := d.stage(v, staging, flags); err != nil {
		if _, known := status.FromError(err); known {
			return nil, err
		}
		return nil, status.Errorf(codes.Internal, "stage %s: %v", v.ID, err)
	}
	return &csi.NodeStageVolumeResponse{}, nil
}

func (d *Driver) stage(v Volume, staging string, flags uintptr) error {
	if done, err := d.shownAt(v, staging); done || err != nil {
		return err
	}
	data := d.store.Data("volumes", v.ID, v.Kind)
	if v.Kind == directory {
		if err := os.MkdirAll(staging, 0o750); err != nil {
			return err
		}
		return bind(data, staging, flags)
	}
	device, err := attach(data)
	if err != nil {
		return err
	}
	if err := refresh(device); err != nil || v.Block {
		return err
	}
	if !v.Formatted {
		// The record says, before the first mount, that nobody has written here. So the driver makes a half-made file
		// system again, which a kill may leave.
		if err := format(device, v.FSType); err != nil {
			return err
		}
		v.Formatted = true
		if err := d.store.PutVolume(v); err != nil {
			return err
		}
	}
	if err := growUnmounted(device, v.FSType); err != nil {
		return err
	}
	if err := os.MkdirAll(staging, 0o750); err != nil {
		return err
	}
	if err := unix.Mount(device, staging, v.FSType, flags, fileSystems[v.FSType].data); err != nil {
		return &os.PathError{Op: "mount " + device + " at", Path: staging, Err: err}
	}
	if v.FSType == "xfs" {
		return growMounted(device, v.FSType, staging)
	}
	return nil
}

// shownAt says whether a volume is mounted at a path. Something else there is an error.
func (d *Driver) shownAt(v Volume, path string) (bool, error) {
	mount, err := mountAt(path)
	if err != nil || mount == nil {
		return false, err
	}
	is, err := d.isAt(v, *mount)
	if err == nil && !is {
		err = status.Errorf(codes.Internal, "something else is mounted at %s", path)
	}
	return is, err
}

// NodeUnstageVolume unmounts and detaches a volume, also one without a record.
func (d *Driver) NodeUnstageVolume(_ context.Context, request *csi.NodeUnstageVolumeRequest) (*csi.NodeUnstageVolumeResponse, error) {
	if request.GetVolumeId() == "" || request.GetStagingTargetPath() == "" {
		return nil, status.Error(codes.InvalidArgument, "unstaging needs a volume id and a staging path")
	}
	end, err := d.store.Begin(request.GetVolumeId())
	if err != nil {
		return nil, err
	}
	defer end()
	err = unmount(request.GetStagingTargetPath())
	if v, found := d.store.Volume(request.GetVolumeId()); err == nil && found {
		err = d.detach(v)
	}
	if err != nil {
		return nil, status.Errorf(codes.Internal, "unstage %s: %v", request.GetVolumeId(), err)
	}
	return &csi.NodeUnstageVolumeResponse{}, nil
}

// NodePublishVolume shows a staged volume to one pod.
func (d *Driver) NodePublishVolume(_ context.Context, request *csi.NodePublishVolumeRequest) (*csi.NodePublishVolumeResponse, error) {
	capability, target := request.GetVolumeCapability(), request.GetTargetPath()
	if request.GetVolumeId() == "" || target == "" || capability == nil {
		return nil, status.Error(codes.InvalidArgument, "publishing needs a volume id, a target path and a volume capability")
	}
	if request.GetStagingTargetPath() == "" {
		return nil, status.Error(codes.FailedPrecondition, "publishing needs the staging path: stage the volume first")
	}
	v, end, err := d.held(request.GetVolumeId())
	if err != nil {
		return nil, err
	}
	defer end()
	if err := suits(v, capability); err != nil {
		return nil, err
	}
	flags, err := mountOptions(capability.GetMount().GetMountFlags())
	if err != nil {
		return nil, err
	}
	if request.GetReadonly() {
		flags |= unix.MS_RDONLY
	}
	done, err := d.published(v, request, flags)
	if err == nil && !done {
		err = d.publish(v, request.GetStagingTargetPath(), target, flags)
	}
	if _, known := status.FromError(err); err != nil && !known {
		err = status.Errorf(codes.Internal, "publish %s: %v", v.ID, err)
	}
	if err != nil {
		return nil, err
	}
	return &csi.NodePublishVolumeResponse{}, nil
}

// published says whether the call was made before, or why it may not be made.
func (d *Driver) published(v Volume, request *csi.NodePublishVolumeRequest, flags uintptr) (bool, error) {
	target := request.GetTargetPath()
	done, err := d.shownAt(v, target)
	if err != nil {
		return false, err
	}
	if done {
		mount, err := mountAt(target)
		if err == nil && mount != nil && !v.Block && mount.readOnly != (flags&unix.MS_RDONLY != 0) {
			err = status.Errorf(codes.AlreadyExists, "%s is published at %s, and not with the same right to write", v.ID, target)
		}
		return true, err
	}
	if request.GetVolumeCapability().GetAccessMode().GetMode() != csi.VolumeCapability_AccessMode_SINGLE_NODE_SINGLE_WRITER {
		return false, nil
	}
	staging, err := realPath(request.GetStagingTargetPath())
	if err != nil {
		return false, err
	}
	places, err := d.places(v)
	for _, place := range places {
		if place != staging {
			return false, status.Errorf(codes.FailedPrecondition, "%s is for one writer and published at %s", v.ID, place)
		}
	}
	return false, err
}

func (d *Driver) publish(v Volume, staging, target string, flags uintptr) error {
	if v.Block {
		device, err := attached(d.store.Data("volumes", v.ID, v.Kind))
		if err != nil {
			return err
		}
		if device == "" {
			return status.Errorf(codes.FailedPrecondition, "%s is not staged", v.ID)
		}
		file, err := os.OpenFile(target, os.O_CREATE|os.O_RDONLY, 0o600)
		if err != nil {
			return err
		}
		// The container runtime must enforce read-only: the flag of a mount does not apply to the device behind a node.
		return errors.Join(file.Close(), bind(device, target, 0))
	}
	staged, err := d.shownAt(v, staging)
	if err != nil {
		return err
	}
	if !staged {
		return status.Errorf(codes.FailedPrecondition, "%s is not staged at %s", v.ID, staging)
	}
	if err := os.Mkdir(target, 0o750); err != nil && !errors.Is(err, os.ErrExist) {
		return err
	}
	return bind(staging, target, flags)
}

// NodeUnpublishVolume removes a volume from a pod, with the path that was made for it.
func (d *Driver) NodeUnpublishVolume(_ context.Context, request *csi.NodeUnpublishVolumeRequest) (*csi.NodeUnpublishVolumeResponse, error) {
	if request.GetVolumeId() == "" || request.GetTargetPath() == "" {
		return nil, status.Error(codes.InvalidArgument, "unpublishing needs a volume id and a target path")
	}
	end, err := d.store.Begin(request.GetVolumeId())
	if err != nil {
		return nil, err
	}
	defer end()
	err = unmount(request.GetTargetPath())
	if err == nil {
		// Not with its content: after a failed unmount the content would be the volume's data.
		if err = os.Remove(request.GetTargetPath()); errors.Is(err, os.ErrNotExist) {
			err = nil
		}
	}
	if err != nil {
		return nil, status.Errorf(codes.Internal, "unpublish %s: %v", request.GetVolumeId(), err)
	}
	return &csi.NodeUnpublishVolumeResponse{}, nil
}
