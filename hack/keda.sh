#!/usr/bin/env bash
# Loads KEDA's operator and adapter, which hack/build-program.sh builds, into the current cluster, and copies KEDA's own
# manifests to bin/keda/; test/keda has what changes them.
set -euo pipefail
cd "$(dirname "$0")/.."
mkdir -p bin/images
rm -rf bin/keda
archives=()
# The programs in KEDA's images have other names.
for program in operator=keda adapter=keda-adapter; do
	name=keda-${program%=*}
	folder=$(hack/build-program.sh "$name")
	go -C test/cluster run . image --tag "metrics-backend/$name:dev" --binary "$folder/$name=/${program#*=}" --out "$PWD/bin/images/$name.tar"
	archives+=("$PWD/bin/images/$name.tar")
done
# The binaries may be older than the module cache.
go -C test/keda mod download github.com/kedacore/keda/v2
cp -r "$(go -C test/keda list -m -f '{{.Dir}}' github.com/kedacore/keda/v2)/config" bin/keda
chmod -R u+w bin/keda
go -C test/cluster run . load "${archives[@]}"
