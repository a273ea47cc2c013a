// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package outcome

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// recorder is a testing.TB that records attributes and failures.
type recorder struct {
	testing.TB
	records []string
}

func (r *recorder) Helper()                  {}
func (r *recorder) Context() context.Context { return r.TB.Context() }
func (r *recorder) Failed() bool             { return strings.Contains(strings.Join(r.records, "\n"), "error") }
func (r *recorder) Log(args ...any)          { r.record("log", fmt.Sprint(args...)) }
func (r *recorder) Error(args ...any)        { r.record("error", fmt.Sprint(args...)) }

func (r *recorder) Errorf(format string, args ...any) {
	r.record("error", fmt.Sprintf(format, args...))
}

func (r *recorder) Attr(key, value string) {
	if key == DeadlineKey && value != "" {
		value = "(pressure)"
	}
	r.record(key, value)
}

func (r *recorder) Fatalf(format string, args ...any) {
	r.record("error", fmt.Sprintf(format, args...))
	runtime.Goexit()
}

func (r *recorder) record(key, text string) { r.records = append(r.records, key+": "+text) }

func TestOutcomes(t *testing.T) {
	errMissing := errors.New("2 of 3 pods")
	never := func(context.Context) error { return errMissing }
	for name, test := range map[string]struct {
		tier string
		run  func(t testing.TB)
		want []string
	}{
		"unsafe": {run: func(t testing.TB) { Unsafe(t, "%d requests failed", 3) }, want: []string{"safety: unsafe", "error: 3 requests failed"}},
		"what comes": {run: func(t testing.TB) {
			left := 2
			Eventually(t, time.Minute, "pods are ready", func(context.Context) error {
				if left--; left > 0 {
					return errMissing
				}
				return nil
			})
		}},
		"what does not come": {
			run:  func(t testing.TB) { Eventually(t, time.Millisecond, "pods are ready", never) },
			want: []string{"deadline: (pressure)", "error: pods are ready: not within 1ms: 2 of 3 pods"},
		},
		"what does not come, of a test that has failed": {
			run: func(t testing.TB) {
				t.Error("a wrong value")
				Deadlinef(t, "no pods")
			},
			want: []string{"error: a wrong value", "error: no pods"},
		},
		"a duration within its bound": {
			run:  func(t testing.TB) { Measure(t, "gap", 1234567*time.Microsecond, 2*time.Second) },
			want: []string{"measure: within\tgap\t1.235s\t2s", "log: gap: 1.235s, within its bound of 2s"},
		},
		"a share beyond its bound": {
			tier: "long", run: func(t testing.TB) { Measure(t, "refused", 0.3, 0.1) },
			want: []string{"measure: beyond\trefused\t0.3\t0.1", "log: refused: 0.3, beyond its bound of 0.1"},
		},
		"the same in the soak tier": {
			tier: "soak", run: func(t testing.TB) { Measure(t, "refused", 0.3, 0.1) },
			want: []string{"measure: beyond\trefused\t0.3\t0.1", "error: refused: 0.3, beyond its bound of 0.1"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Setenv(TierVariable, test.tier)
			r := &recorder{TB: t}
			ended := make(chan struct{})
			go func() {
				defer close(ended)
				test.run(r)
			}()
			<-ended
			if diff := cmp.Diff(test.want, r.records); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

// If the timeout interrupts a check, the previous error is reported, which is more useful.
func TestPollReturnsWhatIsMissing(t *testing.T) {
	t.Parallel()
	calls := 0
	err := Poll(t.Context(), 50*time.Millisecond, func(ctx context.Context) error {
		if calls++; calls == 1 {
			return errors.New("no endpoints")
		}
		<-ctx.Done()
		return ctx.Err()
	})
	if err == nil || err.Error() != "no endpoints" {
		t.Errorf("got %v, want the first error", err)
	}
}

func TestPressure(t *testing.T) {
	t.Parallel()
	if text := pressure(); !strings.Contains(text, "load") {
		t.Errorf("the pressure %q has no load average", text)
	}
}
