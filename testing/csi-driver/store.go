package main

import (
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// The kinds of data that a volume or snapshot can be.
const (
	directory = "directory" // bind-mounted; its size is counted but not enforced
	image     = "image"     // a sparse file, on a loop device where it is used
)

// Volume is the record of a volume. A volume exists once its record is on disk: data without a record does not count.
type Volume struct {
	ID         string            `json:"id"`
	Name       string            `json:"name"`
	Bytes      int64             `json:"bytes"`
	Kind       string            `json:"kind"`
	Block      bool              `json:"block,omitempty"`
	FSType     string            `json:"fsType,omitempty"`
	Formatted  bool              `json:"formatted,omitempty"`
	Segment    map[string]string `json:"segment,omitempty"`
	Source     string            `json:"source,omitempty"`
	Parameters map[string]string `json:"parameters,omitempty"`
	Mutable    map[string]string `json:"mutable,omitempty"`
	Created    time.Time         `json:"created"`
}

// Snapshot is a copy of a volume's data, independent of the later life of the volume.
type Snapshot struct {
	ID         string            `json:"id"`
	Name       string            `json:"name"`
	Volume     string            `json:"volume"`
	Bytes      int64             `json:"bytes"`
	Kind       string            `json:"kind"`
	Block      bool              `json:"block,omitempty"`
	FSType     string            `json:"fsType,omitempty"`
	Formatted  bool              `json:"formatted,omitempty"`
	Segment    map[string]string `json:"segment,omitempty"`
	Parameters map[string]string `json:"parameters,omitempty"`
	Created    time.Time         `json:"created"`
}

// Store keeps records and data below one directory. One process at a time has it open.
type Store struct {
	dir       string
	lock      *os.File
	mu        sync.Mutex
	volumes   map[string]Volume
	snapshots map[string]Snapshot
	busy      map[string]int   // -1: changed by one call, n: read by n calls
	reserved  map[string]int64 // bytes that are being made, by segment
}

// Listing is the output of `list`.
type Listing struct {
	Volumes   []Volume   `json:"volumes"`
	Snapshots []Snapshot `json:"snapshots"`
	// Data below the directory without a record: a killed call left them, and the next start removes them.
	Leftovers []string `json:"leftovers"`
}

// Open takes the directory for this process and removes what killed calls left.
func Open(dir string) (*Store, error) {
	for _, sub := range []string{"volumes", "snapshots"} {
		if err := os.MkdirAll(filepath.Join(dir, sub), 0o755); err != nil {
			return nil, err
		}
	}
	lock, err := os.OpenFile(filepath.Join(dir, "lock"), os.O_CREATE|os.O_RDWR|unix.O_CLOEXEC, 0o600)
	if err != nil {
		return nil, err
	}
	if err := unix.Flock(int(lock.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		return nil, fmt.Errorf("%s is in use by another csi-driver: end that one first, or name another --data (%w)", dir, err)
	}
	listing, err := Read(dir)
	if err != nil {
		return nil, err
	}
	s := &Store{
		dir: dir, lock: lock, volumes: map[string]Volume{}, snapshots: map[string]Snapshot{},
		busy: map[string]int{}, reserved: map[string]int64{},
	}
	for _, v := range listing.Volumes {
		s.volumes[v.ID] = v
	}
	for _, snapshot := range listing.Snapshots {
		s.snapshots[snapshot.ID] = snapshot
	}
	for _, leftover := range listing.Leftovers {
		if err := os.RemoveAll(filepath.Join(dir, leftover)); err != nil {
			return nil, fmt.Errorf("remove what a killed call left: %w", err)
		}
	}
	return s, nil
}

// Read reads a directory as it is, also while a driver works in it.
func Read(dir string) (Listing, error) {
	listing := Listing{Volumes: []Volume{}, Snapshots: []Snapshot{}, Leftovers: []string{}}
	known := map[string]bool{}
	err := records(dir, "volumes", func(id string, data []byte) error {
		var v Volume
		known["volumes/"+id] = true
		err := json.Unmarshal(data, &v)
		listing.Volumes = append(listing.Volumes, v)
		return err
	})
	if err != nil {
		return listing, err
	}
	err = records(dir, "snapshots", func(id string, data []byte) error {
		var snapshot Snapshot
		known["snapshots/"+id] = true
		err := json.Unmarshal(data, &snapshot)
		listing.Snapshots = append(listing.Snapshots, snapshot)
		return err
	})
	if err != nil {
		return listing, err
	}
	for _, sub := range []string{"volumes", "snapshots"} {
		entries, err := os.ReadDir(filepath.Join(dir, sub))
		if err != nil {
			return listing, err
		}
		for _, entry := range entries {
			name := sub + "/" + entry.Name()
			record := strings.HasSuffix(name, ".json")
			if !record && !known[strings.TrimSuffix(name, ".img")] {
				listing.Leftovers = append(listing.Leftovers, name)
			}
		}
	}
	return listing, nil
}

func records(dir, sub string, take func(id string, data []byte) error) error {
	files, err := filepath.Glob(filepath.Join(dir, sub, "*.json"))
	if err != nil {
		return err
	}
	slices.Sort(files)
	for _, file := range files {
		data, err := os.ReadFile(file)
		if errors.Is(err, os.ErrNotExist) {
			continue // deleted since
		}
		if err == nil {
			err = take(strings.TrimSuffix(filepath.Base(file), ".json"), data)
		}
		if err != nil {
			return fmt.Errorf("read %s: %w", file, err)
		}
	}
	return nil
}

// newID returns a random id, not one made of the name, so that a volume made twice for one name shows as two.
func newID(prefix string) string {
	var bytes [8]byte
	if _, err := rand.Read(bytes[:]); err != nil {
		panic(err) // the kernel's source of randomness does not fail
	}
	return prefix + hex.EncodeToString(bytes[:])
}

// Begin takes keys for a call that changes their volumes. A second call on any of these keys is refused and must be
// repeated, as the CSI specification demands.
func (s *Store) Begin(keys ...string) (end func(), err error) { return s.take(-1, keys) }

// BeginRead takes a key for a call that only reads.
func (s *Store) BeginRead(key string) (end func(), err error) { return s.take(1, []string{key}) }

func (s *Store) take(how int, keys []string) (func(), error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, key := range keys {
		if held := s.busy[key]; held < 0 || (held > 0 && how < 0) {
			return nil, status.Errorf(codes.Aborted, "another call for %s is under way: call again", key)
		}
	}
	for _, key := range keys {
		s.busy[key] += how
	}
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		for _, key := range keys {
			if s.busy[key] -= how; s.busy[key] == 0 {
				delete(s.busy, key)
			}
		}
	}, nil
}

// Volume finds a volume by its id.
func (s *Store) Volume(id string) (Volume, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	v, found := s.volumes[id]
	return v, found
}

// Snapshot finds a snapshot by its id.
func (s *Store) Snapshot(id string) (Snapshot, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	snapshot, found := s.snapshots[id]
	return snapshot, found
}

// Volumes returns all volumes, in the order of their ids.
func (s *Store) Volumes() []Volume {
	s.mu.Lock()
	defer s.mu.Unlock()
	return byID(s.volumes)
}

// Snapshots returns all snapshots, in the order of their ids.
func (s *Store) Snapshots() []Snapshot {
	s.mu.Lock()
	defer s.mu.Unlock()
	return byID(s.snapshots)
}

func byID[T any](all map[string]T) []T {
	sorted := make([]T, 0, len(all))
	for _, id := range slices.Sorted(maps.Keys(all)) {
		sorted = append(sorted, all[id])
	}
	return sorted
}

// Free returns the free capacity of a segment, in bytes.
func (s *Store) Free(segment string, capacity int64) int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.free(segment, capacity)
}

func (s *Store) free(segment string, capacity int64) int64 {
	left := capacity - s.reserved[segment]
	for _, v := range s.volumes {
		if segmentKey(v.Segment) == segment {
			left -= v.Bytes
		}
	}
	for _, snapshot := range s.snapshots {
		if segmentKey(snapshot.Segment) == segment {
			left -= snapshot.Bytes
		}
	}
	return max(left, 0)
}

// Reserve reserves bytes of a segment for new data, until the data have a record or the call has failed.
func (s *Store) Reserve(segment string, bytes, capacity int64) (release func(), err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if free := s.free(segment, capacity); bytes > free {
		return nil, status.Errorf(codes.ResourceExhausted, "%d bytes are asked for, %d are free%s", bytes, free, where(segment))
	}
	s.reserved[segment] += bytes
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.reserved[segment] -= bytes
	}, nil
}

func where(segment string) string {
	if segment == "" {
		return ""
	}
	return " in " + segment
}

// PutVolume writes a volume's record. Only from then on is the volume as the record says.
func (s *Store) PutVolume(v Volume) error {
	if err := s.write("volumes", v.ID, v); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.volumes[v.ID] = v
	return nil
}

// PutSnapshot writes a snapshot's record.
func (s *Store) PutSnapshot(snapshot Snapshot) error {
	if err := s.write("snapshots", snapshot.ID, snapshot); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.snapshots[snapshot.ID] = snapshot
	return nil
}

// Remove removes the record first: data that remain after a kill are a leftover, never half a volume.
func (s *Store) Remove(sub, id, kind string) error {
	if err := os.Remove(filepath.Join(s.dir, sub, id+".json")); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	s.mu.Lock()
	if sub == "volumes" {
		delete(s.volumes, id)
	} else {
		delete(s.snapshots, id)
	}
	s.mu.Unlock()
	return os.RemoveAll(s.Data(sub, id, kind))
}

// Data is where the bytes of a volume ("volumes") or snapshot ("snapshots") are.
func (s *Store) Data(sub, id, kind string) string {
	path := filepath.Join(s.dir, sub, id)
	if kind == image {
		return path + ".img"
	}
	return path
}

// This writes beside the record's place and renames, so that a kill leaves the old record or the new one. It does not
// protect against a power failure, because tests would then wait for the disk.
func (s *Store) write(sub, id string, record any) error {
	data, err := json.Marshal(record)
	if err != nil {
		return err
	}
	path := filepath.Join(s.dir, sub, id+".json")
	partial, err := os.CreateTemp(filepath.Join(s.dir, sub), id+".partial")
	if err != nil {
		return err
	}
	defer os.Remove(partial.Name())
	_, err = partial.Write(append(data, '\n'))
	if err := errors.Join(err, partial.Close()); err != nil {
		return err
	}
	return os.Rename(partial.Name(), path)
}
