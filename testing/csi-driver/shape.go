package main

import (
	"strconv"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

const (
	mebibyte    = int64(1) << 20
	defaultSize = 1 << 30 // bytes of a volume for which no size is asked
)

// Shape is the form of a volume, which follows from the request's capabilities and source.
type Shape struct {
	kind   string
	block  bool
	fsType string
}

// shapeOf decides between directory and image. A request for a block device or for a named file system gets an image with
// a size of its own. Any other request gets a directory, which works on every machine.
func shapeOf(capabilities []*csi.VolumeCapability) (Shape, error) {
	shape := Shape{kind: directory}
	if len(capabilities) == 0 {
		return shape, status.Error(codes.InvalidArgument, "no volume capabilities are given")
	}
	mounted := false
	for _, capability := range capabilities {
		if err := checkCapability(capability); err != nil {
			return shape, err
		}
		if capability.GetBlock() != nil {
			shape.block, shape.kind = true, image
			continue
		}
		mounted = true
		if fsType := capability.GetMount().GetFsType(); fsType != "" {
			if shape.fsType != "" && shape.fsType != fsType {
				return shape, status.Errorf(codes.InvalidArgument, "one volume cannot be %s and %s", shape.fsType, fsType)
			}
			shape.fsType, shape.kind = fsType, image
		}
	}
	if mounted && shape.block {
		return shape, status.Error(codes.InvalidArgument, "one volume cannot be a block device and a mounted file system")
	}
	return shape, nil
}

func checkCapability(capability *csi.VolumeCapability) error {
	switch {
	case capability.GetAccessMode().GetMode() == csi.VolumeCapability_AccessMode_UNKNOWN:
		return status.Error(codes.InvalidArgument, "a volume capability has no access mode")
	case capability.GetBlock() == nil && capability.GetMount() == nil:
		return status.Error(codes.InvalidArgument, "a volume capability is neither block nor mount")
	}
	fsType := capability.GetMount().GetFsType()
	if _, known := fileSystems[fsType]; fsType != "" && !known {
		return status.Errorf(codes.InvalidArgument, "the file system %q is not known here: ext2, ext3, ext4 and xfs are", fsType)
	}
	_, err := mountOptions(capability.GetMount().GetMountFlags())
	return err
}

// as takes the shape from a source, or says why that is not possible.
func (s Shape) as(source Shape) (Shape, error) {
	switch {
	case s.block != source.block:
		return s, status.Error(codes.InvalidArgument, "the source and the volume must both be block devices or neither")
	case s.kind == image && source.kind == directory:
		return s, status.Errorf(codes.InvalidArgument, "the source is a directory and cannot become %s", s.fsType)
	case s.fsType != "" && s.fsType != source.fsType:
		return s, status.Errorf(codes.InvalidArgument, "the source is %s and cannot become %s", source.fsType, s.fsType)
	}
	return source, nil
}

// smallest is the least size in bytes.
func (s Shape) smallest() int64 {
	if s.kind == image && !s.block {
		return fileSystems[s.fsType].smallest
	}
	return mebibyte
}

// sizeIn picks the smallest size of whole MiB in a range.
func sizeIn(wanted *csi.CapacityRange, smallest int64) (int64, error) {
	required, limit := wanted.GetRequiredBytes(), wanted.GetLimitBytes()
	if required < 0 || limit < 0 || (limit > 0 && limit < required) {
		return 0, status.Errorf(codes.InvalidArgument, "sizes from %d to %d are no range", required, limit)
	}
	size := max(required, smallest)
	if required == 0 {
		size = max(defaultSize, smallest)
		if limit > 0 {
			size = min(size, max(limit/mebibyte*mebibyte, smallest))
		}
	}
	size = (size + mebibyte - 1) / mebibyte * mebibyte
	if limit > 0 && size > limit {
		return 0, status.Errorf(codes.OutOfRange, "the least possible size is %d bytes, and %d is the limit", size, limit)
	}
	return size, nil
}

// checkMutable knows two parameters, which are kept and shown but change nothing: a directory has no speed to set.
func checkMutable(parameters map[string]string) error {
	for name, value := range parameters {
		switch name {
		case "iops":
			if number, err := strconv.Atoi(value); err != nil || number <= 0 {
				return status.Errorf(codes.InvalidArgument, "the mutable parameter iops is %q, which is no positive number", value)
			}
		case "tier":
			if value != "fast" && value != "slow" {
				return status.Errorf(codes.InvalidArgument, "the mutable parameter tier is %q, which is neither fast nor slow", value)
			}
		default:
			return status.Errorf(codes.InvalidArgument, "the mutable parameter %q is not known here: iops and tier are", name)
		}
	}
	return nil
}
