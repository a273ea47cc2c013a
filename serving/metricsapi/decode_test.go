// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package metricsapi

import (
	"runtime"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Elements that take much more memory than their text are refused before they do, wherever they stand.
func TestManyElements(t *testing.T) {
	many := strings.TrimSuffix(strings.Repeat("{},", maxBody/3-100), ",")
	const list = `"kind": "ExternalMetricValueList", "apiVersion": "external.metrics.k8s.io/v1beta1", `
	for name, body := range map[string]string{
		"items":       `{` + list + `"items": [` + many + `]}`,
		"twice":       `{` + list + `"items": [` + many + `], "items": []}`,
		"other case":  `{` + list + `"Items": [` + many + `]}`,
		"discovery":   `{"kind": "APIResourceList", "resources": [` + many + `]}`,
		"first empty": `{"kind": "APIResourceList", "resources": null, "resources": [` + many + `]}`,
	} {
		t.Run(name, func(t *testing.T) {
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			_, err := decode([]byte(body), "external.metrics.k8s.io", "/namespaces/shop/depth", time.Time{})
			if strings.Contains(body, "APIResourceList") {
				err = decodeDiscovery([]byte(body), &metav1.APIResourceList{})
			}
			runtime.ReadMemStats(&after)
			if err == nil || !strings.Contains(err.Error(), "elements, which is too many") {
				t.Errorf("got %v", err)
			}
			if allocated := after.TotalAlloc - before.TotalAlloc; allocated > 4*maxBody {
				t.Errorf("%d MiB were allocated", allocated>>20)
			}
		})
	}
}
