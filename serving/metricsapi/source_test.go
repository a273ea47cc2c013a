// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package metricsapi

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/oauth2"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/transport"
	"k8s.io/metrics/pkg/apis/custom_metrics"
	"k8s.io/metrics/pkg/apis/external_metrics"
	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"

	"github.com/metricsbackend/metrics-backend-operator/api/v1alpha1"
	"github.com/metricsbackend/metrics-backend-operator/serving/query"
	"github.com/metricsbackend/metrics-backend-operator/serving/sourceclient"
	"github.com/metricsbackend/metrics-backend-operator/test/pipes"
)

// instant is the time for which queries are evaluated.
var instant = time.Unix(1700000000, 0)

const (
	secret  = "eyJhbGciOiJSUzI1NiJ9-for-other-implementations"
	depth   = "/namespaces/shop/depth"
	hits    = "/namespaces/shop/pods/web-1/hits"
	allHits = "/namespaces/shop/pods/%2A/hits"
)

// tokens are always the same one, and count how often it is renewed.
type tokens struct{ renewed atomic.Int32 }

func (s *tokens) Token() (*oauth2.Token, error) { return &oauth2.Token{AccessToken: secret}, nil }

func (s *tokens) ResetTokenOlderThan(time.Time) { s.renewed.Add(1) }

// world is another implementation and the source before it.
type world struct {
	server  *httptest.Server
	answer  atomic.Pointer[http.HandlerFunc]
	address Address
	options sourceclient.Options
	spec    v1alpha1.MetricsAPISource
	tokens  tokens
	source  *Source

	mu sync.Mutex
	// asked are the requests without their host.
	asked []string
}

// newWorld starts a TLS server, in a network if there is one; change may change what the source is made of.
func newWorld(t testing.TB, group v1alpha1.MetricsAPIGroup, answer http.HandlerFunc, network *pipes.Network, change ...func(*world)) *world {
	t.Helper()
	w := &world{}
	w.answer.Store(&answer)
	w.server = httptest.NewUnstartedServer(w)
	w.server.EnableHTTP2, w.server.Config.ErrorLog = true, log.New(io.Discard, "", 0)
	if network != nil {
		_ = w.server.Listener.Close()
		w.server.Listener, w.options.Dial = network, network.Dial
	}
	w.server.StartTLS()
	ca := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: w.server.Certificate().Raw})
	w.address = func(context.Context, v1alpha1.ExistingService) (string, error) {
		return w.server.Listener.Addr().String(), nil
	}
	w.options.Name, w.options.Clock = "keda", clock.RealClock{}
	w.options.Secrets = func(string) (map[string][]byte, error) { return map[string][]byte{"ca.crt": ca}, nil }
	w.options.Tokens = func(string) transport.ResettableTokenSource { return &w.tokens }
	w.spec = v1alpha1.MetricsAPISource{
		Service: v1alpha1.ExistingService{Namespace: "keda", Name: "keda-metrics", Port: ptr.To[int32](443)}, Group: group,
		TLS: v1alpha1.SourceTLS{ServerName: "example.com", CASecretKeyRef: &v1alpha1.SecretKeyReference{SecretReference: v1alpha1.SecretReference{Name: "ca"}, Key: "ca.crt"}},
	}
	for _, f := range change {
		f(w)
	}
	w.source = New(w.options, func(ctx context.Context, of v1alpha1.ExistingService) (string, error) { return w.address(ctx, of) }, w.spec)
	t.Cleanup(func() {
		w.source.client.Close()
		w.server.CloseClientConnections()
		w.server.Close()
	})
	return w
}

func (w *world) ServeHTTP(rw http.ResponseWriter, r *http.Request) {
	w.mu.Lock()
	w.asked = append(w.asked, r.Method+" "+r.RequestURI+" "+r.Proto)
	w.mu.Unlock()
	(*w.answer.Load())(rw, r)
}

func (w *world) answers(answer http.HandlerFunc) { w.answer.Store(&answer) }

func (w *world) count() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.asked)
}

func (w *world) evaluate(t testing.TB, expression string) (*query.Result, error) {
	return w.source.Evaluate(t.Context(), query.Query{Expression: expression}, instant)
}

// says answers everybody the same, with the token in place of TOKEN.
func says(code int, body string) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		w.WriteHeader(code)
		_, _ = io.WriteString(w, strings.ReplaceAll(body, "TOKEN", r.Header.Get("Authorization")))
	}
}

func status(code int, reason metav1.StatusReason, message string) http.HandlerFunc {
	return says(code, fmt.Sprintf(`{"kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": %q, "message": %q, "code": %d}`, reason, message, code))
}

// discovery answers that of a version, and next the other paths.
func discovery(group v1alpha1.MetricsAPIGroup, version string, next http.HandlerFunc) http.HandlerFunc {
	root := "/apis/" + string(group) + "/"
	return func(w http.ResponseWriter, r *http.Request) {
		served, _, deeper := strings.Cut(strings.TrimPrefix(r.URL.Path, root), "/")
		switch {
		case served != version:
			status(http.StatusNotFound, metav1.StatusReasonNotFound, "the server could not find the requested resource")(w, r)
		case deeper:
			next(w, r)
		default:
			says(http.StatusOK, `{"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": "`+string(group)+"/"+version+`", "resources": []}`)(w, r)
		}
	}
}

// list is an answer with items.
func list(group v1alpha1.MetricsAPIGroup, version, items string) string {
	kind := "MetricValueList"
	if group == v1alpha1.ExternalMetricsGroup {
		kind = "ExternalMetricValueList"
	}
	return fmt.Sprintf(`{"kind": %q, "apiVersion": "%s/%s", "metadata": {}, "items": [%s]}`, kind, group, version, items)
}

// TestEvaluate: values come back as the implementation answered them.
func TestEvaluate(t *testing.T) {
	const external, custom = v1alpha1.ExternalMetricsGroup, v1alpha1.CustomMetricsGroup
	const pod = `"describedObject": {"kind": "Pod", "namespace": "shop", "name": "web-1", "apiVersion": "v1"}, `
	for name, test := range map[string]struct {
		group                      v1alpha1.MetricsAPIGroup
		version, expression, items string
		// want are the samples as LABELS VALUE SECONDS.
		want []string
	}{
		"external": {external, "v1beta1", depth + "?labelSelector=a%3Db", `
			{"metricName": "Depth", "metricLabels": {"queue": "a"}, "timestamp": "2026-08-30T12:00:00Z", "window": 60, "value": "12345678901234567890"},
			{"metricName": "depth", "metricLabels": {"queue": "a"}, "timestamp": "2026-08-30T12:00:01Z", "value": "1n"},
			{"metricName": "depth", "metricLabels": null, "timestamp": null, "value": "1500m"}`,
			[]string{"queue=a 1.234567890123457e+19 1788091200", "queue=a 1e-09 1788091201", " 1.5 1700000000"}},
		"a name with a slash": {external, "v1beta1", `/namespaces/%2A/cloud%5C%7Cdepth`, `{"metricName": "cloud/depth", "metricLabels": {}, "timestamp": null, "value": "1"}`, []string{" 1 1700000000"}},
		"no values":           {external, "v1beta1", depth, "", nil},
		"custom": {custom, "v1beta2", allHits + "?labelSelector=a&metricLabelSelector=b", `{` + pod + `"metric": {"name": "hits", "selector": {"matchLabels": {"code": "200"}}}, "timestamp": "2026-08-30T12:00:00Z", "windowSeconds": 60, "value": "1n"},
			{` + pod + `"metric": {"name": "hits", "selector": null}, "timestamp": "2026-08-30T12:00:00Z", "value": "7k"}`, []string{"object=web-1 1e-09 1788091200", "object=web-1 7000 1788091200"}},
		"custom, an older version": {custom, "v1beta1", hits, `{` + pod + `"metricName": "hits", "timestamp": "2026-08-30T12:00:00Z", "window": 60, "value": "7", "selector": {"matchExpressions": [{"key": "a", "operator": "Exists"}]}}`,
			[]string{"object=web-1 7 1788091200"}},
		"of a namespace": {custom, "v1beta2", "/namespaces/shop/metrics/age", `{"describedObject": {"kind": "Namespace", "name": "shop", "apiVersion": "/v1"}, "metric": {"name": "age", "selector": null}, "timestamp": "2026-08-30T12:00:00Z", "value": "7"}`,
			[]string{"object=shop 7 1788091200"}},
	} {
		t.Run(name, func(t *testing.T) {
			body := list(test.group, test.version, test.items)
			w := newWorld(t, test.group, discovery(test.group, test.version, func(rw http.ResponseWriter, r *http.Request) {
				if got := r.Header.Get("Authorization") + " " + r.Header.Get("Accept"); got != "Bearer "+secret+" application/json" {
					t.Errorf("headers %s", got)
				}
				says(http.StatusOK, body)(rw, r)
			}), nil)
			result, err := w.evaluate(t, test.expression)
			if err != nil {
				t.Fatal(err)
			}
			var got []string
			internal := runtime.Object(&custom_metrics.MetricValueList{Items: []custom_metrics.MetricValue{}})
			if test.group == external {
				internal = &external_metrics.ExternalMetricValueList{Items: []external_metrics.ExternalMetricValue{}}
			}
			for _, s := range result.Samples {
				got = append(got, fmt.Sprintf("%s %v %d", labels.Set(s.Labels), s.Value, s.Time.Unix()))
				switch list := internal.(type) {
				case *custom_metrics.MetricValueList:
					list.Items = append(list.Items, *s.Passed.Object.(*custom_metrics.MetricValue))
				case *external_metrics.ExternalMetricValueList:
					list.Items = append(list.Items, *s.Passed.Object.(*external_metrics.ExternalMetricValue))
				}
			}
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("samples (-want +got):\n%s", diff)
			}
			passed := runtime.EncodeOrDie(codecs.LegacyCodec(schema.GroupVersion{Group: string(test.group), Version: test.version}), internal)
			if diff := cmp.Diff(parsed(t, body), parsed(t, passed)); diff != "" {
				t.Errorf("passed (-want +got):\n%s", diff)
			}
			if last := w.asked[len(w.asked)-1]; last != "GET /apis/"+string(test.group)+"/"+test.version+test.expression+" HTTP/1.1" {
				t.Errorf("asked %s", last)
			}
			if h := w.source.Health(); !h.Healthy || !result.Time.Equal(instant) || result.Bytes != bytesPerByte*len(body) {
				t.Errorf("health %+v, time %s, bytes %d", h, result.Time, result.Bytes)
			}
		})
	}
}

func parsed(t *testing.T, text string) (value any) {
	t.Helper()
	if err := json.Unmarshal([]byte(text), &value); err != nil {
		t.Fatal(err)
	}
	return value
}

// TestFailures: what fails a request, and which errors are passed on. The token is in no message.
func TestFailures(t *testing.T) {
	elsewhere := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { t.Errorf("a redirect was followed: %v", r.Header) }))
	defer elsewhere.Close()
	plain := httptest.NewServer(says(http.StatusOK, "{}"))
	defer plain.Close()
	at := func(address string, err error) func(*world) {
		return func(w *world) {
			w.address = func(context.Context, v1alpha1.ExistingService) (string, error) { return address, err }
		}
	}
	values := func(items string) http.HandlerFunc {
		return says(http.StatusOK, list(v1alpha1.ExternalMetricsGroup, "v1beta1", items))
	}
	for name, test := range map[string]struct {
		answer http.HandlerFunc
		change func(*world)
		// want is the beginning of REASON: MESSAGE, and status CODE REASON MESSAGE.
		want, status string
	}{
		"down":                 {nil, at("127.0.0.1:1", nil), "ConnectionFailed: no connection, or it broke: dial tcp 127.0.0.1:1", ""},
		"breaks":               {func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }, nil, "ConnectionFailed: no connection, or it broke: ", ""},
		"no TLS":               {nil, at(plain.Listener.Addr().String(), nil), "ConnectionFailed: what answers does not speak TLS", ""},
		"of another authority": {nil, func(w *world) { w.spec.TLS.CASecretKeyRef = nil }, "CertificateUntrusted: the server's certificate is not signed by an authority that is trusted", ""},
		"for another name":     {nil, func(w *world) { w.spec.TLS.ServerName = "" }, "CertificateUntrusted: the server's certificate is for another name: set tls.serverName to one that is in it: x509: certificate is valid for example.com, *.example.com, not keda-metrics.keda.svc", ""},
		"no Service":           {nil, at("", query.Failf(query.ReasonServiceMissing, "no such Service")), "ServiceMissing: no such Service", ""},
		"no address":           {nil, at("", errors.New("no answer")), "ConnectionFailed: no connection, or it broke: no answer", ""},
		"HTML":                 {says(200, "<html><title>Login TOKEN</title>"), nil, "Malformed: the answer is not what this API answers: ", ""},
		"YAML":                 {says(200, "kind: ExternalMetricValueList\napiVersion: external.metrics.k8s.io/v1beta1\nitems: []\n"), nil, "Malformed: ", ""},
		"a redirect": {func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, elsewhere.URL+"/"+secret, http.StatusTemporaryRedirect)
		}, nil, "BadStatus: HTTP 307: redirects are not followed, as they would show the token to someone else: " + elsewhere.URL + "/<redacted>", ""},
		"too long":              {values(strings.Repeat(" ", maxBody)), nil, "TooLarge: the answer is longer than 8388608 bytes", ""},
		"too long, compressed":  {compressed(strings.Repeat(" ", maxBody+1)), nil, "TooLarge: the answer is longer than 8388608 bytes", ""},
		"of another kind":       {says(200, `{"kind": "PodList", "apiVersion": "v1", "items": []}`), nil, "Malformed: ", ""},
		"of the other group":    {says(200, list(v1alpha1.CustomMetricsGroup, "v1beta2", "")), nil, "Malformed: the answer is not what this API answers: ", ""},
		"of another metric":     {values(`{"metricName": "other", "timestamp": null, "value": "1"}`), nil, `Malformed: the answer is not what this API answers: a value is of the metric "other", not of "depth": `, ""},
		"no number":             {values(`{"metricName": "depth", "timestamp": null, "value": "TOKEN"}`), nil, `Malformed: `, ""},
		"a Status at 200":       {says(200, `{"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": 404}`), nil, "Malformed: the answer is not what this API answers: ", ""},
		"the token at a cut":    {says(200, strings.Repeat("x", 170)+"TOKEN"), nil, "Malformed: ", ""},
		"nothing":               {says(204, ""), nil, "BadStatus: HTTP 204:", ""},
		"401":                   {status(401, "Unauthorized", "who? TOKEN"), nil, "Unauthorized: HTTP 401: who? Bearer <redacted>", ""},
		"403":                   {status(403, "Forbidden", "no TOKEN"), nil, "Rejected: HTTP 403: no Bearer <redacted>", "403 Forbidden no Bearer <redacted>"},
		"403 of a proxy":        {says(403, "no TOKEN"), nil, "Unauthorized: HTTP 403: no Bearer <redacted>", ""},
		"403 of ourselves":      {status(403, "Forbidden", "this request "+v1alpha1.LeadsBack), nil, "Loop: HTTP 403: this request leads back to a MetricsBackend", ""},
		"404":                   {status(404, "NotFound", "no depth TOKEN"), nil, "Rejected: HTTP 404: no depth Bearer <redacted>", "404 NotFound no depth Bearer <redacted>"},
		"404 of something else": {says(404, "404 page not found TOKEN"), nil, "BadStatus: HTTP 404: 404 page not found Bearer <redacted>", ""},
		"429":                   {status(429, "TooManyRequests", "slower"), nil, "Rejected: HTTP 429: slower", "429 TooManyRequests slower"},
		"429 of the server":     {says(429, "slower"), nil, "RateLimited: HTTP 429: slower", ""},
		"500":                   {status(500, "InternalError", "no scaler"), nil, "ServerError: HTTP 500: no scaler", "500 InternalError no scaler"},
		"503":                   {status(503, "ServiceUnavailable", "not yet"), nil, "ServerError: HTTP 503: not yet", "503 ServiceUnavailable not yet"},
		"503 without a code":    {says(503, `{"kind": "Status", "status": "Failure", "message": "not yet"}`), nil, "ServerError: HTTP 503: not yet", "503  not yet"},
		"503 of a proxy":        {says(503, "<h1>TOKEN</h1>"), nil, "BadStatus: HTTP 503: Bearer <redacted>", ""},
		"a success at 500":      {says(500, `{"kind": "Status", "status": "Success"}`), nil, `BadStatus: HTTP 500: {"kind": "Status", "status": "Success"}`, ""},
	} {
		t.Run(name, func(t *testing.T) {
			if test.change == nil {
				test.change = func(*world) {}
			}
			w := newWorld(t, v1alpha1.ExternalMetricsGroup, test.answer, nil, test.change)
			w.source.setHealth(nil, "v1beta1", nil)
			_, err := w.evaluate(t, depth)
			f, ok := errors.AsType[*query.Failure](err)
			if !ok {
				t.Fatal(err)
			}
			if got := fmt.Sprintf("%s: %s", f.Reason, f.Message); f.Source != "keda" || !strings.HasPrefix(got, test.want) {
				t.Errorf("got %s\nwant %s", got, test.want)
			}
			var told string
			if f.Status != nil {
				told = fmt.Sprintf("%d %s %s", f.Status.Code, f.Status.Reason, f.Status.Message)
			}
			if told != test.status {
				t.Errorf("status %q, want %q", told, test.status)
			}
			if strings.Contains(err.Error()+told, secret[:8]) {
				t.Errorf("the token is in %s %s", err, told)
			}
			if renewed := w.tokens.renewed.Load() > 0; renewed != (name == "401") {
				t.Errorf("the token is renewed: %t", renewed)
			}
		})
	}
}

func compressed(body string) http.HandlerFunc {
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	_, _ = io.WriteString(z, body)
	_ = z.Close()
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Encoding", "gzip")
		_, _ = w.Write(b.Bytes())
	}
}

// TestAnotherObject: a value of an object that was not asked for fails the request.
func TestAnotherObject(t *testing.T) {
	w := newWorld(t, v1alpha1.CustomMetricsGroup, says(http.StatusOK, list(v1alpha1.CustomMetricsGroup, "v1beta2",
		`{"describedObject": {"kind": "Pod", "name": "web-2"}, "metric": {"name": "hits"}, "timestamp": null, "value": "1"}`)), nil)
	w.source.setHealth(nil, "v1beta2", nil)
	if _, err := w.evaluate(t, hits); err == nil || !strings.Contains(err.Error(), `a value is of the object "web-2", not of "web-1"`) {
		t.Errorf("got %v", err)
	}
	if _, err := w.evaluate(t, allHits); err != nil {
		t.Error(err)
	}
}

// TestUnknownVersion: an error of the discovery is no answer for a metric, so it is not passed on.
func TestUnknownVersion(t *testing.T) {
	w := newWorld(t, v1alpha1.CustomMetricsGroup, discovery(v1alpha1.CustomMetricsGroup, "v2", nil), nil)
	_, err := w.evaluate(t, hits)
	if f, ok := errors.AsType[*query.Failure](err); !ok || f.Status != nil || f.Reason != query.ReasonBadStatus {
		t.Errorf("got %v", err)
	}
	if diff := cmp.Diff([]string{"GET /apis/custom.metrics.k8s.io/v1beta2 HTTP/1.1", "GET /apis/custom.metrics.k8s.io/v1beta1 HTTP/1.1"}, w.asked); diff != "" {
		t.Errorf("asked (-want +got):\n%s", diff)
	}
}

// TestLongDiscovery: an implementation with more resources than are listed is asked for all of its metrics.
func TestLongDiscovery(t *testing.T) {
	found := metav1.APIResourceList{TypeMeta: metav1.TypeMeta{Kind: "APIResourceList", APIVersion: "v1"}, GroupVersion: "custom.metrics.k8s.io/v1beta2"}
	for i := range maxResources + 1000 {
		found.APIResources = append(found.APIResources, metav1.APIResource{Name: fmt.Sprintf("pods/m%d", i), Namespaced: true, Kind: "MetricValueList", Verbs: []string{"get"}})
	}
	body, err := json.Marshal(found)
	if err != nil {
		t.Fatal(err)
	}
	w := newWorld(t, v1alpha1.CustomMetricsGroup, func(rw http.ResponseWriter, r *http.Request) {
		if strings.Contains(r.URL.Path, "/pods/") {
			says(http.StatusOK, list(v1alpha1.CustomMetricsGroup, "v1beta2", ""))(rw, r)
			return
		}
		says(http.StatusOK, string(body))(rw, r)
	}, nil)
	if _, err := w.evaluate(t, hits); err != nil {
		t.Error(err)
	}
	if diff := cmp.Diff(found.APIResources[:maxResources], w.source.Resources()); diff != "" {
		t.Errorf("listed (-want +got):\n%s", diff)
	}
}

// TestReplicas: while one of two replicas is down, or breaks its answers off, no request fails, and warnings come once.
func TestReplicas(t *testing.T) {
	for name, up := range map[string]bool{"refuses connections": false, "breaks off": true} {
		t.Run(name, func(t *testing.T) {
			var dials, answers atomic.Int32
			w := newWorld(t, v1alpha1.ExternalMetricsGroup, func(rw http.ResponseWriter, r *http.Request) {
				for i := range 2 * sourceclient.MaxWarnings {
					rw.Header().Add("Warning", fmt.Sprintf(`299 - "%d %s"`, i, r.Header.Get("Authorization")))
				}
				rw.Header().Set("Connection", "close")
				if answers.Add(1)%2 == 0 && up {
					rw.Header().Set("Content-Length", "1000")
					_ = http.NewResponseController(rw).Flush()
					panic(http.ErrAbortHandler)
				}
				says(http.StatusOK, list(v1alpha1.ExternalMetricsGroup, "v1beta1", ""))(rw, r)
			}, nil, func(w *world) {
				w.options.Dial = func(ctx context.Context, network, address string) (net.Conn, error) {
					if dials.Add(1)%2 == 0 && !up {
						return nil, errors.New("connection refused")
					}
					return (&net.Dialer{}).DialContext(ctx, network, address)
				}
			})
			w.source.setHealth(nil, "v1beta1", nil)
			for i := range 20 {
				result, err := w.evaluate(t, depth)
				if err != nil {
					t.Fatalf("request %d: %v", i, err)
				}
				if len(result.Warnings) != sourceclient.MaxWarnings || result.Warnings[0] != "0 Bearer <redacted>" {
					t.Errorf("warnings %q", result.Warnings)
				}
			}
			if dials.Load() < 35 {
				t.Errorf("%d connections", dials.Load())
			}
		})
	}
}

// TestHealth: it is that of the last probe. Failed requests cause probes, but not more than one a second.
func TestHealth(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		good := discovery(v1alpha1.ExternalMetricsGroup, "v1beta1", status(http.StatusServiceUnavailable, "", "no scaler"))
		w := newWorld(t, v1alpha1.ExternalMetricsGroup, good, pipes.New())
		if diff := cmp.Diff(v1alpha1.SourceHealth{Name: "keda"}, w.source.Health()); diff != "" {
			t.Errorf("before the first answer (-want +got):\n%s", diff)
		}
		began := time.Now()
		ctx, cancel := context.WithCancel(t.Context())
		var running sync.WaitGroup
		running.Go(func() { w.source.Run(ctx) })
		defer func() {
			cancel()
			running.Wait()
		}()
		// Requests are made every 20 ms for a while, then none.
		for _, step := range []struct {
			answer   http.HandlerFunc
			ask, end time.Duration
			want     string
			probes   int
		}{
			{good, 0, 500 * time.Millisecond, "true  0s", 1},
			{good, 20 * time.Second, 29 * time.Second, "true  0s", 0},
			{good, 0, 31 * time.Second, "true  0s", 1},
			{says(http.StatusBadGateway, ""), 0, 59 * time.Second, "true  0s", 0},
			{says(http.StatusBadGateway, ""), 3 * time.Second, 62 * time.Second, "false BadStatus 59s", 4},
			{says(http.StatusBadGateway, ""), 0, 82 * time.Second, "false BadStatus 59s", 2},
			{good, 0, 92 * time.Second, "true  1m32s", 1},
		} {
			w.answers(step.answer)
			from := time.Now()
			before, asked := w.count(), 0
			for time.Since(from) < step.ask {
				if _, err := w.evaluate(t, depth); err == nil {
					t.Error("no failure")
				}
				asked++
				time.Sleep(20 * time.Millisecond)
			}
			time.Sleep(time.Until(began.Add(step.end)))
			synctest.Wait()
			h := w.source.Health()
			if got := fmt.Sprintf("%t %s %s", h.Healthy, h.Reason, h.Since.Sub(began)); got != step.want {
				t.Errorf("at %s: %s, want %s", step.end, got, step.want)
			}
			if probes := w.count() - before - asked; probes != step.probes {
				t.Errorf("until %s: %d probes, want %d", step.end, probes, step.probes)
			}
		}
	})
}

// TestSlow: a request ends after 30 s, or when nobody waits for it.
func TestSlow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ended := make(chan time.Time, 1)
		w := newWorld(t, v1alpha1.ExternalMetricsGroup, func(_ http.ResponseWriter, r *http.Request) {
			<-r.Context().Done()
			ended <- time.Now()
		}, pipes.New())
		w.source.setHealth(nil, "v1beta1", nil)
		evaluator := query.NewEvaluator(clock.RealClock{}, func() float64 { return 0 }, func(string) (query.Source, bool) { return w.source, true }, 10)
		q := query.Query{Source: "keda", Expression: depth, Interval: time.Second, Live: true}
		began := time.Now()
		_, err := evaluator.Query(t.Context(), q)
		if want := `source "keda": Timeout: no complete answer in 30s`; err == nil || err.Error() != want || time.Since(began) != timeout {
			t.Errorf("%v after %s, want %s", err, time.Since(began), want)
		}
		<-ended
		time.Sleep(time.Minute)
		began = time.Now()
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
		defer cancel()
		if _, err := evaluator.Query(ctx, q); !errors.Is(err, context.DeadlineExceeded) {
			t.Error(err)
		}
		if got := (<-ended).Sub(began); got != 2*time.Second {
			t.Errorf("the request ended after %s", got)
		}
		if h := w.source.Health(); !h.Healthy {
			t.Errorf("health %+v", h)
		}
	})
}

// FuzzDecode: any answer is an error, or values of the metric and the object that were asked for.
func FuzzDecode(f *testing.F) {
	for _, body := range []string{
		list(v1alpha1.ExternalMetricsGroup, "v1beta1", `{"metricName": "depth", "metricLabels": {"a": "b"}, "timestamp": null, "window": 1, "value": "1e400"}`),
		list(v1alpha1.CustomMetricsGroup, "v1beta2", `{"describedObject": {"name": "web-1"}, "metric": {"name": "hits", "selector": {}}, "value": "1n"}`),
		list(v1alpha1.CustomMetricsGroup, "v1beta1", `{"metricName": "hits", "value": -0}`),
		`{"kind": "Status"}`, `{"kind": "List", "apiVersion": "v1", "items": [{}]}`, "k8s\x00\n", "null", "[]", "<html>", "a: &a [*a]",
	} {
		for _, path := range []string{depth, hits, allHits, "/nodes/n/load?a=b", "/namespaces/shop/metrics/age", "", "///", "/a/%zz/b"} {
			f.Add([]byte(body), path)
		}
	}
	f.Fuzz(func(t *testing.T, body []byte, path string) {
		for _, group := range []v1alpha1.MetricsAPIGroup{v1alpha1.ExternalMetricsGroup, v1alpha1.CustomMetricsGroup} {
			samples, err := decode(body, string(group), path, instant)
			if err != nil && samples != nil {
				t.Errorf("values and %v", err)
			}
			_, object, _ := named(path)
			for _, s := range samples {
				if s.Passed == nil || s.Time.IsZero() || group == v1alpha1.CustomMetricsGroup && object != custom_metrics.AllObjects && s.Labels[ObjectLabel] != object {
					t.Errorf("%q: %+v", path, s)
				}
			}
		}
		_ = decodeDiscovery(body, &metav1.APIResourceList{})
	})
}
