// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package metricsbackend

import (
	"context"
	"crypto/sha256"
	"crypto/x509"
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/metricsbackend/metrics-backend-operator/api/v1alpha1"
	"github.com/metricsbackend/metrics-backend-operator/controllers/servingcert"
	"github.com/metricsbackend/metrics-backend-operator/controllers/servingclient"
)

// certs are the certificates of a fake cluster: what each pod serves, and what each
// kube-apiserver trusts.
type certs struct {
	// served is the chain of each pod, by name.
	served map[string][]*x509.Certificate
	// brought counts the steps since the Secret changed, by pod.
	brought map[string]int
	// delay is the number of additional steps until a kubelet updates a Secret; never for
	// the pods in stuck.
	delay int
	stuck map[string]bool
	// known is what each lagging kube-apiserver last had, by address and APIService.
	known map[string][]byte
	// violation is the first moment at which a kube-apiserver did not trust a pod.
	violation string
	// untrusted allows violations, for tests of the recovery.
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

// mounted returns the chain in the Secret that pods mount, or nil.
func (fc *fakeCluster) mounted() []*x509.Certificate {
	return fc.mountedBy(backendName, systemNamespace)
}

// mountedBy is mounted for another backend.
func (fc *fakeCluster) mountedBy(backend, namespace string) []*x509.Certificate {
	secret := &corev1.Secret{}
	err := fc.raw.Get(context.Background(), client.ObjectKey{Namespace: namespace, Name: "metrics-serving-" + backend + "-tls"}, secret)
	if apierrors.IsNotFound(err) {
		return nil
	}
	fc.must(err)
	pair := servingcert.Provided(secret.Data)
	return chains.get(func() []*x509.Certificate {
		chain, err := pair.Chain()
		if err != nil {
			return nil
		}
		return chain
	}, pair.Certificate, pair.Key)
}

// Signatures are costly, so results are shared by all clusters.
var (
	chains   memoized[[]*x509.Certificate]
	bundles  memoized[servingcert.Bundle]
	verdicts memoized[error]
)

// memoized holds values that depend on bytes alone.
type memoized[V any] struct{ known sync.Map }

func (r *memoized[V]) get(make func() V, parts ...[]byte) V {
	hash := sha256.New()
	for _, part := range parts {
		_, _ = hash.Write(binary.BigEndian.AppendUint64(nil, uint64(len(part))))
		_, _ = hash.Write(part)
	}
	key := [sha256.Size]byte(hash.Sum(nil))
	if value, ok := r.known.Load(key); ok {
		return value.(func() V)()
	}
	value, _ := r.known.LoadOrStore(key, sync.OnceValue(make))
	return value.(func() V)()
}

// verify is Issuer.Verify with the bundle as stored. It depends on the time only by which
// certificates are valid.
func (fc *fakeCluster) verify(chain []*x509.Certificate, stored []byte, name string) error {
	bundle := bundles.get(func() servingcert.Bundle { return servingcert.ParseBundle(stored) }, stored)
	parts := [][]byte{stored, []byte(name)}
	for _, c := range slices.Concat(chain, bundle) {
		valid := []byte{byte(fc.clock.Now().Compare(c.NotBefore)), byte(fc.clock.Now().Compare(c.NotAfter))}
		parts = append(parts, c.Raw, valid)
	}
	return verdicts.get(func() error { return servingcert.NewIssuer(fc.clock).Verify(chain, bundle, name) }, parts...)
}

// reloadCertificates is one step of all kubelets.
func (fc *fakeCluster) reloadCertificates() {
	for _, p := range fc.pods() {
		mounted := fc.mountedBy(p.Labels[v1alpha1.LabelBackend], p.Namespace)
		if len(mounted) == 0 {
			continue
		}
		has := fc.certs.served[p.Name]
		switch {
		case len(has) == 0:
			fc.certs.served[p.Name] = mounted
		case has[0].Equal(mounted[0]), fc.certs.stuck[p.Name]:
			fc.certs.brought[p.Name] = 0
		default:
			if fc.certs.brought[p.Name]++; fc.certs.brought[p.Name] > fc.certs.delay {
				fc.certs.served[p.Name], fc.certs.brought[p.Name] = mounted, 0
			}
		}
	}
}

// handshake is the TLS handshake with a pod.
func (fc *fakeCluster) handshake(name string, pod servingclient.Pod) ([]*x509.Certificate, error) {
	chain := fc.certs.served[name]
	if len(chain) == 0 {
		return nil, errors.New("remote error: tls: internal error")
	}
	if err := fc.verify(chain, pod.CABundle, pod.ServerName); err != nil {
		return nil, &servingclient.UntrustedError{Chain: chain, Reason: err.Error()}
	}
	return chain, nil
}

// checkTrust records when a kube-apiserver would reject the certificate of a pod that an
// APIService points to.
func (fc *fakeCluster) checkTrust(when string) {
	services := fc.apiServices()
	for _, replica := range fc.replicas {
		for _, service := range services {
			to := service.Spec.Service
			if to == nil {
				continue
			}
			key := replica.address + " " + service.Name
			if !replica.lags {
				fc.certs.known[key] = service.Spec.CABundle
			}
			for _, p := range fc.pods() {
				chain := fc.certs.served[p.Name]
				if !isBehind(&p, to) || len(chain) == 0 || !isReady(&p) || fc.certs.violation != "" || fc.certs.untrusted {
					continue
				}
				if err := fc.verify(chain, fc.certs.known[key], to.Name+"."+to.Namespace+".svc"); err != nil {
					fc.certs.violation = fmt.Sprintf("%s: kube-apiserver %s refuses pod %s by APIService %s: %v", when, replica.address, p.Name, service.Name, err)
				}
			}
		}
	}
}
