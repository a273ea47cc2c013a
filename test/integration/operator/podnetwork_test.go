// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build integration

package operator

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	apidiscoveryv2 "k8s.io/api/apidiscovery/v2"
	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/metricsbackend/metrics-backend-operator/api/v1alpha1"
)

// podNetwork routes connections to pod addresses to the servers of the pods.
type podNetwork struct {
	// suite is the control plane that the pods belong to.
	suite *controlPlane

	mu      sync.Mutex
	pods    map[string]*servingPod // by IP
	next    int
	behaves behaviour
}

// behaviour is how all pods behave.
type behaviour struct {
	// declared is what they answer at /declared; nil: nothing.
	declared []v1alpha1.DeclaredHealth
	// report is what they answer at /sources; nil is a healthy report.
	report *v1alpha1.KubeletReport
	// stale makes samples too old.
	stale bool
	// secretDelay is how long a changed Secret takes to reach a pod.
	secretDelay time.Duration
}

func newPodNetwork(suite *controlPlane) *podNetwork {
	return &podNetwork{suite: suite, pods: map[string]*servingPod{}}
}

func (n *podNetwork) dial(ctx context.Context, network, address string) (net.Conn, error) {
	ip, _, err := net.SplitHostPort(address)
	if err != nil {
		return nil, err
	}
	n.mu.Lock()
	pod := n.pods[ip]
	n.mu.Unlock()
	if pod == nil {
		return nil, &net.OpError{Op: "dial", Net: network, Err: fmt.Errorf("no pod has the address %s", ip)}
	}
	return (&net.Dialer{}).DialContext(ctx, "tcp", pod.server.Listener.Addr().String())
}

// add starts the server of a pod and returns its IP. Without a certificate it is a
// pod of someone else, whose certificate nobody signed.
func (n *podNetwork) add(backend string, versions []string, mounted *mountedCertificate) string {
	p := newServingPod(n, backend, versions)
	if mounted != nil {
		p.server.TLS = &tls.Config{GetCertificate: mounted.get}
	}
	p.server.EnableHTTP2 = true
	p.server.StartTLS()
	n.mu.Lock()
	defer n.mu.Unlock()
	n.next++
	ip := fmt.Sprintf("10.244.%d.%d", n.next/250, n.next%250+1)
	n.pods[ip] = p
	return ip
}

// shutdownDelay is how long a pod that left the endpoints goes on serving, as the
// real one does, until kube-apiserver knows that it left: as long as the operator tells serving (--shutdown-delay-duration).
const shutdownDelay = 15 * time.Second

// isServing reports whether the address, IP:PORT, is that of a serving pod of ours.
func (n *podNetwork) isServing(address string) bool {
	ip, _, err := net.SplitHostPort(address)
	if err != nil {
		return false
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	pod := n.pods[ip]
	return pod != nil && pod.backend != ""
}

func (n *podNetwork) remove(ip string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if pod := n.pods[ip]; pod != nil {
		pod.left = true
	}
	time.AfterFunc(shutdownDelay, func() {
		n.mu.Lock()
		pod := n.pods[ip]
		delete(n.pods, ip)
		n.mu.Unlock()
		if pod != nil {
			_ = pod.server.Config.Shutdown(context.Background())
		}
	})
}

// behave sets the behavior of all pods until the test ends.
func (n *podNetwork) behave(t *testing.T, so behaviour) {
	set := func(so behaviour) {
		n.mu.Lock()
		defer n.mu.Unlock()
		n.behaves = so
	}
	set(so)
	t.Cleanup(func() { set(behaviour{}) })
}

func (n *podNetwork) behaviour() behaviour {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.behaves
}

// servingPod is the API of one serving pod, with the certificate that the
// operator issued, read at each handshake as the real one reloads it.
type servingPod struct {
	network  *podNetwork
	server   *httptest.Server
	backend  string
	versions []string
	// left is set once it goes on serving only because clients may not know yet that it left.
	left bool
}

// versionsOf says what an image serves.
func versionsOf(image string) []string {
	if image == imageV1beta1 {
		return []string{"v1beta1"}
	}
	return []string{"v1", "v1beta1"}
}

// newServingPod returns a server that is not started yet.
func newServingPod(n *podNetwork, backend string, versions []string) *servingPod {
	p := &servingPod{network: n, backend: backend, versions: versions}
	mux := http.NewServeMux()
	mux.HandleFunc("/apis", p.discovery)
	mux.HandleFunc("/apis/metrics.k8s.io/{version}", p.resources)
	mux.HandleFunc("/apis/metrics.k8s.io/{version}/nodes", p.nodes)
	mux.HandleFunc("/readyz", func(http.ResponseWriter, *http.Request) {})
	mux.HandleFunc("/apis/"+v1alpha1.CanaryGroup+"/"+v1alpha1.CanaryVersion, canaryResources)
	mux.HandleFunc("/apis/"+v1alpha1.CanaryGroup+"/"+v1alpha1.CanaryVersion+"/"+v1alpha1.CanaryResource+"/{name}", getCanary)
	for _, gv := range p.metricVersions() {
		mux.HandleFunc("/apis/"+gv.String(), p.noMetrics(gv))
	}
	mux.HandleFunc(v1alpha1.SourcesPath, p.sources)
	mux.HandleFunc(v1alpha1.ConsumersPath, noConsumers)
	mux.HandleFunc(v1alpha1.DeclaredPath, p.declared)
	p.server = httptest.NewUnstartedServer(p.authorized(mux))
	// Clients that end in the middle of a handshake are none of a test's business.
	p.server.Config.ErrorLog = log.New(io.Discard, "", 0)
	return p
}

// authorized checks tokens and rights with kube-apiserver, as the real one does.
// The aggregator's requests carry the user in a header instead.
func (p *servingPod) authorized(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		token, ok := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
		if ok {
			if code, err := mayGet(r.Context(), p.network.suite, token, r.URL.Path); err != nil {
				http.Error(w, err.Error(), code)
				return
			}
		}
		next.ServeHTTP(w, r)
	})
}

// mayGet returns why the bearer of token may not get path, with the HTTP status.
func mayGet(ctx context.Context, suite *controlPlane, token, path string) (int, error) {
	review := &authenticationv1.TokenReview{Spec: authenticationv1.TokenReviewSpec{Token: token}}
	if err := suite.admin.Create(ctx, review); err != nil {
		return http.StatusInternalServerError, err
	}
	if !review.Status.Authenticated {
		return http.StatusUnauthorized, fmt.Errorf("who are you: %s", review.Status.Error)
	}
	access := &authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{
		User: review.Status.User.Username, Groups: review.Status.User.Groups,
	}}
	if version, ok := strings.CutPrefix(path, "/apis/metrics.k8s.io/"); ok && strings.HasSuffix(version, "/nodes") {
		access.Spec.ResourceAttributes = &authorizationv1.ResourceAttributes{
			Group: "metrics.k8s.io", Version: strings.TrimSuffix(version, "/nodes"), Resource: "nodes", Verb: "list",
		}
	} else {
		access.Spec.NonResourceAttributes = &authorizationv1.NonResourceAttributes{Path: path, Verb: "get"}
	}
	if err := suite.admin.Create(ctx, access); err != nil {
		return http.StatusInternalServerError, err
	}
	if !access.Status.Allowed {
		return http.StatusForbidden, fmt.Errorf("%s may not get %s", review.Status.User.Username, path)
	}
	return http.StatusOK, nil
}

func (p *servingPod) discovery(w http.ResponseWriter, r *http.Request) {
	if !strings.Contains(r.Header.Get("Accept"), "as=APIGroupDiscoveryList") {
		http.NotFound(w, r)
		return
	}
	group := apidiscoveryv2.APIGroupDiscovery{ObjectMeta: metav1.ObjectMeta{Name: "metrics.k8s.io"}}
	for _, version := range p.versions {
		group.Versions = append(group.Versions, apidiscoveryv2.APIVersionDiscovery{
			Version: version, Freshness: apidiscoveryv2.DiscoveryFreshnessCurrent,
			Resources: []apidiscoveryv2.APIResourceDiscovery{{
				Resource: "nodes", Verbs: []string{"get", "list"}, Scope: apidiscoveryv2.ScopeCluster, SingularResource: "node",
				ResponseKind: &metav1.GroupVersionKind{Group: "metrics.k8s.io", Version: version, Kind: "NodeMetrics"},
			}},
		})
	}
	list := apidiscoveryv2.APIGroupDiscoveryList{
		TypeMeta: metav1.TypeMeta{APIVersion: "apidiscovery.k8s.io/v2", Kind: "APIGroupDiscoveryList"},
		Items:    append([]apidiscoveryv2.APIGroupDiscovery{group}, p.metricGroups()...),
	}
	w.Header().Set("Content-Type", "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList")
	_ = json.NewEncoder(w).Encode(list)
}

func (p *servingPod) resources(w http.ResponseWriter, r *http.Request) {
	version := r.PathValue("version")
	if !slices.Contains(p.versions, version) {
		http.NotFound(w, r)
		return
	}
	answer(w, metav1.APIResourceList{
		TypeMeta:     metav1.TypeMeta{APIVersion: "v1", Kind: "APIResourceList"},
		GroupVersion: "metrics.k8s.io/" + version,
		APIResources: []metav1.APIResource{{Name: "nodes", Kind: "NodeMetrics", Verbs: []string{"get", "list"}}},
	})
}

func canaryResources(w http.ResponseWriter, _ *http.Request) {
	answer(w, metav1.APIResourceList{
		TypeMeta:     metav1.TypeMeta{APIVersion: "v1", Kind: "APIResourceList"},
		GroupVersion: v1alpha1.CanaryGroup + "/" + v1alpha1.CanaryVersion,
		APIResources: []metav1.APIResource{{Name: v1alpha1.CanaryResource, Kind: v1alpha1.CanaryKind, Verbs: []string{"get"}}},
	})
}

func getCanary(w http.ResponseWriter, r *http.Request) {
	answer(w, metav1.PartialObjectMetadata{
		TypeMeta:   metav1.TypeMeta{APIVersion: v1alpha1.CanaryGroup + "/" + v1alpha1.CanaryVersion, Kind: v1alpha1.CanaryKind},
		ObjectMeta: metav1.ObjectMeta{Name: r.PathValue("name")},
	})
}

func (p *servingPod) nodes(w http.ResponseWriter, r *http.Request) {
	version := r.PathValue("version")
	if !slices.Contains(p.versions, version) {
		http.NotFound(w, r)
		return
	}
	at := time.Now()
	if p.network.behaviour().stale {
		at = at.Add(-time.Hour)
	}
	answer(w, map[string]any{
		"apiVersion": "metrics.k8s.io/" + version, "kind": "NodeMetricsList", "metadata": map[string]any{},
		"items": []any{map[string]any{
			"metadata": map[string]any{"name": "node-a"}, "timestamp": metav1.NewTime(at), "window": "10s",
			"usage": map[string]any{"cpu": "1", "memory": "1Mi"},
		}},
	})
}

func (p *servingPod) sources(w http.ResponseWriter, r *http.Request) {
	var backend v1alpha1.MetricsBackend
	if err := p.network.suite.admin.Get(r.Context(), client.ObjectKey{Name: p.backend}, &backend); err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	report := v1alpha1.SourceReport{ObservedGeneration: backend.Generation}
	report.Kubelets = v1alpha1.KubeletReport{Nodes: 1, Healthy: 1}
	if kubelets := p.network.behaviour().report; kubelets != nil {
		report.Kubelets = *kubelets
	}
	answer(w, report)
}

func (p *servingPod) declared(w http.ResponseWriter, _ *http.Request) {
	answer(w, v1alpha1.DeclaredReport{Metrics: p.network.behaviour().declared})
}

func noConsumers(w http.ResponseWriter, _ *http.Request) { answer(w, v1alpha1.ConsumerReport{}) }

func answer(w http.ResponseWriter, body any) {
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(body)
}
