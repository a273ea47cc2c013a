#!/usr/bin/env bash
# Loads metrics-server, which the end-to-end tests take over from, into the current cluster;
# test/metrics-server has its manifests.
set -euo pipefail
cd "$(dirname "$0")/.."
folder=$(hack/build-program.sh metrics-server)
# The version in go.mod is the image's tag.
version=$(go -C test/metrics-server list -m -f '{{.Version}}' sigs.k8s.io/metrics-server)
mkdir -p bin/images
go -C test/cluster run . image --tag "metrics-backend/metrics-server:$version" \
	--binary "$folder/metrics-server=/metrics-server" --out "$PWD/bin/images/metrics-server.tar"
go -C test/cluster run . load "$PWD/bin/images/metrics-server.tar"
