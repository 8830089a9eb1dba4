# Everything below works in a clean clone: tools and control-plane binaries are
# built from their Go modules into .cache/bin when first needed.

GOLANGCI_LINT_VERSION := v2.13.2
GOVULNCHECK_VERSION   := v1.9.0
GREMLINS_VERSION      := v0.6.0
GORELEASER_VERSION    := v2.16.0
CYCLONEDX_VERSION     := v1.10.0
CONTROLLER_GEN_VERSION := v0.23.0# as in examples/workerpool/generate
BENCHSTAT_VERSION     := v0.0.0-20260908200009-22c9c6c9d4da
KUBERNETES_VERSION    := v1.37.2# as in test/binaries/kubernetes/go.mod

# Every module of this repository whose code is ours. Tests and linters read those of the workspace at the versions of .cache/go.work,
# which are the highest that one of them needs, so that each dependency is compiled once. make test-versions reads each module's own.
WORKSPACE := . test/release/consumer replicas/clientgo replicas/controllerruntime cmd/kubectl-scaledown cmd/replicakit-controller examples/workerpool test
MODULES   := $(WORKSPACE) test/operating
# Those that users of the library build.
LIBRARY   := . test/release/consumer replicas/clientgo replicas/controllerruntime examples/workerpool

# The modules that others can get, at one version, each behind those that it requires, and the programs that go install builds.
RELEASED := . replicas/clientgo replicas/controllerruntime cmd/kubectl-scaledown cmd/replicakit-controller examples/workerpool
PROGRAMS := examples/quickstart cmd/kubectl-scaledown cmd/replicakit-controller examples/workerpool

# Modules that only say which programs to build.
BINARY_MODULES := test/binaries/kubernetes test/binaries/etcd test/binaries/kwok test/binaries/helm test/binaries/prometheus

# The packages that decide, and make no calls of their own.
PURE := expectations slowstart podrank selector status replicas replicas/ledger

SHELL := /bin/bash -o pipefail

ROOT := $(CURDIR)
BIN  := $(ROOT)/.cache/bin
WORK := $(ROOT)/.cache/go.work
FUZZTIME ?= 60s
RUNS     ?= 10
SEEDS    ?= 1-500
STORIES  ?= 500
SOAK     ?= 10m
BENCH_RUNS ?= 6
BENCH_TIME ?= 100ms
STORY    ?=
PLATFORMS ?= linux/amd64 linux/arm64
IMAGE     ?= $(ROOT)/.cache/replicakit-controller.tar

# Programs and tests without the race detector are compiled with the same flags in the same workspace, so that building the API server
# is building client-go for the tests.
BUILT_AS := CGO_ENABLED=0 GOFLAGS="-trimpath $(BUILD_FLAGS)"
SHARED   := GOWORK=$(WORK) $(BUILT_AS)
OURS     := CGO_ENABLED=0 go build -trimpath

# go vet runs in make lint, in every module: what it computes about client-go and controller-runtime was half of the work of make test.
# The limit is for the tests of one package.
TEST := KUBE_CACHE_MUTATION_DETECTOR=true go test -vet=off -shuffle=on -timeout 30m

# directories makes "./a/... ./b/..." of "a b".
directories = $(patsubst %,./%/...,$(1))

.PHONY: help
help: ## this list
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## /{printf "  make %-24s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

.PHONY: test
test: $(WORK) ## what shows that the library works, without a server: the packages, both adapters and the examples
	@$(SHARED) $(TEST) -short $(call directories,$(LIBRARY))

.PHONY: race
race: ## the root module with the race detector, at the lowest versions that its go.mod names
	@$(TEST) -race ./...

.PHONY: test-others
test-others: $(WORK) ## the products, and what makes releases and runs Kubernetes' tests, as far as they need no server
	@$(SHARED) $(TEST) -short $(call directories,cmd/kubectl-scaledown cmd/replicakit-controller test/bench/report test/release/importing test/kubernetes)

.PHONY: test-all
test-all: ## every test but the searches of the weekly workflow, each part in turn, whatever became of those before it
	@.ci/parts test race test-others test-servers test-products test-versions conformance e2e kubernetes-unit

.PHONY: test-servers
test-servers: $(WORK) $(BIN)/etcd $(BIN)/kube-apiserver $(BIN)/kubectl ## both adapters and the example on a real etcd and kube-apiserver; the bad minutes of docs/why.md
	@$(SHARED) $(TEST) $(call directories,replicas/controllerruntime examples/workerpool test/servers)

.PHONY: test-products
test-products: $(WORK) ## the manager, the plugin and the demo on a real control plane, and what docs/operating.md says, with Helm and Prometheus
	@$(MAKE) --no-print-directory --keep-going programs
	@$(SHARED) $(TEST) $(call directories,cmd/kubectl-scaledown cmd/replicakit-controller test/release/importing test/release/image test/release test/bench/cluster)
	@cd test/operating && $(BUILT_AS) $(TEST) ./...

.PHONY: test-versions
test-versions: ## each module at the lowest versions that its go.mod names, as far as it needs no server
	@for m in $(LIBRARY); do echo "== $$m" && (cd $$m && $(BUILT_AS) $(TEST) -short ./...) || exit 1; done

.PHONY: conformance
conformance: $(WORK) ## the same input to Kubernetes' own code and to ours; RACE=-race, CONFORMANCE_CASES=20 and CONFORMANCE_SEED=7 search on
	@$(if $(RACE),GOWORK=$(WORK),$(SHARED)) go test -vet=off -count=1 $(RACE) -timeout 0 ./test/conformance ./test/bench

.PHONY: e2e
e2e: $(WORK) cluster-binaries our-programs ## both controllers and the plugin beside Kubernetes' own on a real control plane
	@$(SHARED) $(TEST) ./test/e2e

.PHONY: check
check: lint generated release-check apidiff planted-check vuln ## lint, with all that go vet checks; the release; the API; the planted defects; known vulnerabilities

.PHONY: lint
lint: $(BIN)/golangci-lint-$(GOLANGCI_LINT_VERSION) $(WORK) ## golangci-lint, with all that go vet checks, and formatting, every module
	@$(SHARED) $< run $(call directories,$(WORKSPACE))
	@cd test/operating && $(BUILT_AS) $< run ./...

# Written anew only if the modules change, or everything that reads it would look changed.
$(WORK): Makefile
	@mkdir -p $(@D) && rm -f $@ && GOWORK=$@ go work init $(WORKSPACE) test/binaries/etcd test/binaries/kubernetes

.PHONY: fmt
fmt: $(BIN)/golangci-lint-$(GOLANGCI_LINT_VERSION) ## format every module
	@for m in $(MODULES); do (cd $$m && $< fmt --config $(ROOT)/.golangci.yml ./...) || exit 1; done

.PHONY: tidy
tidy: ## go mod tidy in every module
	@for m in $(MODULES) $(BINARY_MODULES); do (cd $$m && go mod tidy) || exit 1; done

.PHONY: programs
programs: cluster-binaries our-programs image-of-tests $(BIN)/kube-scheduler $(BIN)/helm $(BIN)/prometheus ## what the tests of the products start, into .cache/bin: the control plane, Helm, Prometheus, and our own programs

# Go builds them again only if something has changed, but they must not look older than their sources: see controlplane.Ours.
.PHONY: our-programs
our-programs: $(WORK) ## the manager, the demo and the plugin that tests start, into .cache/bin
	@mkdir -p $(BIN)
	@$(SHARED) go build -o $(BIN)/ ./cmd/kubectl-scaledown ./cmd/replicakit-controller ./cmd/replicakit-controller/demo
	@touch $(BIN)/kubectl-scaledown $(BIN)/replicakit-controller $(BIN)/demo

.PHONY: image-of-tests
image-of-tests: ## the image that tests start, into .cache/bin
	@$(MAKE) --no-print-directory image PLATFORMS="$$(go env GOOS)/$$(go env GOARCH)" IMAGE=$(BIN)/replicakit-controller.tar

.PHONY: image
image: $(BIN)/cyclonedx-gomod-$(CYCLONEDX_VERSION) ## the manager and its SBOM in an image for PLATFORMS, without a container runtime, as an OCI archive: .cache/replicakit-controller.tar; VERSION=v0.1.0
	@for p in $(PLATFORMS); do \
		(cd cmd/replicakit-controller && GOOS=$${p%/*} GOARCH=$${p#*/} $(OURS) $(BUILD_FLAGS) -o $(ROOT)/.cache/image/$$p/ .) && \
		$< bin -json -std -noserial -notimestamp $(if $(VERSION),-version $(VERSION)) -output .cache/image/$$p/replicakit-controller.cdx.json \
			.cache/image/$$p/replicakit-controller || exit 1; done
	@cd test && $(BUILT_AS) go run ./release/image -o $(IMAGE) -tag $(or $(VERSION),latest) $(PLATFORMS:%=$(ROOT)/.cache/image/%/replicakit-controller)

.PHONY: cluster-binaries
cluster-binaries: $(addprefix $(BIN)/,etcd kube-apiserver kube-controller-manager kubectl) ## etcd, kube-apiserver, kube-controller-manager and kubectl into .cache/bin

# built runs the command $(2) in the folder $(1). If it fails, it says which program is missing, by which command, and where its log is.
built = @mkdir -p $(BIN) $(ROOT)/.cache/log; echo "building $(@F)"; \
	(cd $(1) && $(2)) 2>&1 | tee $(ROOT)/.cache/log/$(@F).log || { \
	echo '$(@F) is missing, because this failed: cd $(1) && $(2)'; echo 'Its log is .cache/log/$(@F).log.'; exit 1; } >&2

KUBERNETES := test/binaries/kubernetes
VERSIONED  := -ldflags "-s -w -X k8s.io/component-base/version.gitVersion=$(KUBERNETES_VERSION)"

$(addprefix $(BIN)/,kube-apiserver kube-controller-manager kubectl kube-scheduler): $(KUBERNETES)/go.mod | $(WORK)
	$(call built,$(KUBERNETES),$(SHARED) go build $(VERSIONED) -o $@ k8s.io/kubernetes/cmd/$(@F))

$(BIN)/etcd: test/binaries/etcd/go.mod | $(WORK)
	$(call built,test/binaries/etcd,$(SHARED) go build -ldflags "-s -w" -o $@ go.etcd.io/etcd/server/v3)

$(BIN)/kwok: test/binaries/kwok/go.mod
	$(call built,test/binaries/kwok,$(BUILT_AS) go build -o $@ sigs.k8s.io/kwok/cmd/kwok)

$(BIN)/helm: test/binaries/helm/go.mod
	$(call built,test/binaries/helm,$(BUILT_AS) go build -o $@ helm.sh/helm/v3/cmd/helm)

# Without the discovery of clouds: the tests name the targets.
$(BIN)/prometheus: test/binaries/prometheus/go.mod
	$(call built,test/binaries/prometheus,$(BUILT_AS) go build -tags remove_all_sd -o $@ github.com/prometheus/prometheus/cmd/prometheus)

$(BIN)/ginkgo: $(KUBERNETES)/go.mod | $(WORK)
	$(call built,$(KUBERNETES),$(SHARED) go build -ldflags "-s -w" -o $@ github.com/onsi/ginkgo/v2/ginkgo)

$(BIN)/kubernetes-e2e-specs.test: $(KUBERNETES)/go.mod $(wildcard $(KUBERNETES)/specs/*) | $(WORK)
	$(call built,$(KUBERNETES),$(SHARED) go test -c -ldflags "-s -w" -o $@ ./specs)

.PHONY: kubernetes-suites
kubernetes-suites: kubernetes-unit kubernetes-integration kubernetes-e2e ## Kubernetes' own tests against ours; a table, and an error for what is not known

.PHONY: kubernetes-unit
kubernetes-unit: $(WORK) ## its unit tests
	@cd test/kubernetes && $(SHARED) go run . unit

.PHONY: kubernetes-integration
kubernetes-integration: $(WORK) $(BIN)/etcd ## its integration tests, on an API server
	@cd test/kubernetes && $(SHARED) go run . -binaries $(BIN) integration

.PHONY: kubernetes-e2e
kubernetes-e2e: cluster-binaries our-programs $(BIN)/kube-scheduler $(BIN)/kwok $(BIN)/ginkgo $(BIN)/kubernetes-e2e-specs.test ## Kubernetes' end-to-end specs with our controllers, and with its own; ARGS=-sides=ours
	@cd test/kubernetes/e2e && $(SHARED) go build -o $(BIN)/kubernetes-e2e .
	@$(BIN)/kubernetes-e2e $(ARGS)

.PHONY: generate
generate: $(BIN)/controller-gen-$(CONTROLLER_GEN_VERSION) ## the custom resources of examples/workerpool from its types
	@CONTROLLER_GEN=$< examples/workerpool/generate

.PHONY: generated
generated: generate ## does make generate change nothing?
	@git diff --exit-code --stat examples/workerpool/api examples/workerpool/config

.PHONY: demo
demo: ## a real control plane, the controller and a ReplicaSet to play with; ARGS=--once ends by itself
	@cmd/replicakit-controller/demo/progress "etcd and Kubernetes (about 6 minutes)" $(MAKE) --no-print-directory cluster-binaries BUILD_FLAGS=-v
	@cmd/replicakit-controller/demo/progress "the controller and the demo" $(MAKE) --no-print-directory our-programs BUILD_FLAGS=-v
	@$(BIN)/demo $(ARGS)

.PHONY: sim
sim: ## random stories in the simulated cluster: SEEDS=1234, SEEDS=1-500, or a STORY to play again
	go test ./internal/sim/chaos -count=1 -v -run TestSeeds -seeds "$(SEEDS)" -story "$(STORY)"

.PHONY: recipes
recipes: ## STORIES with faults for each example of a Kind
	go test ./replicas/controller -count=1 -v -run InStories -stories $(STORIES)

.PHONY: soak
soak: ## fresh random stories for SOAK; seeds that fail are kept, and those that harm a living child fail the run
	go test ./internal/sim/chaos -count=1 -v -timeout 0 -run TestSoak -soak $(SOAK)

.PHONY: planted
planted: $(BIN)/etcd $(BIN)/kube-apiserver ## defects that are planted one at a time: which nets notice each, into test/planted/README.md; DEFECT=name plants one
	@test/planted/run $(DEFECT)

.PHONY: planted-check
planted-check: $(WORK) ## does each planted defect still apply and compile?
	@GOWORK=$(WORK) $(BUILT_AS) test/planted/run -check

.PHONY: corners
corners: ## every single fault in each scenario
	go test ./internal/sim/corners -count=1 -v -every 1

.PHONY: explore
explore: ## every interleaving of small fleets, in full
	go test ./replicas/replicastest -count=1 -v -timeout 0 -full -parallel 1
	go test ./replicas -run TestLoop -count=1 -v -timeout 0 -full
	go test ./replicas/ledger -run TestModel -count=1 -v -timeout 0 -full -parallel 1

.PHONY: bench
bench: $(WORK) ## ours and Kubernetes side by side, into docs/benchmarks.md
	@mkdir -p $(BIN)
	cd test/bench && $(SHARED) go test -c -o $(BIN)/bench.test . && commit=$$(git describe --always --dirty --abbrev=8 --exclude='*') && printf 'kubernetes: %s\ncommit: %s\n' $(KUBERNETES_VERSION) $$commit > bench.txt
	@for run in $$(seq $(BENCH_RUNS)); do echo "== run $$run of $(BENCH_RUNS)"; \
		(cd test/bench && $(BIN)/bench.test -test.run '^$$' -test.bench . -test.benchtime $(BENCH_TIME) >> bench.txt) || exit 1; done
	@cd test/bench && go run golang.org/x/perf/cmd/benchstat@$(BENCHSTAT_VERSION) -col /side -format csv bench.txt > bench.csv 2>/dev/null
	@cd test/bench && go run ./report ../.. < bench.csv
	@cat docs/benchmarks.md
	@echo "figures: $(BENCH_RUNS) runs into docs/benchmarks.md"

.PHONY: bench-cluster
bench-cluster: $(WORK) cluster-binaries our-programs ## the manager against kube-controller-manager on a real API server; ARGS=-quick in three minutes
	@cd test/bench && $(SHARED) go build -o $(BIN)/bench-cluster ./cluster
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
flakes: $(WORK) cluster-binaries our-programs ## test/e2e RUNS times in a row
	@for i in $$(seq $(RUNS)); do echo "== run $$i"; $(SHARED) $(TEST) ./test/e2e || exit 1; done
	@echo "figures: $(RUNS) runs"

.PHONY: coverage-ids
coverage-ids: programs ## the behaviour ids that sub-tests carry, and those that none does
	@$(SHARED) .ci/coverage-ids $(WORKSPACE)

.PHONY: vuln
vuln: $(BIN)/govulncheck-$(GOVULNCHECK_VERSION) ## govulncheck on every module that is released; says so where its database cannot be reached
	@for m in $(RELEASED); do echo "== $$m"; out=$$(cd $$m && $< ./... 2>&1) && continue; echo "$$out"; \
		grep -q 'fetching vulnerabilities' <<<"$$out" || exit 1; echo 'Nothing was scanned: the database cannot be reached.'; break; done

.PHONY: release-check
release-check: ## in an empty module: is the working tree a release that can be taken?
	@$(BUILT_AS) RELEASED="$(RELEASED)" PROGRAMS="$(PROGRAMS)" test/release/release check

.PHONY: apidiff
apidiff: ## what has changed in the API since the last release, and the lowest version that may follow
	@$(BUILT_AS) RELEASED="$(RELEASED)" test/release/release apidiff

.PHONY: release
release: ## VERSION=v0.1.0: commits and tags, see RELEASING.md; nothing is pushed
	@$(BUILT_AS) RELEASED="$(RELEASED)" PROGRAMS="$(PROGRAMS)" test/release/release "$(VERSION)"

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

$(BIN)/govulncheck-$(GOVULNCHECK_VERSION):
	$(call installed,golang.org/x/vuln/cmd/govulncheck@$(GOVULNCHECK_VERSION))

$(BIN)/goreleaser-$(GORELEASER_VERSION):
	$(call installed,github.com/goreleaser/goreleaser/v2@$(GORELEASER_VERSION))

$(BIN)/cyclonedx-gomod-$(CYCLONEDX_VERSION):
	$(call installed,github.com/CycloneDX/cyclonedx-gomod/cmd/cyclonedx-gomod@$(CYCLONEDX_VERSION))

$(BIN)/gremlins-$(GREMLINS_VERSION):
	$(call installed,github.com/go-gremlins/gremlins/cmd/gremlins@$(GREMLINS_VERSION))

$(BIN)/controller-gen-$(CONTROLLER_GEN_VERSION):
	$(call installed,sigs.k8s.io/controller-tools/cmd/controller-gen@$(CONTROLLER_GEN_VERSION))
