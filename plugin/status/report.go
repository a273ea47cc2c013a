// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

// Package status shows what serves the metrics APIs of a cluster, and how it is.
package status

import (
	"context"
	"fmt"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/metricsbackend/metrics-backend-operator/api/v1alpha1"
	"github.com/metricsbackend/metrics-backend-operator/plugin/aggregation"
	"github.com/metricsbackend/metrics-backend-operator/plugin/connection"
	"github.com/metricsbackend/metrics-backend-operator/plugin/samples"
)

// Report is what -o json and yaml print.
type Report struct {
	// Cluster is kube-apiserver's address.
	Cluster  string    `json:"cluster"`
	Backends []Backend `json:"backends"`
	// APIServices of the metrics APIs, whoever owns them.
	APIServices []APIService `json:"apiServices"`
}

// APIService is one of a group.
type APIService struct {
	aggregation.Registration `json:",inline"`
	// Samples are the node samples that the version answers.
	Samples *Samples `json:"samples,omitempty"`
	// SamplesError says why they could not be read.
	SamplesError string `json:"samplesError,omitempty"`
}

// Samples sums up node samples.
type Samples struct {
	// Nodes is the number of nodes that have one.
	Nodes int `json:"nodes"`
	// Newest is the time of the newest.
	Newest metav1.Time `json:"newest,omitzero"`
}

// Backend is a MetricsBackend, without what its spec says.
type Backend struct {
	Name       string `json:"name"`
	Generation int64  `json:"generation"`
	Deleting   bool   `json:"deleting,omitempty"`
	// Existing is the Service of someone else that it keeps APIServices for.
	Existing string `json:"existing,omitempty"`
	// Status is as the operator wrote it.
	Status v1alpha1.MetricsBackendStatus `json:"status"`
}

// read looks at the backend of that name, or at all when it is empty.
func read(ctx context.Context, cluster *connection.Cluster, name string) (*Report, error) {
	backends, err := cluster.Backends(ctx)
	if err != nil {
		return nil, err
	}
	report := &Report{Cluster: cluster.Host, Backends: []Backend{}, APIServices: []APIService{}}
	for i := range backends {
		if name == "" || backends[i].Name == name {
			report.Backends = append(report.Backends, describe(&backends[i]))
		}
	}
	if name != "" && len(report.Backends) == 0 {
		return nil, connection.Named(name, backends)
	}
	var registrations []aggregation.Registration
	for _, group := range aggregation.Groups() {
		found, err := aggregation.Registrations(ctx, cluster, group)
		if err != nil {
			return nil, err
		}
		registrations = append(registrations, found...)
	}
	for _, r := range registrations {
		service := APIService{Registration: r}
		// One that is unavailable would only cost the time of its timeout.
		if r.Available && r.Group == aggregation.GroupResourceMetrics {
			found, err := samples.Nodes(ctx, cluster, r.Version)
			if err != nil {
				service.SamplesError = err.Error()
			} else {
				service.Samples = &Samples{Nodes: len(found), Newest: metav1.NewTime(found.Newest())}
			}
		}
		report.APIServices = append(report.APIServices, service)
	}
	return report, nil
}

func describe(backend *v1alpha1.MetricsBackend) Backend {
	b := Backend{
		Name: backend.Name, Generation: backend.Generation,
		Deleting: backend.DeletionTimestamp != nil, Status: *backend.Status.DeepCopy(),
	}
	if existing := backend.Spec.Existing; existing != nil {
		b.Existing = existing.Service.Namespace + "/" + existing.Service.Name
	}
	return b
}

// condition is nil while the operator has not set it.
func (b *Backend) condition(kind string) *metav1.Condition {
	i := slices.IndexFunc(b.Status.Conditions, func(c metav1.Condition) bool { return c.Type == kind })
	if i < 0 {
		return nil
	}
	return &b.Status.Conditions[i]
}

// ago is how long ago a time was, in days from two days on.
func ago(now, then time.Time) string { return span(now.Sub(then)) + " ago" }

func span(d time.Duration) string {
	switch d = max(d, 0); {
	case d >= 48*time.Hour:
		return fmt.Sprintf("%d days", int(d.Hours())/24)
	case d >= 2*time.Hour:
		return fmt.Sprintf("%dh", int(d.Hours()))
	case d >= 2*time.Minute:
		return fmt.Sprintf("%dm", int(d.Minutes()))
	}
	return fmt.Sprintf("%ds", int(d.Seconds()))
}
