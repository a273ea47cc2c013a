// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package refresh

import (
	"encoding/binary"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/metricsbackend/metrics-backend-operator/internal/schedule"
)

var epoch = time.Unix(1_750_000_000, 0)

// ms returns a number of milliseconds.
func ms(n int) time.Duration { return time.Duration(n) * time.Millisecond }

// simulation is a kubelet: when it refreshes its node sample, by our clock, and
// the timestamp of the sample.
type simulation struct {
	period  time.Duration
	work    time.Duration // each period is longer by at least that
	jitter  time.Duration // and by a random part of it
	busyAt  time.Duration // neither until then
	idleAt  time.Duration // and neither from then on, unless zero
	delay   time.Duration // from the timestamp until the sample can be read
	drift   float64       // seconds that the kubelet's clock gains on ours in a second
	skew    time.Duration // of the kubelet's clock, ahead of ours
	skewAt  time.Duration // the skew begins at that time after epoch
	pauseAt time.Duration // no refresh for a minute from then on
}

// refresh is one sample of a kubelet. taken and readable are by our clock.
type refresh struct{ timestamp, taken, readable time.Time }

func (k simulation) refreshes(r *rand.Rand, total time.Duration) (all []refresh) {
	first := time.Duration(r.Float64()*float64(k.period)) - 10*k.period
	for since := first; since < total; {
		if k.pauseAt == 0 || since < k.pauseAt || since > k.pauseAt+time.Minute {
			taken := epoch.Add(since)
			timestamp := taken.Add(time.Duration(k.drift * float64(since)))
			if since >= k.skewAt {
				timestamp = timestamp.Add(k.skew)
			}
			all = append(all, refresh{timestamp, taken, taken.Add(k.delay)})
		}
		period := k.period
		if since >= k.busyAt && (k.idleAt == 0 || since < k.idleAt) {
			period += k.work + time.Duration(r.Float64()*float64(k.jitter))
		}
		since += period
	}
	return all
}

const (
	// As those of the scheduler, see kubelet.Source.
	grid           = 250 * time.Millisecond
	firstSpread    = 2 * time.Second
	warmUpInterval = 4 * time.Second // on the grid
	warmUpTime     = 20 * time.Second
)

// run scrapes a node as the scheduler does, at the times that a tracker returns or at
// equal distances. It returns the age of the newest known sample at each second after
// settled, and the times of the scrapes.
func (k simulation) run(r *rand.Rand, interval time.Duration, tracked bool, total, settled time.Duration) (ages []time.Duration, scrapes []time.Time) {
	refreshes := k.refreshes(r, total)
	offset := r.Float64()
	slots := schedule.Schedule{Interval: interval, Phase: time.Duration(offset * float64(interval)).Truncate(time.Millisecond)}
	slot := epoch.Add(time.Duration(offset * float64(firstSpread)))
	warm := slot.Add(warmUpTime)
	tick := epoch.Add(settled)
	var tracker Tracker
	next := func(from time.Time) time.Time {
		slot = slots.Next(from)
		if !tracked {
			return slot
		}
		return tracker.Next(slot, interval)
	}
	known := -1
	for due := slot; ; {
		now := due.Add(grid - 1).Truncate(grid)
		for ; !tick.After(now) && known >= 0; tick = tick.Add(time.Second) {
			ages = append(ages, tick.Sub(refreshes[known].taken))
		}
		if now.Sub(epoch) > total {
			return ages, scrapes
		}
		for known+1 < len(refreshes) && !refreshes[known+1].readable.After(now) {
			known++
		}
		tracker.Observe(now, refreshes[known].timestamp)
		scrapes = append(scrapes, now)
		switch {
		case now.Before(warm) && interval > warmUpInterval:
			slot = now.Add(warmUpInterval)
			due = slot
		default:
			if due = next(slot); !due.After(now) {
				due = next(now)
			}
		}
	}
}

// podAges returns the ages of the data points of a pod with two containers at each second after
// settled, with scrapes at some times. cAdvisor samples each container 10 to 20 s after the
// last time, and a data point is as old as its older sample.
func podAges(r *rand.Rand, scrapes []time.Time, settled time.Duration) (ages []time.Duration) {
	var taken, next [2]time.Time
	for i := range next {
		next[i] = epoch.Add(-time.Minute - time.Duration(r.Float64()*float64(20*time.Second)))
	}
	tick := epoch.Add(settled)
	for i, scraped := range scrapes[:len(scrapes)-1] {
		for c := range next {
			for !next[c].After(scraped) {
				taken[c] = next[c]
				next[c] = next[c].Add(10*time.Second + time.Duration(r.Float64()*float64(10*time.Second)))
			}
		}
		older := taken[0]
		if taken[1].Before(older) {
			older = taken[1]
		}
		for ; tick.Before(scrapes[i+1]); tick = tick.Add(time.Second) {
			ages = append(ages, tick.Sub(older))
		}
	}
	return ages
}

// quantiles are the median, the 90th and the 99th percentile of ages in seconds.
type quantiles [3]float64

func quantilesOf(ages []time.Duration) (q quantiles) {
	slices.Sort(ages)
	for i, p := range []float64{0.5, 0.9, 0.99} {
		q[i] = math.Round(ages[int(p*float64(len(ages)-1))].Seconds()*10) / 10
	}
	return q
}

func (q quantiles) String() string { return fmt.Sprintf("%.1f, %.1f, %.1f", q[0], q[1], q[2]) }

// exceeds reports whether q is above the bounds by more than what another order of
// floating-point operations may change.
func (q quantiles) exceeds(bounds quantiles) bool {
	for i := range q {
		if q[i] > bounds[i]+0.15 {
			return true
		}
	}
	return false
}

// TestTracker simulates kubelets and checks the ages of the newest known node
// samples, with at most one scrape an interval on average. The seeds are fixed, so
// the bounds are the results. docs/reference/performance.md has those with a title.
func TestTracker(t *testing.T) {
	const (
		nodes   = 60
		total   = 40 * time.Minute
		settled = 5 * time.Minute
	)
	strict := simulation{period: ms(10000)}
	idle := simulation{period: ms(10000), work: ms(5), jitter: ms(60)}
	// A kubelet under load has a period of 10 s plus the work.
	busy := simulation{period: ms(10000), work: ms(100), jitter: ms(3900)}
	with := func(k simulation, change func(*simulation)) simulation { change(&k); return k }
	ahead := func(k *simulation) { k.skew, k.skewAt = 7*time.Second, -time.Hour }
	behind := func(k *simulation) { k.skew, k.skewAt = -33*time.Second, -time.Hour }
	movesAhead := func(k *simulation) { k.skew, k.skewAt = 4*time.Second, 10*time.Minute }
	setBack := func(k *simulation) { k.skew, k.skewAt = -4*time.Second, 10*time.Minute }
	tests := map[string]struct {
		title    string // in docs/reference/performance.md
		interval time.Duration
		kubelet  simulation
		// The ages, tracked and at equal distances, and those of pods.
		tracked, plain         quantiles
		trackedPods, plainPods quantiles
		// settled is when ages begin to count, unless 5 minutes.
		settled time.Duration
	}{
		"15s, strict":                          {title: "15s, strictly 10 s", interval: 15 * time.Second, kubelet: strict, tracked: quantiles{10.3, 17.3, 20}, plain: quantiles{12.6, 19.6, 23.2}, trackedPods: quantiles{18, 25.9, 30.8}, plainPods: quantiles{18, 25.9, 30.8}},
		"15s, idle":                            {title: "15s, idle: 10 s and 5 to 65 ms of work", interval: 15 * time.Second, kubelet: idle, tracked: quantiles{10.4, 17.5, 20.2}, plain: quantiles{12.7, 19.7, 23.5}, trackedPods: quantiles{17.9, 25.9, 30.8}, plainPods: quantiles{17.9, 25.9, 30.8}},
		"15s, a little late":                   {interval: 15 * time.Second, kubelet: simulation{period: ms(10100), jitter: ms(200), delay: ms(200)}, tracked: quantiles{10.8, 17.9, 20.8}, plain: quantiles{13, 20.1, 23.9}, trackedPods: quantiles{18, 26, 31.1}, plainPods: quantiles{18, 25.9, 30.8}},
		"15s, slower":                          {interval: 15 * time.Second, kubelet: simulation{period: ms(10600), jitter: ms(50)}, tracked: quantiles{10.7, 18.2, 21.4}, plain: quantiles{12.9, 20.1, 23.9}, trackedPods: quantiles{18, 26.2, 31.6}, plainPods: quantiles{18, 26, 30.9}},
		"15s, clock ahead":                     {interval: 15 * time.Second, kubelet: with(strict, ahead), tracked: quantiles{10.3, 17.3, 20}, plain: quantiles{12.6, 19.6, 23.2}, trackedPods: quantiles{18, 25.9, 30.8}, plainPods: quantiles{18, 25.9, 30.8}},
		"15s, clock behind":                    {title: "15s, strictly 10 s, clock 33 s behind", interval: 15 * time.Second, kubelet: with(strict, behind), tracked: quantiles{10.3, 17.3, 20}, plain: quantiles{12.6, 19.6, 23.2}, trackedPods: quantiles{18, 25.9, 30.8}, plainPods: quantiles{18, 25.9, 30.8}},
		"15s, clock runs fast":                 {interval: 15 * time.Second, kubelet: with(strict, func(k *simulation) { k.drift = 100e-6 }), tracked: quantiles{9.1, 17.5, 20.2}, plain: quantiles{12.6, 19.6, 23.2}, trackedPods: quantiles{18.2, 27.3, 33.8}, plainPods: quantiles{18, 25.9, 30.8}},
		"15s, clock runs slow":                 {interval: 15 * time.Second, kubelet: with(strict, func(k *simulation) { k.drift = -100e-6 }), tracked: quantiles{10.3, 17.3, 20}, plain: quantiles{12.6, 19.6, 23.2}, trackedPods: quantiles{18, 25.9, 30.8}, plainPods: quantiles{18, 25.9, 30.8}},
		"15s, clock is slewed":                 {title: "15s, strictly 10 s, clock slewed by 0.5 ms a second", interval: 15 * time.Second, kubelet: with(strict, func(k *simulation) { k.drift = 500e-6 }), tracked: quantiles{11, 18, 20.7}, plain: quantiles{12.6, 19.6, 23.2}, trackedPods: quantiles{17.9, 25.9, 30.8}, plainPods: quantiles{18, 25.9, 30.8}},
		"15s, clock moves ahead":               {title: "15s, strictly 10 s, clock moves 4 s ahead within the time", interval: 15 * time.Second, kubelet: with(strict, movesAhead), tracked: quantiles{10.2, 17.8, 20.3}, plain: quantiles{12.6, 19.6, 23.2}, trackedPods: quantiles{18, 26.3, 31.7}, plainPods: quantiles{18, 25.9, 30.8}},
		"15s, clock is set back":               {title: "15s, strictly 10 s, clock is set back by 4 s within the time", interval: 15 * time.Second, kubelet: with(strict, setBack), tracked: quantiles{10.8, 17.9, 20.7}, plain: quantiles{12.6, 19.6, 23.2}, trackedPods: quantiles{18, 26, 31}, plainPods: quantiles{18, 25.9, 30.8}},
		"15s, 5m after the clock was set back": {interval: 15 * time.Second, kubelet: with(strict, setBack), tracked: quantiles{10.6, 17.7, 20.3}, plain: quantiles{12.6, 19.6, 23.2}, trackedPods: quantiles{18, 26, 31.1}, plainPods: quantiles{18, 25.9, 30.8}, settled: 15 * time.Minute},
		"15s, a pause":                         {interval: 15 * time.Second, kubelet: with(strict, func(k *simulation) { k.pauseAt = 12 * time.Minute }), tracked: quantiles{10.7, 18.2, 56.2}, plain: quantiles{12.9, 20.2, 56}, trackedPods: quantiles{18, 25.9, 31.1}, plainPods: quantiles{18, 25.9, 30.8}},
		"15s, 5m after a pause":                {interval: 15 * time.Second, kubelet: with(strict, func(k *simulation) { k.pauseAt = 12 * time.Minute }), tracked: quantiles{10.3, 17.3, 20}, plain: quantiles{12.6, 19.6, 23.2}, trackedPods: quantiles{17.9, 25.8, 30.7}, plainPods: quantiles{18, 25.9, 30.8}, settled: 18 * time.Minute},
		"10s":                                  {title: "10s, strictly 10 s", interval: 10 * time.Second, kubelet: strict, tracked: quantiles{5.3, 9.3, 10.2}, plain: quantiles{10, 15.5, 18.9}, trackedPods: quantiles{15.5, 22.1, 26.3}, plainPods: quantiles{15.5, 22.1, 26.4}},
		"30s":                                  {title: "30s, strictly 10 s", interval: 30 * time.Second, kubelet: strict, tracked: quantiles{15.3, 27.3, 30}, plain: quantiles{20.3, 32.7, 37.8}, trackedPods: quantiles{25.5, 38.4, 44.8}, plainPods: quantiles{25.5, 38.4, 44.8}},
		"1m":                                   {title: "1m, strictly 10 s", interval: time.Minute, kubelet: strict, tracked: quantiles{30.5, 54.3, 59.8}, plain: quantiles{35.2, 59.2, 66.6}, trackedPods: quantiles{40.6, 64.6, 73.3}, plainPods: quantiles{40.7, 64.7, 73.4}},
		"1m, idle":                             {interval: time.Minute, kubelet: idle, tracked: quantiles{30.8, 54.7, 60.2}, plain: quantiles{35.2, 59.1, 66.7}, trackedPods: quantiles{40.6, 64.7, 73.6}, plainPods: quantiles{40.8, 64.8, 73.6}},
		"15s, not periodic at all":             {interval: 15 * time.Second, kubelet: simulation{period: ms(10000), jitter: ms(10000)}, tracked: quantiles{14.8, 23.2, 29.7}, plain: quantiles{15.3, 24.2, 30}, trackedPods: quantiles{18, 26.2, 31.5}, plainPods: quantiles{18, 26, 30.8}},
		"15s, renewed twice as fast":           {interval: 15 * time.Second, kubelet: simulation{period: ms(5000)}, tracked: quantiles{8.4, 14.4, 17.6}, plain: quantiles{10.2, 16.4, 19.1}, trackedPods: quantiles{17.9, 25.9, 30.8}, plainPods: quantiles{17.9, 25.9, 30.8}},
		"5s, too short to track":               {interval: 5 * time.Second, kubelet: strict, tracked: quantiles{7.3, 11.6, 14.1}, plain: quantiles{7.3, 11.6, 14.1}, trackedPods: quantiles{13, 18.7, 22}, plainPods: quantiles{13, 18.7, 22}},
		"10s, busy":                            {title: "10s, busy: 10 s and 0.1 to 4 s of work", interval: 10 * time.Second, kubelet: busy, tracked: quantiles{8.5, 13.4, 19.6}, plain: quantiles{11.1, 17.4, 21}, trackedPods: quantiles{16.5, 23.7, 28.4}, plainPods: quantiles{15.5, 22.1, 26.4}},
		"15s, busy":                            {title: "15s, busy", interval: 15 * time.Second, kubelet: busy, tracked: quantiles{10.3, 21.8, 26.7}, plain: quantiles{13.7, 21.3, 25.6}, trackedPods: quantiles{18.2, 29, 37.8}, plainPods: quantiles{17.9, 25.9, 30.8}},
		"15s, busy, clock ahead":               {interval: 15 * time.Second, kubelet: with(busy, ahead), tracked: quantiles{10.3, 21.8, 26.8}, plain: quantiles{13.7, 21.3, 25.6}, trackedPods: quantiles{18.2, 29, 37.8}, plainPods: quantiles{17.9, 25.9, 30.8}},
		"15s, busy, clock behind":              {interval: 15 * time.Second, kubelet: with(busy, behind), tracked: quantiles{10.3, 21.8, 26.8}, plain: quantiles{13.7, 21.3, 25.6}, trackedPods: quantiles{18.2, 29, 37.8}, plainPods: quantiles{17.9, 25.9, 30.8}},
		"15s, busy, clock moves ahead":         {interval: 15 * time.Second, kubelet: with(busy, movesAhead), tracked: quantiles{11, 22.2, 28}, plain: quantiles{13.7, 21.3, 25.6}, trackedPods: quantiles{18.2, 29, 37.8}, plainPods: quantiles{17.9, 25.9, 30.8}},
		"15s, busy, clock is set back":         {interval: 15 * time.Second, kubelet: with(busy, setBack), tracked: quantiles{10.5, 22.2, 27.2}, plain: quantiles{13.7, 21.3, 25.6}, trackedPods: quantiles{18.2, 29, 37.8}, plainPods: quantiles{17.9, 25.9, 30.8}},
		"15s, busy, 5m after the clock was set back": {interval: 15 * time.Second, kubelet: with(busy, setBack), tracked: quantiles{10.3, 21.9, 26.8}, plain: quantiles{13.7, 21.3, 25.6}, trackedPods: quantiles{18.2, 29, 37.8}, plainPods: quantiles{18, 25.9, 30.8}, settled: 15 * time.Minute},
		"15s, busy, then idle":                       {title: "15s, busy, from the tenth minute idle", interval: 15 * time.Second, kubelet: with(busy, func(k *simulation) { k.idleAt = 10 * time.Minute }), tracked: quantiles{11.4, 19.3, 25.1}, plain: quantiles{12.4, 19.5, 23.5}, trackedPods: quantiles{18.1, 26.7, 33.4}, plainPods: quantiles{17.9, 25.9, 30.8}},
		"15s, idle, then busy":                       {title: "15s, idle, from the tenth minute busy", interval: 15 * time.Second, kubelet: with(busy, func(k *simulation) { k.busyAt = 10 * time.Minute }), tracked: quantiles{10.7, 21.1, 26.5}, plain: quantiles{13.5, 21, 25.4}, trackedPods: quantiles{18.2, 28.1, 36.8}, plainPods: quantiles{17.9, 25.8, 30.7}},
		"30s, busy":                                  {title: "30s, busy", interval: 30 * time.Second, kubelet: busy, tracked: quantiles{21.3, 34, 40.1}, plain: quantiles{21.3, 33.8, 39.7}, trackedPods: quantiles{25.4, 38.7, 45.8}, plainPods: quantiles{25.4, 38.2, 44.6}},
		"1m, busy":                                   {title: "1m, busy", interval: time.Minute, kubelet: busy, tracked: quantiles{36.3, 60.2, 68.9}, plain: quantiles{36.4, 60.3, 68.6}, trackedPods: quantiles{40.8, 64.9, 73.8}, plainPods: quantiles{40.8, 64.8, 73.4}},
		"5m, busy":                                   {interval: 5 * time.Minute, kubelet: busy, tracked: quantiles{161.5, 277.8, 303.9}, plain: quantiles{161.6, 277.9, 304}, trackedPods: quantiles{166.6, 282.3, 308.7}, plainPods: quantiles{166.6, 282.4, 308.6}},
		"15s, too busy to track":                     {title: "15s, 10 to 35 s, too busy to track", interval: 15 * time.Second, kubelet: simulation{period: ms(10000), jitter: ms(25000)}, tracked: quantiles{19.2, 32.9, 42.2}, plain: quantiles{19.2, 32.9, 42.2}, trackedPods: quantiles{18, 26, 31.2}, plainPods: quantiles{18, 25.9, 30.8}},
	}
	page, err := os.ReadFile("../../../docs/reference/performance.md")
	if err != nil {
		t.Fatal(err)
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			var ages, plainAges, pods, plainPods []time.Duration
			scraped := 0
			for n := range nodes {
				// The same refreshes for both.
				a, times := tt.kubelet.run(rand.New(rand.NewPCG(uint64(n), 1)), tt.interval, true, total, max(tt.settled, settled))
				b, plainTimes := tt.kubelet.run(rand.New(rand.NewPCG(uint64(n), 1)), tt.interval, false, total, max(tt.settled, settled))
				ages, plainAges = append(ages, a...), append(plainAges, b...)
				r, same := rand.New(rand.NewPCG(uint64(n), 2)), rand.New(rand.NewPCG(uint64(n), 2))
				for range 2 {
					pods = append(pods, podAges(r, times, max(tt.settled, settled))...)
					plainPods = append(plainPods, podAges(same, plainTimes, max(tt.settled, settled))...)
				}
				scrapes := len(times)
				if most := int((total-warmUpTime)/tt.interval) + 1 + int(warmUpTime/warmUpInterval) + 1; scrapes > most {
					t.Errorf("node %d was scraped %d times in %s, want at most %d", n, scrapes, total, most)
				}
				scraped += scrapes
			}
			tracked, plain := quantilesOf(ages), quantilesOf(plainAges)
			trackedPods, evenPods := quantilesOf(pods), quantilesOf(plainPods)
			t.Logf("tracked %s; plain %s; pods %s; plain %s; scraped in %.2f of the slots", tracked, plain, trackedPods, evenPods, float64(scraped)/nodes/float64(total/tt.interval))
			if tracked.exceeds(tt.tracked) || plain.exceeds(tt.plain) {
				t.Errorf("ages of samples: tracked %s, plain %s, want at most %s and %s", tracked, plain, tt.tracked, tt.plain)
			}
			if trackedPods.exceeds(tt.trackedPods) || evenPods.exceeds(tt.plainPods) {
				t.Errorf("ages of pods: tracked %s, plain %s, want at most %s and %s", trackedPods, evenPods, tt.trackedPods, tt.plainPods)
			}
			if row := fmt.Sprintf("| %s | %s | %s | %s | %s |", tt.title, tt.tracked, tt.plain, tt.trackedPods, tt.plainPods); tt.title != "" && !strings.Contains(string(page), row) {
				t.Errorf("docs/reference/performance.md does not have the row\n%s", row)
			}
		})
	}
}

// TestTrackerOnRealKubelet uses the distances between samples of a kubelet of
// Kubernetes 1.37 on a loaded machine, which must be tracked.
func TestTrackerOnRealKubelet(t *testing.T) {
	seen := []int{13400, 14300, 11700, 11200, 13300}
	samples := []time.Time{epoch}
	for i := range 400 {
		samples = append(samples, samples[i].Add(ms(seen[i%len(seen)])))
	}
	var tracker Tracker
	due := epoch.Add(time.Second)
	for scrape := range 60 {
		newer, _ := slices.BinarySearchFunc(samples, due.Add(1), time.Time.Compare)
		tracker.Observe(due, samples[newer-1])
		if scrape > 5 && !tracker.Tracks(15*time.Second) {
			t.Errorf("scrape %d: not tracked: period %.1f s, deviation %.1f s", scrape, tracker.period, tracker.deviation)
		}
		due = tracker.Next(due.Add(15*time.Second), 15*time.Second)
	}
	if tracker.period < 12 || tracker.period > 13.5 {
		t.Errorf("period %.1f s, want about 12.8 s", tracker.period)
	}
}

// FuzzNext checks that Next returns a time between the slot and an interval and a
// period after it, whatever the observations are. Each 8 bytes of the input are a
// number; three are the steps of our clock and of the kubelet's, and the time from our
// clock to the slot.
func FuzzNext(f *testing.F) {
	seed := func(steps ...time.Duration) {
		var input []byte
		for _, s := range steps {
			input = binary.LittleEndian.AppendUint64(input, uint64(s))
		}
		f.Add(input, int64(15*time.Second))
	}
	const s = time.Second
	seed(15*s, 10*s, 5*s, 15*s, 20*s, 5*s, 15*s, 10*s, 20*s)
	seed(15*s, 10*s, -5*s, 15*s, -20*s, 5*s, math.MaxInt64, 10*s, 20*s, 15*s, math.MaxInt64, math.MinInt64)
	seed(1, 1, 1, 1, 1, 1, 1, 1, 1, 0, 0, math.MaxInt64)
	f.Fuzz(func(t *testing.T, input []byte, n int64) {
		var tracker Tracker
		interval := time.Duration(n)
		scraped, sample := epoch, epoch
		for ; len(input) >= 24; input = input[24:] {
			number := func(i int) time.Duration { return time.Duration(binary.LittleEndian.Uint64(input[8*i:])) }
			scraped, sample = scraped.Add(number(0)), sample.Add(number(1))
			tracker.Observe(scraped, sample)
			slot := scraped.Add(number(2))
			next := tracker.Next(slot, interval)
			wait, tracked := next.Sub(slot).Seconds(), tracker.Tracks(interval)
			if wait < 0 || !tracked && wait > 0 || tracked && wait > interval.Seconds()+tracker.period {
				t.Fatalf("%s is %.3f s after the slot; interval %s, tracked: %t, %+v", next, wait, interval, tracked, tracker)
			}
		}
	})
}
