#!/usr/bin/env bash
# Removes what deploy.sh installed. MetricsBackends are deleted first, while the operator
# still runs, so that their APIServices leave discovery before their pods stop.
set -euo pipefail
cd "$(dirname "$0")/.."
kubectl=$(eval "echo ${KUBECTL:-kubectl}")

if "$kubectl" get crd metricsbackends.metricsbackend.io >/dev/null 2>&1; then
	"$kubectl" delete metricsbackends --all --timeout=180s
fi
"$kubectl" delete -k config/default --ignore-not-found
