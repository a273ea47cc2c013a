// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package prometheus

import (
	"context"
	"encoding/pem"
	"net"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/metricsbackend/metrics-backend-operator/api/v1alpha1"
	"github.com/metricsbackend/metrics-backend-operator/serving/sourceclient"
)

// instant is the time for which queries are evaluated.
var instant = time.Unix(1700000000, 0)

// secretData are Secrets that a test may change at any time.
type secretData struct {
	mu   sync.Mutex
	data map[string]map[string][]byte
	// unread are those that cannot be read yet.
	unread map[string]error
}

func (s *secretData) get(name string) (map[string][]byte, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.unread[name]; err != nil {
		return nil, err
	}
	if d, ok := s.data[name]; ok {
		return d, nil
	}
	return nil, sourceclient.ErrNotFound
}

// yet sets why a Secret cannot be read yet; nil: it can.
func (s *secretData) yet(name string, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.unread == nil {
		s.unread = map[string]error{}
	}
	s.unread[name] = err
}

func (s *secretData) set(name string, data map[string]string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.data == nil {
		s.data = map[string]map[string][]byte{}
	}
	s.data[name] = map[string][]byte{}
	for k, v := range data {
		s.data[name][k] = []byte(v)
	}
}

func (s *secretData) remove(name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.data, name)
}

// world is a server and the source before it.
type world struct {
	server  *httptest.Server
	secrets *secretData
	// configMaps has ConfigMaps, likewise.
	configMaps *secretData
	spec       v1alpha1.PrometheusSource
	options    sourceclient.Options
	source     *Source
	clock      *clocktesting.FakeClock
}

// newWorld starts a TLS server; change may change the spec before it is used.
func newWorld(t testing.TB, handler http.HandlerFunc, change func(*v1alpha1.PrometheusSource)) *world {
	t.Helper()
	w := &world{secrets: &secretData{}, configMaps: &secretData{}, clock: clocktesting.NewFakeClock(instant)}
	w.server = httptest.NewUnstartedServer(handler)
	w.server.EnableHTTP2 = true
	w.server.Config.ErrorLog = quiet
	w.server.StartTLS()
	t.Cleanup(w.server.Close)
	w.secrets.set("ca", map[string]string{"ca.crt": certificatePEM(w.server)})
	w.spec = v1alpha1.PrometheusSource{
		URL:     w.server.URL,
		Timeout: &metav1.Duration{Duration: 5 * time.Second},
		TLS:     v1alpha1.SourceTLS{CASecretKeyRef: secretKey("ca", "ca.crt")},
	}
	if change != nil {
		change(&w.spec)
	}
	w.options = sourceclient.Options{Name: "main", Secrets: w.secrets.get, ConfigMaps: w.configMaps.get, Clock: w.clock}
	w.start(t)
	return w
}

// start makes the source of the options and the spec.
func (w *world) start(t testing.TB) {
	t.Helper()
	var err error
	if w.source, err = New(w.options, w.spec); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(w.source.Close)
}

func certificatePEM(s *httptest.Server) string {
	return string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.Certificate().Raw}))
}

func secretKey(name, key string) *v1alpha1.SecretKeyReference {
	return &v1alpha1.SecretKeyReference{SecretReference: v1alpha1.SecretReference{Name: name}, Key: key}
}

// answers is a handler that answers the same to everybody.
func answers(contentType, body string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", contentType)
		_, _ = w.Write([]byte(body))
	}
}

// countingDial reports each connection that is opened, and each that is closed.
func countingDial(opened, closed chan<- struct{}) sourceclient.Dial {
	return func(ctx context.Context, network, addr string) (net.Conn, error) {
		c, err := (&net.Dialer{}).DialContext(ctx, network, addr)
		if err != nil {
			return nil, err
		}
		opened <- struct{}{}
		return &countedConn{Conn: c, closed: sync.OnceFunc(func() { closed <- struct{}{} })}, nil
	}
}

type countedConn struct {
	net.Conn
	closed func()
}

func (c *countedConn) Close() error {
	c.closed()
	return c.Conn.Close()
}
