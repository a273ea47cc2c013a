// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package kubelet

import (
	"strings"
	"time"

	"github.com/metricsbackend/metrics-backend-operator/api/v1alpha1"
	"github.com/metricsbackend/metrics-backend-operator/serving/kubelet/textparse"
	"github.com/metricsbackend/metrics-backend-operator/serving/samplestore"
)

const (
	// maxWithoutMetrics bounds the pods without metrics that are remembered of a node.
	maxWithoutMetrics = 1000
	// longestBackOff is how long a kubelet waits at most before it starts a container again. Two
	// scrapes in that time see a counter that stays.
	longestBackOff = 5 * time.Minute
)

// metricsDue returns how long a pod may run without metrics before it is counted. A new one
// needs two samples, which a kubelet renews after 10 to 20 s.
func metricsDue(interval time.Duration) time.Duration { return max(3*time.Minute, 3*interval) }

// missingPods tells which pods of a node have no metrics although they run. A body says so by a
// container whose figures are incomplete, or all without memory; or by a pod's own CPU counter
// that goes up while it has figures of no container of the pod. A counter that stays is that of a
// sandbox: the containers wait for an image, or for their next start after a crash.
type missingPods struct {
	// counters is the number of the pods' own CPU counters in the current body.
	counters int
	// parse: the last body had more of them than pods with metrics, and scrapes are frequent enough
	// to tell a crash loop. Otherwise they are only counted.
	parse   bool
	without map[samplestore.Key]*podWithoutMetrics
}

// podWithoutMetrics has times in Unix milliseconds.
type podWithoutMetrics struct {
	// body is the last body that mentions the pod, and since when it has run without metrics.
	body  uint32
	since int64
	// cpu and cpuTime are the newest sample of the pod's own counter.
	cpu     float64
	cpuTime int64
}

// get returns what is known of a pod. It is remembered unless there are too many.
func (r *missingPods) get(key samplestore.Key, now int64) *podWithoutMetrics {
	if pod := r.without[key]; pod != nil {
		return pod
	}
	if r.without == nil {
		r.without = map[samplestore.Key]*podWithoutMetrics{}
	}
	pod := &podWithoutMetrics{since: now}
	if len(r.without) < maxWithoutMetrics {
		r.without[samplestore.Key{Namespace: strings.Clone(key.Namespace), Name: strings.Clone(key.Name)}] = pod
	}
	return pod
}

// podCPU reads what follows the name of a pod's own CPU counter.
func (p *parser) podCPU(b []byte) {
	r := &p.state.missing
	if r.counters++; !r.parse || len(b) == 0 || b[0] != '{' {
		return
	}
	labels, end, labeled := textparse.ParseLabels(b)
	cpu, at, ok := textparse.ParseSample(b[end:], p.now)
	key := samplestore.Key{Namespace: unsafeString(labels.Namespace), Name: unsafeString(labels.Pod)}
	if !labeled || !ok || !validName(labels.Namespace) || !validName(labels.Pod) {
		return
	}
	if known := p.state.pods[key]; known != nil && (known.running > 0 || !known.whole) {
		return // by the last body its containers have figures, or it is counted by them
	}
	pod := r.get(key, p.now)
	pod.body = p.state.body
	if at > pod.cpuTime {
		if !(cpu > pod.cpu) {
			pod.since = p.now
		}
		pod.cpu, pod.cpuTime = cpu, at
	}
}

// countPods returns the number of pods with metrics, and of those that have had none since the
// time due. points was called for the body.
func (s *nodeState) countPods(now, due int64) (with, without int) {
	r := &s.missing
	for key, p := range s.pods {
		switch {
		case !p.whole:
			r.get(key, now).body = s.body
		case p.running > 0:
			with++
			delete(r.without, key)
		}
	}
	for key, pod := range r.without {
		switch {
		case pod.body != s.body:
			delete(r.without, key)
		case pod.since <= due:
			without++
		}
	}
	r.parse = r.counters > with
	return with, without
}

// checkPods counts the pods without metrics, and returns a failure if they are at least half.
func (o *scrapeResult) checkPods(s *nodeState, interval time.Duration) *failure {
	with, without := s.countPods(o.start.UnixMilli(), o.start.Add(-metricsDue(interval)).UnixMilli())
	s.missing.parse = s.missing.parse && 2*interval <= longestBackOff
	if o.podsWithoutMetrics = without; without == 0 || without < with {
		return nil
	}
	return failf(v1alpha1.ScrapePodsWithoutMetrics, "%d of %d pods run, but have had no metrics for %s", without, with+without, metricsDue(interval))
}
