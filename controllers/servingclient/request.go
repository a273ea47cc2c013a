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
	"net/http"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/metrics/pkg/apis/custom_metrics"
	"k8s.io/metrics/pkg/apis/external_metrics"
)

// trial is a request of an API group that each version of it must answer. A list
// is what the HPA controller and kubectl ask for; one item is enough.
type trial struct{ resource, kind string }

var trials = map[string]trial{
	"metrics.k8s.io": {resource: "nodes", kind: "NodeMetricsList"},
}

// tryAll asks for objects of each version that is served: discovery is made from
// what was installed and goes on listing a version whose requests fail. It notes
// in answer how that went. The error is of requests that tell nothing of their
// version: the pod can no longer be reached, does not let the operator ask, or has
// too much to do. It is the first of them, by version.
func (s *session) tryAll(ctx context.Context, answer *Answer) error {
	var untold error
	for _, version := range slices.SortedFunc(maps.Keys(answer.Serves), byName) {
		serves := answer.Serves[version]
		request, known := trials[version.Group]
		if !serves || !known {
			continue
		}
		found, err := s.try(ctx, version, request)
		if err == nil {
			answer.Serves[version] = found
			continue
		}
		answer.fail(version, err)
		if untold == nil && !failure(err) {
			untold = err
		}
	}
	return untold
}

func byName(a, b schema.GroupVersion) int { return strings.Compare(a.String(), b.String()) }

// try asks for objects of a version; false when there is no such path.
func (s *session) try(ctx context.Context, version schema.GroupVersion, request trial) (bool, error) {
	path := "/apis/" + version.String() + "/" + request.resource
	body, found, err := s.open(ctx, path, "limit=1")
	if err != nil || !found {
		return false, err
	}
	defer func() { _ = body.Close() }()
	if err := checkList(io.LimitReader(body, maxBody), version, request.kind); err != nil {
		return true, &malformedError{path, err}
	}
	return true, nil
}

// malformedError is an answer that is not what was asked for.
type malformedError struct {
	path string
	err  error
}

// Error implements error.
func (e *malformedError) Error() string { return "read the answer to " + e.path + ": " + e.err.Error() }

// Unwrap implements errors.Unwrap.
func (e *malformedError) Unwrap() error { return e.err }

// failure tells whether the pod was reached and failed.
func failure(err error) bool {
	var answered *statusError
	var malformed *malformedError
	return errors.Is(err, errTimeout) || errors.As(err, &malformed) ||
		errors.As(err, &answered) && answered.code >= http.StatusInternalServerError
}

// listsMetrics tells of a group whose discovery lists the metrics that exist at the
// moment. There may be none, and each is a query of its own, so that discovery is all
// that is asked for.
func listsMetrics(group string) bool {
	return group == custom_metrics.GroupName || group == external_metrics.GroupName
}

// discovers tells whether there is discovery of the version, with or without metrics.
func (s *session) discovers(ctx context.Context, version schema.GroupVersion) (bool, error) {
	path := "/apis/" + version.String()
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

// checkList reads as far as a list says what it is: an implementation that knows
// no limit answers with every node.
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

// readFields reads an object as far as its fields of these names, which are texts.
func readFields(body io.Reader, names ...string) (map[string]string, error) {
	decoder := json.NewDecoder(body)
	start, err := decoder.Token()
	if err != nil {
		return nil, stable(err)
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
			return nil, stable(err)
		}
		name, _ := field.(string)
		if !slices.Contains(names, name) {
			var skipped json.RawMessage
			if err := decoder.Decode(&skipped); err != nil {
				return nil, stable(err)
			}
			continue
		}
		var value string
		if err := decoder.Decode(&value); err != nil {
			return nil, stable(err)
		}
		found[name] = value
	}
	return found, nil
}
