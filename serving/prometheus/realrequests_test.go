// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package prometheus

import (
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/utils/clock"

	"github.com/metricsbackend/metrics-backend-operator/api/v1alpha1"
	"github.com/metricsbackend/metrics-backend-operator/internal/wake"
	"github.com/metricsbackend/metrics-backend-operator/serving/query"
)

const noReplicas = "expanding series: at least 2 live replicas required, could only find 0 - unhealthy instances: 10.0.3.7:9095,10.0.3.8:9095"

// failsAs is how a Mimir without ingesters answers all that reads series.
var failsAs = status(http.StatusInternalServerError, "application/json", `{"status":"error","errorType":"internal","error":"`+noReplicas+`"}`)

// failing has the server fail the queries, and the lookups of series, that begin with one of the prefixes, with fails.
func (b *bubble) failing(fails http.HandlerFunc, prefixes ...string) {
	b.answers(func(w http.ResponseWriter, r *http.Request) {
		asked := r.Form.Get("query")
		lookup := strings.HasSuffix(r.URL.Path, pathSeries)
		if lookup {
			asked = "series:" + r.Form.Get("match[]")
		}
		for _, prefix := range prefixes {
			if strings.HasPrefix(asked, prefix) && asked != probeExpression {
				fails(w, r)
				return
			}
		}
		if lookup {
			answers("application/json", someSeries)(w, r)
			return
		}
		good(w, r)
	})
}

// ask polls queries each 15 seconds, as autoscalers do, and calls each after that.
func (b *bubble) ask(t *testing.T, d time.Duration, queries []query.Query, each func()) {
	for end := time.Now().Add(d); time.Now().Before(end); {
		for _, q := range queries {
			q.Interval = 15 * time.Second
			_, _ = b.source.Evaluate(t.Context(), q, time.Now())
			synctest.Wait()
			each()
		}
		time.Sleep(14999 * time.Millisecond) // later than the probes
		synctest.Wait()
		each()
		time.Sleep(time.Millisecond)
	}
}

func declaredBy(tenant, expression string) query.Query {
	return query.Query{Tenant: tenant, Expression: expression, Declared: true}
}

// A source whose probe succeeds is as healthy as the queries that clients and rules ask, and does not alternate.
func TestHealthOfRealRequests(t *testing.T) {
	rule := query.Query{Expression: "rule"}
	tests := map[string]struct {
		fails    []string
		as       http.HandlerFunc // nil for failsAs
		matchers []string
		queries  []query.Query
		healthy  bool
	}{
		"series and queries fail":            {fails: []string{""}, matchers: []string{"e17_jobs"}, queries: []query.Query{rule}},
		"all series fail, nobody asks":       {fails: []string{"series:"}, matchers: []string{"a", "b"}},
		"series of one rule fail":            {fails: []string{"series:a"}, matchers: []string{"a", "b"}, healthy: true},
		"series fail, queries succeed":       {fails: []string{"series:"}, matchers: []string{"a", "b"}, queries: []query.Query{rule}, healthy: true},
		"queries of two teams fail":          {fails: []string{"sum"}, matchers: []string{"a"}, queries: []query.Query{declaredBy("shop", "sum(a)"), declaredBy("bank", "sum(a)")}},
		"two queries of rules fail":          {fails: []string{"sum"}, queries: []query.Query{{Expression: "sum(a)"}, {Expression: "sum(b)"}}},
		"one query of a rule fails":          {fails: []string{"sum"}, queries: []query.Query{{Expression: "sum(a)"}}, healthy: true},
		"all three queries of one team fail": {fails: []string{"sum"}, queries: []query.Query{declaredBy("shop", "sum(a)"), declaredBy("shop", "sum(b)"), declaredBy("shop", "sum(c)")}},
		"one team's query breaks its connection": {
			fails: []string{"sum"}, as: func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }, queries: []query.Query{declaredBy("shop", "sum(a)")}, healthy: true,
		},
		"one team's typo, in two metrics": {fails: []string{"sum"}, matchers: []string{"a"}, queries: []query.Query{declaredBy("shop", "sum(a)"), declaredBy("shop", "sum(b)")}, healthy: true},
		"many fail, and one succeeds": {
			fails: []string{"sum", "series:"}, matchers: []string{"a"}, healthy: true,
			queries: []query.Query{rule, declaredBy("shop", "sum(a)"), declaredBy("bank", "sum(a)"), {Expression: "sum(b)"}, declaredBy("shop", "sum(c)")},
		},
		"all fail but one that reads no storage": {
			fails: []string{"sum", "series:"}, matchers: []string{"a"},
			queries: []query.Query{declaredBy("evil", "hour() > bool 8"), declaredBy("shop", "sum(a)"), declaredBy("bank", "sum(a)")},
		},
		"the probe fails, and queries succeed": {fails: []string{"vector", "sum"}, queries: []query.Query{declaredBy("shop", "sum(a)"), rule}, healthy: true},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, b *bubble) {
				synctest.Wait()
				as := failsAs
				if tc.as != nil {
					as = tc.as
				}
				b.failing(as, tc.fails...)
				if tc.fails[0] == "vector" {
					b.answers(func(w http.ResponseWriter, r *http.Request) {
						if r.Form.Get("query") == "rule" {
							good(w, r)
							return
						}
						failsAs(w, r)
					})
				}
				b.source.Series().SetMatchers(tc.matchers)
				b.ask(t, time.Minute, tc.queries, func() {})
				want := v1alpha1.SourceHealth{Name: "main", Healthy: true, Since: b.since(0)}
				if !tc.healthy {
					want = v1alpha1.SourceHealth{Name: "main", Reason: "BadStatus", Message: "HTTP 500: " + noReplicas, Since: b.source.Health().Since}
				}
				seen := map[string]int{}
				b.ask(t, 30*time.Minute, tc.queries, func() {
					if diff := cmp.Diff(want, b.source.Health()); diff != "" {
						seen[diff]++
					}
				})
				if diff := cmp.Diff(map[string]int{}, seen); diff != "" {
					t.Errorf("health (-want +got):\n%s", diff)
				}
				if since := want.Since.Sub(b.began); since > 20*time.Second {
					t.Errorf("unhealthy since %s", since)
				}
			})
		})
	}
}

// One query's failure ends no other's success, and neither counts for long.
func TestHealthOfRareQueries(t *testing.T) {
	const interval = 5 * time.Minute
	failure := &query.Failure{Reason: query.ReasonBadStatus, Message: "HTTP 500"}
	shop := query.Query{Tenant: "shop", Expression: "sum(a)", Interval: interval, Declared: true}
	evil := query.Query{Tenant: "evil", Expression: "sum(b)", Interval: 15 * time.Second, Declared: true}
	hourly := query.Query{Tenant: "bank", Expression: "sum(c)", Interval: time.Hour}
	type result struct {
		query query.Query
		fails bool
	}
	tests := map[string]struct {
		results []result
		after   time.Duration
		want    bool
	}{
		"one namespace's succeeds, and fails":                      {results: []result{{query: shop}, {query: evil}, {evil, true}, {hourly, true}}, after: interval, want: true},
		"two fail":                                                 {results: []result{{evil, true}, {hourly, true}}, after: time.Minute},
		"two failed, and are repeated no more":                     {results: []result{{evil, true}, {hourly, true}}, after: 11 * time.Minute, want: true},
		"one succeeded long ago, and all others fail all the time": {results: []result{{query: hourly}, {evil, true}, {shop, true}}, after: 10 * time.Minute},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			h, now := &health{probeRequested: wake.NewSignal()}, time.Unix(1_790_000_000, 0)
			h.record(nil, forProbe, query.Query{}, nil, now)
			for _, r := range tc.results {
				var f *query.Failure
				if r.fails {
					f = failure
				}
				h.record(f, forQuery, r.query, nil, now)
			}
			now = now.Add(tc.after)
			if tc.results[0].query == hourly {
				h.record(failure, forQuery, evil, nil, now)
				h.record(failure, forQuery, shop, nil, now)
			}
			h.record(nil, forProbe, query.Query{}, nil, now)
			if h.state.Healthy != tc.want {
				t.Errorf("%+v, want healthy %t", h.state, tc.want)
			}
		})
	}
}

// A source that worked is unhealthy as soon as what succeeded fails, and healthy with the first success.
func TestHealthOfAStorageThatFails(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bubble) {
		queries := []query.Query{declaredBy("shop", "sum(a)"), {Expression: "sum(b)"}}
		b.failing(nil)
		b.source.Series().SetMatchers([]string{"a", "b"})
		b.ask(t, 10*time.Minute, queries, func() {})
		b.failing(failsAs, "")
		b.ask(t, 75*time.Second, queries, func() {})
		h := b.source.Health()
		if h.Healthy || h.Message != "HTTP 500: "+noReplicas || h.Since.Sub(b.began) > 10*time.Minute+20*time.Second {
			t.Errorf("while all fails: %+v", h)
		}
		b.failing(failsAs, "series:", "sum(a)")
		b.ask(t, 15*time.Second, queries, func() {})
		b.health(t, v1alpha1.SourceHealth{Healthy: true, Since: b.source.Health().Since})
	})
}

// A source does not stay unhealthy once nothing that failed is asked any longer.
func TestHealthAfterTheLastRequest(t *testing.T) {
	queries := []query.Query{declaredBy("shop", "sum(a)"), declaredBy("bank", "sum(a)")}
	for name, gone := range map[string]func(t *testing.T, b *bubble){
		"the rule is deleted": func(_ *testing.T, b *bubble) {
			b.source.Series().SetMatchers([]string{"works"})
			time.Sleep(failingProbeInterval)
		},
		"its metrics are deleted": func(_ *testing.T, b *bubble) {
			b.failing(failsAs, "sum")
			b.source.Series().SetMatchers(nil)
			time.Sleep(3 * time.Minute)
		},
		"another server": func(t *testing.T, b *bubble) {
			b.failing(nil)
			if err := b.source.Apply(v1alpha1.PrometheusSource{URL: "http://thanos.example"}); err != nil {
				t.Fatal(err)
			}
			time.Sleep(failingProbeInterval)
		},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, b *bubble) {
				b.failing(failsAs, "series:a", "sum")
				b.source.Series().SetMatchers([]string{"a"})
				asked := queries
				if name == "the rule is deleted" {
					asked = nil
				}
				b.ask(t, time.Minute, asked, func() {})
				if b.source.Health().Healthy {
					t.Error("healthy while all fails")
				}
				gone(t, b)
				b.health(t, v1alpha1.SourceHealth{Healthy: true, Since: b.source.Health().Since})
			})
		})
	}
}

// Queries that succeeded say nothing of another server.
func TestHealthOfAnotherServer(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bubble) {
		b.ask(t, time.Minute, []query.Query{declaredBy("shop", "sum(a)")}, func() {})
		b.answers(failsAs)
		if err := b.source.Apply(v1alpha1.PrometheusSource{URL: "http://thanos.example"}); err != nil {
			t.Fatal(err)
		}
		time.Sleep(minProbeInterval)
		b.health(t, v1alpha1.SourceHealth{Reason: "BadStatus", Message: "HTTP 500: " + noReplicas, Since: b.source.Health().Since})
	})
}

// What is remembered of queries is bounded, whatever clients ask.
func TestHealthOfManyQueries(t *testing.T) {
	var h health
	for i := range 100 {
		h.recordQuery(query.Failf(query.ReasonTimeout, "slow"), declaredBy(fmt.Sprint("team-", i), "x"), instant)
	}
	if n := len(h.failed); n != maxFailed {
		t.Errorf("%d queries are remembered", n)
	}
}

// A source is not probed all the time while its probe fails, and its queries succeed.
func TestProbesOfAHealthySource(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bubble) {
		b.answers(func(w http.ResponseWriter, r *http.Request) {
			if r.Form.Get("query") == probeExpression {
				failsAs(w, r)
				return
			}
			good(w, r)
		})
		if _, err := b.source.Evaluate(t.Context(), query.Query{Expression: "rule", Interval: 10 * time.Minute}, time.Now()); err != nil {
			t.Fatal(err)
		}
		time.Sleep(10 * time.Minute)
		if n := len(b.queries()); n > 62 {
			t.Errorf("%d queries in ten minutes", n)
		}
	})
}

// A server that limits one team's query is asked no other of that team for a minute, and goes on with those of others,
// even if it refuses the probe, too; and it is healthy.
func TestRateLimitOfOneTeam(t *testing.T) {
	for name, limited := range map[string][]string{"the query alone": {"sum(e30_hog)"}, "and the probe": {"sum(e30_hog)", probeExpression}} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, b *bubble) {
				b.answers(func(w http.ResponseWriter, r *http.Request) {
					if slices.Contains(limited, r.Form.Get("query")) {
						status(http.StatusTooManyRequests, "text/plain", "slow down", "Retry-After", "60")(w, r)
						return
					}
					good(w, r)
				})
				e := query.NewEvaluator(clock.RealClock{}, func() float64 { return 0 }, func(string) (query.Source, bool) { return b.source, true }, 200)
				ask := func(tenant, expression string) error {
					_, err := e.Query(t.Context(), query.Query{Source: "main", Tenant: tenant, Expression: expression, Interval: 15 * time.Second, Declared: true})
					return err
				}
				healthy, held := 0, 0
				for range 40 {
					for _, q := range []string{"sum(e30_hog)", "sum(own)"} {
						err := ask("evil", q)
						var f *query.Failure
						switch {
						case err == nil && q == "sum(own)":
						case !errors.As(err, &f) || f.Reason != query.ReasonRateLimited || strings.Contains(f.Message, "url"):
							t.Errorf("%s: %v", q, err)
						case q == "sum(own)":
							held++
						}
					}
					if err := ask("shop", "sum(a)"); err != nil {
						t.Fatal(err)
					}
					time.Sleep(15 * time.Second)
					synctest.Wait()
					if b.source.Health().Healthy {
						healthy++
					}
				}
				sent := map[string]int{}
				for _, q := range b.queries() {
					sent[q]++
				}
				if n := sent["sum(e30_hog)"]; n > 10 || held < 30 || sent["sum(own)"] != 40-held {
					t.Errorf("the query was sent %d times in ten minutes, and the other one of the team held %d times of 40 and sent %d times", n, held, sent["sum(own)"])
				}
				if healthy != 40 {
					t.Errorf("healthy %d times of 40", healthy)
				}
			})
		})
	}
}
