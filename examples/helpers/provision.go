// Directories of a node as volumes, with flexpv.go beside it: go build -o provision provision.go flexpv.go
package main

import (
	"os"
	"path/filepath"
	"syscall"
)

func main() {
	base := os.Getenv("BASE_PATH")
	if base == "" {
		base = "/srv/volumes"
	}
	syscall.Umask(0)
	path := filepath.Join(base, os.Getenv("CLAIM_UUID"))
	Main([]string{"base-path"}, map[string]func(Run) error{
		"provision": func(run Run) error {
			if err := os.MkdirAll(path, 0o777); err != nil {
				return err
			}
			return run.Create(Volume{Source: Object{"local": Object{"path": path}}, OnThisNode: true})
		},
		"delete": func(Run) error { return os.RemoveAll(path) },
	})
}
