# Everything below works in a clean clone: tools and control-plane binaries are
# built from their Go modules into .cache/bin when first needed.

GOLANGCI_LINT_VERSION := v2.13.2
GOVULNCHECK_VERSION   := v1.1.4
GREMLINS_VERSION      := v0.6.0
GORELEASER_VERSION    := v2.16.0
CONTROLLER_GEN_VERSION := v0.23.0# as in examples/workerpool/generate
BENCHSTAT_VERSION     := v0.0.0-20260908200009-22c9c6c9d4da
KUBERNETES_VERSION    := v1.36.3# as in test/binaries/kubernetes/go.mod

# Every module of this repository whose code is ours; test, lint and tidy visit them all. The last ones need the programs.
ON_SERVERS := replicas/controllerruntime cmd/replicakit-controller examples/workerpool test
MODULES    := . test/consumer replicas/clientgo cmd/kubectl-scaledown $(ON_SERVERS)

# The modules that others can get, at one version, and the programs that go install builds.
RELEASED := . replicas/clientgo replicas/controllerruntime cmd/kubectl-scaledown cmd/replicakit-controller examples/workerpool
PROGRAMS := examples/quickstart cmd/kubectl-scaledown cmd/replicakit-controller examples/workerpool

# Modules that only say which programs to build.
BINARY_MODULES := test/binaries/kubernetes test/binaries/etcd test/binaries/kwok test/binaries/helm test/binaries/prometheus

# The packages that decide, and make no calls of their own.
PURE := expectations slowstart podrank selector status replicas replicas/ledger

ROOT := $(CURDIR)
BIN  := $(ROOT)/.cache/bin
LINT_WORK := $(ROOT)/.cache/lint.work
FUZZTIME ?= 60s
RUNS     ?= 10
SEEDS    ?= 1-500
SOAK     ?= 10m
BENCH_RUNS ?= 6
BENCH_TIME ?= 200ms
STORY    ?=
PLATFORMS ?= linux/amd64 linux/arm64
IMAGE     ?= $(ROOT)/.cache/replicakit-controller.tar

# Programs are built as docs/operating.md builds the manager, and so are the packages that the linters read and that a release is
# checked with: each package is compiled once. The tests are compiled a second time, for the race detector.
BUILT_AS := CGO_ENABLED=0 GOFLAGS="-trimpath $(BUILD_FLAGS)"
BUILD    := $(BUILT_AS) go build -ldflags '-s -w'
OURS     := CGO_ENABLED=0 go build -trimpath

# The limit is for the tests of one package. go compiles them before, and .ci/test has everything else built before.
TEST := KUBE_CACHE_MUTATION_DETECTOR=true go test -vet=off -shuffle=on -p 4 -parallel 4 -timeout 30m

# These run Kubernetes' own code beside ours, over and over, for which the race detector needs five times as long: make conformance.
UNRACED := test/bench test/conformance

.PHONY: help
help: ## this list
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## /{printf "  make %-24s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

.PHONY: test
test: ## the tests of every module, with the race detector and one of changes to cached objects, and Kubernetes' unit tests
	@MAKE='$(MAKE)' TEST='$(TEST)' BUILT_AS='$(BUILT_AS)' UNRACED='$(UNRACED)' ON_SERVERS='$(ON_SERVERS)' .ci/test $(MODULES)

.PHONY: conformance
conformance: ## what is compared with Kubernetes' own code in make test, under the race detector
	@cd test && go test -race -count=1 -timeout 0 ./conformance ./bench

.PHONY: check
check: lint release-check apidiff planted-check ## lint, with all that go vet checks; the release; the API; the planted defects

# In one workspace, so that the linters read what the modules depend on once. The tests do not: each module's go.mod says with what.
.PHONY: lint
lint: $(BIN)/golangci-lint-$(GOLANGCI_LINT_VERSION) $(LINT_WORK) ## golangci-lint, with all that go vet checks, and formatting, every module
	@GOWORK=$(LINT_WORK) $(BUILT_AS) $< run $(patsubst %,./%/...,$(MODULES))

FORCE:
$(LINT_WORK): FORCE
	@mkdir -p $(dir $@) && rm -f $@ && GOWORK=$@ go work init $(MODULES)

.PHONY: fmt
fmt: $(BIN)/golangci-lint-$(GOLANGCI_LINT_VERSION) ## format every module
	@for m in $(MODULES); do (cd $$m && $< fmt --config $(ROOT)/.golangci.yml ./...) || exit 1; done

.PHONY: tidy
tidy: ## go mod tidy in every module
	@for m in $(MODULES) $(BINARY_MODULES); do (cd $$m && go mod tidy) || exit 1; done

.PHONY: programs
programs: cluster-binaries our-programs $(BIN)/kube-scheduler $(BIN)/helm $(BIN)/prometheus $(BIN)/controller-gen-$(CONTROLLER_GEN_VERSION) ## what tests start, into .cache/bin: the control plane, Helm, Prometheus, and our own programs
	@.ci/importing $(BIN)

# Go builds them again only if something has changed, but they must not look older than their sources: see controlplane.Ours.
.PHONY: our-programs
our-programs: ## the manager, the demo, the plugin, and the image that tests start, into .cache/bin
	@mkdir -p $(BIN)
	@cd cmd/kubectl-scaledown && $(OURS) $(BUILD_FLAGS) -o $(BIN)/ .
	@cd cmd/replicakit-controller && $(OURS) $(BUILD_FLAGS) -o $(BIN)/ . ./demo
	@touch $(BIN)/kubectl-scaledown $(BIN)/replicakit-controller $(BIN)/demo
	@$(MAKE) --no-print-directory image PLATFORMS="$$(go env GOOS)/$$(go env GOARCH)" IMAGE=$(BIN)/replicakit-controller.tar

.PHONY: image
image: ## the manager alone in an image for PLATFORMS, without a container runtime, as an OCI archive: .cache/replicakit-controller.tar; VERSION=v0.1.0
	@for p in $(PLATFORMS); do \
		(cd cmd/replicakit-controller && GOOS=$${p%/*} GOARCH=$${p#*/} $(OURS) $(BUILD_FLAGS) -o $(ROOT)/.cache/image/$$p/ .) || exit 1; done
	@cd test && $(BUILT_AS) go run ./image -o $(IMAGE) -tag $(or $(VERSION),latest) $(PLATFORMS:%=$(ROOT)/.cache/image/%/replicakit-controller)

.PHONY: cluster-binaries
cluster-binaries: $(BIN)/kubernetes-built $(BIN)/etcd ## etcd, kube-apiserver, kube-controller-manager and kubectl into .cache/bin

KUBERNETES := cd test/binaries/kubernetes && $(BUILT_AS) go build -ldflags '-s -w -X k8s.io/component-base/version.gitVersion=$(KUBERNETES_VERSION)'

$(BIN)/kubernetes-built: test/binaries/kubernetes/go.mod
	@mkdir -p $(BIN)
	$(KUBERNETES) -o $(BIN)/ $(addprefix k8s.io/kubernetes/cmd/,kube-apiserver kube-controller-manager kubectl)
	@touch $@

$(BIN)/etcd: test/binaries/etcd/go.mod
	cd test/binaries/etcd && $(BUILD) -o $@ go.etcd.io/etcd/server/v3

$(BIN)/kube-scheduler: test/binaries/kubernetes/go.mod
	$(KUBERNETES) -o $@ k8s.io/kubernetes/cmd/kube-scheduler

$(BIN)/kwok: test/binaries/kwok/go.mod
	cd test/binaries/kwok && $(BUILD) -o $@ sigs.k8s.io/kwok/cmd/kwok

$(BIN)/helm: test/binaries/helm/go.mod
	cd test/binaries/helm && $(BUILD) -o $@ helm.sh/helm/v3/cmd/helm

# Without the discovery of clouds: the tests name the targets.
$(BIN)/prometheus: test/binaries/prometheus/go.mod
	cd test/binaries/prometheus && $(BUILD) -tags remove_all_sd -o $@ github.com/prometheus/prometheus/cmd/prometheus

$(BIN)/ginkgo: test/binaries/kubernetes/go.mod
	cd test/binaries/kubernetes && $(BUILD) -o $@ github.com/onsi/ginkgo/v2/ginkgo

$(BIN)/kubernetes-e2e-specs.test: test/binaries/kubernetes/go.mod $(wildcard test/binaries/kubernetes/specs/*)
	cd test/binaries/kubernetes && $(BUILT_AS) go test -c -ldflags '-s -w' -o $@ ./specs

.PHONY: kubernetes-suites
kubernetes-suites: kubernetes-unit kubernetes-integration kubernetes-e2e ## Kubernetes' own tests against ours; a table, and an error for what is not known

.PHONY: kubernetes-unit
kubernetes-unit: ## its unit tests
	@cd test/kubernetes && $(BUILT_AS) go run . unit

.PHONY: kubernetes-integration
kubernetes-integration: $(BIN)/etcd ## its integration tests, on an API server
	@cd test/kubernetes && $(BUILT_AS) go run . -binaries $(BIN) integration

.PHONY: kubernetes-e2e
kubernetes-e2e: cluster-binaries our-programs $(BIN)/kube-scheduler $(BIN)/kwok $(BIN)/ginkgo $(BIN)/kubernetes-e2e-specs.test ## Kubernetes' end-to-end specs with our controllers, and with its own; ARGS=-sides=ours
	@cd test/kubernetes/e2e && $(BUILT_AS) go build -o $(BIN)/kubernetes-e2e .
	@$(BIN)/kubernetes-e2e $(ARGS)

.PHONY: generate
generate: ## the custom resources of examples/workerpool from its types
	@examples/workerpool/generate

.PHONY: demo
demo: ## a real control plane, the controller and a ReplicaSet to play with; ARGS=--once ends by itself
	@cmd/replicakit-controller/demo/progress "etcd and Kubernetes (about 6 minutes)" $(MAKE) --no-print-directory cluster-binaries BUILD_FLAGS=-v
	@cmd/replicakit-controller/demo/progress "the controller and the demo" $(MAKE) --no-print-directory our-programs BUILD_FLAGS=-v
	@$(BIN)/demo $(ARGS)

.PHONY: sim
sim: ## random stories in the simulated cluster: SEEDS=1234, SEEDS=1-500, or a STORY to play again
	go test ./replicas/replicastest/internal/chaos -count=1 -v -run TestSeeds -seeds "$(SEEDS)" -story "$(STORY)"

.PHONY: soak
soak: ## fresh random stories for SOAK, and their seeds
	go test ./replicas/replicastest/internal/chaos -count=1 -v -timeout 0 -run TestSoak -soak $(SOAK)

.PHONY: planted
planted: ## defects that are planted one at a time: which nets notice each, into test/README.md
	@mkdir -p .cache && go run ./internal/planted -resume .cache/planted.jsonl test/README.md

.PHONY: planted-check
planted-check: $(LINT_WORK) ## does each planted defect still apply and compile?
	@GOWORK=$(LINT_WORK) $(BUILT_AS) go run ./internal/planted -check

.PHONY: corners
corners: ## every single fault in each scenario
	go test ./replicas/replicastest/internal/corners -count=1 -v -every 1

.PHONY: explore
explore: ## every interleaving of small fleets, in full
	go test ./replicas/replicastest -run TestExplore -count=1 -v -timeout 0 -full -parallel 1
	go test ./replicas/ledger -run TestModel -count=1 -v -timeout 0 -full -parallel 1

.PHONY: bench
bench: ## ours and Kubernetes side by side, into docs/benchmarks.md, its pictures and the README
	@mkdir -p $(BIN)
	cd test/bench && go test -c -o $(BIN)/bench.test . && rm -f bench.txt
	@for run in $$(seq $(BENCH_RUNS)); do echo "== run $$run of $(BENCH_RUNS)"; \
		(cd test/bench && $(BIN)/bench.test -test.run '^$$' -test.bench . -test.benchtime $(BENCH_TIME) >> bench.txt) || exit 1; done
	@cd test/bench && go run golang.org/x/perf/cmd/benchstat@$(BENCHSTAT_VERSION) -col /side -format csv bench.txt > bench.csv 2>/dev/null
	@cd test/bench && go run ./report ../.. < bench.csv
	@cat docs/benchmarks.md
	@echo "figures: $(BENCH_RUNS) runs into docs/benchmarks.md"

.PHONY: bench-cluster
bench-cluster: cluster-binaries our-programs ## the manager against kube-controller-manager on a real API server; ARGS=-quick in two minutes
	@cd test/bench && $(BUILT_AS) go build -o $(BIN)/bench-cluster ./cluster
	@$(BIN)/bench-cluster $(or $(ARGS),-o test/bench/cluster.md)
	@echo "figures: test/bench/cluster.md"

.PHONY: fuzz
fuzz: ## each fuzz target for FUZZTIME
	@.ci/fuzz $(FUZZTIME)

.PHONY: cover
cover: ## how many statements of each pure package its own tests run; 95 % at least
	@go test -cover $(addprefix ./,$(PURE)) | awk '{ print; n = split($$2, name, "/"); figures = figures ", " name[n] " " $$5; sub("%", "", $$5); if ($$1 != "ok" || $$5 + 0 < 95) few = 1 } END { print "figures: " substr(figures, 3); exit few }'

.PHONY: mutation
mutation: $(BIN)/gremlins-$(GREMLINS_VERSION) ## do the tests of the pure packages notice changed operators? (an hour)
	@nice .ci/mutation $< $(PURE)

.PHONY: matrix
matrix: cluster-binaries ## each release of Go, Kubernetes and controller-runtime that is supported, into docs/versions.md; MATRIX=386 runs the rows that match
	@MATRIX="$(MATRIX)" .ci/matrix

.PHONY: flakes
flakes: programs ## test/e2e RUNS times in a row
	@cd test && for i in $$(seq $(RUNS)); do echo "== run $$i"; go test -count=1 -shuffle=on -timeout 30m ./e2e || exit 1; done
	@echo "figures: $(RUNS) runs"

.PHONY: coverage-ids
coverage-ids: programs ## the behaviour ids that sub-tests carry, and those that none does
	@.ci/coverage-ids $(MODULES)

.PHONY: vuln
vuln: ## govulncheck, where its database can be reached
	@for m in $(MODULES); do (cd $$m && go run golang.org/x/vuln/cmd/govulncheck@$(GOVULNCHECK_VERSION) ./...) || exit 1; done

.PHONY: release-check
release-check: ## in an empty module, from a proxy: is the working tree a release that can be taken?
	@cd test/release && $(BUILT_AS) go run . -modules "$(RELEASED)" -programs "$(PROGRAMS)" check

.PHONY: apidiff
apidiff: ## what has changed in the API since the last release, and the lowest version that may follow
	@cd test/release && $(BUILT_AS) go run . -modules "$(RELEASED)" apidiff

.PHONY: release
release: ## VERSION=v0.1.0: commits and tags, see RELEASING.md; nothing is pushed
	@cd test/release && $(BUILT_AS) go run . -modules "$(RELEASED)" -programs "$(PROGRAMS)" "$(VERSION)"

.PHONY: archives
archives: $(BIN)/goreleaser-$(GORELEASER_VERSION) ## the plugin for five platforms and its krew manifest, into .cache/archives; VERSION=v0.1.0
	@GORELEASER_CURRENT_TAG=$(or $(VERSION),v0.0.0) $< release --config cmd/kubectl-scaledown/.goreleaser.yaml --clean $(if $(VERSION),--skip=publish,--snapshot)

.PHONY: clean
clean: ## remove built tools and binaries
	rm -rf .cache

# installed makes the target NAME-VERSION by go install MODULE@VERSION.
installed = @mkdir -p $(BIN)/install && $(BUILT_AS) GOBIN=$(BIN)/install go install $(1) && mv $(BIN)/install/* $@ && rmdir $(BIN)/install

$(BIN)/golangci-lint-$(GOLANGCI_LINT_VERSION):
	$(call installed,github.com/golangci/golangci-lint/v2/cmd/golangci-lint@$(GOLANGCI_LINT_VERSION))

$(BIN)/goreleaser-$(GORELEASER_VERSION):
	$(call installed,github.com/goreleaser/goreleaser/v2@$(GORELEASER_VERSION))

$(BIN)/gremlins-$(GREMLINS_VERSION):
	$(call installed,github.com/go-gremlins/gremlins/cmd/gremlins@$(GREMLINS_VERSION))

$(BIN)/controller-gen-$(CONTROLLER_GEN_VERSION):
	$(call installed,sigs.k8s.io/controller-tools/cmd/controller-gen@$(CONTROLLER_GEN_VERSION))
