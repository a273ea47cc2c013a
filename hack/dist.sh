#!/usr/bin/env bash
# Writes dist/ for PREFIX and VERSION: install.yaml, the CRDs alone, the Helm chart,
# and the recipe for images.
set -euo pipefail
cd "$(dirname "$0")/.."
kubectl=$(eval "echo ${KUBECTL:-kubectl}")
prefix=${PREFIX:-metrics-backend} version=${VERSION:-dev}
mkdir -p dist
hack/render.sh "$kubectl" >dist/install.yaml
# For those who let another tool upgrade CRDs than the one that installs the rest.
"$kubectl" kustomize config/crd >dist/crds.yaml
cp docker-bake.hcl dist/

chart=$(mktemp -d)
trap 'rm -rf "$chart"' EXIT
cp -R charts/metrics-backend-operator "$chart/"
sed -i.orig -e "s|repository: metrics-backend/|repository: $prefix/|" "$chart/metrics-backend-operator/values.yaml"
# Charts have semantic versions; a build that is no release has none.
semantic=${version#v}
[[ $semantic =~ ^[0-9]+\.[0-9]+\.[0-9]+ ]] || semantic=0.0.0-$semantic
go -C test/chart tool helm package "$chart/metrics-backend-operator" \
	--version "$semantic" --app-version "$version" --destination "$PWD/dist" >/dev/null

cat <<END
dist/install.yaml      kubectl apply --server-side -f dist/install.yaml
dist/crds.yaml         kubectl apply --server-side -f dist/crds.yaml
dist/metrics-backend-operator-$semantic.tgz
                       helm install metrics-backend dist/metrics-backend-operator-$semantic.tgz -n metrics-backend-system --create-namespace
dist/docker-bake.hcl   VERSION=$version PREFIX=$prefix docker buildx bake -f dist/docker-bake.hcl --push
END
