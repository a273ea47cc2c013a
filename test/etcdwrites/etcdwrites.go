// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

// Package etcdwrites counts in tests what is persisted in a cluster: every revision
// of etcd, by any client.
package etcdwrites

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
)

// Counter counts the writes since it was started.
type Counter struct {
	client *clientv3.Client
	from   int64
}

// Start counts from now on in the etcd at a URL without TLS, as envtest's is.
func Start(ctx context.Context, url string) (*Counter, error) {
	client, err := clientv3.New(clientv3.Config{Endpoints: []string{url}, DialTimeout: 10 * time.Second})
	if err != nil {
		return nil, fmt.Errorf("connect to etcd at %s: %w", url, err)
	}
	c := &Counter{client: client}
	if c.from, err = c.revision(ctx); err != nil {
		_ = client.Close()
		return nil, err
	}
	return c, nil
}

// revision is that of the newest write.
func (c *Counter) revision(ctx context.Context) (int64, error) {
	// Any read tells; this key is never there.
	answer, err := c.client.Get(ctx, "/etcdwrites")
	if err != nil {
		return 0, fmt.Errorf("read etcd's revision: %w", err)
	}
	return answer.Header.Revision, nil
}

// Stop ends the counting and returns how often each key was written or deleted.
func (c *Counter) Stop(ctx context.Context) (map[string]int, error) {
	defer func() { _ = c.client.Close() }()
	to, err := c.revision(ctx)
	if err != nil {
		return nil, err
	}
	writes := map[string]int{}
	if to == c.from {
		return writes, nil
	}
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	for answer := range c.client.Watch(ctx, "\x00", clientv3.WithFromKey(), clientv3.WithRev(c.from+1)) {
		if err := answer.Err(); err != nil {
			return nil, fmt.Errorf("read etcd's history from revision %d: %w", c.from+1, err)
		}
		for _, event := range answer.Events {
			if event.Kv.ModRevision > to {
				return writes, nil
			}
			if key := string(event.Kv.Key); key != compaction {
				writes[key]++
			}
		}
		if answer.Header.Revision >= to {
			return writes, nil
		}
	}
	return nil, fmt.Errorf("read etcd's history up to revision %d: %w", to, ctx.Err())
}

// compaction is where kube-apiserver notes, each five minutes, what it has compacted.
const compaction = "compact_rev_key"

// leases are where kube-apiserver keeps those of leaders, of its instances, of its
// addresses, and of its instances as peers of each other.
var leases = []string{"/registry/leases/", "/registry/masterleases/", "/registry/peerserverleases/"}

// IsLease tells whether a key is a lease.
func IsLease(key string) bool {
	return slices.ContainsFunc(leases, func(prefix string) bool { return strings.HasPrefix(key, prefix) })
}
