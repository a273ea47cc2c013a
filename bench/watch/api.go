// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"crypto/tls"
	"fmt"

	"github.com/metricsbackend/metrics-backend-operator/bench/cluster"
)

// api is one of the three APIs, by the paths with which a client asks for an application of a
// namespace.
type api struct {
	name        string
	list, watch func(namespace, app string) string
}

// The metrics of custom and external metrics, which Prometheus scrapes.
const (
	customMetric   = "load"
	externalMetric = "jobs"
)

var (
	// resource is watched with the parameters of informers: a bookmark ends the initial events.
	resource = api{
		name: "metrics.k8s.io",
		list: pods,
		watch: func(namespace, app string) string {
			return pods(namespace, app) + "&watch=true&allowWatchBookmarks=true&sendInitialEvents=true&resourceVersionMatch=NotOlderThan"
		},
	}
	// custom is watched below /watch/: other watches of it end after a minute.
	custom = api{
		name:  "custom.metrics.k8s.io",
		list:  func(namespace, app string) string { return customValues("", namespace, app) },
		watch: func(namespace, app string) string { return customValues("watch/", namespace, app) },
	}
	external = api{
		name:  "external.metrics.k8s.io",
		list:  jobs,
		watch: func(namespace, app string) string { return jobs(namespace, app) + "&watch=true" },
	}
)

func pods(namespace, app string) string {
	return fmt.Sprintf("/apis/metrics.k8s.io/v1/namespaces/%s/pods?labelSelector=app%%3D%s", namespace, app)
}

func customValues(prefix, namespace, app string) string {
	return fmt.Sprintf("/apis/custom.metrics.k8s.io/v1beta2/%snamespaces/%s/pods/*/%s?labelSelector=app%%3D%s", prefix, namespace, customMetric, app)
}

func jobs(namespace, app string) string {
	return fmt.Sprintf("/apis/external.metrics.k8s.io/v1beta1/namespaces/%s/%s?labelSelector=app%%3D%s", namespace, externalMetric, app)
}

// endpoint is where clients connect: serving, or kube-apiserver.
type endpoint struct {
	address string
	tls     *tls.Config
	// fields returns the headers of a user. Limits are per user.
	fields func(user string) []string
}

// direct returns serving itself, whose clients send their user as a front proxy does.
func (e *environment) direct(f *flags) endpoint {
	return endpoint{e.serving.Address, e.serving.TLS, func(user string) []string {
		return append(cluster.Header("load:"+user, f.masters), "accept", "application/json", "user-agent", userAgent)
	}}
}

// proxied returns kube-apiserver, whose clients are accounts with a token.
func (e *environment) proxied(clients *cluster.Clients) endpoint {
	return endpoint{clients.Address, clients.TLS, func(user string) []string {
		return []string{"authorization", "Bearer " + clients.Tokens[user], "accept", "application/json", "user-agent", userAgent}
	}}
}

const userAgent = "bench-watch"
