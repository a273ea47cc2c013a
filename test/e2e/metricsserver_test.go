// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"
	ctrlclient "sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/metricsbackend/metrics-backend-operator/api/v1alpha1"
	"github.com/metricsbackend/metrics-backend-operator/client"
	"github.com/metricsbackend/metrics-backend-operator/test/outcome"
)

const (
	// metricsServerManifests are metrics-server's own; hack/metrics-server.sh loads its image.
	metricsServerManifests = "test/metrics-server/metrics-server.yaml"
	theirService           = "kube-system/metrics-server"
	ourService             = namespace + "/metrics-serving-" + backendName
)

// A running metrics-server v0.9.0, with its stock manifests, is taken over, replaced
// by our pods, put back, replaced again, fought over, and handed back. None of its
// consumers is affected; those that can watch do so while our pods serve, and poll while metrics-server does.
func TestTakeover(t *testing.T) {
	measureNamespaces(t)
	deployMetricsServer(t)
	stock := waitPointsTo(t, "v1beta1", theirService)
	requireNoWatch(t)
	c := startClients(t)
	consumer := startFollower(t)
	consumer.wait(t, client.Polling)
	t.Cleanup(func() { _, _ = run("kubectl", "delete", "metricsbackends", "--all", "--timeout=180s") })

	t.Log("by default it is left alone")
	kubectl(t, "apply", "--server-side", "--force-conflicts", "-k", "config/samples")
	if c := waitCondition(t, v1alpha1.ConditionStalled, metav1.ConditionTrue, v1alpha1.ReasonNotOwned); !strings.Contains(c.Message, theirService) {
		t.Errorf("the message does not name the owner: %s", c.Message)
	}

	t.Log("its APIService is kept, and what it does not serve is left out")
	editBackend(t, func(spec *v1alpha1.MetricsBackendSpec) {
		spec.ResourceMetrics.Adoption = v1alpha1.AdoptionAlways
		existingMetricsServer(spec)
	})
	waitReady(t)
	kept := waitPointsTo(t, "v1beta1", theirService)
	if kept.UID != stock.UID || kept.Labels[v1alpha1.LabelBackend] != backendName {
		t.Errorf("the APIService of the takeover: %+v", kept.ObjectMeta)
	}
	if record := kept.Annotations[v1alpha1.AnnotationPreviousOwner]; !strings.Contains(record, `"insecureSkipTLSVerify":true`) {
		t.Errorf("the record of the takeover is %q", record)
	}
	requireLeftOut(t)

	t.Log("our pods take its place, and serve v1 too")
	editBackend(t, func(spec *v1alpha1.MetricsBackendSpec) { spec.Existing = nil })
	waitReady(t)
	if moved := waitPointsTo(t, "v1beta1", ourService); moved.UID != stock.UID || moved.Spec.InsecureSkipTLSVerify {
		t.Errorf("the APIService that points to our pods: %+v", moved)
	}
	waitUsed(t, c, "v1")
	consumer.wait(t, client.Watching)

	t.Log("and back: v1 goes first, our pods last")
	editBackend(t, existingMetricsServer)
	waitReady(t)
	waitPointsTo(t, "v1beta1", theirService)
	requireLeftOut(t)
	waitAbsent(t, c, "v1")
	consumer.wait(t, client.Polling)

	t.Log("our pods again")
	editBackend(t, func(spec *v1alpha1.MetricsBackendSpec) { spec.Existing = nil })
	waitReady(t)
	waitUsed(t, c, "v1")
	consumer.wait(t, client.Watching)

	t.Log("someone keeps applying the stock manifest")
	contest(t)
	// A change of the spec makes the operator try again.
	editBackend(t, func(spec *v1alpha1.MetricsBackendSpec) {
		spec.ResourceMetrics.MaxSampleAge = &metav1.Duration{Duration: 95 * time.Second}
	})
	waitReady(t)
	waitPointsTo(t, "v1beta1", ourService)

	t.Log("handed back")
	kubectl(t, "delete", "metricsbackend", backendName, "--timeout=180s")
	back := waitPointsTo(t, "v1beta1", theirService)
	if back.UID != stock.UID || back.Labels[v1alpha1.LabelBackend] != "" || back.Annotations[v1alpha1.AnnotationPreviousOwner] != "" || !back.Spec.InsecureSkipTLSVerify {
		t.Errorf("handed back: %+v", back)
	}
	waitAbsent(t, c, "v1")
	consumer.wait(t, client.Polling)
	consumer.finish(t, client.Polling, client.Watching, client.Polling, client.Watching, client.Polling)
	finishClients(t, c)
}

func existingMetricsServer(spec *v1alpha1.MetricsBackendSpec) {
	spec.Existing = &v1alpha1.ExistingSpec{
		Service: v1alpha1.ExistingService{Namespace: "kube-system", Name: "metrics-server"},
		// Its stock certificate is for "localhost".
		InsecureSkipTLSVerify: true,
	}
}

// waitPointsTo waits until the version's APIService points to the Service, NAMESPACE/NAME.
func waitPointsTo(t *testing.T, version, to string) *apiregistrationv1.APIService {
	t.Helper()
	var service *apiregistrationv1.APIService
	outcome.Eventually(t, time.Minute, version+" points to "+to, func(ctx context.Context) (err error) {
		if service, err = getAPIService(ctx, version); err != nil {
			return err
		}
		if got := service.Spec.Service.Namespace + "/" + service.Spec.Service.Name; got != to {
			return fmt.Errorf("it points to %s", got)
		}
		return nil
	})
	return service
}

// requireLeftOut: metrics-server serves no v1, and nothing of ours is deployed.
func requireLeftOut(t *testing.T) {
	t.Helper()
	backend := getBackend(t)
	if backend.Status.RegisteredVersions != "v1beta1" {
		t.Errorf("registered: %q", backend.Status.RegisteredVersions)
	}
	for _, service := range backend.Status.APIServices {
		if service.Name == "v1.metrics.k8s.io" && (service.State != v1alpha1.APIServicePending || !strings.Contains(service.Message, theirService+" does not serve it")) {
			t.Errorf("v1 is %+v", service)
		}
	}
	var deployments appsv1.DeploymentList
	if err := suite.client.List(t.Context(), &deployments, serving()...); err != nil || len(deployments.Items) > 0 {
		t.Errorf("%d Deployments of ours, %v", len(deployments.Items), err)
	}
}

// contest replaces the APIService with metrics-server's each time that it is taken over, until the backend reports the
// field manager.
func contest(t *testing.T) {
	t.Helper()
	manifest := filepath.Join(t.TempDir(), "apiservice.json")
	body, err := json.Marshal(map[string]any{
		"apiVersion": "apiregistration.k8s.io/v1", "kind": "APIService",
		"metadata": map[string]any{"name": "v1beta1.metrics.k8s.io", "labels": map[string]string{"k8s-app": "metrics-server"}},
		"spec": map[string]any{
			"group": "metrics.k8s.io", "version": "v1beta1", "groupPriorityMinimum": 100, "versionPriority": 100,
			"insecureSkipTLSVerify": true, "service": map[string]string{"namespace": "kube-system", "name": "metrics-server"},
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(manifest, body, 0o600); err != nil {
		t.Fatal(err)
	}
	rounds := 0
	outcome.Eventually(t, 3*time.Minute, "the operator gives in", func(ctx context.Context) error {
		service, err := getAPIService(ctx, "v1beta1")
		if err != nil {
			return err
		}
		if service.Spec.Service.Name != "metrics-server" {
			rounds++
			if out, err := run("kubectl", "replace", "--field-manager=old-deployment", "-f", manifest); err != nil {
				return fmt.Errorf("replace: %w: %s", err, out)
			}
		}
		var backend v1alpha1.MetricsBackend
		if err := suite.client.Get(ctx, ctrlclient.ObjectKey{Name: backendName}, &backend); err != nil {
			return err
		}
		c := meta.FindStatusCondition(backend.Status.Conditions, v1alpha1.ConditionStalled)
		if c == nil || c.Reason != v1alpha1.ReasonContested || !strings.Contains(c.Message, `field manager "old-deployment"`) {
			return fmt.Errorf("after %d rounds: %+v", rounds, c)
		}
		return nil
	})
	t.Logf("it gave in after %d rounds", rounds)
}

// deployMetricsServer installs the real metrics-server as its users do, with its
// APIService, waits until it answers with metrics, and removes it after the test.
// A MetricsBackend is deleted before: the cluster is one that has none yet.
func deployMetricsServer(t *testing.T) {
	t.Helper()
	kubectl(t, "delete", "metricsbackends", "--all", "--timeout=180s")
	t.Cleanup(func() { removeMetricsServer(t) })
	kubectl(t, "apply", "--server-side", "-f", metricsServerManifests)
	kubectl(t, "-n", "kube-system", "rollout", "status", "deployment/metrics-server", "--timeout=180s")
	outcome.Eventually(t, 2*time.Minute, "metrics-server answers through kube-apiserver", func(ctx context.Context) error {
		service, err := getAPIService(ctx, "v1beta1")
		if err != nil {
			return err
		}
		for _, c := range service.Status.Conditions {
			if c.Type == apiregistrationv1.Available && c.Status != apiregistrationv1.ConditionTrue {
				return fmt.Errorf("%s: %s", c.Reason, c.Message)
			}
		}
		body, err := suite.core.RESTClient().Get().AbsPath("/apis/metrics.k8s.io/v1beta1/nodes").DoRaw(ctx)
		if err == nil && !strings.Contains(string(body), `"usage"`) {
			err = fmt.Errorf("no node has figures: %s", body)
		}
		return err
	})
}

// removeMetricsServer removes all of it, and its APIService unless that is another's
// by now.
func removeMetricsServer(t *testing.T) {
	t.Helper()
	if service, err := getAPIService(context.Background(), "v1beta1"); err == nil && service.Labels["k8s-app"] == "metrics-server" {
		if out, err := run("kubectl", "delete", "apiservice", service.Name, "--ignore-not-found"); err != nil {
			outcome.Unsafe(t, "remove metrics-server's APIService: %v: %s", err, out)
		}
	}
	out, err := run("kubectl", "delete", "--ignore-not-found", "--wait", "-n", "kube-system",
		"deployment/metrics-server", "service/metrics-server", "serviceaccount/metrics-server", "rolebinding/metrics-server-auth-reader",
		"clusterrole/system:metrics-server", "clusterrole/system:aggregated-metrics-reader",
		"clusterrolebinding/system:metrics-server", "clusterrolebinding/metrics-server:system:auth-delegator")
	if err != nil {
		outcome.Unsafe(t, "remove metrics-server: %v: %s", err, out)
	}
}
