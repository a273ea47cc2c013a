// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package server

import "time"

// unacknowledgedTimeout is for how long a peer may acknowledge nothing of what was
// sent to it. client-go gives a server up as fast: 30 s without a frame, and 15 s
// for the answer to a ping.
const unacknowledgedTimeout = 45 * time.Second
