// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package prometheus

import (
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/metricsbackend/metrics-backend-operator/api/v1alpha1"
	"github.com/metricsbackend/metrics-backend-operator/serving/query"
	"github.com/metricsbackend/metrics-backend-operator/serving/sourceclient"
)

const oneSample = `{"status":"success","data":{"resultType":"vector","result":[{"metric":{},"value":[1700000000,"1"]}]}}`

// status is a handler that answers an error.
func status(code int, contentType, body string, header ...string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", contentType)
		for i := 0; i < len(header); i += 2 {
			w.Header().Set(header[i], header[i+1])
		}
		w.WriteHeader(code)
		_, _ = io.WriteString(w, body)
	}
}

// drips writes the pieces without end, until the client leaves.
func drips(first, piece string) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_, err := io.WriteString(w, first)
		for err == nil && r.Context().Err() == nil {
			_, err = io.WriteString(w, piece)
		}
	}
}

// Whatever a server answers, the caller learns what was wrong, in bounded time and memory.
func TestEvaluateFailures(t *testing.T) {
	const json = "application/json"
	small := func(s *v1alpha1.PrometheusSource) {
		s.MaxResponseSize = "64Ki"
	}
	quick := func(s *v1alpha1.PrometheusSource) { s.Timeout = &metav1.Duration{Duration: 100 * time.Millisecond} }
	tests := map[string]struct {
		handler http.HandlerFunc
		change  func(*v1alpha1.PrometheusSource)
		reason  query.Reason
		// says and hides are parts of the message, and what must not be in it.
		says, hides string
		// unparsable is set if the source cannot parse the query.
		unparsable bool
	}{
		"HTML with status 200": {
			handler: answers("text/html; charset=utf-8", "<html><head><title>Sign in\n please</title></head><script>x</script></html>"),
			reason:  query.ReasonMalformed, says: "not JSON; check that the source's url ends before /api/v1, and that no login page stands before the server: Sign in please", hides: "script",
		},
		"HTML that says it is JSON": {handler: answers(json, "<html>"), reason: query.ReasonMalformed, says: "invalid character '<'"},
		"no content type, not JSON": {
			handler: func(w http.ResponseWriter, _ *http.Request) {
				w.Header()["Content-Type"] = nil
				_, _ = io.WriteString(w, "hello")
			},
			reason: query.ReasonMalformed, says: "invalid character 'h'",
		},
		"nothing":           {handler: answers(json, ""), reason: query.ReasonMalformed, says: "it breaks off"},
		"no content":        {handler: status(http.StatusNoContent, json, ""), reason: query.ReasonBadStatus, says: "HTTP 204"},
		"breaks off":        {handler: answers(json, oneSample[:70]), reason: query.ReasonMalformed, says: "it breaks off"},
		"something follows": {handler: answers(json, oneSample+"{}"), reason: query.ReasonMalformed, says: "something follows"},
		"a connection that breaks": {
			handler: func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("Content-Type", json)
				w.Header().Set("Content-Length", "1000")
				_, _ = io.WriteString(w, oneSample[:70])
				panic(http.ErrAbortHandler)
			},
			reason: query.ReasonConnectionFailed, says: "it broke",
		},
		"null":            {handler: answers(json, "null"), reason: query.ReasonMalformed, says: "it is null"},
		"an array":        {handler: answers(json, "[]"), reason: query.ReasonMalformed, says: "there is no {"},
		"no status":       {handler: answers(json, `{"data":{"resultType":"vector","result":[]}}`), reason: query.ReasonMalformed, says: `status is ""`},
		"no data":         {handler: answers(json, `{"status":"success"}`), reason: query.ReasonMalformed, says: "there is no data"},
		"data twice":      {handler: answers(json, `{"status":"success","data":{"resultType":"vector","result":[]},"data":{}}`), reason: query.ReasonMalformed, says: "data twice"},
		"no result":       {handler: answers(json, `{"status":"success","data":{"resultType":"vector"}}`), reason: query.ReasonMalformed, says: "there is no result"},
		"result twice":    {handler: answers(json, `{"status":"success","data":{"resultType":"vector","result":[],"result":[]}}`), reason: query.ReasonMalformed, says: "result twice"},
		"no result type":  {handler: answers(json, `{"status":"success","data":{"result":[]}}`), reason: query.ReasonMalformed, says: `resultType is ""`},
		"a strange type":  {handler: answers(json, `{"status":"success","data":{"resultType":"tensor","result":[]}}`), reason: query.ReasonMalformed, says: `resultType is "tensor"`},
		"a null sample":   {handler: answers(json, vectorOf(`null`)), reason: query.ReasonMalformed, says: "sample 1 has no metric"},
		"a null value":    {handler: answers(json, vectorOf(`{"metric":{},"value":null}`)), reason: query.ReasonMalformed, says: "sample 1 has no value"},
		"a null scalar":   {handler: answers(json, `{"status":"success","data":{"resultType":"scalar","result":null}}`), reason: query.ReasonMalformed, says: "sample 1 has no value"},
		"a null matrix":   {handler: answers(json, `{"status":"success","data":{"resultType":"matrix","result":null}}`), reason: query.ReasonRejected, says: "ranges of samples"},
		"no value":        {handler: answers(json, vectorOf(`{"metric":{}}`)), reason: query.ReasonMalformed, says: "sample 1 has no value"},
		"no metric":       {handler: answers(json, vectorOf(`{"value":[1,"1"]}`)), reason: query.ReasonMalformed, says: "sample 1 has no metric"},
		"a label's value": {handler: answers(json, vectorOf(`{"metric":{"a":1},"value":[1,"1"]}`)), reason: query.ReasonMalformed, says: "cannot unmarshal number"},
		"a bare value":    {handler: answers(json, vectorOf(`{"metric":{},"value":[1,1]}`)), reason: query.ReasonMalformed, says: "pair of time and text"},
		"a value in words": {
			handler: answers(json, vectorOf(`{"metric":{},"value":[1,"many"]}`)), reason: query.ReasonMalformed, says: `many`,
		},
		"a value out of range": {handler: answers(json, vectorOf(`{"metric":{},"value":[1,"1e999"]}`)), reason: query.ReasonMalformed, says: `1e999`},
		"a time before time":   {handler: answers(json, vectorOf(`{"metric":{},"value":[-1,"1"]}`)), reason: query.ReasonMalformed, says: `"-1"`},
		"a time without end":   {handler: answers(json, vectorOf(`{"metric":{},"value":[1e300,"1"]}`)), reason: query.ReasonMalformed, says: `"1e300"`},
		"the future": {
			handler: answers(json, vectorOf(`{"metric":{},"value":[1700003600,"1"]}`)), reason: query.ReasonMalformed,
			says: "2023-11-14T23:13:20Z, though 2023-11-14T22:13:20Z was asked for",
		},
		"a native histogram beside a null value": {
			handler: answers(json, vectorOf(`{"metric":{},"value":null,"histogram":[1700000000,{"count":"1"}]}`)), reason: query.ReasonRejected, says: "histogram_quantile()",
		},
		"a native histogram": {
			handler: answers(json, vectorOf(`{"metric":{"__name__":"x"},"histogram":[1700000000,{"count":"1","sum":"2"}]}`)),
			reason:  query.ReasonRejected, says: "histogram_quantile()",
		},
		"a part of the stores": {
			handler: answers(json, `{"status":"success","data":{"resultType":"vector","result":[]},"warnings":["PromQL warning: x","store b: down","store a: down"]}`),
			reason:  query.ReasonPartialResponse, says: "partialResponsePolicy: Accept would use the rest): store a: down (and 1 more warnings)", hides: "PromQL",
		},
		"a part of the storage nodes": {
			handler: answers(json, `{"status":"success","isPartial":true,"data":{"resultType":"vector","result":[]}}`),
			reason:  query.ReasonPartialResponse, says: "it says isPartial",
		},
		"ranges":                   {handler: answers(json, `{"status":"success","data":{"resultType":"matrix","result":[]}}`), reason: query.ReasonRejected, says: "ranges of samples"},
		"a text":                   {handler: answers(json, `{"status":"success","data":{"resultType":"string","result":[1,"x"]}}`), reason: query.ReasonRejected, says: "of type string"},
		"an error with status 200": {handler: answers(json, `{"status":"error","errorType":"bad_data","error":"no such\u0007 function"}`), reason: query.ReasonRejected, says: ": Rejected: no such function", unparsable: true},
		"another error with 200":   {handler: answers(json, `{"status":"error","errorType":"internal","error":"oops"}`), reason: query.ReasonBadStatus, says: "internal: oops"},
		"bad data":                 {handler: status(400, json, `{"status":"error","errorType":"bad_data","error":"1:3: parse error: unexpected identifier"}`), reason: query.ReasonRejected, says: ": Rejected: 1:3: parse error: unexpected identifier", unparsable: true},
		"too dear":                 {handler: status(422, json, `{"status":"error","errorType":"execution","error":"query processing would load too many samples into memory"}`), reason: query.ReasonRejected, says: "too many samples"},
		"VictoriaMetrics": {
			handler: status(422, json, `{"status":"error","errorType":"422","error":"error when executing query=\"x(\\\"`+strings.Repeat("y", 16<<10)+`\\\")\" for (time=1795581212770, step=300000): unsupported function \"x\""}`),
			reason:  query.ReasonRejected, says: `: Rejected: unsupported function "x"`, hides: "yyy",
		},
		"VictoriaMetrics, a quoted key": {
			handler: status(422, json, `{"status":"error","errorType":"422","error":"error when executing query=\"{\\\"a.b\\\"=\\\"c\\\"}\" for (time=1795581213433, step=300000): labelFilterExpr: unexpected token \"\\\"a.b\\\"\"; want \"ident\""}`),
			reason:  query.ReasonRejected, says: `: Rejected: labelFilterExpr: unexpected token "\"a.b\""`, unparsable: true,
		},
		"bad request of a proxy":         {handler: status(400, "text/plain", "missing tenant"), reason: query.ReasonRejected, says: "HTTP 400: missing tenant"},
		"the server's timeout":           {handler: status(503, json, `{"status":"error","errorType":"timeout","error":"query timed out in expression evaluation"}`), reason: query.ReasonTimeout, says: "query timed out"},
		"overloaded":                     {handler: status(503, "text/html", "<html><h1>503 Service Unavailable</h1></html>"), reason: query.ReasonBadStatus, says: "HTTP 503: 503 Service Unavailable"},
		"too many requests":              {handler: status(429, json, `{"status":"error","errorType":"too_many_requests","error":"the request rate is limited"}`, "Retry-After", "30"), reason: query.ReasonRateLimited, says: "HTTP 429: the request rate is limited (the server limits its clients: raise the limit there, or ask less"},
		"too many requests, for a while": {handler: status(503, "text/plain", "busy", "Retry-After", "30"), reason: query.ReasonRateLimited, says: "HTTP 503: busy (the server is overloaded: give it more capacity, or ask less)"},
		"no authentication":              {handler: status(401, "text/plain", "no token\n"), reason: query.ReasonUnauthorized, says: "HTTP 401: no token (check authentication"},
		"no permission":                  {handler: status(403, json, `{"message":"tenant blocked"}`), reason: query.ReasonUnauthorized, says: "HTTP 403: tenant blocked"},
		"no such path":                   {handler: status(404, "text/plain", "404 page not found"), reason: query.ReasonBadStatus, says: "ends before /api/v1"},
		"neither POST nor long GET":      {handler: status(414, "text/plain", ""), reason: query.ReasonBadStatus, says: "HTTP 414 (the server takes no POST"},
		"a redirect": {
			handler: status(302, "text/html", "", "Location", "https://someone:password@elsewhere.example/login?token=abc"),
			reason:  query.ReasonBadStatus, says: "redirects are not followed, as they would show credentials to someone else; set the source's url to what it names: https://elsewhere.example/login", hides: "password",
		},
		"a redirect to nowhere": {handler: status(308, "text/html", ""), reason: query.ReasonBadStatus, says: "HTTP 308"},
		"too large, and says so": {
			change: small, handler: status(200, json, strings.Repeat(" ", 100<<10), "Content-Length", fmt.Sprint(100<<10)), reason: query.ReasonTooLarge, says: "has 102400 bytes; maxResponseSize is 65536 bytes",
		},
		"without end, blank":    {change: small, handler: drips(`{"status":`, "          "), reason: query.ReasonTooLarge, says: "maxResponseSize"},
		"without end, warnings": {change: small, handler: drips(`{"warnings":["`, "x"), reason: query.ReasonTooLarge, says: "maxResponseSize"},
		"without end, samples":  {change: small, handler: drips(`{"data":{"resultType":"vector","result":[{"metric":{},"value":[1,"1"]}`, `,{"metric":{},"value":[1,"1"]}`), reason: query.ReasonTooLarge, says: "more samples than it may"},
		"without end, nested":   {change: small, handler: drips(`{"data":`, strings.Repeat("[", 100)), reason: query.ReasonMalformed, says: "there is no {"},
		"without end, unknown":  {change: small, handler: drips(`{"x":`, strings.Repeat("[", 100)), reason: query.ReasonMalformed, says: "depth"},
		"a compressed bomb": {change: small, handler: func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", json)
			w.Header().Set("Content-Encoding", "gzip")
			_, _ = w.Write(bomb(1 << 20))
		}, reason: query.ReasonTooLarge, says: "maxResponseSize"},
		"not what was compressed": {handler: status(200, json, "not compressed", "Content-Encoding", "gzip"), reason: query.ReasonMalformed, says: "not compressed as it says"},
		"says nothing": {change: quick, handler: func(_ http.ResponseWriter, r *http.Request) {
			_, _ = io.Copy(io.Discard, r.Body)
			<-r.Context().Done()
		}, reason: query.ReasonTimeout, says: "no complete answer in time"},
		"a slow drip": {change: quick, handler: func(w http.ResponseWriter, r *http.Request) {
			_, _ = io.Copy(io.Discard, r.Body)
			answers(json, `{"status":`)(w, r)
			_ = http.NewResponseController(w).Flush()
			<-r.Context().Done()
		}, reason: query.ReasonTimeout, says: "no complete answer in time"},
		"endless words": {handler: status(500, "text/plain", strings.Repeat("слово ", 100000)), reason: query.ReasonBadStatus, says: "…"},
		"binary words":  {handler: status(500, "text/plain", "\x00\x1b[31mred\xff\n\n\tline"), reason: query.ReasonBadStatus, says: "HTTP 500: [31mred line"},
		"an echo of the token": {
			handler: func(w http.ResponseWriter, r *http.Request) {
				status(500, "text/plain", "cannot serve "+r.Header.Get("Authorization"))(w, r)
			},
			change: func(s *v1alpha1.PrometheusSource) {
				s.Authentication.BearerTokenSecretKeyRef = secretKey("login", "token")
			},
			reason: query.ReasonBadStatus, says: "cannot serve Bearer <redacted>", hides: "t0p-secret",
		},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, tc.handler, tc.change)
			w.secrets.set("login", map[string]string{"token": "t0p-secret\n"})
			got, err := w.source.Evaluate(t.Context(), query.Query{Expression: "x"}, instant)
			f := failureIn(t, err)
			if got != nil || f.Reason != tc.reason {
				t.Fatalf("answer %v, reason %s, want %s: %s", got, f.Reason, tc.reason, f.Message)
			}
			if !strings.Contains(err.Error(), tc.says) {
				t.Errorf("message %q, want it to say %q", err, tc.says)
			}
			if f.Unparsable != tc.unparsable {
				t.Errorf("unparsable: %v", f.Unparsable)
			}
			if tc.hides != "" && strings.Contains(err.Error(), tc.hides) {
				t.Errorf("message %q shows %q", err, tc.hides)
			}
			if f.Source != "main" || len(f.Message) > sourceclient.MaxMessage || strings.ContainsFunc(f.Message, func(r rune) bool { return r < ' ' }) {
				t.Errorf("source %q, message of %d bytes: %q", f.Source, len(f.Message), f.Message)
			}
		})
	}
}

func vectorOf(sample string) string {
	return `{"status":"success","data":{"resultType":"vector","result":[` + sample + `]}}`
}

func failureIn(t *testing.T, err error) *query.Failure {
	t.Helper()
	var f *query.Failure
	if !errors.As(err, &f) {
		t.Fatalf("error %v is no Failure", err)
	}
	return f
}

// bomb is n blanks, compressed to a thousandth.
func bomb(n int) []byte {
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	_, _ = z.Write(bytes.Repeat([]byte(" "), n))
	_ = z.Close()
	return b.Bytes()
}

// A bomb within a member that is skipped is bounded too, and costs little memory.
func TestEvaluateCompressed(t *testing.T) {
	w := newWorld(t, func(w http.ResponseWriter, r *http.Request) {
		if !strings.Contains(r.Header.Get("Accept-Encoding"), "gzip") {
			t.Errorf("Accept-Encoding is %q", r.Header.Get("Accept-Encoding"))
		}
		w.Header().Set("Content-Type", "application/json; charset=utf-8")
		w.Header().Set("Content-Encoding", "gzip")
		z := gzip.NewWriter(w)
		_, _ = io.WriteString(z, oneSample)
		_ = z.Close()
	}, nil)
	if a, err := w.source.Evaluate(t.Context(), query.Query{Expression: "x"}, instant); err != nil || len(a.Samples) != 1 {
		t.Errorf("answer %v, %v", a, err)
	}
}

func TestConnectionFailures(t *testing.T) {
	plain := httptest.NewServer(answers("application/json", oneSample))
	defer plain.Close()
	tests := map[string]struct {
		change func(*v1alpha1.PrometheusSource)
		reason query.Reason
		says   string
	}{
		"nobody listens": {func(s *v1alpha1.PrometheusSource) { s.URL = "https://127.0.0.1:1" }, query.ReasonConnectionFailed, "connection refused"},
		"no such host":   {func(s *v1alpha1.PrometheusSource) { s.URL = "https://prometheus.invalid" }, query.ReasonConnectionFailed, "prometheus.invalid"},
		"no TLS":         {func(s *v1alpha1.PrometheusSource) { s.URL = "https://" + plain.Listener.Addr().String() }, query.ReasonConnectionFailed, "does not speak TLS"},
		"TLS, unexpected": {func(s *v1alpha1.PrometheusSource) {
			s.URL, s.TLS = strings.Replace(s.URL, "https", "http", 1), v1alpha1.SourceTLS{}
		}, query.ReasonRejected, "HTTP request to an HTTPS server"},
		"another name":            {func(s *v1alpha1.PrometheusSource) { s.TLS.ServerName = "thanos.monitoring.svc" }, query.ReasonCertificateUntrusted, "set tls.serverName"},
		"another CA":              {func(s *v1alpha1.PrometheusSource) { s.TLS.CASecretKeyRef = nil }, query.ReasonCertificateUntrusted, "give its authority in tls.caSecretKeyRef"},
		"no Secret":               {func(s *v1alpha1.PrometheusSource) { s.TLS.CASecretKeyRef = secretKey("none", "ca.crt") }, query.ReasonCredentials, `there is no Secret "none" for tls.caSecretKeyRef`},
		"no key":                  {func(s *v1alpha1.PrometheusSource) { s.TLS.CASecretKeyRef = secretKey("ca", "ca.pem") }, query.ReasonCredentials, `the Secret "ca" has nothing under the key "ca.pem"`},
		"no certificate":          {func(s *v1alpha1.PrometheusSource) { s.TLS.CASecretKeyRef = secretKey("bad", "text") }, query.ReasonCredentials, "use the certificates that tls names"},
		"no ConfigMap":            {func(s *v1alpha1.PrometheusSource) { s.TLS = bundleTLS("none", "ca.pem") }, query.ReasonCredentials, `there is no ConfigMap "none" for tls.caConfigMapKeyRef: create it in the backend's namespace`},
		"no key in the ConfigMap": {func(s *v1alpha1.PrometheusSource) { s.TLS = bundleTLS("bundle", "ca.crt") }, query.ReasonCredentials, `the ConfigMap "bundle" has nothing under the key "ca.crt", which tls.caConfigMapKeyRef needs`},
		"no token": {func(s *v1alpha1.PrometheusSource) {
			s.Authentication.BearerTokenSecretKeyRef = secretKey("bad", "blank")
		}, query.ReasonCredentials, "cannot be in a header"},
		"no header": {func(s *v1alpha1.PrometheusSource) {
			s.Headers = []v1alpha1.SourceHeader{{Name: "X-Scope-OrgID", ValueSecretKeyRef: secretKey("bad", "lines")}}
		}, query.ReasonCredentials, "cannot be in a header"},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, answers("application/json", oneSample), tc.change)
			w.configMaps.set("bundle", map[string]string{"ca.pem": "none"})
			w.secrets.set("bad", map[string]string{"text": "not a certificate", "blank": " \n", "lines": "a\nb"})
			_, err := w.source.Evaluate(t.Context(), query.Query{Expression: "x"}, instant)
			if f := failureIn(t, err); f.Reason != tc.reason || !strings.Contains(f.Message, tc.says) {
				t.Errorf("%s: %s; want %s: %s", f.Reason, f.Message, tc.reason, tc.says)
			}
		})
	}
}

// Apply returns what is wrong with a spec, and the old one stays.
func TestApplyRefuses(t *testing.T) {
	w := newWorld(t, answers("application/json", oneSample), nil)
	for _, bad := range []string{
		"", "ftp://x", "https://", "https://user:secret@host", "https://user:secret@ho st", "https://host/?a=b", "https://host/prometheus#graph",
	} {
		spec := w.spec
		spec.URL = bad
		if err := w.source.Apply(spec); err == nil || !strings.Contains(err.Error(), "url must be http:// or https:// and a host") || strings.Contains(err.Error(), "secret") {
			t.Errorf("URL %q: error %v", bad, err)
		}
	}
	spec := w.spec
	spec.MaxResponseSize = "32 megabytes"
	if err := w.source.Apply(spec); err == nil || !strings.Contains(err.Error(), "maxResponseSize") {
		t.Errorf("a size of %s: error %v", spec.MaxResponseSize, err)
	}
	if _, err := w.source.Evaluate(t.Context(), query.Query{Expression: "x"}, instant); err != nil {
		t.Error(err)
	}
}

// A caller that leaves ends its query, and says nothing of the source.
func TestEvaluateCanceled(t *testing.T) {
	asked := make(chan struct{}, 2)
	w := newWorld(t, func(_ http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		asked <- struct{}{}
		<-r.Context().Done()
	}, nil)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() {
		_, err := w.source.Evaluate(ctx, query.Query{Expression: "x"}, instant)
		done <- err
	}()
	<-asked
	cancel()
	if f := failureIn(t, <-done); f.Reason != query.ReasonTimeout || !strings.Contains(f.Message, "given up") {
		t.Errorf("%s: %s", f.Reason, f.Message)
	}
	if h := w.source.Health(); !h.Since.IsZero() {
		t.Errorf("health %+v", h)
	}
}

// A Retry-After of a query stops no request of others: the Evaluator holds its tenant. That of a lookup of series
// holds lookups, and that of the probe all requests unless queries succeed, for at most a minute.
func TestRetryAfterOfOneQuery(t *testing.T) {
	var limited atomic.Value
	limited.Store("hog")
	refused := status(429, "text/plain", "slow down", "Retry-After", "3600")
	w := newWorld(t, func(rw http.ResponseWriter, r *http.Request) {
		asked := r.FormValue("query") + r.FormValue("match[]")
		if l := limited.Load().(string); strings.Contains(l, asked) || l == "all" {
			refused(rw, r)
			return
		}
		if strings.HasSuffix(r.URL.Path, pathSeries) {
			answers("application/json", someSeries)(rw, r)
			return
		}
		answers("application/json", oneSample)(rw, r)
	}, nil)
	w.clock.SetTime(time.Unix(1000, 0))
	check := func(what string, err error, says string) *query.Failure {
		t.Helper()
		if says == "" && err == nil {
			return nil
		}
		f := failureIn(t, err)
		if f.Reason != query.ReasonRateLimited || !strings.Contains(f.Message, says) || says == "" {
			t.Errorf("%s of %s: %s", f.Reason, what, f.Message)
		}
		return f
	}
	evaluate := func(expression, says string) *query.Failure {
		t.Helper()
		_, err := w.source.Evaluate(t.Context(), query.Query{Expression: expression}, instant)
		return check(expression, err, says)
	}
	lookup := func(matcher, says string) {
		t.Helper()
		check(matcher, w.source.lookup(t.Context(), matcher, instant, instant, func(map[string]string) {}), says)
	}
	if f := evaluate("hog", "HTTP 429: slow down"); f.RetryAfter != time.Minute {
		t.Errorf("it may be asked after %s", f.RetryAfter)
	}
	w.source.probe(t.Context(), instant)
	evaluate("x", "")
	lookup("up", "")
	limited.Store("hog, up")
	lookup("up", "HTTP 429: slow down")
	lookup("other", "not asked until 1970-01-01T00:17:40Z")
	evaluate("x", "")
	limited.Store("hog, " + probeExpression)
	w.source.probe(t.Context(), instant)
	evaluate("x", "")
	limited.Store("all")
	evaluate("x", "HTTP 429: slow down")
	w.source.probe(t.Context(), instant)
	limited.Store("hog")
	evaluate("x", "") // tenants are held one by one
	limited.Store("")
	w.clock.SetTime(time.Unix(1061, 0))
	evaluate("x", "")
	lookup("up", "")
}
