// A CSI driver for tests. Its modules stand at the versions that ../cluster/kubernetes is built with, so that nothing
// else has to be downloaded. To move to another version: change it there first, then here, and run `go mod tidy`.
module flex-provisioner/testing/csi-driver

go 1.26.0

require (
	github.com/container-storage-interface/spec v1.9.0
	golang.org/x/sys v0.40.0
	google.golang.org/grpc v1.79.3
	google.golang.org/protobuf v1.36.12-0.20260120151049-f2248ac996af
	k8s.io/kubelet v0.36.3
)

require (
	github.com/golang/protobuf v1.5.4 // indirect
	golang.org/x/net v0.49.0 // indirect
	golang.org/x/text v0.33.0 // indirect
	google.golang.org/genproto/googleapis/rpc v0.0.0-20260128011058-8636f8732409 // indirect
)
