// The CSI service of Kubernetes' own storage tests, on a socket, with hooks for failures. See ../README.md.
package main

import (
	"errors"
	"flag"
	"log"
	"net"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc"
	"k8s.io/kubernetes/test/e2e/storage/drivers/csi-test/mock/service"
)

func main() {
	log.SetFlags(log.Ltime | log.Lmicroseconds)
	var config service.Config
	h := &hooks{used: map[Hook]int{}}
	endpoint := flag.String("endpoint", "", "unix:///PATH")
	flag.StringVar(&h.file, "hooks", "", "JSON file with hooks, read at each call; it need not be there")
	flag.StringVar(&config.DriverName, "name", service.Name, "name of the driver")
	flag.BoolVar(&config.EnableTopology, "topology", false, "volumes have the topology of a node")
	flag.BoolVar(&config.DisableControllerExpansion, "no-expansion", false, "volumes cannot be expanded")
	flag.BoolVar(&config.DisableAttach, "no-attach", false, "volumes need not be attached")
	flag.BoolVar(&config.NodeExpansionRequired, "node-expansion", false, "an expansion has a part on the node")
	flag.Parse()
	if err := run(*endpoint, config, h); err != nil {
		log.Fatalf("csi-mock: error: %v", err)
	}
}

func run(endpoint string, config service.Config, h *hooks) error {
	path, is := strings.CutPrefix(endpoint, "unix://")
	if !is || flag.NArg() > 0 {
		return errors.New("usage: csi-mock --endpoint unix:///PATH [--hooks FILE] [OPTION...]")
	}
	server := serving(config, h)
	// The program reports a wrong hook at its start.
	if _, err := h.read(); err != nil {
		return err
	}
	if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	listener, err := net.Listen("unix", path)
	if err != nil {
		return err
	}
	ended := make(chan os.Signal, 1)
	signal.Notify(ended, syscall.SIGTERM, syscall.SIGINT)
	go func() {
		<-ended
		server.Stop()
	}()
	log.Printf("%s serves at %s", config.DriverName, endpoint)
	return server.Serve(listener)
}

// serving is the service with the hooks before it.
func serving(config service.Config, h *hooks) *grpc.Server {
	server := grpc.NewServer(grpc.UnaryInterceptor(h.intercept))
	mock := service.New(config)
	csi.RegisterIdentityServer(server, mock)
	csi.RegisterControllerServer(server, mock)
	csi.RegisterNodeServer(server, mock)
	for _, each := range server.GetServiceInfo() {
		for _, method := range each.Methods {
			h.methods = append(h.methods, method.Name)
		}
	}
	return server
}
