// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package config

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"

	"github.com/metricsbackend/metrics-backend-operator/api/v1alpha1"
	"github.com/metricsbackend/metrics-backend-operator/internal/rungroup"
	"github.com/metricsbackend/metrics-backend-operator/serving/prometheus"
)

// References watches the Secrets and ConfigMaps that the sources name.
type References struct {
	Secrets    *NamedObjects[*corev1.Secret]
	ConfigMaps *NamedObjects[*corev1.ConfigMap]
}

// NewReferences returns the References in a namespace, of which it watches none.
func NewReferences(client kubernetes.Interface, namespace string) *References {
	return &References{
		Secrets: newNamedObjects(client, namespace, "Secret", "secrets", &corev1.Secret{},
			func(s *corev1.Secret) map[string][]byte { return s.Data }),
		ConfigMaps: newNamedObjects(client, namespace, "ConfigMap", "configmaps", &corev1.ConfigMap{},
			func(c *corev1.ConfigMap) map[string][]byte {
				data := make(map[string][]byte, len(c.Data))
				for key, text := range c.Data {
					data[key] = []byte(text)
				}
				return data
			}),
	}
}

// Watch also watches the objects that the sources name.
func (r *References) Watch(sources []v1alpha1.SourceSpec) {
	r.Secrets.watch(v1alpha1.SourceSecrets(sources))
	r.ConfigMaps.watch(v1alpha1.SourceConfigMaps(sources))
}

// Retain stops watching all objects but those that the sources name.
func (r *References) Retain(sources []v1alpha1.SourceSpec) {
	r.Secrets.retain(v1alpha1.SourceSecrets(sources))
	r.ConfigMaps.retain(v1alpha1.SourceConfigMaps(sources))
}

// Run runs the informers until the context ends.
func (r *References) Run(ctx context.Context) {
	var running sync.WaitGroup
	running.Go(func() { r.Secrets.running.Run(ctx) })
	running.Go(func() { r.ConfigMaps.running.Run(ctx) })
	running.Wait()
}

// NamedObjects watches objects of a kind by their names. Each has an informer of its own, so
// that this account needs to read no other object of the namespace, and changed contents
// are used from the next request on.
type NamedObjects[T metaObject] struct {
	client         kubernetes.Interface
	namespace      string
	kind, resource string
	example        T
	data           func(T) map[string][]byte
	mu             sync.Mutex
	watched        map[string]*watchedObject[T]
	running        rungroup.Group
}

// watchedObject is one object.
type watchedObject[T metaObject] struct {
	informer *objectInformer[T]
	stop     func()
	data     func(T) map[string][]byte
	// read is the state of the object; nil until it is known.
	read atomic.Pointer[contents]
}

// contents are the data of an object, if it exists.
type contents struct {
	exists bool
	data   map[string][]byte
}

func newNamedObjects[T metaObject](client kubernetes.Interface, namespace, kind, resource string, example T, data func(T) map[string][]byte) *NamedObjects[T] {
	return &NamedObjects[T]{
		client: client, namespace: namespace, kind: kind, resource: resource, example: example, data: data,
		watched: map[string]*watchedObject[T]{},
	}
}

// Get implements prometheus.Secrets and prometheus.ConfigMaps: it returns the data of an
// object, which must not be changed.
func (o *NamedObjects[T]) Get(name string) (map[string][]byte, error) {
	o.mu.Lock()
	w := o.watched[name]
	o.mu.Unlock()
	if w == nil {
		return nil, errors.New("it is not watched yet")
	}
	switch read := w.read.Load(); {
	case read == nil:
		return nil, w.unknownReason()
	case !read.exists:
		return nil, prometheus.ErrNotFound
	default:
		return read.data, nil
	}
}

// unknownReason returns why it is not known whether the object exists.
func (w *watchedObject[T]) unknownReason() error {
	switch reason := w.informer.lastFailure.Load(); {
	case reason == nil:
		return errors.New("no answer from kube-apiserver yet")
	case *reason == forbidden:
		return errors.New("this account may not read it; the operator adds it to the Role of serving pods when a source names it")
	default:
		return fmt.Errorf("kube-apiserver was asked for it: %s", *reason)
	}
}

func (o *NamedObjects[T]) watch(names []string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, name := range names {
		if o.watched[name] == nil {
			w := o.newWatched(name)
			w.stop = o.running.Go(w.informer.run)
			o.watched[name] = w
		}
	}
}

func (o *NamedObjects[T]) retain(names []string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for name, w := range o.watched {
		if !slices.Contains(names, name) {
			delete(o.watched, name)
			w.stop()
		}
	}
}

func (o *NamedObjects[T]) newWatched(name string) *watchedObject[T] {
	source := cache.NewListWatchFromClient(o.client.CoreV1().RESTClient(), o.resource, o.namespace,
		fields.OneTermEqualSelector(metav1.ObjectNameField, name))
	w := &watchedObject[T]{data: o.data}
	w.informer = newObjectInformer(o.kind+" "+klog.KRef(o.namespace, name).String(), o.resource+" named "+name, source, o.example, w.apply)
	return w
}

// apply stores the contents of the object, or that there is none.
func (w *watchedObject[T]) apply(ctx context.Context, all []T) {
	read := &contents{exists: len(all) == 1}
	if read.exists {
		read.data = w.data(all[0])
	}
	w.read.Store(read)
	klog.FromContext(ctx).V(2).Info("An object that sources name was read", "what", w.informer.what, "found", read.exists)
}
