// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package prometheus

import (
	"bytes"
	"errors"
	"fmt"
	"net/textproto"
	"slices"
	"strings"

	"golang.org/x/net/http/httpguts"
	corev1 "k8s.io/api/core/v1"

	"github.com/metricsbackend/metrics-backend-operator/api/v1alpha1"
)

// Secrets returns the newest content of a Secret in the backend's namespace. It is
// called for each request, so it must be a look into memory; what it returns is not
// changed. That makes a rotation take effect with the next request, and a Secret that
// comes late heal the source, without any event.
//
// The error is ErrNoSecret where there is none. Any other means that it is not known yet
// whether there is, and says why: right after a spec named another Secret this account
// may not read it yet.
type Secrets func(name string) (map[string][]byte, error)

// ErrNoSecret says that a Secret does not exist.
var ErrNoSecret = errors.New("there is no such Secret")

// errUnread is in the error of resolve where a Secret has yet to be read.
var errUnread = errors.New("it has yet to be read")

// header is one that each request carries.
type header struct{ name, value string }

// credentials are what a source is shown, and what it is verified with.
type credentials struct {
	ca, certificate, key []byte
	token                string
	username, password   string
	headers              []header
	// redactor replaces them in what is told, see redact; nil where there are none.
	redactor *strings.Replacer
	// longest is the length of the longest text that is replaced.
	longest int
}

// resolve reads the credentials of a source. The error names the Secret and the key,
// never a value.
func resolve(spec *v1alpha1.PrometheusSource, secrets Secrets) (*credentials, error) {
	r := resolver{secrets: secrets}
	c := &credentials{}
	if ref := spec.TLS.CA; ref != nil {
		c.ca = r.key(ref, "tls.ca")
	}
	if ref := spec.TLS.ClientCertificate; ref != nil {
		c.certificate = r.value(ref.Name, corev1.TLSCertKey, "tls.clientCertificate")
		c.key = r.value(ref.Name, corev1.TLSPrivateKeyKey, "tls.clientCertificate")
	}
	if ref := spec.Authentication.BearerToken; ref != nil {
		c.token = r.text(r.key(ref, "authentication.bearerToken"), ref.Name, ref.Key)
	}
	if ref := spec.Authentication.Basic; ref != nil {
		c.username = string(r.value(ref.Name, corev1.BasicAuthUsernameKey, "authentication.basic"))
		c.password = string(r.value(ref.Name, corev1.BasicAuthPasswordKey, "authentication.basic"))
	}
	for i := range spec.Headers {
		h := &spec.Headers[i]
		value := h.Value
		if h.ValueFrom != nil {
			value = r.text(r.key(h.ValueFrom, "headers["+h.Name+"].valueFrom"), h.ValueFrom.Name, h.ValueFrom.Key)
		}
		c.headers = append(c.headers, header{name: textproto.CanonicalMIMEHeaderKey(h.Name), value: value})
	}
	c.hide()
	return c, r.err
}

// sameTLS says whether connections that were made with one may serve the other.
func (c *credentials) sameTLS(o *credentials) bool {
	return bytes.Equal(c.ca, o.ca) && bytes.Equal(c.certificate, o.certificate) && bytes.Equal(c.key, o.key)
}

func (c *credentials) equal(o *credentials) bool {
	return c.sameTLS(o) && c.token == o.token && c.username == o.username && c.password == o.password && slices.Equal(c.headers, o.headers)
}

// resolver reads Secrets and keeps the first error.
type resolver struct {
	secrets Secrets
	err     error
}

func (r *resolver) fail(format string, args ...any) {
	if r.err == nil {
		r.err = fmt.Errorf(format, args...)
	}
}

func (r *resolver) key(ref *v1alpha1.SecretKeyReference, field string) []byte {
	return r.value(ref.Name, ref.Key, field)
}

func (r *resolver) value(name, key, field string) []byte {
	var data map[string][]byte
	err := ErrNoSecret
	if r.secrets != nil {
		data, err = r.secrets(name)
	}
	switch {
	case errors.Is(err, ErrNoSecret):
		r.fail("there is no Secret %q for %s: create it in the backend's namespace", name, field)
		return nil
	case err != nil:
		r.fail("the Secret %q for %s is not known: %w: %w", name, field, errUnread, err)
		return nil
	}
	value := data[key]
	if len(value) == 0 {
		r.fail("the Secret %q has nothing under the key %q, which %s needs", name, key, field)
	}
	return value
}

// text is a value that becomes part of a header. Secrets made from files often end
// with a newline, which nobody means.
func (r *resolver) text(value []byte, name, key string) string {
	text := strings.TrimSpace(string(value))
	if len(value) > 0 && (text == "" || !httpguts.ValidHeaderFieldValue(text)) {
		r.fail("the Secret %q has under the key %q what cannot be in a header: an empty text, a line break or a control character", name, key)
	}
	return text
}
