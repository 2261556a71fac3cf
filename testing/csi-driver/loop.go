package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"

	"golang.org/x/sys/unix"
)

const loopControl = "/dev/loop-control"

// attach returns the loop device of an image, and makes one if the image has none. It asks the kernel each time which
// images are attached: a record of our own would be wrong after a kill or a reboot.
func attach(image string) (string, error) {
	if device, err := attached(image); err != nil || device != "" {
		return device, err
	}
	file, err := os.OpenFile(image, os.O_RDWR|unix.O_CLOEXEC, 0)
	if err != nil {
		return "", err
	}
	defer file.Close()
	loop, err := attachFile(file, 0)
	if err != nil {
		return "", fmt.Errorf("attach %s: %w", image, err)
	}
	return loop.Name(), loop.Close()
}

// attachFile puts a file on the next free loop device.
func attachFile(file *os.File, flags uint32) (*os.File, error) {
	control, err := os.OpenFile(loopControl, os.O_RDWR|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	defer control.Close()
	// Another program may take the free device first.
	for range 100 {
		number, err := unix.IoctlRetInt(int(control.Fd()), unix.LOOP_CTL_GET_FREE)
		if err != nil {
			return nil, fmt.Errorf("ask for a free loop device: %w", err)
		}
		loop, err := os.OpenFile("/dev/loop"+strconv.Itoa(number), os.O_RDWR|unix.O_CLOEXEC, 0)
		if err != nil {
			return nil, err
		}
		config := unix.LoopConfig{Fd: uint32(file.Fd())}
		config.Info.Flags = flags
		// The name that `losetup` shows. It is cut to the available space, and nothing reads it back.
		copy(config.Info.File_name[:len(config.Info.File_name)-1], file.Name())
		if err = unix.IoctlLoopConfigure(int(loop.Fd()), &config); err == nil {
			return loop, nil
		}
		loop.Close()
		if !errors.Is(err, unix.EBUSY) {
			return nil, fmt.Errorf("%s: %w", loop.Name(), err)
		}
	}
	return nil, errors.New("other programs took each free loop device first: call again")
}

// attached finds the loop device of an image by the file itself, whose path may be written in many ways. Without one
// the answer is empty.
func attached(image string) (string, error) {
	var wanted unix.Stat_t
	if err := unix.Stat(image, &wanted); err != nil {
		return "", fmt.Errorf("stat %s: %w", image, err)
	}
	busy, err := filepath.Glob("/sys/block/loop*/loop")
	if err != nil {
		return "", err
	}
	for _, entry := range busy {
		device := "/dev/" + filepath.Base(filepath.Dir(entry))
		loop, err := os.OpenFile(device, os.O_RDONLY|unix.O_CLOEXEC, 0)
		if err != nil {
			continue
		}
		info, err := unix.IoctlLoopGetStatus64(int(loop.Fd()))
		loop.Close()
		if err == nil && info.Inode == wanted.Ino && info.Device == wanted.Dev {
			return device, nil
		}
	}
	return "", nil
}

// detach frees the loop device of a volume's image.
func (d *Driver) detach(v Volume) error {
	if v.Kind != image || !d.loops {
		return nil
	}
	device, err := attached(d.store.Data("volumes", v.ID, v.Kind))
	if err != nil || device == "" {
		return err
	}
	return onLoop(device, func(fd int) error {
		err := unix.IoctlSetInt(fd, unix.LOOP_CLR_FD, 0)
		if errors.Is(err, unix.ENXIO) {
			return nil
		}
		return err
	})
}

// refresh lets a loop device see that its image has grown.
func refresh(device string) error {
	return onLoop(device, func(fd int) error { return unix.IoctlSetInt(fd, unix.LOOP_SET_CAPACITY, 0) })
}

func onLoop(device string, do func(fd int) error) error {
	loop, err := os.OpenFile(device, os.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer loop.Close()
	if err := do(int(loop.Fd())); err != nil {
		return fmt.Errorf("%s: %w", device, err)
	}
	return nil
}

// deviceSize is the size of a block device in bytes.
func deviceSize(device string) (int64, error) {
	file, err := os.Open(device)
	if err != nil {
		return 0, err
	}
	defer file.Close()
	return file.Seek(0, 2)
}

// probeLoops tries a loop device, so that the driver reports missing loop devices at its start and not during a test. The
// kernel removes file and device with their last descriptor, also that of a killed process.
func probeLoops(dir string) error {
	file, err := os.OpenFile(dir, unix.O_TMPFILE|os.O_RDWR|unix.O_CLOEXEC, 0o600)
	if err != nil {
		return err
	}
	defer file.Close()
	if err := file.Truncate(mebibyte); err != nil {
		return err
	}
	loop, err := attachFile(file, unix.LO_FLAGS_AUTOCLEAR)
	if err != nil {
		return err
	}
	return loop.Close()
}
