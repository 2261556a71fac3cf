// The program of Kubernetes' storage specs. go.work joins this module with that of the cluster's Kubernetes, whose go.mod alone
// says which version of Kubernetes is built. The versions here are only the least ones: Kubernetes may choose newer ones.
module flex-provisioner/testing/e2e-suite

go 1.26.0

require (
	github.com/onsi/ginkgo/v2 v2.28.1
	github.com/onsi/gomega v1.39.1
)
