// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package servingclient

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/metrics/pkg/apis/custom_metrics"
	"k8s.io/metrics/pkg/apis/external_metrics"
)

// listsMetrics reports whether discovery of a group lists the metrics that exist. There
// may be none, and each is a query of its own, so that discovery is the only request that
// can be made of such a group.
func listsMetrics(group string) bool {
	return group == custom_metrics.GroupName || group == external_metrics.GroupName
}

// discovers reports whether discovery has the version, with resources unless the group
// lists metrics.
func (s *session) discovers(ctx context.Context, version schema.GroupVersion) (bool, error) {
	path := "/apis/" + version.String()
	if !listsMetrics(version.Group) {
		var resources metav1.APIResourceList
		found, err := s.get(ctx, path, "", &resources)
		return found && resources.GroupVersion == version.String() && len(resources.APIResources) > 0, err
	}
	body, found, err := s.open(ctx, path, "")
	if err != nil || !found {
		return false, err
	}
	defer func() { _ = body.Close() }()
	fields, err := readFields(io.LimitReader(body, maxBody), "groupVersion")
	if err != nil {
		return false, &malformedError{path, err}
	}
	return fields["groupVersion"] == version.String(), nil
}

// probeVersions lists objects of each version that is in discovery, which goes on listing
// a version whose requests fail, and records the results in answer. It returns the first
// error, by version, that is not about the version: the pod cannot be reached any more,
// does not authorize the operator, or is overloaded.
func (s *session) probeVersions(ctx context.Context, answer *Answer) error {
	var first error
	byName := func(a, b schema.GroupVersion) int { return strings.Compare(a.String(), b.String()) }
	for _, version := range slices.SortedFunc(maps.Keys(answer.Serves), byName) {
		if !answer.Serves[version] || version.Group != "metrics.k8s.io" {
			continue
		}
		found, err := s.probe(ctx, version)
		if err == nil {
			answer.Serves[version] = found
			continue
		}
		answer.fail(version, err)
		if first == nil && !isServerError(err) {
			first = err
		}
	}
	return first
}

// probe lists one node of a version, as the HPA controller and kubectl list them; it returns false
// when the path does not exist.
func (s *session) probe(ctx context.Context, version schema.GroupVersion) (bool, error) {
	path := "/apis/" + version.String() + "/nodes"
	body, found, err := s.open(ctx, path, "limit=1")
	if err != nil || !found {
		return false, err
	}
	defer func() { _ = body.Close() }()
	if err := checkList(io.LimitReader(body, maxBody), version, "NodeMetricsList"); err != nil {
		return true, &malformedError{path, err}
	}
	return true, nil
}

// checkList returns an error unless body is a list of kind. It reads no further than the
// list's kind and apiVersion: an implementation that ignores limit returns every node.
func checkList(body io.Reader, version schema.GroupVersion, kind string) error {
	found, err := readFields(body, "kind", "apiVersion")
	if err != nil {
		return err
	}
	if found["kind"] != kind || found["apiVersion"] != version.String() {
		return fmt.Errorf("it is %.100q of %.100q, not %s of %s", found["kind"], found["apiVersion"], kind, version)
	}
	return nil
}

// readFields returns the string fields of these names. It reads no further than the last
// of them.
func readFields(body io.Reader, names ...string) (map[string]string, error) {
	decoder := json.NewDecoder(body)
	start, err := decoder.Token()
	if err != nil {
		return nil, stableError(err)
	}
	if start != json.Delim('{') {
		return nil, errors.New("it is no JSON object")
	}
	found := map[string]string{}
	for len(found) < len(names) {
		if !decoder.More() {
			return nil, fmt.Errorf("not %s in it", strings.Join(names, " and "))
		}
		field, err := decoder.Token()
		if err != nil {
			return nil, stableError(err)
		}
		name, _ := field.(string)
		if !slices.Contains(names, name) {
			var skipped json.RawMessage
			if err := decoder.Decode(&skipped); err != nil {
				return nil, stableError(err)
			}
			continue
		}
		var value string
		if err := decoder.Decode(&value); err != nil {
			return nil, stableError(err)
		}
		found[name] = value
	}
	return found, nil
}
