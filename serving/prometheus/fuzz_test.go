// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package prometheus

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"github.com/metricsbackend/metrics-backend-operator/api/v1alpha1"
	"github.com/metricsbackend/metrics-backend-operator/serving/query"
	"github.com/metricsbackend/metrics-backend-operator/serving/sourceclient"
)

// Any bytes are an answer or a Failure, with a bounded number of samples.
func FuzzAnswer(f *testing.F) {
	for _, seed := range []string{
		oneSample, vectorBody(3), "", "null", "[]", "{}", `{"status":"success"}`,
		`{"status":"success","data":{"result":[1700000000,"-7e-3"],"resultType":"scalar"}}`,
		`{"status":"success","data":{"resultType":"vector","result":[{"metric":{"a":"b","a":"c"},"value":[ 1700000000.1 , "NaN" ]}]}}`,
		`{"status":"error","errorType":"bad_data","error":"x","data":{"resultType":"matrix","result":[]}}`,
		`{"warnings":["a",null],"status":"success","data":{"stats":{"a":[{}]},"resultType":"vector","result":[{"metric":{},"histogram":[1,{}]}]}}`,
		`{"status":"success","data":null}`, `{"status":"success","data":{"resultType":"","result":null}}`, `{"status":"success","data":{"result":null,"resultType":"scalar"}}`,
		vectorOf(`{"metric":{},"value":[1,"1"],"histogram":null},{"metric":{},"value":null,"histogram":[1,{}]}`),
		vectorOf(`{"metric":{"` + "\\ud800" + `":"\u0000"},"value":[1e9,"0x1p-2"]}`),
		`{"data":{"result":` + strings.Repeat("[", 200),
	} {
		f.Add([]byte(seed))
	}
	const limit, longest = 5, 20
	w := newWorld(f, nil, func(s *v1alpha1.PrometheusSource) {
		s.Authentication.BearerTokenSecretKeyRef = secretKey("login", "token")
	})
	w.secrets.set("login", map[string]string{"token": "s3cret"})
	n, failure := w.source.client.Connection()
	if failure != nil {
		f.Fatal(failure)
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		v := sampleReader{at: instant, bounds: bounds{samples: limit, label: longest, remedy: "ask for less"}}
		_, err := readEnvelope(strings.NewReader(string(body)), v.read)
		if len(v.samples) > limit {
			t.Errorf("%d samples", len(v.samples))
		}
		if err == nil {
			if !json.Valid(body) {
				t.Error("an answer that is not JSON was accepted")
			}
			size := 0
			for _, s := range v.samples {
				for name, value := range s.Labels {
					size = max(size, len(name), len(value))
				}
				if s.Labels == nil || s.Labels["__name__"] != "" || s.Time.IsZero() || s.Time.Sub(instant) > maxAhead {
					t.Errorf("sample %+v", s)
				}
				if _, err := s.Time.MarshalJSON(); err != nil {
					t.Error(err)
				}
			}
			if size > longest || size > v.size {
				t.Errorf("a label of %d bytes, of %d", size, v.size)
			}
			return
		}
		told := sourceclient.FailureOf("main", n, err)
		if told.Reason == "" || len(told.Message) > sourceclient.MaxMessage || strings.Contains(told.Message, "s3cret") {
			t.Errorf("failure %+v", told)
		}
	})
}

// Series are as foreign as samples.
func FuzzSeries(f *testing.F) {
	for _, seed := range []string{
		`{"status":"success","data":[{"__name__":"up","pod":"a"},{"__name__":"up"}]}`,
		`{"status":"success","data":null}`, `{"status":"success","data":[null]}`, `{"status":"success","data":[{"a":1}]}`, `{"status":"success","data":{}}`, `{"data":[[]]}`,
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		_, err := readEnvelope(strings.NewReader(string(body)), seriesReader(func(labels map[string]string) {
			if labels == nil {
				t.Error("a series without labels")
			}
		}))
		var failure *query.Failure
		if err != nil && !errors.As(err, &failure) {
			t.Errorf("error %v is no Failure", err)
		}
	})
}
