// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package autoscaler

import (
	"context"
	"errors"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	metricsv1 "k8s.io/metrics/pkg/apis/metrics/v1"
	metricsv1beta1 "k8s.io/metrics/pkg/apis/metrics/v1beta1"
	resourceclient "k8s.io/metrics/pkg/client/clientset/versioned/typed/metrics/v1beta1"

	"github.com/metricsbackend/metrics-backend-operator/client"
)

// podWatcher is a client.Watcher of pods.
type podWatcher interface {
	Run(context.Context) error
	Changes() <-chan client.Change[metricsv1.PodMetrics]
	Status() client.Status
	List(namespace string) []*metricsv1.PodMetrics
}

// snapshotLister stands below the stock metrics client in place of the API: totals of containers, missing pods and
// errors are the stock client's business in any case.
type snapshotLister struct {
	// PodMetricsesGetter is the API's. An autoscaler only lists.
	resourceclient.PodMetricsesGetter
	watcher podWatcher
}

// PodMetricses returns the lister of one namespace.
func (s snapshotLister) PodMetricses(namespace string) resourceclient.PodMetricsInterface {
	return snapshotPods{s.PodMetricsesGetter.PodMetricses(namespace), namespace, s}
}

type snapshotPods struct {
	resourceclient.PodMetricsInterface
	namespace string
	lister    snapshotLister
}

// List answers from the snapshot, sorted as the API's answers are. It is an error as long as nothing was ever heard
// from the API: no metrics are not the metrics of no pods. From then on it has all that the API has: the watcher takes
// a list in at once, where its changes come one by one.
func (s snapshotPods) List(_ context.Context, options metav1.ListOptions) (*metricsv1beta1.PodMetricsList, error) {
	if status := s.lister.watcher.Status(); !status.Synced {
		if status.Err == nil {
			return nil, errors.New("pod metrics were not listed yet")
		}
		return nil, fmt.Errorf("pod metrics were not listed yet: %w", status.Err)
	}
	if s.namespace == "" || options.FieldSelector != "" {
		return nil, fmt.Errorf("pod metrics are held by namespace and label, not for namespace %q and field selector %q: ask the API",
			s.namespace, options.FieldSelector)
	}
	selector, err := labels.Parse(options.LabelSelector)
	if err != nil {
		return nil, fmt.Errorf("label selector %q: %w", options.LabelSelector, err)
	}
	list := &metricsv1beta1.PodMetricsList{Items: []metricsv1beta1.PodMetrics{}}
	for _, pod := range s.lister.watcher.List(s.namespace) {
		if selector.Matches(labels.Set(pod.Labels)) {
			list.Items = append(list.Items, toV1beta1(pod))
		}
	}
	return list, nil
}

// toV1beta1 shares maps with the original: the controller reads them only.
func toV1beta1(pod *metricsv1.PodMetrics) metricsv1beta1.PodMetrics {
	containers := make([]metricsv1beta1.ContainerMetrics, len(pod.Containers))
	for i, c := range pod.Containers {
		containers[i] = metricsv1beta1.ContainerMetrics(c)
	}
	return metricsv1beta1.PodMetrics{
		ObjectMeta: pod.ObjectMeta, Timestamp: pod.Timestamp, Window: pod.Window, Containers: containers,
	}
}
