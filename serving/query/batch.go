// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package query

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"
	"unique"

	"k8s.io/apimachinery/pkg/util/sets"
)

const (
	// MaxBatchLabels limits the labels of a Batch.
	MaxBatchLabels = 4
	// maxBatch limits the queries of one evaluation: Prometheus looks up at most 256 alternatives of a
	// regular expression by their text.
	maxBatch = 200
	// maxBatchBytes limits the expression of several queries: VictoriaMetrics accepts 16 KiB by default.
	maxBatchBytes = 8 << 10
	// batchIntervals is for how many intervals an unused query is still evaluated with others.
	batchIntervals = 4
	// batchPause is how long fewer queries are evaluated together after that of several failed, twice
	// as long after each further failure, up to maxBatchPause.
	batchPause, maxBatchPause = 5 * time.Minute, time.Hour
	// fewer divides the number of queries whose evaluation failed: that of the next ones.
	fewer = 4
)

// Batch is a comparable BatchTemplate. The zero value is for a query that is always evaluated alone.
type Batch struct{ template unique.Handle[BatchTemplate] }

// NewBatch returns the Batch of a template, of which equal ones share their memory.
func NewBatch(t BatchTemplate) Batch { return Batch{unique.Make(t)} }

// Equal is for comparisons in tests.
func (b Batch) Equal(o Batch) bool { return b == o }

// text returns the text of the template; empty for none.
func (b Batch) text() string {
	if b == (Batch{}) {
		return ""
	}
	return b.template.Value().Template
}

// labels returns the labels of a Batch that is not zero.
func (b Batch) labels() [MaxBatchLabels]BatchLabel { return b.template.Value().Labels }

// BatchTemplate lets a query be evaluated together with others of an equal Template, which differ in the
// values of labels.
type BatchTemplate struct {
	// Template is an expression for several values of each label: a zero byte and the index of the
	// label stand for their Alternatives, with | between them.
	Template string
	// Labels tell the results of the queries apart. Unused ones have no Name.
	Labels [MaxBatchLabels]BatchLabel
}

// BatchLabel is a label with its value in one query.
type BatchLabel struct {
	Name, Value string
	// Alternative is the value as it stands in the expression of a Template.
	Alternative string
	// Added says that the result of the query itself does not have the label.
	Added bool
}

// batchKey identifies the queries that may be evaluated together.
type batchKey struct {
	source, template, tenant string
	interval                 time.Duration
	times                    SampleTimes
}

func (e *entry) batchKey() batchKey {
	return batchKey{e.query.Source, e.query.Batch.text(), e.tenant.tenant, e.query.Interval, e.query.SampleTimes}
}

// batch has the entries that may be evaluated together.
type batch struct {
	entries sets.Set[*entry]
	slots   *slots
	// most is how many at once until reducedUntil, as an evaluation of more failed.
	most         int
	reducedUntil time.Time
	// pause is how long the last reduction lasts.
	pause time.Duration
}

// addToBatch adds a new entry to those with which it may be evaluated.
func (c *cache) addToBatch(e *entry) {
	key := e.batchKey()
	if key.template == "" {
		return
	}
	if c.batches[key] == nil {
		c.batches[key] = &batch{entries: sets.New[*entry](), slots: e.slots}
	}
	e.slots = c.batches[key].slots
	c.batches[key].entries.Insert(e)
}

func (c *cache) removeFromBatch(e *entry) {
	key := e.batchKey()
	if b := c.batches[key]; b != nil && b.entries.Delete(e).Len() == 0 {
		delete(c.batches, key)
	}
}

// limit returns how many queries may be evaluated together.
func (b *batch) limit(now time.Time) int {
	if now.Before(b.reducedUntil) {
		return b.most
	}
	return maxBatch
}

// record adapts the limit to an evaluation of several queries. Failures that are not due to their
// number change nothing.
func (b *batch) record(queries int, failure *Failure, now time.Time) {
	switch {
	case failure == nil && !now.Before(b.reducedUntil):
		b.pause = 0
	case failure != nil && !failure.Reason.sourceFault() && failure.Reason != ReasonRateLimited && failure.RetryAfter == 0:
		b.most = max(1, queries/fewer)
		b.pause = min(max(2*b.pause, batchPause), maxBatchPause)
		b.reducedUntil = now.Add(b.pause)
	}
}

// batchable reports whether a query may be evaluated together with others: the source has answered it
// alone, and its last failure, if any, was not its own.
func (e *entry) batchable(source Source) bool {
	return e.query.Batch != (Batch{}) && e.source == source && e.lastResult != nil && !e.replaces &&
		(e.outcome.err == nil || !e.failedAlone || failureOf(e.query.Source, e.outcome.err).Reason.sourceFault())
}

// addParts adds to an evaluation that starts those of other queries of its tenant that may be evaluated
// with it, were used in the last intervals, and have no result in this one.
func (v *Evaluator) addParts(ev *evaluation, now time.Time) {
	e := ev.entry
	ev.parts = []*evaluation{ev}
	if !e.batchable(ev.source) || ev.tenant.tenant != e.tenant.tenant || ev.queue.breaker.open() || ev.tenant.breaker.open() {
		return
	}
	ev.batch = v.cache.batches[e.batchKey()]
	most, read := ev.batch.limit(now), combinations{}
	read.add(e.query.Batch)
	left := maxBatchBytes - len(e.query.Batch.text()) - e.query.Batch.size()
	for other := range ev.batch.entries {
		if len(ev.parts) >= most {
			return
		}
		size := other.query.Batch.size()
		used := len(other.subscribers) > 0 || now.Sub(other.lastUsed) < batchIntervals*other.slots.Interval
		switch p := other.evaluation; {
		case other == e || !used || size > left || !other.batchable(ev.source):
			continue
		case p != nil && (p.queued == nil || p.source != ev.source || p.tenant != ev.tenant):
			continue
		case now.Before(other.retryAt) || v.current(other, ev.source, now) != nil:
			continue
		case read.with(other.query.Batch) > maxCombinations*(len(ev.parts)+1):
			continue
		case p != nil:
			p.queue.remove(p)
			p.queue.release(p)
		default:
			v.lastKey++
			other.evaluation = &evaluation{key: v.lastKey, entry: other, source: ev.source, queue: ev.queue, tenant: ev.tenant, done: make(chan struct{})}
		}
		left -= size
		read.add(other.query.Batch)
		ev.parts = append(ev.parts, other.evaluation)
	}
}

// maxCombinations limits the combinations of values that an evaluation of several queries reads, for each of them.
const maxCombinations = 2

// combinations are the values of each label, of which an evaluation of several queries reads all combinations.
type combinations [MaxBatchLabels]sets.Set[string]

func (c *combinations) add(b Batch) {
	for i, l := range b.labels() {
		if c[i] == nil {
			c[i] = sets.New[string]()
		}
		c[i].Insert(l.Value)
	}
}

// with returns the number of combinations with those of one more query.
func (c *combinations) with(b Batch) int {
	n := 1
	for i, l := range b.labels() {
		values := c[i].Len()
		if !c[i].Has(l.Value) {
			values++
		}
		n *= values
	}
	return n
}

// size returns the bytes by which the query extends the expression of several.
func (b Batch) size() (size int) {
	t := b.template.Value()
	for i, l := range t.Labels {
		if l.Name != "" {
			size += strings.Count(t.Template, placeholder(i)) * (len(l.Alternative) + 1)
		}
	}
	return size
}

func placeholder(i int) string { return "\x00" + strconv.Itoa(i) }

// expression returns that of all parts of an evaluation.
func (ev *evaluation) expression() string {
	if len(ev.parts) == 1 {
		return ev.entry.query.Expression
	}
	text := ev.entry.query.Batch.text()
	for i := range MaxBatchLabels {
		alternatives := make([]string, len(ev.parts))
		for j, p := range ev.parts {
			alternatives[j] = p.entry.query.Batch.labels()[i].Alternative
		}
		slices.Sort(alternatives)
		text = strings.ReplaceAll(text, placeholder(i), strings.Join(slices.Compact(alternatives), "|"))
	}
	return text
}

// split returns the result of each part of an evaluation, or a failure if they cannot be told apart: a
// source may remove a label that it selects by, as Thanos does for replicas.
func (ev *evaluation) split(result *Result) ([]*Result, *Failure) {
	results := make([]*Result, len(ev.parts))
	if len(ev.parts) == 1 {
		results[0] = result
		return results, nil
	}
	samples := map[[MaxBatchLabels]string][]Sample{}
	names := ev.entry.query.Batch.labels()
	for _, s := range result.Samples {
		var values [MaxBatchLabels]string
		for i, l := range names {
			values[i] = s.Labels[l.Name]
			if values[i] == "" && l.Name != "" {
				return nil, &Failure{Source: ev.queue.name, Reason: ReasonMalformed, Message: fmt.Sprintf(
					"the result has no label %s, by which the query selects", l.Name)}
			}
		}
		samples[values] = append(samples[values], s)
	}
	for i, p := range ev.parts {
		results[i] = p.entry.query.Batch.pick(result, samples)
	}
	return results, nil
}

// pick returns the result of a query from the samples of several by the values of their labels.
func (b Batch) pick(of *Result, samples map[[MaxBatchLabels]string][]Sample) *Result {
	var values [MaxBatchLabels]string
	for i, l := range b.labels() {
		values[i] = l.Value
	}
	picked := slices.Clone(samples[values])
	for _, l := range b.labels() {
		for i := range picked {
			if l.Added {
				picked[i].Labels = maps.Clone(picked[i].Labels)
				delete(picked[i].Labels, l.Name)
			}
		}
	}
	// Texts are counted once in a result, so that this is about the share of each.
	return &Result{Time: of.Time, Samples: picked, SampleTimes: of.SampleTimes, Warnings: of.Warnings, Bytes: of.Bytes * len(picked) / max(len(of.Samples), 1)}
}

// mayEvaluateFewer reports whether the parts of a failed evaluation are evaluated again at once, as fewer
// of them may succeed. After a failure that a source without time or room for them may cause, they are not.
func (ev *evaluation) mayEvaluateFewer(failure *Failure) bool {
	return len(ev.parts) > 1 && failure != nil && (failure.Reason.SourceAnswered() || failure.Reason == ReasonMalformed)
}

// evaluateFewer queues the parts of a failed evaluation that someone waits for.
func (v *Evaluator) evaluateFewer(ev *evaluation, failure *Failure, now time.Time) {
	for _, p := range ev.parts {
		switch e := p.entry; {
		case p.canceled:
		case e.evaluation == p && p.isUnwanted():
			e.evaluation = nil
		case e.evaluation != p: // the source was replaced meanwhile
			p.complete(nil, e.evaluationError(failure, now))
		default:
			p.queue.push(p, e.requester)
		}
	}
}

// isUnwanted reports whether nobody waits for the outcome of an evaluation.
func (ev *evaluation) isUnwanted() bool { return ev.waiters == 0 && len(ev.entry.subscribers) == 0 }
