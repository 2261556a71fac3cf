package main

import (
	"context"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	"k8s.io/kubernetes/test/e2e/storage/drivers/csi-test/mock/service"
)

// The mock on a socket, its client, and the file for hooks.
func mock(t *testing.T) (csi.ControllerClient, string) {
	t.Helper()
	dir := t.TempDir()
	h := &hooks{file: filepath.Join(dir, "hooks.json"), used: map[Hook]int{}}
	listener, err := net.Listen("unix", filepath.Join(dir, "csi.sock"))
	must(t, err)
	server := serving(service.Config{DriverName: "mock"}, h)
	go server.Serve(listener)
	t.Cleanup(server.Stop)
	connection, err := grpc.NewClient("unix://"+dir+"/csi.sock", grpc.WithTransportCredentials(insecure.NewCredentials()))
	must(t, err)
	t.Cleanup(func() { connection.Close() })
	return csi.NewControllerClient(connection), h.file
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// create returns the code of the answer, and the number of volumes without those with which the mock begins.
func create(t *testing.T, client csi.ControllerClient, name string) (codes.Code, int) {
	t.Helper()
	mount := &csi.VolumeCapability_Mount{Mount: &csi.VolumeCapability_MountVolume{}}
	_, err := client.CreateVolume(context.Background(), &csi.CreateVolumeRequest{
		Name: name, VolumeCapabilities: []*csi.VolumeCapability{{AccessType: mount}},
	})
	listed, failed := client.ListVolumes(context.Background(), &csi.ListVolumesRequest{})
	must(t, failed)
	return status.Code(err), len(listed.GetEntries()) - 3
}

func TestHooksAreUsedAsOftenAsTheySay(t *testing.T) {
	client, file := mock(t)
	must(t, os.WriteFile(file, []byte(`[
		{"method": "CreateVolume", "code": "UNAVAILABLE", "times": 1},
		{"method": "CreateVolume", "code": "DEADLINE_EXCEEDED", "after": true, "times": 1},
		{"method": "DeleteVolume", "code": "INTERNAL"}]`), 0o644))
	for at, row := range []struct {
		code    codes.Code
		volumes int
	}{
		{codes.Unavailable, 0},
		{codes.DeadlineExceeded, 1}, // the volume was made, its answer is lost
		{codes.OK, 1},
	} {
		if code, volumes := create(t, client, "one"); code != row.code || volumes != row.volumes {
			t.Errorf("call %d: %v and %d volumes, not %+v", at, code, volumes, row)
		}
	}
	must(t, os.Remove(file))
	if code, volumes := create(t, client, "two"); code != codes.OK || volumes != 2 {
		t.Errorf("without hooks: %v and %d volumes", code, volumes)
	}
}

func TestDelayIsTakenAndEndsWithTheCaller(t *testing.T) {
	client, file := mock(t)
	must(t, os.WriteFile(file, []byte(`[{"method": "GetCapacity", "delay": 60000}]`), 0o644))
	ctx, cancel := context.WithTimeout(context.Background(), 50*time.Millisecond)
	defer cancel()
	_, err := client.GetCapacity(ctx, &csi.GetCapacityRequest{})
	if status.Code(err) != codes.DeadlineExceeded {
		t.Errorf("got %v", err)
	}
}

func TestMisspeltHooksAreTold(t *testing.T) {
	client, file := mock(t)
	for text, word := range map[string]string{
		`[{"method": "MakeVolume", "code": "INTERNAL"}]`:    "MakeVolume",
		`[{"method": "CreateVolume", "code": "BROKEN"}]`:    "BROKEN",
		`[{"method": "CreateVolume", "kode": "INTERNAL"}]`:  "kode",
		`{"method": "CreateVolume", "code": "UNAVAILABLE"}`: "hooks.json",
	} {
		must(t, os.WriteFile(file, []byte(text), 0o644))
		_, err := client.GetCapacity(context.Background(), &csi.GetCapacityRequest{})
		if status.Code(err) != codes.Internal || !strings.Contains(err.Error(), word) {
			t.Errorf("%s: %v", text, err)
		}
	}
}
