// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package resourcerules

import (
	"fmt"
	"math"
	"time"

	"github.com/metricsbackend/metrics-backend-operator/serving/query"
	"github.com/metricsbackend/metrics-backend-operator/serving/samplestore"
)

// container names a container of a pod or, without a name, a node.
type container struct {
	pod  samplestore.Key
	name string
}

// pauseContainer is the name under which cAdvisor has the container that holds a pod's
// network. Kubelets do not report it as one of the pod.
const pauseContainer = "POD"

// counts says whether it is one of the pod's containers. Series without a container are
// of the pod as a whole, and would count everything twice.
func (c container) counts() bool {
	return c.name != "" && c.name != pauseContainer && c.pod.Name != "" && c.pod.Namespace != ""
}

func (c container) String() string {
	if c.name == "" {
		return "node " + c.pod.Name
	}
	return "container " + c.name + " of pod " + c.pod.Namespace + "/" + c.pod.Name
}

// figure is one value.
type figure struct {
	value uint64
	time  time.Time
	// bad says that there is none that can be used.
	bad bool
}

// known says that there is one that can be used.
func (f figure) known() bool { return !f.time.IsZero() && !f.bad }

// ended says that it is that of a container in which nothing runs.
func (f figure) ended() bool { return f.known() && f.value == 0 }

// figures are the values of one query.
type figures struct {
	of map[container]figure
	// answered says that the source did answer, for everything.
	answered bool
	convert  func(float64) (uint64, error)
	// bad counts what cannot be used; example and why are of one of them.
	bad     int
	example container
	why     string
}

func newFigures(convert func(float64) (uint64, error)) figures {
	return figures{of: map[container]figure{}, convert: convert}
}

func (f *figures) add(c container, s query.Sample) {
	value, err := f.convert(s.Value)
	if _, twice := f.of[c]; twice {
		err = fmt.Errorf("there is more than one: sum them in the query, by the labels of .GroupBy")
	}
	f.of[c] = figure{value: value, time: s.Time, bad: err != nil}
	if err != nil {
		f.bad++
		f.example, f.why = c, err.Error()
	}
}

const (
	// maxCores and maxMemory bound what is plausible, as they do of kubelets.
	maxCores  = 1 << 16
	maxMemory = 8 << 50
)

// nanocores converts cores.
func nanocores(v float64) (uint64, error) {
	if err := plausible(v, maxCores, "cores"); err != nil {
		return 0, err
	}
	return uint64(math.Round(v * 1e9)), nil
}

// bytes converts bytes.
func bytes(v float64) (uint64, error) {
	if err := plausible(v, maxMemory, "bytes"); err != nil {
		return 0, err
	}
	return uint64(math.Round(v)), nil
}

func plausible(v, limit float64, unit string) error {
	switch {
	case math.IsNaN(v):
		return fmt.Errorf("it is not a number")
	case v < 0 || v > limit:
		return fmt.Errorf("%g %s is not possible", v, unit)
	}
	return nil
}
