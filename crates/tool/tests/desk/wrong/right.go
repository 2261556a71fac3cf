// A provisioner whose volumes are directories. It keeps the contract; the tests break it in one place at a time.
package main

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
)

var uuid = regexp.MustCompile(`^[0-9a-f]+(-[0-9a-f]+){4}$`)

// flexPV calls flex-pv, and ends with its exit code if it fails. It has said why.
func flexPV(input string, arguments ...string) {
	command := exec.Command("flex-pv", arguments...)
	command.Stdin, command.Stdout, command.Stderr = strings.NewReader(input), os.Stdout, os.Stderr
	err := command.Run()
	var ended *exec.ExitError
	if errors.As(err, &ended) && ended.ExitCode() > 0 {
		os.Exit(ended.ExitCode())
	}
	must(err)
}

// become replaces this program by flex-pv.
func become(arguments ...string) {
	path, err := exec.LookPath("flex-pv")
	if err == nil {
		err = syscall.Exec(path, append([]string{"flex-pv"}, arguments...), os.Environ())
	}
	fmt.Fprintln(os.Stderr, err)
	os.Exit(78)
}

// must ends the run after an error. The orchestrator starts another one.
func must(err error) {
	if err != nil {
		become("fail", "retry", err.Error())
	}
}

// remove removes directories with all their contents. It is a success if they are not there.
func remove(paths ...string) {
	for _, path := range paths {
		must(os.RemoveAll(path))
	}
}

func isDirectory(path string) bool {
	found, err := os.Stat(path)
	return err == nil && found.IsDir()
}

// copied makes a copy under another name first: a run that is killed leaves half of it there.
func copied(source, half, target string) {
	remove(half)
	flexPV("", "copy", source, half)
	must(os.Rename(half, target))
}

// check refuses ids that are no UUIDs, because they become parts of paths, and a run without its id.
func check(operation, id, sid string) {
	ids, needed := []string{id, os.Getenv("CLONE_OF"), sid}, id
	switch operation {
	case "delete":
		// A claim whose snapshot was refused can be deleted.
		ids = ids[:1]
	case "snapshot", "delete-snapshot":
		needed = sid
	case "list", "capacity":
		return
	}
	for _, text := range ids {
		if text != "" && !uuid.MatchString(text) {
			become("fail", "never", "an id is no UUID")
		}
	}
	if needed == "" {
		become("fail", "never", "the run has no id")
	}
}

func provision(base, volume, half, snapshot string) {
	switch {
	case isDirectory(volume):
	case os.Getenv("CLONE_OF") != "":
		copied(filepath.Join(base, os.Getenv("CLONE_OF")), half, volume)
	case os.Getenv("SNAPSHOT_ID") != "":
		copied(snapshot, half, volume)
	default:
		remove(half)
		must(os.Mkdir(half, 0o777))
		must(os.Chmod(half, 0o777))
		must(os.Rename(half, volume))
	}
	// The last act: the claim can be bound as soon as the volume exists.
	become("create", "--copied", "--local", volume)
}

func list(base string) {
	entries, err := os.ReadDir(base)
	must(err)
	var lines strings.Builder
	for _, entry := range entries {
		// Other names are no volumes.
		if name := entry.Name(); uuid.MatchString(name) {
			fmt.Fprintf(&lines, "volume %s - %s\n", name, filepath.Join(base, name))
		}
	}
	flexPV(lines.String()+"end\n", "list")
}

func main() {
	operation, id, sid := os.Getenv("OPERATION"), os.Getenv("CLAIM_UUID"), os.Getenv("SNAPSHOT_ID")
	if operation == "batch" {
		become("each", "--", os.Args[0])
	}
	flexPV("", "parameters", "base-path")
	base := os.Getenv("BASE_PATH")
	if base == "" {
		base = "/srv/volumes"
	}
	check(operation, id, sid)
	volume, half := filepath.Join(base, id), filepath.Join(base, ".half-"+id)
	snapshot, halfSnapshot := filepath.Join(base, ".snapshot-"+sid), filepath.Join(base, ".half-"+sid)
	switch operation {
	case "provision":
		provision(base, volume, half, snapshot)
	case "delete":
		remove(volume, half)
	case "expand", "modify":
		// A directory has neither a size nor attributes of its own.
		if !isDirectory(volume) {
			become("fail", "never", "the directory of the volume is lost")
		}
	case "snapshot":
		if !isDirectory(snapshot) {
			copied(volume, halfSnapshot, snapshot)
		}
	case "delete-snapshot":
		remove(snapshot, halfSnapshot)
	case "list":
		list(base)
	case "capacity":
		var space syscall.Statfs_t
		must(syscall.Statfs(base, &space))
		become("capacity", "--bytes", fmt.Sprint(space.Bavail*uint64(space.Bsize)))
	default:
		become("fail", "never", "this program cannot "+operation)
	}
}
