#!/usr/bin/env bash
# Installs CRDs and operator into the cluster of the current kubeconfig, with
# the images of PREFIX and VERSION.
set -euo pipefail
cd "$(dirname "$0")/.."
kubectl=$(eval "echo ${KUBECTL:-kubectl}")

namespace=metrics-backend-system
operator=deployment/metrics-backend-operator
serving=app.kubernetes.io/name=metrics-backend-serving

# The tag "dev" is another image after each build: running pods must be restarted to use
# it.
restart=false
if [ "${VERSION:-dev}" = dev ] && "$kubectl" -n $namespace get $operator >/dev/null 2>&1; then
	restart=true
fi

hack/render.sh "$kubectl" | "$kubectl" apply --server-side --force-conflicts -f -
"$kubectl" wait --for=condition=Established --timeout=60s crd/{metricsbackends,custommetrics,externalmetrics,externalmetricspolicies}.metricsbackend.io
if $restart; then
	"$kubectl" -n $namespace rollout restart $operator
fi
"$kubectl" -n $namespace rollout status $operator --timeout=180s
if $restart && [ -n "$("$kubectl" -n $namespace get deployments -l $serving -o name)" ]; then
	"$kubectl" -n $namespace rollout restart deployments -l $serving
	"$kubectl" -n $namespace rollout status deployments -l $serving --timeout=300s
fi
