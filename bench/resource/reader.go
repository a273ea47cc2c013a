// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bufio"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/signal"
	"syscall"
	"time"
)

// readTimeout is how long a kubelet may take for its answer.
const readTimeout = 10 * time.Second

// reader reads kubelets at an interval and parses nothing: it has one goroutine, and one
// kept connection for each kubelet. Each time it sends all requests that are due before it
// reads the first answer. Its cost is the lower limit for anything that reads the same
// kubelets over TLS.
type reader struct {
	settings bareSettings
	tls      *tls.Config
	kubelets []*kubelet
	// turn is the number of reads that were due so far. The n-th is of kubelet n modulo
	// their number.
	turn   int
	buffer *bufio.Reader
	totals bareTotals
}

// kubelet is one connection.
type kubelet struct {
	address string
	request []byte
	conn    *tls.Conn
}

// runBare runs the bare reader until its input ends or a signal arrives.
func runBare(path string) error {
	content, err := os.ReadFile(path)
	if err != nil {
		return fmt.Errorf("read the settings: %w", err)
	}
	var settings bareSettings
	if err := json.Unmarshal(content, &settings); err != nil {
		return fmt.Errorf("read the settings: %w", err)
	}
	r, err := newReader(settings)
	if err != nil {
		return err
	}
	for _, k := range r.kubelets {
		if err := k.dial(r.tls); err != nil {
			return err
		}
	}
	fmt.Print(connectedLine)
	stop := make(chan os.Signal, 1)
	signal.Notify(stop, os.Interrupt, syscall.SIGTERM)
	ended := make(chan struct{})
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		close(ended)
	}()
	began := time.Now()
	ticker := time.NewTicker(settings.Sweep)
	defer ticker.Stop()
	for running := true; running; {
		select {
		case <-ticker.C:
			r.sweep(r.due(time.Since(began)))
		case <-stop:
			running = false
		case <-ended:
			running = false
		}
	}
	return json.NewEncoder(os.Stdout).Encode(r.totals)
}

func newReader(settings bareSettings) (*reader, error) {
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(settings.CA) {
		return nil, errors.New("the CA of the kubelets has no certificate")
	}
	r := &reader{
		settings: settings, buffer: bufio.NewReaderSize(nil, 32<<10),
		tls: &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12},
	}
	for _, address := range settings.Kubelets {
		r.kubelets = append(r.kubelets, &kubelet{
			address: address,
			request: fmt.Appendf(nil, "GET /metrics/resource HTTP/1.1\r\nHost: %s\r\nUser-Agent: %s\r\nAuthorization: Bearer bare\r\n\r\n", address, userAgent),
		})
	}
	return r, nil
}

// due returns the kubelets whose turn has come, given the time since the start. Turns are
// spread evenly over the interval.
func (r *reader) due(elapsed time.Duration) []*kubelet {
	until := int(int64(elapsed) * int64(len(r.kubelets)) / int64(r.settings.Interval))
	// After a pause, each kubelet is read once.
	r.turn = max(r.turn, until-len(r.kubelets))
	var due []*kubelet
	for ; r.turn < until; r.turn++ {
		due = append(due, r.kubelets[r.turn%len(r.kubelets)])
	}
	return due
}

// sweep sends a request to each of the kubelets, and then reads the answers.
func (r *reader) sweep(due []*kubelet) {
	deadline := time.Now().Add(readTimeout)
	for _, k := range due {
		r.count(k, k.send(deadline, r.tls))
	}
	for _, k := range due {
		if k.conn != nil {
			r.count(k, r.read(k))
		}
	}
}

// count counts a failure, and closes the connection.
func (r *reader) count(k *kubelet, err error) {
	if err == nil {
		return
	}
	if r.totals.Failed++; r.totals.FirstError == "" {
		r.totals.FirstError = fmt.Sprintf("%s: %v", k.address, err)
	}
	if k.conn != nil {
		_ = k.conn.Close()
		k.conn = nil
	}
}

func (k *kubelet) dial(config *tls.Config) error {
	dialer := &tls.Dialer{NetDialer: &net.Dialer{Timeout: readTimeout}, Config: config}
	conn, err := dialer.Dial("tcp", k.address)
	if err != nil {
		return fmt.Errorf("dial kubelet %s: %w", k.address, err)
	}
	k.conn = conn.(*tls.Conn)
	return nil
}

func (k *kubelet) send(deadline time.Time, config *tls.Config) error {
	if k.conn == nil {
		if err := k.dial(config); err != nil {
			return err
		}
	}
	if err := k.conn.SetDeadline(deadline); err != nil {
		return err
	}
	_, err := k.conn.Write(k.request)
	return err
}

// read reads an answer to its end. All connections share the buffer, which is empty between
// two answers.
func (r *reader) read(k *kubelet) error {
	r.buffer.Reset(k.conn)
	answer, err := http.ReadResponse(r.buffer, nil)
	if err != nil {
		return err
	}
	n, err := io.Copy(io.Discard, answer.Body)
	_ = answer.Body.Close()
	switch {
	case err != nil:
		return err
	case answer.StatusCode != http.StatusOK:
		return fmt.Errorf("status %s", answer.Status)
	case r.buffer.Buffered() > 0:
		return fmt.Errorf("%d bytes after the answer", r.buffer.Buffered())
	}
	r.totals.Reads++
	r.totals.Bytes += n
	return nil
}
