// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package server

import (
	"context"
	"maps"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/server/dynamiccertificates"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/klog/v2"
	"k8s.io/klog/v2/ktesting"
)

// notifications counts its notifications.
type notifications int

// Enqueue implements dynamiccertificates.Listener.
func (l *notifications) Enqueue() { *l++ }

// TestPublishedAuthentication: the CA of users, and all that concerns proxies, are in force from then on if they are
// valid, and otherwise stay as they were. A list that is missing is empty.
func TestPublishedAuthentication(t *testing.T) {
	users, proxies, others := string(generateCA(t, "users")), string(generateCA(t, "proxies")), string(generateCA(t, "others"))
	whole := map[string]string{
		"client-ca-file": users, "requestheader-client-ca-file": proxies, "requestheader-allowed-names": `["front-proxy"]`,
		"requestheader-username-headers": `["X-Remote-User"]`, "requestheader-uid-headers": `["X-Remote-Uid"]`,
		"requestheader-group-headers": `["X-Remote-Group"]`, "requestheader-extra-headers-prefix": `["X-Remote-Extra-"]`,
	}
	with := func(key, value string) map[string]string {
		changed := maps.Clone(whole)
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
		ExtraPrefix: []string{"X-Remote-Extra-"}, Accepted: []string{"front-proxy"}, Notified: 2, // both CAs have the listener
	}
	but := func(change func(*state)) state {
		s := read
		change(&s)
		return s
	}
	for name, tc := range map[string]struct {
		// then follows the whole ConfigMap.
		then map[string]string
		// lost: the ConfigMap is deleted instead.
		lost bool
		want state
	}{
		"nothing changes":              {then: whole, want: read},
		"another CA of proxies":        {then: with("requestheader-client-ca-file", others), want: but(func(s *state) { s.Proxies, s.Notified = others, 4 })},
		"another CA of users":          {then: with("client-ca-file", others), want: but(func(s *state) { s.Users, s.Notified = others, 4 })},
		"a CA that is none":            {then: with("requestheader-client-ca-file", "junk"), want: read},
		"an empty CA":                  {then: with("client-ca-file", ""), want: read},
		"no CA of proxies":             {then: with("requestheader-client-ca-file", ""), want: read},
		"other names":                  {then: with("requestheader-allowed-names", `["a","b"]`), want: but(func(s *state) { s.Accepted = []string{"a", "b"} })},
		"names that are no list":       {then: with("requestheader-allowed-names", `{`), want: read},
		"any name":                     {then: with("requestheader-allowed-names", ""), want: but(func(s *state) { s.Accepted = nil })},
		"headers, and a bad CA":        {then: map[string]string{"requestheader-client-ca-file": "junk", "requestheader-username-headers": `["U"]`}, want: read},
		"a bad header, and another CA": {then: map[string]string{"requestheader-client-ca-file": others, "requestheader-allowed-names": "{"}, want: read},
		"no header of the user":        {then: with("requestheader-username-headers", ""), want: read},
		"no UIDs, as before 1.32":      {then: with("requestheader-uid-headers", ""), want: but(func(s *state) { s.UID = nil })},
		"it is deleted":                {lost: true, want: read},
	} {
		t.Run(name, func(t *testing.T) {
			p := newPublishedAuthentication(fake.NewClientset())
			var notified notifications
			clientCA, headers := p.clientCA(), p.requestHeaders()
			clientCA.AddListener(&notified)
			headers.CAContentProvider.AddListener(&notified)
			if _, known := headers.CAContentProvider.VerifyOptions(); known || clientCA.CurrentCABundleContent() != nil {
				t.Error("a CA is known before the ConfigMap was read")
			}
			p.applyListed(t.Context(), []*corev1.ConfigMap{{Data: whole}})
			before, _ := headers.CAContentProvider.VerifyOptions()
			if tc.lost {
				p.applyListed(t.Context(), nil)
			} else {
				p.applyListed(t.Context(), []*corev1.ConfigMap{{Data: tc.then}})
			}
			after, known := headers.CAContentProvider.VerifyOptions()
			if !known || (before.Roots == after.Roots) != (tc.want.Proxies == proxies) {
				t.Errorf("roots of proxies: known %v, the same %v", known, before.Roots == after.Roots)
			}
			got := state{
				string(clientCA.CurrentCABundleContent()), string(headers.CAContentProvider.CurrentCABundleContent()), headers.UsernameHeaders.Value(), headers.UIDHeaders.Value(),
				headers.GroupHeaders.Value(), headers.ExtraHeaderPrefixes.Value(), headers.AllowedClientNames.Value(), int(notified),
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

// TestPublishedAuthenticationIsFollowed: the ConfigMap is read once before requests are accepted, and followed by one
// watch for both CAs, also if it is created late, deleted and created again.
func TestPublishedAuthenticationIsFollowed(t *testing.T) {
	first, second := string(generateCA(t, "first")), string(generateCA(t, "second"))
	synctest.Test(t, func(t *testing.T) {
		client := fake.NewClientset()
		configMaps := client.CoreV1().ConfigMaps(metav1.NamespaceSystem)
		with := func(ca string) *corev1.ConfigMap {
			return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: authenticationConfigMap}, Data: map[string]string{"requestheader-client-ca-file": ca, "requestheader-username-headers": `["X-Remote-User"]`}}
		}
		p := newPublishedAuthentication(client)
		ca := p.requestHeaders().CAContentProvider
		both := []dynamiccertificates.CAContentProvider{p.clientCA(), ca}
		runner := dynamiccertificates.NewUnionCAContentProvider(both...).(dynamiccertificates.ControllerRunner)
		if err := runner.RunOnce(t.Context()); err != nil {
			t.Fatal(err)
		}
		runUntilEnd(t, func(ctx context.Context) { runner.Run(ctx, 1); <-ctx.Done() })
		var got []string
		step := func(err error) {
			if err != nil {
				t.Fatal(err)
			}
			time.Sleep(time.Minute) // the reflector's backoff
			synctest.Wait()
			got = append(got, string(ca.CurrentCABundleContent()))
		}
		step(nil)
		_, err := configMaps.Create(t.Context(), with(first), metav1.CreateOptions{})
		step(err)
		step(configMaps.Delete(t.Context(), authenticationConfigMap, metav1.DeleteOptions{}))
		_, err = configMaps.Create(t.Context(), with(second), metav1.CreateOptions{})
		step(err)
		if diff := cmp.Diff([]string{"", first, first, second}, got); diff != "" {
			t.Errorf("CA of proxies (-want +got):\n%s", diff)
		}
		calls := map[string]int{}
		for _, action := range client.Actions() {
			calls[action.GetVerb()]++
		}
		if calls["get"] != 1 || calls["watch"] != 1 {
			t.Errorf("calls %v, want one get and one watch", calls)
		}
	})
}

// TestPublishedAuthenticationReports: what is wrong is logged once, and when it is right again.
func TestPublishedAuthenticationReports(t *testing.T) {
	logger := ktesting.NewLogger(t, ktesting.NewConfig(ktesting.BufferLogs(true)))
	ctx := klog.NewContext(t.Context(), logger)
	p := newPublishedAuthentication(fake.NewClientset())
	good := &corev1.ConfigMap{Data: map[string]string{"requestheader-client-ca-file": string(generateCA(t, "proxies")), "requestheader-username-headers": `["U"]`}}
	bad := &corev1.ConfigMap{Data: map[string]string{"requestheader-client-ca-file": "junk", "requestheader-allowed-names": "{"}}
	p.readOnce(ctx)
	p.report(ctx, errNotPublished)
	for _, found := range []*corev1.ConfigMap{good, good, bad, bad, good} {
		p.apply(ctx, found)
	}
	var got []string
	for _, entry := range logger.GetSink().(ktesting.Underlier).GetBuffer().Data() {
		text := entry.Message
		if entry.Err != nil {
			text = entry.Err.Error()
		}
		got = append(got, text[:min(len(text), 40)])
	}
	want := []string{"it does not exist", "How kube-apiserver's requests are recogn", "[read requestheader-client-ca-file: erro", "How kube-apiserver's requests are recogn"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}
