// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package lifecycle

import (
	"errors"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/metricsbackend/metrics-backend-operator/controllers/manifests"
)

func TestWaitReason(t *testing.T) {
	now := time.Date(2026, 11, 1, 12, 0, 0, 0, time.UTC)
	v1 := schema.GroupVersion{Group: "metrics.k8s.io", Version: "v1"}
	serves, lacks := map[schema.GroupVersion]bool{v1: true}, map[schema.GroupVersion]bool{}
	pod := func(answer map[schema.GroupVersion]bool, change ...func(*Server)) Server {
		s := Server{Name: "pod a (image i)", Ready: true, Current: true, Template: "new", Serves: answer}
		for _, c := range change {
			c(&s)
		}
		return s
	}
	unready := func(s *Server) { s.Ready = false }
	old := func(s *Server) { s.Current, s.Template = false, "old" }
	refused := func(s *Server) { s.Err = errors.New("connection refused") }
	failing := func(s *Server) { s.Failing = map[schema.GroupVersion]string{v1: "HTTP 500"} }
	ending := func(left time.Duration) func(*Server) {
		return func(s *Server) {
			s.Name, s.Ready, s.Current, s.Ending, s.Deadline = "pod old", false, false, true, now.Add(left)
		}
	}
	const waits = "waits for the end of pod old, which is ending and does not "
	cases := map[string]struct {
		servers []Server
		// rolling: the rollout is not finished; stuck, and does not progress.
		rolling, stuck bool
		change         func(*Version)
		want           string
	}{
		"pods are to come":                            {rolling: true, want: "waits until the rollout is finished"},
		"no pod is ready":                             {servers: []Server{pod(nil, unready)}, want: "waits for a ready pod"},
		"every pod serves it":                         {servers: []Server{pod(serves)}},
		"no certificates":                             {servers: []Server{pod(serves)}, change: func(v *Version) { v.Identity.Target.CABundle = nil }, want: "waits for the certificates"},
		"a ready pod lacks it":                        {servers: []Server{pod(serves), pod(lacks)}, want: "not served by pod a (image i)"},
		"its requests fail":                           {servers: []Server{pod(serves, failing)}, want: "its requests fail in pod a (image i): HTTP 500"},
		"it recovers":                                 {servers: []Server{pod(serves)}, change: func(v *Version) { v.Recovering = "waits a while" }, want: "waits a while"},
		"a pod cannot be asked":                       {servers: []Server{pod(serves), pod(nil, refused, old)}, want: "waits until every ready pod can be asked"},
		"one of its kind cannot be asked":             {servers: []Server{pod(serves), pod(nil, refused)}},
		"rolling, and all that answer do":             {rolling: true, servers: []Server{pod(serves), pod(nil, unready)}},
		"rolling, and an old pod is there":            {rolling: true, servers: []Server{pod(serves), pod(serves, old)}, want: "waits until the rollout is finished"},
		"stuck, and an old pod is there":              {rolling: true, stuck: true, servers: []Server{pod(serves), pod(serves, old)}},
		"rolling, and one that is not ready lacks it": {rolling: true, servers: []Server{pod(serves), pod(lacks, unready)}, want: "waits until the rollout is finished"},
		"rolling, and its template lacked it": {
			rolling: true, servers: []Server{pod(serves), pod(nil, unready, old, func(s *Server) { s.Current = true })},
			change: func(v *Version) { v.Lacked = map[string]bool{"old": true} }, want: "waits until the rollout is finished",
		},
		"rolling, and someone else serves the group": {rolling: true, servers: []Server{pod(serves)}, change: func(v *Version) { v.Elsewhere = true }, want: "waits until the rollout is finished"},
		"rolling, and one fails":                     {rolling: true, servers: []Server{pod(serves), pod(serves, failing)}},
		"rolling, one fails, and there is another version": {
			rolling: true, servers: []Server{pod(serves), pod(serves, failing)}, change: func(v *Version) { v.Alternative = true },
			want: "its requests fail in pod a (image i): HTTP 500",
		},
		"an ending pod serves it":          {servers: []Server{pod(serves), pod(serves, ending(time.Minute))}},
		"an ending pod does not":           {servers: []Server{pod(serves), pod(lacks, ending(time.Minute))}, want: waits + "serve it"},
		"an ending pod does not, for long": {servers: []Server{pod(serves), pod(lacks, ending(-time.Hour))}, want: waits + "serve it"},
		"an ending pod does not answer":    {servers: []Server{pod(serves), pod(nil, refused, ending(time.Minute))}, want: waits + "answer"},
		"its node went before it":          {servers: []Server{pod(serves), pod(nil, refused, ending(-time.Minute))}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			v := &Version{
				GV: v1, Now: now, Servers: tc.servers, Rollout: Rollout{Finished: !tc.rolling, Stuck: tc.stuck},
				Identity: Identity{Deploys: true, Target: manifests.Target{CABundle: []byte("x")}},
			}
			if tc.change != nil {
				tc.change(v)
			}
			if got := v.WaitReason(); got != tc.want {
				t.Errorf("got %q, want %q", got, tc.want)
			}
		})
	}
}
