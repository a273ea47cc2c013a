// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package canary

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/metricsbackend/metrics-backend-operator/serving/resourcemetrics"
	"github.com/metricsbackend/metrics-backend-operator/test/apiserver"
)

// It serves one resource, of which every name exists, with the single verb get.
func TestCanary(t *testing.T) {
	t.Parallel()
	scheme := runtime.NewScheme()
	Install(scheme)
	metav1.AddToGroupVersion(scheme, schema.GroupVersion{Version: "v1"})
	server := apiserver.New(t, scheme, resourcemetrics.GetOpenAPIDefinitions)
	if err := InstallAPI(server); err != nil {
		t.Fatal(err)
	}
	server.PrepareRun()
	const version = "/apis/canary.metricsbackend.io/v1alpha1"
	send := func(method, path string) *httptest.ResponseRecorder {
		w := httptest.NewRecorder()
		server.Handler.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), method, path, http.NoBody))
		return w
	}
	var resources metav1.APIResourceList
	if err := json.Unmarshal(send(http.MethodGet, version).Body.Bytes(), &resources); err != nil {
		t.Fatal(err)
	}
	want := []metav1.APIResource{{Name: "canaries", SingularName: "canary", Kind: "Canary", Verbs: metav1.Verbs{"get"}}}
	if diff := cmp.Diff(want, resources.APIResources); diff != "" {
		t.Errorf("discovery (-want +got):\n%s", diff)
	}
	got := send(http.MethodGet, version+"/canaries/cluster")
	var object metav1.PartialObjectMetadata
	if err := json.Unmarshal(got.Body.Bytes(), &object); err != nil || got.Code != http.StatusOK {
		t.Fatalf("%d, %v: %s", got.Code, err, got.Body)
	}
	wantObject := metav1.PartialObjectMetadata{
		TypeMeta:   metav1.TypeMeta{APIVersion: "canary.metricsbackend.io/v1alpha1", Kind: "Canary"},
		ObjectMeta: metav1.ObjectMeta{Name: "cluster"},
	}
	if diff := cmp.Diff(wantObject, object); diff != "" {
		t.Errorf("object (-want +got):\n%s", diff)
	}
	for method, path := range map[string]string{
		http.MethodGet: version + "/canaries", http.MethodPost: version + "/canaries", http.MethodDelete: version + "/canaries/cluster",
	} {
		if got := send(method, path); got.Code != http.StatusMethodNotAllowed && got.Code != http.StatusNotFound {
			t.Errorf("%s %s: %d", method, path, got.Code)
		}
	}
}
