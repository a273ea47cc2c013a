// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package resourcemetrics

import (
	"context"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metainternalversion "k8s.io/apimachinery/pkg/apis/meta/internalversion"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/apiserver/pkg/registry/rest"
	"k8s.io/metrics/pkg/apis/metrics"

	"github.com/metricsbackend/metrics-backend-operator/serving/samplestore"
	"github.com/metricsbackend/metrics-backend-operator/serving/stream"
)

// storage implements get, list and watch of one resource in one version, over a collection of newest
// points.
type storage struct {
	kind       *kind
	collection *samplestore.Collection
	publisher  *publisher
	streams    *Streams
	// available returns nil, or the error of all requests.
	available func() error
	// metrics count the watches of this version.
	metrics *stream.Metrics
}

func newStorage(k *kind, version schema.GroupVersion, collection *samplestore.Collection, p *publisher, streams *Streams, available func() error) *storage {
	return &storage{kind: k, collection: collection, publisher: p, streams: streams, available: available, metrics: stream.NewMetrics(k.api(version))}
}

var (
	_ rest.Storage              = &storage{}
	_ rest.Scoper               = &storage{}
	_ rest.KindProvider         = &storage{}
	_ rest.SingularNameProvider = &storage{}
	_ rest.Getter               = &storage{}
	_ rest.Lister               = &storage{}
	_ rest.TableConvertor       = &storage{}
)

func (s *storage) New() runtime.Object     { return s.kind.newObject() }
func (s *storage) NewList() runtime.Object { return s.kind.newList() }
func (s *storage) Kind() string            { return s.kind.name }
func (s *storage) GetSingularName() string { return "" } // clients use the kind: podmetrics
func (s *storage) NamespaceScoped() bool   { return s.kind.namespaced }
func (s *storage) Destroy()                {} // the store outlives the API server

// Get returns the newest point of one node or pod.
func (s *storage) Get(ctx context.Context, name string, _ *metav1.GetOptions) (runtime.Object, error) {
	if err := s.available(); err != nil {
		return nil, err
	}
	key := samplestore.Key{Namespace: request.NamespaceValue(ctx), Name: name}
	if o := s.collection.Get(key); o != nil {
		return &object{kind: s.kind, point: o}, nil
	}
	return nil, s.notFound(key)
}

// notFound distinguishes objects that do not exist from those without metrics yet. The texts are
// those of metrics-server.
func (s *storage) notFound(key samplestore.Key) error {
	if !s.collection.Known(key) {
		return apierrors.NewNotFound(corev1.Resource(s.kind.resource), key.Name)
	}
	name := key.Name
	if s.kind.namespaced {
		name = key.Namespace + "/" + key.Name
	}
	return apierrors.NewNotFound(metrics.Resource(strings.ToLower(s.kind.name)), name)
}

// List returns the newest selected points in the order of namespaces and names. A resourceVersion
// and its match rule are ignored, since there is no older state.
func (s *storage) List(ctx context.Context, options *metainternalversion.ListOptions) (runtime.Object, error) {
	if err := s.available(); err != nil {
		return nil, err
	}
	selected := s.selection(request.NamespaceValue(ctx), options)
	page, err := newPage(s.kind, selected.Namespace, options)
	if err != nil {
		return nil, err
	}
	if selected.Labels == nil && selected.Fields == nil {
		page.reserve(s.collection.Len(selected.Namespace))
	}
	for o := range selectObjects(s.collection, selected, page.after) {
		if !page.add(o) {
			break
		}
	}
	l := page.list()
	l.table = tableFormatFrom(ctx)
	return l, nil
}
