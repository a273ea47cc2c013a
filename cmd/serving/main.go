// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

// Command serving is the aggregated API server of the metrics APIs.
package main

import (
	"os"
	"runtime"
	"runtime/debug"
	"runtime/metrics"
	"time"

	// The image has neither time zones nor CA certificates. Files of the system take precedence
	// over both, and those that SSL_CERT_FILE and SSL_CERT_DIR name.
	_ "time/tzdata"

	_ "golang.org/x/crypto/x509roots/fallback"
	"k8s.io/component-base/cli"

	"github.com/metricsbackend/metrics-backend-operator/internal/memorylimit"
	"github.com/metricsbackend/metrics-backend-operator/serving/server"
)

func main() {
	lowerGCPercent(os.Getenv)
	memorylimit.Set(os.Getenv, os.DirFS(memorylimit.Cgroup))
	os.Exit(cli.Run(server.NewCommand()))
}

const (
	// gcPercent is the default of GOGC. With Go's own, 100, serving keeps as much garbage as memory
	// in use, and it allocates little, so that collecting more often costs little: with 1,000 nodes
	// 30 instead of 50 takes 14 MiB less and at most 1 mCPU more. Prometheus sets 75.
	gcPercent = 30
	// busyGarbage is how much garbage is kept where that is more: a small heap would be collected
	// each few MiB, which took a tenth of the CPU of serving external metrics. A process that needs
	// longer than calm for it keeps idleGarbage: collections are rare anyway.
	busyGarbage = 12 << 20
	idleGarbage = 4 << 20
	calm        = 10 * time.Second
)

// lowerGCPercent has garbage collected by gcPercent and the least garbage unless GOGC is set. GOMEMLIMIT
// applies in either case, and makes collections more frequent.
func lowerGCPercent(getenv func(string) string) {
	if getenv("GOGC") == "" {
		adjustGCPercent(collection{ended: time.Now()})
	}
}

// collection is a garbage collection, after which percent was set.
type collection struct {
	percent int
	ended   time.Time
}

// adjustGCPercent sets the percentage for the memory in use, now and after each collection.
func adjustGCPercent(before collection) {
	live := []metrics.Sample{{Name: "/gc/heap/live:bytes"}}
	metrics.Read(live)
	next := collection{ended: time.Now()}
	next.percent = gcPercentOf(live[0].Value.Uint64(), next.ended.Sub(before.ended))
	if next.percent != before.percent { // setting it stops all goroutines for a moment
		debug.SetGCPercent(next.percent)
	}
	runtime.AddCleanup(new([64]byte), adjustGCPercent, next)
}

// gcPercentOf returns the percentage for a heap with so many bytes in use, so long after the collection before.
func gcPercentOf(live uint64, since time.Duration) int {
	garbage := uint64(busyGarbage)
	if since > calm {
		garbage = idleGarbage
	}
	// In steps of 10, as the bytes vary a little.
	return max(gcPercent, int(min(garbage*10/max(live, 1), 40))*10)
}
