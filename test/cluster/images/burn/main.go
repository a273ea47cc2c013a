// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

// Command burn uses a given share of CPU and a given amount of memory, steadily, until it is told to end.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"runtime"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
	"k8s.io/apimachinery/pkg/api/resource"
)

// period is the length of one turn of work and rest: short beside a CFS quota period of 100 ms.
const period = 20 * time.Millisecond

func main() {
	millicores := flag.Int("millicores", 200, "CPU to use, in thousandths of a core")
	memory := flag.String("memory", "0", "memory to hold, as a Kubernetes quantity, for example 64Mi")
	flag.Parse()
	if err := run(*millicores, *memory); err != nil {
		fmt.Fprintln(os.Stderr, "burn:", err)
		os.Exit(2)
	}
}

func run(millicores int, memory string) error {
	if millicores < 0 {
		return fmt.Errorf("--millicores=%d: must not be negative", millicores)
	}
	quantity, err := resource.ParseQuantity(memory)
	if err != nil || quantity.Sign() < 0 {
		return fmt.Errorf("--memory=%q: must be a quantity that is not negative, for example 64Mi", memory)
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	held := hold(int(quantity.Value()))
	shares := split(millicores)
	// With a CPU limit the runtime would use as many threads as the limit has cores: fewer than workers.
	runtime.GOMAXPROCS(max(runtime.GOMAXPROCS(0), len(shares)+1))
	var workers sync.WaitGroup
	for _, share := range shares {
		workers.Go(func() { burn(ctx, share, len(shares)) })
	}
	fmt.Printf("using %dm of CPU and holding %s of memory\n", millicores, quantity.String())
	<-ctx.Done()
	workers.Wait()
	runtime.KeepAlive(held)
	return nil
}

// split gives each worker at most one core, in equal parts of a core, 0 to 1.
func split(millicores int) []float64 {
	count := (millicores + 999) / 1000
	shares := make([]float64, count)
	for i := range shares {
		shares[i] = float64(millicores) / 1000 / float64(count)
	}
	return shares
}

// hold touches every page, or the kernel would not give the memory at all.
func hold(size int) []byte {
	held := make([]byte, size)
	for i := 0; i < len(held); i += os.Getpagesize() {
		held[i] = 1
	}
	return held
}

// burn works until the process has used this worker's share of the time, one of several equal ones, and
// rests for what is left of the period. What it could not use, because others had the CPU, is made up for,
// up to two periods, and beyond that forgotten. The time is the whole process's: the runtime's own threads
// would otherwise add a hundredth of a core.
func burn(ctx context.Context, share float64, workers int) {
	cpuTime := func() time.Duration { return processTime() / time.Duration(workers) }
	ticker := time.NewTicker(period)
	defer ticker.Stop()
	last, used := time.Now(), cpuTime()
	var (
		owed time.Duration
		work uint64 = 1
	)
	// Used at the end, so that the compiler cannot do without the work.
	defer func() { runtime.KeepAlive(work) }()
	for {
		select {
		case <-ctx.Done():
			return
		case now := <-ticker.C:
			owed = min(owed+time.Duration(share*float64(now.Sub(last))), 2*period)
			last = now
		}
		for until := used + owed; cpuTime() < until && ctx.Err() == nil; {
			work = spin(work)
		}
		now := cpuTime()
		owed -= now - used
		used = now
	}
}

// spin is some ten microseconds of arithmetic, so that asking for the time costs little beside it.
func spin(x uint64) uint64 {
	for range 10_000 {
		x ^= x << 13
		x ^= x >> 7
		x ^= x << 17
	}
	return x
}

// processTime is the CPU time of all threads together.
func processTime() time.Duration {
	var t unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_PROCESS_CPUTIME_ID, &t); err != nil {
		return 0
	}
	return time.Duration(t.Nano())
}
