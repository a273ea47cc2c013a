// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package fleet

import (
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func TestControlEndpoint(t *testing.T) {
	slow := Fault{Kind: Slow, Duration: metav1.Duration{Duration: 3 * time.Second}}
	for name, test := range map[string]struct {
		method, path, body string
		status             int
		message            string // of an error
		want               map[string]Fault
	}{
		"by name": {"POST", "/faults", `{"kind":"slow","duration":"3s","nodes":["fleet-node-0002"]}`, 200, "",
			map[string]Fault{"fleet-node-0001": {Kind: Garbage}, "fleet-node-0002": slow}},
		"all nodes": {"POST", "/faults", `{"kind":"slow","duration":"3s"}`, 200, "",
			map[string]Fault{"fleet-node-0000": slow, "fleet-node-0001": slow, "fleet-node-0002": slow, "fleet-node-0003": slow}},
		"list": {"GET", "/faults", "", 200, "", map[string]Fault{"fleet-node-0001": {Kind: Garbage}}},
		"heal": {"DELETE", "/faults", "", 200, "", map[string]Fault{}},
		"heal another": {"DELETE", "/faults?node=fleet-node-0000", "", 200, "",
			map[string]Fault{"fleet-node-0001": {Kind: Garbage}}},
		"no such node to heal": {"DELETE", "/faults?node=x", "", 400, `no node "x"`, nil},
		"no such node":         {"POST", "/faults", `{"kind":"slow","nodes":["x"]}`, 400, `no node "x"`, nil},
		"no such kind":         {"POST", "/faults", `{"kind":"lazy"}`, 400, "known are", nil},
		"no kind":              {"POST", "/faults", `{}`, 400, "DELETE /faults heals", nil},
		"nodes and share":      {"POST", "/faults", `{"kind":"slow","share":0.5,"nodes":["x"]}`, 400, "name one of them", nil},
		"a share too large":    {"POST", "/faults", `{"kind":"slow","share":50}`, 400, "must lie in 0..1", nil},
		"a typing error":       {"POST", "/faults", `{"kinds":"slow"}`, 400, `unknown field "kinds"`, nil},
		"not JSON":             {"POST", "/faults", `slow`, 400, "reading the request", nil},
		"no pods to churn":     {"POST", "/churn", `{"move":1}`, 400, "has no pods", nil},
		"another method":       {"PATCH", "/faults", ``, 405, "Method Not Allowed", nil},
	} {
		t.Run(name, func(t *testing.T) {
			f, _ := newFleet(t, Options{Nodes: 4, PodsPerNode: -1})
			if err := f.SetFault(Fault{Kind: Garbage}, "fleet-node-0001"); err != nil {
				t.Fatal(err)
			}
			recorder := httptest.NewRecorder()
			f.ControlHandler(nil).ServeHTTP(recorder, httptest.NewRequest(test.method, test.path, strings.NewReader(test.body)))
			if recorder.Code != test.status {
				t.Fatalf("status %d, want %d: %s", recorder.Code, test.status, recorder.Body)
			}
			if test.status != http.StatusOK {
				if !strings.Contains(recorder.Body.String(), test.message) {
					t.Errorf("message %q, want %q in it", recorder.Body, test.message)
				}
				return
			}
			var list FaultList
			if err := json.Unmarshal(recorder.Body.Bytes(), &list); err != nil {
				t.Fatal(err)
			}
			got := map[string]Fault{}
			for _, entry := range list.Faults {
				got[entry.Node] = entry.Fault
				if f.Node(entry.Node).Fault() != entry.Fault {
					t.Errorf("%s has fault %v, not %v", entry.Node, f.Node(entry.Node).Fault(), entry.Fault)
				}
			}
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("faults (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(Kinds(), list.Kinds); diff != "" {
				t.Errorf("kinds (-want +got):\n%s", diff)
			}
		})
	}
}

func TestControlOfChurnSharesAndStats(t *testing.T) {
	f, _ := newFleet(t, Options{Nodes: 4, PodsPerNode: 2})
	var applied []Change
	server := httptest.NewServer(f.ControlHandler(func(c []Change) { applied = c }))
	defer server.Close()
	post := func(path, body string) string {
		t.Helper()
		response, err := http.Post(server.URL+path, "application/json", strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		defer response.Body.Close()
		answer, err := io.ReadAll(response.Body)
		if err != nil || response.StatusCode != http.StatusOK {
			t.Fatalf("POST %s: %s, %v: %s", path, response.Status, err, answer)
		}
		return string(answer)
	}
	post("/faults", `{"kind":"frozen","share":0.5}`)
	for i, name := range f.Share(1) {
		if got := f.Node(name).Fault().Kind; (got == Frozen) != (i < 2) {
			t.Errorf("%s, number %d of the draw, has fault %q", name, i, got)
		}
	}
	answer := post("/churn", `{"restart":1,"move":1,"replace":1}`)
	if len(applied) != 4 {
		t.Errorf("%d changes were applied, want 4", len(applied))
	}
	for _, c := range applied {
		if !strings.Contains(answer, c.Pod.Key().String()) {
			t.Errorf("the answer does not tell of %s: %s", c.Pod.Key(), answer)
		}
	}
	for path, want := range map[string]string{"/stats": `"requests": 0`, "/ca": string(f.Authority().PEM)} {
		response, err := http.Get(server.URL + path)
		if err != nil {
			t.Fatal(err)
		}
		body, err := io.ReadAll(response.Body)
		_ = response.Body.Close()
		if err != nil || !strings.Contains(string(body), want) {
			t.Errorf("GET %s: %v, %s", path, err, body)
		}
	}
}
