// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

// Package clients sees a metrics API as its consumers do, while something is done to
// it: clients of both versions, the HorizontalPodAutoscaler controller, the deletion
// of namespaces, and the platform's own figures. Its Result says what each of them
// noticed.
//
// The rule for requests: no 5xx, and no 404 where a discovery read that ended before
// the request and one that started 15 s after it both list the version as current.
// A client that asks for v1beta1 only must not notice anything at all.
package clients

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
)

// Settle is how long after a request discovery may still change before a 404 is held
// against the backend. kube-apiserver renders discovery some time after an APIService
// comes or goes, and another kube-apiserver renders it at another moment.
const Settle = 15 * time.Second

const (
	// discoveryPeriod is how often the clients of v1 learn what is there.
	discoveryPeriod = time.Second
	figuresPeriod   = 5 * time.Second
	// requestTimeout is what a client waits for an answer, and more than any takes.
	requestTimeout = 10 * time.Second
	// clients is the number of connections for each kind of client.
	clients = 5
)

// Options say what is watched.
type Options struct {
	// Config is of an administrator: it reads /metrics and makes namespaces.
	Config *rest.Config
	// Rate is the number of requests a second, in total. Default: 50.
	Rate int
	// Autoscaler must stay ScalingActive. None: no autoscaler is watched.
	Autoscaler types.NamespacedName
	// Namespaces says whether namespaces are made and deleted, one after the other.
	Namespaces bool
	// ControllerManager is the URL of the controller manager's /metrics, for which
	// Config's certificate is good too. Empty: its figures are not read.
	ControllerManager string
}

// Clients are what runs between Start and Stop.
type Clients struct {
	options Options
	core    *kubernetes.Clientset
	judged  context.CancelFunc // ends what is judged
	stop    context.CancelFunc // ends discovery, Settle later
	first   sync.WaitGroup
	last    sync.WaitGroup
	stopped sync.Once

	mu       sync.Mutex
	reads    []Read
	requests []Request
	result   Result
	before   figures
}

// Start begins to watch, once the first discovery read and the figures are there.
func Start(ctx context.Context, options Options) (*Clients, error) {
	if options.Rate == 0 {
		options.Rate = 50
	}
	core, err := kubernetes.NewForConfig(options.Config)
	if err != nil {
		return nil, err
	}
	c := &Clients{options: options, core: core}
	c.result.began = time.Now()
	if c.before, err = c.readFigures(ctx); err != nil {
		return nil, err
	}
	discovery, err := ownConnection(options.Config)
	if err != nil {
		return nil, err
	}
	first := readDiscovery(ctx, discovery, options.Config.Host)
	if first.Err != "" {
		return nil, fmt.Errorf("first read of discovery: %s", first.Err)
	}
	c.reads = append(c.reads, first)

	registrations, err := c.registrations()
	if err != nil {
		return nil, err
	}
	long, stop := context.WithCancel(context.WithoutCancel(ctx))
	short, judged := context.WithCancel(long)
	c.stop, c.judged = stop, judged
	c.last.Go(func() { c.discover(long, discovery) })
	for kind, choose := range map[string]func() string{"v1 through discovery": c.preferred, "v1beta1 only": func() string { return "v1beta1" }} {
		for i := range clients {
			client, err := ownConnection(options.Config)
			if err != nil {
				stop()
				return nil, err
			}
			period := time.Second * 2 * clients / time.Duration(options.Rate)
			// Spread, so that requests come one by one.
			offset := period * time.Duration(i) / clients
			c.first.Go(func() { c.ask(short, client, kind, choose, period, offset) })
		}
	}
	if options.Autoscaler.Name != "" {
		c.first.Go(func() { c.watchAutoscaler(short) })
	}
	if options.Namespaces {
		c.first.Go(func() { c.cycleNamespaces(short) })
	}
	c.first.Go(func() { c.sampleFigures(short) })
	c.first.Go(func() { registrations.RunWithContext(short) })
	return c, nil
}

// Stop ends the load, reads discovery until each request can be judged, and says
// what was noticed. Another call returns the same, and false.
func (c *Clients) Stop(ctx context.Context) (*Result, bool) {
	first := false
	c.stopped.Do(func() { first = true; c.finish(ctx) })
	return &c.result, first
}

func (c *Clients) finish(ctx context.Context) {
	c.judged()
	c.first.Wait()
	after, err := c.readFigures(ctx)
	select {
	case <-time.After(Settle + 2*discoveryPeriod):
	case <-ctx.Done():
		err = errors.Join(err, fmt.Errorf("stopped before the last requests could be judged: %w", context.Cause(ctx)))
	}
	c.stop()
	c.last.Wait()

	c.mu.Lock()
	defer c.mu.Unlock()
	r := &c.result
	r.ended = time.Now()
	r.Reads = c.reads
	r.judgeReads()
	r.judgeRequests(c.requests)
	if err != nil {
		r.fail("figures at the end: %v", err)
	} else {
		r.judgeFigures(c.before, after)
	}
}

// Reads returns the discovery reads so far, in order.
func (c *Clients) Reads() []Read {
	c.mu.Lock()
	defer c.mu.Unlock()
	return append([]Read(nil), c.reads...)
}

func (c *Clients) fail(format string, args ...any) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.result.fail(format, args...)
}

// ownConnection is a client that shares its connection with nobody: client-go keeps
// one transport for all configurations that are alike, except in their dialer.
func ownConnection(config *rest.Config) (*http.Client, error) {
	own := rest.CopyConfig(config)
	own.Dial = (&net.Dialer{Timeout: requestTimeout, KeepAlive: 30 * time.Second}).DialContext
	own.Timeout = requestTimeout
	return rest.HTTPClientFor(own)
}

// Answered is how many requests for the version were answered with metrics so far.
func (c *Clients) Answered(version string) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	n := 0
	for i := range c.requests {
		if c.requests[i].Version == version && c.requests[i].Code == http.StatusOK {
			n++
		}
	}
	return n
}

// Absent is for how long no read of discovery has listed the version as current.
func (c *Clients) Absent(version string) time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	last := c.reads[len(c.reads)-1].Ended
	since := last
	for i := len(c.reads) - 1; i >= 0 && !c.reads[i].Lists(version); i-- {
		since = c.reads[i].Began
	}
	return last.Sub(since)
}
