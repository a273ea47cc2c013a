#!/usr/bin/env bash
# Loads prometheus-adapter, which hack/build-program.sh builds, into the current cluster. Its own manifests, and what changes
# them for test/e2e, are in bin/prometheus-adapter/ then: kustomize reads no files of other folders.
set -euo pipefail
cd "$(dirname "$0")/.."
folder=$(hack/build-program.sh prometheus-adapter)
mkdir -p bin/images
go -C test/cluster run . image --tag metrics-backend/prometheus-adapter:dev --binary "$folder/prometheus-adapter=/adapter" \
	--out "$PWD/bin/images/prometheus-adapter.tar"
# The binary may be older than the module cache.
go -C test/prometheus-adapter mod download sigs.k8s.io/prometheus-adapter
rm -rf bin/prometheus-adapter
cp -r "$(go -C test/prometheus-adapter list -m -f '{{.Dir}}' sigs.k8s.io/prometheus-adapter)/deploy/manifests" bin/prometheus-adapter
chmod -R u+w bin/prometheus-adapter
cp test/prometheus-adapter/manifests/* bin/prometheus-adapter/
# It replaces no slash in a path, so that its users write \| into the name; and a missed scrape must not end a metric.
sed -e 's#as: mail/\$1#as: mail\\|$1#' -e 's#sum(<<.Series>>{<<.LabelMatchers>>})#sum(last_over_time(<<.Series>>{<<.LabelMatchers>>}[20s]))#' \
	test/prometheus/manifests/adapter-config.yaml >bin/prometheus-adapter/config.yaml
go -C test/cluster run . load "$PWD/bin/images/prometheus-adapter.tar"
