// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package server

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/kubernetes/fake"
)

// notifications counts its notifications.
type notifications int

// Enqueue implements dynamiccertificates.Listener.
func (l *notifications) Enqueue() { *l++ }

// TestPublishedAuthentication: each valid part of the ConfigMap is in force from then on, and an invalid or missing one,
// or the loss of the ConfigMap, changes nothing.
func TestPublishedAuthentication(t *testing.T) {
	users, proxies, others := string(generateCA(t, "users")), string(generateCA(t, "proxies")), string(generateCA(t, "others"))
	whole := map[string]string{
		"client-ca-file": users, "requestheader-client-ca-file": proxies, "requestheader-allowed-names": `["front-proxy"]`,
		"requestheader-username-headers": `["X-Remote-User"]`, "requestheader-uid-headers": `["X-Remote-Uid"]`,
		"requestheader-group-headers": `["X-Remote-Group"]`, "requestheader-extra-headers-prefix": `["X-Remote-Extra-"]`,
	}
	with := func(key, value string) map[string]string {
		changed := map[string]string{}
		for k, v := range whole {
			changed[k] = v
		}
		changed[key] = value
		return changed
	}
	type state struct {
		Users, Proxies                              string
		Username, UID, Group, ExtraPrefix, Accepted []string
		Notified                                    int
	}
	read := state{
		Users: users, Proxies: proxies, Username: []string{"X-Remote-User"}, UID: []string{"X-Remote-Uid"}, Group: []string{"X-Remote-Group"},
		ExtraPrefix: []string{"X-Remote-Extra-"}, Accepted: []string{"front-proxy"}, Notified: 2,
	}
	but := func(change func(*state)) state {
		s := read
		change(&s)
		return s
	}
	for name, tc := range map[string]struct {
		// then follows the whole ConfigMap, unless it is nil.
		then map[string]string
		// lost removes the ConfigMap instead.
		lost bool
		want state
	}{
		"nothing changes":         {then: whole, want: read},
		"another CA of proxies":   {then: with("requestheader-client-ca-file", others), want: but(func(s *state) { s.Proxies, s.Notified = others, 3 })},
		"another CA of users":     {then: with("client-ca-file", others), want: but(func(s *state) { s.Users, s.Notified = others, 3 })},
		"a CA that is none":       {then: with("requestheader-client-ca-file", "junk"), want: read},
		"an empty CA":             {then: with("client-ca-file", ""), want: read},
		"other names":             {then: with("requestheader-allowed-names", `["a","b"]`), want: but(func(s *state) { s.Accepted = []string{"a", "b"} })},
		"names that are no list":  {then: with("requestheader-allowed-names", `{`), want: read},
		"any name":                {then: with("requestheader-allowed-names", ""), want: but(func(s *state) { s.Accepted = nil })},
		"headers, and a bad CA":   {then: map[string]string{"requestheader-client-ca-file": "junk", "requestheader-username-headers": `["U"]`}, want: state{Users: users, Proxies: proxies, Username: []string{"U"}, Notified: 2}},
		"no UIDs, as before 1.32": {then: with("requestheader-uid-headers", ""), want: but(func(s *state) { s.UID = nil })},
		"it is deleted":           {lost: true, want: read},
	} {
		t.Run(name, func(t *testing.T) {
			p := newPublishedAuthentication(fake.NewClientset())
			var notified notifications
			p.clientCA.AddListener(&notified)
			p.headerCA.AddListener(&notified)
			if _, known := p.headerCA.VerifyOptions(); known || p.clientCA.CurrentCABundleContent() != nil {
				t.Error("a CA is known before the ConfigMap was read")
			}
			store := &publishedStore{apply: func(published *corev1.ConfigMap) { p.apply(t.Context(), published) }, gone: func() {}}
			if err := store.Replace([]any{&corev1.ConfigMap{Data: whole}}, ""); err != nil {
				t.Fatal(err)
			}
			before, _ := p.headerCA.VerifyOptions()
			var err error
			if tc.lost {
				err = store.Replace(nil, "")
			} else {
				err = store.Update(&corev1.ConfigMap{Data: tc.then})
			}
			if err != nil {
				t.Fatal(err)
			}
			after, known := p.headerCA.VerifyOptions()
			if !known || (before.Roots == after.Roots) != (tc.want.Proxies == proxies) {
				t.Errorf("roots of proxies: known %v, the same %v", known, before.Roots == after.Roots)
			}
			headers := p.requestHeaders()
			got := state{
				string(p.clientCA.CurrentCABundleContent()), string(p.headerCA.CurrentCABundleContent()), headers.UsernameHeaders.Value(), headers.UIDHeaders.Value(),
				headers.GroupHeaders.Value(), headers.ExtraHeaderPrefixes.Value(), headers.AllowedClientNames.Value(), int(notified),
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}
