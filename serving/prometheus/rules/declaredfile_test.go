// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package rules

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/metricsbackend/metrics-backend-operator/api/v1alpha1"
	"github.com/metricsbackend/metrics-backend-operator/serving/query"
)

// TestDeclaredInAFile: objects that no kube-apiserver counts the generations of are
// compiled again when they change.
func TestDeclaredInAFile(t *testing.T) {
	c := newCatalog(t, backend(nil, nil))
	declare := func(text string) string {
		t.Helper()
		m := externalMetric("shop", "orders", text)
		m.ObjectMeta = metav1.ObjectMeta{Namespace: "shop", Name: "orders"}
		c.Declare(nil, []*v1alpha1.ExternalMetric{m})
		mq, err := c.ExternalQuery(query.ExternalRequest{Namespace: "shop", Metric: "orders"})
		if err != nil {
			t.Fatal(err)
		}
		return mq.Query.Expression
	}
	for text, want := range map[string]string{"sum(a)": `sum(a{namespace="shop"})`, "sum(b)": `sum(b{namespace="shop"})`} {
		if got := declare(text); got != want {
			t.Errorf("%s is asked as %s", text, got)
		}
	}
}
