package main

import (
	"encoding/binary"
	"fmt"
	"os"
	"os/exec"
	"strings"

	"golang.org/x/sys/unix"
)

const defaultFileSystem = "ext4"

// fileSystem says how to make and grow one kind of file system.
type fileSystem struct {
	smallest int64 // bytes; less than that mkfs refuses
	make     []string
	data     string // options of the mount beside flags
}

// mkfs must not be lazy: a file system that still writes to itself in the background disturbs a count of blocks.
var extended = []string{"-F", "-q", "-m", "0", "-E", "lazy_itable_init=0,lazy_journal_init=0"}

var fileSystems = map[string]fileSystem{
	"ext2": {4 * mebibyte, append([]string{"mkfs.ext2"}, extended...), ""},
	"ext3": {8 * mebibyte, append([]string{"mkfs.ext3"}, extended...), ""},
	"ext4": {8 * mebibyte, append([]string{"mkfs.ext4"}, extended...), ""},
	// A copy has the UUID of its source, and XFS mounts each UUID only once without this option.
	"xfs": {300 * mebibyte, []string{"mkfs.xfs", "-f", "-q"}, "nouuid"},
}

// format makes a file system on a device, whatever is there.
func format(device, fsType string) error {
	command := fileSystems[fsType].make
	return ran(command[0], append(command[1:len(command):len(command)], device)...)
}

// growUnmounted makes an ext file system as large as its device, if it is not. XFS can be grown only while mounted.
func growUnmounted(device, fsType string) error {
	if fsType == "xfs" {
		return nil
	}
	size, err := deviceSize(device)
	if err != nil {
		return err
	}
	has, err := extendedSize(device)
	// Less than a group of blocks is not worth it, and not always possible.
	if err != nil || size-has < mebibyte {
		return err
	}
	// resize2fs demands a check first. Code 1 says that the check corrected something.
	if err := ran("e2fsck", "-f", "-p", device); err != nil {
		if exit, is := err.(*exitError); !is || exit.code != 1 {
			return err
		}
	}
	return ran("resize2fs", device)
}

// growMounted makes a mounted file system as large as its device.
func growMounted(device, fsType, at string) error {
	if fsType == "xfs" {
		return ran("xfs_growfs", at)
	}
	return ran("resize2fs", device)
}

// extendedSize is the size of an ext file system in bytes, of its superblock.
func extendedSize(device string) (int64, error) {
	file, err := os.Open(device)
	if err != nil {
		return 0, err
	}
	defer file.Close()
	var block [64]byte
	if _, err := file.ReadAt(block[:], 1024); err != nil {
		return 0, err
	}
	if binary.LittleEndian.Uint16(block[0x38:]) != 0xEF53 {
		return 0, fmt.Errorf("%s holds no ext file system", device)
	}
	blocks := int64(binary.LittleEndian.Uint32(block[4:]))
	return blocks << (10 + binary.LittleEndian.Uint32(block[0x18:])), nil
}

// canGrowMounted says whether the kernel lets us grow a mounted ext file system, which it does with one capability
// that containers and small virtual machines often lack.
func canGrowMounted() bool {
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var data [2]unix.CapUserData
	return unix.Capget(&header, &data[0]) == nil && data[0].Effective&(1<<unix.CAP_SYS_RESOURCE) != 0
}

type exitError struct {
	code int
	text string
}

func (e *exitError) Error() string { return e.text }

func ran(program string, arguments ...string) error {
	output, err := exec.Command(program, arguments...).CombinedOutput()
	if err == nil {
		return nil
	}
	text := fmt.Sprintf("%s %s: %v: %s", program, strings.Join(arguments, " "), err, strings.TrimSpace(string(output)))
	if exit, is := err.(*exec.ExitError); is {
		return &exitError{exit.ExitCode(), text}
	}
	return fmt.Errorf("%s (is its package installed?)", text)
}
