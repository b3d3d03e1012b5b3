# Everything a contributor types. `make run` and `make test` install and build what they need.

SHELL := bash
.DEFAULT_GOAL := help
MAKEFLAGS += --no-print-directory
BIN := $(or $(XDG_CACHE_HOME),$(HOME)/.cache)/kubeletkit/bin
LINT := $(BIN)/golangci-lint

# More flags for go test, such as -v or -run; the time each fuzz test gets.
TESTFLAGS ?=
FUZZTIME ?= 20s

# Numbers of pods for bench, and how often each agent has its turn; which disturbances chaos plays, and how many from it on.
PODS ?= 100,500,1000
ROUNDS ?= 2
SEED ?= $(shell date +%s)
SEEDS ?= 1

.PHONY: help build test test-long test-pressure check race vet lint fmt tidy cover bench bench-fakes bench-cluster bench-go bench-node bench-probe bench-pleg bench-guard mutants test-cluster smoke fuzz run clean-run bin/bed bin/bench bin/run bin/nodeagent chaos chaos-cluster

help: ## show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  %-18s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

build: bin/nodeagent ## compile all packages, and the node agent to bin/
	go build ./...

test: bin/bed ## vet, lint, unit tests and tests on a private containerd (as root; else these are skipped)
	bin/bed with $(MAKE) check

check: vet lint
	@$(MAKE) race

race: ## all tests with the race detector
	@status=0; for module in . test; do \
	  (set -x; cd $$module && go test -race -timeout 20m $(TESTFLAGS) ./...) || status=1; done; exit $$status

vet: ## go vet
	go vet ./...
	cd test && go vet ./...

lint: bin/bed ## golangci-lint, built on first use
	@bin/bed tools golangci-lint
	$(LINT) run ./...
	cd test && $(LINT) run --config ../.golangci.yml ./...

fmt: bin/bed ## format all Go files
	@bin/bed tools golangci-lint
	$(LINT) fmt ./...
	cd test && $(LINT) fmt --config ../.golangci.yml ./...

tidy: ## go mod tidy in every module
	@for m in . test test/tools/*; do (set -x; cd $$m && go mod tidy) || exit 1; done

cover: ## unit test coverage by function, as text and in cover.out
	go test -coverprofile=cover.out ./...
	go tool cover -func=cover.out

bench: bench-fakes bench-cluster ## kubelet and nodeagent side by side, as tables and as JSON in bin/ (as root, half an hour)

bench-fakes: bin/bench bin/nodeagent ## both on a container runtime in memory: PODS, ROUNDS
	@bin/bench fakes -pods $(PODS) -rounds $(ROUNDS) -out bin/bench-manifests.json
	@bin/bench fakes -pods $(PODS) -rounds $(ROUNDS) -member -out bin/bench-member.json

bench-cluster: bin/bench bin/cluster bin/nodeagent ## both on containerd in a cluster, which is made unless it is there: ROUNDS
	@bin/bench node -rounds $(ROUNDS) -out bin/bench-node.json

bench-go: ## the benchmarks of all packages
	go test -run '^$$' -bench . -benchmem ./...
	@$(MAKE) bench-node

bench-node: bin/bed ## from a manifest to its started container, beside the bare runtime calls (as root)
	cd test && ../bin/bed with go test -run '^$$' -bench ManifestToStarted -benchtime 1x ./firstlight

# How late a check begins can be measured only where the benchmark runs when it wants to: as root, before whatever else the
# machine does.
FIRST = $(shell chrt -r 1 true 2>/dev/null && echo "-exec 'chrt -r 1'")

bench-probe: ## ten thousand probes on one schedule, beside a goroutine for each (minutes; as root, on time on a busy machine too)
	go test $(FIRST) -timeout 30m -run '^$$' -bench 'HTTP|TCP|Scale' -benchtime 1x ./probe ./probe/manager

bench-pleg: ## events and listings of 500 pods at rest
	go test -run '^$$' -bench . -benchtime 1x ./pleg

bench-guard: bin/bench bin/nodeagent ## what guarding the machine costs: at rest, a pass over 500 pods, rotation; /stats/summary beside the kubelet's (as root, ten minutes)
	go test -run '^$$' -bench Guard -benchtime 1x ./examples/nodeagent
	go test -run '^$$' -bench GuardPass -benchtime 100x ./examples/nodeagent
	go test -run '^$$' -bench 'Pass|Rank|Summary|Choose|Rotate' -benchmem ./eviction ./stats ./imagegc ./runtime/logs
	@bin/bench fakes -pods 500 -steps fill,summary -rounds $(ROUNDS) -out bin/bench-guard.json

mutants: ## twenty deliberate faults, each of which the tests must catch
	cd test && go test -tags mutants -count=1 -timeout 90m -v -run EveryMutant ./mutants

test-long: bin/bed ## what takes longer than a change may wait: agents killed in fifty histories, and in a hundred while pods are resized; each fuzz test for a minute
	go test -race -timeout 60m ./runtime/process ./examples/standalone -run Killed -kill-seeds 50
	go test -timeout 180m ./syncloop -run '^TestHistories$$' -histories 10000
	cd test && ../bin/bed with go test -count=1 -timeout 90m ./cgroups -run Killed -kill-seeds 100
	@$(MAKE) fuzz FUZZTIME=60s

test-pressure: bin/bed ## pods that eat the memory of all, and who is faster, the agent or the kernel; two minutes (as root)
	cd test && ../bin/bed with go test -tags pressure -count=1 -timeout 20m -v -run EatsMemory ./cgroups

chaos: ## disturb agent and containerd while pods come and go: SEED decides when and how, SEEDS says how many plans
	cd test && go test ./chaos -count 1 -timeout 2h -v -run '^TestDisturbances$$' -seed $(SEED) -seeds $(SEEDS)

chaos-cluster: bin/nodeagent ## the same on the cluster that is up, where the API server and the wire to it fail too
	cd test && KUBELETKIT_CLUSTER=$(CURDIR)/.cluster KUBELETKIT_NODEAGENT=$(CURDIR)/bin/nodeagent go test -tags cluster ./chaos -count 1 -timeout 2h -v -run '^TestClusterDisturbances$$' -seed $(SEED) -seeds $(SEEDS)

fuzz: ## each fuzz test for FUZZTIME
	@set -eo pipefail; grep -rlE '^func Fuzz' --include='*_test.go' . | xargs -rn1 dirname | sort -u | while read -r dir; do \
	  (cd $$dir && go test -list '^Fuzz' . | grep '^Fuzz' | while read -r f; do \
	    (set -x; go test -run '^$$' -fuzz "^$$f$$" -fuzztime $(FUZZTIME) . < /dev/null); done); done

run: bin/run bin/nodeagent ## run the demo pods on a private containerd and watch them; Ctrl-C leaves them running
	@bin/run

clean-run: bin/run ## remove all that `make run` made
	@bin/run clean

# A cluster of one node with AGENT on it, in .cluster. FOCUS and SKIP are regular expressions of specs; the rows
# are merged into OUT. A and B are the files to compare; the table also goes into its place in README.md.
AGENT ?= kubelet
FOCUS ?= \[Conformance\]
NODEFOCUS ?= \[NodeConformance\]
SKIP ?= \[Serial\]|\[Disruptive\]
PROCS ?= 6
OUT ?= test/conformance/$(AGENT).tsv
A ?= test/conformance/baseline-kubelet.tsv
B ?= test/conformance/nodeagent.tsv

.PHONY: cluster cluster-down conformance conformance-serial conformance-beyond conformance-others conformance-node conformance-report bin/cluster

cluster: bin/cluster bin/nodeagent ## a Kubernetes of one node with AGENT=kubelet or nodeagent; prints how to reach it
	@bin/cluster up -agent $(AGENT)

cluster-down: bin/cluster ## remove all that `make cluster` made
	@bin/cluster down

conformance: bin/cluster bin/nodeagent ## upstream's specs on a cluster: AGENT, FOCUS, SKIP, PROCS, OUT
	@bin/cluster conformance -agent $(AGENT) -focus '$(FOCUS)' -skip '$(SKIP)' -procs $(PROCS) -out $(OUT)

conformance-serial: ## those of upstream's specs that want the cluster for themselves: AGENT, OUT (half an hour)
	@$(MAKE) conformance FOCUS='\[(Serial|Disruptive)\].*\[Conformance\]|\[Conformance\].*\[(Serial|Disruptive)\]' SKIP='there is no such spec' PROCS=1

# What needs neither a machine of a cloud provider nor a feature that is off by default.
conformance-beyond: ## upstream's [sig-node] specs that are no [Conformance] ones: AGENT, OUT (half an hour)
	@$(MAKE) conformance FOCUS='\[sig-node\]' SKIP='\[Conformance\]|\[Serial\]|\[Disruptive\]|\[Alpha\]|\[Flaky\]|\[Provider|\[Slow\]|DRA|DynamicResourceAllocation|GPU|NodeLogQuery|OffByDefault'

# What the bed can show of the others: it has one node, no cloud, no way from the host to a service's pods, and no kubectl in pods.
conformance-others: ## upstream's specs of other SIGs that are no [Conformance] ones: AGENT, OUT (a quarter of an hour)
	@$(MAKE) conformance FOCUS='\[sig-(network|cli|auth|apps|scheduling|instrumentation)\]' SKIP='\[Conformance\]|\[Serial\]|\[Disruptive\]|\[Alpha\]|\[Flaky\]|\[Provider|\[Slow\]|OffByDefault|Netpol|LoadBalancer|DualStack|gce|aws|azure|Windows|Feature:(NetworkPolicy|StatefulUpgrade|GKE|Ingress|Topology)|SCTP|IPVS|Networking-DNS|LocalhostNodePorts|up and down services|in-cluster config|pod anti-affinity'

conformance-node: bin/cluster bin/nodeagent ## upstream's specs that look at the node itself, from e2e_node.test
	@bin/cluster conformance -suite node -agent $(AGENT) -focus '$(NODEFOCUS)' -skip '$(SKIP)' -procs $(PROCS) -out test/conformance/node-$(AGENT).tsv

# The specs of test/conformance/smoke.txt, one or two for each joint between the agent, the API server and the runtime.
smoke: bin/cluster bin/nodeagent ## a cluster with this agent, a few of upstream's specs on it, all of which must pass (as root)
	@rm -f bin/smoke.tsv
	@bin/cluster conformance -agent nodeagent -focus "$$(paste -sd'|' test/conformance/smoke.txt)" -skip '\[Serial\]|\[Disruptive\]|\[Slow\]|\[Alpha\]' -procs 4 -out bin/smoke.tsv; status=$$?; bin/cluster down; exit $$status
	@test $$(grep -c '^pass' bin/smoke.tsv) -ge 10 && ! grep '^fail' bin/smoke.tsv

test-cluster: bin/cluster bin/nodeagent ## tests of a node in a real cluster, about ten minutes (as root)
	@bin/cluster up -agent nodeagent
	@cd test && KUBELETKIT_CLUSTER=$(CURDIR)/.cluster KUBELETKIT_NODEAGENT=$(CURDIR)/bin/nodeagent \
	  go test -tags cluster -count=1 -p 1 -timeout 25m $(TESTFLAGS) ./cluster ./member; \
	  status=$$?; cd .. && bin/cluster down; exit $$status

conformance-report: bin/cluster ## totals of A, and where B differs from it
	@bin/cluster report -a '$(A)' -b '$(B)' -document README.md

bin/cluster:
	@cd test && go build -o ../$@ ./cmd/cluster

bin/bed bin/bench bin/run bin/hygiene:
	@cd test && go build -o ../$@ ./cmd/$(@F)

bin/nodeagent:
	@go build -o $@ ./examples/nodeagent

# Where `make install` puts things. DESTDIR goes before all of it.
DESTDIR ?=
PREFIX ?= /usr/local
SYSCONFDIR ?= /etc
SHARE = $(DESTDIR)$(PREFIX)/share
ETC = $(DESTDIR)$(SYSCONFDIR)/nodeagent

.PHONY: hygiene notice install bin/hygiene

hygiene: bin/hygiene ## what a stranger checks before importing; CHECK=name for one of them
	@bin/hygiene $(CHECK)

notice: bin/hygiene ## write NOTICE from the modules in our programs
	@bin/hygiene -notice

install: ## put nodeagent, its unit file and a first configuration below DESTDIR; files in etc that are there stay
	install -d $(DESTDIR)$(PREFIX)/bin $(DESTDIR)$(PREFIX)/lib/systemd/system $(SHARE)/doc/nodeagent $(ETC)
	CGO_ENABLED=0 go build -trimpath -buildvcs=false -o $(DESTDIR)$(PREFIX)/bin/nodeagent ./examples/nodeagent
	sed 's|@bindir@|$(PREFIX)/bin|; s|/etc/nodeagent|$(SYSCONFDIR)/nodeagent|' packaging/nodeagent.service > $(DESTDIR)$(PREFIX)/lib/systemd/system/nodeagent.service
	chmod 644 $(DESTDIR)$(PREFIX)/lib/systemd/system/nodeagent.service
	install -m 644 LICENSE NOTICE $(SHARE)/doc/nodeagent
	install -d -m 700 $(ETC)/manifests
	[ -e $(ETC)/config.yaml ] || install -m 644 packaging/config.yaml $(ETC)/config.yaml
	[ -e $(ETC)/nodeagent.env ] || install -m 600 packaging/nodeagent.env $(ETC)/nodeagent.env
	set -e; install -d $(SHARE)/bash-completion/completions $(SHARE)/zsh/site-functions $(SHARE)/fish/vendor_completions.d; \
	  agent=$(DESTDIR)$(PREFIX)/bin/nodeagent; \
	  if [ "$$(go env GOOS GOARCH)" != "$$(go env GOHOSTOS GOHOSTARCH)" ]; then agent=bin/nodeagent; GOOS= GOARCH= go build -o $$agent ./examples/nodeagent; fi; \
	  completion() { $$agent completion $$1 > $$2; chmod 644 $$2; }; \
	  completion bash $(SHARE)/bash-completion/completions/nodeagent; \
	  completion zsh $(SHARE)/zsh/site-functions/_nodeagent; \
	  completion fish $(SHARE)/fish/vendor_completions.d/nodeagent.fish
