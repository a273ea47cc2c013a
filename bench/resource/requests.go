// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"time"

	"github.com/metricsbackend/metrics-backend-operator/bench/figures"
	"github.com/metricsbackend/metrics-backend-operator/test/fleet"
)

// metricsAPI is the version that both implementations serve.
const metricsAPI = "/apis/metrics.k8s.io/v1beta1"

// Values of Accept. asTable is what kubectl sends.
const (
	asJSON     = "application/json"
	asProtobuf = "application/vnd.kubernetes.protobuf"
	asTable    = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json;as=Table;v=v1beta1;g=meta.k8s.io,application/json"
)

// request is a request whose latency is measured.
type request struct {
	// figure that its latency is reported as.
	figure string
	// paths are requested in turn.
	paths []string
	// times is how many times as often as others the request is measured, since it takes little time; 0 is once.
	times  int
	header []string
	// count returns the number of objects in a body, which must be want to most.
	count      func([]byte) (int, error)
	want, most int
}

// small is how many times as often small requests are measured.
const small = 10

// tier is a label of a third of the pods.
const tier = "frontend"

// population is the number of objects that each kind of list has.
type population struct{ nodes, pods, ofNamespace, ofTier int }

func populationOf(nodes []*fleet.Node, namespace string) population {
	p := population{nodes: len(nodes)}
	for _, node := range nodes {
		for _, pod := range node.Pods() {
			p.pods++
			if pod.Namespace == namespace {
				p.ofNamespace++
				if pod.Labels["tier"] == tier {
					p.ofTier++
				}
			}
		}
	}
	return p
}

// newRequests returns the requests in the order in which they are measured. Lists must have
// the objects of the healthy nodes, and may have those of the others.
func newRequests(f *fleet.Fleet, well []*fleet.Node, s scenario) []*request {
	namespace := f.Namespaces()[0]
	want, most := populationOf(well, namespace), populationOf(f.Nodes(), namespace)
	var single []string
	for _, node := range well {
		pod := node.Pods()[0]
		single = append(single, metricsAPI+"/namespaces/"+pod.Namespace+"/pods/"+pod.Name)
	}
	one := func(figure, path, accept string, count func([]byte) (int, error), of func(population) int, header ...string) *request {
		return &request{
			figure: figure, paths: []string{metricsAPI + path}, header: append([]string{"accept", accept}, header...),
			count: count, want: of(want) - s.tolerated(of(want)), most: of(most),
		}
	}
	all := func(p population) int { return p.pods }
	ofNamespace := func(p population) int { return p.ofNamespace }
	ofTier := func(p population) int { return p.ofTier }
	ofNodes := func(p population) int { return p.nodes }
	inNamespace := "/namespaces/" + namespace + "/pods"
	nodesJSON := one(listNodes, "/nodes", asJSON, countJSON, ofNodes)
	nodesJSON.times = small
	return []*request{
		one(listJSON, "/pods", asJSON, countJSON, all),
		one(listProtobuf, "/pods", asProtobuf, countProtobuf, all),
		one(listNamespace, inNamespace, asJSON, countJSON, ofNamespace),
		one(listLabel, inNamespace+"?labelSelector=tier%3D"+tier, asJSON, countJSON, ofTier),
		nodesJSON,
		{figure: getPod, paths: single, times: small, header: []string{"accept", asJSON}, count: countJSON, want: 1, most: 1},
		one(listTable, "/pods", asTable, countTable, all),
		one(listGzip, "/pods", asJSON, countGzip, all, "accept-encoding", "gzip"),
		one(listPretty, "/pods?pretty=1", asJSON, countJSON, all),
	}
}

// latency is the outcome of a request's repetitions.
type latency struct {
	// first took the first request, before which nothing was requested in this encoding
	// for some time.
	first  time.Duration
	median time.Duration
	// size of the last body, in bytes.
	size int64
}

// measure sends the request once, once more to check that all objects are in the body, and then as often as its median
// needs.
func (r *request) measure(ctx context.Context, c *client, repetitions int) (*latency, error) {
	// Discarded, as in the requests that count: keeping a large body in this program delays reading it.
	first, err := c.get(ctx, r.paths[0], r.header, false)
	if err != nil {
		return nil, err
	}
	kept, err := c.get(ctx, r.paths[0], r.header, true)
	if err != nil {
		return nil, err
	}
	count, err := r.count(kept.body)
	if err != nil {
		return nil, fmt.Errorf("check the response to %s: %w", r.paths[0], err)
	}
	if count < r.want || count > r.most {
		return nil, fmt.Errorf("%s has %d objects, not %d to %d", r.paths[0], count, r.want, r.most)
	}
	l := &latency{first: first.took}
	var took figures.Durations
	n := repetitions * max(r.times, 1)
	if others := len(r.paths) - 1; others > 0 {
		// A path that was requested before is authorized from a cache.
		n = max(repetitions, min(n, others))
	}
	for i := range n {
		next, err := c.get(ctx, r.paths[(i+1)%len(r.paths)], r.header, false)
		if err != nil {
			return nil, err
		}
		took.Add(next.took)
		l.size = next.size
	}
	l.median = took.Quantile(0.5)
	return l, nil
}
