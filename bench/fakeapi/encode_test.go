// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package fakeapi

import (
	"encoding/json"
	"testing"

	"github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

func TestNegotiate(t *testing.T) {
	const partial = ";as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"
	type result struct {
		MediaType string
		Partial   bool
	}
	for accept, want := range map[string]result{
		"":                         {"application/json", false},
		"*/*":                      {"application/json", false},
		"application/json":         {"application/json", false},
		"text/html, application/*": {"application/json", false},
		"application/vnd.kubernetes.protobuf, application/json":                              {"application/vnd.kubernetes.protobuf", false},
		"application/vnd.kubernetes.protobuf" + partial + ",application/json":                {"application/vnd.kubernetes.protobuf", true},
		"application/json" + partial:                                                         {"application/json", true},
		"application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1beta1,application/json": {"application/json", false},
		"application/json;as=Table;g=meta.k8s.io;v=v1,application/json":                      {"application/json", false},
		"application/json;as=Table;g=meta.k8s.io;v=v1":                                       {},
		"application/yaml": {},
		"nonsense;":        {},
	} {
		t.Run(accept, func(t *testing.T) {
			as, err := negotiate(accept)
			if want == (result{}) {
				if !apierrors.IsNotAcceptable(err) {
					t.Errorf("error %v, want 406", err)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(want, result{as.info.MediaType, as.partial}); diff != "" {
				t.Errorf("representation (-want +got):\n%s", diff)
			}
		})
	}
}

func TestFieldsV1(t *testing.T) {
	for name, tc := range map[string]struct{ object, want string }{
		"a map":                {`{"a":{"b":1,"c":"d"}}`, `{"f:a":{"f:b":{},"f:c":{}}}`},
		"a list by name":       {`{"a":[{"name":"x","v":1}]}`, `{"f:a":{"k:{\"name\":\"x\"}":{".":{},"f:name":{},"f:v":{}}}}`},
		"a list by type":       {`{"a":[{"type":"Ready","v":1}]}`, `{"f:a":{"k:{\"type\":\"Ready\"}":{".":{},"f:type":{},"f:v":{}}}}`},
		"a list without a key": {`{"a":[{"v":1}]}`, `{"f:a":{}}`},
		"a list of values":     {`{"a":[1,2]}`, `{"f:a":{}}`},
	} {
		t.Run(name, func(t *testing.T) {
			var object map[string]any
			if err := json.Unmarshal([]byte(tc.object), &object); err != nil {
				t.Fatal(err)
			}
			got, err := json.Marshal(fieldsV1(object))
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tc.want, string(got)); diff != "" {
				t.Errorf("fields (-want +got):\n%s", diff)
			}
		})
	}
}
