TORTURE ?= .

.PHONY: run build test dist torture first-minute bench bench-quick fmt

run:
	go run ./cmd/plantstore serve

# build uses the same flags as run, so that it reuses what run compiled.
build:
	go build -o bin/ ./cmd/plantstore

# dist builds a release into dist/: archives, Debian packages, container images, lists of
# parts and checksums. The same commit gives the same bytes.
dist:
	go -C deploy/dist run .

# test runs everything that must pass before a commit. Some packages mostly wait, for a
# failover or a timeout, so three run at once on two cores. Those that take long come
# first, so that none is left to run alone.
test:
	.ci/deps
	@bad=$$(go tool gofumpt -l .) && { test -z "$$bad" || { echo "not formatted, run make fmt:"; echo "$$bad"; exit 1; }; }
	go vet ./... && go -C bench vet ./... && go -C deploy/dist vet ./... && go -C deploy/monitoring vet ./...
	go tool staticcheck ./...
	PLANTSTORE_TEST_ALL=1 PLANTSTORE_ARTIFACTS=$(CURDIR)/artifacts go test -race -count=1 -p 3 -timeout 30m ./internal/sqlite ./internal/server ./cmd/... ./e2e/... ./...
	PLANTSTORE_TEST_ALL=1 go -C deploy/dist test -count=1 ./...
	PLANTSTORE_TEST_ALL=1 go -C deploy/monitoring test -count=1 ./...
	dir=$$(mktemp -d) && trap 'rm -r "$$dir"' EXIT && CGO_ENABLED=0 go build -o "$$dir" ./cmd/plantstore

# torture is the long form of the tests in e2e and of some others. It takes hours. TORTURE selects some of
# them by name. They run one at a time, so that their timings are meaningful.
torture:
	.ci/deps
	PLANTSTORE_TORTURE=1 PLANTSTORE_TEST_ALL=1 PLANTSTORE_ARTIFACTS=$(CURDIR)/artifacts go test -p 1 -parallel 1 -count=1 -timeout 12h -v -run '$(TORTURE)' ./e2e/... ./internal/wire ./internal/http1

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
	go tool gofumpt -w .
