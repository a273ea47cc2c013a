// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package kubelet

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr/funcr"
	"github.com/google/go-cmp/cmp"
	"k8s.io/klog/v2"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/metricsbackend/metrics-backend-operator/api/v1alpha1"
)

// recorded returns a context whose logger appends to the slice.
func recorded(t *testing.T) (context.Context, *[]string) {
	lines := &[]string{}
	logger := funcr.New(func(_, args string) { *lines = append(*lines, args) }, funcr.Options{})
	return klog.NewContext(t.Context(), logger), lines
}

func logOutcome(ctx context.Context, s *Source, node string, o *scrapeResult) {
	s.mu.Lock()
	log := s.recordResult(s.targets[node], o)
	s.mu.Unlock()
	if log != nil {
		log(ctx)
	}
}

func TestLogLines(t *testing.T) {
	s := nodesWith(t, history{})
	ctx, lines := recorded(t)
	good := func(skipped ...skipReason) *scrapeResult {
		o := &scrapeResult{url: "https://n", sample: epoch, nodeSample: true}
		for _, reason := range skipped {
			o.stats.skip(reason, []byte("some line"))
		}
		return o
	}
	bad := func(reason v1alpha1.ScrapeReason) *scrapeResult {
		return &scrapeResult{url: "https://n", failure: &failure{reason: reason, err: errors.New("why")}}
	}
	for _, o := range []*scrapeResult{
		good(), good(),
		bad(v1alpha1.ScrapeForbidden), bad(v1alpha1.ScrapeForbidden), bad(v1alpha1.ScrapeTimeout),
		good(), good(skipNegative), good(skipNegative), good(skipNegative, skipMalformed), good(),
		good(skipMalformed),
	} {
		logOutcome(ctx, s, "n00", o)
	}
	want := []string{
		`"level"=0 "msg"="Scrape failed" "node"="n00" "url"="https://n" "reason"="Forbidden" "err"="why"`,
		`"level"=0 "msg"="Scrape failed" "node"="n00" "url"="https://n" "reason"="Timeout" "err"="why"`,
		`"level"=0 "msg"="Scrape succeeded again" "node"="n00" "url"="https://n"`,
		`"level"=0 "msg"="Skipped samples" "node"="n00" "url"="https://n" "reasons"="Negative: 1" "firstLine"="some line"`,
		`"level"=0 "msg"="Skipped samples" "node"="n00" "url"="https://n" "reasons"="Malformed: 1, Negative: 1" "firstLine"="some line"`,
		`"level"=0 "msg"="Skipped samples" "node"="n00" "url"="https://n" "reasons"="Malformed: 1" "firstLine"="some line"`,
	}
	if diff := cmp.Diff(want, *lines); diff != "" {
		t.Errorf("logged (-want +got):\n%s", diff)
	}
}

func TestLogLimit(t *testing.T) {
	s := nodesWith(t, make([]history, 100)...)
	clock := s.clock.(*clocktesting.FakeClock)
	ctx, lines := recorded(t)
	failAll := func(reason v1alpha1.ScrapeReason) {
		for i := range 100 {
			logOutcome(ctx, s, fmt.Sprintf("n%02d", i), &scrapeResult{failure: failf(reason, "why")})
		}
	}
	failAll(v1alpha1.ScrapeForbidden)
	if len(*lines) != logBurst {
		t.Errorf("%d lines about 100 nodes, want %d", len(*lines), logBurst)
	}
	clock.Step(10 * time.Second)
	failAll(v1alpha1.ScrapeTimeout)
	if len(*lines) != logBurst+10 || !strings.Contains((*lines)[logBurst], `"unloggedChanges"=75`) || strings.Contains((*lines)[logBurst+1], "unlogged") {
		t.Errorf("%d lines after ten seconds, want %d; the first two: %q", len(*lines), logBurst+10, (*lines)[logBurst:logBurst+2])
	}
}
