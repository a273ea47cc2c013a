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
	"k8s.io/client-go/transport"
	"k8s.io/klog/v2"

	"github.com/metricsbackend/metrics-backend-operator/api/v1alpha1"
	"github.com/metricsbackend/metrics-backend-operator/internal/rungroup"
	"github.com/metricsbackend/metrics-backend-operator/serving/accounttoken"
	"github.com/metricsbackend/metrics-backend-operator/serving/sourceclient"
)

// References watches the Secrets and ConfigMaps that the sources name, and requests the tokens
// that they are sent.
type References struct {
	Secrets    *NamedObjects[*corev1.Secret]
	ConfigMaps *NamedObjects[*corev1.ConfigMap]
	tokens     *byName[v1alpha1.SourceToken, *accounttoken.Source]
	running    rungroup.Group
}

// NewReferences returns the References in a namespace, of which it watches none. newTokens
// returns the tokens of an account for an audience.
func NewReferences(client kubernetes.Interface, namespace string, newTokens func(v1alpha1.SourceToken) *accounttoken.Source) *References {
	r := &References{}
	r.Secrets = newNamedObjects(&r.running, client, namespace, "Secret", "secrets", &corev1.Secret{},
		func(s *corev1.Secret) map[string][]byte { return s.Data })
	r.ConfigMaps = newNamedObjects(&r.running, client, namespace, "ConfigMap", "configmaps", &corev1.ConfigMap{},
		func(c *corev1.ConfigMap) map[string][]byte {
			data := make(map[string][]byte, len(c.Data))
			for key, text := range c.Data {
				data[key] = []byte(text)
			}
			return data
		})
	r.tokens = newByName(&r.running, newTokens)
	return r
}

// Watch also watches the objects that the sources of a spec use.
func (r *References) Watch(spec *v1alpha1.MetricsBackendSpec) {
	r.Secrets.add(v1alpha1.SourceSecrets(spec.Sources))
	r.ConfigMaps.add(v1alpha1.SourceConfigMaps(spec.Sources, spec.Serving.CAConfigMapKeyRef))
	r.tokens.add(v1alpha1.SourceTokens(spec.Sources))
}

// Retain stops watching all objects but those that the sources of a spec use.
func (r *References) Retain(spec *v1alpha1.MetricsBackendSpec) {
	r.Secrets.retain(v1alpha1.SourceSecrets(spec.Sources))
	r.ConfigMaps.retain(v1alpha1.SourceConfigMaps(spec.Sources, spec.Serving.CAConfigMapKeyRef))
	r.tokens.retain(v1alpha1.SourceTokens(spec.Sources))
}

// Run watches and requests until the context ends.
func (r *References) Run(ctx context.Context) { r.running.Run(ctx) }

// Tokens returns the tokens of the account with a suffix.
func (r *References) Tokens(accountSuffix string) sourceclient.Tokens {
	return func(audience string) transport.ResettableTokenSource {
		token := v1alpha1.SourceToken{AccountSuffix: accountSuffix, Audience: audience}
		tokens, ok := r.tokens.get(token)
		if !ok {
			return r.tokens.create(token) // It has no token.
		}
		return tokens
	}
}

// byName runs one item for each of a set of names that changes.
type byName[K comparable, T interface{ Run(context.Context) }] struct {
	create  func(name K) T
	mu      sync.Mutex
	items   map[K]T
	stops   map[K]func()
	running *rungroup.Group
}

func newByName[K comparable, T interface{ Run(context.Context) }](running *rungroup.Group, create func(name K) T) *byName[K, T] {
	return &byName[K, T]{running: running, create: create, items: map[K]T{}, stops: map[K]func(){}}
}

func (b *byName[K, T]) get(name K) (T, bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	item, ok := b.items[name]
	return item, ok
}

func (b *byName[K, T]) add(names []K) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, name := range names {
		if _, ok := b.items[name]; !ok {
			item := b.create(name)
			b.items[name], b.stops[name] = item, b.running.Go(item.Run)
		}
	}
}

func (b *byName[K, T]) retain(names []K) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for name, stop := range b.stops {
		if !slices.Contains(names, name) {
			stop()
			delete(b.items, name)
			delete(b.stops, name)
		}
	}
}

// NamedObjects watches objects of a kind by their names. Each has an informer of its own, so
// that this account needs to read no other object of the namespace, and changed contents
// are used from the next request on.
type NamedObjects[T metaObject] struct {
	*byName[string, *watchedObject[T]]
}

// watchedObject is one object.
type watchedObject[T metaObject] struct {
	informer *ObjectInformer[T]
	data     func(T) map[string][]byte
	// read is the state of the object; nil until it is known.
	read atomic.Pointer[contents]
}

// contents are the data of an object, if it exists.
type contents struct {
	exists bool
	data   map[string][]byte
}

func newNamedObjects[T metaObject](running *rungroup.Group, client kubernetes.Interface, namespace, kind, resource string, example T, data func(T) map[string][]byte) *NamedObjects[T] {
	return &NamedObjects[T]{newByName(running, func(name string) *watchedObject[T] {
		source := cache.NewListWatchFromClient(client.CoreV1().RESTClient(), resource, namespace,
			fields.OneTermEqualSelector(metav1.ObjectNameField, name))
		w := &watchedObject[T]{data: data}
		w.informer = NewObjectInformer(kind+" "+klog.KRef(namespace, name).String(), resource+" named "+name, source, example, w.apply)
		return w
	})}
}

// Run watches the object until the context ends.
func (w *watchedObject[T]) Run(ctx context.Context) { w.informer.Run(ctx) }

// Get implements sourceclient.Secrets and sourceclient.ConfigMaps: it returns the data of an
// object, which must not be changed.
func (o *NamedObjects[T]) Get(name string) (map[string][]byte, error) {
	w, ok := o.get(name)
	if !ok {
		return nil, errors.New("it is not watched yet")
	}
	switch read := w.read.Load(); {
	case read == nil:
		return nil, w.unknownReason()
	case !read.exists:
		return nil, sourceclient.ErrNotFound
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

// apply stores the contents of the object, or that there is none.
func (w *watchedObject[T]) apply(ctx context.Context, all []T) {
	read := &contents{exists: len(all) == 1}
	if read.exists {
		read.data = w.data(all[0])
	}
	w.read.Store(read)
	klog.FromContext(ctx).V(2).Info("An object that sources name was read", "what", w.informer.what, "found", read.exists)
}
