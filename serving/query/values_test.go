// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package query

import (
	"errors"
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/metricsbackend/metrics-backend-operator/api/v1alpha1"
)

var t0 = time.Date(2026, 8, 30, 12, 0, 0, 0, time.UTC)

// sampleOf returns a sample with the labels k, v, k, v …
func sampleOf(value float64, pairs ...string) Sample {
	s := Sample{Value: value, Time: t0, Labels: map[string]string{}}
	for i := 0; i < len(pairs); i += 2 {
		s.Labels[pairs[i]] = pairs[i+1]
	}
	return s
}

// tenSecondsOlder returns a sample with an earlier time.
func tenSecondsOlder(s Sample) Sample {
	s.Time = s.Time.Add(-10 * time.Second)
	return s
}

// describeValues returns key, quantity and age of values.
func describeValues(v *Values) []string {
	var texts []string
	for i := range v.Items {
		text := v.Items[i].Key() + "=" + v.Items[i].Quantity.String()
		if age := t0.Sub(v.Items[i].Time); age != 0 {
			text += " " + age.String() + " old"
		}
		texts = append(texts, text)
	}
	for _, o := range v.Omitted {
		texts = append(texts, fmt.Sprintf("no %s: %s", o.Object, o.Reason))
	}
	return texts
}

func TestValues(t *testing.T) {
	pods := MetricQuery{ObjectLabel: "pod", Origin: "spec.customMetrics.rules[0]"}
	with := func(d v1alpha1.DuplicatesPolicy) MetricQuery {
		r := pods
		r.Duplicates = d
		return r
	}
	omitting := func(mq MetricQuery) MetricQuery {
		mq.OmitInvalid = true
		return mq
	}
	upToAMinute := pods
	upToAMinute.MaxSampleAge = time.Minute
	summed := with(v1alpha1.DuplicatesSum)
	summed.MaxSampleAge = time.Minute
	aged := func(age time.Duration, value float64, labels ...string) Sample {
		s := sampleOf(value, labels...)
		s.Age = age
		return s
	}
	infinite := []Sample{sampleOf(5, "pod", "a", "x", "1"), sampleOf(math.Inf(1), "pod", "a", "x", "2"), sampleOf(3, "pod", "b")}
	twice := []Sample{sampleOf(1, "pod", "a", "code", "200"), tenSecondsOlder(sampleOf(4, "pod", "a", "code", "500")), sampleOf(3, "pod", "b")}
	tests := map[string]struct {
		mq      MetricQuery
		samples []Sample
		want    []string
	}{
		"no series":                {pods, nil, nil},
		"objects in order":         {pods, []Sample{sampleOf(2, "pod", "b"), sampleOf(1, "pod", "a")}, []string{"a=1", "b=2"}},
		"one object":               {MetricQuery{Object: "web"}, []Sample{sampleOf(2.5)}, []string{"web=2500m"}},
		"one object, many series":  {MetricQuery{Object: "web"}, []Sample{sampleOf(1, "a", "1"), sampleOf(2, "a", "2")}, []string{"no web: Duplicate"}},
		"one object, summed":       {MetricQuery{Object: "web", Duplicates: v1alpha1.DuplicatesSum}, []Sample{sampleOf(1, "a", "1"), sampleOf(2, "a", "2")}, []string{"web=3"}},
		"no label of the object":   {pods, []Sample{sampleOf(1, "node", "n"), sampleOf(2, "pod", ""), sampleOf(3, "pod", "a")}, []string{"a=3", "no : NoObject", "no : NoObject"}},
		"duplicates, unset":        {pods, twice, []string{"b=3", "no a: Duplicate"}},
		"duplicates rejected":      {with(v1alpha1.DuplicatesReject), twice, []string{"b=3", "no a: Duplicate"}},
		"duplicates, sum":          {with(v1alpha1.DuplicatesSum), twice, []string{"a=5 10s old", "b=3"}},
		"duplicates, average":      {with(v1alpha1.DuplicatesAverage), twice, []string{"a=2500m 10s old", "b=3"}},
		"duplicates, minimum":      {with(v1alpha1.DuplicatesMinimum), twice, []string{"a=1 10s old", "b=3"}},
		"duplicates, maximum":      {with(v1alpha1.DuplicatesMaximum), twice, []string{"a=4 10s old", "b=3"}},
		"NaN":                      {pods, []Sample{sampleOf(math.NaN(), "pod", "a"), sampleOf(1, "pod", "b")}, []string{"b=1", "no a: NaN"}},
		"NaN as zero":              {MetricQuery{ObjectLabel: "pod", NaNAsZero: true}, []Sample{sampleOf(math.NaN(), "pod", "a")}, []string{"a=0"}},
		"infinite is never zero":   {MetricQuery{ObjectLabel: "pod", NaNAsZero: true}, []Sample{sampleOf(math.Inf(1), "pod", "a"), sampleOf(math.Inf(-1), "pod", "b")}, []string{"no a: Infinite", "no b: Infinite"}},
		"too large":                {pods, []Sample{sampleOf(1e300, "pod", "a"), sampleOf(-1e300, "pod", "b")}, []string{"no a: TooLarge", "no b: TooLarge"}},
		"NaN among what is summed": {with(v1alpha1.DuplicatesSum), []Sample{sampleOf(1, "pod", "a", "x", "1"), sampleOf(math.NaN(), "pod", "a", "x", "2")}, []string{"no a: NaN"}},
		"NaN has no maximum":       {with(v1alpha1.DuplicatesMaximum), []Sample{sampleOf(1, "pod", "a", "x", "1"), sampleOf(math.NaN(), "pod", "a", "x", "2")}, []string{"no a: NaN"}},
		"a sum that is too large":  {with(v1alpha1.DuplicatesSum), []Sample{sampleOf(9e15, "pod", "a", "x", "1"), sampleOf(9e15, "pod", "a", "x", "2")}, []string{"no a: TooLarge"}},
		"+Inf has no minimum":      {with(v1alpha1.DuplicatesMinimum), infinite, []string{"b=3", "no a: Infinite"}},
		"-Inf has no maximum": {with(v1alpha1.DuplicatesMaximum), []Sample{sampleOf(5, "pod", "a", "x", "1"), sampleOf(math.Inf(-1), "pod", "a", "x", "2"), sampleOf(3, "pod", "b")},
			[]string{"b=3", "no a: Infinite"}},
		"too large among what is summed": {with(v1alpha1.DuplicatesSum), []Sample{sampleOf(1e300, "pod", "a", "x", "1"), sampleOf(-1e300, "pod", "a", "x", "2")}, []string{"no a: TooLarge"}},
		"infinities do not cancel out": {with(v1alpha1.DuplicatesSum), []Sample{sampleOf(math.Inf(1), "pod", "a", "x", "1"), sampleOf(math.Inf(-1), "pod", "a", "x", "2")},
			[]string{"no a: Infinite"}},
		"one object, one series infinite":     {MetricQuery{Object: "web", Duplicates: v1alpha1.DuplicatesMinimum}, infinite, []string{"no web: Infinite"}},
		"the rest is served, of the minimum":  {omitting(with(v1alpha1.DuplicatesMinimum)), infinite, []string{"a=5", "b=3", "no : Infinite"}},
		"the rest is served, of the average":  {omitting(with(v1alpha1.DuplicatesAverage)), infinite, []string{"a=5", "b=3", "no : Infinite"}},
		"the rest is served, of one object":   {omitting(MetricQuery{Object: "web", Duplicates: v1alpha1.DuplicatesSum}), infinite, []string{"web=8", "no : Infinite"}},
		"the rest is served, but is nothing":  {omitting(pods), []Sample{sampleOf(math.NaN(), "pod", "a"), sampleOf(1, "pod", "b")}, []string{"b=1", "no a: NaN"}},
		"the rest is served, its time, too":   {omitting(with(v1alpha1.DuplicatesSum)), []Sample{tenSecondsOlder(sampleOf(math.NaN(), "pod", "a", "x", "1")), sampleOf(2, "pod", "a", "x", "2")}, []string{"a=2", "no : NaN"}},
		"the rest is served, but not of each": {omitting(pods), twice, []string{"b=3", "no a: Duplicate"}},
		"too old":                             {upToAMinute, []Sample{aged(90*time.Second, 7, "pod", "a"), aged(time.Minute, 1, "pod", "b"), aged(EndedAge, 2, "pod", "c")}, []string{"b=1", "no a: TooOld", "no c: TooOld"}},
		"of any age":                          {pods, []Sample{aged(EndedAge, 7, "pod", "a")}, []string{"a=7"}},
		"too old among what is summed":        {summed, []Sample{aged(0, 7, "pod", "a", "x", "1"), aged(90*time.Second, 7, "pod", "a", "x", "2")}, []string{"no a: TooOld"}},
		"too old, and the rest is served":     {omitting(summed), []Sample{aged(0, 7, "pod", "a", "x", "1"), aged(90*time.Second, 7, "pod", "a", "x", "2")}, []string{"a=7", "no : TooOld"}},
		"too old is not zero":                 {MetricQuery{ObjectLabel: "pod", MaxSampleAge: time.Minute, NaNAsZero: true}, []Sample{aged(90*time.Second, math.NaN(), "pod", "a")}, []string{"no a: TooOld"}},
		"selected": {MetricQuery{ObjectLabel: "pod", Select: labels.SelectorFromSet(labels.Set{"verb": "get"})}, []Sample{sampleOf(1, "pod", "a", "verb", "get"), sampleOf(2, "pod", "a", "verb", "put")},
			[]string{"a=1"}},
		"selected by a label that is added": {MetricQuery{Labels: map[string]string{"team": "t"}, Select: labels.SelectorFromSet(labels.Set{"team": "t"})}, []Sample{sampleOf(1)},
			[]string{`{team="t"}=1`}},
		"external": {MetricQuery{}, []Sample{sampleOf(2, "queue", "b", "zone", "x"), sampleOf(1, "queue", "a")},
			[]string{`{queue="a"}=1`, `{queue="b",zone="x"}=2`}},
		"external, without labels":   {MetricQuery{}, []Sample{sampleOf(2)}, []string{"{}=2"}},
		"external, with more labels": {MetricQuery{Labels: map[string]string{"team": "t", "queue": "all"}}, []Sample{sampleOf(2, "queue", "b")}, []string{`{queue="all",team="t"}=2`}},
		"external, made the same and summed": {MetricQuery{Labels: map[string]string{"queue": "all"}, Duplicates: v1alpha1.DuplicatesSum}, []Sample{sampleOf(2, "queue", "a"), sampleOf(3, "queue", "b")},
			[]string{`{queue="all"}=5`}},
		"external, labels that look like others": {MetricQuery{}, []Sample{sampleOf(1, "a", `x",b="y`), sampleOf(2, "a", "x", "b", "y")},
			[]string{`{a="x",b="y"}=2`, `{a="x\",b=\"y"}=1`}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			before := fmt.Sprint(test.samples)
			test.mq.Window = time.Minute
			v, err := test.mq.Values(&Result{Time: t0, Samples: test.samples, Warnings: []string{"careful"}}, nil)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(test.want, describeValues(v)); diff != "" {
				t.Error(diff)
			}
			if v.SourceError != nil || v.Window != time.Minute || v.ResourceVersion() != "1788091200000" || len(v.Warnings) != 1 {
				t.Errorf("got %+v", v)
			}
			if fmt.Sprint(test.samples) != before {
				t.Error("the answer was changed, which is shared")
			}
		})
	}
}

// TestExternalMetricsAreWhole: autoscalers add the values of an external metric, so one series without a
// value leaves it without any; the error names the series, and what to do.
func TestExternalMetricsAreWhole(t *testing.T) {
	const (
		infinite = `there is no value, since the series {partition="1"} has none: Infinite: the value is infinite`
		omit     = "; correct the query, or set invalidValuesPolicy to Omit in rules[0], which serves the other series"
	)
	lag := func(values ...float64) []Sample {
		var samples []Sample
		for i, v := range values {
			samples = append(samples, sampleOf(v, "partition", fmt.Sprint(i)))
		}
		return samples
	}
	external, omitting := MetricQuery{}, MetricQuery{OmitInvalid: true}
	long := strings.Repeat("x", 10_000)
	tests := map[string]struct {
		mq      MetricQuery
		samples []Sample
		values  []string
		err     string
	}{
		"whole":                 {external, lag(4, 2, 3), []string{`{partition="0"}=4`, `{partition="1"}=2`, `{partition="2"}=3`}, ""},
		"no series":             {external, nil, nil, ""},
		"one infinite":          {external, lag(4, math.Inf(1), 3), []string{"no : Infinite"}, infinite + omit},
		"one NaN":               {external, lag(4, 2, math.NaN()), []string{"no : NaN"}, `there is no value, since the series {partition="2"} has none: NaN: the value is NaN (not a number, such as 0/0)` + omit},
		"NaN as zero":           {MetricQuery{NaNAsZero: true}, lag(4, math.NaN()), []string{`{partition="0"}=4`, `{partition="1"}=0`}, ""},
		"several":               {external, lag(4, math.Inf(-1), math.NaN()), []string{"no : Infinite", "no : NaN"}, infinite + " (and 1 series more without a value)" + omit},
		"none has a value":      {external, lag(math.NaN()), []string{"no : NaN"}, `there is no value, since the series {partition="0"} has none: NaN: the value is NaN (not a number, such as 0/0); correct the query`},
		"the rest is served":    {omitting, lag(4, math.Inf(1), 3), []string{`{partition="0"}=4`, `{partition="2"}=3`, "no : Infinite"}, ""},
		"there is no rest":      {omitting, lag(math.NaN()), []string{"no : NaN"}, `there is no value, since the series {partition="0"} has none: NaN: the value is NaN (not a number, such as 0/0); correct the query`},
		"only others are whole": {MetricQuery{Select: labels.SelectorFromSet(labels.Set{"partition": "1"})}, lag(4, math.Inf(1), 3), []string{"no : Infinite"}, infinite + "; correct the query"},
		"only others are not":   {MetricQuery{Select: labels.SelectorFromSet(labels.Set{"partition": "0"})}, lag(4, math.Inf(1), 3), []string{`{partition="0"}=4`}, ""},
		"one too old": {MetricQuery{MaxSampleAge: time.Minute}, []Sample{sampleOf(4, "partition", "0"), {Labels: map[string]string{"partition": "1"}, Value: 2, Time: t0, Age: 90 * time.Second}}, []string{"no : TooOld"},
			`there is no value, since the series {partition="1"} has none: TooOld: its newest sample was 1m30s old, and maxSampleAge is 1m0s: check what exports it, or set invalidValuesPolicy to Omit in rules[0], which serves the other series`},
		"one has ended": {MetricQuery{MaxSampleAge: time.Minute}, []Sample{{Labels: map[string]string{"partition": "1"}, Value: 2, Time: t0, Age: EndedAge}}, []string{"no : TooOld"},
			`there is no value, since the series {partition="1"} has none: TooOld: its series have ended, or have no recent sample: check what exports them`},
		"made the same": {MetricQuery{Labels: map[string]string{"partition": "all"}}, lag(2, 3), []string{"no : Duplicate"},
			`there is no value, since the series {partition="all"} has none: Duplicate: the result has 2 series with these labels: aggregate in the query, or set how to combine them in rules[0] (duplicatesPolicy)`},
		"made the same, and one is not summed": {MetricQuery{Labels: map[string]string{"partition": "all"}, Duplicates: v1alpha1.DuplicatesSum}, lag(2, math.Inf(1)), []string{"no : Infinite"},
			`there is no value, since the series {partition="all"} has none: Infinite: of its series {partition="1"} the value is infinite; correct the query`},
		"the same labels are not left out": {omitting, []Sample{sampleOf(5, "a", "1"), sampleOf(math.NaN(), "a", "2"), sampleOf(7, "a", "3"), sampleOf(8, "a", "3")}, []string{"no : NaN", "no : Duplicate"},
			`there is no value, since the series {a="3"} has none: Duplicate: the result has 2 series with these labels: aggregate in the query, or set how to combine them in rules[0] (duplicatesPolicy) (and 1 series more without a value)`},
		"long labels": {external, []Sample{sampleOf(math.NaN(), "a\x1b", long)}, []string{"no : NaN"},
			`there is no value, since the series {a?="` + strings.Repeat("x", 492) + `… has none: NaN: the value is NaN (not a number, such as 0/0); correct the query`},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			test.mq.Origin = "rules[0]"
			v, err := test.mq.Values(&Result{Time: t0, Samples: test.samples}, nil)
			if diff := cmp.Diff(test.values, describeValues(v)); diff != "" {
				t.Errorf("values (-want +got):\n%s", diff)
			}
			if test.err == "" {
				if err != nil {
					t.Error(err)
				}
				return
			}
			if err == nil || err.Error() != test.err || !apierrors.IsNotFound(err) {
				t.Errorf("error %v, want %s", err, test.err)
			}
			if first := (&Omission{}); !errors.As(err, &first) || !strings.Contains(test.err, first.Error()) {
				t.Errorf("the error does not have the reason: %v", first)
			}
		})
	}
}

func TestValuesDoNotDependOnTheOrder(t *testing.T) {
	var samples []Sample
	for i := range 100 {
		samples = append(samples, sampleOf(float64(i)/10, "pod", fmt.Sprint("p", i)))
	}
	r := MetricQuery{ObjectLabel: "pod"}
	want, _ := r.Values(&Result{Time: t0, Samples: samples}, nil)
	random := rand.New(rand.NewPCG(1, 2))
	for range 10 {
		shuffled := slices.Clone(samples)
		random.Shuffle(len(shuffled), func(i, j int) { shuffled[i], shuffled[j] = shuffled[j], shuffled[i] })
		got, _ := r.Values(&Result{Time: t0, Samples: shuffled}, nil)
		if diff := cmp.Diff(describeValues(want), describeValues(got)); diff != "" {
			t.Fatal(diff)
		}
	}
}

func TestOmissions(t *testing.T) {
	var samples []Sample
	for i := range 100 {
		samples = append(samples, sampleOf(math.NaN(), "pod", fmt.Sprintf("p%02d", i)))
	}
	r := MetricQuery{ObjectLabel: "pod"}
	v, _ := r.Values(&Result{Time: t0, Samples: samples}, nil)
	if v.Omissions != 100 || len(v.Omitted) != maxOmissions {
		t.Errorf("%d omissions, of which %d are listed", v.Omissions, len(v.Omitted))
	}
	if o := v.Omission("p03"); o == nil || o.Error() != "NaN: the value is NaN (not a number, such as 0/0)" {
		t.Errorf("of one object: %v", o)
	}
	if o := v.Omission("other"); o != nil {
		t.Errorf("of another: %v", o)
	}
	if o := v.Omission(""); o == nil || o.Object != "p00" {
		t.Errorf("the first: %v", o)
	}
}

// Values of some objects of a wide result are those of all, for these objects.
func TestValuesOfObjects(t *testing.T) {
	samples := []Sample{sampleOf(1, "node", "n"), sampleOf(2, "pod", "")}
	for i := range 40 {
		value := float64(i)
		if i%2 == 1 {
			value = math.NaN()
		}
		samples = append(samples, sampleOf(value, "pod", fmt.Sprintf("p%02d", 39-i), "code", "200"))
	}
	samples = append(samples, tenSecondsOlder(sampleOf(5, "pod", "p39", "code", "500")))
	tests := map[string]struct {
		mq      MetricQuery
		objects []string
		want    []string
	}{
		"an omission behind many":  {MetricQuery{ObjectLabel: "pod"}, []string{"p38"}, []string{"no p38: NaN"}},
		"some":                     {MetricQuery{ObjectLabel: "pod"}, []string{"p00", "p37", "q"}, []string{"p37=2", "no p00: NaN"}},
		"several series of one":    {MetricQuery{ObjectLabel: "pod"}, []string{"p39"}, []string{"no p39: Duplicate"}},
		"joined":                   {MetricQuery{ObjectLabel: "pod", Duplicates: v1alpha1.DuplicatesSum}, []string{"p39"}, []string{"p39=5 10s old"}},
		"selected":                 {MetricQuery{ObjectLabel: "pod", Select: labels.SelectorFromSet(labels.Set{"code": "500"})}, []string{"p37", "p39"}, []string{"p39=5 10s old"}},
		"none":                     {MetricQuery{ObjectLabel: "pod"}, []string{}, nil},
		"the object of a reading":  {MetricQuery{Object: "web", Duplicates: v1alpha1.DuplicatesMaximum, NaNAsZero: true}, []string{"web"}, []string{"web=38 10s old"}},
		"another label of objects": {MetricQuery{ObjectLabel: "node"}, []string{"n"}, []string{"n=1"}},
	}
	result := &Result{Time: t0, Samples: samples}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel() // they share the result
			v, err := test.mq.Values(result, nil, test.objects...)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(test.want, describeValues(v)); diff != "" {
				t.Error(diff)
			}
			if v.Omissions != len(v.Omitted) {
				t.Errorf("%d omissions, of which %d are listed", v.Omissions, len(v.Omitted))
			}
		})
	}
}

// TestSelectorErrors: a source that cannot parse keys of the client's selector makes the request
// invalid, and neither the rule nor the source.
func TestSelectorErrors(t *testing.T) {
	for name, test := range map[string]struct {
		keys    []string
		reason  Reason
		message string
		// unparsable and refused are whether the source could not parse, and whether that is a BadRequest.
		unparsable, refused bool
	}{
		"a quoted key":              {[]string{"a.b"}, ReasonRejected, "unexpected string \"a.b\"", true, true},
		"a long one, cut off":       {[]string{"app.kubernetes.io/name"}, ReasonRejected, "unexpected string \"app.kuber...", true, true},
		"an error elsewhere":        {[]string{"a.b"}, ReasonRejected, "unknown function", true, false},
		"no quoted key":             {nil, ReasonRejected, "a.b", true, false},
		"a query that fails":        {[]string{"a.b"}, ReasonRejected, "a.b", false, false},
		"a source that is away":     {[]string{"a.b"}, ReasonConnectionFailed, "a.b", false, false},
		"no quoted key, and parsed": {nil, ReasonTooLarge, "a.b", false, false},
	} {
		t.Run(name, func(t *testing.T) {
			failure := &Failure{Source: "p", Reason: test.reason, Message: test.message, Unparsable: test.unparsable}
			mq := MetricQuery{Query: testQuery("q"), QuotedKeys: test.keys, Problems: &ProblemTracker{}}
			_, err := mq.Values(nil, &EvaluationError{Failure: failure, Time: t0})
			var kept *Failure
			if apierrors.IsBadRequest(err) != test.refused || !errors.As(err, &kept) || kept != failure {
				t.Errorf("error %v, refused is to be %v", err, test.refused)
			}
			if want := !test.refused && test.reason.queryFault(); (mq.Problems.Current(t0) != nil) != want {
				t.Errorf("a problem of the rule: %v, want %v", !want, want)
			}
		})
	}
}

func TestFallback(t *testing.T) {
	static := func(v float64) *Fallback { return &Fallback{AfterFailures: 3, Static: &v} }
	last := &Fallback{AfterFailures: 3, MaxAge: 10 * time.Minute}
	pods := func(f *Fallback) MetricQuery { return MetricQuery{ObjectLabel: "pod", Fallback: f} }
	// failed returns the error of a query with so many failed intervals and a last result of that age.
	failed := func(failures int, age time.Duration) *EvaluationError {
		o := &EvaluationError{Failure: &Failure{Source: "p", Reason: ReasonTimeout, Message: "late"}, FailedIntervals: failures, Time: t0}
		if age > 0 {
			a := sampleOf(7, "pod", "a")
			a.Time = t0.Add(-age)
			o.LastResult = &Result{Time: t0.Add(-age), Samples: []Sample{a}}
		}
		return o
	}
	withLast := func(err *EvaluationError, value float64) *EvaluationError {
		err.LastResult.Samples = append(err.LastResult.Samples, sampleOf(value, "pod", "b"))
		return err
	}
	tests := map[string]struct {
		mq      MetricQuery
		err     error
		objects []string
		want    []string
		fails   bool
	}{
		"none":                  {mq: pods(nil), err: failed(5, time.Minute), fails: true},
		"too early":             {mq: pods(last), err: failed(2, time.Minute), fails: true},
		"last value":            {mq: pods(last), err: failed(3, time.Minute), want: []string{"a=7 1m0s old"}},
		"last value at its end": {mq: pods(last), err: failed(30, 10*time.Minute), want: []string{"a=7 10m0s old"}},
		"last value too old":    {mq: pods(last), err: failed(30, 10*time.Minute+1), fails: true},
		"no last value":         {mq: pods(last), err: failed(30, 0), fails: true},
		"static, of objects":    {mq: pods(static(1.5)), err: failed(3, 0), objects: []string{"b", "a"}, want: []string{"a=1500m", "b=1500m"}},
		"static, of no objects": {mq: pods(static(1.5)), err: failed(3, 0)},
		"static, of one object": {mq: MetricQuery{Object: "web", Fallback: static(0)}, err: failed(3, time.Minute), objects: []string{"x"}, want: []string{"web=0"}},
		"static, external":      {mq: MetricQuery{Labels: map[string]string{"a": "b"}, Fallback: static(4)}, err: failed(3, 0), want: []string{`{a="b"}=4`}},
		"static, with selected labels": {
			mq:  MetricQuery{Labels: map[string]string{"a": "b"}, Fallback: static(4), Select: labels.SelectorFromSet(labels.Set{"queue": "q"})},
			err: failed(3, 0), want: []string{`{a="b",queue="q"}=4`},
		},
		"static, whose labels are not selected": {
			mq:  MetricQuery{Labels: map[string]string{"a": "b"}, Fallback: static(4), Select: labels.SelectorFromSet(labels.Set{"a": "c"})},
			err: failed(3, 0),
		},
		"static, of selected objects": {
			mq:  MetricQuery{ObjectLabel: "pod", Fallback: static(4), Select: labels.SelectorFromSet(labels.Set{"verb": "get"})},
			err: failed(3, 0), objects: []string{"x"}, want: []string{"x=4"},
		},
		"last value that is not whole": {mq: MetricQuery{Fallback: last}, err: withLast(failed(3, time.Minute), math.Inf(1)), fails: true},
		"static, too early":            {mq: MetricQuery{Fallback: static(4)}, err: failed(2, 0), fails: true},
		"static, that is no number":    {mq: MetricQuery{Object: "web", Fallback: static(math.NaN())}, err: failed(3, 0), want: []string{"no web: NaN"}},
		"without a number of failures": {mq: MetricQuery{Fallback: &Fallback{Static: static(4).Static}}, err: failed(1, 0), want: []string{"{}=4"}},
		"a request that ended":         {mq: MetricQuery{Fallback: &Fallback{Static: static(4).Static}}, err: failed(0, 0), fails: true},
		"another error":                {mq: MetricQuery{Fallback: static(4)}, err: errors.New("oh"), fails: true},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			v, err := test.mq.Values(nil, test.err, test.objects...)
			if test.fails {
				if !errors.Is(err, test.err) || v != nil {
					t.Errorf("got %v, %v", v, err)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if v.SourceError == nil {
				t.Error("not marked as a stand-in")
			}
			if diff := cmp.Diff(test.want, describeValues(v)); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func BenchmarkValues(b *testing.B) {
	for _, n := range []int{1, 100, 10_000} {
		result := &Result{Time: t0}
		for i := range n {
			result.Samples = append(result.Samples, sampleOf(float64(i)/3, "pod", fmt.Sprintf("web-%06d", i*7919%n), "namespace", "shop"))
		}
		for name, r := range map[string]MetricQuery{"objects": {ObjectLabel: "pod"}, "external": {Labels: map[string]string{"team": "t"}}} {
			b.Run(fmt.Sprintf("%s/%d", name, n), func(b *testing.B) {
				b.ReportAllocs()
				for b.Loop() {
					v, err := r.Values(result, nil)
					if err != nil || len(v.Items) != n {
						b.Fatal(err, len(v.Items))
					}
				}
			})
		}
	}
}

// An autoscaler of three pods in a namespace of many.
func BenchmarkValuesOfFew(b *testing.B) {
	wanted := []string{"web-000000", "web-000001", "web-000002"}
	for _, n := range []int{3, 1000, 20_000} {
		result := &Result{Time: t0}
		for i := range n {
			result.Samples = append(result.Samples, sampleOf(float64(i)/3, "pod", fmt.Sprintf("web-%06d", i*7919%n), "namespace", "shop"))
		}
		r := MetricQuery{ObjectLabel: "pod"}
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if _, err := r.Values(result, nil, wanted...); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// FuzzLabelKey holds that no two sets of labels have the same key.
func FuzzLabelKey(f *testing.F) {
	f.Add("a", "b", "a", "c")
	f.Add("a", `b",c="d`, "a", "b")
	f.Add("a=", "b", "a", "=b")
	f.Fuzz(func(t *testing.T, name, value, otherName, otherValue string) {
		one, other := map[string]string{name: value}, map[string]string{otherName: otherValue}
		if maps.Equal(one, other) != (labelKey(one) == labelKey(other)) {
			t.Errorf("%q and %q", labelKey(one), labelKey(other))
		}
		both := map[string]string{name: value, otherName: otherValue}
		if len(both) == 2 && (labelKey(both) == labelKey(one) || labelKey(both) == labelKey(other)) {
			t.Errorf("%q", labelKey(both))
		}
	})
}
