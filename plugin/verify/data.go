// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package verify

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/metricsbackend/metrics-backend-operator/plugin/aggregation"
	"github.com/metricsbackend/metrics-backend-operator/plugin/samples"
)

const (
	// agreeTries bounds the retries of a comparison: a node may be scraped between two
	// requests, and two replicas scrape at different times.
	agreeTries = 3
	namesShown = 3
	// podDue is how long a container runs before its pod must have metrics, or longer by maxSampleAge.
	podDue = 3 * time.Minute
)

// nodesFresh lists the nodes of each version, as kubectl top does.
func nodesFresh(ctx context.Context, snap *snapshot) []Result {
	return snap.each(func(r *aggregation.Registration) Result {
		subject := groupSubject + "/" + r.Version + "/nodes"
		found, err := samples.Read(ctx, snap.cluster, r.Version, "nodes")
		if failure := snap.checkFresh(r, subject, found, err); failure != nil {
			return *failure
		}
		nodes, err := snap.scrapedNodes(ctx, r)
		if err != nil {
			// The number of nodes is only for comparison.
			return pass(subject, "%d fresh samples, the newest is %s old; of how many nodes is not known: %v", found.Since(snap.oldest()), snap.age(found), err)
		}
		var missing []string
		for name := range nodes {
			if sample, ok := found[name]; !ok || sample.Time.Before(snap.oldest()) {
				missing = append(missing, name)
			}
		}
		if len(missing) > 0 {
			return warn(subject, fmt.Sprintf("%d of %d nodes have a fresh sample; not: %s", len(nodes)-len(missing), len(nodes), firstNames(missing)),
				"can the implementation reach these kubelets?").withCommand(statusCommandOf(r.Backend))
		}
		return pass(subject, "%d of %d nodes have a fresh sample, the newest is %s old", len(nodes), len(nodes), snap.age(found))
	})
}

// scrapedNodes returns the nodes that a version should have, by name: those of its
// MetricsBackend's scrape.nodeSelector, or all.
func (snap *snapshot) scrapedNodes(ctx context.Context, r *aggregation.Registration) (map[string]corev1.ResourceList, error) {
	selector := labels.Everything()
	if b := snap.backend(r.Backend); b != nil && b.Spec.Existing == nil && b.Spec.ResourceMetrics != nil && b.Spec.ResourceMetrics.Scrape.NodeSelector != nil {
		var err error
		if selector, err = metav1.LabelSelectorAsSelector(b.Spec.ResourceMetrics.Scrape.NodeSelector); err != nil {
			return nil, fmt.Errorf("spec.resourceMetrics.scrape.nodeSelector of MetricsBackend %s: %w", b.Name, err)
		}
	}
	return snap.cluster.Allocatable(ctx, selector.String(), "")
}

// withoutMetrics returns the pods of scraped nodes of which a container has run for podDue, and
// that have no fresh sample.
func (snap *snapshot) withoutMetrics(ctx context.Context, r *aggregation.Registration, found samples.Samples) ([]string, error) {
	nodes, err := snap.scrapedNodes(ctx, r)
	if err != nil {
		return nil, err
	}
	hasRun := func(s corev1.ContainerStatus) bool {
		return s.State.Running != nil && snap.cluster.Now().Sub(s.State.Running.StartedAt.Time) > max(podDue, 2*snap.samplesMaxAge)
	}
	var missing []string
	var page corev1.PodList
	err = snap.cluster.Each(ctx, &page, func() {
		for i := range page.Items {
			pod := &page.Items[i]
			name := pod.Namespace + "/" + pod.Name
			if _, scraped := nodes[pod.Spec.NodeName]; scraped && slices.ContainsFunc(pod.Status.ContainerStatuses, hasRun) && found[name].Time.Before(snap.oldest()) {
				missing = append(missing, name)
			}
		}
	}, client.MatchingFields{"status.phase": string(corev1.PodRunning)})
	return missing, err
}

// podsFresh lists the pods of each version.
func podsFresh(ctx context.Context, snap *snapshot) []Result {
	return snap.each(func(r *aggregation.Registration) Result {
		subject := groupSubject + "/" + r.Version + "/pods"
		found, err := samples.Read(ctx, snap.cluster, r.Version, "pods")
		if failure := snap.checkFresh(r, subject, found, err); failure != nil {
			return *failure
		}
		fresh := fmt.Sprintf("%d of %d pods have a fresh sample, the newest is %s old", found.Since(snap.oldest()), len(found), snap.age(found))
		missing, err := snap.withoutMetrics(ctx, r, found)
		switch {
		case err != nil:
			// Which pods run is only for comparison.
			return pass(subject, "%s; whether all that run have one is not known: %v", fresh, err)
		case len(missing) > 0:
			return warn(subject, fmt.Sprintf("%s; %d that run have none: %s", fresh, len(missing), firstNames(missing)),
				"what does the container runtime report of them? docs/concepts/resource-metrics.md#pods-without-metrics").withCommand(statusCommandOf(r.Backend))
		}
		return pass(subject, "%s", fresh)
	})
}

// checkFresh returns a failure unless samples could be read and at least one is fresh.
func (snap *snapshot) checkFresh(r *aggregation.Registration, subject string, found samples.Samples, err error) *Result {
	const remedy = "the API answers without data: can the implementation reach kubelets, and do container runtimes report figures? docs/concepts/resource-metrics.md#pods-without-metrics"
	switch {
	case err != nil:
		return new(snap.requestFailed(subject, err, "this is what kubectl top and autoscalers get: see apiservice-available, then the implementation's log"))
	case len(found) == 0:
		return new(fail(subject, "no data: the list is empty", remedy).withCommand(statusCommandOf(r.Backend)))
	case found.Since(snap.oldest()) == 0:
		return new(fail(subject, fmt.Sprintf("no fresh data: the newest of %d samples is %s old, expected: at most %s",
			len(found), snap.age(found), snap.samplesMaxAge), remedy).withCommand(statusCommandOf(r.Backend)))
	}
	return nil
}

func (snap *snapshot) oldest() time.Time { return snap.cluster.Now().Add(-snap.samplesMaxAge) }

func (snap *snapshot) age(found samples.Samples) time.Duration {
	return max(snap.cluster.Now().Sub(found.Newest()), 0).Round(time.Second)
}

func firstNames(names []string) string {
	slices.Sort(names)
	text := listed(names[:min(len(names), namesShown)])
	if more := len(names) - namesShown; more > 0 {
		text += fmt.Sprintf(" and %d more", more)
	}
	return text
}

// versionsAgree: all versions must serve the same data (KEP-5207).
func versionsAgree(ctx context.Context, snap *snapshot) []Result {
	registered := slices.DeleteFunc(slices.Clone(snap.expected), func(v string) bool { return aggregation.Find(snap.registrations, v) == nil })
	if len(registered) < 2 {
		return []Result{skip(group, "fewer than two versions to compare: %s", listed(registered))}
	}
	var results []Result
	for _, other := range registered[1:] {
		results = append(results, snap.compareVersions(ctx, registered[0], other))
	}
	return results
}

func (snap *snapshot) compareVersions(ctx context.Context, version, other string) Result {
	subject := version + " and " + other
	var differ error
	for range agreeTries {
		a, errA := samples.Read(ctx, snap.cluster, version, "nodes")
		b, errB := samples.Read(ctx, snap.cluster, other, "nodes")
		if errA != nil || errB != nil || len(a)+len(b) == 0 {
			return skip(subject, "there is nothing to compare, see nodes-fresh")
		}
		if differ = snap.difference(a, b); differ == nil {
			return pass(subject, "tell the same of %d nodes", len(a))
		}
	}
	return fail(subject, differ.Error(), "do both APIServices point to one implementation? See apiservice-registered")
}

// difference returns an error if two versions differ in their nodes, or in samples of the same
// time. Times may differ by the scrapes of two replicas.
func (snap *snapshot) difference(a, b samples.Samples) error {
	names, others := slices.Sorted(maps.Keys(a)), slices.Sorted(maps.Keys(b))
	if !slices.Equal(names, others) {
		return fmt.Errorf("they know different nodes: %d and %d", len(names), len(others))
	}
	for _, name := range names {
		sample, other := a[name], b[name]
		apart := sample.Time.Sub(other.Time).Abs()
		if apart == 0 && !equality.Semantic.DeepEqual(sample.Usage, other.Usage) {
			return fmt.Errorf("their samples of node %s at one time differ", name)
		}
		if apart > snap.samplesMaxAge {
			return fmt.Errorf("their samples of node %s are %s apart", name, apart.Round(time.Second))
		}
	}
	return nil
}
