// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package resourcemetrics

import (
	"math"
	"math/big"
	"math/bits"
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

// canonical is a quantity as the API writes it: a number with the largest suffix that leaves an integer.
type canonical struct {
	number uint64
	suffix string
}

var (
	cpuSuffixes     = [...]string{"n", "u", "m", "", "k", "M", "G"}
	decimalSuffixes = [...]string{"", "k"}
	binarySuffixes  = [...]string{"", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei"}
)

// canonicalCPU returns a number of nanocores.
func canonicalCPU(nanocores uint64) canonical { return canonicalDecimal(nanocores, cpuSuffixes[:]) }

// canonicalBytes returns a number of bytes. Below 1024 the API writes it with a decimal suffix.
func canonicalBytes(n uint64) canonical {
	if n < 1024 {
		return canonicalDecimal(n, decimalSuffixes[:])
	}
	power := bits.TrailingZeros64(n) / 10
	return canonical{n >> (10 * power), binarySuffixes[power]}
}

func canonicalDecimal(value uint64, suffixes []string) canonical {
	if value == 0 {
		return canonical{}
	}
	power := 0
	for ; value%1000 == 0; power++ {
		value /= 1000
	}
	return canonical{value, suffixes[power]}
}

func (c canonical) append(b []byte) []byte {
	return append(strconv.AppendUint(b, c.number, 10), c.suffix...)
}

// size returns the number of bytes that append appends.
func (c canonical) size() int { return decimalSize(c.number) + len(c.suffix) }

// decimalSize returns the number of decimal digits.
func decimalSize(v uint64) int {
	digits := 1
	for ; v >= 10_000; digits += 4 {
		v /= 10_000
	}
	for ; v >= 10; digits++ {
		v /= 10
	}
	return digits
}
