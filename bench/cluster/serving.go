// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"

	dto "github.com/prometheus/client_model/go"
)

// Serving is the serving component as a process.
type Serving struct{ *Server }

// StartServing runs a binary with a control plane, the settings of a manifest, and the CA
// of kubelets, or nil if none is scraped.
func StartServing(c *ControlPlane, binary string, manifest, kubeletCA []byte, flags ...string) (*Serving, error) {
	files := map[string][]byte{"backend.yaml": manifest}
	if kubeletCA != nil {
		files[kubeletCAFile] = kubeletCA
	}
	s, err := StartServer(c, Program{Name: "serving", Binary: binary, Files: files, Flags: func(paths map[string]string) []string {
		all := []string{"--backend-file=" + paths["backend.yaml"], "--shutdown-delay-duration=0s"}
		if kubeletCA != nil {
			all = append(all, "--kubelet-ca-file="+paths[kubeletCAFile])
		}
		return append(all, flags...)
	}})
	if err != nil {
		return nil, err
	}
	return &Serving{s}, nil
}

// Metrics returns the metrics of the process. It is an error if one of the names is not among
// them, as after a metric was renamed.
func (s *Serving) Metrics(ctx context.Context, names ...string) (map[string]*dto.MetricFamily, error) {
	body, err := s.Get(ctx, "/metrics")
	if err != nil {
		return nil, fmt.Errorf("read serving's metrics: %w", err)
	}
	parser := expfmt.NewTextParser(model.UTF8Validation)
	families, err := parser.TextToMetricFamilies(bytes.NewReader(body))
	if err != nil {
		return nil, fmt.Errorf("parse serving's metrics: %w", err)
	}
	for _, name := range names {
		if families[name] == nil {
			return nil, fmt.Errorf("serving has no metric %s", name)
		}
	}
	return families, nil
}

// Sum returns the sum of a metric over all its series.
func Sum(families map[string]*dto.MetricFamily, name string) float64 {
	sum := 0.0
	for _, m := range families[name].GetMetric() {
		sum += m.GetGauge().GetValue() + m.GetCounter().GetValue() + m.GetUntyped().GetValue()
	}
	return sum
}

const watchesOpen = "metrics_api_watch_connections_open"

// WaitWatches waits until serving reports that many open watches. It must have had one before.
func (s *Serving) WaitWatches(ctx context.Context, want int) error {
	ticker := time.NewTicker(500 * time.Millisecond)
	defer ticker.Stop()
	for {
		families, err := s.Metrics(ctx, watchesOpen)
		if err != nil {
			return err
		}
		open := Sum(families, watchesOpen)
		if int(open) == want {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%g watches are open, waiting for %d: %w", open, want, context.Cause(ctx))
		case <-ticker.C:
		}
	}
}

// Profile is a profile of serving, by its path below /debug/pprof.
type Profile struct{ Name, Path string }

// CPUProfile returns the profile of serving's CPU over a time from when it is requested.
func CPUProfile(d time.Duration) Profile {
	return Profile{Name: "cpu", Path: fmt.Sprintf("profile?seconds=%d", max(1, int(d.Seconds())))}
}

// HeapProfile is the profile of the memory in use, after a garbage collection.
var HeapProfile = Profile{Name: "heap", Path: "heap?gc=1"}

// SaveProfiles takes profiles one after another, and writes each to NAME.PROFILE in a folder.
func (s *Serving) SaveProfiles(ctx context.Context, folder, name string, profiles ...Profile) error {
	for _, one := range profiles {
		content, err := s.Get(ctx, "/debug/pprof/"+one.Path)
		if err != nil {
			return fmt.Errorf("take the %s profile of serving: %w", one.Name, err)
		}
		if err := os.WriteFile(filepath.Join(folder, name+"."+one.Name), content, 0o600); err != nil {
			return fmt.Errorf("write the %s profile of serving: %w", one.Name, err)
		}
	}
	return nil
}
