// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package consumers

import (
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/utils/clock"

	"github.com/metricsbackend/metrics-backend-operator/api/v1alpha1"
)

// Recorder records the clients of a fixed set of versions. It is safe for
// concurrent use, and takes no lock for a client that it has seen today.
type Recorder struct {
	clock    clock.PassiveClock
	versions map[schema.GroupVersion]*ledger
	// order is that of the versions as they were given.
	order []schema.GroupVersion
}

// NewRecorder returns a Recorder that has seen nobody.
func NewRecorder(c clock.PassiveClock, versions []schema.GroupVersion) *Recorder {
	r := &Recorder{clock: c, versions: map[schema.GroupVersion]*ledger{}, order: versions}
	for _, version := range versions {
		r.versions[version] = newLedger()
	}
	return r
}

// Record notes that a client asked for a version today. Other versions than
// those given to NewRecorder are ignored, and so are our own tools.
func (r *Recorder) Record(version schema.GroupVersion, userAgent, user string) {
	record := r.versions[version]
	if record == nil {
		return
	}
	who := clientOf(userAgent, user)
	if v1alpha1.IsOwnUserAgent(who.userAgent) {
		return
	}
	record.saw(who, dayOf(r.clock.Now()))
}

// Report lists the clients of today and yesterday: newest day first, then by
// version and name.
func (r *Recorder) Report() v1alpha1.ConsumerReport {
	today := dayOf(r.clock.Now())
	report := v1alpha1.ConsumerReport{Consumers: []v1alpha1.ConsumerStatus{}}
	for _, version := range r.order {
		name := version.Version + "." + version.Group
		seen, others := r.versions[version].recent(today)
		for _, s := range seen {
			report.Consumers = append(report.Consumers, v1alpha1.ConsumerStatus{
				Version: name, UserAgent: s.userAgent, User: s.user, LastSeen: s.day.String(),
			})
		}
		if others > 0 {
			if report.Others == nil {
				report.Others = map[string]int{}
			}
			report.Others[name] = others
		}
	}
	v1alpha1.SortConsumers(report.Consumers)
	return report
}

// day is a day in UTC, counted from 1970.
type day int32

func dayOf(t time.Time) day { return day(t.Unix() / int64(24*time.Hour/time.Second)) }

// String is the day as YYYY-MM-DD.
func (d day) String() string {
	return time.Unix(int64(d)*int64(24*time.Hour/time.Second), 0).UTC().Format(time.DateOnly)
}
