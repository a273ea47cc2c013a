#!/usr/bin/env bash
# Regenerates everything that is generated from Go types, the chart's templates from
# config/, the dashboard, and the reference of the API. hack/test.sh fails if the result differs from the committed files.
set -euo pipefail
cd "$(dirname "$0")/.."
go tool -modfile=hack/tools/go.mod controller-gen object:headerFile=hack/boilerplate.go.txt crd \
	paths=./api/... output:crd:dir=config/crd/bases
go generate ./...
go tool -modfile=hack/tools/go.mod crd-ref-docs --source-path=api/v1alpha1 --config=hack/tools/apireference.yaml \
	--renderer=markdown --output-path=docs/reference/api.md --log-level=ERROR
# It escapes braces, and writes a field that is required or optional as a set.
sed -i -e 's/\\\([{}]\)/\1/g; s/Required: {} <br \/>/Required <br \/>/g; s/Optional: {} <br \/>//g; s/_integer array_/_string_ (base64)/g' \
	-e '1s/.*/# The fields of the four kinds/' docs/reference/api.md
go run ./hack/chart
dashboard=$(go -C hack/dashboard run .)
# Charts only read files of their own.
tee config/monitoring/dashboard.json charts/metrics-backend-operator/files/dashboard.json <<<"$dashboard" >/dev/null
cp config/monitoring/scrape/prometheus.yaml charts/metrics-backend-operator/files/scrape.yaml
