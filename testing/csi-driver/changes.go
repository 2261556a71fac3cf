package main

import (
	"context"
	"maps"
	"os"
	"sort"
	"strings"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/timestamppb"
	"google.golang.org/protobuf/types/known/wrapperspb"
)

// source is the volume or snapshot that a new volume copies.
type source struct {
	id        string // `snapshot/ID` or `volume/ID`
	path      string
	shape     Shape
	bytes     int64
	formatted bool
}

func (s *source) name() string {
	if s == nil {
		return ""
	}
	return s.id
}

// source finds and holds the source of a new volume; nil for an empty volume.
func (d *Driver) source(wanted *csi.VolumeContentSource) (*source, func(), error) {
	nothing := func() {}
	if wanted == nil {
		return nil, nothing, nil
	}
	if id := wanted.GetSnapshot().GetSnapshotId(); id != "" {
		if err := d.has("snapshot"); err != nil {
			return nil, nothing, err
		}
		end, err := d.store.BeginRead(id)
		if err != nil {
			return nil, nothing, err
		}
		if snapshot, found := d.store.Snapshot(id); found {
			path := d.store.Data("snapshots", id, snapshot.Kind)
			shape := Shape{snapshot.Kind, snapshot.Block, snapshot.FSType}
			return &source{"snapshot/" + id, path, shape, snapshot.Bytes, snapshot.Formatted}, end, nil
		}
		end()
		return nil, nothing, status.Errorf(codes.NotFound, "there is no snapshot %s", id)
	}
	id := wanted.GetVolume().GetVolumeId()
	if id == "" {
		return nil, nothing, status.Error(codes.InvalidArgument, "the content source names neither a snapshot nor a volume")
	}
	if err := d.has("clone"); err != nil {
		return nil, nothing, err
	}
	end, err := d.store.BeginRead(id)
	if err != nil {
		return nil, nothing, err
	}
	v, found := d.store.Volume(id)
	if !found {
		end()
		return nil, nothing, status.Errorf(codes.NotFound, "there is no volume %s", id)
	}
	if err := d.settle(v); err != nil {
		end()
		return nil, nothing, status.Errorf(codes.Internal, "write out what is in memory of %s: %v", id, err)
	}
	path := d.store.Data("volumes", id, v.Kind)
	return &source{"volume/" + id, path, Shape{v.Kind, v.Block, v.FSType}, v.Bytes, v.Formatted}, end, nil
}

func sourceTold(id string) *csi.VolumeContentSource {
	if snapshot, found := strings.CutPrefix(id, "snapshot/"); found {
		of := &csi.VolumeContentSource_SnapshotSource{SnapshotId: snapshot}
		return &csi.VolumeContentSource{Type: &csi.VolumeContentSource_Snapshot{Snapshot: of}}
	}
	if volume, found := strings.CutPrefix(id, "volume/"); found {
		of := &csi.VolumeContentSource_VolumeSource{VolumeId: volume}
		return &csi.VolumeContentSource{Type: &csi.VolumeContentSource_Volume{Volume: of}}
	}
	return nil
}

// CreateSnapshot copies a volume's data, or finds the copy that was made for the same name.
func (d *Driver) CreateSnapshot(_ context.Context, request *csi.CreateSnapshotRequest) (*csi.CreateSnapshotResponse, error) {
	if err := d.has("snapshot"); err != nil {
		return nil, err
	}
	if request.GetName() == "" || request.GetSourceVolumeId() == "" {
		return nil, status.Error(codes.InvalidArgument, "a snapshot needs a name and a source volume id")
	}
	end, err := d.store.Begin("the snapshot name " + request.GetName())
	if err != nil {
		return nil, err
	}
	defer end()
	for _, snapshot := range d.store.Snapshots() {
		if snapshot.Name != request.GetName() {
			continue
		}
		if snapshot.Volume != request.GetSourceVolumeId() {
			return nil, status.Errorf(codes.AlreadyExists, "%s has the name and is of %s", snapshot.ID, snapshot.Volume)
		}
		return &csi.CreateSnapshotResponse{Snapshot: snapshotTold(snapshot)}, nil
	}
	endSource, err := d.store.BeginRead(request.GetSourceVolumeId())
	if err != nil {
		return nil, err
	}
	defer endSource()
	v, found := d.store.Volume(request.GetSourceVolumeId())
	if !found {
		return nil, status.Errorf(codes.NotFound, "there is no volume %s", request.GetSourceVolumeId())
	}
	release, err := d.store.Reserve(segmentKey(v.Segment), v.Bytes, d.options.Capacity)
	if err != nil {
		return nil, err
	}
	defer release()
	snapshot := Snapshot{
		ID: newID("snap-"), Name: request.GetName(), Volume: v.ID, Bytes: v.Bytes, Kind: v.Kind, Block: v.Block,
		FSType: v.FSType, Formatted: v.Formatted, Segment: v.Segment,
		Parameters: maps.Clone(request.GetParameters()), Created: time.Now().UTC(),
	}
	path := d.store.Data("snapshots", snapshot.ID, snapshot.Kind)
	err = d.settle(v)
	if err == nil {
		err = copyData(d.store.Data("volumes", v.ID, v.Kind), path, v.Kind)
	}
	if err == nil {
		err = d.store.PutSnapshot(snapshot)
	}
	if err != nil {
		os.RemoveAll(path)
		return nil, status.Errorf(codes.Internal, "copy the volume's data: %v", err)
	}
	return &csi.CreateSnapshotResponse{Snapshot: snapshotTold(snapshot)}, nil
}

func snapshotTold(snapshot Snapshot) *csi.Snapshot {
	return &csi.Snapshot{
		SnapshotId: snapshot.ID, SourceVolumeId: snapshot.Volume, SizeBytes: snapshot.Bytes, ReadyToUse: true,
		CreationTime: timestamppb.New(snapshot.Created),
	}
}

// DeleteSnapshot deletes a snapshot; a missing snapshot is a success.
func (d *Driver) DeleteSnapshot(_ context.Context, request *csi.DeleteSnapshotRequest) (*csi.DeleteSnapshotResponse, error) {
	if err := d.has("snapshot"); err != nil {
		return nil, err
	}
	if request.GetSnapshotId() == "" {
		return nil, status.Error(codes.InvalidArgument, "no snapshot id is given")
	}
	end, err := d.store.Begin(request.GetSnapshotId())
	if err != nil {
		return nil, err
	}
	defer end()
	if snapshot, found := d.store.Snapshot(request.GetSnapshotId()); found {
		if err := d.store.Remove("snapshots", snapshot.ID, snapshot.Kind); err != nil {
			return nil, status.Errorf(codes.Internal, "remove the snapshot: %v", err)
		}
	}
	return &csi.DeleteSnapshotResponse{}, nil
}

// ListSnapshots returns snapshots in the order of their ids: all, or those of a volume or an id.
func (d *Driver) ListSnapshots(_ context.Context, request *csi.ListSnapshotsRequest) (*csi.ListSnapshotsResponse, error) {
	if err := d.has("snapshot"); err != nil {
		return nil, err
	}
	var matching []Snapshot
	for _, snapshot := range d.store.Snapshots() {
		id, volume := request.GetSnapshotId(), request.GetSourceVolumeId()
		if (id == "" || id == snapshot.ID) && (volume == "" || volume == snapshot.Volume) {
			matching = append(matching, snapshot)
		}
	}
	ids := func(snapshot Snapshot) string { return snapshot.ID }
	page, next, err := pageOf(matching, ids, "snap-", request.GetStartingToken(), request.GetMaxEntries())
	if err != nil {
		return nil, err
	}
	response := &csi.ListSnapshotsResponse{NextToken: next}
	for _, snapshot := range page {
		response.Entries = append(response.Entries, &csi.ListSnapshotsResponse_Entry{Snapshot: snapshotTold(snapshot)})
	}
	return response, nil
}

// ControllerExpandVolume makes a volume larger. For an image, the node then grows the file system.
func (d *Driver) ControllerExpandVolume(_ context.Context, request *csi.ControllerExpandVolumeRequest) (*csi.ControllerExpandVolumeResponse, error) {
	if err := d.has("expand"); err != nil {
		return nil, err
	}
	if request.GetVolumeId() == "" || request.GetCapacityRange() == nil {
		return nil, status.Error(codes.InvalidArgument, "an expansion needs a volume id and a capacity range")
	}
	v, end, err := d.volumeToChange(request.GetVolumeId())
	if err != nil {
		return nil, err
	}
	defer end()
	bytes, err := sizeIn(request.GetCapacityRange(), v.Bytes)
	if err != nil {
		return nil, err
	}
	if bytes > v.Bytes && request.GetCapacityRange().GetRequiredBytes() > v.Bytes {
		if bytes > d.options.Capacity {
			return nil, status.Errorf(codes.OutOfRange, "%d bytes are asked for, and no place has more than %d", bytes, d.options.Capacity)
		}
		release, err := d.store.Reserve(segmentKey(v.Segment), bytes-v.Bytes, d.options.Capacity)
		if err != nil {
			return nil, err
		}
		defer release()
		// The data grow first: after a kill, a record with a larger size than the data would be wrong.
		if v.Kind == image {
			if err := os.Truncate(d.store.Data("volumes", v.ID, v.Kind), bytes); err != nil {
				return nil, status.Errorf(codes.Internal, "grow the image: %v", err)
			}
		}
		v.Bytes = bytes
		if err := d.store.PutVolume(v); err != nil {
			return nil, status.Errorf(codes.Internal, "write the volume's record: %v", err)
		}
	}
	return &csi.ControllerExpandVolumeResponse{CapacityBytes: v.Bytes, NodeExpansionRequired: v.Kind == image}, nil
}

// ControllerModifyVolume changes the mutable parameters that are named, and leaves the others.
func (d *Driver) ControllerModifyVolume(_ context.Context, request *csi.ControllerModifyVolumeRequest) (*csi.ControllerModifyVolumeResponse, error) {
	if err := d.has("modify"); err != nil {
		return nil, err
	}
	if request.GetVolumeId() == "" {
		return nil, status.Error(codes.InvalidArgument, "no volume id is given")
	}
	v, end, err := d.volumeToChange(request.GetVolumeId())
	if err != nil {
		return nil, err
	}
	defer end()
	if err := checkMutable(request.GetMutableParameters()); err != nil {
		return nil, err
	}
	merged := maps.Clone(v.Mutable)
	if merged == nil {
		merged = map[string]string{}
	}
	maps.Copy(merged, request.GetMutableParameters())
	v.Mutable = merged
	if err := d.store.PutVolume(v); err != nil {
		return nil, status.Errorf(codes.Internal, "write the volume's record: %v", err)
	}
	return &csi.ControllerModifyVolumeResponse{}, nil
}

// volumeToChange finds a volume, and keeps other calls from it until the end.
func (d *Driver) volumeToChange(id string) (v Volume, end func(), err error) {
	if end, err = d.store.Begin(id); err != nil {
		return v, nil, err
	}
	v, found := d.store.Volume(id)
	if !found {
		end()
		return v, nil, status.Errorf(codes.NotFound, "there is no volume %s", id)
	}
	return v, end, nil
}

// pageOf cuts a sorted list after a token, which is the last id of the page before.
func pageOf[T any](all []T, id func(T) string, prefix, token string, most int32) ([]T, string, error) {
	if token != "" && !strings.HasPrefix(token, prefix) {
		return nil, "", status.Errorf(codes.Aborted, "%q is no token of this driver", token)
	}
	if most < 0 {
		return nil, "", status.Errorf(codes.InvalidArgument, "%d entries cannot be given", most)
	}
	rest := all[sort.Search(len(all), func(at int) bool { return id(all[at]) > token }):]
	if most == 0 || int(most) >= len(rest) {
		return rest, "", nil
	}
	return rest[:most], id(rest[most-1]), nil
}

func wrapped(bytes int64) *wrapperspb.Int64Value { return wrapperspb.Int64(bytes) }
