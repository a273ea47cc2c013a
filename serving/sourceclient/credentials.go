// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package sourceclient

import (
	"bytes"
	"cmp"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/textproto"
	"net/url"
	"slices"
	"strings"

	"golang.org/x/net/http/httpguts"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/transport"

	"github.com/metricsbackend/metrics-backend-operator/api/v1alpha1"
)

// Secrets returns the data of a Secret in the backend's namespace, which is not modified. It is
// called for each request, so that rotations and new Secrets take effect with the next one, and
// must read from memory.
//
// The error is ErrNotFound if there is none. Another error means that this is not known yet:
// right after a spec names another Secret, permission to read it may still be missing.
type Secrets func(name string) (map[string][]byte, error)

// ConfigMaps returns the data of a ConfigMap, like Secrets.
type ConfigMaps func(name string) (map[string][]byte, error)

// Tokens returns the tokens of the ServiceAccount for sources, which do not block.
type Tokens func(audience string) transport.ResettableTokenSource

// ErrNotFound is returned by Secrets and ConfigMaps if an object does not exist.
var ErrNotFound = errors.New("there is no such object")

// pendingError is wrapped by the error of resolve if an object or a token is not known yet.
type pendingError struct{ error }

// header is set on each request.
type header struct{ name, value string }

// credentials are the values that a spec references in Secrets, and its headers.
type credentials struct {
	ca, certificate, key []byte
	// extraCA are trusted beside public authorities.
	extraCA []byte
	token   string
	// tokens is where token is from, if it is renewed.
	tokens             transport.ResettableTokenSource
	username, password string
	headers            []header
	// redactor is nil if there is nothing to redact.
	redactor *strings.Replacer
	// longest is the length of the longest redacted text.
	longest int
}

// resolve returns the credentials of a source; issued returns the tokens of its authorization server for a
// client. Errors name object and key, never a value.
func resolve(spec *Spec, o *Options, issued func(client *credentials) transport.ResettableTokenSource) (*credentials, error) {
	r := resolver{secrets: o.Secrets}
	c := &credentials{}
	if ref := spec.TLS.CASecretKeyRef; ref != nil {
		c.ca = r.key(ref, "tls.caSecretKeyRef")
	}
	if ref := spec.TLS.CAConfigMapKeyRef; ref != nil {
		c.ca = r.read("ConfigMap", o.ConfigMaps, ref.Name, ref.Key, "tls.caConfigMapKeyRef")
	}
	public := strings.HasPrefix(spec.Endpoint, "https:") && c.ca == nil && !spec.TLS.InsecureSkipTLSVerify
	if o.ExtraCA != nil && (public || spec.Authentication.OAuth2 != nil) {
		if ref := o.ExtraCA(); ref != nil {
			c.extraCA = r.read("ConfigMap", o.ConfigMaps, ref.Name, ref.Key, "serving.caConfigMapKeyRef")
		}
	}
	if ref := spec.TLS.ClientCertificateSecretRef; ref != nil {
		c.certificate = r.value(ref.Name, corev1.TLSCertKey, "tls.clientCertificateSecretRef")
		c.key = r.value(ref.Name, corev1.TLSPrivateKeyKey, "tls.clientCertificateSecretRef")
	}
	if ref := spec.Authentication.BearerTokenSecretKeyRef; ref != nil {
		c.token = r.text(r.key(ref, "authentication.bearerTokenSecretKeyRef"), ref.Name, ref.Key)
	}
	if ref := spec.Authentication.BasicAuthSecretRef; ref != nil {
		c.username = string(r.value(ref.Name, corev1.BasicAuthUsernameKey, "authentication.basicAuthSecretRef"))
		c.password = string(r.value(ref.Name, corev1.BasicAuthPasswordKey, "authentication.basicAuthSecretRef"))
	}
	if ref := spec.Authentication.ServiceAccountToken; ref != nil {
		c.tokens = o.Tokens(ref.Audience)
	}
	if ref := spec.Authentication.OAuth2; ref != nil {
		client := &credentials{extraCA: slices.Concat(c.extraCA, []byte("\n"), c.ca)}
		client.username = r.text(r.value(ref.CredentialsSecretRef.Name, "client-id", "authentication.oauth2.credentialsSecretRef"), ref.CredentialsSecretRef.Name, "client-id")
		client.password = r.text(r.value(ref.CredentialsSecretRef.Name, "client-secret", "authentication.oauth2.credentialsSecretRef"), ref.CredentialsSecretRef.Name, "client-secret")
		if r.err == nil {
			c.tokens = issued(client)
		}
	}
	if c.tokens != nil {
		if token, err := c.tokens.Token(); err != nil {
			r.fail("there is no token for authentication: %w", pendingError{err})
		} else {
			c.token = token.AccessToken
		}
	}
	for i := range spec.Headers {
		h := &spec.Headers[i]
		value := h.Value
		if h.ValueSecretKeyRef != nil {
			value = r.text(r.key(h.ValueSecretKeyRef, "headers["+h.Name+"].valueSecretKeyRef"), h.ValueSecretKeyRef.Name, h.ValueSecretKeyRef.Key)
		}
		c.headers = append(c.headers, header{name: textproto.CanonicalMIMEHeaderKey(h.Name), value: value})
	}
	c.initRedactor()
	return c, r.err
}

// sameTLS reports whether TLS connections opened with one can be used with the other.
func (c *credentials) sameTLS(o *credentials) bool {
	return bytes.Equal(c.ca, o.ca) && bytes.Equal(c.extraCA, o.extraCA) && bytes.Equal(c.certificate, o.certificate) && bytes.Equal(c.key, o.key)
}

func (c *credentials) equal(o *credentials) bool {
	return c.sameTLS(o) && c.token == o.token && c.username == o.username && c.password == o.password && slices.Equal(c.headers, o.headers)
}

// resolver reads Secrets and ConfigMaps and keeps the first error.
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
	return r.read("Secret", r.secrets, name, key, field)
}

func (r *resolver) read(kind string, get func(name string) (map[string][]byte, error), name, key, field string) []byte {
	var data map[string][]byte
	err := ErrNotFound
	if get != nil {
		data, err = get(name)
	}
	switch {
	case errors.Is(err, ErrNotFound):
		r.fail("there is no %s %q for %s: create it in the backend's namespace", kind, name, field)
		return nil
	case err != nil:
		r.fail("the %s %q for %s is not known yet: %w", kind, name, field, pendingError{err})
		return nil
	}
	value := data[key]
	if len(value) == 0 {
		r.fail("the %s %q has nothing under the key %q, which %s needs", kind, name, key, field)
	}
	return value
}

// text returns a value for a header, without the newline at the end of Secrets made from files.
func (r *resolver) text(value []byte, name, key string) string {
	text := strings.TrimSpace(string(value))
	if len(value) > 0 && (text == "" || !httpguts.ValidHeaderFieldValue(text)) {
		r.fail("the Secret %q has under the key %q what cannot be in a header: an empty text, a line break or a control character", name, key)
	}
	return text
}

const (
	// Redacted replaces credentials in messages.
	Redacted = "<redacted>"
	// minRedacted is the length of the shortest text that is redacted: shorter ones are not
	// secret, and occur in ordinary words.
	minRedacted = 4
)

// initRedactor prepares redact. Messages reach users of all namespaces, who may not even read
// the headers in the spec.
func (c *credentials) initRedactor() {
	texts := []string{c.token, c.username, c.password}
	if c.username != "" || c.password != "" {
		// The value of the Authorization header, and the texts that OAuth 2.0 puts into it.
		id, secret := url.QueryEscape(c.username), url.QueryEscape(c.password)
		texts = append(texts, id, secret, base64.StdEncoding.EncodeToString([]byte(c.username+":"+c.password)), base64.StdEncoding.EncodeToString([]byte(id+":"+secret)))
	}
	for _, h := range c.headers {
		// A server may repeat the credentials without the scheme, such as "Basic".
		_, part, _ := strings.Cut(h.value, " ")
		texts = append(texts, h.value, part)
		// Servers decode basic authentication and may repeat the user.
		r := http.Request{Header: http.Header{"Authorization": {h.value}}}
		if user, password, ok := r.BasicAuth(); ok {
			texts = append(texts, user, password)
		}
	}
	for _, text := range texts {
		// Servers trim the newline at the end of Secrets made from files.
		texts = append(texts, strings.TrimSpace(text))
	}
	texts = slices.DeleteFunc(texts, func(text string) bool { return len(text) < minRedacted })
	if len(texts) == 0 {
		return
	}
	// Longest first, as one may be a prefix of another.
	slices.SortFunc(texts, func(a, b string) int { return cmp.Or(len(b)-len(a), strings.Compare(a, b)) })
	var pairs []string
	for _, text := range slices.Compact(texts) {
		pairs = append(pairs, text, Redacted)
	}
	c.redactor, c.longest = strings.NewReplacer(pairs...), len(texts[0])
}

// redact replaces credentials in a text.
func (c *credentials) redact(text string) string {
	if c == nil || c.redactor == nil {
		return text
	}
	return c.redactor.Replace(text)
}

// ExcerptSize limits the bytes that are read of an error response, which may repeat a query of 16 KiB.
const ExcerptSize = 40 << 10

// excerpt returns the beginning of the body of an error response, redacted. Read errors do not
// matter, as there is the status.
func (c *credentials) excerpt(r io.Reader) string {
	limit := ExcerptSize + c.longest
	b, _ := io.ReadAll(io.LimitReader(r, int64(limit)))
	text := c.redact(string(b))
	if len(b) == limit {
		// The end may be a prefix of a credential.
		text = text[:max(len(text)-c.longest, 0)]
	}
	return text
}
