// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package metricsbackend

import (
	"fmt"
	"slices"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/metricsbackend/metrics-backend-operator/api/v1alpha1"
)

const (
	servingName     = "metrics-serving-" + backendName
	ownScrapeName   = servingName + "-scrape-by-serving"
	scrapeImage     = imageFuture
	earlierImage    = imageBoth
	scrapeAccountOf = systemNamespace + "/" + servingName + "-scrape"
)

// ofEarlierImage pods do not know the account of scrapes.
func ofEarlierImage(p *corev1.Pod) bool {
	return p.Spec.Containers[0].Image == earlierImage || namedAccount(&p.Spec) == ""
}

func namedAccount(spec *corev1.PodSpec) string {
	for _, e := range spec.Containers[0].Env {
		if e.Name == v1alpha1.ScrapeAccountVariable {
			return e.Value
		}
	}
	return ""
}

// mayScrape reports whether a ServiceAccount of serving's namespace may get nodes/metrics.
func (fc *fakeCluster) mayScrape(account string) bool {
	fc.t.Helper()
	var bindings rbacv1.ClusterRoleBindingList
	fc.list(&bindings)
	return slices.ContainsFunc(bindings.Items, func(b rbacv1.ClusterRoleBinding) bool {
		bound := slices.ContainsFunc(b.Subjects, func(s rbacv1.Subject) bool { return s.Namespace == systemNamespace && s.Name == account })
		var role rbacv1.ClusterRole
		if !bound || fc.raw.Get(fc.t.Context(), client.ObjectKey{Name: b.RoleRef.Name}, &role) != nil {
			return false
		}
		return slices.ContainsFunc(role.Rules, func(r rbacv1.PolicyRule) bool { return slices.Contains(r.Resources, "nodes/metrics") })
	})
}

// refusedByKubelets returns a ready pod whose token kubelets refuse, or "".
func (fc *fakeCluster) refusedByKubelets() string {
	for _, p := range fc.pods() {
		account := servingName + "-scrape"
		if fc.ownScrapes(&p) {
			account = servingName
		}
		if isReady(&p) && !fc.mayScrape(account) {
			return fmt.Sprintf("pod %s (%s) sends the token of %s, which kubelets refuse", p.Name, p.Spec.Containers[0].Image, account)
		}
	}
	return ""
}

func (fc *fakeCluster) scrapingDeployment() *appsv1.Deployment {
	fc.t.Helper()
	deployment := &appsv1.Deployment{}
	fc.get(client.ObjectKey{Namespace: systemNamespace, Name: servingName}, deployment)
	return deployment
}

// becomeEarlier makes the objects those of an operator that knows no account of scrapes.
func (fc *fakeCluster) becomeEarlier() {
	fc.t.Helper()
	var role rbacv1.ClusterRole
	fc.get(client.ObjectKey{Name: servingName}, &role)
	role.Rules = append(role.Rules, rbacv1.PolicyRule{APIGroups: []string{""}, Resources: []string{"nodes/metrics"}, Verbs: []string{"get"}})
	fc.update(&role)
	for _, object := range []client.Object{&rbacv1.ClusterRole{}, &rbacv1.ClusterRoleBinding{}} {
		object.SetName(servingName + "-scrape")
		fc.delete(object)
		object = object.DeepCopyObject().(client.Object)
		object.SetName(ownScrapeName)
		_ = fc.raw.Delete(fc.t.Context(), object)
	}
	account := &corev1.ServiceAccount{}
	account.SetNamespace(systemNamespace)
	account.SetName(servingName + "-scrape")
	fc.delete(account)
	deployment := fc.scrapingDeployment()
	deployment.Spec.Template.Spec.Containers[0].Env = nil
	fc.update(deployment)
	for _, p := range fc.pods() {
		p.Spec.Containers[0].Env = nil
		fc.update(&p)
	}
}

// At no time do kubelets refuse the token that a ready pod sends, whatever the order in which
// operator and image are updated. Only pods that know no other account may use their own.
func TestScrapeAccount(t *testing.T) {
	t.Parallel()
	image := func(name string) func(*fakeCluster) {
		return func(fc *fakeCluster) {
			fc.change(func(spec *v1alpha1.MetricsBackendSpec) { spec.Serving.Image = name })
		}
	}
	earlier := func(fc *fakeCluster) {
		becomeReadyWith(fc, earlierImage)
		fc.becomeEarlier()
	}
	cases := map[string]struct {
		before func(*fakeCluster)
		steps  []func(*fakeCluster)
		// never: the account of serving may not scrape at any time; own: it may in the end.
		never, own bool
	}{
		"installed":                           {never: true},
		"operator and image updated":          {before: earlier},
		"operator updated, image in the spec": {before: func(fc *fakeCluster) { image(earlierImage)(fc); earlier(fc) }, own: true},
		"and the image later":                 {before: func(fc *fakeCluster) { image(earlierImage)(fc); earlier(fc) }, steps: []func(*fakeCluster){image("")}},
		"image of an earlier release":         {steps: []func(*fakeCluster){image(earlierImage)}, own: true},
		"and back":                            {steps: []func(*fakeCluster){image(earlierImage), image("")}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			fc := newFakeCluster(t, newBackend())
			fc.ownScrapes = ofEarlierImage
			// Those of an earlier image only become ready with what kubelets answer.
			fc.unready = func(p *corev1.Pod) bool { return fc.ownScrapes(p) && !fc.mayScrape(servingName) }
			if tc.before != nil {
				tc.before(fc)
			}
			for _, step := range append([]func(*fakeCluster){func(*fakeCluster) {}}, tc.steps...) {
				step(fc)
				// A restart of the operator forgets what pods reported.
				for range 3 {
					r := fc.operator(scrapeImage)
					for range 40 {
						mustReconcile(t, r)
						for range 2 {
							if why := fc.refusedByKubelets(); why != "" {
								t.Fatalf("%s\n%s", why, fc.show())
							}
							if tc.never && fc.mayScrape(servingName) {
								t.Fatalf("the account of serving may scrape\n%s", fc.show())
							}
							fc.step()
						}
					}
				}
			}
			if !fc.isReady() {
				t.Errorf("not ready:\n%s", fc.show())
			}
			if got := fc.mayScrape(servingName); got != tc.own {
				t.Errorf("the account of serving may scrape: %v, want %v", got, tc.own)
			}
			if got := namedAccount(&fc.scrapingDeployment().Spec.Template.Spec); got != scrapeAccountOf {
				t.Errorf("pods are told of account %q, want %s", got, scrapeAccountOf)
			}
		})
	}
}
