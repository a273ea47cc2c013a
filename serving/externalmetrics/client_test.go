// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package externalmetrics

import (
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/rest"
	"k8s.io/metrics/pkg/client/external_metrics"
)

// TestClientOfAutoscalers: the client of the HPA controller reads a metric with capital letters, whose
// name it puts into lower case.
func TestClientOfAutoscalers(t *testing.T) {
	w := newWorld(t)
	w.add("QueueDepth", sample(25, nil))
	w.add("Cloud/Age", sample(3, nil))
	client, err := external_metrics.NewForConfig(&rest.Config{Host: serverURL, Transport: w.network.Client().Transport})
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, name := range []string{"QueueDepth", `Cloud\|Age`, "queue_length"} {
		list, err := client.NamespacedMetrics("shop").List(name, labels.SelectorFromSet(nil))
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		got = append(got, fmt.Sprintf("%s %s", list.Items[0].MetricName, list.Items[0].Value.String()))
	}
	if diff := cmp.Diff([]string{"QueueDepth 25", "Cloud/Age 3", "queue_length 3500m"}, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}
