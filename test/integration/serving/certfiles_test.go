//go:build integration

// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package serving

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"net"
	"os"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/metricsbackend/metrics-backend-operator/test/authority"
	"github.com/metricsbackend/metrics-backend-operator/test/outcome"
)

// TestCertificateFilesBroken: while the files are invalid, the last valid pair is served, each new connection works, and
// the log has the error. The next valid pair is served without a restart.
func TestCertificateFilesBroken(t *testing.T) {
	beside(t)
	p, _ := startAlone(t, "swapped")
	p.waitReady(t)
	name := "swapped." + servingNamespace + ".svc"
	certFile, keyFile := p.folder+"/tls.crt", p.folder+"/tls.key"
	read := func(path string) []byte {
		content, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		return content
	}
	certificate, key := read(certFile), read(keyFile)
	foreign, err := cluster.servingCA.Issue(name, []string{name})
	if err != nil {
		t.Fatal(err)
	}
	first := servedSerial(t, p, cluster.servingCA, name)

	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	var connections, failed atomic.Int32
	done := make(chan struct{})
	go func() {
		defer close(done)
		for ctx.Err() == nil {
			if _, err := dialSerial(p, cluster.servingCA, name); err != nil {
				failed.Add(1)
				t.Errorf("connection %d: %v", connections.Load(), err)
			}
			connections.Add(1)
		}
	}()
	steps := []struct {
		what, path string
		content    []byte
		says       string
	}{
		{"garbage for a certificate", certFile, []byte("\x00\xffgarbage"), "tls: failed to find any PEM data in certificate input"},
		{"the first half of a certificate", certFile, certificate[:len(certificate)/2], "tls: failed to find any PEM data in certificate input"},
		{"an empty certificate", certFile, nil, "tls: failed to find any PEM data in certificate input"},
		{"a certificate whose key has not come yet", certFile, foreign.Certificate, "tls: private key does not match public key"},
		{"the first half of a key", keyFile, key[:len(key)/2], "tls: failed to find any PEM data in key input"},
	}
	for _, step := range steps {
		before := strings.Count(p.log.String(), step.says)
		replace(t, step.path, step.content)
		outcome.Eventually(t, 90*time.Second, step.what+" is logged", func(context.Context) error {
			if strings.Count(p.log.String(), step.says) <= before {
				return fmt.Errorf("%q is not in the log again", step.says)
			}
			return nil
		})
		if now := servedSerial(t, p, cluster.servingCA, name); now != first {
			t.Errorf("%s: another certificate is served", step.what)
		}
		if err := p.ready(t.Context()); err != nil {
			t.Errorf("%s: %v", step.what, err)
		}
		earlier := connections.Load()
		outcome.Eventually(t, 90*time.Second, step.what+" while connections are opened", func(context.Context) error {
			// The first one may have been opened before the step.
			if now := connections.Load(); now < earlier+2 {
				return fmt.Errorf("%d connections", now-earlier)
			}
			return nil
		})
	}
	replace(t, keyFile, foreign.Key)
	outcome.Eventually(t, 90*time.Second, "the next good pair is served", func(context.Context) error {
		if now := servedSerial(t, p, cluster.servingCA, name); now == first {
			return fmt.Errorf("still the first")
		}
		return nil
	})
	stop()
	<-done
	t.Logf("%d connections meanwhile, %d failed", connections.Load(), failed.Load())
}

func servedSerial(t *testing.T, p *process, a *authority.Authority, name string) string {
	t.Helper()
	serial, err := dialSerial(p, a, name)
	if err != nil {
		t.Fatalf("connect: %v", err)
	}
	return serial
}

func dialSerial(p *process, a *authority.Authority, name string) (string, error) {
	roots := x509.NewCertPool()
	roots.AddCert(a.Certificate)
	connection, err := tls.DialWithDialer(&net.Dialer{Timeout: 30 * time.Second}, "tcp", "127.0.0.1:"+strconv.Itoa(int(p.port)), &tls.Config{RootCAs: roots, ServerName: name, MinVersion: tls.VersionTLS12})
	if err != nil {
		return "", err
	}
	defer connection.Close()
	return connection.ConnectionState().PeerCertificates[0].SerialNumber.String(), nil
}
