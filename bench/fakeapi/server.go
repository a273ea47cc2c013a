// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

// Package fakeapi is an in-memory stand-in of kube-apiserver for load tests with more pods
// than kube-apiserver and etcd can be given in reasonable time.
//
// It serves what API servers for metrics read: LIST, GET and WATCH of nodes, pods, namespaces
// and ConfigMaps as whole objects or as PartialObjectMetadata, in JSON or protobuf, and
// TokenReview and SubjectAccessReview. The rest does not exist. Objects never change, so a
// watch has only initial events and bookmarks. Lists are not divided by limit and
// not compressed.
package fakeapi

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// Options of a Server.
type Options struct {
	// Resources by their plural name.
	Resources map[string]*Resource
	// Token is the bearer token of all clients, User its owner.
	Token, User string
	// Groups are authorized for everything, as system:masters is. Nobody else is.
	Groups []string
	// BookmarkEvery is the time between bookmarks of a watch, default a minute.
	BookmarkEvery time.Duration
}

// Server is the API server.
type Server struct {
	options Options
	http    *http.Server
	running sync.WaitGroup
	address string
	stop    context.CancelFunc
}

// Start serves on loopback with a certificate for 127.0.0.1 until Stop.
func Start(options Options, certificate tls.Certificate) (*Server, error) {
	if options.BookmarkEvery == 0 {
		options.BookmarkEvery = time.Minute
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("listen for the API server: %w", err)
	}
	ctx, stop := context.WithCancel(context.Background())
	s := &Server{options: options, address: listener.Addr().String(), stop: stop}
	s.http = &http.Server{
		Handler:           s.handler(),
		TLSConfig:         &tls.Config{Certificates: []tls.Certificate{certificate}, MinVersion: tls.VersionTLS12},
		ReadHeaderTimeout: 30 * time.Second,
		// Watches end with the server.
		BaseContext: func(net.Listener) context.Context { return ctx },
		ErrorLog:    log.New(io.Discard, "", 0), // of clients that close connections
	}
	s.running.Go(func() { _ = s.http.ServeTLS(listener, "", "") })
	return s, nil
}

// URL of the server.
func (s *Server) URL() string { return "https://" + s.address }

// Stop closes all connections.
func (s *Server) Stop() error {
	s.stop()
	err := s.http.Close()
	s.running.Wait()
	if err != nil && !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("stop the API server: %w", err)
	}
	return nil
}

func (s *Server) handler() http.Handler {
	mux := http.NewServeMux()
	for _, path := range []string{
		"GET /api/v1/{resource}", "GET /api/v1/namespaces/{namespace}/{resource}",
		"GET /api/v1/{resource}/{name}", "GET /api/v1/namespaces/{namespace}/{resource}/{name}",
	} {
		mux.HandleFunc(path, s.read)
	}
	mux.HandleFunc("POST /apis/authentication.k8s.io/v1/tokenreviews", s.reviewToken)
	mux.HandleFunc("POST /apis/authorization.k8s.io/v1/subjectaccessreviews", s.reviewAccess)
	for _, path := range []string{"GET /healthz", "GET /livez", "GET /readyz"} {
		mux.HandleFunc(path, func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "ok") })
	}
	mux.HandleFunc("/", func(w http.ResponseWriter, _ *http.Request) {
		writeError(w, apierrors.NewGenericServerResponse(http.StatusNotFound, "", schema.GroupResource{}, "", "404 page not found", 0, false))
	})
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") != "Bearer "+s.options.Token {
			writeError(w, apierrors.NewUnauthorized("Unauthorized"))
			return
		}
		mux.ServeHTTP(w, r)
	})
}

// read serves LIST, WATCH and GET.
func (s *Server) read(w http.ResponseWriter, r *http.Request) {
	plural, namespace, name := r.PathValue("resource"), r.PathValue("namespace"), r.PathValue("name")
	group := schema.GroupResource{Resource: plural}
	resource, ok := s.options.Resources[plural]
	if !ok || (namespace != "" && !resource.Namespaced) || (name != "" && namespace == "" && resource.Namespaced) {
		writeError(w, apierrors.NewGenericServerResponse(http.StatusNotFound, "get", group, name, "404 page not found", 0, false))
		return
	}
	as, err := negotiate(r.Header.Get("Accept"))
	if err != nil {
		writeError(w, err)
		return
	}
	if name != "" {
		one := resource.find(namespace, name)
		if one == nil {
			writeError(w, apierrors.NewNotFound(group, name))
			return
		}
		as.write(w, http.StatusOK, as.object(resource, one))
		return
	}
	query := r.URL.Query()
	options := metav1.ListOptions{}
	if err := metav1.Convert_url_Values_To_v1_ListOptions(&query, &options, nil); err != nil {
		writeError(w, apierrors.NewBadRequest(err.Error()))
		return
	}
	selected, err := resource.selection(namespace, options)
	if err != nil {
		writeError(w, err)
		return
	}
	if options.Watch {
		s.watch(w, r, resource, selected, options, as)
		return
	}
	as.write(w, http.StatusOK, as.list(resource, selected))
}

// writeError responds with a Status.
func writeError(w http.ResponseWriter, err error) {
	var status apierrors.APIStatus
	if !errors.As(err, &status) {
		status = apierrors.NewInternalError(err)
	}
	body := status.Status()
	body.SetGroupVersionKind(schema.GroupVersionKind{Version: "v1", Kind: "Status"})
	asJSON.write(w, int(body.Code), &body)
}
