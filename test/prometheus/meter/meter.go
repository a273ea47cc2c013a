// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

// Package meter is a workload whose metrics a test sets.
package meter

import (
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"
)

// Path is where a Meter answers with its metrics, and where they are set with PUT.
const Path = "/metrics"

// series is one line: a value at an instant, and what it grows by in a second.
type series struct {
	name      string
	value     float64
	perSecond float64
}

// Meter serves series at Path in Prometheus' text format. PUT replaces all of them. A
// line is as in that format, with what a counter grows by in a second behind its value:
//
//	queue_length{queue="a"} 17
//	http_requests_total{code="200"} 0 +25
type Meter struct {
	now func() time.Time

	mu     sync.Mutex
	since  time.Time
	series []series
}

// New returns a Meter without series.
func New() *Meter { return newMeter(time.Now) }

func newMeter(now func() time.Time) *Meter { return &Meter{now: now, since: now()} }

// Set replaces all series.
func (m *Meter) Set(lines string) error {
	var all []series
	for line := range strings.Lines(lines) {
		line = strings.TrimSpace(line)
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		s, err := parse(line)
		if err != nil {
			return err
		}
		all = append(all, s)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.since, m.series = m.now(), all
	return nil
}

// parse reads a line. Values of labels hold spaces as they like: numbers stand behind.
func parse(line string) (series, error) {
	name, numbers, _ := strings.Cut(line, " ")
	if end := strings.LastIndex(line, "}"); end >= 0 {
		name, numbers = line[:end+1], line[end+1:]
	}
	fields := strings.Fields(numbers)
	if len(fields) < 1 || len(fields) > 2 {
		return series{}, fmt.Errorf("line %q: must be NAME{LABELS} VALUE [+PER_SECOND]", line)
	}
	s := series{name: name}
	var err error
	if s.value, err = strconv.ParseFloat(fields[0], 64); err != nil {
		return series{}, fmt.Errorf("value of line %q: %w", line, err)
	}
	if len(fields) == 2 {
		if s.perSecond, err = strconv.ParseFloat(fields[1], 64); err != nil {
			return series{}, fmt.Errorf("growth of line %q: %w", line, err)
		}
	}
	return s, nil
}

// ServeHTTP implements http.Handler.
func (m *Meter) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	switch {
	case r.URL.Path != Path:
		http.NotFound(w, r)
	case r.Method == http.MethodGet:
		w.Header().Set("Content-Type", "text/plain; version=0.0.4; charset=utf-8")
		_, _ = io.WriteString(w, m.text())
	case r.Method == http.MethodPut:
		body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, 16<<20))
		if err == nil {
			err = m.Set(string(body))
		}
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
		}
	default:
		http.Error(w, "GET reads the metrics, PUT sets them", http.StatusMethodNotAllowed)
	}
}

func (m *Meter) text() string {
	m.mu.Lock()
	defer m.mu.Unlock()
	passed := m.now().Sub(m.since).Seconds()
	var b strings.Builder
	for _, s := range m.series {
		b.WriteString(s.name)
		b.WriteByte(' ')
		b.WriteString(strconv.FormatFloat(s.value+s.perSecond*passed, 'g', -1, 64))
		b.WriteByte('\n')
	}
	return b.String()
}
