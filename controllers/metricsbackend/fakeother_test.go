// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package metricsbackend

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/metricsbackend/metrics-backend-operator/api/v1alpha1"
	"github.com/metricsbackend/metrics-backend-operator/controllers/servingclient"
)

const (
	metricsServer = "kube-system/metrics-server"
	ourService    = systemNamespace + "/metrics-serving-" + backendName
)

// otherImplementation is an implementation that someone else runs.
type otherImplementation struct {
	// serves is what each endpoint, by address, serves; failing ones do not answer.
	serves  map[string][]schema.GroupVersion
	failing map[string]error
	// pointsTo is the Service to which kube-apiservers send requests for a version: they
	// follow an APIService one step later.
	pointsTo map[schema.GroupVersion]string
	// checked: our pods must answer while requests may be sent to them.
	checked bool
}

func (t otherImplementation) clone() otherImplementation {
	t.serves, t.failing, t.pointsTo = maps.Clone(t.serves), maps.Clone(t.failing), maps.Clone(t.pointsTo)
	return t
}

func (t otherImplementation) answer(pod servingclient.Pod, versions []schema.GroupVersion) (*servingclient.Answer, error) {
	if pod.Token == "" || len(pod.CABundle) == 0 && !pod.InsecureSkipTLSVerify || pod.ServerName != "metrics-server.kube-system.svc" {
		return nil, fmt.Errorf("asked without token, trust or name: %+v", pod)
	}
	if err := t.failing[pod.Address]; err != nil {
		return nil, err
	}
	serves, ok := t.serves[pod.Address]
	if !ok {
		return nil, errors.New("dial: no route to host")
	}
	answer := &servingclient.Answer{Serves: map[schema.GroupVersion]bool{}}
	for _, gv := range versions {
		answer.Serves[gv] = slices.Contains(serves, gv)
	}
	return answer, nil
}

// allServe reports whether each endpoint serves the version of metrics.k8s.io.
func (t otherImplementation) allServe(version string) bool {
	for _, served := range t.serves {
		if !slices.Contains(served, schema.GroupVersion{Group: "metrics.k8s.io", Version: version}) {
			return false
		}
	}
	return len(t.serves) > 0
}

// runMetricsServer creates the Service of metrics-server with ready endpoints that serve
// the versions. The Service is dual-stack; no endpoint answers at its second address.
func (fc *fakeCluster) runMetricsServer(endpoints int, versions ...schema.GroupVersion) {
	fc.t.Helper()
	fc.other.serves, fc.other.failing = map[string][]schema.GroupVersion{}, map[string]error{}
	fc.create(&corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Namespace: "kube-system", Name: "metrics-server"},
		Spec: corev1.ServiceSpec{
			Ports:      []corev1.ServicePort{{Name: "https", Port: 443}},
			IPFamilies: []corev1.IPFamily{corev1.IPv4Protocol, corev1.IPv6Protocol},
		},
	})
	fc.create(otherEndpoints(0))
	second := otherEndpoints(0)
	second.Name, second.AddressType = "metrics-server-2", discoveryv1.AddressTypeIPv6
	second.Endpoints = []discoveryv1.Endpoint{{Addresses: []string{"fd00::1"}}}
	fc.create(second)
	fc.scaleMetricsServer(endpoints, versions...)
}

func (fc *fakeCluster) scaleMetricsServer(endpoints int, versions ...schema.GroupVersion) {
	fc.t.Helper()
	clear(fc.other.serves)
	slice := &discoveryv1.EndpointSlice{}
	fc.get(client.ObjectKey{Namespace: "kube-system", Name: "metrics-server-1"}, slice)
	slice.Endpoints = otherEndpoints(endpoints).Endpoints
	for _, e := range slice.Endpoints {
		fc.other.serves[e.Addresses[0]+":10250"] = versions
	}
	fc.update(slice)
}

func otherEndpoints(n int) *discoveryv1.EndpointSlice {
	slice := &discoveryv1.EndpointSlice{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "kube-system", Name: "metrics-server-1",
			Labels: map[string]string{discoveryv1.LabelServiceName: "metrics-server"},
		},
		AddressType: discoveryv1.AddressTypeIPv4,
		Ports:       []discoveryv1.EndpointPort{{Name: ptr.To("metrics"), Port: ptr.To[int32](8080)}, {Name: ptr.To("https"), Port: ptr.To[int32](10250)}},
	}
	for i := range n {
		slice.Endpoints = append(slice.Endpoints, discoveryv1.Endpoint{Addresses: []string{fmt.Sprintf("192.168.0.%d", i+1)}})
	}
	return slice
}

// stockAPIService is what metrics-server's chart registers with its own certificate. (The
// manifest's insecureSkipTLSVerify: true is tested in test/integration: a fake client's
// apply loses a false.)
func stockAPIService() *apiregistrationv1.APIService {
	return &apiregistrationv1.APIService{
		ObjectMeta: metav1.ObjectMeta{Name: "v1beta1.metrics.k8s.io", UID: "uid-of-theirs", Labels: map[string]string{
			"k8s-app": "metrics-server", "app.kubernetes.io/managed-by": "Helm", "app.kubernetes.io/name": "metrics-server",
		}},
		Spec: apiregistrationv1.APIServiceSpec{
			Group: "metrics.k8s.io", Version: "v1beta1", GroupPriorityMinimum: 100, VersionPriority: 100, CABundle: []byte(theirCA),
			Service: &apiregistrationv1.ServiceReference{Namespace: "kube-system", Name: "metrics-server", Port: ptr.To[int32](443)},
		},
		Status: apiregistrationv1.APIServiceStatus{Conditions: []apiregistrationv1.APIServiceCondition{{
			Type: apiregistrationv1.Available, Status: apiregistrationv1.ConditionTrue, Reason: "Passed",
		}}},
	}
}

// existing sets spec.existing to metrics-server.
func existing(spec *v1alpha1.MetricsBackendSpec) {
	spec.Existing = &v1alpha1.ExistingSpec{
		Service: v1alpha1.ExistingService{Namespace: "kube-system", Name: "metrics-server"}, InsecureSkipTLSVerify: true,
	}
}

func adopting(policy v1alpha1.AdoptionPolicy) func(*v1alpha1.MetricsBackendSpec) {
	return func(spec *v1alpha1.MetricsBackendSpec) { spec.ResourceMetrics.Adoption = policy }
}

// stockCluster has metrics-server's stock manifests and a backend.
func stockCluster(fc *fakeCluster) {
	fc.runMetricsServer(2, v1beta1)
	other := stockAPIService()
	status := other.Status
	fc.create(other, client.FieldOwner("kubectl"))
	other.Status = status
	fc.updateStatus(other)
	fc.other.checked = true
}

// live returns a reconciler that sees managedFields.
func (fc *fakeCluster) live(funcs ...interceptor.Funcs) *Reconciler {
	o := fc.reconciler(funcs...).Options
	live := fc.server
	for _, f := range funcs {
		live = interceptor.NewClient(live, interceptor.Funcs{Get: f.Get, List: f.List})
	}
	o.APIReader = live
	return New(o)
}

func (fc *fakeCluster) apiService(gv schema.GroupVersion) *apiregistrationv1.APIService {
	fc.t.Helper()
	service := &apiregistrationv1.APIService{}
	fc.must(fc.server.Get(context.Background(), client.ObjectKey{Name: apiServiceName(gv)}, service))
	return service
}

// pointsToNow returns the Service that the version's APIService points to, or "".
func (fc *fakeCluster) pointsToNow(gv schema.GroupVersion) string {
	service := &apiregistrationv1.APIService{}
	if fc.raw.Get(context.Background(), client.ObjectKey{Name: apiServiceName(gv)}, service) != nil || service.Spec.Service == nil {
		return ""
	}
	return service.Spec.Service.Namespace + "/" + service.Spec.Service.Name
}

// followAPIService lets kube-apiservers follow the version's APIService.
func (fc *fakeCluster) followAPIService(gv schema.GroupVersion) {
	if fc.other.pointsTo == nil {
		fc.other.pointsTo = map[schema.GroupVersion]string{}
	}
	if !slices.ContainsFunc(fc.replicas, func(r *replica) bool { return r.lags }) {
		fc.other.pointsTo[gv] = fc.pointsToNow(gv)
	}
}

// mayReachPods reports whether requests for the version may be sent to our pods.
func (fc *fakeCluster) mayReachPods(gv schema.GroupVersion) bool {
	now, known := fc.pointsToNow(gv), fc.other.pointsTo[gv]
	return now == ourService || known == ourService || now != metricsServer && known != metricsServer
}

// mayReachPod reports whether requests for the version may be sent to a pod, and not only
// to those of another backend.
func (fc *fakeCluster) mayReachPod(gv schema.GroupVersion, p *corev1.Pod) bool {
	service := p.Namespace + "/metrics-serving-" + p.Labels[v1alpha1.LabelBackend]
	ofAnother := func(to string) bool { return strings.Contains(to, "/metrics-serving-") && to != service }
	now, known := fc.pointsToNow(gv), fc.other.pointsTo[gv]
	return now == service || known == service || !ofAnother(now) && !ofAnother(known)
}

// checkOther records when requests may be sent to an implementation that does not serve
// the version, or to pods of ours that are gone.
func (fc *fakeCluster) checkOther(when string) {
	if !fc.other.checked || fc.violation != "" {
		return
	}
	for _, gv := range []schema.GroupVersion{v1, v1beta1} {
		for _, to := range []string{fc.pointsToNow(gv), fc.other.pointsTo[gv]} {
			switch {
			case to == metricsServer:
				for address, versions := range fc.other.serves {
					if !slices.Contains(versions, gv) {
						fc.violation = fmt.Sprintf("%s: %s points to %s, where %s does not serve it", when, gv, to, address)
					}
				}
			case to == ourService && !slices.ContainsFunc(fc.pods(), func(p corev1.Pod) bool { return isReady(&p) }):
				fc.violation = fmt.Sprintf("%s: %s points to our Service, which has no ready pod", when, gv)
			}
		}
	}
}
