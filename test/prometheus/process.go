// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package prometheus

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

// patience is the time that Prometheus has for what it is asked to do, on a machine that also compiles.
const patience = time.Minute

// errLate is in the error of what did not happen within patience.
var errLate = fmt.Errorf("not within %s", patience)

// Process is a Prometheus on loopback, or another server with its API.
type Process struct {
	// URL is that of its HTTP API, without a path.
	URL string

	name, folder string
	cmd          *exec.Cmd
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

// Launch runs Prometheus with a configuration, Scrape's or any other, and further
// arguments, and waits until it is ready. Its data and its log are in the folder. It
// ends with Stop, or with this process.
func Launch(ctx context.Context, folder, address, config string, args ...string) (*Process, error) {
	binary, err := Binary(ctx)
	if err != nil {
		return nil, err
	}
	configFile := filepath.Join(folder, "prometheus.yml")
	if err := os.WriteFile(configFile, []byte(config), 0o600); err != nil {
		return nil, fmt.Errorf("write Prometheus' configuration: %w", err)
	}
	return run(ctx, "Prometheus", binary, folder, address, append([]string{
		"--config.file=" + configFile, "--storage.tsdb.path=" + filepath.Join(folder, "data"),
		"--web.listen-address=" + address, "--log.level=warn",
	}, args...)...)
}

// run starts a server, and waits until it is ready.
func run(ctx context.Context, name, binary, folder, address string, args ...string) (*Process, error) {
	p := &Process{URL: "http://" + address, name: name, folder: folder, ended: make(chan struct{})}
	p.cmd = exec.Command(binary, args...)
	log, err := os.OpenFile(p.logFile(), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, fmt.Errorf("open the log of %s: %w", name, err)
	}
	p.cmd.Stdout, p.cmd.Stderr = log, log
	p.cmd.SysProcAttr = dieWithParent()
	err = p.cmd.Start()
	_ = log.Close()
	if err != nil {
		return nil, fmt.Errorf("start %s: %w", name, err)
	}
	go func() {
		p.err = p.cmd.Wait()
		close(p.ended)
	}()
	err = p.eventually(ctx, "is ready", func(ctx context.Context) error {
		_, err := p.Get(ctx, "/-/ready")
		return err
	})
	if err != nil {
		return nil, errors.Join(err, p.Stop())
	}
	return p, nil
}

// PID of the process.
func (p *Process) PID() int { return p.cmd.Process.Pid }

// Stop ends the process in order, and if need be by force.
func (p *Process) Stop() error {
	// It may have ended by itself.
	_ = p.cmd.Process.Signal(syscall.SIGTERM)
	timer := time.NewTimer(patience)
	defer timer.Stop()
	select {
	case <-p.ended:
		return nil
	case <-timer.C:
		_ = p.cmd.Process.Kill()
		<-p.ended
		return fmt.Errorf("end %s: not within %s, so it was killed", p.name, patience)
	}
}

// WaitFor waits until an expression has a result.
func (p *Process) WaitFor(ctx context.Context, expression string) error {
	return p.eventually(ctx, "has a result for "+expression, func(ctx context.Context) error {
		body, err := p.Get(ctx, "/api/v1/query?query="+url.QueryEscape(expression))
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

// Get returns what it answers; any status but 200 is an error.
func (p *Process) Get(ctx context.Context, path string) ([]byte, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, p.URL+path, nil)
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
		err = fmt.Errorf("%s answers %s: %.300s", path, answer.Status, body)
	}
	return body, err
}

func (p *Process) logFile() string { return filepath.Join(p.folder, "log") }

// log is the end of what it said.
func (p *Process) log() string {
	content, err := os.ReadFile(p.logFile())
	if err != nil {
		return err.Error()
	}
	return string(content[max(0, len(content)-4000):])
}

// eventually tries until check returns nil, and fails when the process ends before.
func (p *Process) eventually(ctx context.Context, what string, check func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for {
		err := check(ctx)
		if err == nil {
			return nil
		}
		select {
		case <-tick.C:
		case <-p.ended:
			return fmt.Errorf("wait until %s %s: it has ended: %w\n%s", p.name, what, p.err, p.log())
		case <-ctx.Done():
			return fmt.Errorf("wait until %s %s: %w: %w\n%s", p.name, what, errLate, err, p.log())
		}
	}
}
