// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package metricsbackend

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"
	"k8s.io/kube-aggregator/pkg/apis/apiregistration/v1/helper"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/metricsbackend/metrics-backend-operator/api/v1alpha1"
	"github.com/metricsbackend/metrics-backend-operator/controllers/aggregator"
	"github.com/metricsbackend/metrics-backend-operator/controllers/manifests"
	"github.com/metricsbackend/metrics-backend-operator/controllers/metricsbackend/adoption"
	"github.com/metricsbackend/metrics-backend-operator/controllers/servingclient"
)

// Probe implements Prober.
func (fc *fakeCluster) Probe(_ context.Context, pod servingclient.Pod, versions []schema.GroupVersion) (*servingclient.Answer, error) {
	if fc.unresponsive {
		return nil, errors.New("dial: connection refused")
	}
	if pod.DiscoveryOnly {
		return fc.other.answer(pod, versions)
	}
	if len(pod.CABundle) == 0 || pod.Token == "" {
		return nil, fmt.Errorf("asked without authority or token: %+v", pod)
	}
	for _, p := range fc.pods() {
		if net.JoinHostPort(p.Status.PodIP, strconv.Itoa(int(listensOn(&p)))) != pod.Address {
			continue
		}
		if fc.silent != nil && fc.silent(&p) {
			return nil, errors.New("dial: connection refused")
		}
		chain, err := fc.handshake(p.Name, pod)
		if err != nil {
			return nil, err
		}
		answer := &servingclient.Answer{
			Chain:   chain,
			Serves:  map[schema.GroupVersion]bool{},
			Sources: fc.reportOfSources(),
		}
		for _, gv := range versions {
			answer.Serves[gv] = serves(&p, gv)
			if fc.failingRequests != nil && fc.failingRequests(&p, gv) != "" {
				if answer.Failing == nil {
					answer.Failing = map[schema.GroupVersion]string{}
				}
				answer.Failing[gv] = fc.failingRequests(&p, gv)
			}
		}
		if fc.overloaded && answer.Failing != nil {
			return answer, errors.New("answered 429 Too Many Requests")
		}
		if fc.partial != nil {
			answer.Sources = nil
			return answer, fc.partial
		}
		answer.Consumers = &v1alpha1.ConsumerReport{}
		if fc.consumers != nil {
			answer.Consumers, answer.ConsumersError = fc.consumers(&p)
		}
		return answer, nil
	}
	return nil, fmt.Errorf("no pod at %s", pod.Address)
}

func (fc *fakeCluster) reportOfSources() *v1alpha1.SourceReport {
	report := v1alpha1.SourceReport{}
	if fc.sources != nil {
		report = *fc.sources
	}
	report.Kubelets = fc.report
	if !fc.oldSettings {
		report.ObservedGeneration = 1 << 30
	}
	return &report
}

// Discovered implements Aggregator.
func (fc *fakeCluster) Discovered(_ context.Context, versions []schema.GroupVersion) (*aggregator.Presence, error) {
	if fc.unreachable {
		return nil, errors.New("no route to host")
	}
	presence := &aggregator.Presence{Listed: map[schema.GroupVersion][]string{}, Asked: []string{"192.0.2.1:6443"}}
	if fc.views != nil {
		presence.Asked = nil
		for _, view := range fc.views {
			presence.Asked = append(presence.Asked, view.address)
			for _, gv := range versions {
				if view.seen[gv] != nil {
					presence.Listed[gv] = append(presence.Listed[gv], view.address)
				}
			}
		}
		return presence, nil
	}
	if fc.secondDiscovery != nil {
		presence.Asked = append(presence.Asked, "192.0.2.2:6443")
	}
	for _, gv := range versions {
		if fc.discovered[gv] {
			presence.Listed[gv] = []string{"192.0.2.1:6443"}
		}
		if fc.secondDiscovery[gv] {
			presence.Listed[gv] = append(presence.Listed[gv], "192.0.2.2:6443")
		}
	}
	return presence, nil
}

// Lagging implements Aggregator. Caches of kube-apiservers follow at once, except for
// lagging ones.
func (fc *fakeCluster) Lagging(ctx context.Context, name string, upToDate func(*apiregistrationv1.APIService) bool) (lagging, unreachable []string, err error) {
	if fc.unreachable {
		return nil, nil, errors.New("no route to host")
	}
	for _, view := range fc.views {
		gv, _ := manifests.VersionOf(name)
		if seen := view.seen[gv]; seen == nil || !upToDate(seen) {
			lagging = append(lagging, view.address)
		}
	}
	if fc.views != nil {
		return lagging, nil, nil
	}
	for _, replica := range fc.replicas {
		var service apiregistrationv1.APIService
		switch {
		case replica.down:
			unreachable = append(unreachable, replica.address)
		case replica.lags,
			fc.raw.Get(ctx, client.ObjectKey{Name: name}, &service) != nil, !upToDate(&service):
			lagging = append(lagging, replica.address)
		}
	}
	return lagging, unreachable, nil
}

// Ports implements Aggregator.
func (fc *fakeCluster) Ports(context.Context) ([]int32, error) {
	if fc.unreachable {
		return nil, apierrors.NewServiceUnavailable("etcd is down")
	}
	return []int32{16443}, nil
}

// errBlocked is kube-apiserver's answer while it does not reach the pods. Its address
// changes with each attempt.
func (fc *fakeCluster) errBlocked() error {
	fc.attempts++
	return apierrors.NewServiceUnavailable(fmt.Sprintf("error trying to reach service: dial tcp 192.168.7.%d:10443: i/o timeout", fc.attempts%200+1))
}

// Answers implements Aggregator.
func (fc *fakeCluster) Answers(ctx context.Context, path string) error {
	switch {
	case strings.HasSuffix(path, "/proxy/readyz"):
		if !slices.ContainsFunc(fc.pods(), func(p corev1.Pod) bool {
			return isReady(&p) && path == adoption.ReadyzPath(p.Namespace, "metrics-serving-"+p.Labels[v1alpha1.LabelBackend])
		}) {
			return apierrors.NewServiceUnavailable("no endpoints available for service")
		}
	case strings.HasPrefix(path, "/apis/"+v1alpha1.CanaryGroup+"/"+v1alpha1.CanaryVersion+"/"+v1alpha1.CanaryResource+"/"):
		if err := fc.raw.Get(ctx, client.ObjectKey{Name: manifests.CanaryAPIServiceName}, &apiregistrationv1.APIService{}); err != nil {
			return err
		}
	default:
		return apierrors.NewNotFound(schema.GroupResource{}, path)
	}
	if fc.blocked {
		return fmt.Errorf("GET %s: %w", path, fc.errBlocked())
	}
	return nil
}

// reaches reports whether requests for the version reach what its APIService points to.
// kube-apiserver sends none to one that it reports unavailable.
func (fc *fakeCluster) reaches(gv schema.GroupVersion) bool {
	to := fc.pointsToNow(gv)
	return !fc.refused && !fc.isUnavailable(gv) && fc.isRegistered(gv) && (!fc.blocked || to != ourService) && to != fc.failingService &&
		(to != ourService || string(fc.apiService(gv).Spec.CABundle) != theirCA)
}

func (fc *fakeCluster) isUnavailable(gv schema.GroupVersion) bool {
	service := &apiregistrationv1.APIService{}
	if fc.raw.Get(context.Background(), client.ObjectKey{Name: apiServiceName(gv)}, service) != nil {
		return true
	}
	available := helper.GetAPIServiceConditionByType(service, apiregistrationv1.Available)
	return available != nil && available.Status == apiregistrationv1.ConditionFalse
}

// Discovers implements Aggregator.
func (fc *fakeCluster) Discovers(_ context.Context, gv schema.GroupVersion) error {
	if !fc.reaches(gv) {
		return apierrors.NewServiceUnavailable("the server is currently unable to handle the request")
	}
	return nil
}

// FreshNodeSample implements Aggregator.
func (fc *fakeCluster) FreshNodeSample(_ context.Context, gv schema.GroupVersion, _ time.Time) (bool, error) {
	if !fc.reaches(gv) {
		return false, apierrors.NewServiceUnavailable("the server is currently unable to handle the request")
	}
	return !fc.stale, nil
}

// listensOn returns the port of --secure-port.
func listensOn(p *corev1.Pod) int32 {
	for _, argument := range p.Spec.Containers[0].Args {
		if value, ok := strings.CutPrefix(argument, "--secure-port="); ok {
			port, _ := strconv.ParseInt(value, 10, 32)
			return int32(port)
		}
	}
	return 0
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

// Get implements Aggregator: theirs has the answers of fc.theirs, by path.
func (fc *fakeCluster) Get(_ context.Context, path string, query url.Values, into any) error {
	return decodeAnswer(fc.theirs, path, query, into)
}

// Read implements Prober: our pods have the answers of fc.ours, and another implementation those of fc.theirs.
func (fc *fakeCluster) Read(_ context.Context, pod servingclient.Pod, path string, query url.Values, into any) error {
	if pod.DiscoveryOnly {
		return decodeAnswer(fc.theirs, path, query, into)
	}
	return decodeAnswer(fc.ours, path, query, into)
}

func decodeAnswer(answers map[string]string, path string, query url.Values, into any) error {
	if len(query) > 0 {
		path += "?" + query.Encode()
	}
	body, known := answers[path]
	if !known {
		return fmt.Errorf("ask %s: answered 404 Not Found", path)
	}
	return json.Unmarshal([]byte(body), into)
}
