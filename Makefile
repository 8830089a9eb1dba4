# Everything below works in a clean clone: tools and control-plane binaries are
# built from their Go modules into .cache/bin when first needed.

GOLANGCI_LINT_VERSION := v2.13.2
GOVULNCHECK_VERSION   := v1.1.4
GREMLINS_VERSION      := v0.6.0
KUBERNETES_VERSION    := v1.36.3# as in test/e2e/binaries/kubernetes/go.mod

# Every module of this repository whose code is ours; test, lint and tidy visit them all.
MODULES := . replicas/clientgo replicas/controllerruntime internal/controlplane internal/release test/consumer test/e2e test/operating test/conformance test/stories test/bench examples/controller examples/workerpool test/kubernetes test/kubernetes/e2e

# The modules that others can get, at one version, and the programs that go install builds.
RELEASED := . replicas/clientgo replicas/controllerruntime internal/controlplane examples/controller examples/workerpool
PROGRAMS := examples/quickstart examples/kubectl-scaledown examples/controller examples/workerpool

# Modules that only say which programs to build.
BINARY_MODULES := test/e2e/binaries/kubernetes test/e2e/binaries/etcd test/e2e/binaries/kwok test/kubernetes/e2e/specs test/bench/tools examples/workerpool/tools

# The packages that decide, and make no calls of their own.
PURE := expectations slowstart podrank selector status replicas

ROOT := $(CURDIR)
BIN  := $(ROOT)/.cache/bin
LINT_WORK := $(ROOT)/.cache/lint.work
FUZZTIME ?= 60s
RUNS     ?= 10
BUILD_TIMEOUT ?= 1h
SEEDS    ?= 1-500
SOAK     ?= 10m
BENCH_RUNS ?= 6
BENCH_TIME ?= 60ms
STORY    ?=

# The same flags everywhere, so that each package is compiled once: for the linters, the binaries and the release. The tests are
# compiled a second time, for the race detector.
export GOFLAGS := -mod=readonly -trimpath

.PHONY: help
help: ## this list
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## /{printf "  make %-24s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

.PHONY: test
test: lint cluster-binaries test-race release-check ## everything: every module, vet, lint, race detector, the release

# Four at once even on two cores: the tests on servers wait most of the time.
.PHONY: test-race
test-race: ## the tests of every module under the race detector, and under one of changes to cached objects
	@for m in $(MODULES); do echo "== test $$m"; (cd $$m && KUBE_CACHE_MUTATION_DETECTOR=true go test -race -vet=off -shuffle=on -parallel 4 -timeout 20m ./...) || exit 1; done

# In one workspace, so that the linters read what the modules depend on once. The tests do not: each module's go.mod says with what.
.PHONY: lint
lint: $(BIN)/golangci-lint-$(GOLANGCI_LINT_VERSION) ## golangci-lint, with all that go vet checks, and formatting, every module
	@rm -f $(LINT_WORK) && GOWORK=$(LINT_WORK) go work init $(MODULES)
	@GOWORK=$(LINT_WORK) $< run $(patsubst %,./%/...,$(MODULES))

.PHONY: fmt
fmt: $(BIN)/golangci-lint-$(GOLANGCI_LINT_VERSION) ## format every module
	@for m in $(MODULES); do (cd $$m && $< fmt --config $(ROOT)/.golangci.yml ./...) || exit 1; done

.PHONY: tidy
tidy: ## go mod tidy in every module
	@for m in $(MODULES) $(BINARY_MODULES); do (cd $$m && GOFLAGS=-mod=mod go mod tidy) || exit 1; done

.PHONY: cluster-binaries
cluster-binaries: $(BIN)/kubernetes-built $(BIN)/etcd-built ## etcd, kube-apiserver, kube-controller-manager and kubectl into .cache/bin

K8S_BINARIES := kube-apiserver kube-controller-manager kubectl

$(BIN)/kubernetes-built: test/e2e/binaries/kubernetes/go.mod
	@mkdir -p $(BIN)
	cd test/e2e/binaries/kubernetes && go build -ldflags '-s -w -X k8s.io/component-base/version.gitVersion=$(KUBERNETES_VERSION)' -o $(BIN)/ $(addprefix k8s.io/kubernetes/cmd/,$(K8S_BINARIES))
	@touch $@

$(BIN)/etcd-built: test/e2e/binaries/etcd/go.mod
	@mkdir -p $(BIN)
	cd test/e2e/binaries/etcd && go build -ldflags '-s -w' -o $(BIN)/etcd go.etcd.io/etcd/server/v3
	@touch $@

# in-time runs a command that makes the target, but not for ever.
in-time = @mkdir -p $(BIN); timeout $(BUILD_TIMEOUT) sh -ec '$(1)' || \
	{ echo "$(notdir $@) was not built, or not within BUILD_TIMEOUT=$(BUILD_TIMEOUT)" >&2; exit 1; }

$(BIN)/kube-scheduler: test/e2e/binaries/kubernetes/go.mod
	$(call in-time,cd test/e2e/binaries/kubernetes; go build -ldflags "-s -w -X k8s.io/component-base/version.gitVersion=$(KUBERNETES_VERSION)" -o $@ k8s.io/kubernetes/cmd/kube-scheduler)

$(BIN)/kwok: test/e2e/binaries/kwok/go.mod
	$(call in-time,cd test/e2e/binaries/kwok; go build -ldflags "-s -w" -o $@ sigs.k8s.io/kwok/cmd/kwok)

$(BIN)/ginkgo: test/kubernetes/e2e/specs/go.mod
	$(call in-time,cd test/kubernetes/e2e/specs; go build -ldflags "-s -w" -o $@ github.com/onsi/ginkgo/v2/ginkgo)

$(BIN)/kubernetes-e2e-specs.test: $(wildcard test/kubernetes/e2e/specs/*)
	$(call in-time,cd test/kubernetes/e2e/specs; go test -c -ldflags "-s -w" -o $@ .)

.PHONY: kubernetes-suites
kubernetes-suites: kubernetes-unit kubernetes-integration kubernetes-e2e ## Kubernetes' own tests against ours; a table, and an error for what is not known

.PHONY: kubernetes-unit
kubernetes-unit: ## its unit tests
	@cd test/kubernetes && go run . -build $(BUILD_TIMEOUT) unit

.PHONY: kubernetes-integration
kubernetes-integration: $(BIN)/etcd-built ## its integration tests, on an API server
	@cd test/kubernetes && go run . -binaries $(BIN) -build $(BUILD_TIMEOUT) integration

.PHONY: kubernetes-e2e
kubernetes-e2e: cluster-binaries $(BIN)/kube-scheduler $(BIN)/kwok $(BIN)/ginkgo $(BIN)/kubernetes-e2e-specs.test ## Kubernetes' end-to-end specs with our controllers, and with its own; ARGS=-sides=ours
	@cd examples/controller && go build -o $(BIN)/controller .
	@cd test/kubernetes/e2e && go build -o $(BIN)/kubernetes-e2e .
	@$(BIN)/kubernetes-e2e $(ARGS)

.PHONY: generate
generate: ## the custom resources of examples/workerpool from its types
	@examples/workerpool/generate

.PHONY: demo
demo: ## a real control plane, the controller and a ReplicaSet to play with; ARGS=--once ends by itself
	@examples/controller/demo/progress "etcd and Kubernetes (about 6 minutes)" $(MAKE) --no-print-directory cluster-binaries GOFLAGS="$(GOFLAGS) -v"
	@cd examples/controller && demo/progress "the controller and the demo" go build -v -o $(BIN)/ . ./demo
	@$(BIN)/demo $(ARGS)

.PHONY: sim
sim: ## random stories in the simulated cluster: SEEDS=1234, SEEDS=1-500, or a STORY to play again
	go test ./replicas/replicastest/internal/chaos -count=1 -v -run TestSeeds -seeds "$(SEEDS)" -story "$(STORY)"

.PHONY: soak
soak: ## fresh random stories for SOAK, and their seeds
	go test ./replicas/replicastest/internal/chaos -count=1 -v -timeout 0 -run TestSoak -soak $(SOAK)

.PHONY: corners
corners: ## every single fault in each scenario
	go test ./replicas/replicastest/internal/corners -count=1 -v -every 1

.PHONY: explore
explore: ## every interleaving of small fleets, in full
	go test ./replicas/replicastest -run TestExplore -count=1 -v -timeout 0 -full -parallel 1

.PHONY: bench
bench: ## ours and Kubernetes side by side, into docs/benchmarks.md, docs/benchmarks.svg and the README
	@mkdir -p $(BIN)
	cd test/bench && go test -c -o $(BIN)/bench.test . && rm -f bench.txt
	@for run in $$(seq $(BENCH_RUNS)); do echo "== run $$run of $(BENCH_RUNS)"; \
		(cd test/bench && $(BIN)/bench.test -test.run '^$$' -test.bench . -test.benchtime $(BENCH_TIME) >> bench.txt) || exit 1; done
	@cd test/bench/tools && go tool benchstat -col /side -format csv ../bench.txt > ../bench.csv 2>/dev/null
	@cd test/bench && go run ./report ../.. < bench.csv
	@cat docs/benchmarks.md

.PHONY: bench-cluster
bench-cluster: cluster-binaries ## the manager against kube-controller-manager on a real API server; ARGS=-quick in two minutes
	@cd examples/controller && go build -o $(BIN)/controller .
	@cd test/bench && go build -o $(BIN)/bench-cluster ./cluster
	@$(BIN)/bench-cluster $(or $(ARGS),-o test/bench/cluster.md)

# Without a limit the minute goes by in making one new input smaller.
.PHONY: fuzz
fuzz: ## each fuzz target for FUZZTIME
	@go list ./... | while read -r p; do \
		go test -list '^Fuzz' "$$p" | grep '^Fuzz' | while read -r f; do \
			go test -run '^$$' -fuzz "^$$f\$$" -fuzztime $(FUZZTIME) -fuzzminimizetime 1s "$$p" || exit 1; \
		done || exit 1; done

.PHONY: cover
cover: ## how many statements of each pure package its own tests run; 95 % at least
	@go test -cover $(addprefix ./,$(PURE)) | awk '{ print; sub("%", "", $$5); if ($$1 != "ok" || $$5 + 0 < 95) few = 1 } END { exit few }'

.PHONY: mutation
mutation: $(BIN)/gremlins-$(GREMLINS_VERSION) ## do the tests of the pure packages notice changed operators? (an hour)
	@nice .ci/mutation $< $(PURE)

.PHONY: matrix
matrix: cluster-binaries ## each release of Go, Kubernetes and controller-runtime that is supported, into docs/versions.md; MATRIX=386 runs the rows that match
	@MATRIX="$(MATRIX)" .ci/matrix

.PHONY: flakes
flakes: cluster-binaries ## test/e2e RUNS times in a row
	@for i in $$(seq $(RUNS)); do echo "== run $$i"; (cd test/e2e && go test -count=1 -shuffle=on ./...) || exit 1; done

.PHONY: coverage-ids
coverage-ids: ## the behaviour ids that sub-tests carry, and those that none does
	@.ci/coverage-ids $(MODULES)

.PHONY: vuln
vuln: ## govulncheck, where its database can be reached
	@for m in $(MODULES); do (cd $$m && GOFLAGS=-mod=mod go run golang.org/x/vuln/cmd/govulncheck@$(GOVULNCHECK_VERSION) ./...) || exit 1; done

.PHONY: release-check
release-check: ## in an empty module, from a proxy: is the working tree a release that can be taken?
	@cd internal/release && go run . -modules "$(RELEASED)" -programs "$(PROGRAMS)" check

.PHONY: apidiff
apidiff: ## what has changed in the API since the last release, and the lowest version that may follow
	@cd internal/release && go run . -modules "$(RELEASED)" apidiff

.PHONY: release
release: ## VERSION=v0.1.0: commits and tags, see RELEASING.md; nothing is pushed
	@cd internal/release && go run . -modules "$(RELEASED)" -programs "$(PROGRAMS)" "$(VERSION)"

.PHONY: clean
clean: ## remove built tools and binaries
	rm -rf .cache

$(BIN)/golangci-lint-$(GOLANGCI_LINT_VERSION):
	@mkdir -p $(BIN)/install
	GOFLAGS=-trimpath GOBIN=$(BIN)/install go install github.com/golangci/golangci-lint/v2/cmd/golangci-lint@$(GOLANGCI_LINT_VERSION)
	@mv $(BIN)/install/golangci-lint $@ && rmdir $(BIN)/install

$(BIN)/gremlins-$(GREMLINS_VERSION):
	@mkdir -p $(BIN)/install
	GOFLAGS=-trimpath GOBIN=$(BIN)/install go install github.com/go-gremlins/gremlins/cmd/gremlins@$(GREMLINS_VERSION)
	@mv $(BIN)/install/gremlins $@ && rmdir $(BIN)/install
