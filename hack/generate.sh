#!/usr/bin/env bash
# Regenerates everything that is made from Go types, and the chart's templates from
# config/. hack/test.sh fails when the result differs from what is committed.
set -euo pipefail
cd "$(dirname "$0")/.."
go tool controller-gen object:headerFile=hack/boilerplate.go.txt crd \
	paths=./api/... output:crd:dir=config/crd/bases
go generate ./...
go run ./hack/chart
