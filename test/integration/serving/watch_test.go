//go:build integration

// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package serving

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"
	metricsv1 "k8s.io/metrics/pkg/apis/metrics/v1"
	metricsv1beta1 "k8s.io/metrics/pkg/apis/metrics/v1beta1"
	"k8s.io/utils/ptr"

	"github.com/metricsbackend/metrics-backend-operator/test/informers"
	"github.com/metricsbackend/metrics-backend-operator/test/outcome"
)

// leastSamples is how many renewals of its samples each kubelet is watched for.
const leastSamples = 5

// TestWatchThroughKubeAPIServer watches the same data points with each kind of stock client: each client gets the samples
// that kubelets returned, one event per data point, none lost and none twice.
func TestWatchThroughKubeAPIServer(t *testing.T) {
	inTurn(t)
	kubelets := startWorkload(t, "watched")
	sources := map[string]map[string]*fakeKubelet{
		"nodes": {"node-a": kubelets[0], "node-b": kubelets[1]},
		"pods":  {workloads + "/web-0": kubelets[0], workloads + "/web-1": kubelets[0], workloads + "/job-0": kubelets[1]},
	}
	// Long enough that, on a busy machine, no scrape times out and no two data points are coalesced.
	p := cluster.startServing(t, "watched", "--backend-file="+cluster.writeFile(t, t.TempDir(), "backend.yaml",
		[]byte(strings.Replace(fastScrapes("watched"), "interval: 1s, timeout: 1s", "interval: 3s, timeout: 3s", 1))))
	p.waitReady(t)
	cluster.registerBoth(t, "watched", p.port)
	outcome.Eventually(t, 20*time.Second, "there are metrics of all pods", func(context.Context) error {
		return wantCount(t.Context(), "/apis/metrics.k8s.io/v1/pods", 3)
	})

	var followers []*follower
	for _, way := range informers.Ways() {
		followers = append(followers, followByInformer(t, way))
	}
	for _, version := range []string{"v1", "v1beta1"} {
		for _, resource := range []string{"nodes", "pods"} {
			followers = append(followers, followTable(t, version, resource))
		}
	}
	before := []int{len(kubelets[0].points()), len(kubelets[1].points())}
	outcome.Eventually(t, time.Minute, "kubelets are scraped", func(context.Context) error {
		for i, kubelet := range kubelets {
			if n := len(kubelet.points()) - before[i]; n < leastSamples {
				return fmt.Errorf("%d samples", n)
			}
		}
		return nil
	})
	for _, kubelet := range kubelets {
		kubelet.freeze()
	}
	// The first scrape of a frozen kubelet returns its last sample: no further one comes while followers are compared.
	frozen := time.Now()
	for _, kubelet := range kubelets {
		outcome.Eventually(t, 20*time.Second, "the frozen kubelet is scraped", func(context.Context) error {
			if kubelet.requests(frozen) == 0 {
				return errors.New("not yet")
			}
			return nil
		})
	}
	for _, f := range followers {
		t.Run(f.name, func(t *testing.T) {
			outcome.Eventually(t, 10*time.Second, "the last data points arrive", func(context.Context) error { return f.arrived(sources[f.resource]) })
			f.judge(t, sources[f.resource])
		})
	}
	t.Run("start over", func(t *testing.T) { testStartsOver(t, kubelets[1]) })
}

// follower records the resourceVersions of each object, in order.
type follower struct {
	name, resource string
	// listed: it lists before it watches, and gets what there is a second time.
	listed bool

	mu   sync.Mutex
	got  map[string][]int64
	errs []error
}

func (f *follower) add(object any) {
	f.mu.Lock()
	defer f.mu.Unlock()
	accessor, ok := object.(metav1.Object)
	if !ok {
		f.errs = append(f.errs, fmt.Errorf("got a %T", object))
		return
	}
	version, err := strconv.ParseInt(accessor.GetResourceVersion(), 10, 64)
	if err != nil {
		f.errs = append(f.errs, fmt.Errorf("%s: %w", accessor.GetName(), err))
	}
	name := strings.TrimPrefix(accessor.GetNamespace()+"/"+accessor.GetName(), "/")
	if f.got == nil {
		f.got = map[string][]int64{}
	}
	f.got[name] = append(f.got[name], version)
}

func (f *follower) fail(err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.errs = append(f.errs, err)
}

// arrived returns nil when the last sample of each kubelet is there.
func (f *follower) arrived(sources map[string]*fakeKubelet) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	for object, kubelet := range sources {
		points := kubelet.points()
		if last := points[len(points)-1]; !slices.Contains(f.got[object], last) {
			return fmt.Errorf("%s: %d is missing, got %v", object, last, f.got[object])
		}
	}
	return nil
}

// judge compares with what the kubelets answered since the follower's first event.
func (f *follower) judge(t *testing.T, sources map[string]*fakeKubelet) {
	t.Helper()
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, err := range f.errs {
		t.Error(err)
	}
	for object, got := range f.got {
		if sources[object] == nil {
			t.Errorf("got %s, which nobody runs", object)
			continue
		}
		if f.listed && len(got) > 1 && got[0] == got[1] {
			got = got[1:]
		}
		want := sources[object].points()
		from := slices.Index(want, got[0])
		if from < 0 || !slices.Equal(want[from:], got) {
			t.Errorf("data points of %s: got %v, the kubelet answered with %v", object, got, want)
		}
		if len(got) < leastSamples {
			t.Errorf("%d data points of %s: too few to tell", len(got), object)
		}
	}
	if len(f.got) != len(sources) {
		t.Errorf("got data points of %d objects, want %d", len(f.got), len(sources))
	}
}

func followByInformer(t *testing.T, way informers.Way) *follower {
	t.Helper()
	f := &follower{name: way.String(), resource: way.Resource, listed: !way.WatchList}
	informer, err := informers.New(cluster.config, way)
	if err != nil {
		t.Fatal(err)
	}
	if err := informer.SetWatchErrorHandlerWithContext(func(ctx context.Context, _ *cache.Reflector, err error) {
		if ctx.Err() == nil {
			f.fail(fmt.Errorf("the informer's watch: %w", err))
		}
	}); err != nil {
		t.Fatal(err)
	}
	registered, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc: f.add, UpdateFunc: func(_, now any) { f.add(now) },
		DeleteFunc: func(object any) { f.fail(fmt.Errorf("deleted: %v", object)) },
	})
	if err != nil {
		t.Fatal(err)
	}
	var done sync.WaitGroup
	done.Go(func() { informer.RunWithContext(t.Context()) })
	t.Cleanup(done.Wait)
	synced, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	if !cache.WaitForCacheSync(synced.Done(), registered.HasSynced) {
		outcome.Deadlinef(t, "%s has not synced after 20s", way)
	}
	return f
}

// followTable watches as `kubectl get --watch` does.
func followTable(t *testing.T, version, resource string) *follower {
	t.Helper()
	f := &follower{name: version + " " + resource + ", Table", resource: resource}
	body, err := cluster.client.Discovery().RESTClient().Get().AbsPath("/apis/metrics.k8s.io/"+version+"/"+resource).Param("watch", "true").
		SetHeader("Accept", "application/json;as=Table;v=v1;g=meta.k8s.io").Stream(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	var done sync.WaitGroup
	done.Go(func() {
		decoder := json.NewDecoder(body)
		for first := true; ; first = false {
			var event struct {
				Type   watch.EventType
				Object metav1.Table
			}
			err := decoder.Decode(&event)
			switch {
			case t.Context().Err() != nil:
				return
			case err != nil:
				f.fail(fmt.Errorf("read the watch: %w", err))
				return
			case event.Type != watch.Added || len(event.Object.Rows) != 1 || (len(event.Object.ColumnDefinitions) > 0) != first:
				f.fail(fmt.Errorf("event: %+v", event))
				return
			}
			object := &metav1.PartialObjectMetadata{}
			if err := json.Unmarshal(event.Object.Rows[0].Object.Raw, object); err != nil {
				f.fail(fmt.Errorf("decode the row's object: %w", err))
				return
			}
			f.add(object)
		}
	})
	t.Cleanup(func() {
		if err := body.Close(); err != nil && !errors.Is(err, io.EOF) && !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
		done.Wait()
	})
	return f
}

// testStartsOver holds a reflector of each version through the ends of its WatchList. No event tells that an object is
// gone, so the end must make it list again, not resume.
func testStartsOver(t *testing.T, kubelet *fakeKubelet) {
	client := newMetricsClient(t, cluster.config)
	reflectors := []*endedReflector{
		{version: "v1", getter: client.MetricsV1().RESTClient(), object: &metricsv1.PodMetrics{}},
		{version: "v1beta1", getter: client.MetricsV1beta1().RESTClient(), object: &metricsv1beta1.PodMetrics{}},
	}
	const pod = "gone"
	kubelet.run(pod, "app")
	cluster.createPod(t, "node-b", pod, nil, "app")
	kubelet.thaw()
	for _, r := range reflectors {
		r.start(t)
	}
	for _, r := range reflectors {
		outcome.Eventually(t, 20*time.Second, "the reflector of "+r.version+" has the pod", func(context.Context) error {
			if !r.has(pod) {
				return fmt.Errorf("it has %v", r.store.ListKeys())
			}
			return nil
		})
	}
	kubelet.stop(pod)
	cluster.delete(t, "pods", workloads, pod)
	for _, r := range reflectors {
		outcome.Eventually(t, 20*time.Second, "the reflector of "+r.version+" has dropped the pod", func(context.Context) error {
			if r.has(pod) {
				return fmt.Errorf("it has %v", r.store.ListKeys())
			}
			return nil
		})
		r.judge(t)
	}
}

// endedReflector is a reflector of the pods of all namespaces, of which the ends of its watches are noted.
type endedReflector struct {
	version string
	getter  cache.Getter
	object  runtime.Object
	store   cache.Store

	mu   sync.Mutex
	ends []error
}

func (r *endedReflector) start(t *testing.T) {
	t.Helper()
	// A reflector asks for 5 to 10 minutes, and the server's own limit is an hour.
	source := cache.NewFilteredListWatchFromClient(r.getter, "pods", metav1.NamespaceAll, func(o *metav1.ListOptions) { o.TimeoutSeconds = ptr.To[int64](5) })
	open := source.WatchFuncWithContext
	source.WatchFuncWithContext = func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
		w, err := open(ctx, o)
		if err != nil {
			return nil, err
		}
		ended := false
		return watch.Filter(w, func(event watch.Event) (watch.Event, bool) {
			// The reflector stops to read after that, which may be seen as another error.
			if event.Type == watch.Error && !ended {
				ended = true
				r.mu.Lock()
				defer r.mu.Unlock()
				r.ends = append(r.ends, apierrors.FromObject(event.Object))
			}
			return event, true
		}), nil
	}
	r.store = cache.NewStore(cache.MetaNamespaceKeyFunc)
	reflector := cache.NewReflectorWithOptions(source, r.object, r.store, cache.ReflectorOptions{})
	var done sync.WaitGroup
	done.Go(func() { reflector.RunWithContext(t.Context()) })
	t.Cleanup(done.Wait)
}

func (r *endedReflector) has(pod string) bool {
	_, exists, err := r.store.GetByKey(workloads + "/" + pod)
	return err == nil && exists
}

func (r *endedReflector) judge(t *testing.T) {
	t.Helper()
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.ends) == 0 {
		t.Errorf("%s: the reflector dropped the pod without an end of its watch", r.version)
	}
	for _, err := range r.ends {
		if !apierrors.IsTimeout(err) {
			t.Errorf("%s: the reflector's watch ended with %v, want a 504", r.version, err)
		}
	}
	if n := len(r.store.ListKeys()); n != 3 {
		t.Errorf("%s: it has %v, want the 3 pods that are left", r.version, r.store.ListKeys())
	}
}
