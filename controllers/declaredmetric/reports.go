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

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/metrics/pkg/apis/custom_metrics"
	"k8s.io/metrics/pkg/apis/external_metrics"

	"github.com/metricsbackend/metrics-backend-operator/api/v1alpha1"
	"github.com/metricsbackend/metrics-backend-operator/controllers/servingclient"
	"github.com/metricsbackend/metrics-backend-operator/internal/text"
)

// missingGrace is how long all reports may be missing before statuses say so: pods are
// restarted, and so is the operator.
const missingGrace = 45 * time.Second

// reports are the reports of one kind of metrics.
type reports struct {
	// usable is false while statuses are left as they are.
	usable bool
	// problem is why there are no reports, if so.
	problem *problem
	// pods are the ready pods of the backend that serves the kind, by name.
	pods []*podReport
}

// problem is a condition's reason and message. A stalled one only ends with a change of a
// MetricsBackend.
type problem struct {
	stalled         bool
	reason, message string
}

// podReport is the report of one pod.
type podReport struct {
	name    string
	metrics map[metricID]*v1alpha1.DeclaredHealth
}

type metricID struct {
	kind string
	types.NamespacedName
	uid types.UID
}

func (m *metric) id() metricID {
	return metricID{m.kind, types.NamespacedName{Namespace: m.Namespace, Name: m.Name}, m.UID}
}

// groups are the API group of each kind.
var groups = map[string]string{kindCustom: custom_metrics.GroupName, kindExternal: external_metrics.GroupName}

// tooMany is what is known of metrics beyond the limits: serving pods do not use them. The
// message does not change with the number of metrics, so that statuses are written once.
var tooMany = map[string]*reports{kindCustom: reportsTooMany(kindCustom), kindExternal: reportsTooMany(kindExternal)}

func reportsTooMany(kind string) *reports {
	return &reports{usable: true, problem: &problem{stalled: true, reason: v1alpha1.ReasonTooManyMetrics, message: fmt.Sprintf(
		"there are more %ss than are used: the oldest %d of a namespace, and fewer if the cluster has more than %d. Delete older ones that are not needed",
		kind, v1alpha1.MaxMetricsPerNamespace, v1alpha1.MaxMetrics)}}
}

// readReports returns the reports of the ready pods, by kind.
func (c *Controller) readReports(ctx context.Context, metrics []*metric) (map[string]*reports, error) {
	var list v1alpha1.MetricsBackendList
	if err := c.Client.List(ctx, &list); err != nil {
		return nil, fmt.Errorf("list MetricsBackends: %w", err)
	}
	byKind, byBackend := map[string]*reports{}, map[string]*reports{}
	existing := sets.New[metricID]()
	for _, m := range metrics {
		if !m.unused {
			existing.Insert(m.id())
		}
	}
	for _, kind := range []string{kindCustom, kindExternal} {
		if !slices.ContainsFunc(metrics, func(m *metric) bool { return m.kind == kind }) {
			continue
		}
		backend, none := backendOf(kind, list.Items)
		if none != nil {
			byKind[kind] = &reports{usable: true, problem: none}
			continue
		}
		if _, ok := byBackend[backend]; !ok {
			byBackend[backend] = c.readBackend(ctx, backend, existing)
		}
		byKind[kind] = byBackend[backend]
	}
	return byKind, nil
}

// backendOf returns the MetricsBackend that serves a kind: of several, the one with most
// registered versions, and then the oldest.
func backendOf(kind string, backends []v1alpha1.MetricsBackend) (string, *problem) {
	group := groups[kind]
	var serving []*v1alpha1.MetricsBackend
	foreign := ""
	for i := range backends {
		backend := &backends[i]
		switch {
		case !backend.Spec.Section(group).Set || backend.DeletionTimestamp != nil:
		case backend.Spec.Existing != nil:
			foreign = backend.Name
		default:
			serving = append(serving, backend)
		}
	}
	if len(serving) == 0 {
		message := fmt.Sprintf("no MetricsBackend serves %ss: an administrator can set spec.%s in one", kind, new(v1alpha1.MetricsBackendSpec).Section(group).Field)
		if foreign != "" {
			message = fmt.Sprintf("MetricsBackend %s leaves the API to spec.existing, which knows no %ss: an administrator can take that out", foreign, kind)
		}
		return "", &problem{stalled: true, reason: v1alpha1.ReasonNoBackend, message: message}
	}
	slices.SortFunc(serving, func(a, b *v1alpha1.MetricsBackend) int {
		return cmp.Or(registered(b, group)-registered(a, group),
			a.CreationTimestamp.Compare(b.CreationTimestamp.Time), strings.Compare(a.Name, b.Name))
	})
	return serving[0].Name, nil
}

// registered returns the number of registered versions of a group.
func registered(backend *v1alpha1.MetricsBackend, group string) int {
	n := 0
	for _, service := range backend.Status.APIServices {
		if strings.HasSuffix(service.Name, "."+group) && !service.State.IsPending() {
			n++
		}
	}
	return n
}

// readBackend reads what the ready pods of a backend report of existing metrics.
func (c *Controller) readBackend(ctx context.Context, backend string, existing sets.Set[metricID]) *reports {
	entries, known := c.Directory.Pods(backend)
	pods := make([]*podReport, len(entries))
	errs := make([]error, len(entries))
	var reads sync.WaitGroup
	for i, entry := range entries {
		reads.Go(func() { pods[i], errs[i] = c.readPod(ctx, entry, existing) })
	}
	reads.Wait()
	r := &reports{pods: slices.DeleteFunc(pods, func(pod *podReport) bool { return pod == nil })}
	slices.SortFunc(r.pods, func(a, b *podReport) int { return strings.Compare(a.name, b.name) })
	if len(r.pods) > 0 {
		delete(c.missingSince, backend)
		r.usable = true
		return r
	}
	now := c.Clock.Now()
	if _, ok := c.missingSince[backend]; !ok {
		c.missingSince[backend] = now
	}
	switch r.usable = known && now.Sub(c.missingSince[backend]) >= missingGrace; {
	case !r.usable:
	case len(entries) == 0:
		r.problem = &problem{reason: v1alpha1.ReasonDependencyNotReady,
			message: fmt.Sprintf("no serving pod of MetricsBackend %s is ready: see its condition ServingReady", backend)}
	default:
		r.problem = &problem{reason: v1alpha1.ReasonProbeFailed,
			message: fmt.Sprintf("the operator cannot ask pod %s of MetricsBackend %s: %v", entries[0].Name, backend, errs[0])}
	}
	return r
}

// readPod reads the report of a pod. It keeps no more of one than a few KiB for
// each existing metric: a compromised pod may send anything.
func (c *Controller) readPod(ctx context.Context, entry servingclient.Entry, existing sets.Set[metricID]) (*podReport, error) {
	token, err := c.Tokens.Token(ctx, entry.Account)
	if err != nil {
		countPoll(err)
		return nil, err
	}
	pod := entry.Pod
	pod.Token = token
	result := &podReport{name: entry.Name, metrics: map[metricID]*v1alpha1.DeclaredHealth{}}
	err = c.Pods.Declared(ctx, pod, func(h v1alpha1.DeclaredHealth) {
		id := metricID{h.Kind, types.NamespacedName{Namespace: h.Namespace, Name: h.Name}, h.UID}
		if !existing.Has(id) {
			return
		}
		h.Message, h.Value = text.Truncate(h.Message, maxMessage), text.Truncate(h.Value, maxValue)
		h.Reason = text.Truncate(h.Reason, maxReason)
		result.metrics[id] = &h
	})
	countPoll(err)
	if errors.Is(err, servingclient.ErrUnauthorized) {
		// The account may have been replaced, which invalidates its token.
		c.Tokens.Forget(entry.Account)
	}
	if err != nil {
		return nil, err
	}
	return result, nil
}

// health returns the state of a metric in each pod, or nil for a pod that has not applied the
// metric's newest spec yet.
func (r *reports) health(m *metric) []*v1alpha1.DeclaredHealth {
	all := make([]*v1alpha1.DeclaredHealth, len(r.pods))
	for i, pod := range r.pods {
		if h := pod.metrics[m.id()]; h != nil && h.Generation >= m.Generation {
			all[i] = h
		}
	}
	return all
}

// newest returns the state with the newest values, or nil.
func newest(all []*v1alpha1.DeclaredHealth) *v1alpha1.DeclaredHealth {
	var best *v1alpha1.DeclaredHealth
	for _, h := range all {
		if h == nil || !h.Ready && !h.Fallback || h.Values == 0 && h.Value == "" {
			continue
		}
		if best == nil || best.Time.Before(&h.Time) {
			best = h
		}
	}
	return best
}
