// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package declaredmetric

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/metricsbackend/metrics-backend-operator/api/v1alpha1"
	"github.com/metricsbackend/metrics-backend-operator/controllers/servingclient"
)

// silencePatience is how long no pod may tell anything before statuses say so: pods
// are restarted, and so is the operator.
const silencePatience = 45 * time.Second

// view is how the metrics of one kind are seen at a moment.
type view struct {
	// tells is false while there is nothing to say but what the statuses say already.
	tells bool
	// problem is why no pod tells anything; nil when one does.
	problem *problem
	// backend serves the metrics' API, and pods are its ready ones.
	backend string
	pods    []podView
}

// problem is a condition's reason and message. Only a change from outside ends one
// that is stalled.
type problem struct {
	stalled         bool
	reason, message string
}

// ready is the status of Ready under a problem: nobody knows, unless it is known that
// nobody serves the metric.
func (p *problem) ready() metav1.ConditionStatus {
	if p.stalled {
		return metav1.ConditionFalse
	}
	return metav1.ConditionUnknown
}

// podView is what one pod said.
type podView struct {
	name    string
	metrics map[metricID]*v1alpha1.DeclaredHealth
}

type metricID struct {
	kind string
	types.NamespacedName
	uid types.UID
}

// groups are the APIs that serve each kind, and the part of the spec that does.
var groups = map[string]struct {
	suffix, field string
	wanted        func(*v1alpha1.MetricsBackendSpec) bool
}{
	kindCustom: {
		".custom.metrics.k8s.io", "spec.customMetrics",
		func(spec *v1alpha1.MetricsBackendSpec) bool { return spec.CustomMetrics != nil },
	},
	kindExternal: {
		".external.metrics.k8s.io", "spec.externalMetrics",
		func(spec *v1alpha1.MetricsBackendSpec) bool { return spec.ExternalMetrics != nil },
	},
}

// look asks each ready pod once and returns how the kinds of metrics are seen.
func (c *Controller) look(ctx context.Context, metrics []*metric) (map[string]view, error) {
	var list v1alpha1.MetricsBackendList
	if err := c.Client.List(ctx, &list); err != nil {
		return nil, fmt.Errorf("list MetricsBackends: %w", err)
	}
	views := map[string]view{}
	asked := map[string]view{}
	for _, kind := range []string{kindCustom, kindExternal} {
		if !slices.ContainsFunc(metrics, func(m *metric) bool { return m.kind == kind }) {
			continue
		}
		backend, why := serves(kind, list.Items)
		if why != nil {
			views[kind] = view{tells: true, problem: why}
			continue
		}
		if _, ok := asked[backend]; !ok {
			asked[backend] = c.ask(ctx, backend)
		}
		views[kind] = asked[backend]
	}
	return views, nil
}

// serves returns the MetricsBackend that serves a kind: of several, the one whose
// version is registered, and then the oldest.
func serves(kind string, backends []v1alpha1.MetricsBackend) (string, *problem) {
	group := groups[kind]
	var serving []*v1alpha1.MetricsBackend
	foreign := ""
	for i := range backends {
		backend := &backends[i]
		switch {
		case !group.wanted(&backend.Spec) || backend.DeletionTimestamp != nil:
		case backend.Spec.Existing != nil:
			foreign = backend.Name
		default:
			serving = append(serving, backend)
		}
	}
	if len(serving) == 0 {
		message := fmt.Sprintf("no MetricsBackend serves %ss: an administrator can set %s in one", kind, group.field)
		if foreign != "" {
			message = fmt.Sprintf("MetricsBackend %s leaves the API to spec.existing, which knows no %ss: an administrator can take that out", foreign, kind)
		}
		return "", &problem{stalled: true, reason: v1alpha1.ReasonNoBackend, message: message}
	}
	slices.SortFunc(serving, func(a, b *v1alpha1.MetricsBackend) int {
		return cmp.Or(registered(b, group.suffix)-registered(a, group.suffix),
			a.CreationTimestamp.Compare(b.CreationTimestamp.Time), strings.Compare(a.Name, b.Name))
	})
	return serving[0].Name, nil
}

// registered counts the registered versions of a group.
func registered(backend *v1alpha1.MetricsBackend, suffix string) int {
	n := 0
	for _, service := range backend.Status.APIServices {
		if strings.HasSuffix(service.Name, suffix) && service.State != v1alpha1.APIServicePending {
			n++
		}
	}
	return n
}

// ask asks every ready pod of a backend.
func (c *Controller) ask(ctx context.Context, backend string) view {
	entries, known := c.Directory.Pods(backend)
	pods := make([]*podView, len(entries))
	errs := make([]error, len(entries))
	var asked sync.WaitGroup
	for i, entry := range entries {
		asked.Go(func() { pods[i], errs[i] = c.askPod(ctx, entry) })
	}
	asked.Wait()
	v := view{backend: backend}
	for _, pod := range pods {
		if pod != nil {
			v.pods = append(v.pods, *pod)
		}
	}
	slices.SortFunc(v.pods, func(a, b podView) int { return strings.Compare(a.name, b.name) })
	silent := len(v.pods) == 0
	lasted := c.silence.lasted(backend, silent, c.Clock.Now())
	switch {
	case !silent:
		v.tells = true
	case known && lasted >= silencePatience:
		v.tells, v.problem = true, silenceOf(backend, entries, errs)
	}
	return v
}

// silenceOf is why no pod of a backend tells anything.
func silenceOf(backend string, entries []servingclient.Entry, errs []error) *problem {
	if len(entries) == 0 {
		return &problem{
			reason:  v1alpha1.ReasonDependencyNotReady,
			message: fmt.Sprintf("no serving pod of MetricsBackend %s is ready: see its condition ServingReady", backend),
		}
	}
	for i, err := range errs {
		if err != nil {
			return &problem{
				reason:  v1alpha1.ReasonProbeFailed,
				message: fmt.Sprintf("the operator cannot ask pod %s of MetricsBackend %s: %v", entries[i].Name, backend, err),
			}
		}
	}
	return &problem{
		reason:  v1alpha1.ReasonNotReported,
		message: fmt.Sprintf("the image of MetricsBackend %s's serving pods is too old to tell of declared metrics: use the one released with the operator", backend),
	}
}

// askPod returns nil when the pod has no such report.
func (c *Controller) askPod(ctx context.Context, entry servingclient.Entry) (*podView, error) {
	token, err := c.Tokens.Token(ctx, entry.Account)
	if err != nil {
		countPoll(err)
		return nil, err
	}
	pod := entry.Pod
	pod.Token = token
	report, err := c.Pods.Declared(ctx, pod)
	countPoll(err)
	if errors.Is(err, servingclient.ErrUnauthorized) {
		// The account may have been replaced, and its token is worth nothing.
		c.Tokens.Forget(entry.Account)
	}
	if err != nil || report == nil {
		return nil, err
	}
	view := &podView{name: entry.Name, metrics: make(map[metricID]*v1alpha1.DeclaredHealth, len(report.Metrics))}
	for i := range report.Metrics {
		h := &report.Metrics[i]
		view.metrics[metricID{h.Kind, types.NamespacedName{Namespace: h.Namespace, Name: h.Name}, h.UID}] = h
	}
	return view, nil
}

// health returns what the pods say of a metric, in their order; nil where one has
// not taken up the metric's spec yet.
func (v *view) health(m *metric) []*v1alpha1.DeclaredHealth {
	id := metricID{m.kind, types.NamespacedName{Namespace: m.object.GetNamespace(), Name: m.object.GetName()}, m.object.GetUID()}
	all := make([]*v1alpha1.DeclaredHealth, len(v.pods))
	for i, pod := range v.pods {
		if h := pod.metrics[id]; h != nil && h.Generation >= m.object.GetGeneration() {
			all[i] = h
		}
	}
	return all
}

// newest returns what the pod said that has the newest values, or nil.
func newest(all []*v1alpha1.DeclaredHealth) *v1alpha1.DeclaredHealth {
	var best *v1alpha1.DeclaredHealth
	for _, h := range all {
		if h == nil || !h.Ready && !h.Fallback || h.Values == 0 && h.Value == "" {
			continue
		}
		if best == nil || best.Time.Before(ptrTo(h.Time)) {
			best = h
		}
	}
	return best
}

func ptrTo(t metav1.Time) *metav1.Time { return &t }
