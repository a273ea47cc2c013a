//go:build integration

// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package serving

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/json"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/envtest"

	"github.com/metricsbackend/metrics-backend-operator/api/v1alpha1"
	"github.com/metricsbackend/metrics-backend-operator/test/outcome"
)

const backendName = "followed"

func newBackendClient(t *testing.T) client.Client {
	t.Helper()
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{v1alpha1.AddToScheme, apiextensionsv1.AddToScheme} {
		if err := add(scheme); err != nil {
			t.Fatal(err)
		}
	}
	c, err := client.New(cluster.config, client.Options{Scheme: scheme})
	if err != nil {
		t.Fatalf("make a client of MetricsBackends: %v", err)
	}
	return c
}

func newBackend(interval time.Duration) *v1alpha1.MetricsBackend {
	return &v1alpha1.MetricsBackend{
		ObjectMeta: metav1.ObjectMeta{Name: backendName},
		Spec: v1alpha1.MetricsBackendSpec{ResourceMetrics: &v1alpha1.ResourceMetricsSpec{
			Scrape: v1alpha1.ScrapeSpec{Interval: &metav1.Duration{Duration: interval}, Timeout: &metav1.Duration{Duration: time.Second}},
		}},
	}
}

// readReport returns what the process reports at a path.
func readReport[T any](ctx context.Context, p *process, path, token string) (*T, error) {
	status, body, err := p.get(ctx, path, token)
	if err != nil || status != http.StatusOK {
		return nil, fmt.Errorf("get %s: status %d, %w: %s", path, status, err, body)
	}
	report := new(T)
	if err := json.Unmarshal([]byte(body), report); err != nil {
		return nil, fmt.Errorf("decode %s: %w", body, err)
	}
	return report, nil
}

// edit changes a MetricsBackend and returns it.
func edit(t *testing.T, backends client.Client, name string, change func(*v1alpha1.MetricsBackend)) *v1alpha1.MetricsBackend {
	t.Helper()
	backend := &v1alpha1.MetricsBackend{}
	if err := backends.Get(t.Context(), client.ObjectKey{Name: name}, backend); err != nil {
		t.Fatalf("get the MetricsBackend: %v", err)
	}
	change(backend)
	if err := backends.Update(t.Context(), backend); err != nil {
		t.Fatalf("update the MetricsBackend: %v", err)
	}
	return backend
}

// TestFollowsItsBackend changes the MetricsBackend under one running process.
func TestFollowsItsBackend(t *testing.T) {
	kubelet := cluster.startNode(t, "node-a", map[string]string{"zone": "x"})
	cluster.startNode(t, "node-b", map[string]string{"zone": "y"})
	backends := newBackendClient(t)
	reader := cluster.token(t, "reader")
	p := cluster.startServing(t, backendName, "--backend="+backendName)

	wait := func(what string, check func(*v1alpha1.SourceReport) error) {
		t.Helper()
		outcome.Eventually(t, time.Minute, what, func(context.Context) error {
			report, err := readReport[v1alpha1.SourceReport](t.Context(), p, v1alpha1.SourcesPath, reader)
			if err != nil {
				return err
			}
			if err := check(report); err != nil {
				return fmt.Errorf("%w: %+v", err, report)
			}
			return nil
		})
	}
	// inForce waits for a generation and a number of healthy nodes.
	inForce := func(what string, generation int64, nodes int) {
		t.Helper()
		wait(what, func(r *v1alpha1.SourceReport) error {
			if r.ObservedGeneration != generation || r.Kubelets.Nodes != nodes || r.Kubelets.Healthy != nodes {
				return fmt.Errorf("want generation %d and %d healthy nodes", generation, nodes)
			}
			return nil
		})
	}
	update := func(change func(*v1alpha1.MetricsBackend)) *v1alpha1.MetricsBackend {
		t.Helper()
		return edit(t, backends, backendName, change)
	}

	inForce("without the object, defaults are in force", 0, 2)

	backend := newBackend(time.Second)
	if err := backends.Create(t.Context(), backend); err != nil {
		t.Fatalf("create the MetricsBackend: %v", err)
	}
	inForce("the object is in force", backend.Generation, 2)
	since := time.Now()
	outcome.Eventually(t, 20*time.Second, "the node is scraped every second", func(context.Context) error {
		if n := kubelet.requests(since); n < 5 {
			return fmt.Errorf("%d requests in %s", n, time.Since(since))
		}
		return nil
	})
	p.waitReady(t)

	backend = update(func(b *v1alpha1.MetricsBackend) {
		b.Spec.ResourceMetrics.Scrape.NodeSelector = &metav1.LabelSelector{MatchLabels: map[string]string{"zone": "x"}}
	})
	inForce("a node selector is in force", backend.Generation, 1)

	backend = update(func(b *v1alpha1.MetricsBackend) { b.Spec.ResourceMetrics.KubeletTLS.CABundle = cluster.servingCA.PEM })
	wait("kubelets are not of that authority", func(r *v1alpha1.SourceReport) error {
		if r.ObservedGeneration != backend.Generation || len(r.Kubelets.Failures) != 1 || r.Kubelets.Failures[0].Reason != v1alpha1.ScrapeCertificateUntrusted {
			return fmt.Errorf("want %s", v1alpha1.ScrapeCertificateUntrusted)
		}
		return nil
	})

	good := update(func(b *v1alpha1.MetricsBackend) { b.Spec.ResourceMetrics.KubeletTLS.CABundle = cluster.kubeletCA.PEM })
	inForce("kubelets are of the right authority", good.Generation, 1)

	// The schema cannot see that there is no certificate between the lines.
	update(func(b *v1alpha1.MetricsBackend) {
		b.Spec.ResourceMetrics.KubeletTLS.CABundle = []byte("-----BEGIN CERTIFICATE-----\nQQ==\n-----END CERTIFICATE-----\n")
	})
	outcome.Eventually(t, 20*time.Second, "the log and the metrics report an unusable spec", func(context.Context) error {
		_, body, err := p.get(t.Context(), "/metrics", reader)
		if err != nil {
			return err
		}
		if !strings.Contains(body, "metrics_backend_config_last_reload_successful 0\n") {
			return fmt.Errorf("metrics_backend_config_last_reload_successful is not 0")
		}
		if log := p.log.String(); !strings.Contains(log, "kubeletTLS.caBundle") {
			return fmt.Errorf("the log does not name the field")
		}
		return nil
	})
	inForce("the spec before the unusable one stays", good.Generation, 1)

	if err := backends.Delete(t.Context(), backend); err != nil {
		t.Fatalf("delete the MetricsBackend: %v", err)
	}
	outcome.Eventually(t, 20*time.Second, "the deletion is logged", func(context.Context) error { return p.logged("The MetricsBackend was deleted") })
	inForce("the settings outlive the object", good.Generation, 1)

	if err := uninstallCRD(t, backends); err != nil {
		t.Fatalf("remove the CRD: %v", err)
	}
	outcome.Eventually(t, time.Minute, "the missing CRD is logged", func(context.Context) error { return p.logged(`reason="CRDMissing"`) })
	inForce("the settings outlive the CRD", good.Generation, 1)
	if err := p.ready(t.Context()); err != nil {
		t.Errorf("not ready without the CRD: %v", err)
	}

	if _, err := envtest.InstallCRDs(cluster.config, envtest.CRDInstallOptions{Paths: []string{"../../../config/crd/bases"}, MaxTime: time.Minute}); err != nil {
		t.Fatalf("install the CRD again: %v", err)
	}
	backend = newBackend(2 * time.Second)
	outcome.Eventually(t, 20*time.Second, "a MetricsBackend can be created again", func(context.Context) error { return backends.Create(t.Context(), backend) })
	t.Cleanup(func() {
		if err := backends.Delete(context.WithoutCancel(t.Context()), backend); err != nil {
			t.Errorf("delete the MetricsBackend: %v", err)
		}
	})
	inForce("a new object is followed", backend.Generation, 2)
}

// logged returns nil when the process has logged a text.
func (p *process) logged(text string) error {
	if !strings.Contains(p.log.String(), text) {
		return fmt.Errorf("%q is not in the log", text)
	}
	return nil
}

func uninstallCRD(t *testing.T, c client.Client) error {
	t.Helper()
	crd := &apiextensionsv1.CustomResourceDefinition{ObjectMeta: metav1.ObjectMeta{Name: "metricsbackends.metricsbackend.io"}}
	if err := c.Delete(t.Context(), crd); err != nil {
		return err
	}
	outcome.Eventually(t, time.Minute, "the CRD is gone", func(context.Context) error {
		err := c.Get(t.Context(), client.ObjectKeyFromObject(crd), crd)
		if err == nil {
			return errors.New("it is still there")
		}
		return client.IgnoreNotFound(err)
	})
	return nil
}
