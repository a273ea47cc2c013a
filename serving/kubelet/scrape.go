// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package kubelet

import (
	"context"
	"net/http"
	"time"

	"github.com/metricsbackend/metrics-backend-operator/api/v1alpha1"
)

// acceptText asks for the format that is parsed.
const acceptText = "text/plain;version=0.0.4"

// outcome is what came of one scrape.
type outcome struct {
	asked, answered time.Time
	url             string
	failure         *failure
	tally           tally
	// sample is the newest sample of the node as a whole, or of any container
	// where the node has none; zero where nothing was read.
	sample time.Time
	// nodeSample says that sample is the node's.
	nodeSample bool
}

// scrape asks one kubelet and publishes what it answers. It returns nil when
// parent ended meanwhile.
func (s *Source) scrape(parent context.Context, t *target, node *Node, cfg *settings) *outcome {
	o := &outcome{asked: s.clock.Now()}
	ctx, cancel := context.WithCancelCause(parent)
	defer cancel(nil)
	timer := s.clock.NewTimer(cfg.Timeout)
	defer timer.Stop()
	go func() {
		select {
		case <-timer.C():
			cancel(errTimeout)
		case <-ctx.Done():
		}
	}()

	w := workspaces.Get().(*workspace)
	defer w.release()
	p := parser{ledger: &t.ledger, now: o.asked.UnixMilli()}
	o.failure = s.read(ctx, t, node, cfg, w, &p, o)
	o.answered = s.clock.Now()
	if parent.Err() != nil {
		t.ledger.abort()
		return nil
	}
	if o.failure != nil {
		t.ledger.abort()
		o.tally = p.tally
		return o
	}
	t.ledger.commit()
	nodes, pods := t.ledger.points(t.name, rulesFor(cfg.Interval), w, &p.tally)
	s.store.Nodes.Publish(nodes)
	s.store.Pods.Publish(pods)
	o.tally = p.tally
	o.sample, o.nodeSample = t.ledger.newest()
	return o
}

// read makes the request and reads the answer into the target's ledger.
func (s *Source) read(ctx context.Context, t *target, node *Node, cfg *settings, w *workspace, p *parser, o *outcome) *failure {
	t.ledger.begin()
	at, err := node.endpoint(cfg)
	if err != nil {
		return &failure{reason: v1alpha1.ScrapeNoAddress, err: err}
	}
	o.url = at.url.String()
	if f := cfg.security.unverifiable; f != nil {
		return f
	}
	a := &attempt{ctx: ctx, transport: t.link.use(cfg.security, at.host)}
	request := (&http.Request{
		Method: http.MethodGet,
		URL:    &at.url,
		Host:   at.url.Host,
		Header: http.Header{"Accept": {acceptText}},
	}).WithContext(context.WithValue(ctx, attemptKey{}, a))
	// A round trip, not a client: redirects are not followed.
	response, err := cfg.security.authenticated.RoundTrip(request)
	if err != nil {
		return classify(ctx, cfg.Timeout, cfg.MaxBodySize, err)
	}
	// A body that is not read to its end closes the connection.
	defer func() { _ = response.Body.Close() }()
	if f := classifyStatus(response); f != nil {
		return f
	}
	if response.ContentLength > cfg.MaxBodySize {
		return classify(ctx, cfg.Timeout, cfg.MaxBodySize, errBodyTooLarge)
	}
	err = readBody(response.Body, cfg.MaxBodySize, w, p)
	if err == nil {
		// A server that notices the end of the request may end its answer in
		// good form, though it is not all that it had to say.
		err = context.Cause(ctx)
	}
	if err != nil {
		return classify(ctx, cfg.Timeout, cfg.MaxBodySize, err)
	}
	return classifyBody(&p.tally)
}

// newest returns the time of the newest sample: the node's own, or that of a
// container where the kubelet reports none for the node.
func (l *ledger) newest() (at time.Time, ofNode bool) {
	if l.node.got&gotCPU != 0 {
		return instant(l.node.cpuTime), true
	}
	var ms int64
	for _, p := range l.pods {
		for _, c := range p.containers {
			if c.got&gotCPU != 0 {
				ms = max(ms, c.cpuTime)
			}
		}
	}
	if ms == 0 {
		return time.Time{}, false
	}
	return instant(ms), false
}
