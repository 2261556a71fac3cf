package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"golang.org/x/sys/unix"
	"google.golang.org/grpc/codes"
)

// Sizes that every kind of volume can have: XFS wants 300 MiB. Images are sparse.
const before, after = 320 * mebibyte, 400 * mebibyte

func TestWholeLifeOfEachKind(t *testing.T) {
	loops := probeLoops(t.TempDir()) == nil
	for name, capability := range kinds(t, loops) {
		t.Run(name, func(t *testing.T) {
			d := started(t, Options{})
			volume := made(t, d, wanted("one", before, capability))
			if again := made(t, d, wanted("one", before, capability)); again.GetVolumeId() != volume.GetVolumeId() {
				t.Fatal("the same name gave two volumes")
			}
			u := used(t, d, volume.GetVolumeId(), capability)
			u.write(t, "first")

			snapshot, err := d.CreateSnapshot(background, &csi.CreateSnapshotRequest{Name: "s", SourceVolumeId: u.id})
			must(t, err)
			u.write(t, "later")
			restore := wanted("restored", before, capability)
			restore.VolumeContentSource = sourceTold("snapshot/" + snapshot.GetSnapshot().GetSnapshotId())
			clone := wanted("cloned", after, capability)
			clone.VolumeContentSource = sourceTold("volume/" + u.id)
			restored := used(t, d, made(t, d, restore).GetVolumeId(), capability)
			cloned := used(t, d, made(t, d, clone).GetVolumeId(), capability)
			u.holds(t, "later")
			restored.holds(t, "first")
			cloned.holds(t, "later")

			grow(t, u)
			u.holds(t, "later")

			_, err = d.DeleteVolume(background, &csi.DeleteVolumeRequest{VolumeId: u.id})
			code(t, err, codes.FailedPrecondition)
			for _, each := range []*use{u, restored, cloned} {
				each.end(t)
				for range 2 {
					_, err = d.DeleteVolume(background, &csi.DeleteVolumeRequest{VolumeId: each.id})
					must(t, err)
				}
			}
			_, err = d.DeleteSnapshot(background, &csi.DeleteSnapshotRequest{SnapshotId: snapshot.GetSnapshot().GetSnapshotId()})
			must(t, err)
			nothingLeft(t, d)
		})
	}
}

// Grows a volume in use. An ext4 for which the machine lacks the right grows with the next mount instead.
func grow(t *testing.T, u *use) {
	t.Helper()
	sizes := &csi.CapacityRange{RequiredBytes: after}
	was := u.total(t)
	response, err := u.d.ControllerExpandVolume(background, &csi.ControllerExpandVolumeRequest{VolumeId: u.id, CapacityRange: sizes})
	must(t, err)
	if response.GetCapacityBytes() != after {
		t.Fatalf("grown to %d bytes, not %d", response.GetCapacityBytes(), after)
	}
	_, err = u.d.NodeExpandVolume(background, &csi.NodeExpandVolumeRequest{VolumeId: u.id, VolumePath: u.target, CapacityRange: sizes})
	if u.capability.GetMount().GetFsType() == "ext4" && !u.d.online {
		code(t, err, codes.FailedPrecondition)
		u.end(t)
		u.start(t)
		_, err = u.d.NodeExpandVolume(background, &csi.NodeExpandVolumeRequest{VolumeId: u.id, VolumePath: u.target, CapacityRange: sizes})
	}
	must(t, err)
	if v, _ := u.d.store.Volume(u.id); v.Kind == image && u.total(t) < was+(after-before)*9/10 {
		t.Fatalf("the volume had %d bytes and has %d", was, u.total(t))
	}
}

func nothingLeft(t *testing.T, d *Driver) {
	t.Helper()
	listing, err := Read(d.options.Data)
	must(t, err)
	if len(listing.Volumes)+len(listing.Snapshots)+len(listing.Leftovers) > 0 {
		t.Errorf("left: %+v", listing)
	}
	files, err := filepath.Glob("/sys/block/loop*/loop/backing_file")
	must(t, err)
	for _, file := range files {
		if backing, err := os.ReadFile(file); err == nil && strings.HasPrefix(string(backing), d.options.Data) {
			t.Errorf("still attached: %s", backing)
		}
	}
}

func TestReadOnlyIsReadOnly(t *testing.T) {
	d := started(t, Options{})
	capability := mountAs("")
	volume := made(t, d, wanted("one", mebibyte, capability))
	u := used(t, d, volume.GetVolumeId(), capability)
	request := &csi.NodePublishVolumeRequest{
		VolumeId: u.id, StagingTargetPath: u.staging, TargetPath: u.target + "-ro", VolumeCapability: capability, Readonly: true,
	}
	_, err := d.NodePublishVolume(background, request)
	must(t, err)
	defer func() { must(t, unmount(request.TargetPath)) }()
	if err := os.WriteFile(filepath.Join(request.TargetPath, "file"), nil, 0o644); err == nil {
		t.Error("written through a read-only mount")
	}
	u.write(t, "still writable here")
	request.Readonly = false
	_, err = d.NodePublishVolume(background, request)
	code(t, err, codes.AlreadyExists)
}

func TestForeignMountIsNotTaken(t *testing.T) {
	d := started(t, Options{})
	volume := made(t, d, wanted("one", mebibyte, mountAs("")))
	foreign, staging := t.TempDir(), t.TempDir()
	must(t, bind(foreign, staging, 0))
	defer func() { must(t, unmount(staging)) }()
	_, err := d.NodeStageVolume(background, &csi.NodeStageVolumeRequest{
		VolumeId: volume.GetVolumeId(), StagingTargetPath: staging, VolumeCapability: mountAs(""),
	})
	code(t, err, codes.Internal)
}

func TestCopyKeepsWhatAPodMade(t *testing.T) {
	from, to := t.TempDir(), filepath.Join(t.TempDir(), "copy")
	must(t, os.Mkdir(filepath.Join(from, "closed"), 0o700))
	must(t, os.WriteFile(filepath.Join(from, "closed/file"), []byte("text"), 0o640))
	must(t, os.Chown(filepath.Join(from, "closed/file"), 1000, 2000))
	must(t, os.Symlink("nowhere", filepath.Join(from, "link")))
	must(t, unix.Mkfifo(filepath.Join(from, "pipe"), 0o600))
	must(t, os.WriteFile(filepath.Join(from, "sparse"), nil, 0o600))
	must(t, os.Truncate(filepath.Join(from, "sparse"), 1<<30))
	must(t, os.Chmod(filepath.Join(from, "closed"), 0o500))
	must(t, copyTree(from, to))
	for _, name := range []string{".", "closed", "closed/file", "link", "pipe", "sparse"} {
		var source, copied unix.Stat_t
		must(t, unix.Lstat(filepath.Join(from, name), &source))
		must(t, unix.Lstat(filepath.Join(to, name), &copied))
		if source.Mode != copied.Mode || source.Uid != copied.Uid || source.Gid != copied.Gid || source.Mtim != copied.Mtim {
			t.Errorf("%s: %+v became %+v", name, source, copied)
		}
		if name == "sparse" && (copied.Size != 1<<30 || copied.Blocks > 100) {
			t.Errorf("the sparse file has %d bytes in %d blocks", copied.Size, copied.Blocks)
		}
	}
	text, err := os.ReadFile(filepath.Join(to, "closed/file"))
	must(t, err)
	if string(text) != "text" {
		t.Errorf("copied %q", text)
	}
}

// A pod that has the source replaces a file and a directory by links that lead out of the source, all the time.
func TestCopyFollowsNoLinkOutOfTheVolume(t *testing.T) {
	from, outside, over := t.TempDir(), t.TempDir(), make(chan struct{})
	must(t, os.WriteFile(filepath.Join(outside, "file"), []byte("secret"), 0o600))
	must(t, os.Mkdir(filepath.Join(from, "real"), 0o700))
	must(t, os.WriteFile(filepath.Join(from, "real/file"), []byte("mine"), 0o600))
	must(t, os.WriteFile(filepath.Join(from, "in"), []byte("mine"), 0o600))
	must(t, os.Symlink(outside, filepath.Join(from, "way")))
	must(t, os.Symlink(filepath.Join(outside, "file"), filepath.Join(from, "out")))
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for {
			for _, pair := range [][2]string{{"real", "way"}, {"in", "out"}} {
				a, b := filepath.Join(from, pair[0]), filepath.Join(from, pair[1])
				unix.Renameat2(unix.AT_FDCWD, a, unix.AT_FDCWD, b, unix.RENAME_EXCHANGE)
			}
			select {
			case <-over:
				return
			default:
			}
		}
	}()
	defer func() { close(over); <-ended }()
	for range 300 {
		to := filepath.Join(t.TempDir(), "copy")
		// The copy may fail, and must never follow a link.
		_ = copyTree(from, to)
		for _, name := range []string{"in", "out", "real", "way"} {
			file := filepath.Join(to, name)
			info, err := os.Lstat(file)
			if err == nil && info.IsDir() {
				file = filepath.Join(file, "file")
				info, err = os.Lstat(file)
			}
			if err != nil || !info.Mode().IsRegular() {
				continue
			}
			if text, _ := os.ReadFile(file); string(text) == "secret" {
				t.Fatalf("%s led out of the volume", name)
			}
		}
	}
}
