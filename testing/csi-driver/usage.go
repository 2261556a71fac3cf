package main

import (
	"context"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"golang.org/x/sys/unix"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// NodeGetVolumeStats returns the usage of a volume. For a directory it is the usage of the whole file system.
func (d *Driver) NodeGetVolumeStats(_ context.Context, request *csi.NodeGetVolumeStatsRequest) (*csi.NodeGetVolumeStatsResponse, error) {
	if request.GetVolumeId() == "" || request.GetVolumePath() == "" {
		return nil, status.Error(codes.InvalidArgument, "figures need a volume id and a volume path")
	}
	v, err := d.shown(request.GetVolumeId(), request.GetVolumePath())
	if err != nil {
		return nil, err
	}
	if v.Block {
		return &csi.NodeGetVolumeStatsResponse{Usage: []*csi.VolumeUsage{{Unit: csi.VolumeUsage_BYTES, Total: v.Bytes}}}, nil
	}
	var found unix.Statfs_t
	if err := unix.Statfs(request.GetVolumePath(), &found); err != nil {
		return nil, status.Errorf(codes.Internal, "statfs %s: %v", request.GetVolumePath(), err)
	}
	block := found.Frsize
	return &csi.NodeGetVolumeStatsResponse{Usage: []*csi.VolumeUsage{
		{
			Unit: csi.VolumeUsage_BYTES, Total: int64(found.Blocks) * block, Available: int64(found.Bavail) * block,
			Used: int64(found.Blocks-found.Bfree) * block,
		},
		{
			Unit: csi.VolumeUsage_INODES, Total: int64(found.Files), Available: int64(found.Ffree),
			Used: int64(found.Files - found.Ffree),
		},
	}}, nil
}

// shown finds a volume and makes sure that it is at a path.
func (d *Driver) shown(id, path string) (Volume, error) {
	v, found := d.store.Volume(id)
	if !found {
		return v, status.Errorf(codes.NotFound, "there is no volume %s", id)
	}
	at, err := d.shownAt(v, path)
	if err != nil {
		return v, err
	}
	if !at {
		return v, status.Errorf(codes.NotFound, "%s is not mounted at %s", id, path)
	}
	return v, nil
}

// NodeExpandVolume lets a volume's device and file system follow its image.
func (d *Driver) NodeExpandVolume(_ context.Context, request *csi.NodeExpandVolumeRequest) (*csi.NodeExpandVolumeResponse, error) {
	if err := d.has("expand"); err != nil {
		return nil, err
	}
	if request.GetVolumeId() == "" || request.GetVolumePath() == "" {
		return nil, status.Error(codes.InvalidArgument, "an expansion needs a volume id and a volume path")
	}
	v, end, err := d.held(request.GetVolumeId())
	if err != nil {
		return nil, err
	}
	defer end()
	if v.Kind == image {
		if err := d.expand(v, request); err != nil {
			return nil, err
		}
	}
	return &csi.NodeExpandVolumeResponse{CapacityBytes: v.Bytes}, nil
}

func (d *Driver) expand(v Volume, request *csi.NodeExpandVolumeRequest) error {
	device, err := attached(d.store.Data("volumes", v.ID, v.Kind))
	if err == nil && device != "" {
		err = refresh(device)
	}
	if err != nil {
		return status.Errorf(codes.Internal, "grow the device of %s: %v", v.ID, err)
	}
	if device == "" {
		return status.Errorf(codes.NotFound, "%s is not attached", v.ID)
	}
	if v.Block {
		return nil
	}
	if _, err := d.shown(v.ID, request.GetVolumePath()); err != nil {
		return err
	}
	if err := growMounted(device, v.FSType, request.GetVolumePath()); err != nil {
		if v.FSType != "xfs" && !d.online {
			return status.Errorf(codes.FailedPrecondition,
				"%s is mounted, and growing a mounted %s needs CAP_SYS_RESOURCE, which this machine does not give: it grows when it is mounted next", v.ID, v.FSType)
		}
		return status.Errorf(codes.Internal, "grow the file system of %s: %v", v.ID, err)
	}
	return nil
}
