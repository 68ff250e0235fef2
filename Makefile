SHELL := /bin/bash
.DEFAULT_GOAL := help

LINTER := .cache/bin/golangci-lint

.PHONY: help deps tools build image-inputs reproducible test lint bench eval soak chaos fuzz schemas clean

help: ## this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "make %-12s %s\n", $$1, $$2 }' Makefile

deps: ## look for what building and testing need; as root on Debian, install it
	@.ci/deps

tools: deps ## fetch the pinned linter and CLIs into .cache
	@.ci/tools

build: ## the binary, static
	CGO_ENABLED=0 go build -trimpath -o slipway ./cmd/slipway

image-inputs: ## fetch and build what the Dockerfile copies, each piece checked
	@.ci/image

reproducible: ## build HEAD twice, apart, and compare bit for bit; takes minutes
	@.ci/image same

test: tools lint ## everything that has to pass; what the pipeline runs
	@.ci/test

lint: ## the linter, go vet among what it runs, as .golangci.yml says
	go vet -tags crashpoint ./pipeline/step
	@if [ -x $(LINTER) ]; then echo "$(LINTER) run"; $(LINTER) run; \
	elif [ "$$CI" = true ]; then echo "lint: $(LINTER) is missing" >&2; exit 1; \
	else echo "lint: not run: $(LINTER) is missing: make tools"; fi

bench: ## how fast it is, each number beside its bound
	@set -o pipefail; go test -timeout 1h -run '^$$' -bench . ./... | awk -f .ci/bounds.awk

eval: ## every planted fault with recorded answers, graded as expected; make test runs each fifth
	go test -count 1 -timeout 10m -v -run TestPlantedFaults ./cmd/slipway -eval-all

soak: ## properties and crashes for long, all of GitHub as Enterprise Server, Redis as a Cluster: make soak CHECKS=20000
	go test -race -count 1 -timeout 2h \
		$$(go list -f '{{.ImportPath}} {{.TestImports}} {{.XTestImports}}' ./... | awk '/rapid|queuetest/ { print $$1 }') \
		-rapid.checks $(or $(CHECKS),2000)
	SLIPWAY_SOAK=1 go test -race -count 1 -timeout 10m -run 'TestRedisCluster|TestAStepOutlasts' ./queue
	go test -count 1 -timeout 2h -run TestDecisionsKeepTheInvariants ./pipeline -rapid.checks $(or $(CHECKS),2000)0
	SLIPWAY_TEST_GITHUB=enterprise go test -race -count 1 -timeout 2h ./cmd/slipway
	SLIPWAY_SOAK=1 go test -race -count 1 -timeout 2h ./cmd/slipway/... ./pipeline/runtime

chaos: ## kill, stop and cut off workers and Redis, and fill their disks, for long: make chaos TIME=5m SEED=7
	go test -race -count 1 -timeout 1h -v -run TestChaos ./queue -chaos $(or $(TIME),60s) -chaos-seed $(or $(SEED),0)
	go test -race -count 1 -timeout 1h -v -run TestChaos ./cmd/slipway/durability -chaos-builds $(or $(BUILDS),30) -chaos-seed $(or $(SEED),0)

fuzz: ## every fuzz target for a while: make fuzz TIME=5m
	@.ci/fuzz $(or $(TIME),10s)

schemas: ## trim GitHub's descriptions anew, for the stand-in's judge
	npm install --silent --no-save --prefix .cache/schemas @octokit/openapi@23.0.2 @octokit/openapi-webhooks@12.1.0 @octokit/webhooks-examples@7.6.1
	go run ./app/githubsim/schema/trim -from .cache/schemas/node_modules -to app/githubsim/schema

clean: ## remove what was built and fetched
	rm -rf slipway image .cache
