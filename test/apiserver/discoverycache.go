// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	"net/http"
	"sync/atomic"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/discovery/cached/disk"
	"k8s.io/client-go/discovery/cached/memory"
	restclient "k8s.io/client-go/rest"
)

// RequireCached fails the test unless client-go's discovery caches hold every version of the API groups at a URL. It
// returns the preferred resources, as controllers and kubectl api-resources get them.
func RequireCached(t *testing.T, url string) (preferred []*metav1.APIResourceList) {
	t.Helper()
	var requests atomic.Int32
	config := &restclient.Config{Host: url, WrapTransport: func(next http.RoundTripper) http.RoundTripper {
		return roundTripper(func(r *http.Request) (*http.Response, error) {
			requests.Add(1)
			return next.RoundTrip(r)
		})
	}}
	folder := t.TempDir()
	for name, open := range map[string]func() discovery.CachedDiscoveryInterface{
		"memory": openedOnce(memory.NewMemCacheClient(discovery.NewDiscoveryClientForConfigOrDie(config))),
		"memory, legacy documents": openedOnce(memory.NewMemCacheClient(
			discovery.NewDiscoveryClientForConfigOrDie(config).WithLegacy().(*discovery.DiscoveryClient))),
		// Each command of kubectl and Helm opens the files again.
		"disk": func() discovery.CachedDiscoveryInterface {
			client, err := disk.NewCachedDiscoveryClientForConfig(config, folder, "", time.Hour)
			if err != nil {
				t.Fatal(err)
			}
			return client
		},
	} {
		t.Run(name, func(t *testing.T) {
			for round := range 2 {
				before := requests.Load()
				client := open()
				groups, lists, err := client.ServerGroupsAndResources()
				if err != nil {
					t.Errorf("round %d: %v", round, err)
				}
				if len(groups) == 0 || len(lists) == 0 {
					t.Errorf("round %d: discovery has the groups %v and the lists %v", round, groups, lists)
				}
				for _, group := range groups {
					for _, version := range group.Versions {
						if list, err := client.ServerResourcesForGroupVersion(version.GroupVersion); err != nil || len(list.APIResources) == 0 {
							t.Errorf("round %d: %s has the resources %v, error %v", round, version.GroupVersion, list, err)
						}
					}
				}
				if preferred, err = client.ServerPreferredResources(); err != nil {
					t.Errorf("round %d: %v", round, err)
				}
				if made := requests.Load() - before; (made == 0) != (round == 1) {
					t.Errorf("round %d made %d requests", round, made)
				}
			}
		})
	}
	return preferred
}

func openedOnce(client discovery.CachedDiscoveryInterface) func() discovery.CachedDiscoveryInterface {
	return func() discovery.CachedDiscoveryInterface { return client }
}

type roundTripper func(*http.Request) (*http.Response, error)

// RoundTrip implements http.RoundTripper.
func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }
