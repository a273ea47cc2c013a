// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

// Package status is `kubectl metrics-backend status`: it shows MetricsBackends and the APIServices of
// metrics APIs.
package status

import (
	"context"
	"fmt"
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
	// APIServices are those of the metrics APIs, of any owner.
	APIServices []APIService `json:"apiServices"`

	// flags are appended to commands (see connection.Flags).
	flags string
}

// APIService is an APIService of a metrics API.
type APIService struct {
	aggregation.Registration `json:",inline"`
	// Samples are the node samples of the version.
	Samples *Samples `json:"samples,omitempty"`
	// SamplesError is the error of reading them.
	SamplesError string `json:"samplesError,omitempty"`
}

// Samples is a summary of node samples.
type Samples struct {
	// Nodes is the number of nodes with a sample.
	Nodes int `json:"nodes"`
	// Newest is the time of the newest sample.
	Newest metav1.Time `json:"newest,omitzero"`
}

// Backend is a MetricsBackend without its spec.
type Backend struct {
	Name string `json:"name"`
	// Namespace is that of the serving pods.
	Namespace  string `json:"namespace,omitempty"`
	Generation int64  `json:"generation"`
	Deleting   bool   `json:"deleting,omitempty"`
	// Existing is the Service of spec.existing.
	Existing string                        `json:"existing,omitempty"`
	Status   v1alpha1.MetricsBackendStatus `json:"status"`
}

// read reads the backend of that name, or all if it is empty.
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
		return nil, connection.CheckBackendName(name, backends)
	}
	registrations, err := aggregation.Registrations(ctx, cluster, aggregation.Groups()...)
	if err != nil {
		return nil, err
	}
	for _, r := range registrations {
		service := APIService{Registration: r}
		// A request for an unavailable version would only time out.
		if r.Available && r.Group == aggregation.GroupResourceMetrics {
			found, err := samples.Read(ctx, cluster, r.Version, "nodes")
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
	switch existing := backend.Spec.Existing; {
	case existing != nil:
		b.Namespace = existing.Service.Namespace
		b.Existing = existing.Service.Namespace + "/" + existing.Service.Name
	case backend.Spec.Serving.Namespace != "":
		b.Namespace = backend.Spec.Serving.Namespace
	case b.Status.Serving != nil:
		b.Namespace = b.Status.Serving.Namespace
	default:
		b.Namespace = b.Status.Installation.Namespace
	}
	return b
}

// ago returns the time since then, in days from two days on.
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
