#!/usr/bin/env bash
# Writes dist/, all that the release VERSION consists of, from the checked-out tree and without a container engine. The same
# tree and toolchain give the same bytes. With PUSH=REGISTRY/PATH it pushes the images and the chart there when all is made. A
# semantic VERSION requires that nothing is uncommitted and, unless it is a candidate (-rc), that the long and the soak tests have
# passed on the same tree.
set -euo pipefail
cd "$(dirname "$0")/.."
export VERSION=${VERSION:-dev} PREFIX=${PUSH:-${PREFIX:-metrics-backend}}
. hack/toolchain.sh
. hack/tested.sh
semantic=${VERSION#v}
if [[ $semantic =~ ^[0-9]+\.[0-9]+\.[0-9]+ ]]; then
	require_tested "$VERSION"
else
	# Charts and krew need a semantic version; a build that is no release has none.
	semantic=0.0.0-$semantic
fi
export SOURCE_DATE_EPOCH
SOURCE_DATE_EPOCH=$(git log -1 --format=%ct)
ldflags=$(sh hack/ldflags.sh)
home=https://github.com/metricsbackend/metrics-backend-operator
# The same kubectl everywhere: another one's kustomize writes other YAML.
kubectl=$(go -C test/cluster run . binaries kubectl)/kubectl
rm -rf dist bin/release
mkdir -p dist bin/release

# pack FILE FOLDER NAME...: an archive of names in a folder, without what differs between machines.
pack() {
	tar -C "$2" --sort=name --mtime="@$SOURCE_DATE_EPOCH" --owner=0 --group=0 --numeric-owner --mode=u=rwX,go=rX -cf - "${@:3}" >"$1"
}

say() { printf 'dist/%-48s %s\n' "$1" "$2"; }

# build OS ARCH FILE PACKAGE: without the version control's data, which a later tag would change.
build() { CGO_ENABLED=0 GOOS=$1 GOARCH=$2 go build -trimpath -buildvcs=false -ldflags "$ldflags" -o "$3" "$4"; }

# quiet COMMAND...: prints what the command says only if it fails.
quiet() { "$@" >bin/release/log 2>&1 || { cat bin/release/log >&2; return 1; }; }

go -C hack/tools build -trimpath -buildvcs=false -o "$PWD/bin/release/cyclonedx-gomod" github.com/CycloneDX/cyclonedx-gomod/cmd/cyclonedx-gomod

for name in operator serving; do
	binaries=()
	for arch in amd64 arm64; do
		build linux "$arch" "bin/release/$arch/$name" "./cmd/$name"
		binaries+=(--binary "$PWD/bin/release/$arch/$name=/$name")
	done
	go -C test/cluster run . layout --tag "$PREFIX/$name:$VERSION" "${binaries[@]}" --out "$PWD/bin/release/$name" \
		--label "org.opencontainers.image.title=metrics-backend-$name" --label "org.opencontainers.image.version=$VERSION" \
		--label "org.opencontainers.image.revision=$(git rev-parse HEAD)" --label "org.opencontainers.image.source=$home" \
		--label "org.opencontainers.image.licenses=Apache-2.0" \
		--label "org.opencontainers.image.created=$(TZ=UTC0 git log -1 --format=%cd --date=format-local:%Y-%m-%dT%H:%M:%SZ)"
	pack "dist/$name-$VERSION.oci.tar" "bin/release/$name" blobs index.json oci-layout
	say "$name-$VERSION.oci.tar" "image $PREFIX/$name:$VERSION for linux/amd64 and linux/arm64, as an OCI layout"
	GOOS=linux GOARCH=amd64 quiet bin/release/cyclonedx-gomod app -json -noserial -notimestamp -main "cmd/$name" -output "dist/$name-$VERSION.sbom.json" .
	say "$name-$VERSION.sbom.json" "its modules (CycloneDX)"
done

hack/render.sh "$kubectl" >dist/install.yaml
say install.yaml "kubectl apply --server-side -f dist/install.yaml"
"$kubectl" kustomize config/crd >dist/crds.yaml
say crds.yaml "the CRDs alone, for those who upgrade them with another tool"

chart=metrics-backend-operator-$semantic.tgz
cp -R charts/metrics-backend-operator bin/release/
sed -i.orig "s|repository: metrics-backend/|repository: $PREFIX/|" bin/release/metrics-backend-operator/values.yaml
sed -i.orig -e "s|^version:.*|version: $semantic|" -e "s|^appVersion:.*|appVersion: $VERSION|" bin/release/metrics-backend-operator/Chart.yaml
find bin/release/metrics-backend-operator -name '*.orig' -delete
pack dist/chart.tar bin/release metrics-backend-operator
gzip -n <dist/chart.tar >"dist/$chart"
rm dist/chart.tar
quiet go -C test/chart tool helm.sh/helm/v4/cmd/helm lint "$PWD/dist/$chart"
quiet grep -F "repository: $PREFIX/operator" bin/release/metrics-backend-operator/values.yaml
say "$chart" "helm install metrics-backend dist/$chart -n metrics-backend-system --create-namespace"
cp config/monitoring/prometheusrule.yaml config/monitoring/rules.yaml config/monitoring/dashboard.json dist/
say prometheusrule.yaml "the alerts, for the Prometheus operator; rules.yaml for Prometheus itself"
say dashboard.json "the dashboard for Grafana"

manifest=dist/metrics-backend.yaml
cat >$manifest <<END
apiVersion: krew.googlecontainertools.github.com/v1alpha2
kind: Plugin
metadata:
  name: metrics-backend
spec:
  version: v$semantic
  homepage: $home
  shortDescription: Verify and watch the metrics APIs of a cluster
  description: |
    Shows what serves metrics.k8s.io (status), checks it after an upgrade, a rollback
    or a migration as in KEP-5207, with an exit code for runbooks (verify), and waits
    for versions or conditions (wait). Works with any implementation.
  platforms:
END
for platform in ${PLATFORMS:-linux/amd64 linux/arm64 darwin/amd64 darwin/arm64 windows/amd64}; do
	os=${platform%/*} arch=${platform#*/} bin=kubectl-metrics_backend
	[ "$os" != windows ] || bin=$bin.exe
	folder=bin/release/plugin-$os-$arch archive=kubectl-metrics_backend-$os-$arch.tar.gz
	build "$os" "$arch" "$folder/$bin" ./cmd/kubectl-metrics_backend
	cp LICENSE "$folder/"
	pack dist/plugin.tar "$folder" LICENSE "$bin"
	gzip -n <dist/plugin.tar >"dist/$archive"
	rm dist/plugin.tar
	cat >>$manifest <<END
  - selector:
      matchLabels: {os: $os, arch: $arch}
    uri: $home/releases/download/$VERSION/$archive
    sha256: $(sha256sum "dist/$archive" | cut -d' ' -f1)
    bin: $bin
END
done
say 'kubectl-metrics_backend-OS-ARCH.tar.gz' "the kubectl plugin: kubectl krew install --manifest=$manifest --archive=FILE"

(cd dist && sha256sum -- * >checksums.txt)
say checksums.txt "sha256sum -c checksums.txt"

if [ -n "${PUSH:-}" ]; then
	for name in operator serving; do
		go -C test/cluster run . push "$PWD/bin/release/$name"
	done | tee dist/pushed.txt
	go -C test/chart tool helm.sh/helm/v4/cmd/helm push "$PWD/dist/$chart" "oci://$PUSH/charts"
fi
