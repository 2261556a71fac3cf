package main

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// copyData copies the data of a volume or snapshot. The target must not exist.
func copyData(from, to, kind string) error {
	if kind == image {
		return copySparse(from, to, 0o600)
	}
	return copyTree(from, to)
}

// copySparse copies a file without the parts that were never written: an image of 1 GiB holds mostly nothing.
func copySparse(from, to string, mode os.FileMode) (err error) {
	source, err := os.Open(from)
	if err != nil {
		return err
	}
	defer source.Close()
	info, err := source.Stat()
	if err != nil {
		return err
	}
	target, err := os.OpenFile(to, os.O_CREATE|os.O_EXCL|os.O_WRONLY, mode)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, target.Close()) }()
	if err := target.Truncate(info.Size()); err != nil {
		return err
	}
	for at := int64(0); at < info.Size(); {
		begin, err := unix.Seek(int(source.Fd()), at, unix.SEEK_DATA)
		if errors.Is(err, unix.ENXIO) {
			break // nothing but a hole up to the end
		}
		if err != nil {
			return err
		}
		end, err := unix.Seek(int(source.Fd()), begin, unix.SEEK_HOLE)
		if err != nil {
			return err
		}
		part := io.NewSectionReader(source, begin, end-begin)
		if _, err := io.Copy(io.NewOffsetWriter(target, begin), part); err != nil {
			return err
		}
		at = end
	}
	return nil
}

// copyTree copies a directory with owners, modes and times. What pods can make there: files, directories, links,
// pipes, sockets (which are nothing without their process and are left out) and devices.
func copyTree(from, to string) error {
	var directories []func() error
	err := filepath.WalkDir(from, func(path string, entry fs.DirEntry, err error) error {
		if errors.Is(err, fs.ErrNotExist) {
			return nil // a pod removed it meanwhile
		}
		if err != nil {
			return err
		}
		relative, err := filepath.Rel(from, path)
		if err != nil {
			return err
		}
		target := filepath.Join(to, relative)
		var found unix.Stat_t
		if err := unix.Lstat(path, &found); err != nil {
			return fmt.Errorf("stat %s: %w", path, err)
		}
		if err := copyEntry(path, target, &found); err != nil {
			return fmt.Errorf("copy %s: %w", path, err)
		}
		if entry.IsDir() {
			// Filling a directory changes its time, and its mode may forbid to fill it.
			directories = append(directories, func() error { return attributes(target, &found) })
			return nil
		}
		if found.Mode&unix.S_IFMT == unix.S_IFSOCK {
			return nil
		}
		return attributes(target, &found)
	})
	for at := len(directories) - 1; at >= 0 && err == nil; at-- {
		err = directories[at]()
	}
	return err
}

func copyEntry(from, to string, found *unix.Stat_t) error {
	switch found.Mode & unix.S_IFMT {
	case unix.S_IFDIR:
		return os.Mkdir(to, 0o700)
	case unix.S_IFREG:
		return copySparse(from, to, 0o600)
	case unix.S_IFLNK:
		points, err := os.Readlink(from)
		if err != nil {
			return err
		}
		return os.Symlink(points, to)
	case unix.S_IFSOCK:
		return nil
	default:
		return unix.Mknod(to, found.Mode, int(found.Rdev))
	}
}

func attributes(path string, found *unix.Stat_t) error {
	if err := unix.Lchown(path, int(found.Uid), int(found.Gid)); err != nil {
		return err
	}
	if found.Mode&unix.S_IFMT != unix.S_IFLNK {
		if err := unix.Chmod(path, found.Mode&0o7777); err != nil {
			return err
		}
	}
	times := []unix.Timespec{found.Atim, found.Mtim}
	return unix.UtimesNanoAt(unix.AT_FDCWD, path, times, unix.AT_SYMLINK_NOFOLLOW)
}
