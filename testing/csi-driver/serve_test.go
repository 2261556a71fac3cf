package main

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	registration "k8s.io/kubelet/pkg/apis/pluginregistration/v1"
)

// An authority in a directory: ca.pem, and for each signed NAME the files NAME.pem and NAME.key.
type authority struct {
	dir  string
	key  *ecdsa.PrivateKey
	cert *x509.Certificate
}

func newAuthority(t *testing.T) *authority {
	a := &authority{dir: t.TempDir()}
	a.cert, a.key = a.sign(t, "ca", nil)
	return a
}

func (a *authority) sign(t *testing.T, name string, address net.IP) (*x509.Certificate, *ecdsa.PrivateKey) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	must(t, err)
	template := &x509.Certificate{
		SerialNumber: big.NewInt(time.Now().UnixNano()), Subject: pkix.Name{CommonName: name},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour), BasicConstraintsValid: true,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
	parent, signer := a.cert, a.key
	if parent == nil {
		template.IsCA, template.KeyUsage = true, x509.KeyUsageCertSign
		parent, signer = template, key
	}
	if address != nil {
		template.IPAddresses = []net.IP{address}
	}
	der, err := x509.CreateCertificate(rand.Reader, template, parent, &key.PublicKey, signer)
	must(t, err)
	private, err := x509.MarshalPKCS8PrivateKey(key)
	must(t, err)
	must(t, os.WriteFile(a.file(name+".pem"), pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), 0o600))
	must(t, os.WriteFile(a.file(name+".key"), pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: private}), 0o600))
	cert, err := x509.ParseCertificate(der)
	must(t, err)
	return cert, key
}

func (a *authority) file(name string) string { return filepath.Join(a.dir, name) }

// over serves a driver at an endpoint and connects to where it listens.
func over(t *testing.T, d *Driver, endpoint string, with credentials.TransportCredentials) *grpc.ClientConn {
	t.Helper()
	server, listener, err := d.listen(endpoint)
	must(t, err)
	go server.Serve(listener)
	t.Cleanup(server.Stop)
	target := listener.Addr().String()
	if listener.Addr().Network() == "unix" {
		target = "unix://" + target
	}
	connection, err := grpc.NewClient(target, grpc.WithTransportCredentials(with))
	must(t, err)
	t.Cleanup(func() { connection.Close() })
	return connection
}

func TestOnTCPBothSidesShowACertificate(t *testing.T) {
	ours, foreign := newAuthority(t), newAuthority(t)
	ours.sign(t, "driver", net.IPv4(127, 0, 0, 1))
	ours.sign(t, "client", nil)
	foreign.sign(t, "client", nil)
	d := started(t, Options{Certificate: ours.file("driver.pem"), Key: ours.file("driver.key"), ClientAuthority: ours.file("ca.pem")})
	for _, row := range []struct {
		what   string
		client *authority
		code   codes.Code
	}{{"ours", ours, codes.OK}, {"another's", foreign, codes.Unavailable}, {"none", nil, codes.Unavailable}} {
		t.Run(row.what, func(t *testing.T) {
			roots := x509.NewCertPool()
			roots.AddCert(ours.cert)
			config := &tls.Config{RootCAs: roots}
			if row.client != nil {
				certificate, err := tls.LoadX509KeyPair(row.client.file("client.pem"), row.client.file("client.key"))
				must(t, err)
				config.Certificates = []tls.Certificate{certificate}
			}
			connection := over(t, d, "tcp://127.0.0.1:0", credentials.NewTLS(config))
			_, err := csi.NewIdentityClient(connection).Probe(background, &csi.ProbeRequest{})
			code(t, err, row.code)
		})
	}
	d.options.ClientAuthority = ""
	if _, _, err := d.listen("tcp://127.0.0.1:0"); err == nil || !strings.Contains(err.Error(), "--client-ca") {
		t.Errorf("served without asking for certificates: %v", err)
	}
}

func TestCallsWithoutTheSecretAreRefused(t *testing.T) {
	d := started(t, Options{ControllerSecret: map[string]string{"token": "right"}, NodeSecret: map[string]string{"token": "node"}})
	connection := over(t, d, "unix://"+t.TempDir()+"/csi.sock", insecure.NewCredentials())
	client, node := csi.NewControllerClient(connection), csi.NewNodeClient(connection)
	for token, want := range map[string]codes.Code{"": codes.Unauthenticated, "node": codes.Unauthenticated, "right": codes.OK} {
		request := wanted("volume", mebibyte, mountAs(""))
		request.Secrets = map[string]string{"token": token}
		_, err := client.CreateVolume(background, request)
		code(t, err, want)
	}
	volume := d.store.Volumes()[0]
	for token, want := range map[string]codes.Code{"": codes.Unauthenticated, "right": codes.Unauthenticated, "node": codes.InvalidArgument} {
		_, err := node.NodeStageVolume(background, &csi.NodeStageVolumeRequest{VolumeId: volume.ID, Secrets: map[string]string{"token": token}})
		code(t, err, want)
	}
	_, err := client.ListVolumes(background, &csi.ListVolumesRequest{})
	must(t, err)
}

func TestTheKubeletIsToldWhereTheDriverIs(t *testing.T) {
	dir := t.TempDir()
	d := started(t, Options{Registration: dir})
	server, err := d.register("/somewhere/csi.sock", make(chan error, 1))
	must(t, err)
	defer server.Stop()
	connection, err := grpc.NewClient("unix://"+dir+"/csi.test-reg.sock", grpc.WithTransportCredentials(insecure.NewCredentials()))
	must(t, err)
	defer connection.Close()
	ctx, cancel := context.WithTimeout(background, time.Minute)
	defer cancel()
	info, err := registration.NewRegistrationClient(connection).GetInfo(ctx, &registration.InfoRequest{})
	must(t, err)
	if info.GetName() != "csi.test" || info.GetEndpoint() != "/somewhere/csi.sock" || info.GetType() != registration.CSIPlugin {
		t.Errorf("told: %v", info)
	}
}
