// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package metricsbackend

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"maps"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/metricsbackend/metrics-backend-operator/api/v1alpha1"
	"github.com/metricsbackend/metrics-backend-operator/controllers/podapi"
	"github.com/metricsbackend/metrics-backend-operator/controllers/servingcert"
)

// certs are the certificates in a world: what each pod serves, and what each
// kube-apiserver trusts.
type certs struct {
	// served is the chain of each pod, by name.
	served map[string][]*x509.Certificate
	// brought counts the steps since the Secret changed, by pod.
	brought map[string]int
	// delay is how many steps more a kubelet takes to bring a Secret to a pod;
	// for the pods in stuck it never does.
	delay int
	stuck map[string]bool
	// known is what each kube-apiserver that lags last had, by address and APIService.
	known map[string][]byte
	// broken is the first moment at which a kube-apiserver did not trust a pod.
	broken string
	// untrusted lets that happen: a test is about its recovery.
	untrusted bool
}

func newCerts() *certs {
	return &certs{served: map[string][]*x509.Certificate{}, brought: map[string]int{}, stuck: map[string]bool{}, known: map[string][]byte{}}
}

func (c *certs) clone() *certs {
	clone := *c
	clone.served, clone.brought, clone.stuck, clone.known = maps.Clone(c.served), maps.Clone(c.brought), maps.Clone(c.stuck), maps.Clone(c.known)
	return &clone
}

// mounted is the chain in the Secret that pods mount; nil when there is none.
func (w *world) mounted() []*x509.Certificate { return w.mountedBy(backendName, systemNamespace) }

// mountedBy is mounted of another backend's pods.
func (w *world) mountedBy(backend, namespace string) []*x509.Certificate {
	secret := &corev1.Secret{}
	err := w.raw.Get(context.Background(), client.ObjectKey{Namespace: namespace, Name: "metrics-serving-" + backend + "-tls"}, secret)
	if apierrors.IsNotFound(err) {
		return nil
	}
	w.must(err)
	chain, err := servingcert.Provided(secret.Data).Chain()
	if err != nil {
		return nil
	}
	return chain
}

// bringCertificates is a step of all kubelets.
func (w *world) bringCertificates() {
	for _, p := range w.pods() {
		mounted := w.mountedBy(p.Labels[v1alpha1.LabelBackend], p.Namespace)
		if len(mounted) == 0 {
			continue
		}
		has := w.certs.served[p.Name]
		switch {
		case len(has) == 0:
			w.certs.served[p.Name] = mounted
		case has[0].Equal(mounted[0]), w.certs.stuck[p.Name]:
			w.certs.brought[p.Name] = 0
		default:
			if w.certs.brought[p.Name]++; w.certs.brought[p.Name] > w.certs.delay {
				w.certs.served[p.Name], w.certs.brought[p.Name] = mounted, 0
			}
		}
	}
}

// shake is the TLS handshake with a pod.
func (w *world) shake(name string, pod podapi.Pod) ([]*x509.Certificate, error) {
	chain := w.certs.served[name]
	if len(chain) == 0 {
		return nil, errors.New("remote error: tls: internal error")
	}
	if err := servingcert.NewIssuer(w.clock).Verify(chain, servingcert.ParseBundle(pod.CABundle), pod.ServerName); err != nil {
		return nil, &podapi.UntrustedError{Chain: chain, Reason: err.Error()}
	}
	return chain, nil
}

// watchTrust notes when a kube-apiserver would refuse the certificate of a pod to
// which an APIService leads.
func (w *world) watchTrust(when string) {
	issuer := servingcert.NewIssuer(w.clock)
	services := w.apiServices()
	for _, replica := range w.replicas {
		for _, service := range services {
			to := service.Spec.Service
			if to == nil {
				continue
			}
			key := replica.address + " " + service.Name
			if !replica.lags {
				w.certs.known[key] = service.Spec.CABundle
			}
			bundle := servingcert.ParseBundle(w.certs.known[key])
			for _, p := range w.pods() {
				chain := w.certs.served[p.Name]
				if to.Name != "metrics-serving-"+p.Labels[v1alpha1.LabelBackend] || len(chain) == 0 || !isReady(&p) || w.certs.broken != "" || w.certs.untrusted {
					continue
				}
				if err := issuer.Verify(chain, bundle, to.Name+"."+to.Namespace+".svc"); err != nil {
					w.certs.broken = fmt.Sprintf("%s: kube-apiserver %s refuses pod %s by APIService %s: %v", when, replica.address, p.Name, service.Name, err)
				}
			}
		}
	}
}
