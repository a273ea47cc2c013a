// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package valueapi

import (
	"context"
	"sync/atomic"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metainternalversion "k8s.io/apimachinery/pkg/apis/meta/internalversion"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/apiserver/pkg/util/flowcontrol"

	"github.com/metricsbackend/metrics-backend-operator/serving/stream"
)

// streams are the watches of an API group, in every version.
type streams struct {
	admission *stream.Admission
	hub       *stream.Hub
	meters    map[schema.GroupVersion]*stream.Meter
	newList   func() runtime.Object
	group     string
	// serve says that watches are served.
	serve atomic.Bool
}

// endSpread is over how long watches end that are turned off: their clients poll
// instead, and need not do so all at once.
const endSpread = 20 * time.Second

// open begins a watch. A resourceVersion in the options is ignored whatever it says:
// there is no state but the newest, and so no history to go on from.
func (s *streams) open(ctx context.Context, version schema.GroupVersion, options *metainternalversion.ListOptions, r Request) (watch.Interface, error) {
	if !s.serve.Load() {
		return nil, s.notServed()
	}
	var name string
	if user, ok := request.UserFrom(ctx); ok {
		name = user.GetName()
	}
	// Before the source is asked: a client that opens watches too fast must not have
	// it evaluate anything.
	release, err := s.admission.Admit(name)
	if err != nil {
		return nil, err
	}
	following, err := r.Follow(ctx, options)
	if err != nil {
		release()
		return nil, apiError(err)
	}
	// The initial events are at hand now, and a seat of priority and fairness is not
	// needed any longer.
	flowcontrol.WatchInitialized(ctx)
	watcher, err := s.hub.Watch(ctx, s.request(ctx, version, options, name, following, release))
	if err != nil {
		// Not the watcher itself, which is a nil of a type.
		return nil, err
	}
	if following.Opened != nil {
		if err := following.Opened(watcher); err != nil {
			watcher.Stop()
			return nil, apiError(err)
		}
	}
	if !s.serve.Load() {
		// Turned off meanwhile: those that are open have been told to end already.
		watcher.Stop()
		return nil, s.notServed()
	}
	return watcher, nil
}

func (s *streams) request(ctx context.Context, version schema.GroupVersion, options *metainternalversion.ListOptions, user string,
	following *Following, release func()) stream.Request {
	r := stream.Request{
		Selection: following.Selection,
		Bookmarks: options.AllowWatchBookmarks,
		NewBookmark: func(bool) runtime.Object {
			return newBookmark(s.newList(), following.ResourceVersion())
		},
		Abort: stream.AbortFrom(ctx),
		Release: func() {
			following.Stop()
			release()
		},
		Meter:  s.meters[version],
		Client: stream.Client{User: user, UserAgent: stream.UserAgentFrom(ctx)},
	}
	// The API server's filters note it first of all.
	r.Received, _ = request.ReceivedTimestampFrom(ctx)
	return r
}

// notServed is what the API server answers where there is no Watch at all.
func (s *streams) notServed() error {
	return apierrors.NewMethodNotSupported(schema.GroupResource{Group: s.group}, verbWatch)
}

// noInitialEvents refuses sendInitialEvents. Values have no ObjectMeta, so neither can
// an annotation tell where the initial events end, nor could an informer keep them.
func noInitialEvents() error {
	return apierrors.NewInvalid(schema.GroupKind{Group: metav1.GroupName, Kind: "ListOptions"}, "", field.ErrorList{
		field.Forbidden(field.NewPath("sendInitialEvents"),
			"values have no metadata that could mark the end of the initial events; leave it out: every watch begins with all values"),
	})
}
