// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package resourcemetrics

import (
	"math"
	"math/big"
	"strconv"

	"gopkg.in/inf.v0"
	corev1 "k8s.io/api/core/v1"
	apiresource "k8s.io/apimachinery/pkg/api/resource"

	"github.com/metricsbackend/metrics-backend-operator/serving/samplestore"
)

// resourceSwap is the key that `kubectl top --show-swap` looks for; core/v1 has
// no constant for it.
const resourceSwap corev1.ResourceName = "swap"

// resourceList returns a usage as exact quantities: CPU in nanocores, memory and
// swap in bytes.
func resourceList(u samplestore.Usage) corev1.ResourceList {
	list := corev1.ResourceList{
		corev1.ResourceCPU:    cpuQuantity(u.CPU),
		corev1.ResourceMemory: bytesQuantity(u.Memory),
	}
	if u.HasSwap {
		list[resourceSwap] = bytesQuantity(u.Swap)
	}
	return list
}

func cpuQuantity(nanocores uint64) apiresource.Quantity {
	return quantity(nanocores, apiresource.Nano, apiresource.DecimalSI)
}

func bytesQuantity(bytes uint64) apiresource.Quantity {
	return quantity(bytes, 0, apiresource.BinarySI)
}

func quantity(value uint64, scale apiresource.Scale, format apiresource.Format) apiresource.Quantity {
	if value <= math.MaxInt64 {
		q := apiresource.NewScaledQuantity(int64(value), scale)
		q.Format = format
		return *q
	}
	amount := inf.NewDecBig(new(big.Int).SetUint64(value), inf.Scale(-scale))
	return *apiresource.NewDecimalQuantity(*amount, format)
}

// total sums up what the containers of a pod used. A node's point has one usage.
// Sums that no uint64 holds stop at its maximum.
func total(usages []samplestore.Usage) samplestore.Usage {
	var sum samplestore.Usage
	for _, u := range usages {
		sum.CPU = addSaturated(sum.CPU, u.CPU)
		sum.Memory = addSaturated(sum.Memory, u.Memory)
		sum.Swap = addSaturated(sum.Swap, u.Swap)
		sum.HasSwap = sum.HasSwap || u.HasSwap
	}
	return sum
}

func addSaturated(a, b uint64) uint64 {
	if sum := a + b; sum >= a {
		return sum
	}
	return math.MaxUint64
}

// appendCPU appends the canonical form of a number of nanocores, which is what
// the API writes for it: the largest suffix that leaves an integer.
func appendCPU(b []byte, nanocores uint64) []byte {
	return appendCanonical(b, nanocores, 1000, "n", "u", "m", "", "k", "M", "G")
}

// appendBytes appends the canonical form of a number of bytes. Below 1024 the API
// writes it with a decimal suffix.
func appendBytes(b []byte, bytes uint64) []byte {
	if bytes < 1024 {
		return appendCanonical(b, bytes, 1000, "", "k")
	}
	return appendCanonical(b, bytes, 1024, "", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei")
}

func appendCanonical(b []byte, value, base uint64, suffixes ...string) []byte {
	if value == 0 {
		return append(b, '0')
	}
	i := 0
	for ; value%base == 0; i++ {
		value /= base
	}
	return append(strconv.AppendUint(b, value, 10), suffixes[i]...)
}
