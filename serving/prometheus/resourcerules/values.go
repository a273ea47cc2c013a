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

// container identifies a container of a pod or, without a name, a node.
type container struct {
	pod  samplestore.Key
	name string
}

// pauseContainer is cAdvisor's name for the container that holds a pod's network, which
// kubelets do not report.
const pauseContainer = "POD"

// inPod reports whether it is a container of a pod's spec. Series without a container are
// those of the whole pod, and would count everything twice.
func (c container) inPod() bool {
	return c.name != "" && c.name != pauseContainer && c.pod.Name != "" && c.pod.Namespace != ""
}

func (c container) String() string {
	if c.name == "" {
		return "node " + c.pod.Name
	}
	return "container " + c.name + " of pod " + c.pod.Namespace + "/" + c.pod.Name
}

// value is that of one container or node. The zero value stands for none.
type value struct {
	value   uint64
	time    time.Time
	invalid bool
}

// valid reports whether there is a value that can be used.
func (v value) valid() bool { return !v.time.IsZero() && !v.invalid }

// zero reports whether the value is 0, as that of a container without processes.
func (v value) zero() bool { return v.valid() && v.value == 0 }

// values are the results of one query.
type values struct {
	by map[container]value
	// complete is set once the source has answered for all objects.
	complete bool
	convert  func(float64) (uint64, error)
	// invalid counts the values that cannot be used; example is one of them, and why its error.
	invalid int
	example container
	why     string
}

func newValues(convert func(float64) (uint64, error)) values {
	return values{by: map[container]value{}, convert: convert}
}

func (v *values) add(c container, s query.Sample) {
	converted, err := v.convert(s.Value)
	if _, duplicate := v.by[c]; duplicate {
		err = fmt.Errorf("there is more than one: sum them in the query, by the labels of .GroupBy")
	}
	v.by[c] = value{value: converted, time: s.Time, invalid: err != nil}
	if err != nil {
		v.invalid++
		v.example, v.why = c, err.Error()
	}
}

// Upper bounds of plausible values, those for kubelets.
const (
	maxCores  = 1 << 16
	maxMemory = 8 << 50
)

// maxRounding in cores is the most below zero that is taken for zero, as the difference of
// two averages may be: 10 ms, the kernel's tick, in a second.
const maxRounding = 0.01

// nanocores converts cores.
func nanocores(v float64) (uint64, error) {
	if v < 0 && v >= -maxRounding {
		v = 0
	}
	if err := checkPlausible(v, maxCores, "cores"); err != nil {
		return 0, err
	}
	return uint64(math.Round(v * 1e9)), nil
}

// bytes converts bytes.
func bytes(v float64) (uint64, error) {
	if err := checkPlausible(v, maxMemory, "bytes"); err != nil {
		return 0, err
	}
	return uint64(math.Round(v)), nil
}

func checkPlausible(v, limit float64, unit string) error {
	switch {
	case math.IsNaN(v):
		return fmt.Errorf("it is not a number")
	case v < 0 || v > limit:
		return fmt.Errorf("%g %s is not possible", v, unit)
	}
	return nil
}
