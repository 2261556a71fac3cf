package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"log"
	"net"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/status"
	registration "k8s.io/kubelet/pkg/apis/pluginregistration/v1"
)

func serve(options Options) error {
	store, err := Open(options.Data)
	if err != nil {
		return err
	}
	defer store.lock.Close()
	d := &Driver{options: options, store: store, loops: true, online: canGrowMounted()}
	if err := probeLoops(options.Data); err != nil {
		d.loops = false
		log.Printf("NO LOOP DEVICES here (%v): block volumes and file systems asked for by name can be made but not used", err)
	}
	if d.loops && !d.online {
		log.Print("no CAP_SYS_RESOURCE here: a mounted ext file system cannot grow and does when it is mounted next; xfs can")
	}
	failed := make(chan error, len(options.Endpoints)+1)
	var socket string
	var servers []*grpc.Server
	for _, endpoint := range options.Endpoints {
		server, listener, err := d.listen(endpoint)
		if err != nil {
			return fmt.Errorf("endpoint %s: %w", endpoint, err)
		}
		servers = append(servers, server)
		if path, is := strings.CutPrefix(endpoint, "unix://"); is && socket == "" {
			socket = path
		}
		log.Printf("%s serves at %s", options.Name, endpoint)
		go func() { failed <- server.Serve(listener) }()
	}
	if options.Registration != "" {
		server, err := d.register(socket, failed)
		if err != nil {
			return err
		}
		servers = append(servers, server)
	}
	ended := make(chan os.Signal, 1)
	signal.Notify(ended, syscall.SIGTERM, syscall.SIGINT)
	select {
	case err := <-failed:
		return err
	case <-ended:
		for _, server := range servers {
			server.GracefulStop()
		}
		return nil
	}
}

func (d *Driver) listen(endpoint string) (*grpc.Server, net.Listener, error) {
	options := []grpc.ServerOption{grpc.UnaryInterceptor(d.intercept)}
	var listener net.Listener
	var err error
	if path, is := strings.CutPrefix(endpoint, "unix://"); is {
		listener, err = listenAt(path)
	} else if address, is := strings.CutPrefix(endpoint, "tcp://"); is {
		var config *tls.Config
		if config, err = d.mutual(); err == nil {
			options = append(options, grpc.Creds(credentials.NewTLS(config)))
			listener, err = net.Listen("tcp", address)
		}
	} else {
		err = errors.New("an endpoint begins with unix:// or tcp://")
	}
	if err != nil {
		return nil, nil, err
	}
	server := grpc.NewServer(options...)
	csi.RegisterIdentityServer(server, d)
	csi.RegisterControllerServer(server, d)
	csi.RegisterNodeServer(server, d)
	return server, listener, nil
}

// listenAt takes a path for a socket, also one that a killed driver left: the store's lock says that none is running.
func listenAt(path string) (net.Listener, error) {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return nil, err
	}
	if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, err
	}
	return net.Listen("unix", path)
}

// mutual is TLS in which both sides show a certificate. Every client that reaches the port could delete volumes, so the
// driver does not serve TCP without mutual TLS.
func (d *Driver) mutual() (*tls.Config, error) {
	o := d.options
	if o.Certificate == "" || o.Key == "" || o.ClientAuthority == "" {
		return nil, errors.New("a TCP endpoint needs --cert, --key and --client-ca")
	}
	certificate, err := tls.LoadX509KeyPair(o.Certificate, o.Key)
	if err != nil {
		return nil, err
	}
	pem, err := os.ReadFile(o.ClientAuthority)
	if err != nil {
		return nil, err
	}
	authority := x509.NewCertPool()
	if !authority.AppendCertsFromPEM(pem) {
		return nil, fmt.Errorf("%s holds no certificate", o.ClientAuthority)
	}
	return &tls.Config{
		Certificates: []tls.Certificate{certificate}, ClientAuth: tls.RequireAndVerifyClientCert, ClientCAs: authority,
		MinVersion: tls.VersionTLS12,
	}, nil
}

// intercept checks secrets and writes one line for each call, without its content.
func (d *Driver) intercept(ctx context.Context, request any, call *grpc.UnaryServerInfo, handle grpc.UnaryHandler) (any, error) {
	began := time.Now()
	response, err := any(nil), d.authentic(request, filepath.Base(call.FullMethod))
	if err == nil {
		response, err = handle(ctx, request)
	}
	log.Printf("%s %s: %s %s in %s", filepath.Base(call.FullMethod), subject(request), status.Code(err),
		status.Convert(err).Message(), time.Since(began).Round(time.Microsecond))
	return response, err
}

func subject(request any) string {
	if named, is := request.(interface{ GetName() string }); is {
		return named.GetName()
	}
	if of, is := request.(interface{ GetVolumeId() string }); is {
		return of.GetVolumeId()
	}
	if of, is := request.(interface{ GetSnapshotId() string }); is {
		return of.GetSnapshotId()
	}
	return "-"
}

// Calls that must have a secret if the flags ask for one. The kubelet has no secret for an expansion unless the PV names
// one, and lists have no secret at all.
var withSecret = map[string]bool{
	"CreateVolume": true, "DeleteVolume": true, "CreateSnapshot": true, "DeleteSnapshot": true,
	"ControllerExpandVolume": true, "ControllerModifyVolume": true,
	"NodeStageVolume": true, "NodePublishVolume": true,
}

func (d *Driver) authentic(request any, method string) error {
	bearer, is := request.(interface{ GetSecrets() map[string]string })
	if !is || !withSecret[method] {
		return nil
	}
	wanted := d.options.ControllerSecret
	if strings.HasPrefix(method, "Node") {
		wanted = d.options.NodeSecret
	}
	for key, value := range wanted {
		if bearer.GetSecrets()[key] != value {
			return status.Errorf(codes.Unauthenticated, "%s needs a secret whose key %q is right", method, key)
		}
	}
	return nil
}

// registrar tells the kubelet, which looks for sockets in its directory, where the driver is.
type registrar struct {
	registration.UnsafeRegistrationServer
	name, socket string
}

// GetInfo names driver and socket.
func (r *registrar) GetInfo(context.Context, *registration.InfoRequest) (*registration.PluginInfo, error) {
	return &registration.PluginInfo{
		Type: registration.CSIPlugin, Name: r.name, Endpoint: r.socket, SupportedVersions: []string{"1.0.0"},
	}, nil
}

// NotifyRegistrationStatus gets from the kubelet whether the registration succeeded.
func (r *registrar) NotifyRegistrationStatus(_ context.Context, told *registration.RegistrationStatus) (*registration.RegistrationStatusResponse, error) {
	if told.GetPluginRegistered() {
		log.Print("the kubelet has registered the driver")
	} else {
		log.Printf("the kubelet REFUSED the driver: %s", told.GetError())
	}
	return &registration.RegistrationStatusResponse{}, nil
}

func (d *Driver) register(socket string, failed chan<- error) (*grpc.Server, error) {
	if socket == "" {
		return nil, errors.New("--registration needs an endpoint on a unix socket, which the kubelet calls")
	}
	listener, err := listenAt(filepath.Join(d.options.Registration, d.options.Name+"-reg.sock"))
	if err != nil {
		return nil, fmt.Errorf("registration: %w", err)
	}
	server := grpc.NewServer()
	registration.RegisterRegistrationServer(server, &registrar{name: d.options.Name, socket: socket})
	go func() { failed <- server.Serve(listener) }()
	return server, nil
}
