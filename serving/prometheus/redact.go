// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package prometheus

import (
	"cmp"
	"encoding/base64"
	"io"
	"net/http"
	"slices"
	"strings"
)

const (
	// redacted is what is told instead of a credential.
	redacted = "<redacted>"
	// minRedacted is the length of the shortest text that is replaced: shorter ones are
	// no secrets, and are parts of ordinary words.
	minRedacted = 4
)

// hide prepares redact. What callers are told reaches people of every namespace, who may
// not even see the headers that are no secret to readers of the spec.
func (c *credentials) hide() {
	texts := []string{c.token, c.username, c.password}
	if c.username != "" || c.password != "" {
		// As it is in the Authorization header.
		texts = append(texts, base64.StdEncoding.EncodeToString([]byte(c.username+":"+c.password)))
	}
	for _, h := range c.headers {
		// Of "Basic dXNlcjpwYXNz" a server may repeat the second part alone.
		_, part, _ := strings.Cut(h.value, " ")
		texts = append(texts, h.value, part)
		// Servers decode what is basic authentication, and tell of the user.
		r := http.Request{Header: http.Header{"Authorization": {h.value}}}
		if user, password, ok := r.BasicAuth(); ok {
			texts = append(texts, user, password)
		}
	}
	for _, text := range texts {
		// Secrets that are made from files end with a newline, which servers leave out.
		texts = append(texts, strings.TrimSpace(text))
	}
	texts = slices.DeleteFunc(texts, func(text string) bool { return len(text) < minRedacted })
	if len(texts) == 0 {
		return
	}
	// A password may begin like another: the longer one goes first.
	slices.SortFunc(texts, func(a, b string) int { return cmp.Or(len(b)-len(a), strings.Compare(a, b)) })
	var pairs []string
	for _, text := range slices.Compact(texts) {
		pairs = append(pairs, text, redacted)
	}
	c.redactor, c.longest = strings.NewReplacer(pairs...), len(texts[0])
}

// redact returns a text without credentials.
func (c *credentials) redact(text string) string {
	if c == nil || c.redactor == nil {
		return text
	}
	return c.redactor.Replace(text)
}

// excerptSize bounds what is read of an answer that is an error.
const excerptSize = 4 << 10

// excerpt reads the beginning of a body that is not an answer, without credentials. What
// cannot be read does not matter beside the status.
func (c *credentials) excerpt(r io.Reader) string {
	limit := excerptSize + c.longest
	b, _ := io.ReadAll(io.LimitReader(r, int64(limit)))
	text := c.redact(string(b))
	if len(b) == limit {
		// The end may be the beginning of a credential.
		text = text[:max(len(text)-c.longest, 0)]
	}
	return text
}
