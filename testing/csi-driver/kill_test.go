package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
)

// If this is set, the tests' own program is the driver, so that the test kills a real process.
const asDriver = "FLEX_TEST_AS_CSI_DRIVER"

func TestMain(m *testing.M) {
	if os.Getenv(asDriver) != "" {
		if err := run(os.Args[1:]); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	os.Exit(m.Run())
}

func driverProcess(t *testing.T, dir string) *exec.Cmd {
	t.Helper()
	command := exec.Command(os.Args[0], "serve", "--data", dir, "--endpoint", "unix://"+dir+"/csi.sock")
	command.Env = append(os.Environ(), asDriver+"=1")
	log, err := os.OpenFile(filepath.Join(dir, "log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	must(t, err)
	defer log.Close()
	command.Stderr = log
	must(t, command.Start())
	t.Cleanup(func() { command.Process.Kill(); command.Wait() })
	return command
}

// Kills the driver again and again while it makes volumes, clones and snapshots. Afterwards each name has one volume, and
// no volume is left after the deletion.
func TestKilledAtAnyMoment(t *testing.T) {
	dir := t.TempDir()
	process := driverProcess(t, dir)
	connection, err := grpc.NewClient("unix://"+dir+"/csi.sock", grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithDefaultCallOptions(grpc.WaitForReady(true)), grpc.WithConnectParams(grpc.ConnectParams{MinConnectTimeout: time.Second}))
	must(t, err)
	defer connection.Close()
	client := csi.NewControllerClient(connection)
	done := make(chan error, 1)
	go func() { done <- work(client) }()
	kills, rounds := 0, 1
	for pause := 3 * time.Millisecond; ; pause = (pause*7/5)%(60*time.Millisecond) + time.Millisecond {
		if kills == 40 {
			pause = 2 * time.Minute // a slow machine may need longer for a start than a kill lets it
		}
		select {
		case err := <-done:
			must(t, err)
			if kills < 3 {
				if rounds == 20 {
					t.Fatalf("only %d kills: the work was done too soon to say anything", kills)
				}
				rounds++
				go func() { done <- work(client) }()
				continue
			}
			must(t, process.Process.Kill())
			process.Wait()
			d := started(t, Options{Data: dir})
			nothingLeft(t, d)
			t.Logf("%d kills, nothing left", kills)
			return
		case <-time.After(pause):
			must(t, process.Process.Kill())
			process.Wait()
			process = driverProcess(t, dir)
			kills++
		}
	}
}

// Makes, copies and deletes 40 times, and repeats each call until it is answered.
func work(client csi.ControllerClient) error {
	for number := range 40 {
		request := wanted(fmt.Sprintf("volume-%d", number), 16*mebibyte, mountAs([]string{"", "ext4"}[number%2]))
		first, err := insist(func(ctx context.Context) (*csi.CreateVolumeResponse, error) { return client.CreateVolume(ctx, request) })
		if err != nil {
			return err
		}
		second, err := insist(func(ctx context.Context) (*csi.CreateVolumeResponse, error) { return client.CreateVolume(ctx, request) })
		if err != nil {
			return err
		}
		id := first.GetVolume().GetVolumeId()
		if second.GetVolume().GetVolumeId() != id {
			return fmt.Errorf("%s became two volumes", request.Name)
		}
		snapshot, err := insist(func(ctx context.Context) (*csi.CreateSnapshotResponse, error) {
			return client.CreateSnapshot(ctx, &csi.CreateSnapshotRequest{Name: request.Name, SourceVolumeId: id})
		})
		if err != nil {
			return err
		}
		listed, err := insist(func(ctx context.Context) (*csi.ListVolumesResponse, error) {
			return client.ListVolumes(ctx, &csi.ListVolumesRequest{})
		})
		if err != nil {
			return err
		}
		if len(listed.GetEntries()) != 1 {
			return fmt.Errorf("%d volumes are listed, not 1", len(listed.GetEntries()))
		}
		if _, err := insist(func(ctx context.Context) (*csi.DeleteVolumeResponse, error) {
			return client.DeleteVolume(ctx, &csi.DeleteVolumeRequest{VolumeId: id})
		}); err != nil {
			return err
		}
		if _, err := insist(func(ctx context.Context) (*csi.DeleteSnapshotResponse, error) {
			return client.DeleteSnapshot(ctx, &csi.DeleteSnapshotRequest{SnapshotId: snapshot.GetSnapshot().GetSnapshotId()})
		}); err != nil {
			return err
		}
	}
	return nil
}

func insist[T any](call func(ctx context.Context) (T, error)) (T, error) {
	for end := time.Now().Add(time.Minute); ; {
		ctx, cancel := context.WithTimeout(background, 5*time.Second)
		response, err := call(ctx)
		cancel()
		again := map[codes.Code]bool{codes.Unavailable: true, codes.DeadlineExceeded: true, codes.Aborted: true}
		if err == nil || !again[status.Code(err)] || time.Now().After(end) {
			return response, err
		}
	}
}
