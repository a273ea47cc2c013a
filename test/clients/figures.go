// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package clients

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
)

// The platform's own figures of a metrics API.
const (
	unavailable      = "aggregator_unavailable_apiservice"
	unavailableTotal = "aggregator_unavailable_apiservice_total"
	terminations     = "apiserver_request_terminations_total"
	computations     = "horizontal_pod_autoscaler_controller_metric_computation_total"
	computationTime  = "horizontal_pod_autoscaler_controller_metric_computation_duration_seconds"
)

// figures are metric families of kube-apiserver and of the controller manager.
type figures map[string]*dto.MetricFamily

func (c *Clients) readFigures(ctx context.Context) (figures, error) {
	all, err := scrape(ctx, c.core, unavailable, unavailableTotal, terminations)
	if err != nil {
		return nil, fmt.Errorf("read kube-apiserver's figures: %w", err)
	}
	if c.options.ControllerManager == "" {
		return all, nil
	}
	config := rest.CopyConfig(c.options.Config)
	config.Host = c.options.ControllerManager
	manager, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, err
	}
	more, err := scrape(ctx, manager, computations, computationTime)
	if err != nil {
		return nil, fmt.Errorf("read the controller manager's figures: %w", err)
	}
	maps.Copy(all, more)
	return all, nil
}

// scrape reads the families by name from /metrics, which holds thousands of others.
func scrape(ctx context.Context, core *kubernetes.Clientset, names ...string) (figures, error) {
	stream, err := core.RESTClient().Get().AbsPath("/metrics").Stream(ctx)
	if err != nil {
		return nil, err
	}
	defer func() { _ = stream.Close() }()
	return parse(stream, names...)
}

func parse(text io.Reader, names ...string) (figures, error) {
	var wanted bytes.Buffer
	lines := bufio.NewScanner(text)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		line := strings.TrimPrefix(strings.TrimPrefix(lines.Text(), "# HELP "), "# TYPE ")
		if slices.ContainsFunc(names, func(name string) bool { return strings.HasPrefix(line, name) }) {
			wanted.Write(lines.Bytes())
			wanted.WriteByte('\n')
		}
	}
	if err := lines.Err(); err != nil {
		return nil, err
	}
	parser := expfmt.NewTextParser(model.UTF8Validation)
	families, err := parser.TextToMetricFamilies(&wanted)
	return families, err
}

// sum adds up the values with these labels: a counter's, a gauge's, or the number of
// observations of a histogram.
func (f figures) sum(family string, labels map[string]string) float64 {
	total := 0.0
	for _, m := range f[family].GetMetric() {
		if matches(m, labels) {
			total += m.GetCounter().GetValue() + m.GetGauge().GetValue() + float64(m.GetHistogram().GetSampleCount())
		}
	}
	return total
}

// seconds adds up what a histogram observed.
func (f figures) seconds(family string) float64 {
	total := 0.0
	for _, m := range f[family].GetMetric() {
		total += m.GetHistogram().GetSampleSum()
	}
	return total
}

func matches(m *dto.Metric, labels map[string]string) bool {
	found := 0
	for _, pair := range m.GetLabel() {
		if want, ok := labels[pair.GetName()]; ok && want == pair.GetValue() {
			found++
		}
	}
	return found == len(labels)
}

// sampleFigures looks whether a version that is registered is unavailable.
func (c *Clients) sampleFigures(ctx context.Context) {
	ticker := time.NewTicker(figuresPeriod)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		// Registered before and after: the figure of one that just went says nothing.
		before, err := c.registered(ctx)
		var sample figures
		if err == nil {
			sample, err = scrape(ctx, c.core, unavailable)
		}
		var after []string
		if err == nil {
			after, err = c.registered(ctx)
		}
		if ctx.Err() != nil {
			return
		}
		c.mu.Lock()
		c.result.FigureSamples++
		if err != nil {
			c.result.fail("%s: read figures: %v", clock(time.Now()), err)
		}
		for _, name := range before {
			if slices.Contains(after, name) && sample.sum(unavailable, map[string]string{"name": name}) != 0 {
				c.result.fail("%s: %s{name=%q} is not 0", clock(time.Now()), unavailable, name)
			}
		}
		c.mu.Unlock()
	}
}

// registered are the names of the APIServices of the metrics API.
func (c *Clients) registered(ctx context.Context) ([]string, error) {
	var names []string
	for _, version := range []string{"v1", "v1beta1"} {
		name := version + "." + group
		err := c.core.RESTClient().Get().AbsPath("/apis/apiregistration.k8s.io/v1/apiservices", name).Do(ctx).Error()
		switch {
		case err == nil:
			names = append(names, name)
		case !apierrors.IsNotFound(err):
			return nil, err
		}
	}
	return names, nil
}
