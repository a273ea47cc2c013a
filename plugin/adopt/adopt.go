// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package adopt

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/util/validation"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/metricsbackend/metrics-backend-operator/api/v1alpha1"
	"github.com/metricsbackend/metrics-backend-operator/internal/apiservices"
	"github.com/metricsbackend/metrics-backend-operator/plugin/aggregation"
	"github.com/metricsbackend/metrics-backend-operator/plugin/connection"
)

func (o *options) group() string { return o.api + ".metrics.k8s.io" }

// field returns the path of the group's section in a MetricsBackend.
func (o *options) field() string { return "spec." + o.api + "Metrics" }

// services returns the APIServices of the group.
func (o *options) services(ctx context.Context) ([]apiregistrationv1.APIService, error) {
	services, err := o.cluster.APIServices(ctx)
	return slices.DeleteFunc(services, func(s apiregistrationv1.APIService) bool { return s.Spec.Group != o.group() }), err
}

// adoption plans an adoption, or says why there can be none.
func (o *options) adoption(ctx context.Context) (*plan, error) {
	services, err := o.services(ctx)
	if err != nil {
		return nil, err
	}
	if err := o.checkServices(services); err != nil {
		return nil, err
	}
	backends, err := o.cluster.Backends(ctx)
	if err != nil {
		return nil, err
	}
	backend, err := o.chooseBackend(backends)
	if err != nil {
		return nil, err
	}
	theirs, service := &services[0], aggregation.Describe(&services[0]).Service
	source := o.sourceOf(theirs)
	if wrong := validation.IsDNS1123Label(source.Name); len(wrong) > 0 {
		return nil, refusef("source %q: %s: choose a name with --source", source.Name, wrong[0])
	}
	routes, err := o.routesWith(backend, &source)
	if err != nil {
		return nil, err
	}

	p := &plan{backend: backend.Name, before: []string{fmt.Sprintf("Puts %s, which serves %s, behind MetricsBackend %s.", service, o.group(), backend.Name)}}
	spec := appliedSpec(backend)
	spec.Sources = append(slices.DeleteFunc(spec.Sources, func(s v1alpha1.SourceSpec) bool { return s.Name == source.Name }), source)
	section := spec.section(o.api)
	section.Routes = routes
	served := backend.Spec.Section(o.group()).Versions
	for i := range services {
		section.Versions, served = append(section.Versions, services[i].Spec.Version), append(served, services[i].Spec.Version)
		if manager := apiservices.ManagedBy(&services[i]); manager.Who != "" {
			p.before = append(p.before, fmt.Sprintf("APIService %s is applied by %s, whose next change takes it back. Before the last step: %s.", services[i].Name, manager.Who, manager.Remedy))
		}
	}
	section.Versions = inOrder(section.Versions)
	if writer, _ := apiservices.ChangedBy(theirs, v1alpha1.FieldOwner, apiservices.CABundleField); len(theirs.Spec.CABundle) > 0 && writer != "" {
		p.before = append(p.before, fmt.Sprintf("Field manager %q wrote its caBundle. If it writes it at each change, stop that before the last step (%s): the operator looks for a minute, and leaves such an APIService alone.",
			writer, apiservices.CABundleRemedy))
	}

	if reference := source.MetricsAPI.TLS.CAConfigMapKeyRef; reference != nil {
		namespace, err := o.namespaceOf(ctx, backend)
		if err != nil {
			return nil, err
		}
		p.steps = append(p.steps, step{
			does:   fmt.Sprintf("The CA certificates by which kube-apiserver verifies %s, for the serving pods. It is a copy: repeat this step when they are replaced.", service),
			back:   fmt.Sprintf("kubectl delete configmap %s -n %s%s", reference.Name, namespace, o.flags),
			object: authority(namespace, reference, theirs.Spec.CABundle),
		})
	}
	added := "kubectl edit metricsbackend " + backend.Name + o.flags + ", and take out what this step has added"
	if backend.ResourceVersion == "" {
		added = "kubectl delete metricsbackend " + backend.Name + o.flags
	}
	p.steps = append(p.steps, step{
		does: fmt.Sprintf("%s becomes source %s, and gets what no rule, declared metric or earlier route answers. kube-apiserver still asks it directly.", service, source.Name),
		back: added, object: backendWith(backend.Name, spec), waits: []string{"source=" + source.Name},
	})
	section.Adoption = v1alpha1.AdoptionAlways
	p.steps = append(p.steps, step{
		does: fmt.Sprintf("MetricsBackend %s takes over what kube-apiserver asks, as soon as autoscalers get the same from its pods, and every kube-apiserver reaches them.", backend.Name),
		back: "kubectl metrics-backend release " + o.api + o.flags + ": kube-apiserver then asks " + service + " again", object: backendWith(backend.Name, spec),
		waits: []string{"ready", o.waitForVersions(served)},
	})
	declared := map[string]string{"custom": "a CustomMetric", "external": "an ExternalMetric"}[o.api]
	p.after = []string{
		fmt.Sprintf("%s then answers what it did before, and the MetricsBackend what you add to it: a rule or %s of the same name moves a metric.", service, declared),
		"kubectl metrics-backend explain NAME shows who answers.",
	}
	return p, nil
}

// waitForVersions returns the value of --for of `kubectl metrics-backend wait` for versions of the group.
func (o *options) waitForVersions(versions []string) string {
	return "versions=" + strings.Join(inOrder(versions), "."+o.group()+",") + "." + o.group()
}

// inOrder returns versions without duplicates, the best first.
func inOrder(versions []string) []string {
	return slices.Compact(slices.SortedFunc(slices.Values(versions), aggregation.CompareVersions))
}

// checkServices refuses APIServices that cannot be adopted.
func (o *options) checkServices(services []apiregistrationv1.APIService) error {
	if len(services) == 0 {
		return refusef("nobody serves %s: set %s of a MetricsBackend, and it does", o.group(), o.field())
	}
	first := aggregation.Describe(&services[0])
	for i := range services {
		r, manager := aggregation.Describe(&services[i]), apiservices.ManagedBy(&services[i])
		switch {
		case r.Backend != "":
			return refusef("APIService %s is MetricsBackend %s's already, and kubectl metrics-backend status %s shows its state: for another implementation add a source and a route to it in %s.routes", r.Name, r.Backend, r.Backend, o.field())
		case r.Service == "":
			return refusef("APIService %s is served by kube-apiserver itself, and cannot be adopted: take its version out of what registers it", r.Name)
		case r.Service != first.Service:
			return refusef("APIService %s points to %s, and %s to %s: delete the one that nobody needs (kubectl delete apiservice), or add a source and routes for each to a MetricsBackend", first.Name, first.Service, r.Name, r.Service)
		case manager.Reconciles:
			return refusef("APIService %s is served by %s, and %s %s. It stays theirs; or %s", r.Name, r.Service, manager.Who, v1alpha1.WritesBack, manager.Remedy)
		}
	}
	return nil
}

// chooseBackend returns the MetricsBackend that is to adopt: one without a resourceVersion is to be created.
func (o *options) chooseBackend(backends []v1alpha1.MetricsBackend) (*v1alpha1.MetricsBackend, error) {
	if o.backend == "" && len(backends) > 1 {
		return nil, refusef("%w, with --backend", connection.CheckBackendName("", backends))
	}
	for i := range backends {
		switch b := &backends[i]; {
		case o.backend != "" && b.Name != o.backend:
		case b.Spec.Existing != nil:
			return nil, refusef("MetricsBackend %s has spec.existing, and so no pods that pass requests on: take it out, or name another with --backend", b.Name)
		default:
			return b, nil
		}
	}
	created := &v1alpha1.MetricsBackend{}
	created.Name = cmp.Or(o.backend, "cluster")
	return created, nil
}

// sourceOf returns the source for what an APIService points to, verified as kube-apiserver does.
func (o *options) sourceOf(service *apiregistrationv1.APIService) v1alpha1.SourceSpec {
	to := service.Spec.Service
	source := v1alpha1.SourceSpec{Name: cmp.Or(o.source, to.Name), MetricsAPI: &v1alpha1.MetricsAPISource{
		Service: v1alpha1.ExistingService{Namespace: to.Namespace, Name: to.Name, Port: ptr.To(ptr.Deref(to.Port, 443))},
		Group:   v1alpha1.MetricsAPIGroup(o.group()),
	}}
	switch tls := &source.MetricsAPI.TLS; {
	case service.Spec.InsecureSkipTLSVerify:
		tls.InsecureSkipTLSVerify = true
	case len(service.Spec.CABundle) > 0:
		tls.CAConfigMapKeyRef = &v1alpha1.ConfigMapKeyReference{Name: source.Name + authoritySuffix, Key: "ca.crt"}
	}
	return source
}

// routesWith returns the routes of the backend, with one to the source behind them unless this command has added it. It
// refuses another source of that name, and others' routes to the same Service.
func (o *options) routesWith(backend *v1alpha1.MetricsBackend, source *v1alpha1.SourceSpec) ([]v1alpha1.MetricRoute, error) {
	all, added := routesOf(&backend.Spec, o.api), v1alpha1.MetricRoute{Source: source.Name}
	for i := range backend.Spec.Sources {
		other := &backend.Spec.Sources[i]
		if other.Name == source.Name && !equality.Semantic.DeepEqual(other.MetricsAPI, source.MetricsAPI) {
			return nil, refusef("MetricsBackend %s has another source %s: choose a name with --source, such as %s-%s", backend.Name, other.Name, other.Name, o.api)
		}
		if other.MetricsAPI == nil || other.MetricsAPI.Group != source.MetricsAPI.Group || !equality.Semantic.DeepEqual(other.MetricsAPI.Service, source.MetricsAPI.Service) {
			continue
		}
		for j, route := range all {
			switch {
			case route.Source != other.Name:
			case equality.Semantic.DeepEqual(route, added) && len(appliedSpec(backend).section(o.api).Routes) > 0:
				return all, nil
			default:
				return nil, refusef("%s.routes[%d] of MetricsBackend %s leads to this Service already: what is left is adoption: Always there; or take the route out, and this command adds its own", o.field(), j, backend.Name)
			}
		}
	}
	return append(slices.Clone(all), added), nil
}

// namespaceOf returns the namespace of the serving pods; that of a new MetricsBackend is the operator's.
func (o *options) namespaceOf(ctx context.Context, backend *v1alpha1.MetricsBackend) (string, error) {
	namespace := cmp.Or(backend.Spec.Serving.Namespace, ptr.Deref(backend.Status.Serving, v1alpha1.ServingStatus{}).Namespace, backend.Status.Installation.Namespace)
	if namespace != "" {
		return namespace, nil
	}
	var pods corev1.PodList
	label, value, _ := strings.Cut(connection.OperatorLabel, "=")
	err := o.cluster.Each(ctx, &pods, func() {
		for i := range pods.Items {
			namespace = pods.Items[i].Namespace
		}
	}, client.MatchingLabels{label: value}, client.MatchingFields{"status.phase": string(corev1.PodRunning)})
	switch {
	case err != nil:
		return "", fmt.Errorf("find the operator's namespace: list pods: %w", err)
	case namespace == "":
		return "", refusef("no pod of the operator runs, in whose namespace the CA certificates belong: install it first (%s%s)", connection.OperatorPods, o.flags)
	}
	return namespace, nil
}
