// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

const (
	config = `{"config":{"protocol_version":"v1.0.0","db_last_modified":"2026-11-05T23:49:57Z"}}` + "\n"
	race   = `{"osv":{"id":"GO-2026-0001","summary":"HPACK race"}}` + "\n"
	called = `{"finding":{"osv":"GO-2026-0001","fixed_version":"v0.60.0","trace":[` +
		`{"module":"golang.org/x/net","version":"v0.58.0","package":"golang.org/x/net/http2","function":"ServeConn","receiver":"*Server"},` +
		`{"module":"example.com/m","package":"example.com/m","function":"main"}]}}` + "\n"
	imported = `{"finding":{"osv":"GO-2026-0002","trace":[{"module":"golang.org/x/net","version":"v0.58.0","package":"golang.org/x/net/html"}]}}` + "\n"
)

func TestRun(t *testing.T) {
	for name, test := range map[string]struct {
		results, accepted string
		want, wantErr     string
	}{
		"nothing called": {results: config + race + imported, want: "no known vulnerability is called\n"},
		"called, twice": {
			results: config + race + called + called,
			want: "GO-2026-0001: HPACK race\n" +
				"  called: golang.org/x/net/http2.Server.ServeConn of golang.org/x/net@v0.58.0; fixed in v0.60.0\n",
			wantErr: "called and not accepted: 1",
		},
		"accepted": {
			results: config + race + called, accepted: "# why\n\nGO-2026-0001 2026-01-31 HTTP/2 is off\n",
			want: "accepted: GO-2026-0001 HPACK race (HTTP/2 is off)\n",
		},
		"accepted, no longer called": {
			results: config, accepted: "GO-2026-0001 2026-01-31 HTTP/2 is off\n",
			want: "GO-2026-0001 is accepted and no longer called: remove its line\nno known vulnerability is called\n",
		},
		"accepted without a reason": {results: config, accepted: "GO-2026-0001 2026-01-31\n", wantErr: "write ID, date and reason"},
		"accepted without a date":   {results: config, accepted: "GO-2026-0001 HTTP/2 is off\n", wantErr: "the second word is the date"},
		"no results":                {wantErr: "did govulncheck run to its end?"},
		"results cut off":           {results: config + `{"finding":`, wantErr: "unexpected EOF"},
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "accepted")
			if err := os.WriteFile(path, []byte(test.accepted), 0o600); err != nil {
				t.Fatal(err)
			}
			var out strings.Builder
			err := run(path, strings.NewReader(test.results), &out)
			if diff := cmp.Diff(test.want, out.String()); diff != "" {
				t.Errorf("output (-want +got):\n%s", diff)
			}
			if got := errorText(err); test.wantErr == "" && got != "" || !strings.Contains(got, test.wantErr) {
				t.Errorf("error %q, want one with %q", got, test.wantErr)
			}
		})
	}
}

// TestDockerfile checks that images are built with the Go that is scanned, whose standard library has vulnerabilities, too.
func TestDockerfile(t *testing.T) {
	find := func(path, pattern string) string {
		content, err := os.ReadFile("../../" + path)
		if err != nil {
			t.Fatal(err)
		}
		match := regexp.MustCompile(pattern).FindSubmatch(content)
		if match == nil {
			t.Fatalf("%s has no %s", path, pattern)
		}
		return string(match[1])
	}
	scanned := find("go.mod", `(?m)^toolchain go(\S+)$`)
	if built := find("Dockerfile", `(?m)^FROM .*\bgolang:(\S+)`); built != scanned {
		t.Errorf("the Dockerfile builds with Go %s, and go.mod's toolchain is %s", built, scanned)
	}
}

func errorText(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}
