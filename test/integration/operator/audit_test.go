// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build integration

package operator

import (
	"bufio"
	"encoding/json"
	"os"
	"testing"
)

// auditEvent is a request of the operator, as kube-apiserver recorded it.
type auditEvent struct {
	Verb       string `json:"verb"`
	RequestURI string `json:"requestURI"`
	ObjectRef  struct {
		Resource    string `json:"resource"`
		Subresource string `json:"subresource"`
		APIGroup    string `json:"apiGroup"`
		Namespace   string `json:"namespace"`
		Name        string `json:"name"`
	} `json:"objectRef"`
	ResponseStatus struct {
		Code    int    `json:"code"`
		Message string `json:"message"`
	} `json:"responseStatus"`
}

// auditEvents are all requests of the operator so far, watches at their begin or end.
func auditEvents(t *testing.T) []auditEvent {
	t.Helper()
	file, err := os.Open(suite.auditLog)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = file.Close() }()
	var events []auditEvent
	lines := bufio.NewScanner(file)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		var e auditEvent
		// The last line may be half written.
		if json.Unmarshal(lines.Bytes(), &e) == nil {
			events = append(events, e)
		}
	}
	if err := lines.Err(); err != nil {
		t.Fatal(err)
	}
	return events
}
