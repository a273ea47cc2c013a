// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package query

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"time"
)

// OmitReasonTooOld means: the newest sample is older than the MetricQuery allows. Only rules limit that.
const OmitReasonTooOld OmitReason = "TooOld"

// EndedAge is the age of a value whose series have ended, or have no sample that the source still looks at.
const EndedAge = time.Duration(math.MaxInt64)

// ReadSampleTimes removes the samples with a label, whose values are Unix times in seconds, and gives these to
// those that have otherwise the same labels.
func (r *Result) ReadSampleTimes(label string) {
	times, all := map[string]time.Time{}, len(r.Samples)
	kept := slices.DeleteFunc(r.Samples, func(s Sample) bool {
		if _, marked := s.Labels[label]; !marked {
			return false
		}
		// A time that the server cannot mean is none.
		if s.Value >= 0 && s.Value <= float64(r.Time.Unix())+1 {
			of := maps.Clone(s.Labels)
			delete(of, label)
			times[labelKey(of)] = time.UnixMilli(int64(math.Round(s.Value * 1000)))
		}
		return true
	})
	// Texts are counted once in a result, so that this is about the share of the values.
	r.Samples, r.Bytes, r.SampleTimes = slices.Clone(kept), r.Bytes*len(kept)/max(all, 1), true
	for i := range r.Samples {
		s := &r.Samples[i]
		s.Age = EndedAge
		if at, known := times[labelKey(s.Labels)]; known {
			s.Time, s.Age = at, max(r.Time.Sub(at), 0)
		}
	}
}

// newest returns the time of the newest sample; zero if it is not known.
func (r *Result) newest() (newest time.Time) {
	for i := range r.Samples {
		if s := &r.Samples[i]; r.SampleTimes && s.Age != EndedAge && s.Time.After(newest) {
			newest = s.Time
		}
	}
	return newest
}

// tooOld reports whether a sample is older than its value may be.
func (m *MetricQuery) tooOld(s *Sample) bool { return m.MaxSampleAge > 0 && s.Age > m.MaxSampleAge }

// omitReason returns why a value has no quantity, that of the sample if there is one.
func (m *MetricQuery) omitReason(value float64, of *Sample) (OmitReason, string) {
	switch {
	case of == nil || !m.tooOld(of):
		return omitReason(value)
	case of.Age == EndedAge:
		return OmitReasonTooOld, "its series have ended, or have no recent sample: check what exports them"
	}
	return OmitReasonTooOld, fmt.Sprintf("its newest sample was %s old, and maxSampleAge is %s: check what exports it",
		of.Age.Round(time.Second), m.MaxSampleAge)
}
