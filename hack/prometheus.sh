#!/usr/bin/env bash
# Loads images of Debian's Prometheus, and of a workload whose metrics tests set, into the
# current cluster; test/prometheus has the manifests. The package is downloaded into the
# user's cache once.
set -euo pipefail
cd "$(dirname "$0")/.."
binary=$(go run ./test/prometheus/cmd/binary)
mkdir -p bin/images
CGO_ENABLED=0 go build -ldflags "-s -w" -o bin/ ./test/prometheus/cmd/meter ./test/prometheus/cmd/targets

# It is dynamically linked: the image needs the C library and its loader.
libraries=()
for library in $(ldd "$binary" | grep -oE '/[^ ]+'); do
	libraries+=(--binary "$library=$library")
done
go -C test/cluster run . image --tag metrics-backend/prometheus:dev --binary "$binary=/prometheus" "${libraries[@]}" \
	--out "$PWD/bin/images/prometheus.tar"
go -C test/cluster run . image --tag metrics-backend/meter:dev --binary "$PWD/bin/meter=/meter" --out "$PWD/bin/images/meter.tar"
go -C test/cluster run . image --tag metrics-backend/targets:dev --binary "$PWD/bin/targets=/targets" --out "$PWD/bin/images/targets.tar"
go -C test/cluster run . load "$PWD"/bin/images/{prometheus,meter,targets}.tar
