// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package e2e

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
)

const (
	// pollPeriod is far below the time that a data point is the newest of its object.
	pollPeriod = 500 * time.Millisecond
	// pollSlack is how much later than a watch a poll may see a data point, and the
	// other way round.
	pollSlack = 2 * time.Second
)

// served is a data point that a poll saw.
type served struct {
	object  string // NAMESPACE/NAME, or NAME of a node
	version string // resourceVersion
	// cells is what kubectl prints of it: name, CPU, memory and window.
	cells       string
	first, last time.Time
}

// polls ask each serving pod, without kube-apiserver in between, for all points all the
// time: what a watch has to deliver is what its pod served meanwhile. Pods scrape at
// moments of their own, so each one has points that another has not.
type polls struct {
	pods []string
	mu   sync.Mutex
	// points by resource and pod, then by object and resourceVersion.
	points map[string]map[string]*served
	// until is when the last complete poll of a resource and pod began.
	until map[string]time.Time
}

// startPolls polls until the test has ended.
func startPolls(t *testing.T) *polls {
	t.Helper()
	p := &polls{points: map[string]map[string]*served{}, until: map[string]time.Time{}}
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
		host := net.JoinHostPort(pod.Status.PodIP, strconv.Itoa(int(pod.Spec.Containers[0].Ports[0].ContainerPort)))
		for _, resource := range []string{"nodes", "pods"} {
			done.Go(func() {
				ticker := time.NewTicker(pollPeriod)
				defer ticker.Stop()
				for ctx.Err() == nil {
					if err := p.poll(ctx, client, "https://"+host, resource, pod.Name); err != nil && ctx.Err() == nil {
						t.Errorf("poll %s of pod %s: %v", resource, pod.Name, err)
						return
					}
					select {
					case <-ctx.Done():
					case <-ticker.C:
					}
				}
			})
		}
	}
	return p
}

func (p *polls) poll(ctx context.Context, client *http.Client, host, resource, pod string) error {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, host+"/apis/metrics.k8s.io/v1/"+resource, nil)
	if err != nil {
		return err
	}
	request.Header.Set("Accept", "application/json;as=Table;v=v1;g=meta.k8s.io")
	began := time.Now()
	answer, err := client.Do(request)
	if err != nil {
		return err
	}
	defer func() { _ = answer.Body.Close() }()
	body, err := io.ReadAll(answer.Body)
	if err != nil {
		return err
	}
	if answer.StatusCode != http.StatusOK {
		return fmt.Errorf("%s: %s", answer.Status, body)
	}
	var table metav1.Table
	if err := json.Unmarshal(body, &table); err != nil {
		return fmt.Errorf("decode: %w", err)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	key := resource + " " + pod
	if p.points[key] == nil {
		p.points[key] = map[string]*served{}
	}
	for _, row := range table.Rows {
		var meta metav1.PartialObjectMetadata
		if err := json.Unmarshal(row.Object.Raw, &meta); err != nil {
			return fmt.Errorf("decode a row's object: %w", err)
		}
		s := &served{object: nameOf(&meta), version: meta.ResourceVersion, first: began}
		cells := make([]string, len(row.Cells))
		for i, cell := range row.Cells {
			cells[i] = fmt.Sprint(cell)
		}
		s.cells = strings.Join(cells, " ")
		if known := p.points[key][s.object+" "+s.version]; known != nil {
			s = known
		}
		s.last = began
		p.points[key][s.object+" "+s.version] = s
	}
	p.until[key] = began
	return nil
}

// nameOf is NAMESPACE/NAME, or NAME where there is no namespace.
func nameOf(object metav1.Object) string {
	return strings.TrimPrefix(object.GetNamespace()+"/"+object.GetName(), "/")
}

// byVersion and byCells are how a stream tells data points apart.
func byVersion(s *served) string { return s.object + " " + s.version }

func byCells(s *served) string {
	if namespace, _, found := strings.Cut(s.object, "/"); found {
		return namespace + " " + s.cells
	}
	return s.cells
}

// stream is what a watch delivered.
type stream struct {
	resource string
	// identify is the ID that a point has in got.
	identify func(*served) string
	// listed: the client lists before it watches, so that it sees what there is at the
	// beginning once more, and perhaps as another pod has it.
	listed bool
	// in is how the names of its objects begin, where it is not of all of them.
	in string

	mu  sync.Mutex
	got []sighting
}

type sighting struct {
	id string
	at time.Time
}

func (s *stream) add(id string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.got = append(s.got, sighting{id, time.Now()})
}

// judge fails unless one pod served what the stream delivered until now: each point,
// none twice, and no other.
func (p *polls) judge(t *testing.T, s *stream) {
	t.Helper()
	s.mu.Lock()
	got, ended := slices.Clone(s.got), time.Now()
	s.mu.Unlock()
	eventually(t, time.Minute, "the polls are as far as the stream", func(context.Context) error {
		p.mu.Lock()
		defer p.mu.Unlock()
		for _, pod := range p.pods {
			if !p.until[s.resource+" "+pod].After(ended.Add(pollSlack)) {
				return errors.New(pod + " was not asked since")
			}
		}
		return nil
	})
	// One object, with a new point each 15 s, would be twice that.
	if least := int(watchMinutes(t) / (30 * time.Second)); len(got) < least {
		t.Fatalf("%d data points were delivered, want %d and more", len(got), least)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	var best []string
	fits := ""
	for _, pod := range p.pods {
		if wrong := p.compare(s, pod, got, ended); fits == "" || len(wrong) < len(best) {
			best, fits = wrong, pod
		}
	}
	t.Logf("%d data points of %s, as pod %s served them", len(got), s.resource, fits)
	for i, wrong := range best {
		if i == 10 {
			t.Errorf("and %d more", len(best)-i)
			break
		}
		t.Errorf("compared with polls of pod %s: %s", fits, wrong)
	}
}

// compare tells what is wrong with the stream if it came from the pod.
func (p *polls) compare(s *stream, pod string, got []sighting, ended time.Time) []string {
	began := got[0].at
	least, most := map[string]int{}, map[string]int{}
	for _, of := range p.pods {
		for _, point := range p.points[s.resource+" "+of] {
			if !strings.HasPrefix(point.object, s.in) {
				continue
			}
			id := s.identify(point)
			atFirst := point.first.Before(began.Add(pollSlack)) && point.last.After(began.Add(-pollSlack))
			if of == pod {
				most[id]++
				if point.last.After(began.Add(pollSlack)) && point.first.Before(ended.Add(-pollSlack)) {
					least[id]++
				}
			}
			if s.listed && atFirst {
				most[id]++
			}
		}
	}
	count := map[string]int{}
	var wrong []string
	for _, sighting := range got {
		if count[sighting.id]++; count[sighting.id] > most[sighting.id] {
			wrong = append(wrong, fmt.Sprintf("%s: %q came %d times, was served %d times", sighting.at.Format(time.TimeOnly), sighting.id, count[sighting.id], most[sighting.id]))
		}
	}
	for _, id := range slices.Sorted(maps.Keys(least)) {
		if count[id] < least[id] {
			wrong = append(wrong, fmt.Sprintf("%q came %d times, was served %d times", id, count[id], least[id]))
		}
	}
	return wrong
}
