// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package sourceclient

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestDirect: a direct client has no proxy and only HTTP/1.1, and as many connections as requests at a time.
func TestDirect(t *testing.T) {
	made, err := newTransport(&Spec{Direct: true}, &credentials{}, &Options{MaxRequests: 64})
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"http/1.1"}, made.TLSClientConfig.NextProtos); diff != "" || made.MaxConnsPerHost != 64 || made.MaxIdleConnsPerHost != 64 {
		t.Errorf("%d and %d connections, protocols (-want +got):\n%s", made.MaxConnsPerHost, made.MaxIdleConnsPerHost, diff)
	}
	if through, err := made.Proxy(nil); through != nil || err != nil {
		t.Errorf("through %v, %v", through, err)
	}
}
