// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package resourcemetrics

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/apiserver/pkg/authentication/user"
	genericapiserver "k8s.io/apiserver/pkg/server"
	"k8s.io/utils/clock"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/metricsbackend/metrics-backend-operator/serving/samplestore"
	"github.com/metricsbackend/metrics-backend-operator/serving/stream"
	"github.com/metricsbackend/metrics-backend-operator/test/apiserver"
)

// t0 is the time of the tests' clock, with a fraction that no answer shows.
var t0 = time.Date(2026, 8, 30, 12, 0, 0, 250_000_000, time.UTC)

const maxAge = 90 * time.Second

// Settings and limits of watches, for tests that are not about these.
var (
	usualSettings = stream.Settings{BookmarkInterval: time.Minute, MaxAge: time.Hour, StallTimeout: time.Minute}
	usualLimits   = stream.Limits{Connections: 10000, PerUser: 1000, OpensPerSecond: 100, OpensBurst: 1000}
)

// newStore returns an empty store at t0.
func newStore() *samplestore.Store {
	return samplestore.NewStore(clocktesting.NewFakePassiveClock(t0), maxAge)
}

// enableAll is a --runtime-config that takes nothing out.
func enableAll(schema.GroupVersion) bool { return true }

// available serves all requests.
func available() error { return nil }

// newStreams streams a store under usual settings, without chance.
func newStreams(store *samplestore.Store) *Streams {
	return NewStreams(store, clock.RealClock{}, func() float64 { return 1 },
		stream.NewQuota(clock.RealClock{}, func() float64 { return 0.5 }, usualLimits), usualSettings)
}

// serve runs a real generic API server over the store.
func serve(t testing.TB, store *samplestore.Store, enabled func(schema.GroupVersion) bool, mutate ...func(*genericapiserver.Config)) *httptest.Server {
	t.Helper()
	server, _ := serveStreams(t, store, newStreams(store), enabled, mutate...)
	return server
}

// serveStreams does so for streams of the test's own.
func serveStreams(t testing.TB, store *samplestore.Store, streams *Streams, enabled func(schema.GroupVersion) bool, mutate ...func(*genericapiserver.Config)) (*httptest.Server, *Group) {
	t.Helper()
	server := apiserver.New(t, Scheme, GetOpenAPIDefinitions, mutate...)
	group, err := InstallAPI(server, store, streams, available, enabled)
	if err != nil {
		t.Fatalf("installing the API group: %v", err)
	}
	server.PrepareRun()
	s := httptest.NewServer(server.Handler)
	s.Client().Timeout = time.Minute // an event that does not come fails its test, and no other
	t.Cleanup(s.Close)
	return s, group
}

// withUser authenticates all clients: the API server closes anonymous HTTP/2 connections after a request.
func withUser(c *genericapiserver.Config) {
	c.Authentication.Authenticator = authenticator.RequestFunc(func(*http.Request) (*authenticator.Response, bool, error) {
		return &authenticator.Response{User: &user.DefaultInfo{Name: "client"}}, true, nil
	})
}

// answer is what came back over HTTP.
type answer struct {
	code   int
	header http.Header
	body   []byte
}

// get sends a request, with an Accept header where accept is not empty.
func get(t testing.TB, server *httptest.Server, path, accept string) answer {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, server.URL+path, nil)
	if err != nil {
		t.Fatal(err)
	}
	if accept != "" {
		request.Header.Set("Accept", accept)
	}
	// Without it Go's transport would ask for gzip and hide that it did.
	request.Header.Set("Accept-Encoding", "identity")
	response, err := server.Client().Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = response.Body.Close() }()
	body, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	return answer{code: response.StatusCode, header: response.Header, body: body}
}

// decode reads an answer of JSON.
func decode(t testing.TB, a answer, into any) {
	t.Helper()
	if a.code != http.StatusOK {
		t.Fatalf("got code %d: %s", a.code, a.body)
	}
	if err := json.Unmarshal(a.body, into); err != nil {
		t.Fatalf("decoding %s: %v", a.body, err)
	}
}

// sample is a point of one usage per argument, taken at t0 and an offset.
func sample(offset time.Duration, usages ...samplestore.Usage) *samplestore.Point {
	at := samplestore.TimeOf(t0.Add(offset))
	return &samplestore.Point{
		Time:    at,
		Window:  15012 * time.Millisecond,
		Newest:  at,
		Started: samplestore.TimeOf(t0.Add(-time.Hour)),
		Node:    "node-a",
		Usages:  usages,
	}
}

// put makes an object known and gives it a point; a nil point leaves it without.
func put(collection *samplestore.Collection, namespace, name string, labels map[string]string, p *samplestore.Point) {
	key := samplestore.Key{Namespace: namespace, Name: name}
	collection.SetMeta(key, &samplestore.Meta{UID: types.UID(fmt.Sprintf("uid-%s-%s", namespace, name)), Labels: labels})
	if p != nil {
		collection.Publish([]samplestore.Update{{Key: key, Point: p}})
	}
}
