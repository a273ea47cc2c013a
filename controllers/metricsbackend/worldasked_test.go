// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package metricsbackend

import (
	"context"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/metricsbackend/metrics-backend-operator/api/v1alpha1"
	"github.com/metricsbackend/metrics-backend-operator/controllers/aggregator"
	"github.com/metricsbackend/metrics-backend-operator/controllers/servingclient"
)

// Ask implements PodAsker.
func (w *world) Ask(_ context.Context, pod servingclient.Pod, versions []schema.GroupVersion) (*servingclient.Answer, error) {
	if w.mute {
		return nil, errors.New("dial: connection refused")
	}
	if pod.DiscoveryOnly {
		return w.theirs.answer(pod, versions)
	}
	if len(pod.CABundle) == 0 || pod.Token == "" {
		return nil, fmt.Errorf("asked without authority or token: %+v", pod)
	}
	for _, p := range w.pods() {
		if p.Status.PodIP+":10443" != pod.Address {
			continue
		}
		chain, err := w.shake(p.Name, pod)
		if err != nil {
			return nil, err
		}
		answer := &servingclient.Answer{
			Chain:   chain,
			Serves:  map[schema.GroupVersion]bool{},
			Sources: w.reportOfSources(),
		}
		for _, gv := range versions {
			answer.Serves[gv] = serves(&p, gv)
			if w.failing != nil && w.failing(&p, gv) != "" {
				if answer.Failing == nil {
					answer.Failing = map[schema.GroupVersion]string{}
				}
				answer.Failing[gv] = w.failing(&p, gv)
			}
		}
		if w.busy && answer.Failing != nil {
			return answer, errors.New("answered 429 Too Many Requests")
		}
		if w.half != nil {
			answer.Sources = nil
			return answer, w.half
		}
		answer.Consumers = &v1alpha1.ConsumerReport{}
		if w.consumers != nil {
			answer.Consumers, answer.ConsumersError = w.consumers(&p)
		}
		return answer, nil
	}
	return nil, fmt.Errorf("no pod at %s", pod.Address)
}

func (w *world) reportOfSources() *v1alpha1.SourceReport {
	report := v1alpha1.SourceReport{}
	if w.sources != nil {
		report = *w.sources
	}
	report.Kubelets = w.report
	if !w.behind {
		report.ObservedGeneration = 1 << 30
	}
	return &report
}

// Discovered implements Aggregator.
func (w *world) Discovered(_ context.Context, versions []schema.GroupVersion) (*aggregator.Presence, error) {
	if w.unreachable {
		return nil, errors.New("no route to host")
	}
	presence := &aggregator.Presence{Listed: map[schema.GroupVersion][]string{}, Asked: []string{"192.0.2.1:6443"}}
	if w.second != nil {
		presence.Asked = append(presence.Asked, "192.0.2.2:6443")
	}
	for _, gv := range versions {
		if w.discovered[gv] {
			presence.Listed[gv] = []string{"192.0.2.1:6443"}
		}
		if w.second[gv] {
			presence.Listed[gv] = append(presence.Listed[gv], "192.0.2.2:6443")
		}
	}
	return presence, nil
}

// Lagging implements Aggregator: the caches of the kube-apiservers follow at once,
// but for lagging ones.
func (w *world) Lagging(ctx context.Context, name string, follows func(*apiregistrationv1.APIService) bool) (lagging, unreachable []string, err error) {
	if w.unreachable {
		return nil, nil, errors.New("no route to host")
	}
	for _, replica := range w.replicas {
		var service apiregistrationv1.APIService
		switch {
		case replica.down:
			unreachable = append(unreachable, replica.address)
		case replica.lags,
			w.raw.Get(ctx, client.ObjectKey{Name: name}, &service) != nil, !follows(&service):
			lagging = append(lagging, replica.address)
		}
	}
	return lagging, unreachable, nil
}

// Ports implements Aggregator.
func (w *world) Ports(context.Context) ([]int32, error) {
	if w.unreachable {
		return nil, apierrors.NewServiceUnavailable("etcd is down")
	}
	return []int32{16443}, nil
}

// Discovers implements Aggregator.
func (w *world) Discovers(_ context.Context, gv schema.GroupVersion) error {
	if w.refused || !w.isRegistered(gv) {
		return apierrors.NewServiceUnavailable("the server is currently unable to handle the request")
	}
	return nil
}

// FreshNodeSample implements Aggregator.
func (w *world) FreshNodeSample(_ context.Context, gv schema.GroupVersion, _ time.Time) (bool, error) {
	if w.refused || !w.isRegistered(gv) {
		return false, apierrors.NewServiceUnavailable("the server is currently unable to handle the request")
	}
	return !w.stale, nil
}

func serves(p *corev1.Pod, gv schema.GroupVersion) bool {
	switch p.Spec.Containers[0].Image {
	case imageFuture:
		return true
	case imageBoth:
		return gv != v2
	case imageNothing:
		return false
	}
	return gv == v1beta1
}
