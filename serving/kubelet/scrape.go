// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package kubelet

import (
	"bufio"
	"context"
	"sync"
	"time"

	"github.com/metricsbackend/metrics-backend-operator/api/v1alpha1"
	"github.com/metricsbackend/metrics-backend-operator/serving/kubelet/textparse"
	"github.com/metricsbackend/metrics-backend-operator/serving/samplestore"
)

// acceptText is the Accept header for the text format.
const acceptText = "text/plain;version=0.0.4"

// bufferSize is the part of a body that is held at a time, and the longest line. The
// state that remains of a body is bounded by maxContainers and maxNameLength.
const bufferSize = 64 << 10

// inputSize is the most that is received by one system call: two TLS records.
const inputSize = 32 << 10

// workspace is the memory that a scrape needs besides its node's state. It is pooled,
// so that there are as many as concurrent scrapes, not as many as nodes.
type workspace struct {
	buffer [bufferSize]byte
	// input is what was received and not yet decrypted; reader and writer are of the
	// decrypted connection.
	input  [inputSize]byte
	reader *bufio.Reader
	writer *bufio.Writer
	// conn is the connection that the request was sent over last.
	conn    *tlsConn
	pods    []*pod
	updates []samplestore.Update
	node    [1]samplestore.Update
}

var workspaces = sync.Pool{New: func() any {
	// Large reads of a body bypass the reader's buffer.
	return &workspace{reader: bufio.NewReaderSize(nil, 2<<10), writer: bufio.NewWriterSize(nil, 2<<10)}
}}

// release returns the workspace to the pool without references to a node's state.
func (w *workspace) release() {
	clear(w.pods[:cap(w.pods)])
	clear(w.updates[:cap(w.updates)])
	clear(w.node[:])
	w.conn = nil
	w.reader.Reset(nil)
	w.writer.Reset(nil)
	workspaces.Put(w)
}

// scrapeResult is that of one scrape.
type scrapeResult struct {
	start, end time.Time
	url        string
	failure    *failure
	stats      parseStats
	// sample is the time of the node's newest sample, or of the newest one of any
	// container if the node has none; zero after a failure other than stale samples.
	sample time.Time
	// nodeSample reports that sample is the node's.
	nodeSample bool
	// incomplete reports that the node or pods have no point for lack of a rate.
	incomplete bool
	// podsWithoutMetrics counts the pods that run but have had none for several minutes.
	podsWithoutMetrics int
}

// scrape scrapes one kubelet and publishes its points. It returns nil if ctx was
// canceled.
func (s *Source) scrape(ctx context.Context, t *target, node *Node, cfg *settings) *scrapeResult {
	o := &scrapeResult{start: s.clock.Now()}
	w := workspaces.Get().(*workspace)
	defer w.release()
	p := parser{state: &t.state, now: o.start.UnixMilli()}
	t.state.begin()
	o.failure = fetch(ctx, t, node, cfg, w, &p, o)
	o.end = s.clock.Now()
	if ctx.Err() != nil {
		t.state.abort()
		return nil
	}
	if o.failure != nil {
		t.state.abort()
		o.stats = p.stats
		return o
	}
	t.state.commit()
	t.connection.confirm(w.conn)
	nodes, pods := t.state.points(t.name, rateRulesFor(cfg.Interval), w, &p.stats)
	o.incomplete = t.state.incomplete
	o.failure = o.checkPods(&t.state, cfg.Interval)
	s.store.Nodes.Publish(nodes)
	s.store.Pods.Publish(pods)
	o.stats = p.stats
	o.sample, o.nodeSample = t.state.newest()
	age := p.stats.behind // of skipped samples
	if newest := t.state.newestOfAll(); !newest.IsZero() {
		age = o.start.Sub(newest)
	}
	if age > s.store.MaxAge() {
		o.failure = staleSamples(age, len(nodes)+len(pods) > 0)
	}
	return o
}

// fetch sends the request and parses the answer. It sets o.url.
func fetch(ctx context.Context, t *target, node *Node, cfg *settings, w *workspace, p *parser, o *scrapeResult) *failure {
	var buffer [maxHosts]string
	endpoint, hosts, err := node.endpoint(cfg, buffer[:0])
	if err != nil {
		return &failure{reason: v1alpha1.ScrapeNoAddress, err: err}
	}
	o.url = endpoint.at(hosts[0]).String()
	if f := cfg.kubeletTLS.unverifiable; f != nil {
		return f
	}
	a := &attempt{
		connection: &t.connection, settings: cfg.kubeletTLS, node: node,
		deadline: time.Now().Add(cfg.Timeout), reuse: cfg.Interval < maxIdle, workspace: w,
	}
	response, err := t.send(ctx, hosts, endpoint, a, o)
	if err != nil {
		return classify(cfg.Timeout, cfg.MaxBodySize, err)
	}
	defer func() { _ = response.Body.Close() }()
	if f := classifyStatus(response); f != nil {
		return f
	}
	if response.ContentLength > cfg.MaxBodySize {
		return classify(cfg.Timeout, cfg.MaxBodySize, textparse.ErrTooLarge)
	}
	err = textparse.ReadLines(response.Body, cfg.MaxBodySize, w.buffer[:], p.lines, p.skipLine)
	if err != nil {
		return classify(cfg.Timeout, cfg.MaxBodySize, err)
	}
	return classifyBody(&p.stats)
}

// newest returns the time of the node's sample, or of the newest one of a container
// if the kubelet reports none of the node.
func (s *nodeState) newest() (at time.Time, ofNode bool) {
	if s.node.has(seriesCPU) {
		return time.UnixMilli(s.node.cpuTime), true
	}
	return s.newestOfAll(), false
}

// newestOfAll returns the time of the newest sample of the node and its containers.
func (s *nodeState) newestOfAll() time.Time {
	var ms int64
	if s.node.has(seriesCPU) {
		ms = s.node.cpuTime
	}
	for _, p := range s.pods {
		for _, c := range p.containers {
			if c.has(seriesCPU) {
				ms = max(ms, c.cpuTime)
			}
		}
	}
	return samplestore.Time(ms).AsTime()
}
