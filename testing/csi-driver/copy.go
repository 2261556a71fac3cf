package main

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"

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
func copySparse(from, to string, mode os.FileMode) error {
	source, err := os.Open(from)
	if err != nil {
		return err
	}
	return copyOpened(source, to, mode)
}

// copyOpened copies a file that is open, and closes it.
func copyOpened(source *os.File, to string, mode os.FileMode) (err error) {
	defer source.Close()
	info, err := source.Stat()
	if err != nil {
		return err
	}
	if !info.Mode().IsRegular() {
		return errors.New("it was exchanged while it was copied")
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

// copyTree copies a directory with owners, modes and times. Pods can make files, directories, links, pipes, sockets and
// devices there. The copy leaves out sockets, which are nothing without their process. A pod may replace files by links
// during the copy: the source is opened as a root, out of which no link leads.
func copyTree(from, to string) error {
	source, err := os.OpenRoot(from)
	if err != nil {
		return err
	}
	defer source.Close()
	return copyAt(source, ".", to)
}

// copyAt copies the file or directory at a path below the source, with all that is in it.
func copyAt(source *os.Root, path, to string) error {
	info, err := source.Lstat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil // a pod removed it meanwhile
	}
	if err != nil {
		return err
	}
	found := info.Sys().(*syscall.Stat_t)
	err = copyEntry(source, path, to, found)
	if errors.Is(err, fs.ErrNotExist) || found.Mode&unix.S_IFMT == unix.S_IFSOCK {
		return nil
	}
	if err == nil && info.IsDir() {
		err = copyInside(source, path, to)
	} else if err != nil {
		err = fmt.Errorf("copy %s: %w", path, err)
	}
	if err != nil {
		return err
	}
	// The attributes are set last: filling a directory changes its time, and its mode may forbid to fill it.
	return attributes(to, found)
}

func copyInside(source *os.Root, path, to string) error {
	folder, err := source.Open(path)
	if err != nil {
		return err
	}
	names, err := folder.Readdirnames(-1)
	if err := errors.Join(err, folder.Close()); err != nil {
		return err
	}
	for _, name := range names {
		if err := copyAt(source, filepath.Join(path, name), filepath.Join(to, name)); err != nil {
			return err
		}
	}
	return nil
}

func copyEntry(source *os.Root, from, to string, found *syscall.Stat_t) error {
	switch found.Mode & unix.S_IFMT {
	case unix.S_IFDIR:
		return os.Mkdir(to, 0o700)
	case unix.S_IFREG:
		// A pipe in its place must not keep the driver waiting.
		opened, err := source.OpenFile(from, os.O_RDONLY|unix.O_NONBLOCK, 0)
		if err != nil {
			return err
		}
		return copyOpened(opened, to, 0o600)
	case unix.S_IFLNK:
		points, err := source.Readlink(from)
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

func attributes(path string, found *syscall.Stat_t) error {
	if err := unix.Lchown(path, int(found.Uid), int(found.Gid)); err != nil {
		return err
	}
	if found.Mode&unix.S_IFMT != unix.S_IFLNK {
		if err := unix.Chmod(path, found.Mode&0o7777); err != nil {
			return err
		}
	}
	times := []unix.Timespec{unix.Timespec(found.Atim), unix.Timespec(found.Mtim)}
	return unix.UtimesNanoAt(unix.AT_FDCWD, path, times, unix.AT_SYMLINK_NOFOLLOW)
}
