//go:build integration

// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package serving

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	apidiscoveryv2 "k8s.io/api/apidiscovery/v2"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"k8s.io/utils/ptr"

	"github.com/metricsbackend/metrics-backend-operator/api/v1alpha1"
	"github.com/metricsbackend/metrics-backend-operator/test/outcome"
)

const (
	nodesPath = "/apis/metrics.k8s.io/v1/nodes"
	// The queries of a reflector that lists by watching, of a client that allows
	// bookmarks, and of one that does not.
	watchListQuery = "?watch=true&allowWatchBookmarks=true&sendInitialEvents=true&resourceVersionMatch=NotOlderThan"
	bookmarksQuery = "?watch=true&allowWatchBookmarks=true&resourceVersion=1"
	plainQuery     = "?watch=true&resourceVersion=garbage"
)

// aggregatedType is the media type of aggregated discovery.
const aggregatedType = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"

// observedWatch is a watch through kube-apiserver that keeps the types of all its events.
type observedWatch struct {
	mu    sync.Mutex
	types []string

	ended chan struct{}
	// err is how the stream broke; nil when it ended as it should.
	err error
}

// throughKubeAPIServer returns an HTTP client with the rights of a configuration, and kube-apiserver's URL.
func throughKubeAPIServer(t *testing.T, config *rest.Config) (*http.Client, string) {
	t.Helper()
	client, err := rest.HTTPClientFor(config)
	if err != nil {
		t.Fatalf("make a client: %v", err)
	}
	url := strings.TrimSuffix(config.Host, "/")
	if !strings.HasPrefix(url, "https://") {
		url = "https://" + url
	}
	return client, url
}

// observe opens a watch; if it is refused, observe returns the response.
func observe(ctx context.Context, client *http.Client, url string) (*observedWatch, *http.Response, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return nil, nil, err
	}
	answer, err := client.Do(request)
	if err != nil {
		return nil, nil, err
	}
	if answer.StatusCode != http.StatusOK {
		return nil, answer, nil
	}
	h := &observedWatch{ended: make(chan struct{})}
	go func() {
		defer close(h.ended)
		defer answer.Body.Close()
		lines := bufio.NewScanner(answer.Body)
		lines.Buffer(nil, 1<<20)
		for lines.Scan() {
			var event struct {
				Type   string
				Object struct {
					Code     int32
					Metadata metav1.ObjectMeta
				}
			}
			if h.err = json.Unmarshal(lines.Bytes(), &event); h.err != nil {
				return
			}
			if event.Object.Code != 0 {
				event.Type += fmt.Sprint(" ", event.Object.Code)
			}
			if event.Object.Metadata.Annotations[metav1.InitialEventsAnnotationKey] == "true" {
				event.Type += " end"
			}
			h.mu.Lock()
			h.types = append(h.types, event.Type)
			h.mu.Unlock()
		}
		h.err = lines.Err()
	}()
	return h, answer, nil
}

// mustObserve opens a watch that must not be refused.
func mustObserve(t *testing.T, path string) *observedWatch {
	t.Helper()
	client, url := throughKubeAPIServer(t, cluster.config)
	h, refused, err := observe(t.Context(), client, url+path) //nolint:bodyclose // The observed watch closes it.
	if err != nil {
		t.Fatalf("watch %s: %v", path, err)
	}
	if h == nil {
		t.Fatalf("watch %s: %s", path, refused.Status)
	}
	return h
}

func (h *observedWatch) all() []string {
	h.mu.Lock()
	defer h.mu.Unlock()
	return slices.Clone(h.types)
}

// wantType waits for another event of a type.
func (h *observedWatch) wantType(t *testing.T, typ string, within time.Duration) {
	t.Helper()
	before := len(h.all())
	outcome.Eventually(t, within, "an event "+typ, func(context.Context) error {
		if all := h.all(); !slices.Contains(all[before:], typ) {
			return fmt.Errorf("got %v", all)
		}
		return nil
	})
}

// wantEnd waits for a clean end, with a last event of a type.
func (h *observedWatch) wantEnd(t *testing.T, last string, within time.Duration) {
	t.Helper()
	select {
	case <-h.ended:
	case <-time.After(within):
		outcome.Deadlinef(t, "the watch has not ended within %s: %v", within, h.all())
	}
	all := h.all()
	if h.err != nil || len(all) == 0 || all[len(all)-1] != last {
		t.Errorf("the watch ended with %v after %v, want a clean end after %s", h.err, all, last)
	}
}

// refused checks the status and the message with which a watch is refused, and returns Retry-After.
func refused(t *testing.T, path string, code int, text string) string {
	t.Helper()
	client, url := throughKubeAPIServer(t, cluster.config)
	h, answer, err := observe(t.Context(), client, url+path)
	if err != nil || h != nil {
		t.Fatalf("watch %s: %v, want %d", path, err, code)
	}
	defer answer.Body.Close()
	body, err := io.ReadAll(answer.Body)
	if err != nil {
		t.Fatal(err)
	}
	var status metav1.Status
	if err := json.Unmarshal(body, &status); err != nil {
		t.Fatalf("watch %s: %s and no Status: %s", path, answer.Status, body)
	}
	if answer.StatusCode != code || !strings.Contains(status.Message, text) {
		t.Errorf("watch %s: %d %q, want %d %q", path, answer.StatusCode, status.Message, code, text)
	}
	return answer.Header.Get("Retry-After")
}

// between reports whether a text is a number in a range, its ends included.
func between(text string, least, most int) bool {
	n, err := strconv.Atoi(text)
	return err == nil && least <= n && n <= most
}

// watchIn returns an error unless all resources have the verb watch, or none has.
func watchIn(discovery []byte, want bool) error {
	var list apidiscoveryv2.APIGroupDiscoveryList
	if err := json.Unmarshal(discovery, &list); err != nil {
		return err
	}
	found := 0
	for _, group := range list.Items {
		if group.Name != "metrics.k8s.io" {
			continue
		}
		for _, version := range group.Versions {
			for _, r := range version.Resources {
				found++
				if slices.Contains(r.Verbs, "watch") != want || !slices.Contains(r.Verbs, "get") || !slices.Contains(r.Verbs, "list") {
					return fmt.Errorf("%s %s: %v", version.Version, r.Resource, r.Verbs)
				}
			}
		}
	}
	if found != 4 {
		return fmt.Errorf("%d resources, want 4", found)
	}
	return nil
}

// aggregatedDiscovery is kube-apiserver's.
func aggregatedDiscovery(ctx context.Context) ([]byte, error) {
	return cluster.client.Discovery().RESTClient().Get().AbsPath("/apis").SetHeader("Accept", aggregatedType).DoRaw(ctx)
}

// TestWatchFollowsItsBackend changes spec.watch under one running process, which is
// watched through kube-apiserver meanwhile.
func TestWatchFollowsItsBackend(t *testing.T) {
	inTurn(t)
	const name = "watched-settings"
	kubelet := cluster.startNode(t, "node-"+name, map[string]string{nodesOf: name})
	backends := newBackendClient(t)
	backend := newBackend(time.Second)
	backend.Name = name
	backend.Spec.ResourceMetrics.Scrape.NodeSelector = &metav1.LabelSelector{MatchLabels: map[string]string{nodesOf: name}}
	// The list is compared with a later one, while nothing is renewed.
	backend.Spec.ResourceMetrics.MaxSampleAge = &metav1.Duration{Duration: 10 * time.Minute}
	backend.Spec.Watch = v1alpha1.WatchSpec{BookmarkInterval: &metav1.Duration{Duration: 5 * time.Second}, MaxWatchesPerUser: ptr.To[int32](3)}
	create(t, backends, backend)
	reader := cluster.token(t, "reader")
	p := cluster.startServing(t, name, "--backend="+name)
	inForce := func(generation int64) {
		t.Helper()
		outcome.Eventually(t, 20*time.Second, "the settings are in force", func(context.Context) error {
			report, err := readReport[v1alpha1.SourceReport](t.Context(), p, v1alpha1.SourcesPath, reader)
			if err != nil || report.ObservedGeneration != generation {
				return fmt.Errorf("%+v, %w, want generation %d", report, err, generation)
			}
			return nil
		})
	}
	change := func(change func(*v1alpha1.WatchSpec)) {
		t.Helper()
		inForce(edit(t, backends, name, func(b *v1alpha1.MetricsBackend) { change(&b.Spec.Watch) }).Generation)
	}
	inForce(backend.Generation)
	p.waitReady(t)
	cluster.registerBoth(t, name, p.port)

	kubelet.freeze() // bookmarks are sent when there are no events
	reflector := mustObserve(t, nodesPath+watchListQuery)
	bookmarked := mustObserve(t, nodesPath+bookmarksQuery)
	plain := mustObserve(t, "/apis/metrics.k8s.io/v1beta1/nodes"+plainQuery)
	outcome.Eventually(t, 10*time.Second, "the initial events", func(context.Context) error {
		// More may have come since: the sample at which the kubelet stopped, or a bookmark.
		if all := reflector.all(); len(all) < 2 || !slices.Equal(all[:2], []string{"ADDED", "BOOKMARK end"}) {
			return fmt.Errorf("got %v", all)
		}
		return nil
	})
	bookmarked.wantType(t, "BOOKMARK", 15*time.Second)

	if after := refused(t, nodesPath+plainQuery, http.StatusTooManyRequests, "has all of its 3 watches in use (spec.watch.maxWatchesPerUser)"); !between(after, 5, 15) {
		t.Errorf("Retry-After %q, want 5 to 15 seconds", after)
	}
	change(func(w *v1alpha1.WatchSpec) {
		w.MaxWatches = ptr.To[int32](3)
		w.MaxWatchesPerUser = ptr.To[int32](1000)
	})
	refused(t, nodesPath+plainQuery, http.StatusTooManyRequests, "all of 3 watches are in use (spec.watch.maxWatches)")
	change(func(w *v1alpha1.WatchSpec) {
		w.MaxWatches = nil
		w.BookmarkInterval = &metav1.Duration{Duration: 10 * time.Minute}
	})
	fourth := mustObserve(t, nodesPath+plainQuery)
	if slices.ContainsFunc(plain.all(), func(typ string) bool { return typ != "ADDED" }) {
		t.Errorf("a client that does not allow bookmarks got %v", plain.all())
	}

	list, err := raw(t.Context(), nodesPath)
	if err != nil {
		t.Fatal(err)
	}
	served := func(want bool) {
		t.Helper()
		own, err := aggregatedDiscoveryOf(t, p, reader)
		if err == nil {
			err = watchIn(own, want)
		}
		if err != nil {
			t.Errorf("serving's discovery, with watch %t: %v", want, err)
		}
		if now, err := raw(t.Context(), nodesPath); err != nil || string(now) != string(list) {
			t.Errorf("the list has changed: %v\n%s\n%s", err, list, now)
		}
		for _, version := range []string{"v1", "v1beta1"} {
			touchAPIService(t, version)
		}
		outcome.Eventually(t, 2*time.Minute, "kube-apiserver's discovery follows", func(context.Context) error {
			document, err := aggregatedDiscovery(t.Context())
			if err != nil {
				return err
			}
			return watchIn(document, want)
		})
	}
	change(func(w *v1alpha1.WatchSpec) { w.Mode = v1alpha1.WatchDisabled })
	refused(t, nodesPath+plainQuery, http.StatusMethodNotAllowed, `watch is not supported on resources of kind "nodes.metrics.k8s.io"`)
	reflector.wantEnd(t, "ERROR 504", 30*time.Second)
	bookmarked.wantEnd(t, "BOOKMARK", 30*time.Second)
	plain.wantEnd(t, "ADDED", 30*time.Second)
	fourth.wantEnd(t, "ADDED", 30*time.Second)
	served(false)
	refused(t, nodesPath+watchListQuery, http.StatusMethodNotAllowed, "watch is not supported")

	change(func(w *v1alpha1.WatchSpec) { w.Mode = v1alpha1.WatchEnabled })
	again := mustObserve(t, nodesPath+watchListQuery)
	served(true)
	kubelet.thaw()
	again.wantType(t, "ADDED", 15*time.Second)
}

// touchAPIService makes the aggregator read discovery at once, which it otherwise does once a minute.
func touchAPIService(t *testing.T, version string) {
	t.Helper()
	patch := fmt.Appendf(nil, `{"metadata":{"annotations":{"touched":%q}}}`, time.Now())
	_, err := cluster.aggregator.ApiregistrationV1().APIServices().Patch(t.Context(), version+".metrics.k8s.io", types.MergePatchType, patch, metav1.PatchOptions{})
	if err != nil {
		t.Fatalf("annotate the APIService of %s: %v", version, err)
	}
}

// aggregatedDiscoveryOf asks the process itself.
func aggregatedDiscoveryOf(t *testing.T, p *process, token string) ([]byte, error) {
	t.Helper()
	_, body, err := p.get(t.Context(), "/apis", token, "Accept", aggregatedType)
	return []byte(body), err
}

// TestWatchFollowsItsFile changes spec.watch by --backend-file, from a start without watch.
func TestWatchFollowsItsFile(t *testing.T) {
	beside(t)
	cluster.startNode(t, "node-filed", map[string]string{nodesOf: "filed"})
	folder, reader := t.TempDir(), cluster.token(t, "reader")
	write := func(watch string) string {
		return cluster.writeFile(t, folder, "backend.yaml", []byte(fastScrapes("filed", "watch: "+watch)))
	}
	file := write("{mode: Disabled}")
	p := cluster.startServing(t, "filed", "--backend-file="+file)
	p.waitReady(t)
	status := func() int {
		t.Helper()
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		answer, err := p.send(ctx, p.client, nodesPath+plainQuery, reader)
		if err != nil {
			t.Fatal(err)
		}
		defer answer.Body.Close()
		return answer.StatusCode
	}
	want := func(what string, code int, served bool) {
		t.Helper()
		outcome.Eventually(t, 10*time.Second, what, func(context.Context) error {
			document, err := aggregatedDiscoveryOf(t, p, reader)
			if err != nil {
				return err
			}
			if err := watchIn(document, served); err != nil {
				return err
			}
			if got := status(); got != code {
				return fmt.Errorf("a watch answers %d, want %d", got, code)
			}
			return nil
		})
	}
	want("watch is off from the start", http.StatusMethodNotAllowed, false)
	write("{mode: Enabled}")
	want("watch is turned on", http.StatusOK, true)
	write("{mode: Perhaps}")
	outcome.Eventually(t, 10*time.Second, "the log tells of a mode that is not known", func(context.Context) error { return p.logged("spec.watch.mode") })
	want("the mode before it stays", http.StatusOK, true)
	if err := os.Remove(file); err != nil {
		t.Fatal(err)
	}
	write("{mode: Disabled}")
	want("watch is turned off", http.StatusMethodNotAllowed, false)
}
