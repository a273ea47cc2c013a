#!/usr/bin/env bash
# Loads Flux' controllers, which hack/build-program.sh builds, and a Git server into the current
# cluster, and copies Flux' CRDs to bin/flux/; test/flux has the manifests.
set -euo pipefail
cd "$(dirname "$0")/.."
mkdir -p bin/images
rm -rf bin/flux
mkdir bin/flux

archives=()
# image NAME BINARY[=/IN/IMAGE]...: writes the archive of an image.
image() {
	local name=$1 binary binaries=()
	shift
	for binary in "$@"; do binaries+=(--binary "$binary"); done
	go -C test/cluster run . image --tag "metrics-backend/$name:dev" "${binaries[@]}" --out "$PWD/bin/images/$name.tar"
	archives+=("$PWD/bin/images/$name.tar")
}

for name in source-controller kustomize-controller helm-controller; do
	folder=$(hack/build-program.sh $name)
	image $name "$folder/$name=/$name"
	source=test/flux/controllers
	[ $name != source-controller ] || source=test/flux/source-controller
	# The binary may be older than the module cache.
	go -C $source mod download github.com/fluxcd/$name
	install -m 644 "$(go -C $source list -m -f '{{.Dir}}' github.com/fluxcd/$name)"/config/crd/bases/*.yaml bin/flux/
done

# The machine's own git, which is dynamically linked: the image needs the C library and its loader.
CGO_ENABLED=0 go build -ldflags "-s -w" -o bin/ ./test/flux/cmd/gitserver
programs=("$(command -v git)" "$(git --exec-path)/git-http-backend")
files=("$PWD/bin/gitserver=/gitserver" "${programs[0]}=/usr/bin/git" "${programs[1]}=${programs[1]}")
for library in $(ldd "${programs[@]}" | grep -oE '/[^ ]+ \(' | tr -d ' (' | sort -u); do
	files+=("$library=$library")
done
image gitserver "${files[@]}"
go -C test/cluster run . load "${archives[@]}"
