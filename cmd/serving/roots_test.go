// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/crypto/x509roots/fallback/bundle"
	"k8s.io/utils/clock"

	"github.com/metricsbackend/metrics-backend-operator/api/v1alpha1"
	"github.com/metricsbackend/metrics-backend-operator/serving/prometheus"
	"github.com/metricsbackend/metrics-backend-operator/serving/query"
	"github.com/metricsbackend/metrics-backend-operator/serving/sourceclient"
)

// publicRoot is a root of the fallback bundle, by which Let's Encrypt signs.
const publicRoot = "ISRG Root X1"

// trust is what a process of this program verifies.
type trust struct {
	// PublicRoot: a certificate of publicRoot is verified.
	PublicRoot bool
	// Server is the error of a source whose server has a certificate of no public authority.
	Server string
}

// TestRoots runs processes of this program as in the image, which has no CA certificates, and
// with files of them. A process reads its roots once.
func TestRoots(t *testing.T) {
	if server := os.Getenv("TEST_ROOTS_SERVER"); server != "" {
		if err := json.NewEncoder(os.Stderr).Encode(measureTrust(t, server)); err != nil {
			t.Fatal(err)
		}
		return
	}
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, `{"status":"success","data":{"resultType":"vector","result":[]}}`)
	}))
	server.Config.ErrorLog = log.New(io.Discard, "", 0)
	server.StartTLS()
	defer server.Close()
	none := t.TempDir()
	missing := filepath.Join(none, "missing")
	own := filepath.Join(t.TempDir(), "ca.crt")
	if err := os.WriteFile(own, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw}), 0o600); err != nil {
		t.Fatal(err)
	}
	untrusted := "CertificateUntrusted: the server's certificate is not signed by an authority that is trusted here: " +
		"give its authority in tls.caSecretKeyRef or tls.caConfigMapKeyRef: x509: certificate signed by unknown authority"
	for name, tc := range map[string]struct {
		file string
		want trust
	}{
		"no certificates":                    {missing, trust{PublicRoot: true, Server: untrusted}},
		"SSL_CERT_FILE replaces public ones": {own, trust{}},
	} {
		t.Run(name, func(t *testing.T) {
			child := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestRoots$")
			child.Env = append(os.Environ(), "TEST_ROOTS_SERVER="+server.URL, "SSL_CERT_FILE="+tc.file, "SSL_CERT_DIR="+none)
			out, err := child.StderrPipe()
			if err != nil {
				t.Fatal(err)
			}
			if err := child.Start(); err != nil {
				t.Fatal(err)
			}
			var got trust
			decodeErr := json.NewDecoder(out).Decode(&got)
			if err := child.Wait(); err != nil || decodeErr != nil {
				t.Fatal(err, decodeErr)
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

func measureTrust(t *testing.T, server string) trust {
	t.Helper()
	source, err := prometheus.New(sourceclient.Options{Name: "main", Clock: clock.RealClock{}}, v1alpha1.PrometheusSource{URL: server})
	if err != nil {
		t.Fatal(err)
	}
	defer source.Close()
	var got trust
	if _, err := source.Evaluate(t.Context(), query.Query{Expression: "x"}, time.Now()); err != nil {
		f := err.(*query.Failure)
		got.Server = fmt.Sprintf("%s: %s", f.Reason, f.Message)
	}
	_, err = rootNamed(t, publicRoot).Verify(x509.VerifyOptions{KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageAny}})
	got.PublicRoot = err == nil
	return got
}

// TestTimeZones looks for the time zones in this program itself: this machine may have others.
func TestTimeZones(t *testing.T) {
	path, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	program, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	// Joined here, so that the name is not in the program for this test.
	if zone := strings.Join([]string{"Antarctica", "Troll"}, "/"); !bytes.Contains(program, []byte(zone)) {
		t.Errorf("the program has no time zone %s: import time/tzdata", zone)
	}
}

// rootNamed returns a certificate of the fallback bundle.
func rootNamed(t *testing.T, name string) *x509.Certificate {
	t.Helper()
	for root := range bundle.Roots() {
		c, err := x509.ParseCertificate(root.Certificate)
		if err != nil {
			t.Fatal(err)
		}
		if c.Subject.CommonName == name {
			return c
		}
	}
	t.Fatalf("the bundle has no root %q any more: choose another one", name)
	return nil
}
