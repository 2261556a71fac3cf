package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// A mount of this process' name space, as /proc/self/mountinfo has it.
type mounted struct {
	device   string // MAJOR:MINOR
	at       string
	readOnly bool
}

// mounts reads the mounts, which are the driver's only record of staged and published volumes.
func mounts() ([]mounted, error) {
	data, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return nil, err
	}
	var all []mounted
	for _, line := range strings.Split(string(data), "\n") {
		if fields := strings.Fields(line); len(fields) > 5 {
			options := "," + fields[5] + ","
			all = append(all, mounted{fields[2], unescaped(fields[4]), strings.Contains(options, ",ro,")})
		}
	}
	return all, nil
}

// unescaped undoes the octal numbers that stand for blanks and the like.
func unescaped(path string) string {
	var out strings.Builder
	for at := 0; at < len(path); at++ {
		if path[at] == '\\' && at+3 < len(path) {
			if code, err := strconv.ParseUint(path[at+1:at+4], 8, 8); err == nil {
				out.WriteByte(byte(code))
				at += 3
				continue
			}
		}
		out.WriteByte(path[at])
	}
	return out.String()
}

// mountAt finds the mount at a path; if there are several, the topmost.
func mountAt(path string) (*mounted, error) {
	path, err := realPath(path)
	if err != nil {
		return nil, err
	}
	all, err := mounts()
	if err != nil {
		return nil, err
	}
	for at := len(all) - 1; at >= 0; at-- {
		if all[at].at == path {
			return &all[at], nil
		}
	}
	return nil, nil
}

// realPath resolves links as the kernel does in its list of mounts, also for a path whose last part is missing.
func realPath(path string) (string, error) {
	parent, err := filepath.EvalSymlinks(filepath.Dir(path))
	if errors.Is(err, os.ErrNotExist) {
		return filepath.Clean(path), nil
	}
	return filepath.Join(parent, filepath.Base(path)), err
}

// places returns the paths at which a volume is mounted or its device is visible.
func (d *Driver) places(v Volume) ([]string, error) {
	all, err := mounts()
	if err != nil {
		return nil, err
	}
	var found []string
	for _, mount := range all {
		is, err := d.isAt(v, mount)
		if err != nil {
			return nil, err
		}
		if is {
			found = append(found, mount.at)
		}
	}
	return found, nil
}

// isAt says whether a mount shows a volume: the same directory, a file system on the image's device, or that device.
func (d *Driver) isAt(v Volume, mount mounted) (bool, error) {
	data := d.store.Data("volumes", v.ID, v.Kind)
	var own, there unix.Stat_t
	if v.Kind == directory {
		if err := unix.Stat(data, &own); err != nil {
			return false, fmt.Errorf("stat %s: %w", data, err)
		}
		// This reads only mounts of the same file system: reading a dead one would hang.
		if mount.device != deviceNumber(own.Dev) || unix.Stat(mount.at, &there) != nil {
			return false, nil
		}
		return there.Dev == own.Dev && there.Ino == own.Ino, nil
	}
	if !d.loops {
		return false, nil
	}
	device, err := attached(data)
	if err != nil || device == "" {
		return false, err
	}
	if err := unix.Stat(device, &own); err != nil {
		return false, fmt.Errorf("stat %s: %w", device, err)
	}
	if !v.Block {
		return mount.device == deviceNumber(own.Rdev), nil
	}
	if mount.device != deviceNumber(own.Dev) || unix.Stat(mount.at, &there) != nil {
		return false, nil
	}
	return there.Mode&unix.S_IFMT == unix.S_IFBLK && there.Rdev == own.Rdev, nil
}

func deviceNumber(device uint64) string {
	return fmt.Sprintf("%d:%d", unix.Major(device), unix.Minor(device))
}

// unmount removes the mount at a path, if there is one.
func unmount(path string) error {
	for range 10 {
		mount, err := mountAt(path)
		if err != nil || mount == nil {
			return err
		}
		if err := unix.Unmount(mount.at, unix.UMOUNT_NOFOLLOW); err != nil {
			return fmt.Errorf("unmount %s: %w", path, err)
		}
	}
	return fmt.Errorf("there are always more mounts at %s", path)
}

// Options of a mount that are flags of the kernel's call.
var mountFlags = map[string]uintptr{
	"ro": unix.MS_RDONLY, "rw": 0, "defaults": 0, "noatime": unix.MS_NOATIME, "nodiratime": unix.MS_NODIRATIME,
	"relatime": unix.MS_RELATIME, "strictatime": unix.MS_STRICTATIME, "nosuid": unix.MS_NOSUID, "nodev": unix.MS_NODEV,
	"noexec": unix.MS_NOEXEC, "sync": unix.MS_SYNCHRONOUS, "dirsync": unix.MS_DIRSYNC,
}

// mountOptions makes flags of mount options, and refuses the others: a directory has no file system of its own that
// could know them, and a class must not work with one kind of volume only.
func mountOptions(options []string) (uintptr, error) {
	flags := uintptr(0)
	for _, option := range options {
		for _, name := range strings.Split(option, ",") {
			flag, known := mountFlags[name]
			if !known {
				return 0, status.Errorf(codes.InvalidArgument, "the mount option %q is not known here", name)
			}
			flags |= flag
		}
	}
	return flags, nil
}

// bind shows a directory or device at another path as well. Flags need a second call.
func bind(from, to string, flags uintptr) error {
	if err := unix.Mount(from, to, "", unix.MS_BIND, ""); err != nil {
		return fmt.Errorf("bind %s to %s: %w", from, to, err)
	}
	if flags == 0 {
		return nil
	}
	if err := unix.Mount("", to, "", unix.MS_BIND|unix.MS_REMOUNT|flags, ""); err != nil {
		return errors.Join(fmt.Errorf("set the options of %s: %w", to, err), unmount(to))
	}
	return nil
}

// settle writes data of a used volume from memory to the disk, so that a copy of the volume has these data.
func (d *Driver) settle(v Volume) error {
	if v.Kind == directory || !d.loops {
		return nil
	}
	device, err := attached(d.store.Data("volumes", v.ID, v.Kind))
	if err != nil || device == "" {
		return err
	}
	places, err := d.places(v)
	if err != nil {
		return err
	}
	for _, place := range places {
		if err := synced(place, unix.Syncfs); err != nil {
			return err
		}
	}
	return synced(device, unix.Fsync)
}

func synced(path string, sync func(fd int) error) error {
	file, err := os.Open(path)
	if err != nil {
		return err
	}
	defer file.Close()
	return sync(int(file.Fd()))
}
