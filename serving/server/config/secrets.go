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

	"github.com/metricsbackend/metrics-backend-operator/internal/rungroup"
	"github.com/metricsbackend/metrics-backend-operator/serving/prometheus"
)

// Secrets watches the Secrets that the sources name. Each has an informer of its own, so
// that this account needs to read no other Secret of the namespace, and a rotated credential
// is used from the next request on.
type Secrets struct {
	client    kubernetes.Interface
	namespace string

	mu      sync.Mutex
	watched map[string]*watchedSecret
	running rungroup.Group
}

// watchedSecret is one Secret.
type watchedSecret struct {
	informer *objectInformer[*corev1.Secret]
	stop     func()
	// read has the Secret, or nothing if there is none; nil before it was read whether it exists.
	read atomic.Pointer[[]*corev1.Secret]
}

// NewSecrets returns the Secrets of a namespace, of which it watches none.
func NewSecrets(client kubernetes.Interface, namespace string) *Secrets {
	return &Secrets{client: client, namespace: namespace, watched: map[string]*watchedSecret{}}
}

// Get implements prometheus.Secrets: it returns the data of a Secret, which must not be
// changed.
func (s *Secrets) Get(name string) (map[string][]byte, error) {
	s.mu.Lock()
	w := s.watched[name]
	s.mu.Unlock()
	if w == nil {
		return nil, errors.New("it is not watched yet")
	}
	switch read := w.read.Load(); {
	case read == nil:
		return nil, w.unknownReason()
	case len(*read) != 1:
		return nil, prometheus.ErrNoSecret
	default:
		return (*read)[0].Data, nil
	}
}

// unknownReason returns why it is not known whether the Secret exists.
func (w *watchedSecret) unknownReason() error {
	switch reason := w.informer.lastFailure.Load(); {
	case reason == nil:
		return errors.New("no answer from kube-apiserver yet")
	case *reason == forbidden:
		return errors.New("this account may not read it; the operator adds it to the Role of serving pods when a source names it")
	default:
		return fmt.Errorf("kube-apiserver was asked for it: %s", *reason)
	}
}

// Watch also watches the named Secrets.
func (s *Secrets) Watch(names []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, name := range names {
		if s.watched[name] == nil {
			w := s.newWatched(name)
			w.stop = s.running.Go(w.informer.run)
			s.watched[name] = w
		}
	}
}

// Retain stops watching all but the named Secrets.
func (s *Secrets) Retain(names []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for name, w := range s.watched {
		if !slices.Contains(names, name) {
			delete(s.watched, name)
			w.stop()
		}
	}
}

func (s *Secrets) newWatched(name string) *watchedSecret {
	source := cache.NewListWatchFromClient(s.client.CoreV1().RESTClient(), "secrets", s.namespace,
		fields.OneTermEqualSelector(metav1.ObjectNameField, name))
	w := &watchedSecret{}
	w.informer = newObjectInformer("Secret "+klog.KRef(s.namespace, name).String(), "secrets named "+name, source, &corev1.Secret{}, w.apply)
	return w
}

// apply stores the Secret, or that there is none.
func (w *watchedSecret) apply(ctx context.Context, all []*corev1.Secret) {
	w.read.Store(&all)
	klog.FromContext(ctx).V(2).Info("Credentials of sources were read", "what", w.informer.what, "found", len(all) == 1)
}

// Run runs the informers until the context ends.
func (s *Secrets) Run(ctx context.Context) { s.running.Run(ctx) }
