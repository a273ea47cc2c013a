// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"bytes"
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
	"strconv"
	"syscall"
	"time"

	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/metricsbackend/metrics-backend-operator/test/prometheus"
)

// Prometheus is a real one, as a process.
type Prometheus struct {
	URL string

	command *exec.Cmd
	ended   chan struct{}
}

// StartPrometheus scrapes a target each second, and keeps its data in a folder.
func StartPrometheus(ctx context.Context, folder, target string) (*Prometheus, error) {
	binary, err := prometheus.Binary(ctx)
	if err != nil {
		return nil, err
	}
	port, err := freePort()
	if err != nil {
		return nil, err
	}
	config, address := filepath.Join(folder, "prometheus.yml"), net.JoinHostPort("127.0.0.1", strconv.Itoa(port))
	if err := os.WriteFile(config, []byte(prometheus.Scrape(target)), 0o600); err != nil {
		return nil, fmt.Errorf("write Prometheus' configuration: %w", err)
	}
	log, err := os.Create(filepath.Join(folder, "prometheus.log"))
	if err != nil {
		return nil, fmt.Errorf("create Prometheus' log: %w", err)
	}
	p := &Prometheus{URL: "http://" + address, ended: make(chan struct{})}
	p.command = exec.Command(binary, "--config.file="+config, "--storage.tsdb.path="+filepath.Join(folder, "prometheus"), "--web.listen-address="+address)
	p.command.Stdout, p.command.Stderr = log, log
	if err := p.command.Start(); err != nil {
		_ = log.Close()
		return nil, fmt.Errorf("start Prometheus: %w", err)
	}
	go func() {
		_ = p.command.Wait()
		_ = log.Close()
		close(p.ended)
	}()
	err = wait.PollUntilContextTimeout(ctx, 100*time.Millisecond, time.Minute, true, func(ctx context.Context) (bool, error) {
		_, err := p.get(ctx, "/-/ready")
		return err == nil, nil
	})
	if err != nil {
		return nil, errors.Join(fmt.Errorf("wait for Prometheus: %w", err), p.Stop())
	}
	return p, nil
}

// PID of the process.
func (p *Prometheus) PID() int { return p.command.Process.Pid }

// Stop ends the process.
func (p *Prometheus) Stop() error {
	if err := p.command.Process.Signal(syscall.SIGTERM); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return fmt.Errorf("stop Prometheus: %w", err)
	}
	<-p.ended
	return nil
}

// WaitFor waits until it has a sample of a series.
func (p *Prometheus) WaitFor(ctx context.Context, series string) error {
	var answer struct {
		Data struct{ Result []json.RawMessage }
	}
	err := wait.PollUntilContextTimeout(ctx, 100*time.Millisecond, time.Minute, true, func(ctx context.Context) (bool, error) {
		body, err := p.get(ctx, "/api/v1/query?query="+url.QueryEscape(series))
		if err != nil {
			return false, err
		}
		err = json.Unmarshal(body, &answer)
		return len(answer.Data.Result) > 0, err
	})
	if err != nil {
		return fmt.Errorf("wait until Prometheus has %s: %w", series, err)
	}
	return nil
}

// Queries is how many instant queries it has answered, as it counts itself.
func (p *Prometheus) Queries(ctx context.Context) (int, error) {
	body, err := p.get(ctx, "/metrics")
	if err != nil {
		return 0, fmt.Errorf("read Prometheus' own metrics: %w", err)
	}
	parser := expfmt.NewTextParser(model.UTF8Validation)
	families, err := parser.TextToMetricFamilies(bytes.NewReader(body))
	if err != nil {
		return 0, fmt.Errorf("parse Prometheus' own metrics: %w", err)
	}
	sum := 0.0
	for _, m := range families["prometheus_http_requests_total"].GetMetric() {
		for _, label := range m.GetLabel() {
			if label.GetName() == "handler" && label.GetValue() == "/api/v1/query" {
				sum += m.GetCounter().GetValue()
			}
		}
	}
	return int(sum), nil
}

func (p *Prometheus) get(ctx context.Context, path string) ([]byte, error) {
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
