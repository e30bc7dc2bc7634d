TORTURE ?= .

.PHONY: run build test e2e dist torture first-minute bench bench-quick fmt

run:
	go run ./cmd/plantstore serve

# build uses the same flags as run, so that it reuses what run compiled.
build:
	go build -o bin/ ./cmd/plantstore

# dist builds a release into dist/: archives, .deb and .rpm packages, container images, SBOMs
# and checksums. The same commit gives the same bytes. ONLY=linux/amd64 builds for one platform.
dist:
	go -C deploy/dist run . -only '$(ONLY)'

# test runs what must pass before a commit, in about six minutes once everything is compiled.
test:
	.ci/test test

# e2e runs the rest of the tests, from outside, in about ten minutes.
e2e:
	.ci/test e2e

# torture is the long form of the tests in e2e and of some others. It takes hours. TORTURE selects some of
# them by name. They run one at a time, so that their timings are meaningful.
torture:
	.ci/deps e2e
	.ci/deps tools
	.ci/torture '$(TORTURE)'

# first-minute measures how long a newcomer waits for the first plant, with empty caches.
first-minute:
	.ci/first-minute

# bench compares Plantstore with its upper bound and with alternatives, and updates
# docs/performance.md. Run it on an idle machine.
bench:
	cd bench && go run .

# bench-quick takes less than three minutes and writes nothing.
bench-quick:
	cd bench && go run . -quick

fmt:
	go tool -modfile=internal/tools/go.mod gofumpt -w .
