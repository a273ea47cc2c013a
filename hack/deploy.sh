#!/usr/bin/env bash
# Installs CRDs and operator into the cluster of the current kubeconfig, with
# the images of PREFIX and VERSION.
set -euo pipefail
cd "$(dirname "$0")/.."
kubectl=$(eval "echo ${KUBECTL:-kubectl}")

hack/render.sh "$kubectl" | "$kubectl" apply --server-side --force-conflicts -f -
"$kubectl" wait --for=condition=Established --timeout=60s crd/metricsbackends.metricsbackend.io
"$kubectl" -n metrics-backend-system rollout status deployment/metrics-backend-operator --timeout=180s
