#!/usr/bin/env bash
# Writes dist/ for PREFIX and VERSION: install.yaml, the CRDs alone, the Helm chart, and
# the bake file for images. A semantic VERSION is a release, which requires that the long
# and the soak tests have passed on the same tree.
set -euo pipefail
cd "$(dirname "$0")/.."
kubectl=$(eval "echo ${KUBECTL:-kubectl}")
prefix=${PREFIX:-metrics-backend} version=${VERSION:-dev}
. hack/tested.sh
semantic=${version#v}
if [[ $semantic =~ ^[0-9]+\.[0-9]+\.[0-9]+ ]]; then
	require_tested "$version"
else
	# Charts need a semantic version; a build that is no release has none.
	semantic=0.0.0-$semantic
fi
mkdir -p dist
hack/render.sh "$kubectl" >dist/install.yaml
# For users who upgrade CRDs with another tool than the rest.
"$kubectl" kustomize config/crd >dist/crds.yaml
cp docker-bake.hcl dist/

chart=$(mktemp -d)
trap 'rm -rf "$chart"' EXIT
cp -R charts/metrics-backend-operator "$chart/"
sed -i.orig -e "s|repository: metrics-backend/|repository: $prefix/|" "$chart/metrics-backend-operator/values.yaml"
go -C test/chart tool helm.sh/helm/v4/cmd/helm package "$chart/metrics-backend-operator" \
	--version "$semantic" --app-version "$version" --destination "$PWD/dist" >/dev/null

cat <<END
dist/install.yaml      kubectl apply --server-side -f dist/install.yaml
dist/crds.yaml         kubectl apply --server-side -f dist/crds.yaml
dist/metrics-backend-operator-$semantic.tgz
                       helm install metrics-backend dist/metrics-backend-operator-$semantic.tgz -n metrics-backend-system --create-namespace
dist/docker-bake.hcl   VERSION=$version PREFIX=$prefix docker buildx bake -f dist/docker-bake.hcl --push
END
