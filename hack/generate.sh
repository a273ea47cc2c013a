#!/usr/bin/env bash
# Regenerates everything that is made from Go types. hack/test.sh fails when the
# result differs from what is committed.
set -euo pipefail
cd "$(dirname "$0")/.."
go tool controller-gen object:headerFile=hack/boilerplate.go.txt crd \
	paths=./api/... output:crd:dir=config/crd/bases
go generate ./...
