// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package resourcemetrics

import (
	"encoding/json"
	"strconv"
	"strings"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/metricsbackend/metrics-backend-operator/serving/samplestore"
)

// jsonEncoder appends the very bytes that the stock JSON serializer writes for the
// API objects; encoding_test.go holds it to that.
//
// A fragment of JSON is an object without its opening brace, since an object outside
// of a list has kind and apiVersion after it.
type jsonEncoder struct {
	labels labelCache
	times  timeCache
	// compact is what is to be indented.
	compact []byte
}

var jsonEncoders = sync.Pool{New: func() any {
	return &jsonEncoder{labels: labelCache{encode: appendJSONLabels}}
}}

func putJSONEncoder(e *jsonEncoder) {
	e.compact = pooled(e.compact)
	jsonEncoders.Put(e)
}

// node appends the fragment of a NodeMetrics.
func (e *jsonEncoder) node(b []byte, o *samplestore.Object) []byte {
	b = append(e.head(b, o), `,"usage":`...)
	if len(o.Point.Usages) == 0 {
		return append(b, "{}}"...)
	}
	return append(appendJSONUsage(b, &o.Point.Usages[0]), '}')
}

// pod appends the fragment of a PodMetrics.
func (e *jsonEncoder) pod(b []byte, o *samplestore.Object) []byte {
	b = append(e.head(b, o), `,"containers":[`...)
	for i := range o.Point.Usages {
		u := &o.Point.Usages[i]
		if i > 0 {
			b = append(b, ',')
		}
		b = append(b, `{"name":`...)
		b = appendJSONString(b, u.Name)
		b = append(b, `,"usage":`...)
		b = append(appendJSONUsage(b, u), '}')
	}
	return append(b, "]}"...)
}

// head appends the members that nodes and pods have in common, which are the first.
func (e *jsonEncoder) head(b []byte, o *samplestore.Object) []byte {
	b = e.metadata(b, o)
	b = append(b, `,"timestamp":`...)
	b = append(b, e.times.get(o.Point.Time)...)
	b = append(b, `,"window":"`...)
	b = append(b, o.Point.Window.String()...) // digits and units, nothing to escape
	return append(b, '"')
}

// metadata appends the member metadata.
func (e *jsonEncoder) metadata(b []byte, o *samplestore.Object) []byte {
	b = append(b, `"metadata":{"name":`...)
	b = appendJSONString(b, o.Name)
	if o.Namespace != "" {
		b = append(b, `,"namespace":`...)
		b = appendJSONString(b, o.Namespace)
	}
	b = append(b, `,"resourceVersion":"`...)
	b = strconv.AppendInt(b, int64(o.Point.Newest), 10)
	b = append(b, '"')
	if o.Point.Time != 0 {
		b = append(b, `,"creationTimestamp":`...)
		b = append(b, e.times.get(o.Point.Time)...)
	}
	b = append(b, e.labels.get(o.Meta.Labels)...)
	return append(b, '}')
}

// appendJSONLabels appends the member labels, with a comma before it.
func appendJSONLabels(b []byte, labels []samplestore.Label) []byte {
	b = append(b, `,"labels":`...)
	for i, label := range labels {
		if i == 0 {
			b = append(b, '{')
		} else {
			b = append(b, ',')
		}
		b = appendJSONString(b, label.Name)
		b = append(b, ':')
		b = appendJSONString(b, label.Value)
	}
	return append(b, '}')
}

func appendJSONUsage(b []byte, u *samplestore.Usage) []byte {
	b = append(b, `{"cpu":"`...)
	b = canonicalCPU(u.CPU).append(b)
	b = append(b, `","memory":"`...)
	b = canonicalBytes(u.Memory).append(b)
	if u.HasSwap {
		b = append(b, `","swap":"`...)
		b = canonicalBytes(u.Swap).append(b)
	}
	return append(b, '"', '}')
}

func appendJSONTime(b []byte, t time.Time) []byte {
	b = append(b, '"')
	b = t.UTC().AppendFormat(b, time.RFC3339)
	return append(b, '"')
}

// appendJSONString leaves all but plain ASCII to package json, which escapes
// more than JSON asks for.
func appendJSONString(b []byte, s string) []byte {
	for i := range len(s) {
		if !plainJSON[s[i]] {
			escaped, err := json.Marshal(s)
			if err != nil {
				// A string always marshals.
				escaped = []byte(`""`)
			}
			return append(b, escaped...)
		}
	}
	b = append(b, '"')
	b = append(b, s...)
	return append(b, '"')
}

// plainJSON are the characters that package json writes as they are.
var plainJSON = func() (plain [256]bool) {
	for c := ' '; c <= '~'; c++ {
		plain[c] = !strings.ContainsRune(`"\<>&`, c)
	}
	return plain
}()

// appendJSONKind appends the members kind and apiVersion, with a comma after them.
func appendJSONKind(b []byte, gvk schema.GroupVersionKind) []byte {
	b = append(b, `"kind":`...)
	b = appendJSONString(b, gvk.Kind)
	b = append(b, `,"apiVersion":`...)
	b = appendJSONString(b, gvk.GroupVersion().String())
	return append(b, ',')
}
