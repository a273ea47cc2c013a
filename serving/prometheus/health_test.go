// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package prometheus

import (
	"context"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/clock"

	"github.com/metricsbackend/metrics-backend-operator/api/v1alpha1"
	"github.com/metricsbackend/metrics-backend-operator/serving/query"
	"github.com/metricsbackend/metrics-backend-operator/serving/sourceclient"
	"github.com/metricsbackend/metrics-backend-operator/test/pipes"
)

// bubble is a source that runs, and its server, in a bubble's time.
type bubble struct {
	source *Source
	began  time.Time
	mu     sync.Mutex
	// answer is how the server answers a query.
	answer http.HandlerFunc
	asked  []string
}

func (b *bubble) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	_ = r.ParseForm()
	b.mu.Lock()
	answer := b.answer
	b.asked = append(b.asked, r.PostForm.Get("query"))
	b.mu.Unlock()
	answer(w, r)
}

func (b *bubble) answers(h http.HandlerFunc) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.answer = h
}

// queries returns the queries since the last call.
func (b *bubble) queries() []string {
	b.mu.Lock()
	defer b.mu.Unlock()
	a := b.asked
	b.asked = nil
	return a
}

var good = answers("application/json", strings.ReplaceAll(oneSample, "1700000000", "946684800"))

func inBubble(t *testing.T, f func(*testing.T, *bubble)) {
	synctest.Test(t, func(t *testing.T) {
		b := &bubble{answer: good, began: time.Now()}
		network := pipes.New()
		server := &http.Server{Handler: b, ErrorLog: quiet}
		served := make(chan error)
		go func() { served <- server.Serve(network) }()
		var err error
		b.source, err = New(sourceclient.Options{Name: "main", Clock: clock.RealClock{}, Dial: network.Dial}, v1alpha1.PrometheusSource{URL: "http://prometheus.example", MaxResponseSize: "64Ki"})
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() {
			defer close(done)
			b.source.Run(ctx)
		}()
		f(t, b)
		cancel()
		<-done
		_ = server.Close()
		<-served
	})
}

// hangs answers nothing until the client leaves.
func hangs(_ http.ResponseWriter, r *http.Request) {
	_, _ = io.Copy(io.Discard, r.Body)
	<-r.Context().Done()
}

func (b *bubble) health(t *testing.T, want v1alpha1.SourceHealth) {
	t.Helper()
	synctest.Wait()
	got := b.source.Health()
	want.Name = "main"
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("health at %s (-want +got):\n%s", time.Since(b.began), diff)
	}
}

func (b *bubble) since(d time.Duration) metav1.Time { return metav1.Time{Time: b.began.Add(d)} }

// A source without queries is probed, and is healthy since its first response.
func TestHealthOfAQuietSource(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bubble) {
		b.health(t, v1alpha1.SourceHealth{Healthy: true, Since: b.since(0)})
		time.Sleep(5 * time.Minute)
		b.health(t, v1alpha1.SourceHealth{Healthy: true, Since: b.since(0)})
		if n := len(b.queries()); n != 11 {
			t.Errorf("probed %d times in five minutes", n)
		}
		b.answers(status(http.StatusUnauthorized, "text/plain", "who are you?"))
		time.Sleep(healthyProbeInterval)
		b.health(t, v1alpha1.SourceHealth{Reason: "Unauthorized", Message: "HTTP 401: who are you? (check authentication and headers of the source)", Since: b.since(330 * time.Second)})
		b.answers(good)
		time.Sleep(failingProbeInterval)
		b.health(t, v1alpha1.SourceHealth{Healthy: true, Since: b.since(340 * time.Second)})
	})
}

// A source with frequent queries is not probed in addition.
func TestHealthOfABusySource(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bubble) {
		for range 100 {
			time.Sleep(5 * time.Second)
			if _, err := b.source.Evaluate(t.Context(), query.Query{Expression: "busy"}, time.Now()); err != nil {
				t.Fatal(err)
			}
		}
		probes := 0
		for _, q := range b.queries() {
			if q == probeExpression {
				probes++
			}
		}
		if probes != 1 {
			t.Errorf("%d probes", probes)
		}
	})
}

// One query that is wrong, or too dear, does not make the source unhealthy.
func TestHealthAfterOneFailedQuery(t *testing.T) {
	tests := map[string]http.HandlerFunc{
		"rejected":     status(http.StatusUnprocessableEntity, "application/json", `{"status":"error","errorType":"execution","error":"too many samples"}`),
		"hangs":        hangs,
		"forbidden":    status(http.StatusForbidden, "text/plain", "not this metric"),
		"server error": status(http.StatusInternalServerError, "text/plain", "bug"),
		"too large":    answers("application/json", strings.Repeat(" ", 100<<10)),
		"malformed":    answers("application/json", "{"),
	}
	for name, bad := range tests {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, b *bubble) {
				synctest.Wait()
				b.answers(func(w http.ResponseWriter, r *http.Request) {
					if r.Form.Get("query") == probeExpression {
						good(w, r)
						return
					}
					bad(w, r)
				})
				for range 3 {
					if _, err := b.source.Evaluate(t.Context(), query.Query{Expression: "bad"}, time.Now()); err == nil {
						t.Fatal("no error")
					}
					time.Sleep(minProbeInterval)
				}
				b.health(t, v1alpha1.SourceHealth{Healthy: true, Since: b.since(0)})
			})
		})
	}
}

// Where the source as such is the matter, that is known within the timeouts of a
// query and a probe, and reported once.
func TestHealthAfterManyFailedQueries(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bubble) {
		time.Sleep(10 * time.Second)
		b.answers(hangs)
		if _, err := b.source.Evaluate(t.Context(), query.Query{Expression: "x"}, time.Now()); failureIn(t, err).Reason != query.ReasonTimeout {
			t.Errorf("%v", err)
		}
		time.Sleep(10 * time.Second)
		want := v1alpha1.SourceHealth{Reason: "Timeout", Message: "no complete answer in time: make the query cheaper, or raise the source's timeout", Since: b.since(30 * time.Second)}
		b.health(t, want)
		time.Sleep(time.Minute)
		b.health(t, want)
		b.answers(good)
		if _, err := b.source.Evaluate(t.Context(), query.Query{Expression: "x"}, time.Now()); err != nil {
			t.Error(err)
		}
		b.health(t, v1alpha1.SourceHealth{Healthy: true, Since: b.since(90 * time.Second)})
	})
}

// A part of the source that fails is reported while queries miss it, whatever the others return.
func TestHealthAfterPartialResponses(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bubble) {
		synctest.Wait()
		b.answers(func(w http.ResponseWriter, r *http.Request) {
			if r.Form.Get("query") != "missing" {
				good(w, r)
				return
			}
			answers("application/json", `{"status":"success","data":{"resultType":"vector","result":[]},"warnings":["store down"]}`)(w, r)
		})
		want := v1alpha1.SourceHealth{
			Reason: "PartialResponse", Since: b.since(0),
			Message: "a part of the server did not answer, so data is missing (partialResponsePolicy: Accept would use the rest): store down",
		}
		for range 3 {
			if _, err := b.source.Evaluate(t.Context(), query.Query{Expression: "missing"}, time.Now()); failureIn(t, err).Reason != query.ReasonPartialResponse {
				t.Errorf("%v", err)
			}
			for range 5 {
				b.health(t, want)
				time.Sleep(9 * time.Second)
				if _, err := b.source.Evaluate(t.Context(), query.Query{Expression: "there"}, time.Now()); err != nil {
					t.Error(err)
				}
			}
		}
		healthy := func() {
			t.Helper()
			b.health(t, v1alpha1.SourceHealth{Healthy: true, Since: b.source.Health().Since})
		}
		time.Sleep(partialTime)
		healthy()

		if _, err := b.source.Evaluate(t.Context(), query.Query{Expression: "missing"}, time.Now()); err == nil {
			t.Error("a partial response was accepted")
		}
		spec := v1alpha1.PrometheusSource{URL: "http://prometheus.example", PartialResponsePolicy: v1alpha1.PartialResponseAccept}
		if err := b.source.Apply(spec); err != nil {
			t.Error(err)
		}
		time.Sleep(minProbeInterval)
		healthy()
	})
}

// Queries beyond the limit of concurrent requests wait, up to the timeout.
func TestMaxRequests(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bubble) {
		synctest.Wait()
		begun := time.Now()
		var under, most int
		var mu sync.Mutex
		b.answers(func(w http.ResponseWriter, r *http.Request) {
			mu.Lock()
			under++
			if time.Since(begun) < 9*time.Second {
				// When all give up, the server hears of it later than the next ones begin.
				most = max(most, under)
			}
			mu.Unlock()
			select {
			case <-r.Context().Done():
			case <-time.After(time.Second):
			}
			mu.Lock()
			under--
			mu.Unlock()
			good(w, r)
		})
		var asked sync.WaitGroup
		failed := make(chan error, 200)
		for range 200 {
			asked.Go(func() {
				if _, err := b.source.Evaluate(t.Context(), query.Query{Expression: "x"}, time.Now()); err != nil {
					failed <- err
				}
			})
		}
		asked.Wait()
		if most != sourceclient.DefaultMaxRequests {
			t.Errorf("%d at a time, want %d", most, sourceclient.DefaultMaxRequests)
		}
		synctest.Wait()
		// Ten rounds of ten are in time; the others learn why they were not.
		if n := len(failed); n < 100 || n > 110 {
			t.Errorf("%d of 200 failed", n)
		}
		if f := failureIn(t, <-failed); f.Reason != query.ReasonTimeout {
			t.Errorf("%v", f)
		}
	})
}
