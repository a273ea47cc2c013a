// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package e2e

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/rest"

	"github.com/metricsbackend/metrics-backend-operator/test/delivery"
	"github.com/metricsbackend/metrics-backend-operator/test/outcome"
)

// pollPeriod is far below the time that a data point is the newest of its object.
const pollPeriod = 500 * time.Millisecond

// pollTimeout leaves time for another poll of the same points.
const pollTimeout = 5 * time.Second

// polls ask each serving pod, without kube-apiserver in between, for all points all the
// time: what a watch has to deliver is what its pod served meanwhile. Pods scrape at
// moments of their own, so each one has points that another has not.
type polls struct {
	pods []string
	mu   sync.Mutex
	// points by resource and pod, then by object and resourceVersion.
	points map[string]map[string]*delivery.Point
	// until is when the last poll of a resource and pod began that was answered.
	until map[string]time.Time
}

// startPolls polls until the test has ended.
func startPolls(t *testing.T) *polls {
	t.Helper()
	p := &polls{points: map[string]map[string]*delivery.Point{}, until: map[string]time.Time{}}
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	var done sync.WaitGroup
	t.Cleanup(func() { cancel(); done.Wait() })
	var list corev1.PodList
	if err := suite.client.List(t.Context(), &list, serving()...); err != nil {
		t.Fatal(err)
	}
	for i := range list.Items {
		pod := &list.Items[i]
		p.pods = append(p.pods, pod.Name)
		config := rest.CopyConfig(suite.config)
		// The administrator's certificate is good for the pod too. The pod's own is for
		// its Service, and replaced meanwhile.
		config.TLSClientConfig = rest.TLSClientConfig{Insecure: true,
			CertData: config.CertData, CertFile: config.CertFile, KeyData: config.KeyData, KeyFile: config.KeyFile}
		client, err := rest.HTTPClientFor(config)
		if err != nil {
			t.Fatal(err)
		}
		host := podAddress(pod)
		for _, resource := range []string{"nodes", "pods"} {
			done.Go(func() {
				wait.NonSlidingUntilWithContext(ctx, func(ctx context.Context) {
					// The next poll sees the same points. One that none saw is missed by judge.
					if err := p.poll(ctx, client, "https://"+host, resource, pod.Name); err != nil && ctx.Err() == nil {
						t.Logf("poll %s of pod %s: %v", resource, pod.Name, err)
					}
				}, pollPeriod)
			})
		}
	}
	return p
}

func (p *polls) poll(ctx context.Context, client *http.Client, host, resource, pod string) error {
	ctx, cancel := context.WithTimeout(ctx, pollTimeout)
	defer cancel()
	began := time.Now()
	var table metav1.Table
	const accept = "application/json;as=Table;v=v1;g=meta.k8s.io"
	if err := getJSON(ctx, client, accept, host+"/apis/metrics.k8s.io/v1/"+resource, &table); err != nil {
		return err
	}
	ended := time.Now()
	p.mu.Lock()
	defer p.mu.Unlock()
	key := resource + " " + pod
	if p.points[key] == nil {
		p.points[key] = map[string]*delivery.Point{}
	}
	for _, row := range table.Rows {
		var meta metav1.PartialObjectMetadata
		if err := json.Unmarshal(row.Object.Raw, &meta); err != nil {
			return fmt.Errorf("decode a row's object: %w", err)
		}
		s := &delivery.Point{Object: nameOf(&meta), Version: meta.ResourceVersion, Earliest: p.until[key], First: ended}
		cells := make([]string, len(row.Cells))
		for i, cell := range row.Cells {
			cells[i] = fmt.Sprint(cell)
		}
		s.Cells = strings.Join(cells, " ")
		if known := p.points[key][delivery.ByVersion(s)]; known != nil {
			s = known
		}
		s.Last = began
		p.points[key][delivery.ByVersion(s)] = s
	}
	for _, s := range p.points[key] {
		if s.Last.Before(began) && s.Latest.IsZero() {
			s.Latest = ended
		}
	}
	p.until[key] = began
	return nil
}

// nameOf is NAMESPACE/NAME, or NAME where there is no namespace.
func nameOf(object metav1.Object) string {
	return strings.TrimPrefix(object.GetNamespace()+"/"+object.GetName(), "/")
}

// stream is what a watch of a resource delivers.
type stream struct {
	delivery.Stream
	resource string

	mu  sync.Mutex
	got []delivery.Sighting
}

func (s *stream) add(id string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.got = append(s.got, delivery.Sighting{ID: id, At: time.Now()})
}

// judge fails unless one pod served what the stream delivered until now: each point,
// none twice, and no other.
func (p *polls) judge(t *testing.T, s *stream) {
	t.Helper()
	s.mu.Lock()
	got, ended := slices.Clone(s.got), time.Now()
	s.mu.Unlock()
	outcome.Eventually(t, time.Minute, "the polls are as far as the stream", func(context.Context) error {
		p.mu.Lock()
		defer p.mu.Unlock()
		for _, pod := range p.pods {
			if !p.until[s.resource+" "+pod].After(ended.Add(delivery.Slack)) {
				return errors.New(pod + " was not asked since")
			}
		}
		return nil
	})
	// One object, with a new point each 15 s, would be twice that.
	if least := int(watchWindow(t) / (30 * time.Second)); len(got) < least {
		t.Fatalf("%d data points were delivered, want %d and more", len(got), least)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	points := map[string][]*delivery.Point{}
	for _, pod := range p.pods {
		points[pod] = slices.Collect(maps.Values(p.points[s.resource+" "+pod]))
	}
	pod, wrong := s.Judge(points, got, ended)
	t.Logf("%d data points of %s, as pod %s served them", len(got), s.resource, pod)
	for i, of := range wrong {
		if i == 10 {
			t.Errorf("and %d more", len(wrong)-i)
			break
		}
		outcome.Unsafe(t, "compared with polls of pod %s: %s", pod, of)
	}
}
