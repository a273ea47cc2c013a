// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package meter

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"
)

func TestMeter(t *testing.T) {
	t.Parallel()
	now := time.Unix(1000, 0)
	m := newMeter(func() time.Time { return now })
	for name, test := range map[string]struct {
		set  string
		want string // after ten seconds
		code int
	}{
		"gauge":                {set: "queue_length 17\n", want: "queue_length 17\n"},
		"labels with spaces":   {set: `q{a="x } y",b="1 2"} 3` + "\n", want: `q{a="x } y",b="1 2"} 3` + "\n"},
		"counter":              {set: "hits_total 5 +2.5", want: "hits_total 30\n"},
		"no number":            {set: "broken NaN", want: "broken NaN\n"},
		"comments and nothing": {set: "# HELP x y\n\n", want: ""},
		"no value":             {set: "hits_total", code: http.StatusBadRequest},
		"no growth":            {set: "hits_total 1 fast", code: http.StatusBadRequest},
		"too many":             {set: "hits_total 1 2 3", code: http.StatusBadRequest},
	} {
		t.Run(name, func(t *testing.T) {
			if test.code == 0 {
				test.code = http.StatusOK
			}
			put := httptest.NewRecorder()
			m.ServeHTTP(put, httptest.NewRequest(http.MethodPut, Path, strings.NewReader(test.set)))
			if put.Code != test.code {
				t.Fatalf("PUT: %d %s, want %d", put.Code, put.Body, test.code)
			}
			if test.code != http.StatusOK {
				return
			}
			now = now.Add(10 * time.Second)
			got := httptest.NewRecorder()
			m.ServeHTTP(got, httptest.NewRequest(http.MethodGet, Path, nil))
			if got.Body.String() != test.want {
				t.Errorf("GET: %q, want %q", got.Body, test.want)
			}
		})
	}
}

func TestOtherRequests(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		method, path string
		want         int
	}{
		"another path":   {http.MethodGet, "/", http.StatusNotFound},
		"another method": {http.MethodDelete, Path, http.StatusMethodNotAllowed},
	} {
		got := httptest.NewRecorder()
		New().ServeHTTP(got, httptest.NewRequest(test.method, test.path, nil))
		if got.Code != test.want {
			t.Errorf("%s: %d, want %d", name, got.Code, test.want)
		}
	}
}
