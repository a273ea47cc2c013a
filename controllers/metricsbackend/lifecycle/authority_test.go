// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package lifecycle

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	gocmp "github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/metricsbackend/metrics-backend-operator/api/v1alpha1"
)

// What the caBundle of an APIService is to be: the authority of its other owner with ours, which is "ca", behind it. The
// time of an addition stays, or it would be written in each reconciliation.
func TestSetLive(t *testing.T) {
	t.Parallel()
	const past, now = "2026-11-01T11:00:00Z", "2026-11-01T12:00:00Z"
	both := func(theirs, at, ours string) string {
		return theirs + "\n# metricsbackend.io/backend=cluster " + at + "\n" + ours
	}
	caBundle := func(is string) func(*Version) {
		return func(v *Version) { v.Live.Spec.CABundle = []byte(is) }
	}
	record := func(caBundle string) func(*Version) {
		return func(v *Version) {
			body, _ := json.Marshal(PreviousOwner{
				Service: v1alpha1.ExistingService{Namespace: "kube-system", Name: "metrics-server"}, CABundle: []byte(caBundle), GroupPriorityMinimum: 100, VersionPriority: 100,
			})
			v.Live.Annotations[v1alpha1.AnnotationPreviousOwner] = string(body)
		}
	}
	oursAtTheirs := pointing("kube-system", "metrics-server", "cluster")
	// changes has another manager own the caBundle.
	changes := func(v *Version) {
		v.Live.ManagedFields = []metav1.ManagedFieldsEntry{{Manager: "helm", FieldsV1: metav1.NewFieldsV1(`{"f:spec":{"f:caBundle":{},"f:service":{"f:namespace":{},"f:name":{}}}}`)}}
	}
	for name, tc := range map[string]struct {
		live []func(*Version)
		want string
	}{
		"nobody's":                           {nil, "ca"},
		"ours, and never theirs":             {[]func(*Version){ours, caBundle("ca")}, "ca"},
		"theirs":                             {[]func(*Version){theirs, caBundle("THEIRS")}, both("THEIRS", now, "ca")},
		"theirs, without one":                {[]func(*Version){theirs, caBundle("")}, "ca"},
		"theirs, and ours was added":         {[]func(*Version){theirs, caBundle(both("THEIRS", past, "ca"))}, both("THEIRS", past, "ca")},
		"theirs, and an older one of ours":   {[]func(*Version){theirs, caBundle(both("THEIRS", past, "old"))}, both("THEIRS", past, "ca")},
		"theirs, and another backend's":      {[]func(*Version){theirs, caBundle(strings.ReplaceAll(both("THEIRS", past, "x"), "cluster", "other"))}, both("THEIRS", now, "ca")},
		"theirs is the same as ours":         {[]func(*Version){theirs, caBundle("ca")}, both("ca", now, "ca")},
		"theirs, with a record of before":    {[]func(*Version){theirs, record("OLD"), caBundle("THEIRS")}, both("THEIRS", now, "ca")},
		"taken over":                         {[]func(*Version){ours, record("THEIRS"), caBundle(both("THEIRS", past, "ca"))}, both("THEIRS", past, "ca")},
		"taken over, and ours changes":       {[]func(*Version){ours, record("THEIRS"), caBundle(both("THEIRS", past, "old"))}, both("THEIRS", past, "ca")},
		"taken over, without one":            {[]func(*Version){ours, record(""), caBundle("ca")}, "ca"},
		"taken over, theirs the same":        {[]func(*Version){ours, record("ca"), caBundle("ca")}, "ca"},
		"taken over, the record has ours":    {[]func(*Version){ours, record(both("THEIRS", past, "ca")), caBundle(both("THEIRS", past, "ca"))}, both("THEIRS", past, "ca")},
		"pointed back by the Service alone":  {[]func(*Version){oursAtTheirs, record("THEIRS"), caBundle(both("THEIRS", past, "ca"))}, both("THEIRS", past, "ca")},
		"pointed back, with a new one":       {[]func(*Version){oursAtTheirs, record("THEIRS"), changes, caBundle("NEW")}, both("NEW", now, "ca")},
		"pointed back, with ours in the new": {[]func(*Version){oursAtTheirs, record("THEIRS"), changes, caBundle(both("NEW", past, "ca"))}, both("NEW", past, "ca")},
		"ours, and someone changes it":       {[]func(*Version){ours, record("THEIRS"), changes, caBundle("NEW")}, both("THEIRS", now, "ca")},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			v := version(tc.live...)
			v.SetLive(v.Live)
			if diff := gocmp.Diff(tc.want, string(v.Identity.Target.CABundle)); diff != "" {
				t.Errorf("caBundle (-want +got):\n%s", diff)
			}
			if v.Live == nil || v.IsForeign() && tc.want == "ca" {
				return
			}
			// As it was written, with the record, it stays.
			if v.IsRecorded() {
				previous, err := ReadPreviousOwner(v.Live)
				if err != nil {
					t.Fatal(err)
				}
				record(string(previous.CABundle))(v)
			}
			v.Live.Spec.CABundle, v.Live.ManagedFields, v.Now = v.Identity.Target.CABundle, nil, v.Now.Add(time.Hour)
			v.SetLive(v.Live)
			if diff := gocmp.Diff(tc.want, string(v.Identity.Target.CABundle)); diff != "" {
				t.Errorf("caBundle an hour later (-want +got):\n%s", diff)
			}
		})
	}
}
