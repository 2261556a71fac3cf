// A CSI driver for tests: small, but with real volumes. See README.md.
package main

import (
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"log"
	"os"
	"strings"
)

const usage = `usage:
  csi-driver serve --data DIR --endpoint ENDPOINT... [--name NAME] [--node-id ID] [OPTION...]
  csi-driver list  --data DIR     prints volumes, snapshots and leftovers as JSON
`

// Options are the flags of `serve`.
type Options struct {
	Name             string
	NodeID           string
	Data             string
	Endpoints        []string
	Registration     string
	Segments         []map[string]string
	Capacity         int64
	Without          map[string]bool
	ControllerSecret map[string]string
	NodeSecret       map[string]string
	Certificate      string
	Key              string
	ClientAuthority  string
}

func main() {
	log.SetFlags(log.Ltime | log.Lmicroseconds)
	if err := run(os.Args[1:]); err != nil {
		if errors.Is(err, flag.ErrHelp) {
			os.Exit(0)
		}
		fmt.Fprintf(os.Stderr, "csi-driver: error: %v\n", err)
		os.Exit(1)
	}
}

func run(arguments []string) error {
	if len(arguments) == 0 {
		return errors.New("no command is given\n" + usage)
	}
	switch arguments[0] {
	case "serve":
		options, err := parseServe(arguments[1:])
		if err != nil {
			return err
		}
		return serve(options)
	case "list":
		flags := flag.NewFlagSet("csi-driver list", flag.ContinueOnError)
		data := flags.String("data", "", "the directory of the driver")
		if err := flags.Parse(arguments[1:]); err != nil {
			return err
		}
		if *data == "" {
			return errors.New("list needs --data DIR")
		}
		return list(*data)
	case "help", "--help", "-h":
		fmt.Print(usage)
		return nil
	default:
		return fmt.Errorf("there is no command %q\n%s", arguments[0], usage)
	}
}

func list(dir string) error {
	listing, err := Read(dir)
	if err != nil {
		return err
	}
	encoder := json.NewEncoder(os.Stdout)
	encoder.SetIndent("", "  ")
	return encoder.Encode(listing)
}

func parseServe(arguments []string) (Options, error) {
	options := Options{Without: map[string]bool{}, ControllerSecret: map[string]string{}, NodeSecret: map[string]string{}}
	flags := flag.NewFlagSet("csi-driver serve", flag.ContinueOnError)
	flags.StringVar(&options.Name, "name", "csi.test.flex-provisioner.io", "name of the driver")
	flags.StringVar(&options.NodeID, "node-id", "", "name of the node; the host's name by default")
	flags.StringVar(&options.Data, "data", "", "directory for volumes and snapshots")
	flags.StringVar(&options.Registration, "registration", "", "the kubelet's plugins_registry directory, to be found by it")
	flags.StringVar(&options.Certificate, "cert", "", "certificate of the TCP endpoints, PEM")
	flags.StringVar(&options.Key, "key", "", "key of the TCP endpoints, PEM")
	flags.StringVar(&options.ClientAuthority, "client-ca", "", "certificates that sign the clients' of the TCP endpoints, PEM")
	flags.Int64Var(&options.Capacity, "capacity", 100<<30, "bytes of each segment, or of all without segments")
	flags.Func("endpoint", "unix:///PATH or tcp://ADDRESS:PORT; may be given again", func(text string) error {
		options.Endpoints = append(options.Endpoints, text)
		return nil
	})
	flags.Func("segment", "KEY=VALUE,…: where storage is; may be given again; the node is in the first", func(text string) error {
		segment, err := parseSegment(text)
		options.Segments = append(options.Segments, segment)
		return err
	})
	flags.Func("without", "list, capacity, snapshot, clone, expand or modify, by comma: what the driver shall lack", func(text string) error {
		for _, what := range strings.Split(text, ",") {
			if _, known := optional[what]; !known {
				return fmt.Errorf("%q cannot be taken away", what)
			}
			options.Without[what] = true
		}
		return nil
	})
	flags.Func("controller-secret", "KEY=VALUE that calls of the controller must bear", into(options.ControllerSecret))
	flags.Func("node-secret", "KEY=VALUE that staging and publishing must bear", into(options.NodeSecret))
	if err := flags.Parse(arguments); err != nil {
		return options, err
	}
	if flags.NArg() > 0 {
		return options, fmt.Errorf("%q is not a flag", flags.Arg(0))
	}
	return checked(options)
}

func into(secret map[string]string) func(string) error {
	return func(text string) error {
		pair, err := parseSegment(text)
		for key, value := range pair {
			secret[key] = value
		}
		return err
	}
}

func checked(options Options) (Options, error) {
	switch {
	case options.Data == "":
		return options, errors.New("serve needs --data DIR")
	case len(options.Endpoints) == 0:
		return options, errors.New("serve needs --endpoint unix:///PATH or tcp://ADDRESS:PORT")
	case options.Capacity < mebibyte:
		return options, errors.New("--capacity must be a MiB at least")
	}
	if options.NodeID == "" {
		host, err := os.Hostname()
		if err != nil {
			return options, err
		}
		options.NodeID = host
	}
	return options, nil
}
