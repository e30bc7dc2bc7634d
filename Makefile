.PHONY: run build test bench fmt

run:
	go run ./cmd/plantstore serve

build:
	CGO_ENABLED=0 go build -trimpath -o bin/ ./cmd/plantstore

# test is everything that must hold before a commit.
test:
	.ci/deps
	@bad=$$(go tool gofumpt -l .) && { test -z "$$bad" || { echo "not formatted, run make fmt:"; echo "$$bad"; exit 1; }; }
	go vet ./... && go -C bench vet .
	go tool staticcheck ./...
	PLANTSTORE_TEST_ALL=1 PLANTSTORE_ARTIFACTS=$(CURDIR)/artifacts go test -race -count=1 ./...
	dir=$$(mktemp -d) && trap 'rm -r "$$dir"' EXIT && CGO_ENABLED=0 go build -o "$$dir" ./cmd/plantstore

# bench compares creates with a handler that does nothing. Run it with nothing else running.
bench:
	cd bench && go run .

fmt:
	go tool gofumpt -w .
