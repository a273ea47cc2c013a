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
	// A container without a CPU limit sees the node's cores, one with a limit fewer; each worker needs its own thread to be measured.
	runtime.GOMAXPROCS(max(runtime.GOMAXPROCS(0), len(shares)+1))
	var workers sync.WaitGroup
	for _, share := range shares {
		workers.Go(func() { burn(ctx, share) })
	}
	<-ctx.Done()
	workers.Wait()
	runtime.KeepAlive(held)
	return nil
}

// split gives each thread at most one core, in equal parts of a core, 0 to 1.
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

// burn works until its thread has used its share of the time, and rests for what is left of the period.
// What it could not use, because others had the CPU, is made up for, up to two periods, and beyond that forgotten.
func burn(ctx context.Context, share float64) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	ticker := time.NewTicker(period)
	defer ticker.Stop()
	last, used := time.Now(), threadTime()
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
		for until := used + owed; threadTime() < until && ctx.Err() == nil; {
			work = spin(work)
		}
		now := threadTime()
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

// threadTime is the CPU time of this thread.
func threadTime() time.Duration {
	var t unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_THREAD_CPUTIME_ID, &t); err != nil {
		return 0
	}
	return time.Duration(t.Nano())
}
