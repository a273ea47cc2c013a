// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package explain

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/metricsbackend/metrics-backend-operator/plugin/connection"
)

// API groups and their versions, the preferred one first.
const (
	customGroup   = "custom.metrics.k8s.io"
	externalGroup = "external.metrics.k8s.io"
)

var versions = map[string][]string{customGroup: {"v1beta2", "v1beta1"}, externalGroup: {"v1beta1"}}

// target is a path, by its segments, and parameters.
type target struct {
	segments []string
	query    map[string]string
	title    string
}

func (t *target) path() string {
	var path strings.Builder
	for _, segment := range t.segments {
		// A star may stand in a path as it is, and reads better.
		path.WriteString("/" + strings.ReplaceAll(url.PathEscape(segment), "%2A", "*"))
	}
	return path.String()
}

// targets returns the target of the flags, or all metrics of the name in discovery. There may
// be targets in addition to errors, and an undiscoveredError counts only if they all fail.
func (o *options) targets(ctx context.Context, cluster *connection.Cluster) ([]target, []error) {
	if o.of == "" && !o.external {
		return o.discovered(ctx, cluster)
	}
	name := customGroup
	if o.external {
		name = externalGroup
	}
	api, err := discover(ctx, cluster, name)
	switch {
	case err != nil:
		return nil, []error{err}
	case api.version == "":
		return nil, []error{fmt.Errorf("%s is not served: kubectl metrics-backend status tells what is", name)}
	case o.external:
		return []target{o.value(api)}, nil
	}
	resource, object, _ := strings.Cut(o.of, "/")
	return []target{o.object(api, resource, object)}, nil
}

// discovered returns the metrics of the name in discovery of both APIs.
func (o *options) discovered(ctx context.Context, cluster *connection.Cluster) ([]target, []error) {
	var errs []error
	read := func(name string) group {
		api, err := discover(ctx, cluster, name)
		if err != nil {
			errs = append(errs, err)
		}
		return api
	}
	custom, external := read(customGroup), read(externalGroup)
	var all []target
	for _, r := range custom.resources {
		if resource, metric, _ := strings.Cut(r.Name, "/"); metric == o.metric {
			all = append(all, o.object(custom, resource, ""))
		}
	}
	if slices.ContainsFunc(external.resources, func(r metav1.APIResource) bool { return strings.ToLower(r.Name) == escaped(o.metric) }) {
		all = append(all, o.value(external))
	}
	if len(all) == 0 && len(errs) == 0 {
		// Serving tells of a missing metric which rules are invalid.
		if custom.version != "" {
			all = append(all, o.object(custom, "pods", ""))
		}
		if external.version != "" {
			all = append(all, o.value(external))
		}
		return all, []error{undiscoveredError{fmt.Errorf("no metric %q is in discovery, neither in %s nor in %s. Either no series gives it now, or no rule makes it: "+
			"kubectl get metricsbackends -o yaml shows under status what is wrong with rules and sources. "+
			"Discovery names a bounded number of metrics, and here are the answers for pods and external metrics; --for asks for other resources", o.metric, customGroup, externalGroup)}}
	}
	return all, errs
}

// undiscoveredError is returned with the targets that may have a metric that discovery does not.
type undiscoveredError struct{ error }

// rootScoped are common cluster-scoped resources, for those that are not in discovery.
var rootScoped = []string{"nodes", "namespaces", "persistentvolumes"}

// object returns the target of a custom metric.
func (o *options) object(api group, resource, name string) target {
	// For an object, an autoscaler asks in its namespace, whether or not the object has one.
	namespaced := name != "" || !slices.Contains(rootScoped, resource)
	for _, r := range api.resources {
		if of, _, _ := strings.Cut(r.Name, "/"); of == resource && name == "" {
			namespaced = r.Namespaced
		}
	}
	t := target{
		segments: []string{"apis", customGroup, api.version},
		query:    map[string]string{"metricLabelSelector": o.metricSelector},
	}
	object, described := name, resource+"/"+name
	if name == "" {
		object, described = "*", resource
		t.query["labelSelector"] = o.selector
	}
	switch {
	case resource == "namespaces":
		// Namespaces have a pseudo-resource. An autoscaler asks for its own, whatever it names.
		delete(t.query, "labelSelector")
		t.segments = append(t.segments, "namespaces", o.namespace, "metrics", o.metric)
		t.title = "metric " + o.metric + " of namespace " + o.namespace
	case namespaced:
		t.segments = append(t.segments, "namespaces", o.namespace, resource, object, o.metric)
		t.title = fmt.Sprintf("metric %s of %s in namespace %s", o.metric, described, o.namespace)
	default:
		t.segments = append(t.segments, resource, object, o.metric)
		t.title = fmt.Sprintf("metric %s of %s", o.metric, described)
	}
	return t
}

// value returns the target of an external metric.
func (o *options) value(api group) target {
	return target{
		segments: []string{"apis", externalGroup, api.version, "namespaces", o.namespace, escaped(o.metric)},
		query:    map[string]string{"labelSelector": o.selector},
		title:    fmt.Sprintf("external metric %s in namespace %s", o.metric, o.namespace),
	}
}

// escaped returns an external metric's name as it is in an autoscaler's path: client-go lower-cases it,
// and a slash is escaped as the External Metrics API requires it.
func escaped(metric string) string { return strings.ToLower(strings.ReplaceAll(metric, "/", `\|`)) }

// group is the discovery of an API group. It has no version if the group is not served.
type group struct {
	version   string
	resources []metav1.APIResource
}

func discover(ctx context.Context, cluster *connection.Cluster, name string) (group, error) {
	var unavailable error
	for _, version := range versions[name] {
		var found metav1.APIResourceList
		err := cluster.GetJSON(ctx, "/apis/"+name+"/"+version, "application/json", &found)
		switch {
		case apierrors.IsNotFound(err):
			continue
		case apierrors.IsServiceUnavailable(err):
			unavailable = errors.Join(unavailable, err) // another version may be there
			continue
		case err != nil:
			return group{}, err
		}
		return group{version: version, resources: found.APIResources}, nil
	}
	return group{}, unavailable
}
