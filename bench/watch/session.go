// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"time"

	"github.com/metricsbackend/metrics-backend-operator/bench/figures"
	"github.com/metricsbackend/metrics-backend-operator/bench/machine"
	"github.com/metricsbackend/metrics-backend-operator/bench/progress"
	"github.com/metricsbackend/metrics-backend-operator/bench/streams"
)

// session has clients on a number of connections, each connection with a tally.
type session struct {
	// name is part of its users' names, so that sessions do not share the rate limit of
	// opening watches.
	name        string
	environment *environment
	api         api
	fields      func(user string) []string
	connections []*streams.Connection
	tallies     []*tally
}

func dial(ctx context.Context, e *environment, to endpoint, api api, name string, connections int) (*session, error) {
	s := &session{name: name, environment: e, api: api, fields: to.fields}
	for range connections {
		c, err := streams.Dial(ctx, to.address, to.tls)
		if err != nil {
			s.close()
			return nil, err
		}
		s.connections = append(s.connections, c)
		s.tallies = append(s.tallies, newTally(e))
	}
	return s, nil
}

// user returns the user of a connection.
func (s *session) user(connection int) string { return userName(s.name, connection) }

func userName(session string, connection int) string {
	return fmt.Sprintf("%s-%d", session, connection)
}

func (s *session) close() {
	for _, c := range s.connections {
		c.Close()
	}
}

// watch opens a number of watches, spread over a time (0: as fast as possible), and returns
// when each has its initial events. With recordAges, the ages of data points are recorded.
func (s *session) watch(ctx context.Context, watches int, over time.Duration, recordAges bool) error {
	began := time.Now()
	each := watches / len(s.connections)
	errs := make([]error, len(s.connections))
	var opening sync.WaitGroup
	for i, c := range s.connections {
		opening.Go(func() {
			fields := s.fields(s.user(i))
			for j := range each {
				// Round robin, so that connections fill evenly.
				n := j*len(s.connections) + i
				if err := progress.Wait(ctx, time.Until(began.Add(over*time.Duration(n)/time.Duration(watches)))); err != nil {
					errs[i] = err
					return
				}
				h := &watcher{response: response{tally: s.tallies[i]}, opened: time.Now()}
				if recordAges {
					h.client = s.client(i)
				}
				if err := c.Get(s.api.watch(s.environment.target(n)), fields, h); err != nil {
					errs[i] = fmt.Errorf("open watch %d: %w", n, err)
					return
				}
			}
		})
	}
	opening.Wait()
	if err := errors.Join(errs...); err != nil {
		return err
	}
	return s.waitSynced(ctx, each*len(s.connections))
}

// client returns a client that keeps its data points.
func (s *session) client(connection int) map[string]received {
	t := s.tallies[connection]
	t.mu.Lock()
	defer t.mu.Unlock()
	client := map[string]received{}
	t.clients = append(t.clients, client)
	return client
}

func (s *session) waitSynced(ctx context.Context, watches int) error {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	for {
		synced := 0
		for _, t := range s.tallies {
			t.mu.Lock()
			synced += t.synced.Len()
			t.mu.Unlock()
		}
		if err := s.err(); err != nil || synced >= watches {
			return err
		}
		if err := progress.Wait(ctx, 50*time.Millisecond); err != nil {
			return errors.Join(fmt.Errorf("%d of %d watches have all that is stored: %w", synced, watches, err), s.err())
		}
	}
}

// poll sends lists of the clients, each once per interval at its own offset, until the
// context ends.
func (s *session) poll(ctx context.Context, clients int, interval time.Duration) error {
	each := clients / len(s.connections)
	errs := make([]error, len(s.connections))
	began := time.Now()
	var running sync.WaitGroup
	for i, c := range s.connections {
		s.tallies[i].refusable = true
		pollers := make([]*poller, each)
		for j := range pollers {
			pollers[j] = &poller{response: response{tally: s.tallies[i]}, client: s.client(i), path: s.api.list(s.environment.target(j*len(s.connections) + i))}
		}
		running.Go(func() {
			fields := s.fields(s.user(i))
			for n := 0; ; n++ {
				// A small offset for each connection spreads requests evenly.
				turn := float64(n) + float64(i)/float64(len(s.connections))
				if progress.Wait(ctx, time.Until(began.Add(time.Duration(turn/float64(each)*float64(interval))))) != nil {
					return
				}
				p := pollers[n%each]
				if err := c.Get(p.path, fields, p); err != nil {
					errs[i] = fmt.Errorf("list: %w", err)
					return
				}
			}
		})
	}
	running.Wait()
	return errors.Join(errs...)
}

func (s *session) record(on bool) {
	now := time.Now()
	for _, t := range s.tallies {
		t.record(on, now)
	}
}

func (s *session) err() error {
	var errs []error
	for _, t := range s.tallies {
		errs = append(errs, t.err())
	}
	return errors.Join(errs...)
}

// bytes returns the bytes on the wire so far, in both directions.
func (s *session) bytes() int64 {
	var n int64
	for _, c := range s.connections {
		n += c.Received() + c.Sent()
	}
	return n
}

// measured are the results of one measurement.
type measured struct {
	span          time.Duration
	cpu, own      time.Duration // of serving, and of this program with its fake kubelets
	apiserver     time.Duration // CPU of kube-apiserver
	load          float64       // share of the machine that was busy
	bytes         int64
	events, lists int
	points        int
	refused       int // with 429
	delivery      figures.Durations
	ages          figures.Ages
}

// measure records for a time.
func (s *session) measure(ctx context.Context, span time.Duration) (*measured, error) {
	before, err := readCosts(s.environment)
	if err != nil {
		return nil, err
	}
	bytes := s.bytes()
	s.record(true)
	if err := progress.Wait(ctx, span); err != nil {
		return nil, err
	}
	s.record(false)
	m := &measured{bytes: s.bytes() - bytes}
	after, err := readCosts(s.environment)
	if err != nil {
		return nil, err
	}
	m.span, m.cpu, m.own = after.at.Sub(before.at), after.serving-before.serving, after.own-before.own
	m.apiserver = after.apiserver - before.apiserver
	m.load = after.machine.Since(before.machine)
	for _, t := range s.tallies {
		t.mu.Lock()
		m.events += t.events
		m.lists += t.lists
		m.points += t.points
		m.refused += t.refused[http.StatusTooManyRequests]
		m.delivery.Merge(&t.delivery)
		m.ages.Merge(t.ages)
		t.mu.Unlock()
	}
	return m, s.err()
}

// cores formats a CPU time as used processors, in thousandths.
func (m *measured) millicores(cpu time.Duration) float64 {
	return 1000 * cpu.Seconds() / m.span.Seconds()
}

type costs struct {
	at                      time.Time
	serving, apiserver, own time.Duration
	machine                 machine.Load
}

func readCosts(e *environment) (c costs, err error) {
	if c.serving, err = machine.CPU(e.serving.PID()); err != nil {
		return c, err
	}
	if c.apiserver, err = machine.CPU(e.apiserver); err != nil {
		return c, err
	}
	if c.own, err = machine.OwnCPU(); err != nil {
		return c, err
	}
	c.at = time.Now()
	c.machine, err = machine.ReadLoad()
	return c, err
}
