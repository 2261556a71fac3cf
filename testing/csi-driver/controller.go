package main

import (
	"context"
	"maps"
	"os"
	"strings"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// The names that `--without` accepts, with the capabilities that each removes.
var optional = map[string][]csi.ControllerServiceCapability_RPC_Type{
	"list":     {csi.ControllerServiceCapability_RPC_LIST_VOLUMES},
	"capacity": {csi.ControllerServiceCapability_RPC_GET_CAPACITY},
	"snapshot": {
		csi.ControllerServiceCapability_RPC_CREATE_DELETE_SNAPSHOT,
		csi.ControllerServiceCapability_RPC_LIST_SNAPSHOTS,
	},
	"clone":  {csi.ControllerServiceCapability_RPC_CLONE_VOLUME},
	"expand": {csi.ControllerServiceCapability_RPC_EXPAND_VOLUME},
	"modify": {csi.ControllerServiceCapability_RPC_MODIFY_VOLUME},
}

// ControllerGetCapabilities returns all capabilities that no flag removed.
func (d *Driver) ControllerGetCapabilities(context.Context, *csi.ControllerGetCapabilitiesRequest) (*csi.ControllerGetCapabilitiesResponse, error) {
	kinds := []csi.ControllerServiceCapability_RPC_Type{
		csi.ControllerServiceCapability_RPC_CREATE_DELETE_VOLUME,
		csi.ControllerServiceCapability_RPC_SINGLE_NODE_MULTI_WRITER,
	}
	for what, more := range optional {
		if !d.options.Without[what] {
			kinds = append(kinds, more...)
		}
	}
	response := &csi.ControllerGetCapabilitiesResponse{}
	for _, kind := range kinds {
		response.Capabilities = append(response.Capabilities, &csi.ControllerServiceCapability{
			Type: &csi.ControllerServiceCapability_Rpc{Rpc: &csi.ControllerServiceCapability_RPC{Type: kind}},
		})
	}
	return response, nil
}

// has refuses calls of a capability that a flag removed.
func (d *Driver) has(what string) error {
	if d.options.Without[what] {
		return status.Errorf(codes.Unimplemented, "this driver was started with --without %s", what)
	}
	return nil
}

// CreateVolume makes a volume, or finds the one that was made for the same name.
func (d *Driver) CreateVolume(_ context.Context, request *csi.CreateVolumeRequest) (*csi.CreateVolumeResponse, error) {
	if request.GetName() == "" {
		return nil, status.Error(codes.InvalidArgument, "no name is given")
	}
	shape, err := shapeOf(request.GetVolumeCapabilities())
	if err != nil {
		return nil, err
	}
	if len(request.GetMutableParameters()) > 0 {
		if err := d.has("modify"); err != nil {
			return nil, err
		}
	}
	if err := checkMutable(request.GetMutableParameters()); err != nil {
		return nil, err
	}
	end, err := d.store.Begin("the name " + request.GetName())
	if err != nil {
		return nil, err
	}
	defer end()
	source, endSource, err := d.source(request.GetVolumeContentSource())
	if err != nil {
		return nil, err
	}
	defer endSource()
	for _, v := range d.store.Volumes() {
		if v.Name == request.GetName() {
			if err := same(v, request, shape, source); err != nil {
				return nil, err
			}
			return &csi.CreateVolumeResponse{Volume: told(v)}, nil
		}
	}
	v, err := d.create(request, shape, source)
	if err != nil {
		return nil, err
	}
	return &csi.CreateVolumeResponse{Volume: told(v)}, nil
}

// same says why a volume of the same name is not the one that is asked for.
func same(v Volume, request *csi.CreateVolumeRequest, shape Shape, source *source) error {
	wanted := request.GetCapacityRange()
	is := Shape{v.Kind, v.Block, v.FSType}
	_, unlike := shape.as(is)
	switch {
	case v.Bytes < wanted.GetRequiredBytes() || (wanted.GetLimitBytes() > 0 && v.Bytes > wanted.GetLimitBytes()):
		return status.Errorf(codes.AlreadyExists, "%s has the name and %d bytes", v.ID, v.Bytes)
	case unlike != nil || (shape.kind != is.kind && source == nil):
		return status.Errorf(codes.AlreadyExists, "%s has the name and is a %s", v.ID, v.Kind)
	case v.Source != source.name():
		return status.Errorf(codes.AlreadyExists, "%s has the name and was made of %q", v.ID, v.Source)
	case !allowed(v.Segment, request.GetAccessibilityRequirements()):
		return status.Errorf(codes.AlreadyExists, "%s has the name and is in %s", v.ID, segmentKey(v.Segment))
	}
	return nil
}

func (d *Driver) create(request *csi.CreateVolumeRequest, shape Shape, source *source) (Volume, error) {
	smallest := int64(0)
	if source != nil {
		var err error
		if shape, err = shape.as(source.shape); err != nil {
			return Volume{}, err
		}
		smallest = source.bytes
	}
	if shape.kind == image && !shape.block && shape.fsType == "" {
		shape.fsType = defaultFileSystem
	}
	if required := request.GetCapacityRange().GetRequiredBytes(); required > 0 && required < smallest {
		return Volume{}, status.Errorf(codes.OutOfRange, "%d bytes are asked for, and the source has %d", required, smallest)
	}
	bytes, err := sizeIn(request.GetCapacityRange(), max(smallest, shape.smallest()))
	if err != nil {
		return Volume{}, err
	}
	if bytes > d.options.Capacity {
		return Volume{}, status.Errorf(codes.OutOfRange, "%d bytes are asked for, and no place has more than %d", bytes, d.options.Capacity)
	}
	segments, err := candidates(d.options.Segments, request.GetAccessibilityRequirements())
	if err != nil {
		return Volume{}, err
	}
	v := Volume{
		ID: newID("vol-"), Name: request.GetName(), Bytes: bytes, Kind: shape.kind, Block: shape.block,
		FSType: shape.fsType, Source: source.name(), Parameters: maps.Clone(request.GetParameters()),
		Mutable: maps.Clone(request.GetMutableParameters()), Created: time.Now().UTC(),
	}
	var release func()
	for _, segment := range segments {
		v.Segment = segment
		if release, err = d.store.Reserve(segmentKey(segment), bytes, d.options.Capacity); err == nil {
			break
		}
	}
	if err != nil {
		return Volume{}, err
	}
	defer release()
	if source != nil {
		v.Formatted = source.formatted
	}
	if err := d.fill(v, source); err != nil {
		return Volume{}, status.Errorf(codes.Internal, "make the volume's data: %v", err)
	}
	if err := d.store.PutVolume(v); err != nil {
		return Volume{}, status.Errorf(codes.Internal, "write the volume's record: %v", err)
	}
	return v, nil
}

// fill makes a volume's data, or leaves nothing.
func (d *Driver) fill(v Volume, source *source) (err error) {
	path := d.store.Data("volumes", v.ID, v.Kind)
	defer func() {
		if err != nil {
			os.RemoveAll(path)
		}
	}()
	switch {
	case source != nil:
		if err := copyData(source.path, path, v.Kind); err != nil {
			return err
		}
	case v.Kind == directory:
		if err := os.Mkdir(path, 0o700); err != nil {
			return err
		}
		// Pods run as any user, and the kubelet sets no group on a volume without a file system type.
		return os.Chmod(path, 0o777)
	}
	if v.Kind == directory {
		return nil
	}
	file, err := os.OpenFile(path, os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer file.Close()
	return file.Truncate(v.Bytes)
}

// told returns a volume in the form of the protocol.
func told(v Volume) *csi.Volume {
	volume := &csi.Volume{
		VolumeId: v.ID, CapacityBytes: v.Bytes, ContentSource: sourceTold(v.Source),
		VolumeContext: map[string]string{"kind": v.Kind},
	}
	if v.Segment != nil {
		volume.AccessibleTopology = []*csi.Topology{{Segments: v.Segment}}
	}
	return volume
}

// DeleteVolume deletes a volume; a missing volume is a success.
func (d *Driver) DeleteVolume(_ context.Context, request *csi.DeleteVolumeRequest) (*csi.DeleteVolumeResponse, error) {
	if request.GetVolumeId() == "" {
		return nil, status.Error(codes.InvalidArgument, "no volume id is given")
	}
	end, err := d.store.Begin(request.GetVolumeId())
	if err != nil {
		return nil, err
	}
	defer end()
	v, found := d.store.Volume(request.GetVolumeId())
	if !found {
		return &csi.DeleteVolumeResponse{}, nil
	}
	places, err := d.places(v)
	if err != nil {
		return nil, status.Errorf(codes.Internal, "look for mounts: %v", err)
	}
	if len(places) > 0 {
		return nil, status.Errorf(codes.FailedPrecondition, "%s is in use at %s", v.ID, strings.Join(places, ", "))
	}
	if err := d.detach(v); err != nil {
		return nil, status.Errorf(codes.Internal, "detach the image: %v", err)
	}
	if err := d.store.Remove("volumes", v.ID, v.Kind); err != nil {
		return nil, status.Errorf(codes.Internal, "remove the volume: %v", err)
	}
	return &csi.DeleteVolumeResponse{}, nil
}

// ValidateVolumeCapabilities confirms what a volume can do.
func (d *Driver) ValidateVolumeCapabilities(_ context.Context, request *csi.ValidateVolumeCapabilitiesRequest) (*csi.ValidateVolumeCapabilitiesResponse, error) {
	if request.GetVolumeId() == "" {
		return nil, status.Error(codes.InvalidArgument, "no volume id is given")
	}
	if len(request.GetVolumeCapabilities()) == 0 {
		return nil, status.Error(codes.InvalidArgument, "no volume capabilities are given")
	}
	v, found := d.store.Volume(request.GetVolumeId())
	if !found {
		return nil, status.Errorf(codes.NotFound, "there is no volume %s", request.GetVolumeId())
	}
	shape, err := shapeOf(request.GetVolumeCapabilities())
	if err == nil {
		_, err = shape.as(Shape{v.Kind, v.Block, v.FSType})
	}
	if err != nil {
		return &csi.ValidateVolumeCapabilitiesResponse{Message: status.Convert(err).Message()}, nil
	}
	return &csi.ValidateVolumeCapabilitiesResponse{
		Confirmed: &csi.ValidateVolumeCapabilitiesResponse_Confirmed{
			VolumeContext: request.GetVolumeContext(), VolumeCapabilities: request.GetVolumeCapabilities(),
			Parameters: request.GetParameters(), MutableParameters: request.GetMutableParameters(),
		},
	}, nil
}

// ListVolumes returns volumes in the order of their ids. The token is the last id of a page, so that it stays valid
// whatever is made or deleted.
func (d *Driver) ListVolumes(_ context.Context, request *csi.ListVolumesRequest) (*csi.ListVolumesResponse, error) {
	if err := d.has("list"); err != nil {
		return nil, err
	}
	ids := func(v Volume) string { return v.ID }
	page, next, err := pageOf(d.store.Volumes(), ids, "vol-", request.GetStartingToken(), request.GetMaxEntries())
	if err != nil {
		return nil, err
	}
	response := &csi.ListVolumesResponse{NextToken: next}
	for _, v := range page {
		response.Entries = append(response.Entries, &csi.ListVolumesResponse_Entry{Volume: told(v)})
	}
	return response, nil
}

// GetCapacity returns the free bytes of a segment, or of all segments together.
func (d *Driver) GetCapacity(_ context.Context, request *csi.GetCapacityRequest) (*csi.GetCapacityResponse, error) {
	if err := d.has("capacity"); err != nil {
		return nil, err
	}
	segments := d.options.Segments
	if len(segments) == 0 {
		segments = []map[string]string{nil}
	}
	response := &csi.GetCapacityResponse{}
	largest := int64(0)
	if len(request.GetVolumeCapabilities()) > 0 {
		if _, err := shapeOf(request.GetVolumeCapabilities()); err != nil {
			return response, nil
		}
	}
	for _, segment := range segments {
		if segment != nil && !fits(segment, request.GetAccessibleTopology().GetSegments()) {
			continue
		}
		free := d.store.Free(segmentKey(segment), d.options.Capacity)
		response.AvailableCapacity += free
		largest = max(largest, free)
	}
	response.MaximumVolumeSize = wrapped(largest)
	response.MinimumVolumeSize = wrapped(mebibyte)
	return response, nil
}
