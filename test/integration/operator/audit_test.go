// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build integration

package operator

import (
	"bufio"
	"encoding/json"
	"io"
	"net/http"
	"os"
	"slices"
	"strings"
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

// refused tells whether a right was missing. A namespace that ends takes nothing new from anyone.
func (e *auditEvent) refused() bool {
	return e.ResponseStatus.Code == http.StatusForbidden && !strings.Contains(e.ResponseStatus.Message, "because it is being terminated")
}

// writes reports whether the request was to change anything.
func (e *auditEvent) writes() bool {
	return slices.Contains([]string{"create", "update", "patch", "delete", "deletecollection"}, e.Verb)
}

// auditEvents are all requests of the operator so far, watches at their begin or end.
func auditEvents(t *testing.T, suite *controlPlane) []auditEvent {
	t.Helper()
	events, _ := auditEventsFrom(t, suite, 0)
	return events
}

// auditEventsFrom are those that begin at an offset of the log, and the offset of the next one.
func auditEventsFrom(t *testing.T, suite *controlPlane, offset int64) (events []auditEvent, next int64) {
	t.Helper()
	file, err := os.Open(suite.auditLog)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = file.Close() }()
	if _, err := file.Seek(offset, io.SeekStart); err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewReader(file)
	for {
		line, err := lines.ReadBytes('\n')
		if err == io.EOF { // the last line may be half written
			return events, offset
		}
		if err != nil {
			t.Fatal(err)
		}
		offset += int64(len(line))
		var e auditEvent
		if err := json.Unmarshal(line, &e); err != nil {
			t.Fatal(err)
		}
		events = append(events, e)
	}
}

// noneRefused fails a test in whose time the operator was refused something.
func noneRefused(t *testing.T, suite *controlPlane) {
	t.Helper()
	events, next := auditEventsFrom(t, suite, suite.judged)
	suite.judged = next
	for _, e := range events {
		if e.refused() {
			t.Errorf("refused: %s %s: %s", e.Verb, e.RequestURI, e.ResponseStatus.Message)
		}
	}
}
