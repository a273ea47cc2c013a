// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build integration

package operator

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/metricsbackend/metrics-backend-operator/api/v1alpha1"
	"github.com/metricsbackend/metrics-backend-operator/test/outcome"
)

// TestOperations changes one or two fields of the spec to any values that the CRD's schema allows, or does not, as
// Acto (SOSP 2023) does: kube-apiserver refuses the change and names the field, or the MetricsBackend is ready, or says what
// is wrong with the field. After the way back all objects are as before, and nothing is written any more.
// OPERATIONS and SEED say how many, and which.
func TestOperations(t *testing.T) {
	suite := take(t)
	number, err := strconv.Atoi(cmp.Or(os.Getenv("OPERATIONS"), "40"))
	if err != nil {
		t.Fatal(err)
	}
	seed, err := strconv.ParseUint(cmp.Or(os.Getenv("SEED"), "1"), 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	createBackend(t, suite, newBackend("cluster"))
	waitReady(t, suite, "cluster")
	settled(t, suite)
	before := objects(t, suite)
	base := storedSpec(t, suite)
	spec := specSchema(t, filepath.Join(suite.root, "config/crd/bases/metricsbackend.io_metricsbackends.yaml"))
	outcomes := map[string]int{}
	for i := range number {
		g := generator{rand.New(rand.NewPCG(seed, uint64(i)))} //nolint:gosec // an order, not a secret
		c := g.change(spec, base)
		body, err := json.Marshal(c.changed)
		if err != nil {
			t.Fatal(err)
		}
		what := fmt.Sprintf("SEED=%d, operation %d: %s", seed, i, body)
		err = writeSpec(t.Context(), suite, c.spec)
		switch {
		case apierrors.IsInvalid(err):
			outcomes["refused"]++
			if !namesAny(err.Error(), c.fields) {
				t.Errorf("%s: refused, and names none: %v", what, err)
			}
			continue
		case err != nil:
			t.Fatalf("%s: %v", what, err)
		}
		outcomes[finalState(t, suite, what, c.fields)]++
		outcome.Eventually(t, patience, "the way back from "+what, func(ctx context.Context) error { return writeSpec(ctx, suite, base) })
		waitReady(t, suite, "cluster")
		outcome.Eventually(t, patience, "all is as before "+what, func(context.Context) error {
			if diff := gocmp.Diff(before, objects(t, suite)); diff != "" {
				return fmt.Errorf("(-before +after):\n%s", diff)
			}
			return nil
		})
		settled(t, suite)
		if t.Failed() {
			t.FailNow()
		}
	}
	t.Logf("%d operations: %v", number, outcomes)
	if outcomes["ready"] == 0 || outcomes["refused"] == 0 {
		t.Errorf("outcomes %v: nothing was proven", outcomes)
	}
}

// finalState waits until the MetricsBackend is ready, or says what is wrong, and returns which.
func finalState(t *testing.T, suite *controlPlane, what string, fields []string) (state string) {
	t.Helper()
	outcome.Eventually(t, 2*patience, what, func(context.Context) error {
		backend := getBackend(t, suite, "cluster")
		ready, stalled := condition(backend, v1alpha1.ConditionReady), condition(backend, v1alpha1.ConditionStalled)
		switch {
		case ready.ObservedGeneration != backend.Generation, ready.Reason == v1alpha1.ReasonProgressing, ready.Reason == v1alpha1.ReasonRollingOut:
		case ready.Status == metav1.ConditionTrue:
			state = "ready"
			return nil
		case stalled.Status == metav1.ConditionTrue && namesAny(stalled.Message, fields):
			state = "stalled"
			return nil
		}
		return fmt.Errorf("neither ready, nor stalled for %v: %s", fields, show(backend))
	})
	return state
}

func namesAny(message string, fields []string) bool {
	return slices.ContainsFunc(fields, func(field string) bool { return strings.Contains(message, field) })
}

func storedBackend(ctx context.Context, suite *controlPlane) (*unstructured.Unstructured, error) {
	backend := &unstructured.Unstructured{}
	backend.SetGroupVersionKind(v1alpha1.GroupVersion.WithKind("MetricsBackend"))
	return backend, suite.admin.Get(ctx, client.ObjectKey{Name: "cluster"}, backend)
}

func storedSpec(t *testing.T, suite *controlPlane) map[string]any {
	t.Helper()
	backend, err := storedBackend(t.Context(), suite)
	if err != nil {
		t.Fatal(err)
	}
	return backend.Object["spec"].(map[string]any)
}

func writeSpec(ctx context.Context, suite *controlPlane, spec map[string]any) error {
	backend, err := storedBackend(ctx, suite)
	if err != nil {
		return err
	}
	backend.Object["spec"] = spec
	return suite.admin.Update(ctx, backend)
}

// objects returns what the operator has written, by kind and name, without what the API and other controllers set.
func objects(t *testing.T, suite *controlPlane) map[string]string {
	t.Helper()
	all := map[string]string{}
	for _, kind := range childKinds() {
		list := &unstructured.UnstructuredList{}
		list.SetGroupVersionKind(kind.GroupVersion().WithKind(kind.Kind + "List"))
		if err := suite.admin.List(t.Context(), list, client.MatchingLabels{v1alpha1.LabelBackend: "cluster"}); err != nil {
			t.Fatal(err)
		}
		for _, object := range list.Items {
			name := kind.Kind + " " + object.GetName()
			maps.DeleteFunc(object.Object, func(key string, _ any) bool { return key == "status" || key == "metadata" || key == "data" })
			// A change may rotate the certificate authority.
			unstructured.RemoveNestedField(object.Object, "spec", "caBundle")
			body, err := json.Marshal(object.Object)
			if err != nil {
				t.Fatal(err)
			}
			all[name] = string(body)
		}
	}
	return all
}
