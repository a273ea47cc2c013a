// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package metricsbackend

import (
	"bytes"
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/runtime/schema"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"
	apiregistrationv1helper "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1/helper"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/metricsbackend/metrics-backend-operator/api/v1alpha1"
	"github.com/metricsbackend/metrics-backend-operator/controllers/manifests"
	"github.com/metricsbackend/metrics-backend-operator/controllers/metricsbackend/lifecycle"
)

// view is the cache of one kube-apiserver. An APIService is in its discovery, and gets its requests, as it is there.
type view struct {
	address string
	// delay is how many steps it is behind, and waits counts them.
	delay int
	waits map[schema.GroupVersion]int
	seen  map[schema.GroupVersion]*apiregistrationv1.APIService
}

// withViews gives the cluster two kube-apiservers, of which the second one is some steps behind.
func (fc *fakeCluster) withViews(behind int) {
	fc.views = nil
	stored := fc.allAPIServices()
	for i, replica := range fc.replicas {
		v := &view{address: replica.address, delay: i * behind, waits: map[schema.GroupVersion]int{}, seen: map[schema.GroupVersion]*apiregistrationv1.APIService{}}
		for _, gv := range testVersions {
			v.seen[gv] = stored[apiServiceName(gv)]
		}
		fc.views = append(fc.views, v)
	}
}

func (v *view) clone() *view {
	clone := *v
	clone.waits, clone.seen = maps.Clone(v.waits), maps.Clone(v.seen)
	return &clone
}

// follow is one step of the cache.
func (v *view) follow(stored map[string]*apiregistrationv1.APIService) {
	for _, gv := range testVersions {
		now := stored[apiServiceName(gv)]
		if equality.Semantic.DeepEqual(now, v.seen[gv]) {
			v.waits[gv] = 0
			continue
		}
		if v.waits[gv]++; v.waits[gv] > v.delay {
			v.seen[gv], v.waits[gv] = now, 0
		}
	}
}

// allAPIServices returns every APIService, whoever owns it, by name.
func (fc *fakeCluster) allAPIServices() map[string]*apiregistrationv1.APIService {
	var list apiregistrationv1.APIServiceList
	fc.list(&list)
	all := map[string]*apiregistrationv1.APIService{}
	for i := range list.Items {
		all[list.Items[i].Name] = &list.Items[i]
	}
	return all
}

// checkViews records requests that a kube-apiserver sends to pods that do not serve the version, to nothing, or to
// pods whose certificate it does not trust.
func (fc *fakeCluster) checkViews(when string) {
	var ready []corev1.Pod
	if fc.views != nil {
		ready = slices.DeleteFunc(fc.pods(), func(p corev1.Pod) bool { return !isReady(&p) })
	}
	for _, view := range fc.views {
		for _, gv := range testVersions {
			service := view.seen[gv]
			if fc.violation != "" || service == nil || service.Spec.Service == nil {
				continue
			}
			if why := fc.misrouted(gv, service, ready); why != "" {
				fc.violation = fmt.Sprintf("%s: kube-apiserver %s sends requests for %s to Service %s/%s, %s",
					when, view.address, shortVersion(gv), service.Spec.Service.Namespace, service.Spec.Service.Name, why)
			}
		}
	}
}

func (fc *fakeCluster) misrouted(gv schema.GroupVersion, service *apiregistrationv1.APIService, ready []corev1.Pod) string {
	to := service.Spec.Service
	behind := slices.DeleteFunc(slices.Clone(ready), func(p corev1.Pod) bool {
		return !isBehind(&p, to)
	})
	theirs := to.Namespace+"/"+to.Name == metricsServer
	for _, p := range behind {
		if !serves(&p, gv) {
			return fmt.Sprintf("whose ready pod %s (%s) does not serve it", p.Name, imageOf(&p.Spec))
		}
		if chain := fc.certs.served[p.Name]; len(chain) > 0 && !fc.certs.untrusted {
			if err := fc.verify(chain, service.Spec.CABundle, to.Name+"."+to.Namespace+".svc"); err != nil {
				return fmt.Sprintf("and refuses its pod %s: %v", p.Name, err)
			}
		}
	}
	switch {
	case theirs && len(service.Spec.CABundle) > 0 && !bytes.Contains(service.Spec.CABundle, []byte(theirCA)):
		return "and refuses its certificate"
	case theirs && len(fc.other.serves) > 0 && !fc.theyServe(gv):
		return "which does not serve it"
	case theirs && len(fc.other.serves) > 0, !theirs && len(behind) > 0, strings.HasPrefix(to.Namespace, "other"):
		return ""
	case fc.theyServe(gv) && len(fc.other.failing) == 0:
		return "where nobody is, while metrics-server serves it"
	case slices.ContainsFunc(ready, func(p corev1.Pod) bool { return serves(&p, gv) }):
		return "where nobody is, while other pods serve it"
	}
	return ""
}

// theyServe reports whether an endpoint of metrics-server serves the version.
func (fc *fakeCluster) theyServe(gv schema.GroupVersion) bool {
	for _, versions := range fc.other.serves {
		if slices.Contains(versions, gv) {
			return true
		}
	}
	return false
}

// checkStays records a version that is not in discovery, although it is there throughout the run without faults.
func (x *run) checkStays(when string) {
	for _, gv := range testVersions {
		if x.pointsToNow(gv) != "" {
			continue
		}
		if x.always[gv] = false; x.stays[gv] && x.violation == "" {
			x.violation = fmt.Sprintf("%s: %s is not in discovery, where it stays without a fault", when, shortVersion(gv))
		}
	}
}

// checkWriter records a write of an operator that does not manage the backend.
func (x *run) checkWriter(c call) {
	var backend v1alpha1.MetricsBackend
	if c.name == patchStatus || x.raw.Get(x.t.Context(), client.ObjectKey{Name: x.backend}, &backend) != nil {
		return
	}
	if owner := backend.Status.Installation.Namespace; owner != "" && owner != x.namespace && x.violation == "" {
		x.violation = fmt.Sprintf("the operator in namespace %s does %s, and the one in %s manages the MetricsBackend", x.namespace, c.name, owner)
	}
}

// checkPermission records a write of someone else's APIService that adoption does not allow, or that leaves no record
// of its owner.
func (x *run) checkPermission(before map[string]*apiregistrationv1.APIService) {
	after := x.allAPIServices()
	for name, was := range before {
		now := after[name]
		if name == manifests.CanaryAPIServiceName || now != nil && now.ResourceVersion == was.ResourceVersion || x.violation != "" {
			continue
		}
		gv, _ := manifests.VersionOf(name)
		if why := x.forbidden(was, now); why != "" {
			x.violation = fmt.Sprintf("APIService %s of %s is written, %s", name, lifecycle.DescribeTarget(was), why)
		} else if now != nil && x.answers(gv, was) && !x.answers(gv, now) {
			x.violation = fmt.Sprintf("APIService %s is pointed from %s, which answers, to %s, which does not", name, lifecycle.DescribeTarget(was), lifecycle.DescribeTarget(now))
		}
	}
}

// answers reports whether requests for the version are answered where the APIService points to.
func (fc *fakeCluster) answers(gv schema.GroupVersion, service *apiregistrationv1.APIService) bool {
	to := service.Spec.Service
	if to == nil {
		return true
	}
	if to.Namespace+"/"+to.Name == metricsServer {
		for address, versions := range fc.other.serves {
			if slices.Contains(versions, gv) && fc.other.failing[address] == nil {
				return true
			}
		}
		return false
	}
	return !fc.blocked && slices.ContainsFunc(fc.pods(), func(p corev1.Pod) bool {
		return isReady(&p) && isBehind(&p, to) && serves(&p, gv)
	})
}

// forbidden returns why the write of an APIService is not allowed, or "". now is nil if it was deleted.
func (x *run) forbidden(was, now *apiregistrationv1.APIService) string {
	var backend v1alpha1.MetricsBackend
	x.get(client.ObjectKey{Name: x.backend}, &backend)
	holder, to := was.Labels[v1alpha1.LabelBackend], was.Spec.Service
	if holder == x.backend || to != nil && to.Name == "metrics-serving-"+x.backend {
		return ""
	}
	if holder != "" {
		var other v1alpha1.MetricsBackend
		gv, _ := manifests.VersionOf(was.Name)
		if x.raw.Get(x.t.Context(), client.ObjectKey{Name: holder}, &other) == nil && other.DeletionTimestamp == nil && slices.Contains(desiredVersions(other.Spec), gv) {
			return "which MetricsBackend " + holder + " claims"
		}
		return ""
	}
	gv, _ := manifests.VersionOf(was.Name)
	adoption := backend.Spec.Section(gv.Group).Adoption
	switch {
	case now == nil:
		return "as it is deleted"
	case isWithdrawal(was, now):
		return ""
	case adoption == v1alpha1.AdoptionAlways, adoption == v1alpha1.AdoptionIfUnavailable && !apiregistrationv1helper.IsAPIServiceConditionTrue(was, apiregistrationv1.Available):
	default:
		return fmt.Sprintf("although adoption is %q", adoption)
	}
	if isWithdrawal(now, was) {
		return "" // our authority beside theirs
	}
	if record, err := lifecycle.ReadPreviousOwner(now); err != nil || record.Target().Name != to.Name || record.Target().Namespace != to.Namespace {
		return fmt.Sprintf("without a record of its owner: %v", err)
	}
	return ""
}

// isWithdrawal reports whether the only difference is that our authority was taken out of the caBundle.
func isWithdrawal(was, now *apiregistrationv1.APIService) bool {
	want := was.DeepCopy()
	want.Spec.CABundle, _ = lifecycle.CutAuthority(was.Spec.CABundle, backendName)
	return equality.Semantic.DeepEqual(want.Spec, now.Spec) && equality.Semantic.DeepEqual(was.Labels, now.Labels) && equality.Semantic.DeepEqual(was.Annotations, now.Annotations)
}
