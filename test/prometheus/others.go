// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package prometheus

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/metricsbackend/metrics-backend-operator/test/freeport"
)

// StartVictoriaMetrics runs the single-node VictoriaMetrics with a scrape configuration and further
// arguments until the test has ended. The first call on a machine compiles it.
func StartVictoriaMetrics(t testing.TB, config string, args ...string) *Server {
	t.Helper()
	folder := t.TempDir()
	configFile := filepath.Join(folder, "scrape.yml")
	if err := os.WriteFile(configFile, []byte(config), 0o600); err != nil {
		t.Fatal(err)
	}
	address := freeport.Address(t)
	process, err := runOther(t.Context(), "victoria-metrics", folder, address, append([]string{
		"-httpListenAddr=" + address, "-storageDataPath=" + filepath.Join(folder, "data"), "-promscrape.config=" + configFile, "-loggerLevel=WARN",
	}, args...)...)
	return serverOf(t, process, err)
}

// StartThanosSidecar runs Thanos' sidecar of a Prometheus, whose configuration needs external_labels,
// and returns it with the address of its StoreAPI. The first call on a machine compiles it.
func StartThanosSidecar(t testing.TB, prometheus *Server) (sidecar *Server, store string) {
	t.Helper()
	folder, address := t.TempDir(), freeport.Address(t)
	store = freeport.Address(t)
	process, err := runOther(t.Context(), "thanos", folder, address, "sidecar", "--http-address="+address, "--grpc-address="+store,
		"--prometheus.url="+prometheus.URL, "--tsdb.path="+filepath.Join(prometheus.process.folder, "data"), "--log.level=warn")
	return serverOf(t, process, err), store
}

// StartThanosQuery runs Thanos' querier over stores, each given by a flag such as --endpoint=ADDRESS.
func StartThanosQuery(t testing.TB, args ...string) *Server {
	t.Helper()
	address, grpc := freeport.Address(t), freeport.Address(t)
	process, err := runOther(t.Context(), "thanos", t.TempDir(), address, append([]string{
		"query", "--http-address=" + address, "--grpc-address=" + grpc, "--log.level=warn",
	}, args...)...)
	return serverOf(t, process, err)
}

// runOther runs another server, which hack/build-program.sh builds unless it has.
func runOther(ctx context.Context, name, folder, address string, args ...string) (*Process, error) {
	module, err := exec.CommandContext(ctx, "go", "env", "GOMOD").Output()
	if err != nil {
		return nil, fmt.Errorf("find the repository: %w", err)
	}
	var log bytes.Buffer
	build := exec.CommandContext(ctx, filepath.Join(filepath.Dir(strings.TrimSpace(string(module))), "hack", "build-program.sh"), name)
	build.Stderr = &log
	binaries, err := build.Output()
	if err != nil {
		return nil, fmt.Errorf("build %s: %w\n%s", name, err, &log)
	}
	return run(ctx, name, filepath.Join(strings.TrimSpace(string(binaries)), name), folder, address, args...)
}
