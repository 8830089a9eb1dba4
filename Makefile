# Everything below works in a clean clone: tools and control-plane binaries are
# built from their Go modules into .cache/bin when first needed.

GOLANGCI_LINT_VERSION := v2.13.2
GOVULNCHECK_VERSION   := v1.1.4

# Every module of this repository whose code is ours; test, lint and tidy visit them all.
MODULES := .

# Modules that only pin programs to build.
BINARY_MODULES :=

ROOT := $(CURDIR)
BIN  := $(ROOT)/.cache/bin
FUZZTIME ?= 20s

export GOFLAGS := -mod=readonly

.PHONY: help
help: ## this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## /{printf "  make %-18s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

.PHONY: test
test: lint test-race ## everything: every module, vet, lint, race detector

.PHONY: test-race
test-race: ## the tests of every module under the race detector
	@for m in $(MODULES); do echo "== test $$m"; (cd $$m && go test -race -shuffle=on ./...) || exit 1; done

.PHONY: lint
lint: $(BIN)/golangci-lint-$(GOLANGCI_LINT_VERSION) ## go vet, golangci-lint and formatting, every module
	@for m in $(MODULES); do echo "== lint $$m"; \
		(cd $$m && go vet ./... && $< run --config $(ROOT)/.golangci.yml ./...) || exit 1; done

.PHONY: fmt
fmt: $(BIN)/golangci-lint-$(GOLANGCI_LINT_VERSION) ## format every module
	@for m in $(MODULES); do (cd $$m && $< fmt --config $(ROOT)/.golangci.yml ./...) || exit 1; done

.PHONY: tidy
tidy: ## go mod tidy in every module
	@for m in $(MODULES) $(BINARY_MODULES); do (cd $$m && GOFLAGS=-mod=mod go mod tidy) || exit 1; done

.PHONY: bench
bench: ## the benchmarks of the root module
	go test -run '^$$' -bench . -benchtime 0.3s ./...

.PHONY: fuzz
fuzz: ## each fuzz target for FUZZTIME
	@go list ./... | while read -r p; do \
		go test -list '^Fuzz' "$$p" | grep '^Fuzz' | while read -r f; do \
			go test -run '^$$' -fuzz "^$$f\$$" -fuzztime $(FUZZTIME) "$$p" || exit 1; \
		done || exit 1; done

.PHONY: coverage-ids
coverage-ids: ## the behaviour ids that sub-tests carry, and those that none does
	@.ci/coverage-ids $(MODULES)

.PHONY: vuln
vuln: ## govulncheck, where its database can be reached
	@for m in $(MODULES); do (cd $$m && GOFLAGS=-mod=mod go run golang.org/x/vuln/cmd/govulncheck@$(GOVULNCHECK_VERSION) ./...) || exit 1; done

.PHONY: clean
clean: ## remove built tools and binaries
	rm -rf .cache

$(BIN)/golangci-lint-$(GOLANGCI_LINT_VERSION):
	@mkdir -p $(BIN)/install
	GOFLAGS= CGO_ENABLED=0 GOBIN=$(BIN)/install go install github.com/golangci/golangci-lint/v2/cmd/golangci-lint@$(GOLANGCI_LINT_VERSION)
	@mv $(BIN)/install/golangci-lint $@ && rmdir $(BIN)/install
