#!/usr/bin/env bash
# Regenerates everything that is generated from Go types, the chart's templates from
# config/, and the dashboard. hack/test.sh fails if the result differs from the committed files.
set -euo pipefail
cd "$(dirname "$0")/.."
go tool controller-gen object:headerFile=hack/boilerplate.go.txt crd \
	paths=./api/... output:crd:dir=config/crd/bases
go generate ./...
go run ./hack/chart
dashboard=$(go -C hack/dashboard run .)
# Charts only read files of their own.
tee config/monitoring/dashboard.json charts/metrics-backend-operator/files/dashboard.json <<<"$dashboard" >/dev/null
cp config/monitoring/scrape/prometheus.yaml charts/metrics-backend-operator/files/scrape.yaml
