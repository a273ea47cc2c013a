// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package fakeapi

import (
	"bufio"
	"bytes"
	"io"
	"net/http"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/utils/ptr"
)

// watch sends initial events if they are asked for, and bookmarks until the client leaves,
// the server stops or the requested time is over.
func (s *Server) watch(w http.ResponseWriter, r *http.Request, resource *Resource, selected []*Object, options metav1.ListOptions, as representation) {
	w.Header().Set("Content-Type", as.info.MediaType+";stream=watch")
	w.WriteHeader(http.StatusOK)
	flush := http.NewResponseController(w).Flush
	buffered := bufio.NewWriterSize(w, 64<<10)
	events := eventWriter{as: as, out: as.info.StreamSerializer.Framer.NewFrameWriter(buffered)}

	initial := ptr.Deref(options.SendInitialEvents, options.ResourceVersion == "" || options.ResourceVersion == "0")
	if initial {
		for _, o := range selected {
			events.write(watch.Added, as.object(resource, o))
			if events.err != nil || r.Context().Err() != nil {
				return
			}
		}
	}
	if ptr.Deref(options.SendInitialEvents, false) && options.AllowWatchBookmarks {
		events.write(watch.Bookmark, as.bookmark(resource, true))
	}
	var end <-chan time.Time
	if seconds := ptr.Deref(options.TimeoutSeconds, 0); seconds > 0 {
		timer := time.NewTimer(time.Duration(seconds) * time.Second)
		defer timer.Stop()
		end = timer.C
	}
	bookmarks := time.NewTicker(s.options.BookmarkEvery)
	defer bookmarks.Stop()
	for {
		if events.err != nil || buffered.Flush() != nil || flush() != nil {
			return
		}
		select {
		case <-r.Context().Done():
			return
		case <-end:
			return
		case <-bookmarks.C:
			if options.AllowWatchBookmarks {
				events.write(watch.Bookmark, as.bookmark(resource, false))
			}
		}
	}
}

// eventWriter encodes events as frames, until the first error.
type eventWriter struct {
	as             representation
	out            io.Writer
	embedded, body bytes.Buffer
	err            error
}

func (e *eventWriter) write(kind watch.EventType, o runtime.Object) {
	if e.err != nil {
		return
	}
	e.embedded.Reset()
	e.body.Reset()
	if e.err = e.as.info.Serializer.Encode(o, &e.embedded); e.err != nil {
		return
	}
	event := &metav1.WatchEvent{Type: string(kind), Object: runtime.RawExtension{Raw: e.embedded.Bytes()}}
	if e.err = e.as.info.StreamSerializer.Serializer.Encode(event, &e.body); e.err != nil {
		return
	}
	_, e.err = e.out.Write(e.body.Bytes())
}
