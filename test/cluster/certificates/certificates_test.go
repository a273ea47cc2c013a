// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package certificates

import (
	"crypto/tls"
	"crypto/x509"
	"os"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

var start = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

func requests() []Request {
	return []Request{
		{Name: "server", CommonName: "server", Hosts: []string{"localhost", "10.244.0.1"}},
		{Name: "client", CommonName: "system:node:node-1", Organization: "system:nodes"},
		{Name: "peer", CommonName: "etcd", Hosts: []string{"127.0.0.1"}, Both: true},
	}
}

func TestEnsure(t *testing.T) {
	t.Parallel()
	everything := []string{"ca", "server", "client", "peer"}
	for name, test := range map[string]struct {
		later  time.Duration
		change func(t *testing.T, s Store, requests []Request)
		want   []string
	}{
		"nothing to do": {},
		"a new host": {
			change: func(_ *testing.T, _ Store, requests []Request) { requests[0].Hosts = []string{"localhost"} },
			want:   []string{"server"},
		},
		"another group": {
			change: func(_ *testing.T, _ Store, requests []Request) { requests[1].Organization = "system:masters" },
			want:   []string{"client"},
		},
		"leaves near their end":       {later: leafLife - renewal + time.Second, want: everything[1:]},
		"the authority near its end":  {later: authorityLife - renewal + time.Second, want: everything},
		"a leaf is gone":              {change: remove("peer.crt"), want: []string{"peer"}},
		"a key is gone":               {change: remove("peer.key"), want: []string{"peer"}},
		"the authority's key is gone": {change: remove("ca.key"), want: everything},
		"the key of another": {
			change: func(t *testing.T, s Store, _ []Request) { copyFile(t, s.Key("client"), s.Key("server")) },
			want:   []string{"server"},
		},
		"half a certificate": {
			change: func(t *testing.T, s Store, _ []Request) {
				if err := os.WriteFile(s.Certificate("server"), []byte("-----BEGIN"), 0o644); err != nil {
					t.Fatal(err)
				}
			},
			want: []string{"server"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			now := start
			s := Store{Folder: t.TempDir(), Now: func() time.Time { return now }}
			made, err := s.Ensure("ca", requests()...)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(everything, made); diff != "" {
				t.Fatalf("at first (-want +got):\n%s", diff)
			}
			requested := requests()
			if test.change != nil {
				test.change(t, s, requested)
			}
			now = now.Add(test.later)
			if made, err = s.Ensure("ca", requested...); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(test.want, made); diff != "" {
				t.Fatalf("then (-want +got):\n%s", diff)
			}
			for _, request := range requested {
				verify(t, s, request, now)
			}
		})
	}
}

// verify reads a pair as servers do and checks it against the authority.
func verify(t *testing.T, s Store, request Request, now time.Time) {
	t.Helper()
	pair, err := tls.LoadX509KeyPair(s.Certificate(request.Name), s.Key(request.Name))
	if err != nil {
		t.Fatal(err)
	}
	authority, err := os.ReadFile(s.Certificate("ca"))
	if err != nil {
		t.Fatal(err)
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(authority)
	for _, usage := range request.usages() {
		options := x509.VerifyOptions{Roots: roots, CurrentTime: now, KeyUsages: []x509.ExtKeyUsage{usage}}
		if _, err := pair.Leaf.Verify(options); err != nil {
			t.Fatalf("%s: %v", request.Name, err)
		}
	}
	for _, host := range request.Hosts {
		if err := pair.Leaf.VerifyHostname(host); err != nil {
			t.Fatal(err)
		}
	}
	info, err := os.Stat(s.Key(request.Name))
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Fatalf("the key's file: %v, %v, want mode 0600", info, err)
	}
}

func TestEnsureSigningKey(t *testing.T) {
	t.Parallel()
	s := Store{Folder: t.TempDir(), Now: func() time.Time { return start }}
	for i, want := range []bool{true, false} {
		if made, err := s.EnsureSigningKey("tokens"); err != nil || made != want {
			t.Fatalf("call %d: %t, %v, want %t", i, made, err, want)
		}
	}
	if err := os.Remove(s.Key("tokens")); err != nil {
		t.Fatal(err)
	}
	if made, err := s.EnsureSigningKey("tokens"); err != nil || !made {
		t.Fatalf("without the private key: %t, %v, want a new pair", made, err)
	}
}

func remove(file string) func(*testing.T, Store, []Request) {
	return func(t *testing.T, s Store, _ []Request) {
		if err := os.Remove(s.Folder + "/" + file); err != nil {
			t.Fatal(err)
		}
	}
}

func copyFile(t *testing.T, from, to string) {
	t.Helper()
	content, err := os.ReadFile(from)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(to, content, 0o600); err != nil {
		t.Fatal(err)
	}
}
