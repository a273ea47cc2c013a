// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package metricsbackend

import (
	"context"
	"slices"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"
	apiregistrationv1ac "k8s.io/kube-aggregator/pkg/client/applyconfiguration/apiregistration/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/metricsbackend/metrics-backend-operator/api/v1alpha1"
	"github.com/metricsbackend/metrics-backend-operator/controllers/aggregator"
	"github.com/metricsbackend/metrics-backend-operator/controllers/metricsbackend/lifecycle"
)

// breaking is a defect, the change in which the explorer must find it, and a part of what it says.
type breaking struct {
	change string
	breaks func(*run, *Reconciler)
	want   string
}

// decides changes each decision.
func decides(decide func(*lifecycle.Version) lifecycle.Decision) func(*run, *Reconciler) {
	return func(x *run, r *Reconciler) {
		r.next = func(v *lifecycle.Version) lifecycle.Decision { return x.noteDecision(v, decide(v)) }
	}
}

// readsAround changes the reads around the cache.
func readsAround(funcs func(cached client.Client) interceptor.Funcs) func(*run, *Reconciler) {
	return func(_ *run, r *Reconciler) {
		r.APIReader = interceptor.NewClient(r.APIReader.(client.WithWatch), funcs(r.Client))
	}
}

func breakings() map[string]breaking {
	const older = "an older image and its version"
	const slow = 6 // steps of a kube-apiserver that is far behind
	return map[string]breaking{
		"one kube-apiserver's discovery is not confirmed": {older, func(x *run, r *Reconciler) {
			x.views[1].delay = slow
			r.Aggregator = firstOnly{r.Aggregator}
		}, "whose ready pod"},
		"pods are updated before versions are retired": {older, func(_ *run, r *Reconciler) {
			i := slices.IndexFunc(r.phases, func(p phase) bool { return p.name == "retire" })
			r.phases = append(slices.Delete(slices.Clone(r.phases), i, i+1), r.phases[i])
		}, "does not serve it"},
		"nothing is retired": {older, func(_ *run, r *Reconciler) {
			r.phases = slices.DeleteFunc(slices.Clone(r.phases), func(p phase) bool { return p.name == "retire" })
		}, "does not serve it"},
		"one kube-apiserver does not know the new authority": {"the authority is rotated", func(x *run, r *Reconciler) {
			x.views[1].delay = slow
			r.certificateReconciler.Aggregator = firstOnly{r.Aggregator}
		}, "and refuses its pod"},
		"the pods go before requests do": {"v1beta1 alone is given back", func(x *run, r *Reconciler) {
			x.views[1].delay = slow
			r.next = func(v *lifecycle.Version) lifecycle.Decision {
				v.Known.Insert(lifecycle.NeedRouting)
				v.Routing = ""
				return x.noteDecision(v, lifecycle.Decide(v))
			}
		}, "where nobody is, while metrics-server serves it"},
		"no record of the previous owner": {"taken over", func(_ *run, r *Reconciler) {
			r.Client = interceptor.NewClient(r.Client.(client.WithWatch), interceptor.Funcs{
				Apply: func(ctx context.Context, c client.WithWatch, o runtime.ApplyConfiguration, opts ...client.ApplyOption) error {
					if service, ok := o.(*apiregistrationv1ac.APIServiceApplyConfiguration); ok {
						delete(service.Annotations, v1alpha1.AnnotationPreviousOwner)
					}
					return c.Apply(ctx, o, opts...)
				},
			})
		}, "without a record of its owner"},
		"a takeover despite Refuse": {"Refuse", decides(func(v *lifecycle.Version) lifecycle.Decision {
			v.Adoption = v1alpha1.AdoptionAlways
			return lifecycle.Decide(v)
		}), `although adoption is "Refuse"`},
		"given back to an owner that does not answer": {"not given back to an owner that fails", decides(func(v *lifecycle.Version) lifecycle.Decision {
			v.Previous = lifecycle.PreviousService{}
			return lifecycle.Decide(v)
		}), "which answers, to Service kube-system/metrics-server, which does not"},
		"an endless contest": {"contested", decides(func(v *lifecycle.Version) lifecycle.Decision {
			if v.Contest != nil {
				v.Contest = &lifecycle.Contest{}
			}
			return lifecycle.Decide(v)
		}), "it is not done, or still writes"},
		"two operators write": {"a version is taken out beside another operator", func(_ *run, r *Reconciler) {
			r.installation.Namespace, r.Namespaces = systemNamespace, []string{systemNamespace, secondNamespace}
		}, "it is not done, or still writes"},
		// The next three are mends of what the explorer has found.
		"the cache says that the namespace is missing": {"a version is added", readsAround(func(cached client.Client) interceptor.Funcs {
			return interceptor.Funcs{Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, o client.Object, opts ...client.GetOption) error {
				if o, ok := o.(*metav1.PartialObjectMetadata); ok && o.Kind == "Namespace" {
					return cached.Get(ctx, key, o, opts...)
				}
				return c.Get(ctx, key, o, opts...)
			}}
		}), "v1beta1 is not in discovery"},
		"the cache says that the successor is not ready": {"the older MetricsBackend is deleted", readsAround(func(cached client.Client) interceptor.Funcs {
			return interceptor.Funcs{List: func(ctx context.Context, c client.WithWatch, l client.ObjectList, opts ...client.ListOption) error {
				if l, ok := l.(*v1alpha1.MetricsBackendList); ok {
					return cached.List(ctx, l, opts...)
				}
				return c.List(ctx, l, opts...)
			}}
		}), "is not in discovery"},
		"the cache says that there are no pods": {"a version is taken out that clients use", readsAround(func(client.Client) interceptor.Funcs {
			return interceptor.Funcs{Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, o client.Object, opts ...client.GetOption) error {
				if o, ok := o.(*appsv1.Deployment); ok {
					return apierrors.NewNotFound(corev1.Resource("deployments"), o.Name)
				}
				return c.Get(ctx, key, o, opts...)
			}}
		}), "v1beta1 is not in discovery"},
	}
}

// firstOnly asks only the first kube-apiserver.
type firstOnly struct{ Aggregator }

func (f firstOnly) Discovered(ctx context.Context, versions []schema.GroupVersion) (*aggregator.Presence, error) {
	presence, err := f.Aggregator.Discovered(ctx, versions)
	if err == nil {
		presence.Asked = presence.Asked[:1]
		for gv, addresses := range presence.Listed {
			presence.Listed[gv] = slices.DeleteFunc(addresses, func(address string) bool { return address != presence.Asked[0] })
		}
	}
	return presence, err
}

func (f firstOnly) Lagging(ctx context.Context, name string, upToDate func(*apiregistrationv1.APIService) bool) (lagging, unreachable []string, err error) {
	lagging, unreachable, err = f.Aggregator.Lagging(ctx, name, upToDate)
	return slices.DeleteFunc(lagging, func(address string) bool { return !strings.HasPrefix(address, "192.0.2.1:") }), unreachable, err
}

// TestBreaks: the explorer finds each defect, without a fault or with one, and tells the shortest way to it.
func TestBreaks(t *testing.T) {
	t.Parallel()
	for name, tc := range sampled(t, breakings()) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := changes()[tc.change]
			normal := newRun(c.cluster(t, tc.change), c)
			normal.breaks = tc.breaks
			shortest, found := normal, normal.toEnd(nil)
			for _, f := range faultsOf(normal.points, c) {
				if found != "" {
					break
				}
				shortest = normal.late(t, f.fault)
				found = shortest.toEnd(nil)
			}
			if !strings.Contains(found, tc.want) {
				t.Errorf("it found %q, want %q", found, tc.want)
			}
			t.Logf("%s\n%s", strings.Join(shortest.story, "\n"), found)
		})
	}
}
