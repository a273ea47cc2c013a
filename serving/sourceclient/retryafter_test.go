// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package sourceclient

import (
	"net/http"
	"testing"
	"time"
)

var now = time.Unix(1700000000, 0)

// Any header is a time of at most a minute.
func FuzzRetryAfter(f *testing.F) {
	for _, seed := range []string{"", "30", "-1", "99999999999999999999", "Tue, 14 Nov 2023 22:13:50 GMT", "soon"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, value string) {
		if wait := RetryAfter(http.StatusTooManyRequests, http.Header{"Retry-After": {value}}, now); wait < 0 || wait > maxRetryAfter {
			t.Errorf("%q: %s", value, wait)
		}
	})
}

func TestRetryAfter(t *testing.T) {
	for value, want := range map[string]time.Duration{
		"": 0, "30": 30 * time.Second, "-1": 0, "3600": time.Minute, "soon": 0, "1.5": 0,
		"Tue, 14 Nov 2023 22:13:50 GMT": 30 * time.Second, "Tue, 14 Nov 2023 22:00:00 GMT": 0,
	} {
		if got := RetryAfter(http.StatusTooManyRequests, http.Header{"Retry-After": {value}}, now); got != want {
			t.Errorf("%q: %s, want %s", value, got, want)
		}
	}
}
