// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package stream

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/apiserver/pkg/util/flowcontrol"
)

// WatchVerb serves the verb watch of an API group, from one hub per resource.
type WatchVerb struct {
	quota *Quota
	hubs  []*Hub

	// mu serializes Serve.
	mu     sync.Mutex
	served atomic.Bool
}

// NewWatchVerb returns a verb that is served. quota counts the watches of all API groups.
func NewWatchVerb(quota *Quota, hubs ...*Hub) *WatchVerb {
	v := &WatchVerb{quota: quota, hubs: hubs}
	v.served.Store(true)
	return v
}

// disableSpread is the time over which watches end when the verb is disabled, so that their
// clients do not all list at once.
const disableSpread = 20 * time.Second

// Serve enables or disables the verb. advertise is called with the new state to add the verb
// to discovery, or to remove it. Clients must never be refused a watch that discovery offers:
// so watches are served before they are advertised, and removed from discovery before new
// ones are answered with 405. Open ones then end within disableSpread.
func (v *WatchVerb) Serve(serve bool, advertise func(watch bool)) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if serve == v.served.Load() {
		return
	}
	if serve {
		v.served.Store(true)
		advertise(true)
		return
	}
	advertise(false)
	v.served.Store(false)
	for _, h := range v.hubs {
		h.endAll(disableSpread, Disabled)
	}
}

// Open starts a watch on one of the hubs. prepare is called once the limits admit the watch
// and fills in all of the request but its Abort, Client and Received; where it succeeds, the
// request's Release is always called.
func (v *WatchVerb) Open(ctx context.Context, hub *Hub, resource schema.GroupResource, prepare func() (Request, error)) (*Watcher, error) {
	if !v.served.Load() {
		return nil, notServed(resource)
	}
	info, ok := request.UserFrom(ctx)
	if !ok {
		info = &user.DefaultInfo{}
	}
	client := Client{User: info.GetName(), UserAgent: UserAgentFrom(ctx)}
	// Before prepare: a client that opens watches too fast must not cause queries to a source.
	release, err := v.quota.Acquire(info)
	if err != nil {
		return nil, err
	}
	r, err := prepare()
	if err != nil {
		release()
		return nil, err
	}
	r.Abort, r.Client = AbortFrom(ctx), client
	r.Received, _ = request.ReceivedTimestampFrom(ctx)
	stop := r.Release
	r.Release = func() {
		if stop != nil {
			stop()
		}
		release()
	}
	// The initial events are available now, so the watch gives up its seat in API Priority and
	// Fairness.
	flowcontrol.WatchInitialized(ctx)
	watcher, err := hub.Watch(ctx, r)
	if err != nil {
		return nil, err
	}
	if !v.served.Load() {
		// Disabled meanwhile, perhaps after endAll.
		watcher.Stop()
		return nil, notServed(resource)
	}
	return watcher, nil
}

// notServed returns the error of the API server for resources without the verb.
func notServed(resource schema.GroupResource) error {
	return apierrors.NewMethodNotSupported(resource, "watch")
}

// Run runs the hubs until the context ends.
func (v *WatchVerb) Run(ctx context.Context) {
	var running sync.WaitGroup
	for _, h := range v.hubs {
		running.Go(func() { h.Run(ctx) })
	}
	running.Wait()
}

// Apply changes the settings of all watches.
func (v *WatchVerb) Apply(s Settings) {
	for _, h := range v.hubs {
		h.Apply(s)
	}
}

// Drain refuses new watches and ends the open ones, spread over a duration.
func (v *WatchVerb) Drain(over time.Duration) {
	for _, h := range v.hubs {
		h.Drain(over)
	}
}
