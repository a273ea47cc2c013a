// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

// Package outcome reports failures of tests on a real cluster, so that hack/testrun can distinguish three kinds: what
// must never happen (Unsafe), what took longer than its bound (Measure), and what did not happen before a deadline
// (Eventually). docs/testing.md has the policy.
//
// The kinds are attributes of the test in the output of `go test -json`. A failure without one, as by t.Fatal, counts as
// one that must never happen; but after a missed deadline, as in a cleanup, only Unsafe does.
package outcome

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"
)

// The keys of the attributes that hack/testrun reads.
const (
	// SafetyKey marks a test in which something happened that must never happen.
	SafetyKey = "safety"
	// DeadlineKey marks a test whose first failure is a missed deadline.
	DeadlineKey = "deadline"
	// MeasureKey marks a measured value: "within" or "beyond", its name, its value and its bound, tab-separated.
	MeasureKey = "measure"
	// BeginKey marks the start of a test's duration.
	BeginKey = "begin"
)

// TierVariable is the environment variable with the tier of a run: test, long or soak.
const TierVariable = "TEST_TIER"

// Unsafe fails the test for something that must never happen, however slow the machine is: a failed request, a lost
// or duplicate data point, a wrong value, a stale registration, a restarted pod. A test that calls it is not run again.
func Unsafe(t testing.TB, format string, args ...any) {
	t.Helper()
	t.Attr(SafetyKey, "unsafe")
	t.Errorf(format, args...)
}

// Begin restarts the duration of the test, for one that had to wait before it could start, such as for a slot among
// parallel tests.
func Begin(t testing.TB) { t.Attr(BeginKey, "now") }

// Eventually polls check until it returns nil, and stops the test with its last error after the timeout. Only a test
// that fails in this way, and in no other, may be run again.
func Eventually(t testing.TB, timeout time.Duration, what string, check func(context.Context) error) {
	t.Helper()
	if err := Poll(t.Context(), timeout, check); err != nil {
		Deadlinef(t, "%s: not within %s: %v", what, timeout, err)
	}
}

// Deadlinef stops the test because of a missed deadline, and records the load of the machine.
func Deadlinef(t testing.TB, format string, args ...any) {
	t.Helper()
	if !t.Failed() {
		t.Attr(DeadlineKey, pressure())
	}
	t.Fatalf(format, args...)
}

// Poll calls check until it returns nil or the timeout has passed, and returns its last error. It polls quickly at
// first, then four times a second.
func Poll(ctx context.Context, timeout time.Duration, check func(context.Context) error) error {
	var last error
	intervals := wait.Backoff{Duration: 25 * time.Millisecond, Factor: 1.5, Steps: 7, Cap: 250 * time.Millisecond}
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	err := intervals.DelayFunc().Until(ctx, true, false, func(ctx context.Context) (bool, error) {
		err := check(ctx)
		if ctx.Err() == nil || last == nil {
			// The error of a check that was interrupted by the timeout is less useful.
			last = err
		}
		return err == nil, nil
	})
	if err != nil && last != nil {
		return last
	}
	return err
}

// Measure records a measured value, such as a duration or a ratio, and its upper bound. A value beyond its bound fails
// the test only in the soak tier: in the others many tests share the machine.
func Measure[T cmp.Ordered](t testing.TB, name string, got, bound T) {
	t.Helper()
	verdict := "within"
	if got > bound {
		verdict = "beyond"
	}
	t.Attr(MeasureKey, strings.Join([]string{verdict, name, text(got), text(bound)}, "\t"))
	line := fmt.Sprintf("%s: %s, %s its bound of %s", name, text(got), verdict, text(bound))
	if got > bound && os.Getenv(TierVariable) == "soak" {
		t.Error(line)
	} else {
		t.Log(line)
	}
}

func text(figure any) string {
	if duration, ok := figure.(time.Duration); ok {
		figure = duration.Round(time.Millisecond)
	}
	return fmt.Sprint(figure)
}

// pressure returns the kernel's pressure stall information (PSI) for CPU, memory and I/O, if available, and the load
// average.
func pressure() string {
	var parts []string
	for _, resource := range []string{"cpu", "memory", "io"} {
		text, err := os.ReadFile("/proc/pressure/" + resource)
		if err != nil {
			continue
		}
		some, _, _ := strings.Cut(string(text), "\n")
		parts = append(parts, resource+" "+some)
	}
	if load, err := os.ReadFile("/proc/loadavg"); err == nil {
		parts = append(parts, "load "+strings.TrimSpace(string(load)))
	}
	return strings.Join(parts, "; ")
}
