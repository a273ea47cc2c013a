// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package resourcemetrics

// The definitions cover metrics.k8s.io and all that its paths refer to. Upstream
// publishes the types without them, since every API server has its own set.
//
//go:generate go tool -modfile=../../hack/tools/go.mod openapi-gen --go-header-file ../../hack/boilerplate.go.txt --output-dir . --output-pkg github.com/metricsbackend/metrics-backend-operator/serving/resourcemetrics --output-file zz_generated.openapi.go --report-filename /dev/null k8s.io/metrics/pkg/apis/metrics/v1 k8s.io/metrics/pkg/apis/metrics/v1beta1 k8s.io/apimachinery/pkg/apis/meta/v1 k8s.io/apimachinery/pkg/api/resource k8s.io/apimachinery/pkg/runtime k8s.io/apimachinery/pkg/version
