// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package prometheus

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// ready is the time that Prometheus has to start, on a machine that also compiles.
const ready = time.Minute

// Server is a Prometheus that runs on loopback until its test has ended.
type Server struct {
	// URL is that of its HTTP API, without a path.
	URL string

	binary, folder, address string
	process                 *process
}

type process struct {
	cmd *exec.Cmd
	// ended is closed when the process is gone, and err is why.
	ended chan struct{}
	err   error
}

// Scrape is a configuration that scrapes the targets, URLs or HOST:PORT, each second.
func Scrape(targets ...string) string {
	var b strings.Builder
	b.WriteString("global: {scrape_interval: 1s, scrape_timeout: 1s}\nscrape_configs:\n- job_name: test\n" +
		// A test's series have the labels that it gave them, no others.
		"  honor_labels: true\n  static_configs:\n")
	for _, target := range targets {
		fmt.Fprintf(&b, "  - targets: [%q]\n", strings.TrimPrefix(target, "http://"))
	}
	return b.String()
}

// Start runs Prometheus with a configuration, Scrape's or any other, and further
// arguments, until the test has ended.
func Start(t testing.TB, config string, args ...string) *Server {
	t.Helper()
	binary, err := Binary(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	address, err := freeAddress()
	if err != nil {
		t.Fatalf("find a port for Prometheus: %v", err)
	}
	s := &Server{URL: "http://" + address, binary: binary, folder: t.TempDir(), address: address}
	s.configure(t, config)
	t.Cleanup(func() {
		if s.process != nil {
			s.Stop(t)
		}
	})
	s.Run(t, args...)
	return s
}

// Run starts a stopped server again, with the data that it has, and waits for it.
func (s *Server) Run(t testing.TB, args ...string) {
	t.Helper()
	cmd := exec.Command(s.binary, append([]string{
		"--config.file=" + s.configFile(), "--storage.tsdb.path=" + filepath.Join(s.folder, "data"),
		"--web.listen-address=" + s.address, "--web.enable-lifecycle", "--log.level=warn",
	}, args...)...)
	log, err := os.OpenFile(filepath.Join(s.folder, "log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		t.Fatalf("open Prometheus' log: %v", err)
	}
	cmd.Stdout, cmd.Stderr = log, log
	// A test that is killed leaves none behind.
	cmd.SysProcAttr = dieWithParent()
	err = cmd.Start()
	_ = log.Close()
	if err != nil {
		t.Fatalf("start Prometheus: %v", err)
	}
	s.process = &process{cmd: cmd, ended: make(chan struct{})}
	go func(p *process) {
		p.err = p.cmd.Wait()
		close(p.ended)
	}(s.process)
	s.eventually(t, "is ready", func(ctx context.Context) error {
		_, err := s.get(ctx, http.MethodGet, "/-/ready")
		return err
	})
}

// Stop ends the server in order, as a source that goes down; Run starts it again.
func (s *Server) Stop(t testing.TB) {
	t.Helper()
	p := s.process
	s.process = nil
	// It may have ended by itself.
	_ = p.cmd.Process.Signal(syscall.SIGTERM)
	timer := time.NewTimer(ready)
	defer timer.Stop()
	select {
	case <-p.ended:
	case <-timer.C:
		_ = p.cmd.Process.Kill()
		<-p.ended
		t.Errorf("Prometheus did not end within %s", ready)
	}
}

// Reload puts another configuration in force.
func (s *Server) Reload(t testing.TB, config string) {
	t.Helper()
	s.configure(t, config)
	if _, err := s.get(t.Context(), http.MethodPost, "/-/reload"); err != nil {
		t.Fatalf("reload Prometheus: %v\n%s", err, s.log())
	}
}

// WaitFor waits until an expression has a result.
func (s *Server) WaitFor(t testing.TB, expression string) {
	t.Helper()
	s.eventually(t, "has a result for "+expression, func(ctx context.Context) error {
		body, err := s.get(ctx, http.MethodGet, "/api/v1/query?query="+url.QueryEscape(expression))
		if err != nil {
			return err
		}
		var answer struct {
			Data struct {
				Result []json.RawMessage `json:"result"`
			} `json:"data"`
		}
		if err := json.Unmarshal(body, &answer); err != nil {
			return fmt.Errorf("decode %.200s: %w", body, err)
		}
		if len(answer.Data.Result) == 0 {
			return errors.New("the result is empty")
		}
		return nil
	})
}

func (s *Server) configure(t testing.TB, config string) {
	t.Helper()
	if err := os.WriteFile(s.configFile(), []byte(config), 0o600); err != nil {
		t.Fatalf("write Prometheus' configuration: %v", err)
	}
}

func (s *Server) configFile() string { return filepath.Join(s.folder, "prometheus.yml") }

// log is the end of what it said.
func (s *Server) log() string {
	content, err := os.ReadFile(filepath.Join(s.folder, "log"))
	if err != nil {
		return err.Error()
	}
	return string(content[max(0, len(content)-4000):])
}

func (s *Server) get(ctx context.Context, method, path string) ([]byte, error) {
	request, err := http.NewRequestWithContext(ctx, method, s.URL+path, nil)
	if err != nil {
		return nil, err
	}
	answer, err := http.DefaultClient.Do(request)
	if err != nil {
		return nil, err
	}
	defer func() { _ = answer.Body.Close() }()
	body, err := io.ReadAll(answer.Body)
	if err == nil && answer.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s: %.300s", answer.Status, body)
	}
	return body, err
}

// eventually tries until check returns nil, and fails when the process ends before.
func (s *Server) eventually(t testing.TB, what string, check func(context.Context) error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), ready)
	defer cancel()
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for {
		err := check(ctx)
		if err == nil {
			return
		}
		select {
		case <-tick.C:
		case <-s.process.ended:
			t.Fatalf("Prometheus has ended before it %s: %v\n%s", what, s.process.err, s.log())
		case <-ctx.Done():
			t.Fatalf("Prometheus %s: not within %s: %v\n%s", what, ready, err, s.log())
		}
	}
}

// given are the ports that this process gave away: the kernel may name one again.
var given sync.Map

func freeAddress() (string, error) {
	for {
		listener, err := (&net.ListenConfig{}).Listen(context.Background(), "tcp", "127.0.0.1:0")
		if err != nil {
			return "", err
		}
		address := listener.Addr().String()
		if err := listener.Close(); err != nil {
			return "", err
		}
		if _, taken := given.LoadOrStore(address, true); !taken {
			return address, nil
		}
	}
}
