// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package kubelet

import (
	"math/rand/v2"
	"slices"
	"testing"
	"time"
)

var epoch = time.Unix(1_750_000_000, 0)

// beats is a simulated kubelet: when it renews its node sample, by our clock,
// and what timestamp the sample has.
type beats struct {
	period  time.Duration
	jitter  time.Duration // each period is longer by a random part of it
	offset  time.Duration // of the first beat
	delay   time.Duration // from the timestamp until the sample can be had
	skew    time.Duration // of the kubelet's clock, ahead of ours
	skewAt  time.Duration // the skew begins so long after epoch
	pauseAt time.Duration // no beat for a minute from then on
}

// run calls scrape for each of the times that a rhythm yields, for a node with
// the given phase, and returns the ages of the newest known sample, once a
// second, after the time `settled`.
func (k beats) run(r *rand.Rand, interval time.Duration, phase float64, total, settled time.Duration) (ages []time.Duration, scrapes []time.Time) {
	var stamps, visible []time.Time // by our clock; the stamp as it is shown
	for t := epoch.Add(k.offset - 10*k.period); t.Before(epoch.Add(total)); {
		if since := t.Sub(epoch); k.pauseAt == 0 || since < k.pauseAt || since > k.pauseAt+time.Minute {
			shown := t
			if since >= k.skewAt {
				shown = t.Add(k.skew)
			}
			stamps, visible = append(stamps, shown), append(visible, t.Add(k.delay))
		}
		t = t.Add(k.period + time.Duration(r.Float64()*float64(k.jitter)))
	}
	var rhythm rhythm
	slot := slotAfter(epoch, interval, phase)
	due, known := slot, -1
	for now := epoch; now.Before(epoch.Add(total)); now = now.Add(100 * time.Millisecond) {
		if !now.Before(due) {
			newest, _ := slices.BinarySearchFunc(visible, now.Add(1), time.Time.Compare)
			known = newest - 1
			scrapes = append(scrapes, now)
			rhythm.observe(now, stamps[known])
			slot = slotAfter(slot, interval, phase)
			due = rhythm.next(slot, interval)
		}
		if known >= 0 && now.Sub(epoch) > settled && now.Sub(epoch)%time.Second == 0 {
			ages = append(ages, now.Sub(visible[known].Add(-k.delay)))
		}
	}
	return ages, scrapes
}

func quantile(ages []time.Duration, q float64) time.Duration {
	slices.Sort(ages)
	return ages[int(q*float64(len(ages)-1))]
}

// TestRhythm simulates kubelets and checks what the rhythm is for: how old the
// newest known node sample is, at an average of one scrape an interval.
func TestRhythm(t *testing.T) {
	const (
		nodes   = 20
		total   = 40 * time.Minute
		settled = 5 * time.Minute
	)
	tests := map[string]struct {
		interval time.Duration
		kubelet  beats
		// Bounds of the ages; blind asking would give (10 s + interval)/2.
		median, p99 time.Duration
	}{
		"15s, steady":                {15 * time.Second, beats{period: beat}, 8500 * time.Millisecond, 21 * time.Second},
		"15s, a little late":         {15 * time.Second, beats{period: 10100 * time.Millisecond, jitter: 200 * time.Millisecond, delay: 200 * time.Millisecond}, 9500 * time.Millisecond, 24 * time.Second},
		"15s, slower":                {15 * time.Second, beats{period: 10600 * time.Millisecond, jitter: 50 * time.Millisecond}, 9500 * time.Millisecond, 23 * time.Second},
		"15s, clock ahead":           {15 * time.Second, beats{period: beat, skew: 7 * time.Second, skewAt: -time.Hour}, 10500 * time.Millisecond, 28 * time.Second},
		"15s, clock behind":          {15 * time.Second, beats{period: beat, skew: -33 * time.Second, skewAt: -time.Hour}, 9000 * time.Millisecond, 21 * time.Second},
		"15s, clock moves ahead":     {15 * time.Second, beats{period: beat, skew: 4 * time.Second, skewAt: 10 * time.Minute}, 9000 * time.Millisecond, 23 * time.Second},
		"15s, clock is set back":     {15 * time.Second, beats{period: beat, skew: -4 * time.Second, skewAt: 10 * time.Minute}, 9000 * time.Millisecond, 26 * time.Second},
		"15s, a pause":               {15 * time.Second, beats{period: beat, pauseAt: 12 * time.Minute}, 10000 * time.Millisecond, 70 * time.Second},
		"10s":                        {10 * time.Second, beats{period: beat}, 6500 * time.Millisecond, 12 * time.Second},
		"30s":                        {30 * time.Second, beats{period: beat}, 16500 * time.Millisecond, 41 * time.Second},
		"1m":                         {time.Minute, beats{period: beat}, 31500 * time.Millisecond, 71 * time.Second},
		"15s, not periodic at all":   {15 * time.Second, beats{period: beat, jitter: beat}, 17 * time.Second, 36 * time.Second},
		"15s, renewed twice as fast": {15 * time.Second, beats{period: 5 * time.Second}, 11 * time.Second, 24 * time.Second},
		"5s, too short to follow":    {5 * time.Second, beats{period: beat}, 8 * time.Second, 16 * time.Second},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			r := rand.New(rand.NewPCG(1, 2))
			var ages []time.Duration
			for n := range nodes {
				k := tt.kubelet
				k.offset = time.Duration(r.Float64() * float64(k.period))
				a, scrapes := k.run(r, tt.interval, float64(n)/nodes, total, settled)
				ages = append(ages, a...)
				if most := int(total/tt.interval) + 1; len(scrapes) > most {
					t.Errorf("node %d was asked %d times in %s, want at most %d", n, len(scrapes), total, most)
				}
			}
			median, p99 := quantile(ages, 0.5), quantile(ages, 0.99)
			t.Logf("median %s, p90 %s, p99 %s", median, quantile(ages, 0.9), p99)
			if median > tt.median || p99 > tt.p99 {
				t.Errorf("ages of samples: median %s, p99 %s, want at most %s and %s", median, p99, tt.median, tt.p99)
			}
		})
	}
}
