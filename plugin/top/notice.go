// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package top

import (
	"fmt"
	"strings"
	"time"

	"github.com/metricsbackend/metrics-backend-operator/client"
	"github.com/metricsbackend/metrics-backend-operator/plugin/output"
)

// notice is the state of the connection, and the age of the data.
type notice struct {
	status      client.Status
	interval    time.Duration // of polls
	newest      time.Duration // the age of the newest sample; negative without any
	lastContact time.Duration // time since then
	problem     string        // another problem, if any
}

func (n *notice) line() line {
	tone := output.Plain
	text := n.connection()
	if n.status.Mode != client.Watching || n.status.Err != nil || n.problem != "" {
		tone = output.Warning
	}
	var words []string
	if n.status.Mode == client.Starting && n.status.Synced {
		words = append(words, "last answer "+age(n.lastContact)+" ago")
	}
	if n.newest >= 0 {
		words = append(words, "newest sample "+age(n.newest)+" old")
	}
	if n.problem != "" {
		words = append(words, n.problem)
	}
	if len(words) > 0 {
		// Before the reason, which may be long and is truncated.
		lead, reason, has := strings.Cut(text, ": ")
		text = lead + "; " + strings.Join(words, "; ")
		if has {
			text += ": " + reason
		}
	}
	return line{text, tone}
}

// connection describes the connection, with the reason if it is not a watch. It does not
// change with time alone.
func (n *notice) connection() string {
	api := "metrics.k8s.io"
	if n.status.Version != "" {
		api += "/" + n.status.Version
	}
	switch {
	case n.status.Mode == client.Polling && n.status.PollingReason != nil:
		return fmt.Sprintf("polling %s every %s: %v", api, age(n.interval), n.status.PollingReason)
	case n.status.Mode == client.Polling:
		return fmt.Sprintf("polling %s every %s", api, age(n.interval))
	case n.status.Mode == client.Watching && n.status.Err != nil:
		return fmt.Sprintf("watching %s again soon: %v", api, n.status.Err)
	case n.status.Mode == client.Watching:
		return "watching " + api
	case n.status.Err != nil:
		return fmt.Sprintf("no answer, trying again: %v", n.status.Err)
	}
	return "asking " + api
}
