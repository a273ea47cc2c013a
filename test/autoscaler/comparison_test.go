// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package autoscaler

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"text/tabwriter"
	"time"

	autoscalingv2 "k8s.io/api/autoscaling/v2"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/tools/cache"
	metricsv1 "k8s.io/metrics/pkg/apis/metrics/v1"

	"github.com/metricsbackend/metrics-backend-operator/client"
	"github.com/metricsbackend/metrics-backend-operator/test/outcome"
)

const (
	// pairs of workloads, one of each polled and one watched, get their load at the same moment.
	pairs = 5
	// syncPeriod is kube-controller-manager's default; the HPAs of pairs are made evenly over it, so that the wait for
	// the next sync is sampled evenly, too.
	syncPeriod = 15 * time.Second
	// spread is the time over which the loads of pairs begin: two of a kubelet's samples, which are 10 s apart.
	spread = 20 * time.Second
	// promptly is far from the tenth of a second that a watch takes, and from the half of a sync period without one.
	promptly = 5 * time.Second

	requestMillicores, loadMillicores, targetPercent = 20, 60, 50
)

// The real controller on a real cluster, once by watch and once by polling, each with workloads of its own: how long
// after the load begins does it decide? Times are told. What is judged is that each watched HPA decided on the first
// data point that called for it, that it came by watch, and that it was what made HPAs due.
func TestWatchAgainstPolling(t *testing.T) {
	s := newClusterScenario(t)
	arrived, decided := &arrivals{}, &decisions{}

	watching, err := New(t.Context(), s.controllerConfig(), Options{Watch: true, HPASelector: "metrics=watch"})
	if err != nil {
		t.Fatal(err)
	}
	polling, err := New(t.Context(), s.controllerConfig(), Options{HPASelector: "metrics=poll"})
	if err != nil {
		t.Fatal(err)
	}
	if watching.settings.HorizontalPodAutoscalerSyncPeriod.Duration != syncPeriod || polling.settings != watching.settings {
		t.Fatalf("settings differ: %+v, %+v", watching.settings, polling.settings)
	}
	watching.trigger.observe = arrived.add
	s.run(watching.Run, polling.Run, decided.follow(s))

	s.deploy()
	s.waitForPolicy()
	s.autoscale(syncPeriod / pairs)
	loads := s.load(spread / pairs)
	s.eventually("each HPA has decided", func(context.Context) error {
		for name := range loads {
			if _, ok := decided.of(name); !ok {
				return fmt.Errorf("%s has not", name)
			}
			// HPAs that poll may ask the replica that is not watched, which may be first.
			if _, ok := arrived.firstAbove(name, loads[name]); !ok {
				return fmt.Errorf("the data point of %s has not come by watch", name)
			}
		}
		return nil
	})

	if status := watching.watcher.Status(); status.Mode != client.Watching || status.Version != "v1" {
		t.Errorf("the watcher is %s %s, and not by watch of v1: %v", status.Mode, status.Version, status.Err)
	}
	s.checkNobodyElse()
	report := newReport()
	for name, began := range loads {
		decision, _ := decided.of(name)
		point, ok := arrived.firstAbove(name, began)
		if !ok {
			t.Errorf("%s: decided on %dm, and no data point above the target came by watch", name, decision.millicores)
			continue
		}
		if strings.HasPrefix(name, "watch") && decision.millicores != point.millicores {
			t.Errorf("%s: decided on %dm, the first data point above the target has %dm", name, decision.millicores, point.millicores)
		}
		report.add(name, began, point, decision)
	}
	t.Log(report)
	// A new point comes each 15 s, and so does the stock sync: only the wait in between tells that points are what makes
	// HPAs due.
	outcome.Measure(t, "median wait for a decision on a data point that came by watch", report.medianWait("watch"), promptly)
}

// observed is what was observed of a workload, and when.
type observed struct {
	at         time.Time
	millicores int64
}

// arrivals are the data points that came by watch, of the first pod of each workload.
type arrivals struct {
	mu     sync.Mutex
	points map[string][]observed
}

func (a *arrivals) add(point *metricsv1.PodMetrics) {
	usage := int64(0)
	for _, container := range point.Containers {
		usage += container.Usage.Cpu().MilliValue()
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.points == nil {
		a.points = map[string][]observed{}
	}
	name := point.Labels["app"]
	a.points[name] = append(a.points[name], observed{time.Now(), usage})
}

// firstAbove reckons as the controller does, in whole percent and with its tolerance of a tenth.
func (a *arrivals) firstAbove(name string, began time.Time) (observed, bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, point := range a.points[name] {
		percent := point.millicores * 100 / requestMillicores
		if point.at.After(began) && float64(percent)/targetPercent > 1.1 {
			return point, true
		}
	}
	return observed{}, false
}

// decisions are the moments at which more replicas stood in an HPA's status, and the usage that stood beside it.
type decisions struct {
	mu    sync.Mutex
	first map[string]observed
}

func (d *decisions) of(name string) (observed, bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	decision, ok := d.first[name]
	return decision, ok
}

// follow hears of HPAs from the API, for both controllers alike.
func (d *decisions) follow(s *clusterScenario) func(context.Context) {
	d.first = map[string]observed{}
	factory := informers.NewSharedInformerFactoryWithOptions(s.core, 0, informers.WithNamespace(s.name))
	if _, err := factory.Autoscaling().V2().HorizontalPodAutoscalers().Informer().AddEventHandler(cache.ResourceEventHandlerFuncs{
		UpdateFunc: func(_, after any) { d.look(after.(*autoscalingv2.HorizontalPodAutoscaler)) },
	}); err != nil {
		s.t.Fatal(err)
	}
	return func(ctx context.Context) {
		factory.StartWithContext(ctx)
		<-ctx.Done()
		factory.Shutdown()
	}
}

func (d *decisions) look(hpa *autoscalingv2.HorizontalPodAutoscaler) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if _, already := d.first[hpa.Name]; already || hpa.Status.DesiredReplicas < 2 {
		return
	}
	decision := observed{at: time.Now()}
	for _, metric := range hpa.Status.CurrentMetrics {
		if metric.Resource != nil && metric.Resource.Name == corev1.ResourceCPU {
			decision.millicores = metric.Resource.Current.AverageValue.MilliValue()
		}
	}
	d.first[hpa.Name] = decision
}

// report tells the times of each workload, and their medians by the way metrics came.
type report struct {
	rows map[string][3]time.Duration
}

func newReport() *report { return &report{map[string][3]time.Duration{}} }

func (r *report) add(name string, load time.Time, point, decision observed) {
	r.rows[name] = [3]time.Duration{point.at.Sub(load), decision.at.Sub(point.at), decision.at.Sub(load)}
}

// medianWait is from a data point to the decision on it.
func (r *report) medianWait(way string) time.Duration {
	var waits []time.Duration
	for i := range pairs {
		if times, ok := r.rows[workload(way, i)]; ok {
			waits = append(waits, times[1])
		}
	}
	if len(waits) == 0 {
		return 0
	}
	slices.Sort(waits)
	return waits[len(waits)/2]
}

func (r *report) String() string {
	var out strings.Builder
	fmt.Fprintf(&out, "\nThe HPA controller of Kubernetes, sync period %v, metrics by watch and by polling; seconds:\n", syncPeriod)
	table := tabwriter.NewWriter(&out, 0, 0, 2, ' ', tabwriter.AlignRight)
	row := func(name string, times [3]time.Duration) {
		fmt.Fprintf(table, "%s\t", name)
		for _, d := range times {
			fmt.Fprintf(table, "%.2f\t", d.Seconds())
		}
		fmt.Fprintln(table)
	}
	fmt.Fprintln(table, "\tload to data point\tdata point to decision\tload to decision\t")
	for _, way := range []string{"poll", "watch"} {
		var columns [3][]time.Duration
		for i := range pairs {
			times, ok := r.rows[workload(way, i)]
			if !ok {
				continue
			}
			row(workload(way, i), times)
			for column, d := range times {
				columns[column] = append(columns[column], d)
			}
		}
		var median, most [3]time.Duration
		for column, all := range columns {
			if len(all) > 0 {
				slices.Sort(all)
				median[column], most[column] = all[len(all)/2], all[len(all)-1]
			}
		}
		row(way+", median", median)
		row(way+", most", most)
	}
	_ = table.Flush()
	fmt.Fprintln(&out, "The data point is the first above the target that came by watch. A poll may come upon it sooner (less than 0)\n"+
		"at another serving pod, which scrapes at moments of its own.")
	return out.String()
}
