package main

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

var background = context.Background()

// started is a driver in this process, without a socket.
func started(t *testing.T, options Options) *Driver {
	t.Helper()
	if options.Data == "" {
		options.Data = t.TempDir()
	}
	options.Name, options.NodeID = "csi.test", "node-1"
	if options.Capacity == 0 {
		options.Capacity = 10 << 30
	}
	store, err := Open(options.Data)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { store.lock.Close() })
	return &Driver{options: options, store: store, loops: probeLoops(options.Data) == nil, online: canGrowMounted()}
}

func mountAs(fsType string, flags ...string) *csi.VolumeCapability {
	mount := &csi.VolumeCapability_MountVolume{FsType: fsType, MountFlags: flags}
	return inMode(&csi.VolumeCapability{AccessType: &csi.VolumeCapability_Mount{Mount: mount}})
}

func asBlock() *csi.VolumeCapability {
	return inMode(&csi.VolumeCapability{AccessType: &csi.VolumeCapability_Block{Block: &csi.VolumeCapability_BlockVolume{}}})
}

func inMode(capability *csi.VolumeCapability) *csi.VolumeCapability {
	capability.AccessMode = &csi.VolumeCapability_AccessMode{Mode: csi.VolumeCapability_AccessMode_SINGLE_NODE_WRITER}
	return capability
}

func wanted(name string, bytes int64, capability *csi.VolumeCapability) *csi.CreateVolumeRequest {
	return &csi.CreateVolumeRequest{
		Name: name, CapacityRange: &csi.CapacityRange{RequiredBytes: bytes},
		VolumeCapabilities: []*csi.VolumeCapability{capability},
	}
}

func made(t *testing.T, d *Driver, request *csi.CreateVolumeRequest) *csi.Volume {
	t.Helper()
	response, err := d.CreateVolume(background, request)
	if err != nil {
		t.Fatalf("create %s: %v", request.GetName(), err)
	}
	return response.GetVolume()
}

func code(t *testing.T, err error, want codes.Code) {
	t.Helper()
	if status.Code(err) != want {
		t.Fatalf("got %v, wanted %v", err, want)
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// A volume staged and published as the kubelet does it.
type use struct {
	d               *Driver
	id              string
	capability      *csi.VolumeCapability
	staging, target string
}

func used(t *testing.T, d *Driver, id string, capability *csi.VolumeCapability) *use {
	t.Helper()
	dir := t.TempDir()
	u := &use{d, id, capability, filepath.Join(dir, "staging"), filepath.Join(dir, "target")}
	must(t, os.Mkdir(u.staging, 0o755))
	u.start(t)
	// A test that fails must not leave mounts in a directory that is removed with all its contents.
	t.Cleanup(func() { u.end(t) })
	return u
}

// Each call is made twice: the kubelet repeats a call without an answer.
func (u *use) start(t *testing.T) {
	t.Helper()
	for range 2 {
		_, err := u.d.NodeStageVolume(background, &csi.NodeStageVolumeRequest{
			VolumeId: u.id, StagingTargetPath: u.staging, VolumeCapability: u.capability,
		})
		must(t, err)
	}
	for range 2 {
		_, err := u.d.NodePublishVolume(background, &csi.NodePublishVolumeRequest{
			VolumeId: u.id, StagingTargetPath: u.staging, TargetPath: u.target, VolumeCapability: u.capability,
		})
		must(t, err)
	}
}

func (u *use) end(t *testing.T) {
	t.Helper()
	for range 2 {
		_, err := u.d.NodeUnpublishVolume(background, &csi.NodeUnpublishVolumeRequest{VolumeId: u.id, TargetPath: u.target})
		must(t, err)
	}
	for range 2 {
		_, err := u.d.NodeUnstageVolume(background, &csi.NodeUnstageVolumeRequest{VolumeId: u.id, StagingTargetPath: u.staging})
		must(t, err)
	}
}

// Block volumes have the text at their beginning, others in a file.
func (u *use) write(t *testing.T, text string) {
	t.Helper()
	path, flags := filepath.Join(u.target, "file"), os.O_CREATE|os.O_WRONLY
	if u.capability.GetBlock() != nil {
		path, flags = u.target, os.O_WRONLY
	}
	file, err := os.OpenFile(path, flags, 0o644)
	must(t, err)
	_, err = file.WriteString(text)
	must(t, err)
	must(t, file.Close())
}

func (u *use) holds(t *testing.T, text string) {
	t.Helper()
	path := filepath.Join(u.target, "file")
	if u.capability.GetBlock() != nil {
		path = u.target
	}
	file, err := os.Open(path)
	must(t, err)
	defer file.Close()
	found := make([]byte, len(text))
	_, err = file.Read(found)
	must(t, err)
	if string(found) != text {
		t.Fatalf("%s holds %q, not %q", path, found, text)
	}
}

func (u *use) total(t *testing.T) int64 {
	t.Helper()
	response, err := u.d.NodeGetVolumeStats(background, &csi.NodeGetVolumeStatsRequest{VolumeId: u.id, VolumePath: u.target})
	must(t, err)
	return response.GetUsage()[0].GetTotal()
}

// kinds are the kinds of volumes that this machine can make. The log names the missing kinds.
func kinds(t *testing.T, loops bool) map[string]*csi.VolumeCapability {
	all := map[string]*csi.VolumeCapability{"directory": mountAs("")}
	if !loops {
		t.Log("NOT RUN with images: this machine has no loop devices")
		return all
	}
	all["block"] = asBlock()
	all["ext4"] = mountAs("ext4", "noatime")
	if _, err := exec.LookPath("mkfs.xfs"); err != nil {
		t.Log("NOT RUN with xfs: the package xfsprogs is missing")
		return all
	}
	all["xfs"] = mountAs("xfs")
	return all
}
