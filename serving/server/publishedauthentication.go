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
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	utilerrors "k8s.io/apimachinery/pkg/util/errors"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/apiserver/pkg/authentication/authenticatorfactory"
	"k8s.io/apiserver/pkg/authentication/request/headerrequest"
	"k8s.io/apiserver/pkg/server/dynamiccertificates"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"

	"github.com/metricsbackend/metrics-backend-operator/serving/server/config"
)

// publishedAuthentication is what the ConfigMap authenticationConfigMap says, followed by one watch. The API server
// library has three controllers for it, each with a watch and a queue, whose metrics wake an idle process six times a second.
type publishedAuthentication struct {
	client    kubernetes.Interface
	current   atomic.Pointer[published]
	listeners []dynamiccertificates.Listener
	// reported is the error that was logged last, or empty.
	reported string

	read      sync.Once
	following atomic.Bool
}

// published is what is in force. The CAs are nil until they are known.
type published struct {
	users, proxies dynamiccertificates.CAContentProvider
	// headers belong to proxies: they say whom a certificate of that CA may name.
	headers proxyHeaders
}

// proxyHeaders are the headers of requests that kube-apiserver proxies, and the names in its certificate. Without
// names every certificate of the CA is accepted; without a header for the user none is.
type proxyHeaders struct {
	username, uid, group, extraPrefix, allowedNames []string
}

func newPublishedAuthentication(client kubernetes.Interface) *publishedAuthentication {
	p := &publishedAuthentication{client: client, reported: "not read yet"}
	p.current.Store(&published{})
	return p
}

// clientCA returns the CA of client certificates of users.
func (p *publishedAuthentication) clientCA() *publishedCA {
	return &publishedCA{from: p, key: clientCAKey, of: func(now *published) dynamiccertificates.CAContentProvider { return now.users }}
}

// requestHeaders returns how kube-apiserver's requests are recognized.
func (p *publishedAuthentication) requestHeaders() *authenticatorfactory.RequestHeaderConfig {
	list := func(of func(*proxyHeaders) []string) headerrequest.StringSliceProvider {
		return headerrequest.StringSliceProviderFunc(func() []string { return of(&p.current.Load().headers) })
	}
	return &authenticatorfactory.RequestHeaderConfig{
		CAContentProvider:   &publishedCA{from: p, key: proxyCAKey, of: func(now *published) dynamiccertificates.CAContentProvider { return now.proxies }},
		UsernameHeaders:     list(func(h *proxyHeaders) []string { return h.username }),
		UIDHeaders:          list(func(h *proxyHeaders) []string { return h.uid }),
		GroupHeaders:        list(func(h *proxyHeaders) []string { return h.group }),
		ExtraHeaderPrefixes: list(func(h *proxyHeaders) []string { return h.extraPrefix }),
		AllowedClientNames:  list(func(h *proxyHeaders) []string { return h.allowedNames }),
	}
}

var errNotPublished = errors.New("it does not exist")

// readOnce reads the ConfigMap, for a limited time.
func (p *publishedAuthentication) readOnce(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, authenticationTimeout)
	defer cancel()
	found, err := p.client.CoreV1().ConfigMaps(metav1.NamespaceSystem).Get(ctx, authenticationConfigMap, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		p.report(ctx, errNotPublished)
	case err != nil:
		p.report(ctx, err)
	default:
		p.apply(ctx, found)
	}
}

// follow follows the ConfigMap until the context ends.
func (p *publishedAuthentication) follow(ctx context.Context) {
	configMaps := p.client.CoreV1().ConfigMaps(metav1.NamespaceSystem)
	one := func(o metav1.ListOptions) metav1.ListOptions {
		o.FieldSelector = fields.OneTermEqualSelector(metav1.ObjectNameField, authenticationConfigMap).String()
		return o
	}
	source := cache.ToListWatcherWithWatchListSemantics(&cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
			return configMaps.List(ctx, one(o))
		},
		WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
			return configMaps.Watch(ctx, one(o))
		},
	}, p.client)
	name := klog.KRef(metav1.NamespaceSystem, authenticationConfigMap).String()
	config.NewObjectInformer("ConfigMap "+name, "configmaps named "+name, source, &corev1.ConfigMap{}, p.applyListed).Run(ctx)
}

// applyListed applies the ConfigMap, if it exists.
func (p *publishedAuthentication) applyListed(ctx context.Context, found []*corev1.ConfigMap) {
	if len(found) == 0 {
		p.report(ctx, errNotPublished)
		return
	}
	p.apply(ctx, found[0])
}

// apply puts the ConfigMap in force. A CA of users that is invalid or missing, and all that concerns proxies if a part
// of it is, stays as it was.
func (p *publishedAuthentication) apply(ctx context.Context, found *corev1.ConfigMap) {
	before := p.current.Load()
	next := *before
	var errs []error
	if found.Data[clientCAKey] != "" || before.users != nil { // kube-apiserver may have no client CA
		var err error
		if next.users, err = parseCA(found.Data, clientCAKey, before.users); err != nil {
			errs = append(errs, err)
		}
	}
	proxies, err := parseCA(found.Data, proxyCAKey, before.proxies)
	headers, headerErrs := parseProxyHeaders(found.Data)
	if err == nil && len(headerErrs) == 0 {
		next.proxies, next.headers = proxies, headers
	} else {
		errs = append(append(errs, err), headerErrs...)
	}
	p.current.Store(&next)
	if next.users != before.users || next.proxies != before.proxies {
		for _, listener := range p.listeners {
			listener.Enqueue()
		}
	}
	p.report(ctx, utilerrors.NewAggregate(errs))
}

// report logs an error unless it is the one that was logged last, and its end.
func (p *publishedAuthentication) report(ctx context.Context, err error) {
	text := ""
	if err != nil {
		text = err.Error()
	}
	if text == p.reported {
		return
	}
	p.reported = text
	logger := klog.FromContext(ctx).WithValues("configMap", klog.KRef(metav1.NamespaceSystem, authenticationConfigMap))
	if err == nil {
		logger.Info("How kube-apiserver's requests are recognized is known")
		return
	}
	logger.Error(err, "Cannot use all of the ConfigMap by which kube-apiserver's requests are recognized; what was known before is in force, "+
		"and if nothing was, its requests are refused")
}

// parseCA returns a CA bundle of the ConfigMap: the one before unless it is another and valid.
func parseCA(data map[string]string, key string, before dynamiccertificates.CAContentProvider) (dynamiccertificates.CAContentProvider, error) {
	pem := data[key]
	if pem == "" {
		return before, fmt.Errorf("%s is missing", key)
	}
	if before != nil && pem == string(before.CurrentCABundleContent()) {
		return before, nil
	}
	next, err := dynamiccertificates.NewStaticCAContent(key, []byte(pem))
	if err != nil {
		return before, fmt.Errorf("read %s: %w", key, err)
	}
	return next, nil
}

const (
	clientCAKey = "client-ca-file"
	proxyCAKey  = "requestheader-client-ca-file"
)

func parseProxyHeaders(data map[string]string) (h proxyHeaders, errs []error) {
	for _, list := range []struct {
		key  string
		into *[]string
	}{
		{"requestheader-username-headers", &h.username},
		{"requestheader-uid-headers", &h.uid},
		{"requestheader-group-headers", &h.group},
		{"requestheader-extra-headers-prefix", &h.extraPrefix},
		{"requestheader-allowed-names", &h.allowedNames},
	} {
		if data[list.key] == "" {
			continue
		}
		if err := json.Unmarshal([]byte(data[list.key]), list.into); err != nil {
			errs = append(errs, fmt.Errorf("read %s as a list in JSON: %w", list.key, err))
		}
	}
	if len(h.username) == 0 && len(errs) == 0 {
		errs = append(errs, errors.New("requestheader-username-headers is missing or empty"))
	}
	return h, errs
}

// publishedCA is a CA bundle of the ConfigMap. It implements dynamiccertificates.CAContentProvider and, since the API
// server runs those, ControllerRunner.
type publishedCA struct {
	from *publishedAuthentication
	key  string
	of   func(*published) dynamiccertificates.CAContentProvider
}

var _ dynamiccertificates.ControllerRunner = &publishedCA{}

// Name implements dynamiccertificates.CAContentProvider.
func (c *publishedCA) Name() string {
	return metav1.NamespaceSystem + "/" + authenticationConfigMap + " " + c.key
}

// AddListener implements dynamiccertificates.CAContentProvider. It must be called before RunOnce and Run.
func (c *publishedCA) AddListener(listener dynamiccertificates.Listener) {
	c.from.listeners = append(c.from.listeners, listener)
}

// CurrentCABundleContent implements dynamiccertificates.CAContentProvider.
func (c *publishedCA) CurrentCABundleContent() []byte {
	if ca := c.of(c.from.current.Load()); ca != nil {
		return ca.CurrentCABundleContent()
	}
	return nil
}

// VerifyOptions implements dynamiccertificates.CAContentProvider.
func (c *publishedCA) VerifyOptions() (x509.VerifyOptions, bool) {
	if ca := c.of(c.from.current.Load()); ca != nil {
		return ca.VerifyOptions()
	}
	return x509.VerifyOptions{}, false
}

// RunOnce implements dynamiccertificates.ControllerRunner. It is called before requests are accepted.
func (c *publishedCA) RunOnce(ctx context.Context) error {
	c.from.read.Do(func() { c.from.readOnce(ctx) })
	return nil
}

// Run implements dynamiccertificates.ControllerRunner. One watch is enough for both CAs.
func (c *publishedCA) Run(ctx context.Context, _ int) {
	if c.from.following.CompareAndSwap(false, true) {
		c.from.follow(ctx)
	}
}
