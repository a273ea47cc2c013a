#!/usr/bin/env bash
# render.sh KUBECTL: prints config/default with the images of PREFIX and VERSION.
set -euo pipefail
cd "$(dirname "$0")/.."
prefix=${PREFIX:-metrics-backend} version=${VERSION:-dev}
cat <<END
# To uninstall: first kubectl delete metricsbackends --all --wait, which needs the operator, then kubectl delete -f this file.
# In another order the deletion does not end: docs/tasks/uninstall.md#if-you-deleted-the-operator-or-the-manifest-first
END
"${1:-kubectl}" kustomize config/default |
	sed -e "s|metrics-backend/operator:dev|$prefix/operator:$version|g" \
		-e "s|metrics-backend/serving:dev|$prefix/serving:$version|g"
