#!/usr/bin/env bash
# Writes dist/: install.yaml for PREFIX and VERSION, and the recipe for images.
set -euo pipefail
cd "$(dirname "$0")/.."
kubectl=$(eval "echo ${KUBECTL:-kubectl}")
mkdir -p dist
hack/render.sh "$kubectl" >dist/install.yaml
cp docker-bake.hcl dist/
cat <<END
dist/install.yaml      kubectl apply --server-side -f dist/install.yaml
dist/docker-bake.hcl   VERSION=${VERSION:-dev} PREFIX=${PREFIX:-metrics-backend} docker buildx bake -f dist/docker-bake.hcl --push
END
