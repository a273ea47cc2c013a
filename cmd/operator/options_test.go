// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/spf13/pflag"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"
)

func TestComplete(t *testing.T) {
	cases := map[string]struct {
		env        map[string]string
		args       []string
		namespaces []string
		err        string
	}{
		"its own namespace":      {namespaces: []string{"own"}},
		"others too":             {args: []string{"--namespaces=own,other"}, namespaces: []string{"other", "own"}},
		"without its own":        {args: []string{"--namespaces=other"}, namespaces: []string{"other"}},
		"the same twice":         {args: []string{"--namespaces=own,own"}, namespaces: []string{"own"}},
		"several flags":          {args: []string{"--namespaces=b", "--namespaces=a"}, namespaces: []string{"a", "b"}},
		"image by flag":          {env: map[string]string{servingImageEnv: ""}, args: []string{"--serving-image=x"}, namespaces: []string{"own"}},
		"no image":               {env: map[string]string{servingImageEnv: ""}, err: "--serving-image"},
		"no namespace":           {env: map[string]string{namespaceEnv: ""}, err: "POD_NAMESPACE is not set"},
		"malformed namespace":    {args: []string{"--namespaces=Own"}, err: `"Own" is not a namespace`},
		"empty name in the list": {args: []string{"--namespaces=own,"}, err: `"" is not a namespace`},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Setenv(namespaceEnv, "own")
			t.Setenv(servingImageEnv, "image")
			for key, value := range tc.env {
				t.Setenv(key, value)
			}
			o := newOptions()
			fs := pflag.NewFlagSet("", pflag.ContinueOnError)
			o.addFlags(fs)
			if err := fs.Parse(tc.args); err != nil {
				t.Fatal(err)
			}
			err := o.complete()
			if tc.err != "" {
				if err == nil || !strings.Contains(err.Error(), tc.err) {
					t.Errorf("got %v, want %q in it", err, tc.err)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tc.namespaces, o.namespaces); diff != "" {
				t.Errorf("namespaces (-want +got):\n%s", diff)
			}
		})
	}
}

// Whoever implements an aggregated API chooses how many resources it names.
func TestHugeDiscovery(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		switch {
		case strings.Contains(r.Header.Get("Accept"), "APIGroupDiscoveryList"):
			w.Header().Set("Content-Type", "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList")
			_, _ = io.WriteString(w, `{"items":[{"metadata":{"name":"`+strings.Repeat("x", maxDiscovery)+`"}}]}`)
		case r.URL.Path == "/apis/apps/v1":
			_, _ = io.WriteString(w, `{"groupVersion":"apps/v1","resources":[{"name":"deployments","kind":"Deployment","namespaced":true}]}`)
		case r.URL.Path == "/apis":
			_, _ = io.WriteString(w, `{"groups":[{"name":"apps","versions":[{"groupVersion":"apps/v1","version":"v1"}]}]}`)
		default:
			_, _ = io.WriteString(w, `{"versions":["v1"]}`)
		}
	}))
	t.Cleanup(server.Close)
	mapper, err := newOptions().managerOptions(runtime.NewScheme()).MapperProvider(&rest.Config{Host: server.URL}, server.Client())
	if err != nil {
		t.Fatal(err)
	}
	if mapping, err := mapper.RESTMapping(schema.GroupKind{Group: "apps", Kind: "Deployment"}, "v1"); err != nil || mapping.Resource.Resource != "deployments" {
		t.Errorf("%v, error %v", mapping, err)
	}
}

// By default, metrics need authorization, and profiling is off.
func TestSecureByDefault(t *testing.T) {
	t.Setenv(namespaceEnv, "own")
	o := newOptions()
	options := o.managerOptions(runtime.NewScheme())
	if !options.Metrics.SecureServing || options.Metrics.FilterProvider == nil {
		t.Error("/metrics is open to everyone")
	}
	if options.PprofBindAddress != "0" {
		t.Errorf("profiling listens on %q", options.PprofBindAddress)
	}
	if !options.LeaderElection || !options.LeaderElectionReleaseOnCancel || options.LeaderElectionNamespace != "own" {
		t.Errorf("leader election: %t, released %t, in %q", options.LeaderElection, options.LeaderElectionReleaseOnCancel, options.LeaderElectionNamespace)
	}
	o.metricsSecure = false
	if plain := o.managerOptions(runtime.NewScheme()).Metrics; plain.SecureServing || plain.FilterProvider != nil {
		t.Error("--metrics-secure=false has no effect")
	}
}
