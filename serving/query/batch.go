// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package query

import (
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
	// batchPause is how long queries are evaluated alone after an evaluation of several failed.
	batchPause = 5 * time.Minute
)

// Batch is a comparable BatchTemplate. The zero value is for a query that is always evaluated alone.
type Batch struct{ template unique.Handle[BatchTemplate] }

// NewBatch returns the Batch of a template, which queries then share in memory.
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
}

func (e *entry) batchKey() batchKey {
	return batchKey{e.query.Source, e.query.Batch.text(), e.tenant.tenant, e.query.Interval}
}

// addToBatch adds a new entry to those with which it may be evaluated.
func (c *cache) addToBatch(e *entry) {
	key := e.batchKey()
	if key.template == "" {
		return
	}
	if c.batches[key] == nil {
		c.batches[key] = sets.New[*entry]()
	}
	c.batches[key].Insert(e)
}

func (c *cache) removeFromBatch(e *entry) {
	key := e.batchKey()
	if c.batches[key].Delete(e).Len() == 0 {
		delete(c.batches, key)
	}
}

// batchable reports whether a query may be evaluated together with others: the source has answered it
// alone, and its last failure, if any, was not its own.
func (e *entry) batchable(source Source, now time.Time) bool {
	return e.query.Batch != (Batch{}) && !now.Before(e.aloneUntil) && e.source == source && e.lastResult != nil && !e.replaces &&
		(e.outcome.err == nil || failureOf(e.query.Source, e.outcome.err).Reason.sourceFault())
}

// addParts adds to an evaluation that starts those of other queries that may be evaluated with it, were
// used in the last intervals, and have no result in this one.
func (v *Evaluator) addParts(ev *evaluation, now time.Time) {
	e := ev.entry
	ev.parts = []*evaluation{ev}
	if !e.batchable(ev.source, now) || ev.queue.breaker.open() || ev.tenant.breaker.open() {
		return
	}
	left := maxBatchBytes - len(e.query.Batch.text()) - e.query.Batch.size()
	for other := range v.cache.batches[e.batchKey()] {
		size := other.query.Batch.size()
		used := len(other.subscribers) > 0 || now.Sub(other.lastUsed) < problemIntervals*other.slots.Interval
		switch p := other.evaluation; {
		case other == e || !used || size > left || !other.batchable(ev.source, now) || p != nil && (p.queued == nil || p.source != ev.source):
			continue
		case v.current(other, ev.source, now) != nil:
			continue
		case p != nil:
			p.queue.remove(p)
			p.queue.release(p)
		default:
			v.lastKey++
			other.evaluation = &evaluation{key: v.lastKey, entry: other, source: ev.source, queue: ev.queue, tenant: ev.tenant, done: make(chan struct{})}
		}
		left -= size
		if ev.parts = append(ev.parts, other.evaluation); len(ev.parts) == maxBatch {
			return
		}
	}
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

// split returns the result of each part of an evaluation.
func (ev *evaluation) split(result *Result) []*Result {
	results := make([]*Result, len(ev.parts))
	if result == nil || len(ev.parts) == 1 {
		results[0] = result
		return results
	}
	samples := map[[MaxBatchLabels]string][]Sample{}
	names := ev.entry.query.Batch.labels()
	for _, s := range result.Samples {
		var values [MaxBatchLabels]string
		for i, l := range names {
			values[i] = s.Labels[l.Name]
		}
		samples[values] = append(samples[values], s)
	}
	for i, p := range ev.parts {
		results[i] = p.entry.query.Batch.pick(result, samples)
	}
	return results
}

// pick returns the result of a query from the samples of several by the values of their labels.
func (b Batch) pick(of *Result, samples map[[MaxBatchLabels]string][]Sample) *Result {
	var values [MaxBatchLabels]string
	for i, l := range b.labels() {
		values[i] = l.Value
	}
	picked := slices.Clone(samples[values])
	for i := range picked {
		picked[i].Labels = maps.Clone(picked[i].Labels)
		for _, l := range b.labels() {
			if l.Added {
				delete(picked[i].Labels, l.Name)
			}
		}
	}
	// Texts are counted once in a result, so that this is about the share of each.
	return &Result{Time: of.Time, Samples: picked, Warnings: of.Warnings, Bytes: of.Bytes * len(picked) / max(len(of.Samples), 1)}
}

// evaluateAlone queues the parts of a failed evaluation that someone waits for.
func (v *Evaluator) evaluateAlone(ev *evaluation, failure *Failure, now time.Time) {
	for _, p := range ev.parts {
		e := p.entry
		e.aloneUntil = now.Add(batchPause)
		switch {
		case e.evaluation != p: // the source was replaced meanwhile
			p.complete(nil, e.evaluationError(failure, now))
		case p.waiters == 0 && len(e.subscribers) == 0:
			e.evaluation = nil
		default:
			p.queue.push(p, e.requester)
		}
	}
}
