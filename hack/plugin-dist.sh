#!/usr/bin/env bash
# Writes the kubectl plugin into dist/: an archive for each of PLATFORMS (OS/ARCH), and
# metrics.yaml, the manifest with which krew installs them from the release VERSION.
set -euo pipefail
cd "$(dirname "$0")/.."
version=${VERSION:-dev}
platforms=${PLATFORMS:-linux/amd64 linux/arm64 darwin/amd64 darwin/arm64 windows/amd64}
home=https://github.com/metricsbackend/metrics-backend-operator

. hack/tested.sh
# krew requires a semantic version.
case $version in
v[0-9]*)
	require_tested "$version"
	semantic=$version
	;;
*) semantic=v0.0.0-$version ;;
esac
mkdir -p dist
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cp LICENSE "$folder/"

manifest=dist/metrics.yaml
cat >$manifest <<END
apiVersion: krew.googlecontainertools.github.com/v1alpha2
kind: Plugin
metadata:
  name: metrics
spec:
  version: $semantic
  homepage: $home
  shortDescription: Verify and watch the metrics APIs of a cluster
  description: |
    Shows what serves metrics.k8s.io (status), checks it after an upgrade, a rollback
    or a migration as in KEP-5207, with an exit code for runbooks (verify), and waits
    for versions or conditions (wait). Works with any implementation.
  platforms:
END
for platform in $platforms; do
	os=${platform%/*} arch=${platform#*/} bin=kubectl-metrics
	[ "$os" != windows ] || bin=$bin.exe
	CGO_ENABLED=0 GOOS=$os GOARCH=$arch go build -trimpath -ldflags "$(VERSION=$version sh hack/ldflags.sh)" -o "$folder/$bin" ./cmd/kubectl-metrics
	archive=kubectl-metrics-$os-$arch.tar.gz
	# Reproducible archives.
	tar -C "$folder" --sort=name --mtime=@0 --owner=0 --group=0 --numeric-owner -cf - LICENSE "$bin" | gzip -n >"dist/$archive"
	rm "$folder/$bin"
	cat >>$manifest <<END
  - selector:
      matchLabels: {os: $os, arch: $arch}
    uri: $home/releases/download/$version/$archive
    sha256: $(sha256sum "dist/$archive" | cut -d' ' -f1)
    bin: $bin
END
	echo "dist/$archive"
done
echo "$manifest      kubectl krew install --manifest=$manifest --archive=dist/kubectl-metrics-OS-ARCH.tar.gz"
