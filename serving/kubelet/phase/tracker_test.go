// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package phase

import (
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/metricsbackend/metrics-backend-operator/internal/schedule"
)

var epoch = time.Unix(1_750_000_000, 0)

// simulation is a kubelet: when it refreshes its node sample, by our clock, and
// the timestamp of the sample.
type simulation struct {
	period  time.Duration
	work    time.Duration // each period is longer by at least that
	jitter  time.Duration // and by a random part of it
	busyAt  time.Duration // neither until then
	idleAt  time.Duration // and neither from then on, unless zero
	offset  time.Duration // of the first refresh
	delay   time.Duration // from the timestamp until the sample can be read
	skew    time.Duration // of the kubelet's clock, ahead of ours
	skewAt  time.Duration // the skew begins at that time after epoch
	pauseAt time.Duration // no refresh for a minute from then on
}

// run scrapes at the times that a tracker returns, or blindly once an interval, a
// node with the given offset. It returns the age of the newest known sample at each
// second after settled, and the times of the scrapes.
func (k simulation) run(r *rand.Rand, interval time.Duration, blind bool, offset float64, total, settled time.Duration) (ages []time.Duration, scrapes []time.Time) {
	var stamps, visible []time.Time // by our clock; the stamp as it is shown
	for t := epoch.Add(k.offset - 10*k.period); t.Before(epoch.Add(total)); {
		if since := t.Sub(epoch); k.pauseAt == 0 || since < k.pauseAt || since > k.pauseAt+time.Minute {
			shown := t
			if since >= k.skewAt {
				shown = t.Add(k.skew)
			}
			stamps, visible = append(stamps, shown), append(visible, t.Add(k.delay))
		}
		period := k.period
		if since := t.Sub(epoch); since >= k.busyAt && (k.idleAt == 0 || since < k.idleAt) {
			period += k.work + time.Duration(r.Float64()*float64(k.jitter))
		}
		t = t.Add(period)
	}
	var tracker Tracker
	slots := schedule.Schedule{Interval: interval, Phase: time.Duration(offset * float64(interval))}
	slot := slots.Next(epoch)
	due, known := slot, -1
	for now := epoch; now.Before(epoch.Add(total)); now = now.Add(100 * time.Millisecond) {
		if !now.Before(due) {
			newest, _ := slices.BinarySearchFunc(visible, now.Add(1), time.Time.Compare)
			known = newest - 1
			scrapes = append(scrapes, now)
			next := func(from time.Time) { // as Source.schedule
				slot = slots.Next(from)
				due = slot
				if !blind {
					due = tracker.Next(slot, interval)
				}
			}
			tracker.Observe(now, stamps[known])
			if next(slot); !due.After(now) {
				next(now)
			}
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

// TestTracker simulates kubelets and checks the ages of the newest known node
// samples, with at most one scrape an interval on average, against those of blind
// scrapes.
func TestTracker(t *testing.T) {
	const (
		nodes   = 20
		total   = 40 * time.Minute
		settled = 5 * time.Minute
	)
	// A kubelet under load has a period of 10 s plus the work.
	busy := simulation{period: defaultPeriod, work: 100 * time.Millisecond, jitter: 3900 * time.Millisecond}
	with := func(k simulation, change func(*simulation)) simulation { change(&k); return k }
	tests := map[string]struct {
		interval time.Duration
		kubelet  simulation
		// Bounds of the ages.
		median, p99 time.Duration
		// gain is the least by which the median is below that of blind scrapes; a
		// negative one bounds the cost where tracking cannot gain.
		gain time.Duration
	}{
		"15s, steady":                {15 * time.Second, simulation{period: defaultPeriod}, 8500 * time.Millisecond, 21 * time.Second, 4 * time.Second},
		"15s, a little late":         {15 * time.Second, simulation{period: 10100 * time.Millisecond, jitter: 200 * time.Millisecond, delay: 200 * time.Millisecond}, 9500 * time.Millisecond, 24 * time.Second, 3 * time.Second},
		"15s, slower":                {15 * time.Second, simulation{period: 10600 * time.Millisecond, jitter: 50 * time.Millisecond}, 9500 * time.Millisecond, 23 * time.Second, 3 * time.Second},
		"15s, clock ahead":           {15 * time.Second, simulation{period: defaultPeriod, skew: 7 * time.Second, skewAt: -time.Hour}, 10500 * time.Millisecond, 28 * time.Second, 2 * time.Second},
		"15s, clock behind":          {15 * time.Second, simulation{period: defaultPeriod, skew: -33 * time.Second, skewAt: -time.Hour}, 9 * time.Second, 21 * time.Second, 3 * time.Second},
		"15s, clock moves ahead":     {15 * time.Second, simulation{period: defaultPeriod, skew: 4 * time.Second, skewAt: 10 * time.Minute}, 9 * time.Second, 23 * time.Second, 3 * time.Second},
		"15s, clock is set back":     {15 * time.Second, simulation{period: defaultPeriod, skew: -4 * time.Second, skewAt: 10 * time.Minute}, 9 * time.Second, 26 * time.Second, 3 * time.Second},
		"15s, a pause":               {15 * time.Second, simulation{period: defaultPeriod, pauseAt: 12 * time.Minute}, 10 * time.Second, 70 * time.Second, 3 * time.Second},
		"10s":                        {10 * time.Second, simulation{period: defaultPeriod}, 6500 * time.Millisecond, 12 * time.Second, 4 * time.Second},
		"30s":                        {30 * time.Second, simulation{period: defaultPeriod}, 16500 * time.Millisecond, 41 * time.Second, 3 * time.Second},
		"1m":                         {time.Minute, simulation{period: defaultPeriod}, 31500 * time.Millisecond, 71 * time.Second, 3 * time.Second},
		"15s, not periodic at all":   {15 * time.Second, simulation{period: defaultPeriod, jitter: defaultPeriod}, 17 * time.Second, 36 * time.Second, -500 * time.Millisecond},
		"15s, renewed twice as fast": {15 * time.Second, simulation{period: 5 * time.Second}, 11 * time.Second, 24 * time.Second, 0},
		"5s, too short to track":     {5 * time.Second, simulation{period: defaultPeriod}, 8 * time.Second, 16 * time.Second, 0},

		"10s, busy":                    {10 * time.Second, busy, 9 * time.Second, 24 * time.Second, 2 * time.Second},
		"15s, busy":                    {15 * time.Second, busy, 11 * time.Second, 29 * time.Second, 2500 * time.Millisecond},
		"15s, busy, clock ahead":       {15 * time.Second, with(busy, func(k *simulation) { k.skew, k.skewAt = 7*time.Second, -time.Hour }), 11 * time.Second, 29 * time.Second, 2500 * time.Millisecond},
		"15s, busy, clock behind":      {15 * time.Second, with(busy, func(k *simulation) { k.skew, k.skewAt = -33*time.Second, -time.Hour }), 11 * time.Second, 29 * time.Second, 2500 * time.Millisecond},
		"15s, busy, clock moves ahead": {15 * time.Second, with(busy, func(k *simulation) { k.skew, k.skewAt = 4*time.Second, 10*time.Minute }), 12 * time.Second, 30 * time.Second, 1500 * time.Millisecond},
		"15s, busy, clock is set back": {15 * time.Second, with(busy, func(k *simulation) { k.skew, k.skewAt = -4*time.Second, 10*time.Minute }), 11500 * time.Millisecond, 29 * time.Second, 2 * time.Second},
		"15s, busy, then idle":         {15 * time.Second, with(busy, func(k *simulation) { k.idleAt = 10 * time.Minute }), 10 * time.Second, 27 * time.Second, 2 * time.Second},
		"15s, idle, then busy":         {15 * time.Second, with(busy, func(k *simulation) { k.busyAt = 10 * time.Minute }), 11 * time.Second, 29 * time.Second, 2 * time.Second},
		"30s, busy":                    {30 * time.Second, busy, 20 * time.Second, 42 * time.Second, 1500 * time.Millisecond},
		"1m, busy":                     {time.Minute, busy, 37 * time.Second, 71 * time.Second, -250 * time.Millisecond},
		"5m, busy":                     {5 * time.Minute, busy, 160 * time.Second, 310 * time.Second, -500 * time.Millisecond},
		"15s, too busy to track":       {15 * time.Second, simulation{period: defaultPeriod, jitter: 25 * time.Second}, 20 * time.Second, 44 * time.Second, -500 * time.Millisecond},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			r := rand.New(rand.NewPCG(1, 2))
			var ages, blind []time.Duration
			scraped := 0
			for n := range nodes {
				k := tt.kubelet
				k.offset = time.Duration(r.Float64() * float64(k.period))
				// The same refreshes for both.
				seed := r.Uint64()
				a, scrapes := k.run(rand.New(rand.NewPCG(seed, 1)), tt.interval, false, float64(n)/nodes, total, settled)
				ages = append(ages, a...)
				if most := int(total/tt.interval) + 1; len(scrapes) > most {
					t.Errorf("node %d was scraped %d times in %s, want at most %d", n, len(scrapes), total, most)
				}
				scraped += len(scrapes)
				b, _ := k.run(rand.New(rand.NewPCG(seed, 1)), tt.interval, true, float64(n)/nodes, total, settled)
				blind = append(blind, b...)
			}
			median, p99 := quantile(ages, 0.5), quantile(ages, 0.99)
			t.Logf("median %s, p90 %s, p99 %s; blind: %s, %s, %s; scraped in %.2f of the slots", median, quantile(ages, 0.9), p99,
				quantile(blind, 0.5), quantile(blind, 0.9), quantile(blind, 0.99), float64(scraped)/nodes/float64(total/tt.interval))
			if median > tt.median || p99 > tt.p99 {
				t.Errorf("ages of samples: median %s, p99 %s, want at most %s and %s", median, p99, tt.median, tt.p99)
			}
			if gain := quantile(blind, 0.5) - median; gain < tt.gain {
				t.Errorf("the median of the ages is %s below that of blind scrapes, want at least %s", gain, tt.gain)
			}
		})
	}
}

// TestTrackerOnRealKubelet uses the distances between samples of a kubelet of
// Kubernetes 1.37 on a loaded machine, which must be tracked.
func TestTrackerOnRealKubelet(t *testing.T) {
	seen := []int{13400, 14300, 11700, 11200, 13300} // ms
	samples := []time.Time{epoch}
	for i := range 400 {
		samples = append(samples, samples[i].Add(time.Duration(seen[i%len(seen)])*time.Millisecond))
	}
	var tracker Tracker
	due := epoch.Add(time.Second)
	for scrape := range 60 {
		newer, _ := slices.BinarySearchFunc(samples, due.Add(1), time.Time.Compare)
		tracker.Observe(due, samples[newer-1])
		if scrape > 5 && !tracker.Tracks(15*time.Second) {
			t.Errorf("scrape %d: not tracked: period %s, confidence %d", scrape, tracker.period, tracker.confidence)
		}
		due = tracker.Next(due.Add(15*time.Second), 15*time.Second)
	}
	if tracker.period < 12*time.Second || tracker.period > 13500*time.Millisecond {
		t.Errorf("period %s, want about 12.8s", tracker.period)
	}
}
