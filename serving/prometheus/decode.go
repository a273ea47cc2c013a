// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package prometheus

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"strconv"
	"time"

	"github.com/metricsbackend/metrics-backend-operator/internal/text"
	"github.com/metricsbackend/metrics-backend-operator/serving/query"
)

// dataReader decodes the member `data` of a response.
type dataReader func(*json.Decoder) error

// envelope is a response without its data.
type envelope struct {
	warnings []string
	// partial is the member isPartial of VictoriaMetrics: the data is not complete.
	partial bool
}

// readEnvelope decodes a response of the API, with its members in any order.
func readEnvelope(r io.Reader, read dataReader) (envelope, error) {
	var (
		status, errorType, message string
		e                          envelope
		data                       bool
	)
	d := json.NewDecoder(r)
	err := members(d, func(name string) error {
		switch name {
		case "status":
			return d.Decode(&status)
		case "errorType":
			return d.Decode(&errorType)
		case "error":
			return d.Decode(&message)
		case "warnings":
			return d.Decode(&e.warnings)
		case "isPartial":
			return d.Decode(&e.partial)
		case "data":
			if data {
				return errors.New("data twice")
			}
			data = true
			return read(d)
		}
		return skip(d)
	})
	if err == nil {
		if _, err = d.Token(); errors.Is(err, io.EOF) {
			err = nil
		} else {
			err = errors.New("something follows the answer")
		}
	}
	switch {
	case status == "error":
		return envelope{}, classifyAPIError(errorType, message)
	case err != nil:
		return envelope{}, malformed(err)
	case status != "success":
		return envelope{}, malformed(fmt.Errorf("status is %q", status))
	case !data:
		return envelope{}, malformed(errors.New("there is no data"))
	}
	return e, nil
}

// malformed returns err as a Failure.
func malformed(err error) error {
	if _, ok := errors.AsType[*query.Failure](err); ok {
		return err
	}
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		err = errors.New("it breaks off")
	}
	return query.Failf(query.ReasonMalformed, "the answer is not one of Prometheus' API: %s", err)
}

// members decodes an object; each decodes the member's value.
func members(d *json.Decoder, each func(name string) error) error {
	if err := expect(d, '{'); err != nil {
		return err
	}
	for d.More() {
		t, err := d.Token()
		if err != nil {
			return err
		}
		name, _ := t.(string)
		if err := each(name); err != nil {
			return err
		}
	}
	_, err := d.Token()
	return err
}

// elements decodes an array, or null for none; each decodes one element.
func elements(d *json.Decoder, each func() error) error {
	switch err := expect(d, '['); {
	case errors.Is(err, errNull):
		return nil
	case err != nil:
		return err
	}
	for d.More() {
		if err := each(); err != nil {
			return err
		}
	}
	_, err := d.Token()
	return err
}

// errNull is null in place of an object or array: some servers answer it for nothing.
var errNull = errors.New("it is null")

func expect(d *json.Decoder, want json.Delim) error {
	switch t, err := d.Token(); {
	case err != nil:
		return err
	case t == nil:
		return errNull
	case t != want:
		return fmt.Errorf("at byte %d there is no %s", d.InputOffset(), want)
	}
	return nil
}

func skip(d *json.Decoder) error {
	var value json.RawMessage
	return d.Decode(&value)
}

// sampleReader decodes the samples of a query's response.
type sampleReader struct {
	// at is the instant of the query.
	at      time.Time
	bounds  bounds
	samples []query.Sample
	// size is about what the samples take in memory, with each text once.
	size int
	// texts interns names and values of labels, most of which are in many samples.
	texts map[string]string
}

func (v *sampleReader) intern(text string) string {
	if known, ok := v.texts[text]; ok {
		return known
	}
	if v.texts == nil {
		v.texts = map[string]string{}
	}
	v.texts[text] = text
	v.size += len(text) + 8 // the mean that the allocator adds
	return text
}

func (v *sampleReader) read(d *json.Decoder) error {
	var kind string
	var early json.RawMessage
	result := false
	err := members(d, func(name string) error {
		switch {
		case name == "resultType":
			return d.Decode(&kind)
		case name == "result" && result:
			return errors.New("result twice")
		case name == "result" && kind == "":
			// Servers send the type first. Otherwise keep the result until it is known.
			result = true
			return d.Decode(&early)
		case name == "result":
			result = true
			return v.result(kind, d)
		}
		return skip(d)
	})
	switch {
	case errors.Is(err, errNull):
		return nil
	case err == nil && !result:
		err = errors.New("there is no result")
	case err == nil && early != nil && (kind != "" || string(early) != "null"):
		err = v.result(kind, json.NewDecoder(bytes.NewReader(early)))
	}
	return err
}

func (v *sampleReader) result(kind string, d *json.Decoder) error {
	switch kind {
	case "vector":
		return elements(d, func() error { return v.sample(d) })
	case "scalar":
		var p pair
		if err := d.Decode(&p); err != nil {
			return err
		}
		return v.add(map[string]string{}, p)
	case "matrix":
		return query.Failf(query.ReasonRejected, "the answer is ranges of samples, not values: take one number of each, with a function such as rate(), increase() or last_over_time()")
	case "string", "streams":
		return query.Failf(query.ReasonRejected, "the answer is of type %s, not numbers", kind)
	}
	return fmt.Errorf("resultType is %q", kind)
}

type sampleJSON struct {
	Metric    map[string]string `json:"metric"`
	Value     pair              `json:"value"`
	Histogram *json.RawMessage  `json:"histogram"`
}

func (v *sampleReader) sample(d *json.Decoder) error {
	var s sampleJSON
	if err := d.Decode(&s); err != nil {
		return err
	}
	if s.Histogram != nil {
		return query.Failf(query.ReasonRejected, "the answer holds a native histogram, not a number: take one of it, with histogram_quantile(), histogram_count() or histogram_sum()")
	}
	if s.Metric == nil {
		return fmt.Errorf("sample %d has no metric", len(v.samples)+1)
	}
	delete(s.Metric, "__name__")
	labels := make(map[string]string, len(s.Metric))
	for name, value := range s.Metric {
		if longest := max(len(name), len(value)); v.bounds.label > 0 && longest > v.bounds.label {
			return query.Failf(query.ReasonTooLarge, "the label %q of a series has %d bytes, and that of a declared metric may have %d: shorten it in spec.query, or aggregate it away", text.Printable(name, 100), longest, v.bounds.label)
		}
		labels[v.intern(name)] = v.intern(value)
	}
	return v.add(labels, s.Value)
}

// sampleSize returns about what a sample takes in memory without the text of its n labels: Go's maps
// have groups of eight entries, and twice as many when seven in eight are used.
func sampleSize(n int) int {
	const fixed, group = 120, 288 // fixed with its place in a result, and in the index of one
	groups := 1
	for n > 8 && n > 7*groups {
		groups *= 2
	}
	return fixed + groups*group
}

// maxAhead is how much later than the instant of the query a sample may be: some servers round.
const maxAhead = time.Minute

func (v *sampleReader) add(labels map[string]string, p pair) error {
	switch {
	case len(v.samples) == v.bounds.samples:
		return query.Failf(query.ReasonTooLarge, "the answer has more samples than it may; %s", v.bounds.remedy)
	case p.time.IsZero():
		return fmt.Errorf("sample %d has no value", len(v.samples)+1)
	case p.time.Sub(v.at) > maxAhead:
		return query.Failf(query.ReasonMalformed, "a sample is of %s, though %s was asked for",
			p.time.UTC().Format(time.RFC3339), v.at.UTC().Format(time.RFC3339))
	}
	v.samples = append(v.samples, query.Sample{Labels: labels, Value: p.value, Time: p.time})
	v.size += sampleSize(len(labels))
	return nil
}

// pair is a value with its time: [1700000000.123,"1.5"].
type pair struct {
	time  time.Time
	value float64
}

// maxTime is the last second that RFC 3339 can represent.
const maxTime = 253402300799

// UnmarshalJSON implements json.Unmarshaler.
func (p *pair) UnmarshalJSON(b []byte) error {
	if string(b) == "null" {
		return nil
	}
	inner, ok := bytes.CutPrefix(b, []byte("["))
	if !ok {
		return errors.New("a value is not a pair of time and text")
	}
	inner = bytes.TrimSuffix(inner, []byte("]"))
	at, text, _ := bytes.Cut(inner, []byte(","))
	at, text = bytes.TrimSpace(at), bytes.TrimSpace(text)
	if len(text) < 2 || text[0] != '"' || text[len(text)-1] != '"' {
		return errors.New("a value is not a pair of time and text")
	}
	seconds, err := strconv.ParseFloat(string(at), 64)
	if err != nil || seconds < 0 || seconds > maxTime {
		return fmt.Errorf("a value's time is %.40q", at)
	}
	if p.value, err = strconv.ParseFloat(string(text[1:len(text)-1]), 64); err != nil {
		return fmt.Errorf("a value is %.40q", text)
	}
	p.time = time.UnixMilli(int64(math.Round(seconds * 1000)))
	return nil
}
