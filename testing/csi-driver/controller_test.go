package main

import (
	"testing"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"
)

var east, west = map[string]string{"zone": "east"}, map[string]string{"zone": "west"}

func topology(preferred, requisite []map[string]string) *csi.TopologyRequirement {
	terms := func(all []map[string]string) (terms []*csi.Topology) {
		for _, each := range all {
			terms = append(terms, &csi.Topology{Segments: each})
		}
		return terms
	}
	return &csi.TopologyRequirement{Preferred: terms(preferred), Requisite: terms(requisite)}
}

func TestPlaceIsThePreferredOneWithRoom(t *testing.T) {
	d := started(t, Options{Segments: []map[string]string{east, west}, Capacity: 100 * mebibyte})
	both := topology([]map[string]string{west}, []map[string]string{east, west})
	for at, zone := range []string{"west", "east"} {
		request := wanted(zone, 60*mebibyte, mountAs(""))
		request.AccessibilityRequirements = both
		if found := made(t, d, request).GetAccessibleTopology()[0].GetSegments()["zone"]; found != zone {
			t.Fatalf("volume %d is in %s, not in %s", at, found, zone)
		}
	}
	request := wanted("third", 60*mebibyte, mountAs(""))
	request.AccessibilityRequirements = both
	_, err := d.CreateVolume(background, request)
	code(t, err, codes.ResourceExhausted)
	request.AccessibilityRequirements = topology(nil, []map[string]string{{"zone": "north"}})
	_, err = d.CreateVolume(background, request)
	code(t, err, codes.ResourceExhausted)
	request.CapacityRange.RequiredBytes = 200 * mebibyte
	_, err = d.CreateVolume(background, request)
	code(t, err, codes.OutOfRange)
}

func TestCapacityIsOfThePlaceAskedFor(t *testing.T) {
	d := started(t, Options{Segments: []map[string]string{east, west}, Capacity: 100 * mebibyte})
	request := wanted("one", 30*mebibyte, mountAs(""))
	request.AccessibilityRequirements = topology(nil, []map[string]string{west})
	made(t, d, request)
	for _, row := range []struct {
		place map[string]string
		free  int64
	}{{nil, 170}, {east, 100}, {west, 70}, {map[string]string{"zone": "north"}, 0}} {
		asked := &csi.GetCapacityRequest{AccessibleTopology: &csi.Topology{Segments: row.place}}
		response, err := d.GetCapacity(background, asked)
		must(t, err)
		if response.GetAvailableCapacity() != row.free*mebibyte {
			t.Errorf("%v has %d bytes, not %d MiB", row.place, response.GetAvailableCapacity(), row.free)
		}
	}
}

func TestNameOfAnotherVolumeIsRefused(t *testing.T) {
	d := started(t, Options{})
	made(t, d, wanted("one", 30*mebibyte, mountAs("")))
	source := wanted("one", 30*mebibyte, mountAs(""))
	source.VolumeContentSource = sourceTold("volume/" + made(t, d, wanted("two", mebibyte, mountAs(""))).GetVolumeId())
	limited := wanted("one", mebibyte, mountAs(""))
	limited.CapacityRange.LimitBytes = 20 * mebibyte
	for what, request := range map[string]*csi.CreateVolumeRequest{
		"larger": wanted("one", 31*mebibyte, mountAs("")), "smaller": limited,
		"block": wanted("one", 30*mebibyte, asBlock()), "ext4": wanted("one", 30*mebibyte, mountAs("ext4")), "clone": source,
	} {
		t.Run(what, func(t *testing.T) {
			_, err := d.CreateVolume(background, request)
			code(t, err, codes.AlreadyExists)
		})
	}
}

func TestWrongWishesAreRefused(t *testing.T) {
	d := started(t, Options{Without: map[string]bool{"clone": true}})
	plain := made(t, d, wanted("plain", 10*mebibyte, mountAs("")))
	clone := wanted("clone", 10*mebibyte, mountAs(""))
	clone.VolumeContentSource = sourceTold("volume/" + plain.GetVolumeId())
	mutable := wanted("mutable", 10*mebibyte, mountAs(""))
	mutable.MutableParameters = map[string]string{"iops": "-1"}
	both := wanted("both", 10*mebibyte, mountAs(""))
	both.VolumeCapabilities = append(both.VolumeCapabilities, asBlock())
	between := wanted("between", mebibyte+1, mountAs(""))
	between.CapacityRange.LimitBytes = mebibyte + 2
	for what, row := range map[string]struct {
		request *csi.CreateVolumeRequest
		code    codes.Code
	}{
		"a clone that was taken away": {clone, codes.Unimplemented},
		"a mutable parameter":         {mutable, codes.InvalidArgument},
		"block and mount at once":     {both, codes.InvalidArgument},
		"an unknown file system":      {wanted("x", mebibyte, mountAs("fat")), codes.InvalidArgument},
		"an unknown mount option":     {wanted("x", mebibyte, mountAs("", "nobarrier")), codes.InvalidArgument},
		"no whole MiB in the range":   {between, codes.OutOfRange},
	} {
		t.Run(what, func(t *testing.T) {
			_, err := d.CreateVolume(background, row.request)
			code(t, err, row.code)
		})
	}
	if left := len(d.store.Volumes()); left != 1 {
		t.Errorf("%d volumes after refusals, not 1", left)
	}
}

func TestPagesStayTrueWhileVolumesGo(t *testing.T) {
	d := started(t, Options{})
	for _, name := range []string{"a", "b", "c", "d", "e"} {
		made(t, d, wanted(name, mebibyte, mountAs("")))
	}
	seen, token := map[string]bool{}, ""
	for {
		page, err := d.ListVolumes(background, &csi.ListVolumesRequest{MaxEntries: 2, StartingToken: token})
		must(t, err)
		for _, entry := range page.GetEntries() {
			if seen[entry.GetVolume().GetVolumeId()] {
				t.Fatal("a volume is listed twice")
			}
			seen[entry.GetVolume().GetVolumeId()] = true
			_, err := d.DeleteVolume(background, &csi.DeleteVolumeRequest{VolumeId: entry.GetVolume().GetVolumeId()})
			must(t, err)
		}
		if token = page.GetNextToken(); token == "" {
			break
		}
	}
	if len(seen) != 5 {
		t.Errorf("%d of 5 volumes are listed", len(seen))
	}
}
