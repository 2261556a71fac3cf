# Each target goes from nothing to its result, on Debian 12 with Rust and Go, as root. It installs what else it needs.
# `images` and `push` need no Go, `manifests` needs neither.
# CLUSTER names the cluster of demo, cluster-up and cluster-down, if you want more than one.
CLUSTER ?= demo
.DEFAULT_GOAL := help
.PHONY: help demo test test-it test-busy test-cinder test-csi test-e2e-suite test-faults test-versions test-upgrade test-docs recording dashboard soak bench lint chart images push manifests release reproducible cluster-up cluster-down clean

help: ## this list
	@sed -n 's/^\([a-z0-9-]*\):.*## \(.*\)/  make \1\t\2/p' $(MAKEFILE_LIST) | expand -t 22

demo: ## the whole story on a real Kubernetes, step by step with times; the cluster stays up
	@scripts/demo.sh $(CLUSTER)

test: ## all tests, including those with a real cluster
	@scripts/test.sh

test-it: ## the integration tests whose names contain FILTER, such as FILTER=limits::
	@scripts/test-it.sh $(FILTER)

test-busy: ## the tests of TESTS='--test desk -- shipped::' 20 times (TIMES) while all processors are busy
	@scripts/test-busy.sh $(TESTS)

test-cinder: ## the tests of the Cinder image alone, with a real Cinder and Keystone
	@scripts/test-cinder.sh

test-csi: ## the tests of the CSI image alone
	@scripts/test-csi.sh

test-e2e-suite: ## Kubernetes' own storage specs on the class hostpath, half an hour; SPECS='fsgroup' for a part
	@scripts/test-e2e-suite.sh '$(SPECS)'

test-faults: ## only the tests of crashes, races and bad input
	@scripts/test-faults.sh

test-versions: ## a smoke on the oldest and the newest Kubernetes, VERSIONS='1.33 1.37'; writes docs/reference/compatibility.md
	@scripts/test-versions.sh

test-upgrade: ## work in progress survives an upgrade from FROM=COMMIT, and the way back
	@scripts/test-upgrade.sh

test-docs: ## the blocks of the manual that are marked to run, on a cluster of their own; PAGES=docs/how-to/pools.md
	@scripts/test-docs.sh $(PAGES)

recording: ## the moving picture of the README, from a run of its steps on the demo cluster; CHECK=1 compares and writes nothing
	@scripts/recording.sh $(CLUSTER) $(if $(CHECK),--check)

dashboard: ## the panels of the dashboard, with a real Prometheus and the data of a real run; draws PICTURE=build/dashboard.png
	@scripts/dashboard.sh $(PICTURE)

soak: ## CLAIMS=10000 claims created and deleted in random order with faults, on simulated nodes
	@scripts/soak.sh

bench: ## time of one claim on a fresh cluster, pace and cost of many claims; writes build/bench
	@benches/bench.sh

lint: ## all checks that need no run: formatting, clippy, shellcheck, manifests
	@scripts/lint.sh

chart: ## the parts of the Helm chart that follow from configmaps/, deploy/ and the comments of its values.yaml
	@scripts/chart.py

images: ## all images, into build/images, with their sizes and digests: no Kubernetes, no registry
	@scripts/images.sh

# `push` and `manifests` take REGISTRY, with a path if it has one. VERSION is the tag of the images; the default is the
# version of Cargo.toml. KUBERNETES is the version of the cluster, if it is older than 1.36. PULL_SECRET names a Secret for
# the registry.
files = --registry '$(REGISTRY)' --version '$(VERSION)' --kubernetes '$(KUBERNETES)' --pull-secret '$(PULL_SECRET)'

push: ## brings the images to REGISTRY=registry.example.org/team and writes the manifests; INSECURE=1 allows plain HTTP
	@scripts/push.sh $(files) $(if $(INSECURE),--insecure)

manifests: ## install.yaml, quickstart.yaml and the configs for REGISTRY=..., into build/install
	@scripts/manifests.sh $(files)

release: ## VERSION=0.1.0: programs, images, chart and manifests to publish, into dist; ARCHITECTURES='amd64' for one
	@scripts/release/release.sh --version '$(VERSION)' --registry '$(REGISTRY)' --architectures '$(ARCHITECTURES)'

reproducible: ## the release of the last commit, built twice in two folders: both must have the same bytes
	@scripts/release/reproducible.sh --registry '$(REGISTRY)' --architectures '$(ARCHITECTURES)'

cluster-up: ## a cluster with the orchestrator, NODES=2 for two nodes; the last line is the path of its kubeconfig
	@scripts/cluster-up.sh $(CLUSTER)

cluster-down: ## ends the cluster of cluster-up; directories of volumes that still exist stay
	@scripts/cluster-down.sh $(CLUSTER)

clean: ## removes what was built here; the Kubernetes binary in ~/.cache/flex-provisioner stays
	rm -rf target build dist
