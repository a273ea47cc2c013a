// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package server

import (
	"context"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apiserver/pkg/authentication/authenticatorfactory"
	"k8s.io/apiserver/pkg/authentication/request/headerrequest"
	"k8s.io/apiserver/pkg/server/dynamiccertificates"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"
)

// publishedAuthentication is what the ConfigMap authenticationConfigMap says, followed by one watch. The API server
// library has three controllers for it, each with a watch and a queue, whose metrics wake an idle process six times a second.
type publishedAuthentication struct {
	client   kubernetes.Interface
	clientCA *publishedCA
	headerCA *publishedCA
	headers  atomic.Pointer[proxyHeaders]

	readOnce, watchOnce sync.Once
}

// proxyHeaders are the headers of requests that kube-apiserver proxies, and the names in its certificate.
type proxyHeaders struct {
	username, uid, group, extraPrefix, allowedNames []string
}

func newPublishedAuthentication(client kubernetes.Interface) *publishedAuthentication {
	p := &publishedAuthentication{client: client}
	p.headers.Store(&proxyHeaders{})
	p.clientCA = &publishedCA{publishedAuthentication: p, key: "client-ca-file"}
	p.headerCA = &publishedCA{publishedAuthentication: p, key: "requestheader-client-ca-file"}
	return p
}

// requestHeaders returns how kube-apiserver's requests are recognised.
func (p *publishedAuthentication) requestHeaders() *authenticatorfactory.RequestHeaderConfig {
	list := func(of func(*proxyHeaders) []string) headerrequest.StringSliceProvider {
		return headerrequest.StringSliceProviderFunc(func() []string { return of(p.headers.Load()) })
	}
	return &authenticatorfactory.RequestHeaderConfig{
		CAContentProvider:   p.headerCA,
		UsernameHeaders:     list(func(h *proxyHeaders) []string { return h.username }),
		UIDHeaders:          list(func(h *proxyHeaders) []string { return h.uid }),
		GroupHeaders:        list(func(h *proxyHeaders) []string { return h.group }),
		ExtraHeaderPrefixes: list(func(h *proxyHeaders) []string { return h.extraPrefix }),
		AllowedClientNames:  list(func(h *proxyHeaders) []string { return h.allowedNames }),
	}
}

// RunOnce implements dynamiccertificates.ControllerRunner. It reads the ConfigMap before the port opens, for a limited
// time. Without it, all requests are refused until it can be read.
func (p *publishedAuthentication) RunOnce(ctx context.Context) error {
	p.readOnce.Do(func() {
		ctx, cancel := context.WithTimeout(ctx, authenticationTimeout)
		defer cancel()
		published, err := p.client.CoreV1().ConfigMaps(metav1.NamespaceSystem).Get(ctx, authenticationConfigMap, metav1.GetOptions{})
		if err != nil {
			klog.FromContext(ctx).Info("Cannot read how kube-apiserver's requests are recognised; all requests are refused until it answers",
				"configMap", klog.KRef(metav1.NamespaceSystem, authenticationConfigMap), "err", err)
			return
		}
		p.apply(ctx, published)
	})
	return nil
}

// Run implements dynamiccertificates.ControllerRunner. It follows the ConfigMap until the context ends.
func (p *publishedAuthentication) Run(ctx context.Context, _ int) {
	p.watchOnce.Do(func() {
		source := cache.NewListWatchFromClient(p.client.CoreV1().RESTClient(), "configmaps", metav1.NamespaceSystem,
			fields.OneTermEqualSelector(metav1.ObjectNameField, authenticationConfigMap))
		store := &publishedStore{apply: func(published *corev1.ConfigMap) { p.apply(ctx, published) }, gone: func() {
			klog.FromContext(ctx).Info("The ConfigMap by which kube-apiserver's requests are recognised is gone; what it said last is in force",
				"configMap", klog.KRef(metav1.NamespaceSystem, authenticationConfigMap))
		}}
		cache.NewReflectorWithOptions(source, &corev1.ConfigMap{}, store, cache.ReflectorOptions{Name: authenticationConfigMap}).RunWithContext(ctx)
	})
}

// apply applies the valid parts of the ConfigMap. What it lacks, or is invalid, stays as it is.
func (p *publishedAuthentication) apply(ctx context.Context, published *corev1.ConfigMap) {
	errs := []error{p.clientCA.set(published.Data), p.headerCA.set(published.Data)}
	headers, err := parseProxyHeaders(published.Data)
	if err == nil {
		p.headers.Store(headers)
	}
	if err := errors.Join(append(errs, err)...); err != nil {
		klog.FromContext(ctx).Error(err, "Cannot use a part of the ConfigMap by which kube-apiserver's requests are recognised; what that part said last is in force",
			"configMap", klog.KObj(published))
	}
}

func parseProxyHeaders(data map[string]string) (*proxyHeaders, error) {
	h := &proxyHeaders{}
	for key, list := range map[string]*[]string{
		"requestheader-username-headers":     &h.username,
		"requestheader-uid-headers":          &h.uid,
		"requestheader-group-headers":        &h.group,
		"requestheader-extra-headers-prefix": &h.extraPrefix,
		"requestheader-allowed-names":        &h.allowedNames,
	} {
		if data[key] == "" {
			continue
		}
		if err := json.Unmarshal([]byte(data[key]), list); err != nil {
			return nil, fmt.Errorf("read %s as a list in JSON: %w", key, err)
		}
	}
	return h, nil
}

// publishedCA is a CA bundle of the ConfigMap. It implements dynamiccertificates.CAContentProvider.
type publishedCA struct {
	*publishedAuthentication
	key       string
	current   atomic.Pointer[dynamiccertificates.CAContentProvider]
	listeners []dynamiccertificates.Listener
}

var _ dynamiccertificates.ControllerRunner = &publishedCA{}

// Name implements dynamiccertificates.CAContentProvider.
func (c *publishedCA) Name() string {
	return metav1.NamespaceSystem + "/" + authenticationConfigMap + " " + c.key
}

// AddListener implements dynamiccertificates.CAContentProvider.
func (c *publishedCA) AddListener(listener dynamiccertificates.Listener) {
	c.listeners = append(c.listeners, listener)
}

// CurrentCABundleContent implements dynamiccertificates.CAContentProvider.
func (c *publishedCA) CurrentCABundleContent() []byte {
	if current := c.current.Load(); current != nil {
		return (*current).CurrentCABundleContent()
	}
	return nil
}

// VerifyOptions implements dynamiccertificates.CAContentProvider.
func (c *publishedCA) VerifyOptions() (x509.VerifyOptions, bool) {
	if current := c.current.Load(); current != nil {
		return (*current).VerifyOptions()
	}
	return x509.VerifyOptions{}, false
}

// set replaces the bundle, unless there is none: kube-apiserver may run without a client CA.
func (c *publishedCA) set(data map[string]string) error {
	pem := data[c.key]
	if pem == "" || pem == string(c.CurrentCABundleContent()) {
		return nil
	}
	next, err := dynamiccertificates.NewStaticCAContent(c.Name(), []byte(pem))
	if err != nil {
		return fmt.Errorf("read %s: %w", c.key, err)
	}
	c.current.Store(&next)
	for _, listener := range c.listeners {
		listener.Enqueue()
	}
	return nil
}

// publishedStore is the store of a reflector of one ConfigMap.
type publishedStore struct {
	apply func(*corev1.ConfigMap)
	gone  func()
}

var _ cache.ReflectorStore = &publishedStore{}

// Add implements cache.ReflectorStore.
func (s *publishedStore) Add(object any) error {
	published, ok := object.(*corev1.ConfigMap)
	if !ok {
		return fmt.Errorf("apply a ConfigMap: it is a %T", object)
	}
	s.apply(published)
	return nil
}

// Update implements cache.ReflectorStore.
func (s *publishedStore) Update(object any) error { return s.Add(object) }

// Delete implements cache.ReflectorStore.
func (s *publishedStore) Delete(any) error {
	s.gone()
	return nil
}

// Replace implements cache.ReflectorStore.
func (s *publishedStore) Replace(list []any, _ string) error {
	if len(list) == 0 {
		s.gone()
	}
	for _, object := range list {
		if err := s.Add(object); err != nil {
			return err
		}
	}
	return nil
}

// Resync implements cache.ReflectorStore.
func (s *publishedStore) Resync() error { return nil }
