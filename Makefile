# What a developer and CI run. "make test" is the whole check and installs what
# it needs; "make help" lists the rest.

SHELL       := bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help

STATICCHECK := v0.8.2
GOVULNCHECK := v1.9.0
TOOLS       := bin/tools
NPM         := internal/peers/testdata/npm
FUZZTIME    ?= 20s
ORACLE_TIME ?= 1m
MUTANT      ?= .
PLATFORMS   := linux/amd64 linux/arm64 darwin/amd64 darwin/arm64 windows/amd64

# Everything that make test compiles, it compiles once: with the race detector.
RACE := GOFLAGS="$(strip $(GOFLAGS) -race)"

.PHONY: help
help: ## list the targets
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/\1\t\2/p' $(MAKEFILE_LIST) | expand -t 14

.PHONY: build
build: ## build bin/segno
	CGO_ENABLED=0 go build -trimpath -o bin/segno ./cmd/segno

.PHONY: test
test: needs lint unit peers vuln ## everything that must pass: lint, tests, real peers, conformance

.PHONY: quick
quick: ## the tests without real peers and without the race detector
	go test ./...

.PHONY: lint
lint: $(TOOLS)/staticcheck-$(STATICCHECK) ## gofmt, go vet, staticcheck
	@unformatted=$$(find . -name '*.go' -not -path '*/node_modules/*' -print0 | xargs -0 gofmt -l); \
	if [ -n "$$unformatted" ]; then echo "gofmt -w these files:"; echo "$$unformatted"; exit 1; fi
	$(RACE) go vet ./...
	$(RACE) $(TOOLS)/staticcheck-$(STATICCHECK) ./...

.PHONY: unit
unit: ## go test with the race detector
	go test -race ./...

.PHONY: peers
peers: needs ## Segno with real clients, servers, nginx and the conformance suite
	PEERS=required PEERS_RACE=1 go test -race -count=1 -parallel 64 -timeout 8m ./internal/peers

.PHONY: conformance
conformance: needs ## the official conformance suite alone, with its table
	PEERS=required go test -count=1 -v -run 'TestConformance' ./internal/peers

.PHONY: mutants
mutants: needs ## break the code on purpose and see the tests fail (MUTANT=regexp)
	go run ./internal/mutants -run '$(MUTANT)'

.PHONY: fuzz
fuzz: ## every fuzz target for FUZZTIME each
	@for pkg in $$(git grep -l '^func Fuzz' -- '*_test.go' | xargs -r -n1 dirname | sort -u); do \
	  for f in $$(sed -n 's/^func \(Fuzz[A-Za-z0-9_]*\)(.*/\1/p' $$pkg/*_test.go); do \
	    echo "$$pkg $$f"; go test -run '^$$' -fuzz "^$$f\$$" -fuzztime $(FUZZTIME) ./$$pkg; \
	  done; \
	done

.PHONY: oracle
oracle: ## random runs of the whole product against a model, for ORACLE_TIME
	go test -race -count=1 -timeout 0 ./internal/oracle -for $(ORACLE_TIME) -kills 10

.PHONY: bench
bench: ## every benchmark
	go test -run '^$$' -bench . -benchmem ./...

.PHONY: cross
cross: ## build for every platform, and vet the code that only they see
	@for p in $(PLATFORMS); do \
	  echo $$p; os=$${p%/*} arch=$${p#*/} ext=; [ $$os = windows ] && ext=.exe; \
	  CGO_ENABLED=0 GOOS=$$os GOARCH=$$arch go build -trimpath -ldflags '-s -w' -o bin/segno-$$os-$$arch$$ext ./cmd/segno; \
	  CGO_ENABLED=0 GOOS=$$os GOARCH=$$arch go vet ./...; \
	done

.PHONY: vuln
vuln: $(TOOLS)/govulncheck-$(GOVULNCHECK) ## known vulnerabilities in what the code calls
	@out=$$(timeout 120 $(TOOLS)/govulncheck-$(GOVULNCHECK) ./... 2>&1) && code=0 || code=$$?; \
	case $$code in \
	  0) echo "govulncheck: nothing found";; \
	  3) echo "$$out"; exit 1;; \
	  *) echo "govulncheck: not checked: $$(echo "$$out" | grep -v '^$$' | head -1)";; \
	esac

# What the tests with real peers need.

.PHONY: needs
needs: $(NPM)/node_modules/.package-lock.json
	@command -v nginx >/dev/null || [ -x /usr/sbin/nginx ] || $(MAKE) --no-print-directory nginx

.PHONY: nginx
nginx:
	@command -v apt-get >/dev/null || { echo "nginx is missing: install it"; exit 1; }
	@sudo=; [ "$$(id -u)" = 0 ] || sudo=sudo; \
	$$sudo apt-get update -qq; \
	DEBIAN_FRONTEND=noninteractive $$sudo apt-get install -y -qq --no-install-recommends nginx-light >/dev/null

$(NPM)/node_modules/.package-lock.json: $(NPM)/package-lock.json
	@command -v npm >/dev/null || { echo "npm is missing: install Node.js 20 or later"; exit 1; }
	cd $(NPM) && npm ci --ignore-scripts --no-audit --no-fund --loglevel error
	@touch $@

# Tools are built at a fixed version, apart from the module's own dependencies.

$(TOOLS)/staticcheck-$(STATICCHECK):
	GOBIN=$(CURDIR)/$(TOOLS) GOFLAGS= go install honnef.co/go/tools/cmd/staticcheck@$(STATICCHECK)
	@mv $(TOOLS)/staticcheck $@

$(TOOLS)/govulncheck-$(GOVULNCHECK):
	GOBIN=$(CURDIR)/$(TOOLS) GOFLAGS= go install golang.org/x/vuln/cmd/govulncheck@$(GOVULNCHECK)
	@mv $(TOOLS)/govulncheck $@
