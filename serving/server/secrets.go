// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package server

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"

	"github.com/metricsbackend/metrics-backend-operator/serving/prometheus"
)

// secrets are those that the sources name. Each is followed by itself, so that this
// account needs to see no other Secret of the namespace, and a credential that is
// rotated is in force with the next request.
type secrets struct {
	client    kubernetes.Interface
	namespace string

	mu       sync.Mutex
	followed map[string]*followedSecret
	// begun is run's context; nil before.
	begun   context.Context
	running sync.WaitGroup
}

// followedSecret is one Secret.
type followedSecret struct {
	objects *objectInformer[*corev1.Secret]
	stop    context.CancelFunc

	mu   sync.Mutex
	data map[string][]byte
	// known says that it was read whether it exists, and found that it does.
	known, found bool
}

func newSecrets(client kubernetes.Interface, namespace string) *secrets {
	return &secrets{client: client, namespace: namespace, followed: map[string]*followedSecret{}}
}

// get returns the data of a Secret, which must not be changed. It implements
// prometheus.Secrets.
func (s *secrets) get(name string) (map[string][]byte, error) {
	s.mu.Lock()
	f := s.followed[name]
	s.mu.Unlock()
	if f == nil {
		return nil, errors.New("it is not followed yet")
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	switch {
	case !f.known:
		return nil, f.why()
	case !f.found:
		return nil, prometheus.ErrNoSecret
	}
	return f.data, nil
}

// why says why it is not known whether the Secret exists.
func (f *followedSecret) why() error {
	if kind := f.objects.told.Load(); kind != nil && *kind == forbidden {
		return errors.New("this account may not read it; the operator adds it to the Role of serving pods when a source names it")
	} else if kind != nil {
		return fmt.Errorf("kube-apiserver was asked for it: %s", *kind)
	}
	return errors.New("no answer from kube-apiserver yet")
}

// follow follows these Secrets, too.
func (s *secrets) follow(names []string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, name := range names {
		if s.followed[name] != nil {
			continue
		}
		f, err := s.newFollowed(name)
		if err != nil {
			return err
		}
		s.followed[name] = f
		s.begin(f)
	}
	return nil
}

// keep follows no others than these Secrets any longer.
func (s *secrets) keep(names []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for name, f := range s.followed {
		if slices.Contains(names, name) {
			continue
		}
		delete(s.followed, name)
		if f.stop != nil {
			f.stop()
		}
	}
}

func (s *secrets) newFollowed(name string) (*followedSecret, error) {
	selected := func(o *metav1.ListOptions) {
		o.FieldSelector = fields.OneTermEqualSelector(metav1.ObjectNameField, name).String()
	}
	source := cache.NewFilteredListWatchFromClient(s.client.CoreV1().RESTClient(), "secrets", s.namespace, selected)
	f := &followedSecret{}
	var err error
	f.objects, err = newObjectInformer("Secret "+klog.KRef(s.namespace, name).String(), "secrets named "+name, source, &corev1.Secret{}, f.apply)
	if err != nil {
		return nil, fmt.Errorf("follow the credentials of sources: %w", err)
	}
	return f, nil
}

// apply takes the Secret, or none.
func (f *followedSecret) apply(ctx context.Context, all []*corev1.Secret) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.data, f.known, f.found = nil, true, false
	if len(all) == 1 {
		f.data, f.found = all[0].Data, true
	}
	klog.FromContext(ctx).V(2).Info("Credentials of sources were read", "what", f.objects.what, "found", f.found)
}

// begin starts to follow a Secret if there is a context to do so in. The caller holds mu.
func (s *secrets) begin(f *followedSecret) {
	if s.begun == nil || s.begun.Err() != nil {
		return
	}
	ctx, stop := context.WithCancel(s.begun)
	f.stop = stop
	s.running.Go(func() { f.objects.run(ctx) })
}

// run follows the Secrets until the context ends.
func (s *secrets) run(ctx context.Context) {
	s.mu.Lock()
	s.begun = ctx
	for _, f := range s.followed {
		s.begin(f) //nolint:contextcheck // It is begun's, which is this one.
	}
	s.mu.Unlock()
	<-ctx.Done()
	// Nobody begins from here on, so Wait is not passed by. It is not waited for with mu:
	// requests that are under way still look at what is known.
	s.mu.Lock()
	s.begun = nil
	s.mu.Unlock()
	s.running.Wait()
}
