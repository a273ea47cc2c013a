// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package top

import (
	"fmt"
	"strings"
	"time"

	"github.com/metricsbackend/metrics-backend-operator/client"
)

// notice tells how the table is fed, and how old its data is.
type notice struct {
	status   client.Status
	interval time.Duration // of polls
	newest   time.Duration // the age of the newest sample; negative without any
	heard    time.Duration // since the server was last heard of
	// also is what else is wrong; empty if nothing.
	also string
}

func (n *notice) line() line {
	tone := plain
	text := n.fed()
	if n.status.Mode != client.Watching || n.status.Err != nil || n.also != "" {
		tone = warning
	}
	var words []string
	if n.status.Mode == client.Starting && n.status.Synced {
		words = append(words, "last answer "+age(n.heard)+" ago")
	}
	if n.newest >= 0 {
		words = append(words, "newest sample "+age(n.newest)+" old")
	}
	if n.also != "" {
		words = append(words, n.also)
	}
	if len(words) > 0 {
		// Before the reason, which may be long and is cut first.
		lead, reason, has := strings.Cut(text, ": ")
		text = lead + "; " + strings.Join(words, "; ")
		if has {
			text += ": " + reason
		}
	}
	return line{text, tone}
}

// fed is how the data comes, with the reason if it could come in a better way. It does
// not change with time alone.
func (n *notice) fed() string {
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
