# Thin targets; each says what it does in one line. `make test` and `make demo` install what they need.
GO       ?= go
PREFIX   ?= /usr/local
SBIN     ?= /sbin
UNITS    ?= $(PREFIX)/lib/systemd/system
VERSION  ?= $(shell git describe --always --dirty 2>/dev/null || echo unknown)
TAGS     := $(if $(SABOTAGE),sabotage_$(SABOTAGE))
GOFLAGS_ := -trimpath $(if $(TAGS),-tags $(TAGS)) -ldflags "-X github.com/pmemfs/pmemfs/internal/version.Version=$(VERSION)"
PACKAGES := gcc systemd libc6-dev fuse3 mount sqlite3 tar util-linux coreutils diffutils findutils acl attr e2fsprogs \
            git lmdb-utils postgresql-15 qemu-utils rsync \
            libibverbs-dev librdmacm-dev ibverbs-providers
RDMA_PACKAGES := binutils kmod xz-utils zstd util-linux libibverbs-dev librdmacm-dev

.PHONY: all build install uninstall test test-race test-arm64 test-rdma crash mutants fsx demo bench bench-scale bench-rdma lint deps deps-rdma fuzz

all: build

build: ## binaries into bin/; CGO_ENABLED=0 leaves out the provider ibverbs, and the libraries that it needs
	$(GO) build $(GOFLAGS_) -o bin/ ./cmd/pmemfs ./cmd/pmemfs-target

install: build ## binaries, mount helper, umount helper, systemd unit of the target
	install -D -m 755 bin/pmemfs $(DESTDIR)$(PREFIX)/bin/pmemfs
	install -D -m 755 bin/pmemfs-target $(DESTDIR)$(PREFIX)/bin/pmemfs-target
	install -d $(DESTDIR)$(SBIN)
	ln -sf $(PREFIX)/bin/pmemfs $(DESTDIR)$(SBIN)/mount.fuse.pmemfs
	ln -sf $(PREFIX)/bin/pmemfs $(DESTDIR)$(SBIN)/umount.fuse.pmemfs
	install -d $(DESTDIR)$(UNITS)
	sed 's#/usr/local/bin#$(PREFIX)/bin#' packaging/pmemfs-target.service > $(DESTDIR)$(UNITS)/pmemfs-target.service

uninstall:
	rm -f $(DESTDIR)$(PREFIX)/bin/pmemfs $(DESTDIR)$(PREFIX)/bin/pmemfs-target
	rm -f $(DESTDIR)$(SBIN)/mount.fuse.pmemfs $(DESTDIR)$(SBIN)/umount.fuse.pmemfs $(DESTDIR)$(UNITS)/pmemfs-target.service

# install_missing installs those of the Debian packages $(1) that are not there.
define install_missing
	@for p in $(1); do dpkg -s $$p >/dev/null 2>&1 || missing="$$missing $$p"; done; \
	if [ -n "$$missing" ]; then \
		apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends $$missing; \
	fi
endef

deps: ## Debian packages and Go modules
	$(call install_missing,$(PACKAGES))
	$(GO) mod download

deps-rdma: ## what test-rdma needs beyond that
	$(call install_missing,$(RDMA_PACKAGES))

test: deps ## all tests, real mounts and real daemons included
	$(GO) test ./...

test-race: deps ## the same under the race detector
	$(GO) test -race ./...

test-rdma: deps ## jobs with RDMA devices and NVDIMMs in virtual machines; RUN selects some, ARGS are further flags (-list, -keep, -v)
	@$(MAKE) --no-print-directory deps-rdma || echo "not all packages could be installed"
	$(GO) run ./integration/rig/cmd $(if $(RUN),-run '$(RUN)') $(ARGS)

bench-rdma: ## the provider ibverbs beside perftest, and sendfile beside ib_write_bw, in a virtual machine
	$(MAKE) test-rdma RUN=perftest ARGS=-v

test-arm64: deps ## the tree builds for arm64, and its persistence primitives work in emulated processors with and without DC CVAP
	GOARCH=arm64 CGO_ENABLED=0 $(GO) vet ./...
	GOARCH=arm64 CGO_ENABLED=0 $(GO) test -c -o bin/pmem-arm64.test ./internal/pmem
	$(GO) run ./integration/rig/cmd -arm64 bin/pmem-arm64.test

crash: ## crash images until DURATION (20m) has passed; SEED and CURSOR say where to begin
	$(GO) run ./integration/crash/cmd -duration $(or $(DURATION),20m) -seed $(or $(SEED),1) -cursor $(or $(CURSOR),0)

mutants: ## deliberate faults, each of which the crash simulation must see
	$(GO) test -tags mutants -count=1 ./integration/crash -run 'TestMutants|TestReduce'

fsx: ## OPS (1000000) random operations on a mount against a model; SEED repeats a run
	$(GO) run ./integration/fsx/cmd -ops $(or $(OPS),1000000) $(if $(SEED),-seed $(SEED))

demo: ## the main job, end to end; SABOTAGE=drain makes it fail
	$(GO) run ./integration/demo $(if $(SABOTAGE),-sabotage $(SABOTAGE))

bench: deps build ## write+fsync and others against a FUSE floor, ratios
	$(GO) run ./integration/bench

bench-scale: deps build ## what FILES (10000000) files cost, against bounds, by a stat of SAMPLE (1000000) of them; memory, or DIR, takes some 900 bytes for each
	$(GO) run ./integration/bench/scale/cmd -files $(or $(FILES),10000000) -sample $(or $(SAMPLE),1000000) -dir '$(DIR)'

lint:
	@test -z "$$(gofmt -l .)" || { echo "not gofmt-ed:"; gofmt -l .; exit 1; }
	$(GO) vet ./...
	$(GO) vet -tags rdma ./verbs/ibverbs ./integration/rig/interop
	$(GO) tool staticcheck ./...
	CGO_ENABLED=0 $(GO) build -o /dev/null ./cmd/pmemfs-target
	CGO_ENABLED=0 $(GO) vet ./verbs/...

fuzz: ## each fuzz target for FUZZTIME (10s)
	@for p in $$($(GO) list ./...); do for f in $$($(GO) test -list '^Fuzz' $$p | grep '^Fuzz'); do \
		echo "$$p $$f"; $(GO) test -run '^$$' -fuzz "^$$f$$" -fuzztime $(or $(FUZZTIME),10s) $$p || exit 1; done; done
