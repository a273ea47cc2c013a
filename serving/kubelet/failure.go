// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package kubelet

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"time"

	"github.com/metricsbackend/metrics-backend-operator/api/v1alpha1"
	"github.com/metricsbackend/metrics-backend-operator/internal/text"
	"github.com/metricsbackend/metrics-backend-operator/serving/kubelet/textparse"
)

// failure is the error of a failed scrape. Its text says what is wrong and what the
// user can do; the caller adds the node and the address.
type failure struct {
	reason v1alpha1.ScrapeReason
	err    error
	// sampleAge, with ScrapeStaleSamples, is how old the newest sample is.
	sampleAge time.Duration
}

// maxMessage bounds the text of a failure, in bytes: parts of it, such as names in
// a certificate, come from the peer. What the user can do comes first.
const maxMessage = 1024

func (f *failure) Error() string { return text.Truncate(f.err.Error(), maxMessage) }

func (f *failure) Unwrap() error { return f.err }

func failf(reason v1alpha1.ScrapeReason, format string, args ...any) *failure {
	return &failure{reason: reason, err: fmt.Errorf(format, args...)}
}

const selfSigned = "kubelets of kubeadm and kind sign their own certificates by default, and kubeletTLS.mode: VerifyOrPin pins these while no kubelet's is signed: " +
	"set serverTLSBootstrap: true in the kubelet's configuration and approve its certificate signing requests, " +
	"or give the kubelets' authority in spec.resourceMetrics.kubeletTLS.caBundle, " +
	"or choose kubeletTLS.mode: PinOnFirstUse"

// classify returns the failure of an error from a request or its body.
func classify(timeout time.Duration, limit int64, err error) *failure {
	invalid, _ := errors.AsType[x509.CertificateInvalidError](err)
	token, noToken := errors.AsType[*tokenError](err)
	switch {
	case errors.Is(err, os.ErrDeadlineExceeded), errors.Is(err, context.DeadlineExceeded):
		return failf(v1alpha1.ScrapeTimeout, "no complete answer within %s: "+
			"check that the kubelet runs and that nothing, such as a firewall or a network policy, drops packets to its port: %w", timeout, err)
	case errors.Is(err, textparse.ErrTooLarge):
		return failf(v1alpha1.ScrapeBodyTooLarge, "the answer is larger than %d bytes: "+
			"set spec.resourceMetrics.scrape.maxResponseSize if the node really has so many containers: %w", limit, err)
	case is[*pinError](err):
		return failf(v1alpha1.ScrapeCertificateChanged, "the certificate is not the one that was pinned at the first contact: "+
			"if the kubelet's certificate was renewed, restart the serving pods or replace the Node object; otherwise find out who answers at this address: %w", err)
	case is[x509.HostnameError](err):
		return failf(v1alpha1.ScrapeCertificateUntrusted, "the certificate is for another address: "+
			"choose a type of address that is in it with spec.resourceMetrics.scrape.addressTypes, or issue it for this one: %w", err)
	case invalid.Reason == x509.Expired:
		return failf(v1alpha1.ScrapeCertificateUntrusted, "the certificate has expired or is not valid yet: "+
			"renew the kubelet's serving certificate ("+v1alpha1.RenewOwnCertificate+"), or check the clocks: %w", err)
	case is[x509.UnknownAuthorityError](err):
		return failf(v1alpha1.ScrapeCertificateUntrusted, "the certificate is not signed by the authority in use; %s: %w", selfSigned, err)
	case is[*tls.CertificateVerificationError](err):
		return failf(v1alpha1.ScrapeCertificateUntrusted, "the certificate is not valid: renew the kubelet's serving certificate: %w", err)
	case noToken:
		return failf(v1alpha1.ScrapeNoToken, "there is no token for kubelets, so nothing was sent: see the log of the serving component: %w", token)
	case is[protocolError](err):
		return failf(v1alpha1.ScrapeConnectionFailed, "what answers does not speak HTTP: check that a kubelet answers at this address: %w", err)
	case is[tls.RecordHeaderError](err):
		return failf(v1alpha1.ScrapeConnectionFailed, "what answers does not speak TLS: check the port: %w", err)
	case is[*connectError](err):
		return failf(v1alpha1.ScrapeConnectionFailed, "no connection: check that the kubelet runs and that its port can be reached from the serving pods: %w", err)
	case errors.Is(err, io.ErrUnexpectedEOF):
		return failf(v1alpha1.ScrapeConnectionFailed, "the connection broke before the answer was complete: %w", err)
	}
	return failf(v1alpha1.ScrapeConnectionFailed, "the connection broke: check the kubelet's log: %w", err)
}

// is says whether an error is, or wraps, one of the type E.
func is[E error](err error) bool {
	_, ok := errors.AsType[E](err)
	return ok
}

// classifyStatus returns nil for status 200.
func classifyStatus(r *http.Response) *failure {
	switch code := r.StatusCode; {
	case code == http.StatusOK:
		return nil
	case code == http.StatusUnauthorized:
		return failf(v1alpha1.ScrapeUnauthorized, "HTTP 401: the kubelet does not accept the token: "+
			"set authentication.webhook.enabled: true in the kubelet's configuration")
	case code == http.StatusForbidden:
		return failf(v1alpha1.ScrapeForbidden, "HTTP 403: the account of the token may not get nodes/metrics: "+
			"check its ClusterRoleBinding, and that authorization.mode of the kubelet is Webhook")
	case code >= 300 && code < 400:
		return failf(v1alpha1.ScrapeBadStatus, "HTTP %d: redirects are not followed, as they would show the token to someone else: "+
			"set the node's annotation %s to the final path", code, v1alpha1.AnnotationMetricsPath)
	case code == http.StatusNotFound:
		return failf(v1alpha1.ScrapeBadStatus, "HTTP 404: there are no resource metrics at this path: "+
			"set the node's annotation %s to the right one, or leave the node out with spec.resourceMetrics.scrape.nodeSelector", v1alpha1.AnnotationMetricsPath)
	default:
		return failf(v1alpha1.ScrapeBadStatus, "HTTP %d instead of 200: check the kubelet's log", code)
	}
}

// staleSamples returns the failure of a body whose newest sample is too old to be served.
// renewed reports that it is newer than that of the last scrape.
func staleSamples(age time.Duration, renewed bool) *failure {
	cause := "the kubelet does not renew its samples, or the node's clock is behind: restart the kubelet, and check the clock"
	if renewed {
		cause = "it is renewed, so the node's clock is behind: synchronize it"
	}
	f := failf(v1alpha1.ScrapeStaleSamples, "the newest sample is %s old and is not served: %s", age.Round(time.Second), cause)
	f.sampleAge = age
	return f
}

// classifyBody returns nil for a body with at least one sample.
func classifyBody(s *parseStats) *failure {
	switch {
	case s.kubeletFailed:
		// Such a body has no containers, but the node may have.
		return failf(v1alpha1.ScrapeMalformedBody, "the kubelet says resource_scrape_error: it could not read the figures of its containers: check the kubelet's log")
	case s.samples > 0:
		return nil
	case s.ahead > 0:
		return failf(v1alpha1.ScrapeMalformedBody, "all samples are in the future, by up to %s: check the node's clock (skipped samples: %s)", s.ahead.Round(time.Second), s)
	case s.behind > 0:
		return staleSamples(s.behind, false)
	case s.reasons() == 0:
		return failf(v1alpha1.ScrapeMalformedBody, "the body has no resource metrics: check that a kubelet answers at this address and path")
	default:
		return failf(v1alpha1.ScrapeMalformedBody, "the body has no usable sample (skipped: %s; the first: %q): check that a kubelet answers at this address and path", s, s.example)
	}
}
