// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

// Package aggregation reads the APIServices of metrics APIs, and their discovery documents.
package aggregation

import (
	"cmp"
	"context"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"net"
	"regexp"
	"slices"
	"strconv"
	"time"

	apidiscoveryv2 "k8s.io/api/apidiscovery/v2"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/version"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"
	"k8s.io/metrics/pkg/apis/custom_metrics"
	"k8s.io/metrics/pkg/apis/external_metrics"
	"k8s.io/utils/ptr"

	"github.com/metricsbackend/metrics-backend-operator/api/v1alpha1"
	"github.com/metricsbackend/metrics-backend-operator/plugin/connection"
)

// GroupResourceMetrics is the API group of CPU and memory metrics.
const GroupResourceMetrics = "metrics.k8s.io"

// Groups returns the API groups of metrics.
func Groups() []string {
	return []string{GroupResourceMetrics, custom_metrics.GroupName, external_metrics.GroupName}
}

// ExpiresSoon is the remaining lifetime at which a certificate causes a warning.
const ExpiresSoon = 14 * 24 * time.Hour

// Registration holds the fields of an APIService that matter to users of a metrics API.
type Registration struct {
	// Name is VERSION.GROUP.
	Name    string `json:"name"`
	Group   string `json:"-"`
	Version string `json:"-"`
	// Service is NAMESPACE/NAME:PORT; empty for an API of kube-apiserver's own.
	Service string `json:"service,omitempty"`
	// Available is the condition Available, with its reason and message.
	Available bool   `json:"available"`
	Reason    string `json:"reason,omitempty"`
	Message   string `json:"message,omitempty"`
	// Backend names the MetricsBackend that owns it.
	Backend string `json:"backend,omitempty"`
	// AdoptedFrom is the Service before the adoption.
	AdoptedFrom           string `json:"adoptedFrom,omitempty"`
	InsecureSkipTLSVerify bool   `json:"insecureSkipTLSVerify,omitempty"`
	// Authorities is the number of certificates in caBundle.
	Authorities int `json:"authorities"`
	// CABundleNotAfter is when the last of them expires.
	CABundleNotAfter *metav1.Time `json:"caBundleNotAfter,omitempty"`
	// CABundleError says why caBundle cannot be used.
	CABundleError string `json:"caBundleError,omitempty"`
	Deleting      bool   `json:"deleting,omitempty"`
}

// Registrations reads the APIServices of groups, in the order of the groups, best version first.
func Registrations(ctx context.Context, cluster *connection.Cluster, groups ...string) ([]Registration, error) {
	services, err := cluster.APIServices(ctx)
	if err != nil {
		return nil, err
	}
	var found []Registration
	for i := range services {
		if slices.Contains(groups, services[i].Spec.Group) {
			found = append(found, Describe(&services[i]))
		}
	}
	slices.SortFunc(found, func(a, b Registration) int {
		return cmp.Or(slices.Index(groups, a.Group)-slices.Index(groups, b.Group), CompareVersions(a.Version, b.Version))
	})
	return found, nil
}

// Find returns the APIService of a version, or nil.
func Find(registrations []Registration, version string) *Registration {
	for i := range registrations {
		if registrations[i].Version == version {
			return &registrations[i]
		}
	}
	return nil
}

// CompareVersions sorts versions as Kubernetes does, best first: v1, v1beta1.
func CompareVersions(a, b string) int { return version.CompareKubeAwareVersionStrings(b, a) }

var versionPattern = regexp.MustCompile(`^v[1-9][0-9]*((alpha|beta)[1-9][0-9]*)?$`)

// IsVersion reports whether a text is an API version, such as v1 or v1beta1.
func IsVersion(text string) bool { return versionPattern.MatchString(text) }

// Describe converts an APIService.
func Describe(service *apiregistrationv1.APIService) Registration {
	r := Registration{
		Name: service.Name, Group: service.Spec.Group, Version: service.Spec.Version,
		Backend:               service.Labels[v1alpha1.LabelBackend],
		InsecureSkipTLSVerify: service.Spec.InsecureSkipTLSVerify,
		Deleting:              service.DeletionTimestamp != nil,
		Reason:                "NotChecked",
		Message:               "kube-apiserver has not looked at it yet",
	}
	if to := service.Spec.Service; to != nil {
		r.Service = ServiceName(v1alpha1.ExistingService{Namespace: to.Namespace, Name: to.Name, Port: to.Port})
	}
	for _, c := range service.Status.Conditions {
		if c.Type == apiregistrationv1.Available {
			r.Available = c.Status == apiregistrationv1.ConditionTrue
			r.Reason, r.Message = c.Reason, c.Message
		}
	}
	if recorded := service.Annotations[v1alpha1.AnnotationPreviousOwner]; recorded != "" {
		r.AdoptedFrom = "someone unknown: annotation " + v1alpha1.AnnotationPreviousOwner + " cannot be read"
		var previous v1alpha1.PreviousOwner
		if json.Unmarshal([]byte(recorded), &previous) == nil {
			r.AdoptedFrom = ServiceName(previous.Service)
		}
	}
	r.readBundle(service.Spec.CABundle)
	return r
}

// ServiceName returns NAMESPACE/NAME:PORT.
func ServiceName(of v1alpha1.ExistingService) string {
	return of.Namespace + "/" + net.JoinHostPort(of.Name, strconv.Itoa(int(ptr.Deref(of.Port, 443))))
}

// readBundle counts the certificates in a bundle, and keeps when the last one expires: during a
// rotation, the bundle has the old and the new authority.
func (r *Registration) readBundle(bundle []byte) {
	for block, rest := pem.Decode(bundle); block != nil; block, rest = pem.Decode(rest) {
		if block.Type != "CERTIFICATE" {
			continue
		}
		certificate, err := x509.ParseCertificate(block.Bytes)
		if err != nil {
			r.CABundleError = fmt.Sprintf("a certificate of caBundle cannot be read: %v", err)
			return
		}
		r.Authorities++
		if r.CABundleNotAfter == nil || certificate.NotAfter.After(r.CABundleNotAfter.Time) {
			r.CABundleNotAfter = new(metav1.NewTime(certificate.NotAfter))
		}
	}
	if r.Authorities == 0 && len(bundle) > 0 {
		r.CABundleError = "caBundle holds no certificate"
	}
}

const (
	acceptJSON = "application/json"
	// acceptAggregated requests the discovery document of all groups, which clients of
	// Kubernetes 1.27 and later use.
	acceptAggregated = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"
)

// Discovery holds the versions of a group in the aggregated discovery document.
type Discovery struct {
	// Current are the versions that clients use.
	Current []string
	// Stale are the versions that did not answer; clients skip them.
	Stale []string
}

// Aggregated reads a group from the aggregated discovery document, /apis, of one
// kube-apiserver. Versions are sorted, best first.
func Aggregated(ctx context.Context, cluster *connection.Cluster, group string) (*Discovery, error) {
	var list apidiscoveryv2.APIGroupDiscoveryList
	if err := cluster.GetJSON(ctx, "/apis", acceptAggregated, &list); err != nil {
		return nil, err
	}
	if list.Kind != "APIGroupDiscoveryList" {
		return nil, fmt.Errorf("GET /apis: the answer is of kind %q: this kube-apiserver has no aggregated discovery (it came with Kubernetes 1.26)", list.Kind)
	}
	found := &Discovery{}
	for _, item := range list.Items {
		if item.Name != group {
			continue
		}
		for _, v := range item.Versions {
			if v.Freshness == apidiscoveryv2.DiscoveryFreshnessStale {
				found.Stale = append(found.Stale, v.Version)
			} else {
				found.Current = append(found.Current, v.Version)
			}
		}
	}
	slices.SortFunc(found.Current, CompareVersions)
	slices.SortFunc(found.Stale, CompareVersions)
	return found, nil
}

// GroupDocument reads /apis/GROUP: the group's versions, best first, and the one that clients should use. A group
// without versions is NotFound.
func GroupDocument(ctx context.Context, cluster *connection.Cluster, group string) (versions []string, preferred string, err error) {
	var document metav1.APIGroup
	if err := cluster.GetJSON(ctx, "/apis/"+group, acceptJSON, &document); err != nil {
		return nil, "", err
	}
	for _, v := range document.Versions {
		versions = append(versions, v.Version)
	}
	slices.SortFunc(versions, CompareVersions)
	return versions, document.PreferredVersion.Version, nil
}

// Resources returns the names of a version's resources, from the implementation's own discovery.
func Resources(ctx context.Context, cluster *connection.Cluster, group, version string) ([]string, error) {
	var list metav1.APIResourceList
	if err := cluster.GetJSON(ctx, "/apis/"+group+"/"+version, acceptJSON, &list); err != nil {
		return nil, err
	}
	var names []string
	for _, resource := range list.APIResources {
		names = append(names, resource.Name)
	}
	slices.Sort(names)
	return names, nil
}
