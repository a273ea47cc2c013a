# metrics-backend-operator. `make` lists the targets.

SHELL := bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
MAKEFLAGS += --no-print-directory

VERSION ?= dev
# Prefix of the images' names; set it to that of your registry for a release.
PREFIX ?= metrics-backend
export RUN
# The Go toolchain of go.mod: see hack/toolchain.sh.
export GOTOOLCHAIN := $(or $(filter-out local,$(GOTOOLCHAIN)),$(shell sed -n 's/^toolchain //p' go.mod))
OPERATOR_IMAGE := $(PREFIX)/operator:$(VERSION)
SERVING_IMAGE := $(PREFIX)/serving:$(VERSION)

CLUSTER := go -C test/cluster run .
LDFLAGS = $$(VERSION=$(VERSION) sh hack/ldflags.sh)
# The same for an image, which is built without the repository.
BUILD_ARGS = --build-arg VERSION=$(VERSION) --build-arg GIT_COMMIT=$$(git rev-parse HEAD) \
	--build-arg GIT_TREE_STATE=$$([ -z "$$(git status --porcelain)" ] && echo clean || echo dirty) \
	--build-arg BUILD_DATE=$$(TZ=UTC0 git show -s --format=%cd --date=format-local:%Y-%m-%dT%H:%M:%SZ)
GO_BUILD = CGO_ENABLED=0 go build -ldflags "$(LDFLAGS)"
# Folder of kube-apiserver, etcd and kubectl for integration tests (built on first use).
ASSETS = $$($(CLUSTER) binaries kube-apiserver etcd kubectl)
# The kubectl of the current PATH, else the test cluster's.
KUBECTL ?= $(shell command -v kubectl 2>/dev/null || echo '$$($(CLUSTER) binaries kubectl)/kubectl')

##@ Start here

.PHONY: help
help: ## Explain the targets.
	@awk 'BEGIN {FS = ":.*## "} \
	  /^##@/ {printf "\n\033[1m%s\033[0m\n", substr($$0, 5)} \
	  /^[a-zA-Z0-9_-]+:.*## / {printf "  \033[36m%-18s\033[0m %s\n", $$1, $$2}' $(MAKEFILE_LIST)

.PHONY: demo
demo: ## A real cluster on this machine with metrics on both API versions and an HPA that scales (root; minutes when cold); IPV6=1 for one without IPv4.
	@IPV6=$(IPV6) hack/demo.sh

.PHONY: demo-down
demo-down: ## Remove the demo's cluster and all its files from this machine.
	@$(CLUSTER) down

.PHONY: test
test: ## Unit, integration (real kube-apiserver, etcd) and end to end (real cluster; root), in about half an hour.
	@TEST_TIER=test RUN= hack/test.sh unit integration e2e

.PHONY: test-long
test-long: ## Slower tests: takeover of metrics-server, runbooks, chart, GitOps, faults, other clusters, load, a release's files (two hours more, without builds; root). Removes the test cluster.
	@TEST_TIER=long hack/test.sh integration e2e clusters bench release

.PHONY: test-soak
test-soak: ## Ten upgrades, rollbacks and rotations, faults in pairs, and checks of durations (an hour and a half, on an idle machine; root).
	@TEST_TIER=soak hack/test.sh integration e2e

##@ Parts of the tests

.PHONY: test-unit
test-unit: ## Unit tests with the race detector, vet, and a check for drift in generated files.
	@TEST_TIER=test hack/test.sh unit

.PHONY: test-integration
test-integration: ## Against a real kube-apiserver and etcd; RUN=PATTERN selects tests, as for go test -run.
	@hack/test.sh integration

.PHONY: test-e2e
test-e2e: ## End to end on the real cluster of test/cluster (root); RUN=PATTERN selects tests.
	@hack/test.sh e2e

.PHONY: test-clusters
test-clusters: ## The tests of make test on older Kubernetes, and without IPv4 (most of an hour, without builds; root); RUN as above. Removes the test cluster.
	@TEST_TIER=long hack/test.sh clusters

.PHONY: vulncheck
vulncheck: ## Fail if the binaries call a known vulnerability (govulncheck; a minute).
	@hack/vulncheck.sh

.PHONY: fuzz
fuzz: ## Fuzz each parser for FUZZTIME (default 30s).
	@hack/fuzz.sh

.PHONY: bench
bench: build ## metrics.k8s.io beside metrics-server, on this machine (Linux; an hour, needs it quiet); SCALE=small takes 5 minutes, SCENARIOS=all an hour more.
	@KUBEBUILDER_ASSETS=$(ASSETS); export KUBEBUILDER_ASSETS; \
	folder=$$(hack/build-program.sh metrics-server); \
	go -C bench run ./resource --metrics-server $$folder/metrics-server --scale $(or $(SCALE),full) $(if $(SCENARIOS),--scenario $(SCENARIOS)) $(BENCH_FLAGS)

.PHONY: bench-packages
bench-packages: ## Go benchmarks of the packages of the data path, with allocations.
	go test -run '^$$' -bench . -benchmem ./serving/...

.PHONY: bench-watch
bench-watch: build ## 10,000 watches on this machine, and watching against polling, also through kube-apiserver (Linux; half an hour, needs it quiet).
	@KUBEBUILDER_ASSETS=$(ASSETS); export KUBEBUILDER_ASSETS; \
	go -C bench run ./watch --skip-proxied --plot ../docs/reference/images/watch-against-polling.png && \
	go -C bench run ./watch --skip-many --skip-comparison --nodes 100 # beside 10,000 clients, kube-apiserver and Prometheus

.PHONY: bench-queries
bench-queries: build ## Custom and external metrics beside prometheus-adapter, for up to 1,000 autoscalers (Linux; ten minutes, needs it quiet); SCALE=small takes 3 minutes.
	@KUBEBUILDER_ASSETS=$(ASSETS); export KUBEBUILDER_ASSETS; \
	folder=$$(hack/build-program.sh prometheus-adapter); \
	go -C bench run ./queries --prometheus-adapter $$folder/prometheus-adapter --scale $(or $(SCALE),full) $(BENCH_FLAGS)

GOLANGCI_LINT = github.com/golangci/golangci-lint/v2/cmd/golangci-lint@v2.15.0

.PHONY: lint
lint: ## golangci-lint with .golangci.yml, and kube-api-linter (built from their Go modules on first use; minutes).
	go -C hack/tools build -o $(CURDIR)/bin/apilint ./apilint
	bin/apilint ./api/...
	go run $(GOLANGCI_LINT) run ./...
	cd bench && go run $(GOLANGCI_LINT) run ./...
	cd hack/dashboard && go run $(GOLANGCI_LINT) run ./...
	cd hack/tools && go run $(GOLANGCI_LINT) run ./...
	cd test/autoscaler && CGO_ENABLED=0 go run $(GOLANGCI_LINT) run ./...

##@ Build

.PHONY: build
build: ## Static binaries of the operator, of serving and of the kubectl plugin into bin/.
	@mkdir -p bin
	$(GO_BUILD) -o bin/ ./cmd/operator ./cmd/serving ./cmd/kubectl-metrics_backend

.PHONY: generate
generate: ## CRDs, deepcopy and OpenAPI from the Go types; the chart from config/.
	@hack/generate.sh

.PHONY: images
images: build ## Images as archives in bin/images/, without a container engine.
	@mkdir -p bin/images
	@$(CLUSTER) image --tag $(OPERATOR_IMAGE) --binary $(CURDIR)/bin/operator=/operator --out $(CURDIR)/bin/images/operator.tar
	@$(CLUSTER) image --tag $(SERVING_IMAGE) --binary $(CURDIR)/bin/serving=/serving --out $(CURDIR)/bin/images/serving.tar

.PHONY: docker
docker: ## The same images with a container engine, from the Dockerfile.
	docker build $(BUILD_ARGS) --target operator -t $(OPERATOR_IMAGE) .
	docker build $(BUILD_ARGS) --target serving -t $(SERVING_IMAGE) .

.PHONY: release
release: ## All files of the release VERSION into dist/, without a container engine; PUSH=REGISTRY/PATH pushes images and chart, too (minutes).
	@VERSION='$(VERSION)' PREFIX='$(PREFIX)' PUSH='$(PUSH)' hack/release.sh

##@ Cluster

.PHONY: cluster-up
cluster-up: ## A real Kubernetes 1.37 cluster on this machine (root); IPV6=1 for one without IPv4.
	@$(CLUSTER) up $(if $(IPV6),--ip-family=IPv6)

.PHONY: cluster-down
cluster-down: demo-down ## The same as demo-down.

.PHONY: cluster-status
cluster-status: ## What runs of the cluster, and whether it is healthy.
	@$(CLUSTER) status

.PHONY: load
load: images ## Bring the images into the current cluster (test/cluster, kind, minikube).
	@$(CLUSTER) load $(CURDIR)/bin/images/operator.tar $(CURDIR)/bin/images/serving.tar

.PHONY: load-test-servers
load-test-servers: ## Bring metrics-server, built from its Go module, and Debian's Prometheus into the current cluster.
	@hack/metrics-server.sh
	@hack/prometheus.sh

.PHONY: deploy
deploy: ## Install CRDs and operator into the current kubeconfig's cluster.
	@VERSION=$(VERSION) PREFIX=$(PREFIX) KUBECTL="$(KUBECTL)" hack/deploy.sh

.PHONY: undeploy
undeploy: ## Remove every MetricsBackend in order, then operator and CRDs.
	@KUBECTL="$(KUBECTL)" hack/undeploy.sh
